"""Runs a bundle under Renode, on a board described for the purpose: a core, memory, a UART.

Enters: a bundle, an entry, inputs. Leaves: `RunResult`.
Invariant: the cycle counter (DWT) runs at the core's rate, so that it counts instructions; the platform needs no file but its own.
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
from aot.target import Target

_UART = 0x4000_4000
_MIPS = 100
_LIMIT = 2_000_000_000  # Renode can't stop by itself when the firmware is done: it runs this long
_SECONDS = 900
_PAGE = 4096


def run(bundle: Bundle, entry: Entry, inputs: Sequence[np.ndarray], limit: int) -> RunResult:
    """Run the entry under Renode. CompileError where Renode is missing."""
    program = shutil.which("renode")
    if program is None:
        raise CompileError("renode is not installed", hint="get it from https://renode.io, or use --on qemu")
    clock = Clock(None, min(limit, _LIMIT))

    def execute(made: Firmware, folder: Path) -> bytes:
        script = write_files(bundle.target, made, folder, clock.limit)
        return _execute([program, "--disable-xwt", "--console", "--plain", str(script)], made, folder)

    return run_board(bundle, entry, inputs, clock, lambda folder: Output(uart=_UART), execute, "renode")


def write_files(target: Target, made: Firmware, folder: Path, limit: int) -> Path:
    """Write platform, memory images and script into the folder. Returns the script's path. The UART's bytes go to `memory`."""
    (folder / "board.repl").write_text(platform(target, made))
    loads: list[str] = []
    for number, (address, content) in enumerate((*made.code, made.ram)):
        (folder / f"{number}.bin").write_bytes(content)
        loads.append(f"sysbus LoadBinary @{folder / f'{number}.bin'} {address:#x}")
    stack, reset = (int.from_bytes(made.code[0][1][at : at + 4], "little") for at in (0, 4))
    seconds = limit / (_MIPS * 1e6) + len(made.ram[1]) * 20 / (_MIPS * 1e6)
    lines = [
        'mach create "aot"',
        f"machine LoadPlatformDescription @{folder / 'board.repl'}",
        f"sysbus.uart CreateFileBackend @{folder / 'memory'} true",
        *loads,
        f"sysbus.cpu VectorTableOffset {made.vectors:#x}",
        f"sysbus.cpu SP {stack:#x}",
        f"sysbus.cpu PC {reset:#x}",
        "emulation SetGlobalAdvanceImmediately true",
        f'emulation RunFor "{seconds:.3f}"',
        "quit",
    ]
    script = folder / "run.resc"
    script.write_text("\n".join(lines) + "\n")
    return script


def platform(target: Target, made: Firmware) -> str:
    """The board's description in Renode's language."""
    blocks = [
        f"memory{number}: Memory.MappedMemory @ sysbus {address:#x}\n    size: {-(-len(content) // _PAGE) * _PAGE:#x}"
        for number, (address, content) in enumerate((*made.code, made.ram))
    ]
    blocks += [
        "nvic: IRQControllers.NVIC @ sysbus 0xE000E000\n"
        "    priorityMask: 0xF0\n"
        f"    systickFrequency: {_MIPS * 1_000_000}\n"
        "    IRQ -> cpu@0",
        f'cpu: CPU.CortexM @ sysbus\n    cpuType: "{target.run["renode"]["cpu"]}"\n    nvic: nvic\n    PerformanceInMips: {_MIPS}',
        f"dwt: Miscellaneous.DWT @ sysbus 0xE0001000\n    frequency: {_MIPS * 1_000_000}",
        f"uart: UART.CMSDK_APB_UART @ sysbus {_UART:#x}\n    frequency: 25000000",
    ]
    return "\n\n".join(blocks) + "\n"


def _execute(command: Sequence[str], made: Firmware, folder: Path) -> bytes:
    """Run the script and read what the UART sent. InternalError where that is not all of RAM."""
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise InternalError(f"Renode did not end within {_SECONDS} s") from error
    dumped = folder / "memory"
    content = dumped.read_bytes() if dumped.is_file() else b""
    if len(content) != len(made.ram[1]):
        said = " | ".join(ended.stdout.decode(errors="replace").splitlines()[-6:])
        raise InternalError(f"the entry did not end within {made.clock.limit} instructions, or Renode failed: {said}")
    return content
