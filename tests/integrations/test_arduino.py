"""Arduino's own builder builds the example with the library, and the firmware prints the right class on QEMU.

Debian's arduino-builder is older than precompiled libraries: it takes the library's C files. The core is one of our own (`arduino/hardware`).
"""

from __future__ import annotations

import shutil
from pathlib import Path

from aot.cli import run as aot
from tests.integrations.firmware import BUNDLES, CPU, STAND_INS, need, printed, run

HARDWARE = Path(__file__).parent / "arduino" / "hardware"
BUILDER_SETTINGS = Path("/usr/share/arduino-builder")


def test_arduinos_builder_builds_the_example(tmp_path: Path, seven: Path) -> None:
    need("arduino-builder", "arm-none-eabi-gcc")
    model, sample = BUNDLES / "digits" / "digits.tflite", seven / "seven.npz"
    options = ["--cpu", "cortex-m4", "--backend", "generic", "--emit", "both", "--package", "arduino"]
    assert aot(["bundle", str(model), *options, "--sample", str(sample), "-o", str(tmp_path)]) == 0
    library = tmp_path / "libraries" / "digits-arduino"
    shutil.move(tmp_path / "digits-arduino", library)
    shutil.copytree(HARDWARE, tmp_path / "hardware")
    core = tmp_path / "hardware" / "aot" / "stand_in" / "cores" / "main"
    core.mkdir(parents=True)
    for part in ("startup.c", "print.c", "boards/stm32f405.c"):
        shutil.copy(BUNDLES / "firmware" / part, core)
    for part in ("Arduino.h", "arduino_core.cpp"):
        shutil.copy(STAND_INS / part, core)
    for folder in ("tools", "build"):
        (tmp_path / folder).mkdir()
    folders = {"hardware": tmp_path / "hardware", "tools": tmp_path / "tools", "libraries": tmp_path / "libraries"}
    settings = {"aot.firmware": BUNDLES / "firmware", "cpu.flags": " ".join(CPU)}
    command = ["arduino-builder", "-compile", "-hardware", BUILDER_SETTINGS, *(f"-{name}={path}" for name, path in folders.items())]
    command += [f"-prefs={name}={value}" for name, value in settings.items()]
    command += ["-fqbn=aot:stand_in:m4", f"-build-path={tmp_path / 'build'}", library / "examples" / "digits" / "digits.ino"]
    run(command, tmp_path)
    assert printed(tmp_path / "build" / "digits.ino.elf", 1) == ["digits: class 7"]
