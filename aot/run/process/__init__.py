"""Runs a bundle in a Linux process, under QEMU's user mode.

Enters: a bundle, an entry, inputs. Leaves: `RunResult`.
Invariant: two processes, regions at the ends and at the starts of pages between unmapped ones, other garbage; the first counts
instructions, where QEMU's plugin can be compiled (else `instructions` is None).
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aot.bundle import Bundle, Entry
from aot.errors import CompileError, InternalError
from aot.run import memory
from aot.run.layout import Layout, check_stack, describe_layer, owners_of
from aot.run.memory import PAGES, Placed, Region, place
from aot.run.process import counter
from aot.run.process.counter import Counts, compiled_plugin
from aot.run.process.job import BAD_READ, BROKE_SAVED, FAILED, FAULTED, Report, job, read_report, writable
from aot.run.process.program import PAGE, Program, linked
from aot.run.reader import check_reads
from aot.run.result import RunResult
from aot.target import Target

_REGIONS = 0x1000_0000
"""Where regions begin: above the program, below what QEMU and the kernel choose addresses from."""
_GAP = 16 * PAGE
_STACK_MARGIN, _ARGUMENTS_NBYTES = 16384, 2048
_SLOWEST = 5_000_000  # instructions a second that any machine's QEMU reaches
_SIGNALS = {
    4: "an instruction that the CPU does not have",
    5: "a trap",
    7: "an access that the CPU refuses",
    8: "an arithmetic exception",
}


def run(bundle: Bundle, entry: Entry, inputs: Sequence[np.ndarray], limit: int, push_rows: int = 1) -> RunResult:
    """Run the entry in two processes. CompileError where QEMU or ziglang is missing. push_rows: rows that are pushed at a time."""
    qemu = _emulator(bundle.target)
    runs = [_Run(bundle, entry, inputs, push_rows, at_end, limit) for at_end in (True, False)]
    plugin, _ = compiled_plugin(qemu)
    for each, chosen in zip(runs, (plugin, None), strict=True):
        each.execute(qemu, chosen)
    for each in runs:  # after both: a fault names the layer, a changed guard does not
        each.check()
    first, second = (each.outputs() for each in runs)
    memory.same_outputs(entry, first, second)
    stack = None if entry.paging else runs[0].stack_peak()  # the harness's own functions, which read and run parts, use it too
    check_stack(entry, stack or 0)
    counts = runs[0].counts
    read_nbytes = runs[0].report.read_nbytes if entry.paging else None
    total, per_layer = (counts.total, counts.per_layer) if counts else (None, None)
    return RunResult(first, total, stack, per_layer, "qemu", read_nbytes=read_nbytes)


def _emulator(target: Target) -> str:
    program = str(target.run["qemu"]["program"])
    if found := shutil.which(program) or shutil.which(f"{program}-static"):
        return found
    raise CompileError(f"{program}, which runs code of '{target.name}', is not installed", hint="Debian: qemu-user")


@dataclass
class _Run:
    """One process: its layout, and what it reported. Made, then executed."""

    bundle: Bundle
    entry: Entry
    inputs: Sequence[np.ndarray]
    push_rows: int
    at_end: bool
    limit: int

    def __post_init__(self) -> None:
        self.program = linked(self.bundle, self.at_end)
        seed, guard = (1, 0xA5) if self.at_end else (2, 0x3C)
        regions, self.calls = memory.arguments(self.bundle, self.entry, self.inputs, seed, self.push_rows)
        pages = [Region(PAGES, 4, False, self.bundle.pages)] if self.bundle.pages is not None and self.entry.paging else []
        self.layout, self.file = _lay_out(self.program, self.entry, regions, pages, self.at_end, guard)
        self.counts: Counts | None = None

    def execute(self, qemu: str, plugin: Path | None) -> None:
        """Run the process; InternalError that says what went wrong, and where. plugin: counts its instructions."""
        owners = owners_of(self.entry)
        given = job(self.program, self.entry, self.layout, self.calls, self.file, self.at_end)
        with tempfile.TemporaryDirectory(prefix="aot-") as name:
            folder = Path(name)
            path = folder / "program"
            path.write_bytes(self.program.elf)
            path.chmod(0o755)
            options = counter.options(plugin, folder, self.program, owners, self.limit) if plugin else []
            command = [qemu, "-cpu", str(self.bundle.target.run["qemu"]["cpu"]), *options, str(path)]
            seconds = 60 + self.limit / _SLOWEST
            try:
                done = subprocess.run(command, input=given, capture_output=True, timeout=seconds)
            except subprocess.TimeoutExpired:
                raise InternalError(f"{self.entry.symbol}: still running after {seconds:.0f} seconds") from None
            self.counts = counter.read_counts(folder, owners) if plugin else None
        if done.returncode == counter.HUNG and self.counts:
            self._raise(f"still running after {self.limit} instructions", None, self.counts.stopped_at)
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise CompileError(f"{Path(qemu).name} can't run the code: {said[-1] if said else f'exit code {done.returncode}'}")
        self.report, rest = read_report(done.stdout, self.bundle.target.triple)
        self._check_end(self.report)
        self.held: dict[str, bytes] = {}
        for placed in writable(self.layout):
            self.held[placed.region.name], rest = rest[: placed.end - placed.start], rest[placed.end - placed.start :]

    def check(self) -> None:
        """InternalError if the guard around a region is not as it must be, or the run read other weights than the bundle states."""
        for placed in writable(self.layout):
            placed.check(self.held[placed.region.name])
        if self.entry.paging:
            check_reads(self.entry, self.report.read_calls, self.report.read_nbytes)
            if self.report.before:
                raise InternalError(f"{self.entry.symbol} returned before what it had asked for was there")

    def outputs(self) -> tuple[np.ndarray, ...]:
        contents = {
            placed.region.name: placed.content(self.held.get(placed.region.name, placed.image)) for placed in self.layout.arguments
        }
        return memory.outputs(self.bundle, self.entry, contents)

    def stack_peak(self) -> int:
        return self.layout.stack_peak(self.held[self.layout.stack.region.name])

    def _check_end(self, report: Report) -> None:
        """InternalError if a call faulted, failed, or broke the calling convention."""
        symbol = self.calls[report.call].symbol if report.call < len(self.calls) else self.entry.symbol
        if report.status == FAULTED:
            outside = f"an access to {report.address:#x}, outside what the entry was given"
            problem = _SIGNALS.get(report.signal, outside)
            self._raise(problem, None if report.signal in _SIGNALS else report.address, report.pc)
        if report.status == FAILED:
            raise InternalError(f"{symbol} returned {report.code}")
        if report.status == BROKE_SAVED:
            change = f"{report.before:#x} became {report.after:#x}"
            raise InternalError(f"{symbol} did not preserve {report.register}: {change}")
        if report.status == BAD_READ:
            asked = f"{report.after} bytes at {report.before} to {report.address:#x}"
            raise InternalError(f"{symbol} asks for {asked}: not what may be read, or where to")

    def _raise(self, problem: str, address: int | None, pc: int) -> None:
        """InternalError that says where: layer, program counter, and the region nearest to `address`."""
        near = f", {self.layout.nearest(address)}" if address is not None else ""
        function = self.program.image.function_at(pc)
        place = self.layout.describe_pc(pc, function)
        raise InternalError(f"{describe_layer(self.entry, function or self.entry.symbol)}: {problem}{near}; {place}")


def _lay_out(
    program: Program, entry: Entry, regions: Sequence[Region], pages: Sequence[Region], at_end: bool, guard: int
) -> tuple[Layout, Placed | None]:
    """Where everything lies; the file that pages come from, if there is one, behind it."""
    image = program.image
    free = -(-((entry.stack_nbytes or 0) + _STACK_MARGIN) // 16) * 16
    stack = Region("the stack", 16, True, bytes([guard]) * (free + _ARGUMENTS_NBYTES))
    placed = place([stack, *regions, *pages], _REGIONS, page=PAGE, gap=_GAP, at_end=at_end, guard=guard)
    file = placed[-1] if pages else None
    arguments = placed[1 : 1 + len(regions)]
    code, rodata = (
        Placed(Region(name, 16, False, data), address, address // PAGE * PAGE, -(-(address + len(data)) // PAGE) * PAGE, guard)
        for name, address, data in (
            ("the code", image.code_address, image.code),
            ("the object's read-only data", image.rodata_address, image.rodata),
        )
    )
    return Layout(image, code, rodata, placed[0], placed[0].address + free, arguments, ()), file
