"""Compares a compiled bundle with what it must compute, and finds the first layer that differs.

Enters: a bundle and samples. Leaves: a `Verdict`. Invariant: only outputs that were executed and compared count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from aot.bundle import Bundle
from aot.driver import Options, compile
from aot.lower.execute import execute_program
from aot.lower.program import Program
from aot.run import RunResult, run_bundle
from aot.samples import Difference, Sample, differences


@dataclass(frozen=True)
class Verdict:
    """What a comparison found: (number of the sample, difference) pairs. `last`: figures of the last run."""

    oracle: str
    samples: int
    mismatches: tuple[tuple[int, Difference], ...]
    last: RunResult

    @property
    def passed(self) -> bool:
        return self.samples > 0 and not self.mismatches


def verify(
    bundle: Bundle,
    oracle: str,
    samples: Sequence[Sample],
    where: str,
    progress: Callable[[str, str], None] = lambda task, detail: None,
    push_rows: int = 1,
) -> Verdict:
    """Run every sample and compare (push_rows: as for `run_bundle`). With state, each run goes on from the one before, the first from NAME_init."""
    mismatches: list[tuple[int, Difference]] = []
    last: RunResult | None = None
    for number, sample in enumerate(samples):
        progress("running", f"sample {number + 1} of {len(samples)}")
        last = run_bundle(bundle, sample.inputs, where, state=last.state if last else None, push_rows=push_rows)
        mismatches += [(number, difference) for difference in differences(sample.outputs, last.outputs)]
    if last is None:
        raise ValueError("no samples")
    return Verdict(oracle, len(samples), tuple(mismatches), last)


def first_difference(path: str, options: Options, samples: Sequence[Sample], where: str) -> str:
    """A sentence that names the first layer whose compiled result differs from the reference meaning of the same program.

    `samples`: those up to the one that differs, from the initial state on.
    """
    exposed = replace(options, expose=True, io="caller", stream_input=False, regions={})
    bundle = compile(path, options=exposed)
    plan = bundle.main.plan
    if plan is None:
        raise ValueError("the bundle has no plan")
    program = plan.schedule.program
    state: dict[str, np.ndarray] = {}
    held: bytes | None = None
    for sample in samples:
        values = execute_program(program, dict(zip(program.inputs, sample.inputs, strict=True)), state)
        result = run_bundle(bundle, sample.inputs, where, state=held)
        held = result.state
        if found := _differing_layer(bundle, program, values, dict(zip(program.outputs, result.outputs, strict=True))):
            return found
    return (
        "every layer's compiled code agrees with aot's own reference: the expected outputs are another model's or wrong, "
        "or aot understands an operator differently, or the difference arises only where buffers share memory"
    )


def _differing_layer(bundle: Bundle, program: Program, values: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray]) -> str:
    """The first layer of one run that differs; empty if none does."""
    plan = bundle.main.plan
    assert plan is not None
    for position, layer in zip(plan.schedule.kernel_positions, bundle.main.layers, strict=True):
        for name in plan.schedule.choices[position].implementation.writes:
            storage = program.storage(name)
            if storage not in got:
                continue
            found = differences([values[storage]], [got[storage].reshape(values[storage].shape)])
            if found:
                where_text = (
                    f"layer {layer.symbol} ({layer.kernel}, node {', '.join(map(str, layer.nodes))} {'+'.join(layer.operators)})"
                )
                return f"first layer that differs: {where_text}, {found[0].count} elements, by {found[0].largest:g} at most"
    return ""
