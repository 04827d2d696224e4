"""Code for cores with Helium: what LLVM's vector code generation once got wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import aot
from aot.run import run_bundle
from tests.one_operator import T, one_operator


@pytest.mark.parametrize("exponent", [1, 2, 4, 7])
@pytest.mark.parametrize("cpu", ["cortex-m55", "cortex-m85"])
def test_dequantise_by_a_power_of_two(tmp_path: Path, cpu: str, exponent: int) -> None:
    """int -> float times 2^-n: LLVM 22's vector `vcvt` with fraction bits takes a register for its immediate and aborts."""
    scale = 2.0**-exponent
    path = tmp_path / "dequantise.tflite"
    path.write_bytes(one_operator("DEQUANTIZE", [T((1, 64), "int8", scale, 0)], [T((1, 64), "float32")]))
    bundle = aot.compile(path, cpu)
    if shutil.which("qemu-system-arm") is None:
        pytest.skip("compiled; to run it, qemu-system-arm is not installed")
    values = np.arange(-32, 32, dtype=np.int8).reshape(1, 64)
    (output,) = run_bundle(bundle, [values], "qemu").outputs
    assert np.array_equal(output, values.astype(np.float32) * np.float32(scale))
