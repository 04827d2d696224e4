"""Runs a bundle on one of QEMU's Cortex-M boards.

Enters: a bundle, an entry, inputs. Leaves: `RunResult`.
Invariant: under `-icount shift=0` an instruction takes a nanosecond, so that SysTick counts instructions, repeatably: a tick for 40
of them at 25 MHz, 50 at 20 MHz (mps2-an505), 31.25 at 32 MHz (mps3-an547). Read at its ticks, it is exact to 4 instructions.
Where it traces, QEMU's log of every instruction is counted as it comes (`execution_log.py`).
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from aot.bundle import Bundle, Entry
from aot.errors import CompileError, InternalError
from aot.run.board import run_board
from aot.run.execution_log import ExecutionLog, one_by_one
from aot.run.firmware import Clock, Firmware, Output
from aot.run.layout import owners_of
from aot.run.result import RunResult
from aot.run.trace import Tracing

_FIXED = ("-display", "none", "-monitor", "none", "-serial", "null", "-icount", "shift=0")
_SEMIHOSTING = ("-semihosting-config", "enable=on,target=native")
_MPU_REGIONS = 16  # of the Cortex-M33 and M55 of the boards used
_SLOWEST = 10_000_000  # instructions a second that any machine's QEMU reaches
_SLOWEST_LOGGED = 50_000  # the same, where it logs each of them


def run(bundle: Bundle, entry: Entry, inputs: Sequence[np.ndarray], limit: int, tracing: Tracing = "none") -> RunResult:
    """Run the entry on the target's board. CompileError where QEMU is missing. tracing: also count the first run's layers."""
    program = shutil.which("qemu-system-arm")
    if program is None:
        raise CompileError("qemu-system-arm is not installed", hint="apt install qemu-system-arm")
    parameters = bundle.target.run["qemu"]
    clock = Clock(float(str(parameters["instructions_per_tick"])), limit)
    command = (program, "-M", str(parameters["machine"]), *_FIXED, *_SEMIHOSTING)

    logs: list[ExecutionLog] = []

    def execute(made: Firmware, folder: Path) -> bytes:
        if tracing == "none" or logs or made.image is None:
            return _execute(command, made, folder, 60 + limit / _SLOWEST)
        logs.append(ExecutionLog(made.image, owners_of(entry)))
        flags = (*one_by_one(program), *logs[0].flags)
        return _execute((*command, *flags), made, folder, 60 + limit / _SLOWEST_LOGGED, logs[0])

    result = run_board(
        bundle, entry, inputs, clock, lambda folder: Output(path=str(folder / "memory")), execute, "qemu", _MPU_REGIONS
    )
    return replace(result, per_layer=logs[0].per_layer()) if logs else result


def _execute(command: Sequence[str], made: Firmware, folder: Path, seconds: float, log: ExecutionLog | None = None) -> bytes:
    """Load the firmware, run the board until the firmware ends it, read the file that it left. log: takes what QEMU says."""
    loads: list[str] = []
    for number, (address, content) in enumerate((*made.code, made.ram)):
        path = folder / f"{number}.bin"
        path.write_bytes(content)
        loads += ["-device", f"loader,file={path},addr={address:#x},force-raw=on"]
    process = subprocess.Popen(
        [*command, *loads], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0
    )
    said = bytearray()
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    with process, contextlib.ExitStack() as stack:
        stack.callback(process.kill)  # also where this process is interrupted
        stack.callback(timer.cancel)
        assert process.stdout is not None
        while content := process.stdout.read(1 << 20):
            said += content if log is None else log.take(content)
        code = process.wait()
    if not timer.is_alive() and code == -signal.SIGKILL:
        raise InternalError(f"QEMU did not end within {seconds:.0f} s: {_said(said)}")
    dumped = folder / "memory"
    if code or not dumped.is_file():
        raise InternalError(f"QEMU ended with code {code} and no result: {_said(said)}")
    return dumped.read_bytes()


def _said(output: bytes | bytearray) -> str:
    """The first lines that QEMU printed, on one."""
    return " | ".join(output.decode(errors="replace").splitlines()[:6]) or "it printed nothing"
