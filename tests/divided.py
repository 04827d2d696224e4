"""Random nets of image layers whose layers run by rows: the plan passes its replay, outputs are exact, and no workspace is larger than layer
by layer.

    python -m tests.divided CASE ...

Enters: a seed. Leaves: what is wrong, with the smallest net that shows it. Invariant: the same seed gives the same case.
On Cortex-M in Unicorn, memory forgets what no step needs (`tests/run/poisoned.py`).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from aot.bundle import Bundle
from aot.driver import Options, compile_model, resolve_target
from aot.errors import CompileError
from aot.graph.interpreter import run as interpret
from aot.graph.ir import Model
from aot.graph.ops import OPERATORS
from aot.graph.shapes import fix_shapes
from aot.graph.tflite import read_model
from aot.lower.lifetime import Io
from aot.lower.tradeoff import Optimize
from aot.run import run_bundle
from tests.differential.engines import Answer, Server, last_line, quiet
from tests.differential.images import image_net
from tests.differential.net import Net
from tests.differential.outcome import compare
from tests.differential.reduce import reduced
from tests.layerwise import layer_by_layer_nbytes
from tests.run.poisoned import run_poisoned

ALL_ROWS = 1 << 20
MODES: tuple[Optimize, ...] = ("ram", "ram", "ram", "balanced", "size", "speed")
GOOD = ("divided", "whole", "refused")
TARGETS = (*["host"] * 6, *["cortex-m4"] * 10, *["cortex-m0plus"] * 2, "cortex-m3", "cortex-m33")


@dataclass(frozen=True)
class Way:
    """How a net is compiled. share: of the way from the smallest workspace to the one layer by layer, that a limit lies at; None: no limit."""

    target: str
    io: Io = "workspace"
    stream_input: bool = False
    share: float | None = None
    optimize: Optimize = "ram"


@dataclass
class Tally:
    """What came of cases: counts, and for each failure the seed, what is wrong and the smallest net's text."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str, str]] = field(default_factory=list)


def case(seed: int) -> tuple[Net, Way]:
    """A net, and how it is compiled."""
    random = Random(seed + 1_000_003)
    share = max(random.uniform(-0.1, 1), 0.0) if random.random() < 0.4 else None
    io: Io = "workspace" if random.random() < 0.75 else "caller"
    target, stream_input = random.choice(TARGETS), random.random() < 0.3
    return image_net(seed), Way(target, io, stream_input, share, random.choice(MODES))


def judge(net: Net, way: Way) -> tuple[str, str]:
    """What comes of a net compiled in this way: divided or whole (all is well; whether some layer runs by rows), refused or wrong, with the
    reason."""
    options = Options(None if way.target == "host" else way.target, io=way.io, stream_input=way.stream_input, optimize="ram")
    model, inputs = read_model(net.build(), "case.tflite", OPERATORS), net.arrays()
    expected = Answer("the interpreter", "ran", tuple(interpret(fix_shapes(model.main, {}, OPERATORS), inputs)))
    try:
        whole_nbytes, bundle = layer_by_layer_nbytes(model, options), _compiled(model, options)
    except CompileError as refusal:
        return "refused", refusal.what
    least = bundle.workspace_nbytes
    if least > whole_nbytes:
        return "wrong", f"{least} bytes of workspace by rows, {whole_nbytes} layer by layer"
    limit = None if way.share is None else least + round(way.share * (whole_nbytes - least))
    if (limit, way.optimize) != (None, "ram"):
        try:
            bundle = _compiled(model, replace(options, optimize=way.optimize, max_workspace_nbytes=limit))
        except CompileError as refusal:
            return "wrong", f"--optimize ram takes {least} bytes, layer by layer {whole_nbytes}; but: {refusal.what}"
        if bundle.workspace_nbytes > (limit or whole_nbytes) and (limit or way.optimize == "balanced"):
            return "wrong", f"{bundle.workspace_nbytes} bytes of workspace, more than {limit or whole_nbytes}"
    for rows in (1, 3, ALL_ROWS) if way.stream_input else (1,):
        got = Answer(way.target, "ran", tuple(run_bundle(bundle, inputs, push_rows=rows).outputs))
        if difference := compare(net, expected, got):
            return "wrong", f"{f'{rows} rows pushed at a time: ' if way.stream_input else ''}{difference}"
    if way.target != "host":
        try:
            got = Answer("memory that forgets", "ran", tuple(run_poisoned(bundle, inputs)))
        except AssertionError as fault:
            return "wrong", str(fault)
        if difference := compare(net, expected, got):
            return "wrong", difference
    plan = bundle.main.plan
    assert plan is not None
    steps = Counter(step.position for step in plan.schedule.steps)
    return "divided" if max(steps.values(), default=0) > 1 else "whole", ""


def _compiled(model: Model, options: Options) -> Bundle:
    return compile_model(model, *resolve_target(options), options, _silent)


def _silent(stage: str, result: object) -> None:
    """An observer that looks away."""


def answer(who: str, net: Net, way: Way) -> Answer:
    """What comes of a case, for a process that may die of it."""
    try:
        kind, what = judge(net, way)
    except Exception as error:
        kind, what = "broke", last_line(error)
    return Answer(who, kind, None, what)


class Judge:
    """Judges cases in a process of its own."""

    def __init__(self) -> None:
        quiet()
        self.server = Server(answer)

    def close(self) -> None:
        self.server.close()

    def judge(self, net: Net, way: Way) -> Answer:
        return self.server.ask(way.target, net, way)

    def hunt(self, seeds: Sequence[int]) -> Tally:
        """Run these cases."""
        tally = Tally()
        for seed in seeds:
            net, way = case(seed)
            found = self.judge(net, way)
            tally.counts[found.kind] += 1
            if found.kind in GOOD:
                continue
            least = reduced(net, lambda smaller, way=way, kind=found.kind: self.judge(smaller, way).kind == kind)
            tally.failures.append((seed, f"{found.kind}: {self.judge(least, way).what} ({way})", repr(least)))
        return tally


def main() -> int:
    quiet()
    kinds = []
    for seed in map(int, sys.argv[1:]):
        net, way = case(seed)
        kind, what = judge(net, way)
        print(f"case {seed}: {kind} {what}\n    {way}\n    {net}")
        kinds.append(kind)
    return 0 if set(kinds) <= set(GOOD) else 1


if __name__ == "__main__":
    sys.exit(main())
