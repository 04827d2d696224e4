"""The Zephyr sample is configured and built by its own CMakeLists.txt, with a stand-in for Zephyr's package, and prints the right class on
QEMU: with the object, and with C files."""

from __future__ import annotations

from pathlib import Path

import pytest

from aot.cli import run as aot
from tests.integrations.firmware import BUNDLES, CPU, STAND_INS, need, printed, run

ZEPHYR = Path(__file__).parent / "zephyr"


@pytest.mark.parametrize("emit", ["object", "c"])
def test_sample_builds_and_prints_the_right_class(tmp_path: Path, seven: Path, emit: str) -> None:
    need("cmake", "ninja", "arm-none-eabi-gcc")
    module = seven / "digits-zephyr"
    if emit == "c":
        options = ["--backend", "generic", "--cpu", "cortex-m4", "--emit", "c", "--package", "zephyr"]
        model, sample = BUNDLES / "digits" / "digits.tflite", seven / "seven.npz"
        assert aot(["bundle", str(model), *options, "--sample", str(sample), "-o", str(tmp_path)]) == 0
        module = tmp_path / "digits-zephyr"
    settings = {
        "CMAKE_SYSTEM_NAME": "Generic",
        "CMAKE_TRY_COMPILE_TARGET_TYPE": "STATIC_LIBRARY",
        "CMAKE_C_COMPILER": "arm-none-eabi-gcc",
        "CMAKE_C_FLAGS": " ".join(CPU),
        "Zephyr_DIR": ZEPHYR,
        "AOT_BUNDLES": BUNDLES,
        "AOT_STAND_INS": STAND_INS,
    }
    sample, build = module / "samples" / "digits", tmp_path / "build"
    run(["cmake", "-G", "Ninja", "-S", sample, "-B", build, *(f"-D{name}={value}" for name, value in settings.items())], tmp_path)
    run(["cmake", "--build", build], tmp_path)
    assert printed(build / "zephyr", 1) == ["digits: class 7"]
