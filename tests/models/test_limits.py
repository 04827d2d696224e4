"""Golden networks within any workspace: with `--optimize ram` and balanced, with rows of the input pushed, within limits between the least
workspace and the one layer by layer; on this machine and on a Cortex-M4 whose memory forgets what no step needs (`tests/run/poisoned.py`).

A sample of networks and limits; with AOT_SWEEP=1 all networks, ten limits each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

import aot
from aot.bundle import Bundle
from aot.driver import Options, compile_model, resolve_target
from aot.graph.ops import OPERATORS
from aot.graph.primitive import Control
from aot.graph.tflite import read_file
from aot.samples import Sample, differences, golden_samples
from aot.verify import verify
from tests.layerwise import layer_by_layer_nbytes
from tests.models.test_golden_models import NETWORKS, REFUSED, model_of, name_of
from tests.run.poisoned import run_poisoned

SWEEP = bool(os.environ.get("AOT_SWEEP"))
LIMITS = 10 if SWEEP else 1
SAMPLE = ("esphome_mww__vad", "tflm__test_conv_model", "tflm_arduino__magic_wand", "tinyengine__ptq_mnist_lenet-300-100")
ALL_ROWS = 1 << 20
MOST_MACS = 100_000_000
"""Networks with more run on this machine only."""
NOT_STREAMED = "--stream-input"


@dataclass(frozen=True)
class Result:
    """What came of one way to compile a network: exact, refused (why), or what is wrong."""

    way: str
    nbytes: int
    refused: str = ""
    wrong: str = ""


def results(path: Path, cpu: str | None, limits: int = LIMITS) -> Iterator[Result]:
    """Every way of one network."""
    model = read_file(model_of(path), OPERATORS)
    options = Options(target=cpu, io="workspace", optimize="ram")

    def compiled(wanted: Options) -> Bundle:
        return compile_model(model, *resolve_target(wanted), wanted, _silent)

    least = compiled(options)
    if cpu and sum(layer.macs for layer in least.main.layers) > MOST_MACS:
        return
    samples = _samples(path, least)
    yield _result("ram", least, samples, path)
    yield _result("balanced", compiled(replace(options, optimize="balanced")), samples, path)
    try:
        pushed = compiled(replace(options, stream_input=True))
    except aot.CompileError as error:
        yield Result("stream", 0, refused=error.what)
    else:
        for rows in (1, 3, ALL_ROWS):
            yield _result(f"stream, {rows} rows", pushed, samples, path, rows)
    whole_nbytes = layer_by_layer_nbytes(model, options)
    if least.workspace_nbytes > whole_nbytes:
        yield Result("ram", least.workspace_nbytes, wrong=f"more than {whole_nbytes} layer by layer")
    if least.workspace_nbytes >= whole_nbytes:
        return
    random = Random(f"{path.stem} {cpu}")
    for _ in range(limits):
        limit = random.randint(least.workspace_nbytes, whole_nbytes)
        try:
            bundle = compiled(replace(options, optimize="balanced", max_workspace_nbytes=limit))
        except aot.CompileError as error:
            yield Result(f"within {limit}", 0, wrong=f"{error.what}; ram takes {least.workspace_nbytes}")
            continue
        result = _result(f"within {limit}", bundle, samples, path)
        yield result if bundle.workspace_nbytes <= limit else replace(result, wrong=f"{bundle.workspace_nbytes} bytes")


def _silent(stage: str, result: object) -> None:
    """An observer that looks away."""


def _samples(path: Path, bundle: Bundle) -> list[Sample]:
    """One run; of a network with state three."""
    with np.load(path) as archive:
        _, samples = golden_samples(bundle.main, {name: archive[name] for name in archive.files}, path.name)
    return samples[: 3 if bundle.state_nbytes else 1]


def _result(way: str, bundle: Bundle, samples: list[Sample], path: Path, rows: int = 1) -> Result:
    """Run and compare; on a Cortex-M once more in memory that forgets."""
    result = Result(way, bundle.workspace_nbytes)
    verdict = verify(bundle, path.name, samples, "auto", push_rows=rows)
    if verdict.mismatches:
        return replace(result, wrong=f"{verdict.mismatches[0]}")
    plan = bundle.main.plan
    assert plan is not None
    loops = any(isinstance(one, Control) for one in plan.schedule.program.instructions)
    if bundle.target.cpu.startswith("cortex-m") and not loops and rows in (1, ALL_ROWS):
        try:
            outputs = run_poisoned(bundle, samples[0].inputs)
        except AssertionError as fault:
            return replace(result, wrong=f"memory that forgets: {fault}")
        if found := differences(samples[0].outputs, outputs):
            return replace(result, wrong=f"memory that forgets: {found[0]}")
    return result


CASES = [
    (cpu, path)
    for path in NETWORKS
    if (SWEEP or path.stem in SAMPLE) and name_of(path) not in REFUSED
    for cpu in (None, "cortex-m4")
]


@pytest.mark.parametrize("cpu,path", CASES, ids=[f"{cpu or 'host'}-{path.stem}" for cpu, path in CASES])
def test_exact_in_any_workspace(cpu: str | None, path: Path) -> None:
    found = list(results(path, cpu))
    assert found or cpu
    assert [each for each in found if each.wrong] == []
    for each in found:
        assert not each.refused or (each.refused.startswith(NOT_STREAMED) and "\n" not in each.refused)
