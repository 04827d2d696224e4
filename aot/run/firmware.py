"""The bare-metal program that calls an entry on an emulated board, made without a compiler.

Enters: a target, a layout. Leaves: `Firmware`: bytes at addresses, and how to read what they report.
Invariant: it is Armv6-M code, so that every Cortex-M runs it; outside the call it writes nothing but its report.
Sources: Armv7-M and Armv8-M reference manuals (system registers), "Semihosting for AArch32 and AArch64", Cortex-M System Design Kit
(UART).
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from aot.bundle import Entry
from aot.errors import InternalError
from aot.run.image import Image
from aot.run.layout import SAVED, Layout
from aot.run.memory import Placed
from aot.run.thumb import EQ, HS, NE, SP, Thumb
from aot.target import Target

NBYTES = 4096  # what the vector table and the program may take
READER_NBYTES = 64  # of these, at the end: the function that reads weights
_READER_CALL, _READER_WORD = 14, 5  # instructions of that function for a call, and for each word
REPORT_NBYTES = 128
RETURNED, FAULTED, HUNG = 1, 2, 3

_STATUS, _BEFORE, _AFTER, _WRAPS, _RESULT, _SP, _REGISTERS = 0, 1, 2, 3, 4, 5, 6  # words of the report
_CAUSE, _MEMORY_ADDRESS, _BUS_ADDRESS, _SPINS, _FILE = 14, 15, 16, 17, 18  # _FILE: three words, what SYS_WRITE takes
_READ_NBYTES, _READ_CALLS = 21, 22
_SYSTICK_CONTROL, _SYSTICK_RELOAD, _SYSTICK_VALUE = 0xE000E010, 0xE000E014, 0xE000E018
_CCR, _CFSR, _MMFAR, _BFAR, _CPACR = 0xE000ED14, 0xE000ED28, 0xE000ED34, 0xE000ED38, 0xE000ED88
_MPU_CONTROL, _MPU_NUMBER, _MPU_BASE, _MPU_LIMIT, _MPU_ATTRIBUTES = 0xE000ED94, 0xE000ED98, 0xE000ED9C, 0xE000EDA0, 0xE000EDC0
_DEMCR, _DWT_CONTROL, _DWT_CYCLES = 0xE000EDFC, 0xE0001000, 0xE0001004
_UNALIGN_TRAP, _LOW_OVERHEAD_LOOPS = 1 << 3, 1 << 19
_OPEN, _WRITE, _EXIT, _WRITE_BINARY, _FINISHED = 1, 5, 0x18, 5, 0x20026  # semihosting
_ALL = 0xFFFFFFFF
_UNDEFINED = 0xDE  # twice: UDF #0xDE


@dataclass(frozen=True)
class Clock:
    """What counts instructions. instructions_per_tick: of SysTick; None: DWT's cycle counter, an instruction a cycle."""

    instructions_per_tick: float | None
    limit: int

    @property
    def period(self) -> int:
        """Ticks from one wrap of SysTick to the next."""
        return min(1 << 24, max(2, math.ceil(self.limit / (self.instructions_per_tick or 1))))

    @property
    def wraps(self) -> int:
        """Wraps after which the call counts as hung."""
        return math.ceil(self.limit / (self.instructions_per_tick or 1) / self.period)

    @property
    def address(self) -> int:
        return _DWT_CYCLES if self.instructions_per_tick is None else _SYSTICK_VALUE

    def instructions(self, before: int, after: int, wraps: int, spins: int) -> int:
        """Instructions from the tick before the call to the first look at the clock after it.

        SysTick starts at 0 and counts down. The second reading came `spins` rounds of 4 instructions after that look, less one.
        """
        if self.instructions_per_tick is None:
            elapsed = (after - before) % (1 << 32)
        else:
            ticks = wraps * self.period + (-after % self.period) - (-before % self.period)
            elapsed = round(ticks * self.instructions_per_tick)
        return elapsed - (4 * spins - 1)


@dataclass(frozen=True)
class Output:
    """How the firmware hands memory over: into a file of the host by semihosting, or to a CMSDK UART byte by byte."""

    path: str = ""
    uart: int = 0


@dataclass(frozen=True)
class Report:
    """What the firmware says about the call. cause: the CFSR register; pc, address: of the fault (address None: it has none).
    read_calls, read_nbytes: of weights that came in pages."""

    status: int
    code: int
    registers: dict[str, int]
    instructions: int
    cause: int
    address: int | None
    pc: int
    read_calls: int
    read_nbytes: int


@dataclass(frozen=True)
class Firmware:
    """What to load where. ram: its address and contents before the run, the report first; the firmware hands it over. image: what it calls."""

    vectors: int
    code: tuple[tuple[int, bytes], ...]
    ram: tuple[int, bytes]
    overhead: int
    clock: Clock
    image: Image | None = None

    def report(self, memory: bytes) -> Report:
        """Read the report out of the dumped memory. InternalError if there is none."""
        words: tuple[int, ...] = struct.unpack(f"<{REPORT_NBYTES // 4}I", memory[:REPORT_NBYTES].ljust(REPORT_NBYTES, b"\0"))
        if len(memory) != len(self.ram[1]) or words[_STATUS] not in (RETURNED, FAULTED, HUNG):
            raise InternalError("the board's firmware did not report how the call ended")
        registers = {name: words[_REGISTERS + index] for index, name in enumerate(SAVED)}
        counted = self.clock.instructions(words[_BEFORE], words[_AFTER], words[_WRAPS], words[_SPINS]) - self.overhead
        address = words[_MEMORY_ADDRESS] if words[_CAUSE] & 1 << 7 else words[_BUS_ADDRESS] if words[_CAUSE] & 1 << 15 else None
        offset = words[_SP] + 24 - self.ram[0]  # the stacked program counter
        pc = int.from_bytes(memory[offset : offset + 4], "little") if 0 <= offset <= len(memory) - 4 else 0
        registers["sp"] = words[_SP]
        reads = words[_READ_CALLS], words[_READ_NBYTES]
        counted -= _READER_CALL * reads[0] + _READER_WORD * reads[1] // 4
        return Report(words[_STATUS], words[_RESULT], registers, max(0, counted), words[_CAUSE], address, pc, *reads)


def build(target: Target, entry: Entry, layout: Layout, output: Output, clock: Clock, protect: bool) -> Firmware:
    """The firmware that calls `entry` once. `protect`: program an Armv8-M MPU, so that accesses outside the layout fault."""
    function = layout.image.by_name.get(entry.symbol)
    if function is None:
        raise InternalError(f"the object has no function {entry.symbol}")
    vectors, report = target.memory.get("vectors", target.memory["code"]), target.memory["ram"]
    in_ram = [placed for placed in layout.all if placed.start >= report]
    nbytes = max(placed.end for placed in in_ram) - report
    code = Thumb(vectors + 64)
    setup = _setup(target, layout, clock, output)
    _apply(code, "setup", setup + (_protection(layout, vectors, report) if protect else []))
    overhead = _call(code, layout, function.address | 1, clock, report)
    _finish(code, report, output, (report, nbytes), protect)
    _handlers(code, report, clock)
    text = code.assemble()
    fault, tick = code.address_of("fault") | 1, code.address_of("tick") | 1
    table = struct.pack("<16I", layout.stack_pointer, (vectors + 64) | 1, *[fault] * 13, tick)
    reader = _reader(target, report)
    if len(table + text) > NBYTES - READER_NBYTES or len(reader) > READER_NBYTES:
        raise InternalError(f"the board's firmware takes {len(table + text)} bytes")
    if entry.paging:
        text = text.ljust(NBYTES - READER_NBYTES - len(table), b"\0") + reader
    ram = bytearray(_filled(report, nbytes, in_ram))
    ram[:REPORT_NBYTES] = bytes(REPORT_NBYTES)
    struct.pack_into("<3I", ram, 4 * _FILE, 0, report, nbytes)
    rom = _filled(target.memory["code"], target.memory["code_nbytes"], [one for one in layout.all if one.start < report])
    if vectors == target.memory["code"]:
        pages: tuple[tuple[int, bytes], ...] = ((vectors, table + text + rom[len(table + text) :]),)
    else:
        pages = ((vectors, table + text), (target.memory["code"], rom))
    return Firmware(vectors, pages, (report, bytes(ram)), overhead, clock, layout.image)


def _filled(address: int, nbytes: int, placed: list[Placed]) -> bytes:
    """Memory that holds these regions' pages, and everywhere else an instruction that faults."""
    memory = bytearray([_UNDEFINED]) * nbytes
    for one in placed:
        memory[one.start - address : one.end - address] = one.image
    return bytes(memory)


def _setup(target: Target, layout: Layout, clock: Clock, output: Output) -> list[int]:
    """What to do to registers before the call, three words each: address, mask of the bits that stay, bits to set."""
    steps: list[int] = []
    if "fpu" in target.has:
        steps += [_CPACR, _ALL, 0xF << 20]
    if "unaligned" not in target.has:
        steps += [_CCR, _ALL, _UNALIGN_TRAP]
    if "mve" in target.has:
        steps += [_CCR, _ALL, _LOW_OVERHEAD_LOOPS]
    if output.uart:
        steps += [output.uart + 16, 0, 16, output.uart + 8, 0, 1]  # BAUDDIV, CTRL: transmit
    if clock.instructions_per_tick is None:
        return [*steps, _DEMCR, _ALL, 1 << 24, _DWT_CONTROL, _ALL, 1]
    return [*steps, _SYSTICK_RELOAD, 0, clock.period - 1, _SYSTICK_VALUE, 0, 0, _SYSTICK_CONTROL, 0, 7]


def _protection(layout: Layout, vectors: int, report: int) -> list[int]:
    """Steps that give the MPU a region for everything that may be touched."""
    writable, read_only, execute_never = 0, 2 << 1, 1
    regions = [(vectors, vectors + NBYTES, read_only), (report, report + REPORT_NBYTES, writable | execute_never)]
    for placed in layout.all:
        access = writable if placed.region.writable else read_only
        regions.append((placed.start, placed.end, access | (0 if placed is layout.code else execute_never)))
    steps = [_MPU_ATTRIBUTES, 0, 0x44]  # normal memory, not cached
    for number, (start, end, access) in enumerate(region for region in regions if region[1] > region[0]):
        steps += [_MPU_NUMBER, 0, number, _MPU_BASE, 0, start | access, _MPU_LIMIT, 0, end - 32 | 1]
    return [*steps, _MPU_CONTROL, 0, 1]


def _apply(code: Thumb, name: str, steps: list[int]) -> None:
    """Do the steps that `_setup` describes."""
    code.words(name, steps)
    code.words(f"{name}_end", [])
    code.load(0, name)
    code.load(1, f"{name}_end")
    code.label("step")
    code.read_next(0, (2, 3, 4))
    code.read(5, 2)
    code.and_(5, 3)
    code.or_(5, 4)
    code.write(5, 2)
    code.compare(0, 1)
    code.branch("step", NE)
    code.barrier()


def _call(code: Thumb, layout: Layout, function: int, clock: Clock, report: int) -> int:
    """Call the function and store what it leaves in registers.

    Both readings of the clock are taken when it ticks, so that the difference is exact to a few instructions, not to a tick.
    Returns how many instructions are ours, from the first of them to the first look at the clock after the call.
    """
    for name, value in reversed(SAVED.items()):
        number = int(name[1:])
        code.load(number if number < 8 else 0, value)
        if number >= 8:
            code.move(number, 0)
    code.load(0, function)
    code.move(12, 0)
    code.load(0, clock.address)
    code.read(1, 0)
    code.label("before")  # the clock's next tick
    first = len(code)
    code.read(2, 0)
    code.compare(1, 2)
    code.branch("before", EQ)
    code.load(1, report)
    code.write(2, 1, _BEFORE)
    for number, value in enumerate(layout.values[:4]):
        code.load(number, value)
    code.call(12)
    code.load(1, report)
    code.write(0, 1, _RESULT)
    code.load(1, clock.address)
    last = len(code)
    code.read(2, 1)
    code.load(3, 0)
    code.label("after")  # count until the clock's next tick
    code.add(3, 1)
    code.read(0, 1)
    code.compare(0, 2)
    code.branch("after", EQ)
    code.load(2, report)
    code.write(0, 2, _AFTER)
    code.write(3, 2, _SPINS)
    for number, word in ((SP, _SP), *((int(name[1:]), _REGISTERS + index) for index, name in enumerate(SAVED))):
        if number >= 8:
            code.move(3, number)
        code.write(3 if number >= 8 else number, 2, word)
    code.load(0, RETURNED)
    return last - first


def reader_address(target: Target) -> int:
    """Where the function that reads weights is; its context is the address of the file that it reads from."""
    return target.memory.get("vectors", target.memory["code"]) + NBYTES - READER_NBYTES


def _reader(target: Target, report: int) -> bytes:
    """`int read(void *ctx, uint32_t offset, uint32_t size, void *dst)`: copies words, the last first, and counts in the report. It takes no
    stack."""
    code = Thumb(reader_address(target))
    code.sum(1, 0, 1)
    code.move(12, 1)
    code.load(0, report)
    code.read(1, 0, _READ_NBYTES)
    code.sum(1, 1, 2)
    code.write(1, 0, _READ_NBYTES)
    code.read(1, 0, _READ_CALLS)
    code.add(1, 1)
    code.write(1, 0, _READ_CALLS)
    code.move(1, 12)
    code.and_(2, 2)
    code.branch("read", EQ)
    code.label("word")
    code.subtract(2, 4)
    code.read_at(0, 1, 2)
    code.write_at(0, 3, 2)
    code.and_(2, 2)
    code.branch("word", NE)
    code.label("read")
    code.load(0, 0)
    code.leave()
    return code.assemble()


def _finish(code: Thumb, report: int, output: Output, dumped: tuple[int, int], protect: bool) -> None:
    """Store the status, which is in r0, and hand memory over."""
    code.label("finish")
    code.load(1, report)
    code.write(0, 1, _STATUS)
    code.load(0, 0)
    for register in (_SYSTICK_CONTROL, *((_MPU_CONTROL,) if protect else ())):
        code.load(1, register)
        code.write(0, 1)
    code.barrier()
    if output.uart:
        _transmit(code, output.uart, dumped)
    else:
        _write_file(code, output.path, report)
    code.label("idle")
    code.wait()
    code.branch("idle")


def _transmit(code: Thumb, uart: int, dumped: tuple[int, int]) -> None:
    """Every byte to the UART's DATA register, once STATE says that it is not full."""
    code.load(0, dumped[0])
    code.load(1, dumped[0] + dumped[1])
    code.load(2, uart)
    code.load(4, 1)
    code.load(5, 0)
    code.label("transmit")
    code.read(3, 2, 1)
    code.and_(3, 4)
    code.compare(3, 5)
    code.branch("transmit", NE)
    code.read_byte(3, 0)
    code.write(3, 2)
    code.add(0, 1)
    code.compare(0, 1)
    code.branch("transmit", NE)


def _write_file(code: Thumb, path: str, report: int) -> None:
    """SYS_OPEN, SYS_WRITE (its parameters are in the report) and SYS_EXIT."""
    name = path.encode()
    padded = name + bytes(4 - len(name) % 4)
    code.words("path", struct.unpack(f"<{len(padded) // 4}I", padded))
    code.words("open", ["path", _WRITE_BINARY, len(name)])
    code.load(0, _OPEN)
    code.load(1, "open")
    code.semihost()
    code.load(1, report + 4 * _FILE)
    code.write(0, 1)
    code.load(0, _WRITE)
    code.semihost()
    code.load(0, _EXIT)
    code.load(1, _FINISHED)
    code.semihost()


def _handlers(code: Thumb, report: int, clock: Clock) -> None:
    """`fault` stores why and where; `tick` counts SysTick's wraps and ends a call that takes too long."""
    code.label("fault")
    code.load(2, report)
    for register, word in ((_CFSR, _CAUSE), (_MMFAR, _MEMORY_ADDRESS), (_BFAR, _BUS_ADDRESS)):
        code.load(1, register)
        code.read(1, 1)
        code.write(1, 2, word)
    code.load(0, FAULTED)
    code.branch("leave")
    code.label("tick")
    code.load(2, report)
    code.read(1, 2, _WRAPS)
    code.add(1, 1)
    code.write(1, 2, _WRAPS)
    code.load(0, clock.wraps)
    code.compare(1, 0)
    code.branch("hung", HS)
    code.leave()
    code.label("hung")
    code.load(0, HUNG)
    code.label("leave")
    code.move(3, SP)
    code.write(3, 2, _SP)
    code.branch("finish")
