"""Runs a bundle on one of QEMU's Cortex-M boards.

Enters: a bundle, an entry, inputs. Leaves: `RunResult`.
Invariant: under `-icount shift=0` an instruction takes a nanosecond, so that SysTick counts instructions, repeatably: a tick for 40
of them at 25 MHz, 50 at 20 MHz (mps2-an505), 31.25 at 32 MHz (mps3-an547). Read at its ticks, it is exact to 4 instructions.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from aot.bundle import Bundle, Entry
from aot.errors import CompileError, InternalError
from aot.run.board import run_board
from aot.run.firmware import Clock, Firmware, Output
from aot.run.result import RunResult

_FIXED = ("-display", "none", "-monitor", "none", "-serial", "null", "-icount", "shift=0")
_SEMIHOSTING = ("-semihosting-config", "enable=on,target=native")
_MPU_REGIONS = 16  # of the Cortex-M33 and M55 of the boards used
_SLOWEST = 10_000_000  # instructions a second that any machine's QEMU reaches


def run(bundle: Bundle, entry: Entry, inputs: Sequence[np.ndarray], limit: int) -> RunResult:
    """Run the entry on the target's board. CompileError where QEMU is missing."""
    program = shutil.which("qemu-system-arm")
    if program is None:
        raise CompileError("qemu-system-arm is not installed", hint="apt install qemu-system-arm")
    parameters = bundle.target.run["qemu"]
    clock = Clock(float(str(parameters["instructions_per_tick"])), limit)
    command = (program, "-M", str(parameters["machine"]), *_FIXED, *_SEMIHOSTING)

    def execute(made: Firmware, folder: Path) -> bytes:
        return _execute(command, made, folder, 60 + limit / _SLOWEST)

    return run_board(
        bundle, entry, inputs, clock, lambda folder: Output(path=str(folder / "memory")), execute, "qemu", _MPU_REGIONS
    )


def _execute(command: Sequence[str], made: Firmware, folder: Path, seconds: float) -> bytes:
    """Load the firmware, run the board until the firmware ends it, read the file that it left."""
    loads = []
    for number, (address, content) in enumerate((*made.code, made.ram)):
        path = folder / f"{number}.bin"
        path.write_bytes(content)
        loads += ["-device", f"loader,file={path},addr={address:#x},force-raw=on"]
    try:
        ended = subprocess.run(
            [*command, *loads], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds
        )
    except subprocess.TimeoutExpired as error:
        raise InternalError(f"QEMU did not end within {seconds:.0f} s: {_said(error.stdout)}") from error
    dumped = folder / "memory"
    if ended.returncode or not dumped.is_file():
        raise InternalError(f"QEMU ended with code {ended.returncode} and no result: {_said(ended.stdout)}")
    return dumped.read_bytes()


def _said(output: bytes | None) -> str:
    """The first lines that QEMU printed, on one."""
    return " | ".join((output or b"").decode(errors="replace").splitlines()[:6]) or "it printed nothing"
