"""Firmware for the STM32F405 (a Cortex-M4) out of a package's files, and what it prints on QEMU.

Enters: C and C++ files, a package's library, the flags that its build system would pass. Leaves: the lines printed.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bundles import qemu
from tests.shared import ROOT

BUNDLES = ROOT / "bundles"
STAND_INS = Path(__file__).parent / "stand_ins"
CPU = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
_PARTS = ("startup.c", "print.c", "boards/stm32f405.c")
AOT = (sys.executable, "-m", "aot")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def need(*tools: str) -> None:
    """Skip the test where a tool is missing."""
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool} (see tests/setup.sh)")


def run(command: Sequence[str | Path], folder: Path) -> str:
    """What a command prints; the test fails with it if the command does."""
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


def link(folder: Path, sources: Sequence[Path], flags: Sequence[str], objects: Sequence[Path] = ()) -> Path:
    """An ELF of the sources, the stand-ins for a system's own functions and the board, with these flags (include folders, libraries)."""
    firmware = BUNDLES / "firmware"
    includes = [f"-I{path}" for path in (STAND_INS, firmware, firmware / "boards")]
    made: list[Path] = []
    files = [*sources, *(firmware / part for part in _PARTS), *sorted(STAND_INS.glob("*.c*"))]
    for number, source in enumerate(files):
        made.append(folder / f"part{number}.o")
        language = (
            ["-x", "c++", "-fno-exceptions", "-fno-rtti", "-include", "Arduino.h"]
            if source.suffix in (".ino", ".cpp")
            else ["-std=c99"]
        )
        kind = [flag for flag in flags if flag.startswith(("-I", "-D"))]
        checks = ["-Wall", "-Wextra", "-Werror", "-ffreestanding", "-O2"]
        run(["arm-none-eabi-gcc", *CPU, *checks, *language, *includes, *kind, "-c", source, "-o", made[-1]], folder)
    scripts = itertools.chain.from_iterable(("-T", firmware / script) for script in ("boards/stm32f405.ld", "sections.ld"))
    libraries = [flag for flag in flags if flag.startswith(("-L", "-l"))]
    elf = folder / "sample.elf"
    run(
        ["arm-none-eabi-gcc", *CPU, "-nostdlib", "-Wl,-e,Reset_Handler", *scripts, *made, *objects, *libraries, "-lgcc", "-o", elf],
        folder,
    )
    return elf


def printed(elf: Path, count: int) -> list[str]:
    """The first lines that the firmware prints on QEMU."""
    need("qemu-system-arm")
    lines = qemu.printed_lines(elf, "stm32f405", 30)
    try:
        return list(itertools.islice(lines, count))
    finally:
        lines.close()
