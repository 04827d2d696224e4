"""`make demo` and the samples' compiled bundles: what runs is exactly what the golden files say."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import aot
from aot.run import run_bundle
from aot.samples import differences
from bundles.emulate import SAMPLES
from tests.shared import ROOT


def golden(sample: str) -> list[tuple[np.ndarray, np.ndarray]]:
    arrays = np.load(ROOT / "bundles" / sample / "golden.npz")
    return [(arrays[f"in0_{k}"], arrays[f"out0_{k}"]) for k in range(sum(key.startswith("in0_") for key in arrays))]


@pytest.mark.parametrize("sample", SAMPLES)
def test_host_bundle_gives_the_golden_outputs(sample: str) -> None:
    bundle = aot.compile(ROOT / "bundles" / sample / f"{sample}.tflite")
    for given, wanted in golden(sample):
        assert not differences([wanted], run_bundle(bundle, [given]).outputs)


@pytest.mark.parametrize("cpu", ["cortex-m0plus", "cortex-m4", "cortex-m7"])
@pytest.mark.parametrize("sample", SAMPLES)
def test_cortex_m_bundle_gives_the_golden_outputs(sample: str, cpu: str) -> None:
    pytest.importorskip("unicorn", reason="needs Unicorn: pip install unicorn")
    bundle = aot.compile(ROOT / "bundles" / sample / f"{sample}.tflite", cpu)
    for given, wanted in golden(sample)[:3]:
        assert not differences([wanted], run_bundle(bundle, [given]).outputs)


def test_demo() -> None:
    pytest.importorskip("unicorn", reason="needs Unicorn: pip install unicorn")
    command = [sys.executable, str(ROOT / "bundles" / "demo.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10 of 10 digits recognised; 10 of 10 outputs are exactly TFLite Micro's" in done.stdout
    for word in ("cortex-m4", "flash", "RAM", "stack", "instructions", "CONV_2D"):
        assert word in done.stdout


def test_demo_answers_an_unknown_cpu_with_one_line() -> None:
    command = [sys.executable, str(ROOT / "bundles" / "demo.py"), "--cpu", "cortex-m99"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("demo: unknown CPU 'cortex-m99'") and done.stderr.count("\n") == 1
