"""Compares a compiled bundle with what it must compute, at one place or at several, and layer by layer.

Enters: a bundle and samples. Leaves: a `Verdict` for each place; what each layer's compiled result differs by.
Invariant: only outputs that were executed and compared count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from aot.bundle import Bundle, Layer
from aot.driver import Options, compile
from aot.errors import CompileError
from aot.lower.execute import execute_program
from aot.lower.program import Program
from aot.run import RunResult, run_bundle
from aot.samples import Difference, Sample, differences, distances

Progress = Callable[[str, str], None]


def _silent(task: str, detail: str) -> None:
    """Progress that nobody sees."""


@dataclass(frozen=True)
class Verdict:
    """What a comparison found: (number of the sample, difference) pairs. `last`: figures of the last run. outputs, seconds: of each sample."""

    oracle: str
    samples: int
    mismatches: tuple[tuple[int, Difference], ...]
    last: RunResult
    outputs: tuple[tuple[np.ndarray, ...], ...] = ()
    seconds: tuple[float, ...] = ()

    @property
    def passed(self) -> bool:
        return self.samples > 0 and not self.mismatches


@dataclass(frozen=True)
class Places:
    """Verdicts of one bundle at several places, and (place, why it could not be run there) of the others.

    apart: (place, first sample, output) whose bytes are not those of the first place.
    """

    verdicts: tuple[Verdict, ...]
    missing: tuple[tuple[str, str], ...]
    apart: tuple[tuple[str, int, int], ...] = ()

    @property
    def passed(self) -> bool:
        return bool(self.verdicts) and all(verdict.passed for verdict in self.verdicts) and not self.apart


def verify(
    bundle: Bundle, oracle: str, samples: Sequence[Sample], where: str, progress: Progress = _silent, push_rows: int = 1
) -> Verdict:
    """Run every sample and compare (push_rows: as for `run_bundle`). With state, each run goes on from the one before, the first from NAME_init."""
    mismatches: list[tuple[int, Difference]] = []
    outputs, seconds = list[tuple[np.ndarray, ...]](), list[float]()
    last: RunResult | None = None
    for number, sample in enumerate(samples):
        progress("running", f"sample {number + 1} of {len(samples)}")
        begin = time.monotonic()
        last = run_bundle(bundle, sample.inputs, where, state=last.state if last else None, push_rows=push_rows)
        seconds.append(time.monotonic() - begin)
        outputs.append(tuple(last.outputs))
        mismatches += [(number, difference) for difference in differences(sample.outputs, last.outputs)]
    if last is None:
        raise ValueError("no samples")
    return Verdict(oracle, len(samples), tuple(mismatches), last, tuple(outputs), tuple(seconds))


def verify_places(
    bundle: Bundle, oracle: str, samples: Sequence[Sample], places: Sequence[str], progress: Progress = _silent, push_rows: int = 1
) -> Places:
    """`verify` at each of the places that the bundle suits and that is installed. CompileError if there is none, or only one was asked for."""
    verdicts, missing = list[Verdict](), list[tuple[str, str]]()
    for place in places:
        try:
            verdicts.append(verify(bundle, oracle, samples, place, progress, push_rows))
        except CompileError as error:
            if len(places) == 1:
                raise
            missing.append((place, str(error)))
    if not verdicts:
        raise CompileError("the bundle runs at no place: " + "; ".join(f"{place}: {reason}" for place, reason in missing))
    return Places(tuple(verdicts), tuple(missing), tuple(_apart(verdicts)))


def _apart(verdicts: Sequence[Verdict]) -> Iterator[tuple[str, int, int]]:
    first = verdicts[0]
    for verdict in verdicts[1:]:
        for sample, pairs in enumerate(zip(first.outputs, verdict.outputs, strict=True)):
            wrong = [output for output, (a, b) in enumerate(zip(*pairs, strict=True)) if a.tobytes() != b.tobytes()]
            if wrong:
                yield verdict.last.where, sample, wrong[0]
                break


@dataclass(frozen=True)
class LayerDifference:
    """A layer's compiled results beside the reference meaning of the same program, over all samples: elements compared, how many differ (as
    `differences` has it), by how much at most."""

    layer: Layer
    elements: int
    differing: int
    largest: float

    def __str__(self) -> str:
        nodes = ", ".join(map(str, self.layer.nodes))
        return f"layer {self.layer.symbol} ({self.layer.kernel}, node {nodes} {'+'.join(self.layer.operators)})"


def require_reference(bundle: Bundle) -> None:
    """CompileError for a bundle whose layers can't be compared with a reference of ours."""
    if bundle.library:
        what = f"the layers of {bundle.name} call a library, so that there is no reference of each by itself"
        raise CompileError(what, hint="--kernels native computes the same bytes")


def layer_differences(path: str, options: Options, samples: Sequence[Sample], where: str) -> Iterator[tuple[LayerDifference, ...]]:
    """For each sample, every layer that leaves something to compare, in the order in which they run.

    The bundle is compiled so that each layer's result is an output; `samples`: from the initial state on.
    """
    plain = replace(options, io="caller", stream_input=False, regions={}, weights_in=None, page_weights_nbytes=None)
    bundle = compile(path, options=replace(plain, expose=True))
    require_reference(bundle)
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
        yield tuple(_layers(bundle, program, values, dict(zip(program.outputs, result.outputs, strict=True))))


def _layers(
    bundle: Bundle, program: Program, values: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray]
) -> Iterator[LayerDifference]:
    plan = bundle.main.plan
    assert plan is not None
    for position, layer in zip(plan.schedule.kernel_positions, bundle.main.layers, strict=True):
        written = map(program.storage, plan.schedule.choices[position].implementation.writes)
        names = [name for name in dict.fromkeys(written) if name in got]
        pairs = [(values[name], got[name].reshape(values[name].shape)) for name in names]
        if pairs:
            found = differences(*zip(*pairs))
            apart = [float(np.max(np.nan_to_num(distances(*pair), nan=np.inf), initial=0.0)) for pair in pairs]
            yield LayerDifference(layer, sum(want.size for want, _ in pairs), sum(each.count for each in found), max(apart))


def all_layers(path: str, options: Options, samples: Sequence[Sample], where: str) -> tuple[LayerDifference, ...]:
    """`layer_differences` of all samples together."""
    runs = list(layer_differences(path, options, samples, where))
    return tuple(
        LayerDifference(
            one[0].layer, sum(each.elements for each in one), sum(each.differing for each in one), max(each.largest for each in one)
        )
        for one in zip(*runs, strict=True)
    )


def first_difference(path: str, options: Options, samples: Sequence[Sample], where: str) -> str:
    """A sentence that names the first layer whose compiled result differs from the reference meaning of the same program.

    `samples`: those up to the one that differs, from the initial state on.
    """
    for layers in layer_differences(path, options, samples, where):
        for each in layers:
            if each.differing:
                return f"first layer that differs: {each}, {each.differing} elements, by {each.largest:g} at most"
    return (
        "every layer's compiled code agrees with aot's own reference: the expected outputs are another model's or wrong, "
        "or aot understands an operator differently, or the difference arises only where buffers share memory"
    )
