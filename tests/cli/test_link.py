"""`--link`: bundles that call functions from elsewhere, run, verified and profiled with them; what can't be linked."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from aot.target import load_target
from tests import one_operator
from tests.cli.test_cli import fails, run
from tests.cmsis_nn_sources import require_cmsis_nn

M4 = ("--cpu", "cortex-m4")
LIBRARY = (*M4, "--kernels", "library")
NEGATE = """
#include "aot_custom.h"
int negate(const aot_custom_call *call) {
    for (uint32_t i = 0; i < call->inputs[0].nbytes; i++)
        ((int8_t *)call->outputs[0].data)[i] = (int8_t)~((const int8_t *)call->inputs[0].data)[i];
    return 0;
}
"""


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code, out, err = run(capsys, *arguments)
    assert code == 0, err
    return out


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "model.tflite").write_bytes(one_operator.conv2d())
    return str(tmp_path / "model.tflite")


def test_library(capsys: pytest.CaptureFixture[str], model: str) -> None:
    library = str(require_cmsis_nn(load_target("cortex-m4")).archive)
    out = printed(capsys, "verify", model, *LIBRARY, "--link", library, "--samples", "2")
    assert "PASS: all outputs are the same" in out
    layers = json.loads(printed(capsys, "profile", model, *LIBRARY, "--link", library, "--json"))["layers"]
    assert layers[0]["kernel"] == "library arm_convolve_wrapper_s8" and layers[0]["macs"] > 0
    linked = json.loads(printed(capsys, "run", model, *LIBRARY, "--link", library, "--json"))
    assert linked["instructions"] > layers[0]["instructions"] > 1000


def test_function_of_the_firmware(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    compiler = shutil.which("arm-none-eabi-gcc")
    if compiler is None:
        pytest.skip("arm-none-eabi-gcc is not installed")
    header = Path(__file__).parents[2] / "aot" / "templates"
    (tmp_path / "negate.c").write_text(NEGATE)
    flags = ["-mcpu=cortex-m4", "-mthumb", "-O2", "-ffreestanding", f"-I{header}"]
    subprocess.run([compiler, *flags, "-c", "negate.c", "-o", "negate.o"], cwd=tmp_path, check=True)
    x = one_operator.T((4,), "int8", 0.5, -1)
    (tmp_path / "model.tflite").write_bytes(one_operator.custom("Negate", [x], [x]))
    arguments = (str(tmp_path / "model.tflite"), *M4, "--custom", "Negate=negate")
    assert "--link their objects" in fails(capsys, "run", *arguments)
    given, made = tmp_path / "in.npz", tmp_path / "out.npz"
    values = np.array([1, -128, 7, 127], np.int8)
    np.savez(given, in0=values)
    printed(capsys, "run", *arguments, "--link", str(tmp_path / "negate.o"), "--inputs", str(given), "--outputs", str(made))
    assert np.array_equal(np.load(made)["out0"], ~values)


def test_what_can_not_be_linked(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    assert "it must be linked with it to run (--link its archive" in fails(capsys, "run", model, *LIBRARY)
    assert "it must be linked with it to run (--link its archive" in fails(capsys, "verify", model, *LIBRARY)
    assert "only bundles for a Cortex-M can be linked here, not for host" in fails(capsys, "run", model, "--link", "x.o")
    if shutil.which("arm-none-eabi-ld") is None:
        assert "linking needs arm-none-eabi-ld" in fails(capsys, "run", model, *LIBRARY, "--link", "x.o")
        return
    absent = fails(capsys, "run", model, *LIBRARY, "--link", str(tmp_path / "no.a"))
    assert f"can't link model: cannot find {tmp_path / 'no.a'}" in absent
    (tmp_path / "empty.a").write_bytes(b"!<arch>\n")
    empty = fails(capsys, "run", model, *LIBRARY, "--link", str(tmp_path / "empty.a"))
    assert "can't link model: nothing defines arm_convolve_wrapper_s8 (--link the objects" in empty
