"""Hypothesis strategies: nets of one operator, and small graphs of several.

Enters: the table of cases. Leaves: strategies of (net, target). Invariant: everything is drawn, so that Hypothesis shrinks a failure.
"""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from aot.errors import CompileError
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_model
from tests.differential.case import EXACT, Case
from tests.differential.grower import Grower
from tests.differential.net import Net
from tests.differential.reduce import alone, trimmed
from tests.differential.table import CASES, bound_of

TARGETS = ("host", "host", "host", "host", "host", "host", "cortex-m4", "host")
"""Unicorn takes longer than the host: one case in eight."""


@st.composite
def single(draw, case: Case) -> tuple[Net, str]:
    """One operator on fresh inputs."""
    grower = Grower(draw, reuse=False)
    case.grow(grower, case.op)
    return grower.net(), draw(st.sampled_from(TARGETS))


@st.composite
def graphs(draw, most_nodes: int = 12) -> tuple[Net, str]:
    """2 to `most_nodes` operators that our compiler takes; branches, shared and unused values, inputs and constants as outputs."""
    grower = Grower(draw, reuse=True)
    for _ in range(most_nodes):
        if len(grower.nodes) > 1 and not draw(st.sampled_from(MORE)):
            break
        draw(_step(grower))
    made = [number for node in grower.nodes for number in node.outputs]
    read = {number for node in grower.nodes for number in node.inputs}
    ends = [number for number in made if number not in read]
    kept = [number for number in ends if number == ends[-1] or draw(st.sampled_from((True, True, True, False)))]
    more = draw(st.lists(st.sampled_from(_others(grower, made)), max_size=2)) if not draw(st.integers(0, 3)) else []
    outputs = list(dict.fromkeys([*kept, *more]))
    return trimmed(grower.net(outputs or [_first(grower)])), draw(st.sampled_from(TARGETS))


MORE = (False, True, True, True, True, True, True, True)
"""Whether another node follows. A flag for each and not a count, so that Hypothesis can take single nodes out."""


@st.composite
def _step(draw, grower: Grower) -> None:
    """One more node, unless our compiler refuses it (cases of one operator show what is refused)."""
    case = CASES[draw(st.sampled_from(supported()))]
    mark = grower.mark()
    case.grow(grower, case.op)
    node = grower.nodes[-1]
    soft = any(grower[number].dtype == "float32" and _inexact(grower, number) for number in node.inputs if number >= 0)
    if (case.jumps and soft) or not accepted(alone(grower.net(), grower.nodes[-1])):
        grower.back(mark)


def _inexact(grower: Grower, number: int) -> bool:
    """Whether a value depends on an operator whose float results are not exact."""
    maker = next((node for node in grower.nodes if number in node.outputs), None)
    if maker is None:
        return False
    return bound_of(maker.op) != EXACT or any(_inexact(grower, other) for other in maker.inputs if other >= 0)


def accepted(net: Net) -> bool:
    """Whether our reader takes the net. An error that is no CompileError is for the comparison to find."""
    try:
        read_model(net.build(), "case.tflite", OPERATORS)
    except CompileError:
        return False
    except Exception:
        return True
    return True


def _others(grower: Grower, made: list[int]) -> list[int]:
    """What may be an output besides the ends: any made value, an input, a constant (a plain one)."""
    constants = [n for n, tensor in enumerate(grower.tensors) if tensor.data is not None and not isinstance(tensor.scale, tuple)]
    whole = [n for n in constants if grower[n].dtype != "int4" and grower[n].shape]
    return [*made, *grower.inputs, *whole] or [_first(grower)]


def _first(grower: Grower) -> int:
    """Some value, where every node was refused."""
    return grower.inputs[0] if grower.inputs else grower.value("int8")


@cache
def supported() -> tuple[str, ...]:
    """The operators of the table that the compiler has."""
    return tuple(op for op in CASES if op in OPERATORS)
