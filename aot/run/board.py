"""Runs a bundle on an emulated board, whichever emulator has it.

Enters: a bundle, an entry, inputs, how to execute a firmware. Leaves: `RunResult`.
Invariant: two runs, regions at the ends and at the starts of pages, other garbage. On Armv8-M an MPU makes accesses outside fault; on older
cores the guards between regions show writes outside, and reads outside that matter show as a difference between the runs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from aot.bundle import Bundle, Entry
from aot.errors import InternalError
from aot.run import firmware, memory
from aot.run.firmware import FAULTED, HUNG, Clock, Firmware, Output, Report
from aot.run.layout import SAVED, Grid, Layout, check_return, check_stack, describe_layer, lay_out
from aot.run.result import RunResult
from aot.target import Target

_PAGE, _GAP = 1024, 4096
_MPU_REGIONS = 8
_CAUSES = (  # bits of the CFSR register
    (0x0001_0000, "an instruction that the CPU does not have"),
    (0x0008_0000, "an instruction of a coprocessor that is absent or off"),
    (0x0100_0000, "an unaligned access"),
    (0x0006_0101, "a jump to what is not code"),
    (0x0010_3838, "the stack pointer is outside the stack"),
    (0x0000_0282, "an access outside what the entry was given"),
)

Execute = Callable[[Firmware, Path], bytes]
"""Runs a firmware; the folder is for its files. Leaves the bytes that it handed over."""


def run_board(
    bundle: Bundle,
    entry: Entry,
    inputs: Sequence[np.ndarray],
    clock: Clock,
    output: Callable[[Path], Output],
    execute: Execute,
    where: str,
) -> RunResult:
    """Run the entry twice. `output`: how the firmware hands memory over, given the folder for files."""
    results, stack, instructions = [], 0, 0
    for at_end, seed, guard in ((True, 1, 0xA5), (False, 2, 0x3C)):
        regions = memory.arguments(bundle, entry, inputs, seed)
        layout = lay_out(bundle, entry, regions, _grid(bundle.target), at_end=at_end, guard=guard)
        with tempfile.TemporaryDirectory(prefix="aot-") as folder:
            made = firmware.build(bundle.target, entry, layout, output(Path(folder)), clock, _protects(bundle.target, layout))
            held = execute(made, Path(folder))
        report = made.report(held)
        _check(entry, layout, made, report, held, clock.limit)
        contents = [placed.content(_pages(made, layout, placed, held)) for placed in layout.arguments]
        results.append(memory.outputs(bundle, entry, contents))
        stack = max(stack, layout.stack_peak(made.part(held, layout.stack.start, layout.stack.end)))
        instructions = instructions or report.instructions
    memory.same_outputs(entry, *results)
    check_stack(entry, stack)
    return RunResult(results[0], instructions, stack, None, where)


def _grid(target: Target) -> Grid:
    """The board's memory without what the firmware and its report take."""
    code, ram = target.memory["code"], target.memory["ram"]
    taken = 0 if "vectors" in target.memory else firmware.NBYTES
    return Grid((code + taken, code + target.memory["code_nbytes"]), (ram, ram + target.memory["ram_nbytes"]), _PAGE, _GAP)


def _protects(target: Target, layout: Layout) -> bool:
    """Whether an MPU can tell apart what the entry may touch: Armv8-M's takes any multiple of 32 bytes, in so many regions."""
    used = 2 + sum(placed.end > placed.start for placed in layout.all)
    return target.triple.startswith("thumbv8") and used <= _MPU_REGIONS


def _pages(made: Firmware, layout: Layout, placed: memory.Placed, held: bytes) -> bytes:
    """A region's pages after the run. Code memory is not handed over: the weights are what they were."""
    return made.part(held, placed.start, placed.end) if placed.start >= made.dumped[0] else placed.image


def _check(entry: Entry, layout: Layout, made: Firmware, report: Report, held: bytes, limit: int) -> None:
    """InternalError if the call faulted, hung, returned an error, or wrote where it may not."""
    if report.status in (FAULTED, HUNG):
        function = layout.image.function_at(report.pc)
        near = f" at {report.address:#x}, {layout.nearest(report.address)}" if report.address is not None else ""
        problem = f"still running after {limit} instructions" if report.status == HUNG else _cause(report.cause) + near
        place = layout.describe_pc(report.pc, function)
        raise InternalError(f"{describe_layer(entry, function or entry.symbol)}: {problem}; {place}")
    for placed in layout.all:
        placed.check(_pages(made, layout, placed, held))
    check_return(entry, report.code, {**SAVED, "sp": layout.stack_pointer}, report.registers)


def _cause(bits: int) -> str:
    """What the CPU's fault status register says."""
    return next((text for mask, text in _CAUSES if bits & mask), f"a fault (CFSR {bits:#x})")
