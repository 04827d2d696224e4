"""The smallest workspace of real models on a Cortex-M4 (`--optimize ram --io workspace`), and what it costs in instructions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import aot
from aot.run import run_bundle
from aot.samples import differences, golden_samples
from tests.shared import golden, model

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

STACK_NBYTES = 256
"""What the stack may have; what is above that counts as workspace."""


@dataclass(frozen=True)
class Limit:
    """Bytes of the workspace, inputs, outputs and scratch included; and how many more instructions than `before` a run may take."""

    nbytes: int
    rise: float
    before: int


LIMITS = {
    "KWS": Limit(5_500, 0.10, 2_665_125),
    "IC": Limit(15_000, 0.04, 10_935_763),
    "VWW": Limit(30_500, 0.03, 5_618_858),
    "PD": Limit(13_500, 0.03, 7_557_163),
    "AD": Limit(800, 0.06, 263_374),
}
"""before: instructions of balanced code on input 0 of the golden file, as bench/results.json had them when every layer still ran whole
(at commit 80a5f8f)."""


@pytest.mark.parametrize("name", LIMITS)
def test_the_smallest_workspace(name: str) -> None:
    limit = LIMITS[name]
    bundle = aot.compile(model(name), options=aot.Options("cortex-m4", optimize="ram", io="workspace"))
    with np.load(golden(name), allow_pickle=False) as arrays:
        _, samples = golden_samples(bundle.main, dict(arrays), name)
    results = [run_bundle(bundle, sample.inputs) for sample in samples[:2]]
    for sample, result in zip(samples, results, strict=False):
        assert differences(sample.outputs, result.outputs) == []
    assert bundle.workspace_nbytes + max(bundle.main.stack_nbytes - STACK_NBYTES, 0) <= limit.nbytes
    assert results[0].instructions is not None and results[0].instructions <= (1 + limit.rise) * limit.before


@pytest.mark.parametrize(("stream_input", "nbytes"), [(False, 53_000), (True, 18_000)])
def test_a_network_of_uint8(stream_input: bool, nbytes: int) -> None:
    """Its image becomes int8 in place, or as it comes; weights of nine bits take no memory."""
    name = "coral/mobilenet_v1_0.25_128_quant"
    options = aot.Options("cortex-m4", optimize="ram", io="workspace", stream_input=stream_input)
    bundle = aot.compile(model(name), options=options)
    assert bundle.workspace_nbytes <= nbytes
    with np.load(golden(name), allow_pickle=False) as arrays:
        _, samples = golden_samples(bundle.main, dict(arrays), name)
    assert differences(samples[0].outputs, run_bundle(bundle, samples[0].inputs).outputs) == []
