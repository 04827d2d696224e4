"""What came of a case: equal, refused, different, crashed.

Enters: a net and the target. Leaves: an `Outcome`. Invariant: only `different` and `crash` are failures.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tests.differential.engines import Answer, Server, compiled, computed, oracle
from tests.differential.net import Net
from tests.differential.reduce import alone
from tests.differential.table import EXACT, SUM, bound_of

COMPARISONS = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")

LONG_CHAIN = 1e-4
"""Largest error of a float result behind several operators, relative to the output's largest magnitude."""


@dataclass(frozen=True)
class Outcome:
    """kind: equal, ours only (no oracle runs it), refused (an oracle runs it), refused by both, different, crash.

    what: the sentence of the refusal, or the difference. oracle: who answered.
    """

    kind: str
    what: str = ""
    oracle: str = ""

    @property
    def failed(self) -> bool:
        return self.kind in ("different", "crash")


class Referee:
    """Judges cases; holds the processes."""

    def __init__(self) -> None:
        self.oracles, self.ours = Server(oracle), Server(compiled)

    def close(self) -> None:
        self.oracles.close()
        self.ours.close()

    def judge(self, net: Net, target: str = "host") -> Outcome:
        """Run both sides and compare."""
        model, inputs = net.build(), net.arrays()
        got = self.ours.ask(target, model, inputs)
        if got.kind in ("broke", "died"):
            return Outcome("crash", f"{target}: {got.what}")
        want = self.expected(net, model, inputs)
        if got.outputs is None:
            return Outcome("refused by both" if want.outputs is None else "refused", got.what, want.who)
        if want.outputs is None:
            return Outcome("ours only", want.what, want.who)
        difference = compare(net, want, got)
        if difference:
            return Outcome("different", f"{difference}; {self.witness(net, model, inputs, want)}", want.who)
        return Outcome("equal", "", want.who)

    def expected(self, net: Net, model: bytes, inputs: list[np.ndarray]) -> Answer:
        """TFLite Micro's answer. Where it has none that counts: its answers node by node; for the nodes that it lacks, LiteRT's."""
        if not distrusted(net):
            whole = self.oracles.ask("tflm", model, inputs)
            if whole.outputs is not None:
                return whole
        if len(net.nodes) > 1:
            return self.piecewise(net, inputs)
        return self.oracles.ask("litert", model, inputs)

    def piecewise(self, net: Net, inputs: list[np.ndarray]) -> Answer:
        """The outputs of every node in its turn, each as a model of its own: the two oracles differ in some operators."""
        arrays = dict(zip(net.inputs, inputs))
        who = set()
        for node in net.nodes:
            part = alone(net, node)
            read = [number for number in dict.fromkeys(node.inputs) if number in arrays]
            answer = self.expected(part, part.build(), [arrays[number] for number in read])
            if answer.outputs is None:
                return answer
            who.add(answer.who)
            shapes = (net.tensors[number].shape for number in node.outputs)
            arrays |= {n: array.reshape(shape) for n, array, shape in zip(node.outputs, answer.outputs, shapes)}
        found = [arrays[n] if n in arrays else net.tensors[n].array() for n in net.outputs]
        return Answer("+".join(sorted(who)), "ran", tuple(found))

    def witness(self, net: Net, model: bytes, inputs: list[np.ndarray], want: Answer) -> str:
        """What the others say to a difference: our interpreter, LiteRT, the oracle asked again by a process of its own."""
        said = []
        for name, answer in (
            ("compute", computed(model, inputs)),
            ("litert", self.oracles.ask("litert", model, inputs)),
            ("the oracle again", self.expected(net, model, inputs)),
        ):
            agrees = answer.outputs is not None and not compare(net, want, answer)
            said.append(f"{name} {'agrees with the oracle' if agrees else 'differs' if answer.outputs else 'has no answer'}")
        return ", ".join(said)


def distrusted(net: Net) -> bool:
    """Whether TFLite Micro computes with numbers that it never sets: comparisons of int16, the padding of SPACE_TO_BATCH_ND."""
    return any(
        node.op == "SPACE_TO_BATCH_ND" or (node.op in COMPARISONS and part.tensors[node.inputs[0]].dtype == "int16")
        for part in (net, *net.others)
        for node in part.nodes
    )


def compare(net: Net, want: Answer, got: Answer) -> str:
    """The first output that differs, by how much; "" if none does."""
    assert want.outputs is not None and got.outputs is not None
    if len(want.outputs) != len(got.outputs):
        return f"{len(got.outputs)} outputs instead of {len(want.outputs)}"
    for number, (theirs, ours) in enumerate(zip(want.outputs, got.outputs)):
        where = f"output {number} of {got.who} against {want.who}"
        if theirs.size != ours.size or theirs.dtype != ours.dtype:
            return f"{where}: {ours.dtype}{list(ours.shape)} instead of {theirs.dtype}{list(theirs.shape)}"
        wrong = _wrong(net, theirs.reshape(-1), ours.reshape(-1))
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            values = f"{ours.reshape(-1)[first]!r} instead of {theirs.reshape(-1)[first]!r}"
            return f"{where}: {int(wrong.sum())} of {wrong.size} differ, [{first}] is {values}"
    return ""


def _wrong(net: Net, want: np.ndarray, got: np.ndarray) -> np.ndarray:
    """Which elements are not as expected.

    A float that overflows: TFLite's fused activation "none" clamps to the finite numbers, ours leaves infinity.
    """
    if want.dtype.kind != "f":
        return want != got
    overflow = np.isinf(got) & (want == np.copysign(np.finfo(np.float32).max, got))
    same = (want == got) | (np.isnan(want) & np.isnan(got)) | overflow
    with np.errstate(all="ignore"):
        apart = np.abs(want.astype(np.float64) - got)
    return ~(same | (apart <= _bound(net, want)))


def _bound(net: Net, want: np.ndarray) -> np.ndarray | float:
    """The largest error of each float element."""
    bounds = [bound_of(op) for op in net.ops()]
    largest = max(float(np.max(np.abs(want[np.isfinite(want)]), initial=0)), 0.1)
    if all(bound == EXACT for bound in bounds):
        return 0.0
    if len(bounds) > 1:
        return LONG_CHAIN * largest
    if bounds[0] == SUM:
        return 2e-6 * largest
    return bounds[0] * np.spacing(np.abs(np.where(np.isfinite(want), want, 0)))


def sentence(text: str) -> str:
    """A refusal with its numbers and names taken out, so that refusals can be counted."""
    return re.sub(r"(?<![A-Za-z0-9_])-?\d[\d.e+-]*", "N", re.sub(r"'[^']*'", "'...'", text))
