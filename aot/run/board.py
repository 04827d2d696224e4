"""Runs a bundle on an emulated board, whichever emulator has it.

Enters: a bundle, an entry, inputs, how to execute a firmware. Leaves: `RunResult`.
Invariant: two runs, regions at the ends and at the starts of pages, other garbage. With an Armv8-M MPU accesses outside fault;
a comparison of all RAM shows writes outside, and reads outside that matter show as a difference between the runs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aot.bundle import Bundle, Entry
from aot.errors import InternalError
from aot.run import firmware, memory
from aot.run.firmware import FAULTED, HUNG, Clock, Firmware, Output, Report
from aot.run.layout import NO_OTHERS, SAVED, Grid, Layout, check_return, check_stack, describe_layer, lay_out
from aot.run.memory import CONTEXT, PAGES, READ, Placed, Region
from aot.run.reader import check_reads
from aot.run.result import RunResult
from aot.target import Target

_PAGE, _GAP = 1024, 4096
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
    mpu_regions: int = 0,
) -> RunResult:
    """Run the entry twice. output: how the firmware hands memory over, given a folder. mpu_regions: of an Armv8-M (0: not used)."""
    calls: list[_Call] = []
    for at_end, seed, guard in ((True, 1, 0xA5), (False, 2, 0x3C)):
        regions, made_calls = memory.arguments(bundle, entry, inputs, seed, loads=False)
        others = NO_OTHERS
        if bundle.pages is not None and entry.paging:
            regions = (*regions, Region(PAGES, 4, False, bundle.pages))
            others = {READ: firmware.reader_address(bundle.target) | 1, CONTEXT: PAGES}
        passed = made_calls[-1].arguments
        layout = lay_out(bundle, entry, regions, _grid(bundle.target), at_end=at_end, guard=guard, passed=passed, others=others)
        with tempfile.TemporaryDirectory(prefix="aot-") as folder:
            protect = _protects(bundle.target, layout, mpu_regions)
            made = firmware.build(bundle.target, entry, layout, output(Path(folder)), clock, protect)
            held = execute(made, Path(folder))
        calls.append(_Call(bundle, entry, layout, made, held, made.report(held)))
        calls[-1].check_end()
    for call in calls:  # after both: a fault names the layer, a changed byte does not
        call.check_memory()
    first, second = (call.outputs() for call in calls)
    memory.same_outputs(entry, first, second)
    stack = max(call.stack_peak() for call in calls)
    check_stack(entry, stack)
    read_nbytes = calls[0].report.read_nbytes if entry.paging else None
    cycles = memory.cycles_of(entry, calls[0].contents())
    return RunResult(first, calls[0].report.instructions, stack, None, where, read_nbytes=read_nbytes, cycles=cycles)


@dataclass(frozen=True)
class _Call:
    """One call that has ended. `held`: RAM as the firmware handed it over."""

    bundle: Bundle
    entry: Entry
    layout: Layout
    made: Firmware
    held: bytes
    report: Report

    def check_end(self) -> None:
        """InternalError if the call faulted or hung."""
        report, layout = self.report, self.layout
        if report.status not in (FAULTED, HUNG):
            return
        function = layout.image.function_at(report.pc)
        near = f" at {report.address:#x}, {layout.nearest(report.address)}" if report.address is not None else ""
        hung = f"still running after {self.made.clock.limit} instructions"
        problem = hung if report.status == HUNG else _cause(report.cause) + near
        place = layout.describe_pc(report.pc, function)
        raise InternalError(f"{describe_layer(self.entry, function or self.entry.symbol)}: {problem}; {place}")

    def check_memory(self) -> None:
        """InternalError if the call returned an error, did not preserve a register, or changed a byte that it may not write."""
        check_return(self.entry.symbol, self.report.code, {**SAVED, "sp": self.layout.stack_pointer}, self.report.registers)
        if self.entry.paging:
            check_reads(self.entry, self.report.read_calls, self.report.read_nbytes)
        base = self.made.ram[0]
        same = np.frombuffer(self.made.ram[1], np.uint8) == np.frombuffer(self.held, np.uint8)
        same[: firmware.REPORT_NBYTES] = True
        for placed in self.layout.all:
            if placed.region.writable:
                same[placed.address - base :][: placed.region.nbytes] = True
        if not same.all():
            address = base + int(np.flatnonzero(~same)[0])
            raise InternalError(f"the code wrote at {address:#x}, {self.layout.nearest(address)}")

    def contents(self) -> dict[str, bytes]:
        """What regions hold. Weights lie in code memory, which is not handed over: they are what they were."""
        return {
            placed.region.name: placed.content(self._pages(placed) if placed.region.writable else placed.image)
            for placed in self.layout.arguments
        }

    def outputs(self) -> tuple[np.ndarray, ...]:
        return memory.outputs(self.bundle, self.entry, self.contents())

    def stack_peak(self) -> int:
        return self.layout.stack_peak(self._pages(self.layout.stack))

    def _pages(self, placed: Placed) -> bytes:
        base = self.made.ram[0]
        return self.held[placed.start - base : placed.end - base]


def _grid(target: Target) -> Grid:
    """The board's memory without what the firmware and its report take."""
    code, ram = target.memory["code"], target.memory["ram"]
    taken = 0 if "vectors" in target.memory else firmware.NBYTES
    return Grid((code + taken, code + target.memory["code_nbytes"]), (ram, ram + target.memory["ram_nbytes"]), _PAGE, _GAP)


def _protects(target: Target, layout: Layout, mpu_regions: int) -> bool:
    """Whether an MPU can tell apart what the entry may touch: Armv8-M's takes any multiple of 32 bytes, in so many regions."""
    used = 2 + sum(placed.end > placed.start for placed in layout.all)
    return target.triple.startswith("thumbv8") and used <= mpu_regions


def _cause(bits: int) -> str:
    """What the CPU's fault status register says."""
    return next((text for mask, text in _CAUSES if bits & mask), f"a fault (CFSR {bits:#x})")
