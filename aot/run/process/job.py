"""What the harness reads and writes (`harness.c`).

Enters: a layout, calls. Leaves: the bytes of a job; of what the harness wrote, a `Report`.
Invariant: all numbers are 64-bit little-endian words, in the order of the structs in the C source.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aot.bundle import Entry
from aot.errors import InternalError
from aot.run.layout import Layout
from aot.run.memory import CONTEXT, NO_FUNCTIONS, PARALLEL_FOR, POOL, READ, ROWS, Call, Placed, region_name
from aot.run.process.program import Program
from aot.run.reader import CONTEXT as CONTEXT_VALUE

RETURNED, FAULTED, FAILED, BROKE_SAVED, BAD_READ = range(1, 6)
_MAGIC = 0x314E5552544F41
_REPORT = struct.Struct("<12Q")
_STACK_POINTER, _FLOATS = 200, 100
_SAVED: dict[
    str, tuple[list[str], list[str]]
] = {  # registers that a function must preserve, as call.S has them: general ones, then those of floats
    "aarch64": ([f"x{number}" for number in range(19, 30)], [f"d{number}" for number in range(8, 16)]),
    "armv7": ([f"r{number}" for number in range(4, 12)], [f"d{number}" for number in range(8, 16)]),
    "riscv": ([f"s{number}" for number in range(12)], [f"fs{number}" for number in range(12)]),
    "hexagon": ([f"r{number}" for number in range(16, 28)], []),
}


@dataclass(frozen=True)
class Report:
    """How the process ended. address, pc: of a fault. call: the number of the call. register: one that was not preserved, and what it
    held before and after. pending: bytes of weights that nobody waited for."""

    status: int
    signal: int
    address: int
    pc: int
    call: int
    code: int
    register: str
    before: int
    after: int
    read_calls: int
    read_nbytes: int


def job(program: Program, entry: Entry, layout: Layout, calls: Sequence[Call], file: Placed | None, at_end: bool) -> bytes:
    """The job. file: where pages of weights come from. at_end: they come at once, and the entry runs the parts of its layers itself;
    in the other run they come only by the next read, and the harness runs parts backwards."""
    placed = {one.region.name: one for one in layout.arguments}
    regions = [one for one in (layout.stack, *layout.arguments, *([file] if file else [])) if one.end > one.start]
    spans = [placed[region_name(pointer)] for pointer in entry.workspaces] if file else []
    stack = layout.stack
    words = [int(not at_end), CONTEXT_VALUE, file.address if file else 0, file.region.nbytes if file else 0]
    words += [stack.address, layout.stack_pointer - stack.address, stack.guard, len(spans), len(regions), len(calls)]
    for span in spans:
        words += [span.address, span.region.nbytes, 1]
    parts = [_words(words)]
    for one in regions:
        parts += [_words([one.start, one.end - one.start, int(one.region.writable)]), one.image]
    addresses = {name: one.address for name, one in placed.items()}
    addresses |= {READ: program.symbols["aot_read"], CONTEXT: CONTEXT_VALUE}
    addresses |= NO_FUNCTIONS
    addresses |= {} if at_end else {PARALLEL_FOR: program.symbols["aot_parallel_for"], POOL: CONTEXT_VALUE}
    for call in calls:
        parts += _call(program, placed, addresses, call, at_end)
    return b"".join(parts)


def _call(program: Program, placed: Mapping[str, Placed], addresses: Mapping[str, int], call: Call, at_end: bool) -> list[bytes]:
    if call.symbol not in program.symbols:
        raise InternalError(f"the object has no function {call.symbol}")
    held = None
    if ROWS in call.arguments:
        held, address = placed[ROWS].with_rows(call.rows, at_end)
        addresses = {**addresses, ROWS: address}
    values = [addresses[one] if isinstance(one, str) else one for one in call.arguments]
    rows = [held.start, held.end - held.start, 0] if held else [0, 0, 0]
    return [
        _words([program.symbols[call.symbol], int(call.prepares), len(values), *rows, *values]),
        held.image if held else b"",
    ]


def writable(layout: Layout) -> list[Placed]:
    """What the harness hands over after its report, in order."""
    return [one for one in (layout.stack, *layout.arguments) if one.region.writable and one.end > one.start]


def read_report(written: bytes, triple: str) -> tuple[Report, bytes]:
    """The report, and what follows it. InternalError if there is none."""
    if len(written) < _REPORT.size:
        raise InternalError("the process ended without a report")
    magic, status, signal, address, pc, call, code, which, before, after, calls, nbytes = _REPORT.unpack_from(written)
    if magic != _MAGIC or status not in range(RETURNED, BAD_READ + 1):
        raise InternalError(f"the process could not make its calls (status {status})")
    register = _register(which, triple) if status == BROKE_SAVED else ""
    signed = code - (1 << 64) if code >> 63 else code
    return Report(status, signal, address, pc, call, signed, register, before, after, calls, nbytes), written[_REPORT.size :]


def _register(which: int, triple: str) -> str:
    if which == _STACK_POINTER:
        return "sp"
    general, floats = next(names for architecture, names in _SAVED.items() if triple.startswith(architecture))
    return floats[which - _FLOATS] if which >= _FLOATS else general[which]


def _words(words: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(words)}Q", *words)
