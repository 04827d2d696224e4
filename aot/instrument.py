"""Instrumentation: what an entry tells of its layers while it runs, where that is asked for.

Enters: options, and for a dump an entry that is planned. Leaves: `Instrument`, refusals of what can't be combined, `Tensor`s.
Invariant: without it nothing differs, no byte of an object; with it the outputs are the same.

The functions that an entry calls are the caller's, passed as pointers: so the object has no undefined symbol, and one object serves
firmware that measures, firmware that dumps, and (null) firmware that does neither.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from aot.errors import CompileError
from aot.graph.ir import DType, Shape
from aot.pointers import Pointer, counters, hooks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aot.driver import Options
    from aot.llvm.layout import Layout
    from aot.lower.plan import Schedule
    from aot.lower.program import Program
    from aot.target import Target

Kind = Literal["hooks", "cycles", "dump"]
KINDS: tuple[Kind, ...] = ("hooks", "cycles", "dump")
CYCCNT = 0xE0001004
"""The cycle counter of the DWT unit (Armv7-M and Armv8-M Architecture Reference Manuals, DWT_CYCCNT)."""
_WITH_DWT = ("thumbv7m", "thumbv7em", "thumbv8m.main", "thumbv8.1m.main")
"""Architectures whose cores have it: M3, M4, M7, M33, M55, M85. Armv6-M and Armv8-M Baseline have none."""


@dataclass(frozen=True)
class Instrument:
    """What is told: hooks and dump: a call before and after each layer. cycles: what each layer takes, of a 32-bit counter that counts up at
    the address `counter`."""

    kind: Kind
    counter: int = CYCCNT

    def pointers(self, layers: int) -> tuple[Pointer, ...]:
        """What an entry of so many layers is passed for it."""
        return counters(layers) if self.kind == "cycles" else hooks()


@dataclass(frozen=True)
class Tensor:
    """A tensor that a layer leaves in one piece. argument: number of the entry's parameter whose bytes [offset, offset + nbytes) it is;
    it holds what `layer` made of it when the hook is called after that layer."""

    layer: int
    name: str
    label: str
    dtype: DType
    shape: Shape
    argument: int
    offset: int
    nbytes: int


def instrument_of(options: Options) -> Instrument | None:
    """What the options ask for."""
    if options.instrument is None:
        return None
    return Instrument(options.instrument, CYCCNT if options.cycle_counter is None else options.cycle_counter)


def require_instrument(options: Options, target: Target) -> None:
    """CompileError for instrumentation that the target has no counter for, or that can't be combined with other options."""
    instrument, address = instrument_of(options), options.cycle_counter
    if address is not None and (instrument is None or instrument.kind != "cycles"):
        raise CompileError("--cycle-counter is for --instrument cycles")
    if instrument is None:
        return
    if options.emit != "object":
        raise CompileError("--instrument is for objects, not for C files", hint="a profiler of the C compiler's sees their layers")
    if address is not None and (address % 4 or not 0 < address < 1 << 32):
        raise CompileError(f"--cycle-counter {address:#x} is no address of a 32-bit register")
    if instrument.kind == "cycles" and address is None and target.triple.split("-")[0] not in _WITH_DWT:
        hint = "--cycle-counter names a 32-bit timer that counts up; --instrument hooks lets the firmware measure"
        raise CompileError(f"{target.name} has no cycle counter of a DWT unit, which --instrument cycles reads", hint=hint)
    if instrument.kind == "dump" and options.stream_input:
        raise CompileError("--instrument dump is for tensors in one piece, and --stream-input leaves rows of them")
    if taken := options.regions.keys() & {pointer.name for pointer in instrument.pointers(1)}:
        raise CompileError(f"--region {min(taken)}: an entry has a parameter of this name", hint="give the region another name")


def tensors_of(layout: Layout, pointers: Sequence[Pointer]) -> tuple[Tensor, ...]:
    """The tensors that the layers of an entry leave, in the order of its layers. pointers: its parameters after the ports.

    Left out is what exists nowhere as a whole: what is fused away, and time steps that a loop slides over. A tensor that several
    layers write is whole after the last of them.
    """
    schedule, program = layout.plan.schedule, layout.program
    arguments = {pointer.name: len(layout.parameters) + number for number, pointer in enumerate(pointers)}
    order = {position: layer for layer, position in enumerate(schedule.kernel_positions)}
    found: list[Tensor] = []
    for position, layer in order.items():
        for name in dict.fromkeys(schedule.choices[position].implementation.writes):
            place = layout.place(name)
            if place.slide or layer != max(order[writer] for writer in writers_of(schedule, name)):
                continue
            buffer, owner = program[name], program[program.storage(name)]
            argument = place.port if isinstance(place.port, int) else arguments[place.port]
            kind = buffer.dtype, buffer.shape
            found.append(Tensor(layer, name, owner.label or owner.name, *kind, argument, place.offset + place.start, buffer.nbytes))
    return tuple(found)


def writers_of(schedule: Schedule, name: str) -> tuple[int, ...]:
    """Positions of the instructions that write a byte of a buffer."""
    program = schedule.program
    owner, bytes_ = program.storage(name), _bytes(program, name)
    found: list[int] = []
    for position in schedule.kernel_positions:
        for other in schedule.choices[position].implementation.writes:
            theirs = _bytes(program, other)
            if program.storage(other) == owner and theirs.start < bytes_.stop and bytes_.start < theirs.stop:
                found.append(position)
    return tuple(found)


def _bytes(program: Program, name: str) -> range:
    """Which bytes of its storage a buffer may be."""
    buffer = program[name]
    if buffer.slide:
        return range(program[program.storage(name)].nbytes)
    return range(buffer.offset, buffer.offset + buffer.nbytes)


def fingerprint(tensors: Sequence[Tensor]) -> int:
    """What tells the tensors of one bundle from those of another."""
    lines = [f"{one.layer} {one.name} {one.dtype} {one.shape} {one.argument} {one.offset}" for one in tensors]
    return zlib.crc32("\n".join(lines).encode())
