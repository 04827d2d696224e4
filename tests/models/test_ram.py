"""The workspace of real models on a Cortex-M4 with `--io workspace`, under `--optimize ram` and by default, and what it costs."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import pytest

import aot
from aot.lower.tradeoff import Optimize
from aot.run import run_bundle
from aot.samples import differences, golden_samples
from tests.shared import golden, model

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

SWEEP = bool(os.environ.get("AOT_SWEEP"))
STACK_NBYTES = 256
"""What the stack may have; what is above that counts as workspace."""


@dataclass(frozen=True)
class Limit:
    """Bytes of the workspace, inputs, outputs and scratch included; and how many more instructions than `before` a run may take."""

    nbytes: int
    rise: float
    before: int


LIMITS: dict[tuple[Optimize, str], Limit] = {
    ("ram", "KWS"): Limit(5_500, 0.10, 2_665_125),
    ("ram", "IC"): Limit(15_000, 0.04, 10_935_763),
    ("ram", "VWW"): Limit(30_500, 0.03, 5_618_858),
    ("ram", "PD"): Limit(13_500, 0.03, 7_557_163),
    ("ram", "AD"): Limit(800, 0.06, 263_374),
    ("balanced", "KWS"): Limit(8_900, 0.01, 2_553_493),
    ("balanced", "IC"): Limit(18_500, 0.01, 10_933_873),
    ("balanced", "VWW"): Limit(38_500, 0.01, 5_390_229),
    ("balanced", "PD"): Limit(23_500, 0.01, 7_287_688),
    ("balanced", "AD"): Limit(2_100, 0.01, 263_372),
}
"""before: instructions of balanced code on input 0 of the golden file: for `ram`, as bench/results.json had them at commit 80a5f8f; for
balanced code, with the same kernels when every layer runs whole (at commit aca3e32)."""


@pytest.mark.parametrize(("optimize", "name"), LIMITS)
def test_workspace(optimize: Optimize, name: str) -> None:
    limit = LIMITS[optimize, name]
    bundle = aot.compile(model(name), options=aot.Options("cortex-m4", optimize=optimize, io="workspace"))
    with np.load(golden(name), allow_pickle=False) as arrays:
        _, samples = golden_samples(bundle.main, dict(arrays), name)
    result = run_bundle(bundle, samples[0].inputs)
    assert differences(samples[0].outputs, result.outputs) == []
    assert bundle.workspace_nbytes + max(bundle.main.stack_nbytes - STACK_NBYTES, 0) <= limit.nbytes
    assert result.instructions is not None and result.instructions <= (1 + limit.rise) * limit.before


@pytest.mark.parametrize(("stream_input", "nbytes"), [(False, 53_000), *([(True, 18_000)] if SWEEP else [])])
def test_a_network_of_uint8(stream_input: bool, nbytes: int) -> None:
    """Its image becomes int8 in place, or as it comes (AOT_SWEEP=1); weights of nine bits take no memory."""
    name = "coral/mobilenet_v1_0.25_128_quant"
    options = aot.Options("cortex-m4", optimize="ram", io="workspace", stream_input=stream_input)
    bundle = aot.compile(model(name), options=options)
    assert bundle.workspace_nbytes <= nbytes
    with np.load(golden(name), allow_pickle=False) as arrays:
        _, samples = golden_samples(bundle.main, dict(arrays), name)
    assert differences(samples[0].outputs, run_bundle(bundle, samples[0].inputs).outputs) == []


def test_a_network_of_one_column() -> None:
    """Its depthwise layers find rows wherever they lie, and take less than they did whole, by strips of columns (939,266 in all)."""
    name = "mlperf_tiny/str_ww_ref_model"
    bundle = aot.compile(model(name), options=aot.Options("cortex-m4", optimize="ram", io="workspace"))
    with np.load(golden(name), allow_pickle=False) as arrays:
        _, samples = golden_samples(bundle.main, dict(arrays), name)
    result = run_bundle(bundle, samples[0].inputs)
    assert differences(samples[0].outputs, result.outputs) == []
    assert bundle.workspace_nbytes <= 4_000
    assert result.instructions is not None and result.instructions <= 880_000
