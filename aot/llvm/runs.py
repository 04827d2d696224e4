"""Runs of steps: layers that take turns, a few rows at a time, as one loop over a table.

Enters: steps of an entry. Leaves: the run that becomes a loop, its table of steps, and what changes with each of them as tables of numbers.
Invariant: a loop makes the calls of its run in their order, each with the arguments that a call by itself would have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from llvmlite import ir

from aot.graph.ir import DType
from aot.llvm.constants import offset_pointer
from aot.llvm.types import I32, POINTER, Builder, Value, memory_type
from aot.lower.plan import Step
from aot.lower.program import Buffer

FEWEST = 6
"""Calls that a loop must save to be one."""
PAUSE = -1
"""Position of a step that makes nothing."""
_DTYPES = (DType.UINT8, DType.UINT16, DType.INT16, DType.INT32)


@dataclass(frozen=True)
class Run:
    """Steps that one loop makes."""

    steps: tuple[Step, ...]

    @cached_property
    def layers(self) -> Mapping[int, tuple[Step, ...]]:
        """The steps of each position, positions in order of their first step."""
        found: dict[int, list[Step]] = {}
        for step in self.steps:
            found.setdefault(step.position, []).append(step)
        return {position: tuple(steps) for position, steps in found.items()}

    @cached_property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """For each step the number of its layer, and its own among the layer's steps."""
        numbers = {position: number for number, position in enumerate(self.layers)}
        counts = dict.fromkeys(self.layers, 0)
        found: list[tuple[int, int]] = []
        for step in self.steps:
            found.append((numbers[step.position], counts[step.position]))
            counts[step.position] += 1
        return tuple(found)

    @property
    def table(self) -> list[int]:
        """The entries one after the other, and one that ends them."""
        return [*(number for entry in self.entries for number in entry), len(self.layers), 0]


def find_run(steps: Sequence[Step]) -> Run | None:
    """The steps from the first to the last that is one of several of its layer, if they are worth a loop."""
    counts = Counter(step.position for step in steps)
    divided = [number for number, step in enumerate(steps) if counts[step.position] > 1]
    if not divided:
        return None
    run = Run(tuple(steps[divided[0] : divided[-1] + 1]))
    return run if len(run.steps) - len(run.layers) >= FEWEST else None


class Numbers:
    """What differs between the steps of a layer, as numbers in one table, or computed where they lie on a line.

    Enters: the values of each number, in the order of the layer's steps. `start` is the table's first byte at run time.
    `cursor`: in a loop, the entry of the table that says which step is made; `done`: the block after it.
    """

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.start: Value = None
        self.cursor: Value = None
        self.done: Any = None
        self.bytes = bytearray()
        self.offsets: dict[tuple[int, ...], int] = {}

    def add(self, values: Sequence[int]) -> int | None:
        """Where the values begin in the table; None if they need none."""
        line = _line(values)
        if list(values) in (line, _cut(line, values[-1])):
            return None
        return self.append(values)

    def append(self, values: Sequence[int]) -> int:
        """Put values into the table, once."""
        key, dtype = tuple(values), smallest(values)
        if key not in self.offsets:
            self.bytes += bytes(-len(self.bytes) % dtype.nbytes)
            self.offsets[key] = len(self.bytes)
            self.bytes += np.asarray(values, dtype.np).astype(dtype.np.newbyteorder("<")).tobytes()
        return self.offsets[key]

    def table(self) -> Buffer:
        return Buffer("numbers", DType.UINT8, (len(self.bytes),), "constant", data=np.frombuffer(bytes(self.bytes), np.uint8))

    def at(self, values: Sequence[int], number: Value) -> Value:
        """values[number], int32."""
        offset = self.add(values)
        if offset is not None:
            dtype = smallest(values)
            slot = self.builder.gep(self.start, [number], inbounds=True, source_etype=memory_type(dtype))
            return load(self.builder, offset_pointer(self.builder, slot, offset), dtype)
        line = _line(values)
        if line[0] == line[-1]:
            return I32(line[0])
        step = line[1] - line[0]
        scaled = number if step == 1 else self.builder.mul(number, I32(step))
        found = self.builder.add(scaled, I32(line[0])) if line[0] else scaled
        if line[-1] == values[-1]:
            return found
        return self.builder.select(self.builder.icmp_signed("<", found, I32(values[-1])), found, I32(values[-1]))


def _line(values: Sequence[int]) -> list[int]:
    """As many numbers on the line through the first two."""
    step = values[1] - values[0] if len(values) > 1 else 0
    return [values[0] + step * at for at in range(len(values))]


def _cut(values: Sequence[int], limit: int) -> list[int]:
    return [min(value, limit) for value in values]


def smallest(values: Sequence[int]) -> DType:
    """The smallest dtype that holds all values."""
    return next(dtype for dtype in _DTYPES if dtype.limits[0] <= min(values) and max(values) <= dtype.limits[1])


def load(builder: Builder, address: Value, dtype: DType) -> Value:
    """A number of the table, int32."""
    etype = memory_type(dtype)
    loaded = builder.load(address, align=dtype.nbytes, typ=etype)
    return loaded if etype == I32 else builder.sext(loaded, I32) if dtype.is_signed else builder.zext(loaded, I32)


def emit_run(
    numbers: Numbers,
    run: Run,
    place: Callable[[Buffer], Value],
    pointers: MutableMapping[Any, Value],
    used: Collection[Any],
    call: Callable[[int, Value], None],
    begin: Callable[[Value], Value] = lambda entry: entry,
) -> None:
    """The loop: `call(position, number)` emits that step of a layer; `place` gives the address of a constant.

    begin: where in the table to begin, of the address of its first entry. After the loop, and at `numbers.done`, which `call` may branch
    to, `numbers.cursor` is the entry whose step was not made.
    pointers: what addresses are made from, `used` those that the run needs. In each turn they are values that LLVM can't know; else it
    would compute all addresses of all layers before the loop, and keep them on the stack.
    """
    builder, before = numbers.builder, numbers.builder.block
    layers = list(run.layers)
    dtype, first = smallest(run.table), numbers.append(run.table)
    numbers.start = place(numbers.table())
    cursors = {"cursor": begin(offset_pointer(builder, numbers.start, first)), "start": numbers.start}
    carried = {**cursors, **{key: pointer for key, pointer in pointers.items() if key in used}}
    again, never, done = (builder.append_basic_block(name) for name in ("step", "never", "finished"))
    builder.branch(again)
    builder.position_at_end(again)
    phis = {key: builder.phi(POINTER) for key in carried}
    for key, phi in phis.items():
        phi.add_incoming(carried[key], before)
    held = {key: _unknown(builder, phi) for key, phi in phis.items()}
    pointers.update({key: pointer for key, pointer in held.items() if key in pointers})
    numbers.start = held["start"]
    numbers.cursor, numbers.done = held["cursor"], done
    layer, number = (load(builder, offset_pointer(builder, held["cursor"], at * dtype.nbytes), dtype) for at in range(2))
    held["cursor"] = offset_pointer(builder, held["cursor"], 2 * dtype.nbytes)
    choice = builder.switch(layer, never)
    choice.add_case(I32(len(layers)), done)
    latch = builder.append_basic_block("made")
    for at, position in enumerate(layers):
        block = builder.append_basic_block(f"layer{position}")
        choice.add_case(I32(at), block)
        builder.position_at_end(block)
        call(position, number)
        builder.branch(latch)
    builder.position_at_end(latch)
    for key, phi in phis.items():
        phi.add_incoming(held[key], latch)
    builder.branch(again)
    builder.position_at_end(never)
    builder.unreachable()
    builder.position_at_end(done)


def _unknown(builder: Builder, pointer: Value) -> Value:
    """The same pointer, by way of no instruction."""
    return builder.call(ir.InlineAsm(ir.FunctionType(POINTER, [POINTER]), "", "=r,0", side_effect=True), [pointer])
