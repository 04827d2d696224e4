"""Sums of a whole image's pixels, channel by channel, row after row into int32: what a mean is made of where its input never lies in
memory at once.

Enters: reductions of int8 over all rows and columns to int32. Leaves: `Implementation`s, or the sentence why not.
Invariant: before a row is added, the output holds the sums of all rows above it; the sums of a row stay inside 16 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from aot.backends.cmsis_nn.dsp.instructions import Dsp, Image
from aot.backends.cmsis_nn.dsp.pool import Pool, channel_sums, read_pool, sums_up
from aot.graph.primitive import Primitive
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, Value
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.program import Program
from aot.target import Target

_MOST_COLUMNS = 256
_AT_ONCE = 4  # pixels in a turn


def claim_sums(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Sums of all rows and columns of an image."""
    pool = read_pool(program, instruction, target)
    if isinstance(pool, str):
        return pool
    if not sums_up(program, pool.instruction):
        return "its sums are not what is stored"
    if pool.images > 1 or pool.rows.count * pool.columns.count > 1 or pool.leaves:
        return "not the sums of one image"
    height, width = pool.rows.taps, pool.columns.taps
    if (height, width) != (pool.rows.size, pool.columns.size) or width > _MOST_COLUMNS:
        return f"not whole rows, or more than {_MOST_COLUMNS} columns"
    row = pool.depth * (0.9 * width + 5) + 12
    return Implementation(
        kernel="sums",
        instruction=instruction,
        reads=(pool.load.buffer,),
        writes=(pool.instruction.out,),
        constants=(),
        emit=lambda function: _Emitter(function, pool).emit(),
        rows=Rows(height, 1, accumulates=True) if height > 1 else Rows(),
        scatters=(pool.load.buffer,) if height > 1 else (),
        style="ordered",
        cost=Cost(int(height * row + 1.5 * pool.depth + 20), 350, step_instructions=18),
        notes=("eight channels at a time",),
    )


@dataclass
class _Emitter:
    """Emits the sums of one image."""

    function: KernelFunction
    pool: Pool

    def __post_init__(self) -> None:
        self.dsp = Dsp(self.function)

    def emit(self) -> None:
        function, pool, dsp, builder = self.function, self.pool, self.dsp, self.dsp.builder
        out = function.pointer(pool.instruction.out)
        image = Image.of(function, pool.load.buffer, pool.columns.size * pool.depth)
        if pool.rows.size == 1:
            self._begin(out)
            self._row(image.base, out)
            return
        with builder.if_then(builder.icmp_unsigned("==", function.y0, I32(0))):
            self._begin(out)
        with dsp.repeat(builder.sub(function.y1, function.y0), [function.y0]) as rows:
            (number,) = rows.values
            self._row(image.row(dsp, number), out)
            rows.next = (builder.add(number, I32(1)),)

    def _begin(self, out: Value) -> None:
        """What sums start from."""
        with self.dsp.repeat(self.pool.depth, [out]) as carried:
            self.dsp.store_word(I32(self.pool.initial), carried.values[0])
            carried.next = (self.dsp.at(carried.values[0], 4),)

    def _row(self, row: Value, out: Value) -> None:
        """Add a row, of eight, four and single channels at a time."""
        dsp, depth = self.dsp, self.pool.depth
        for width, turns in ((8, depth // 8), (4, depth % 8 // 4), (1, depth % 4)):
            if not turns:
                continue
            with dsp.repeat(turns, [row, out]) as carried:
                here, there = carried.values
                sums = self._pixels(here, width)
                for number, value in enumerate(channel_sums(dsp, sums, width)):
                    dsp.store_word(dsp.builder.add(dsp.word(there, 4 * number), value), there, 4 * number)
                carried.next = (dsp.at(here, width), dsp.at(there, 4 * width))
            row, out = carried.results

    def _pixels(self, source: Value, width: int) -> list[Value]:
        """Sums of `width` channels over a row: two words of halves for each four channels, or one of a single one."""
        dsp, columns, depth = self.dsp, self.pool.columns.size, self.pool.depth
        sums: list[Value] = [I32(0)] * max(1, width // 2)
        for count, turns in ((_AT_ONCE, columns // _AT_ONCE), (1, columns % _AT_ONCE)):
            if not turns:
                continue
            with dsp.repeat(turns, [source, *sums]) as carried:
                here, *sums = carried.values
                for number in range(count):
                    sums = self._pixel(dsp.at(here, number * depth), width, sums)
                carried.next = (dsp.at(here, count * depth), *sums)
            source, *sums = carried.results
        return sums

    def _pixel(self, source: Value, width: int, sums: list[Value]) -> list[Value]:
        dsp = self.dsp
        if width == 1:
            return [dsp.builder.add(sums[0], dsp.byte(source))]
        found: list[Value] = []
        for number in range(width // 4):
            word = dsp.any_word(source, 4 * number)
            found += [dsp.sxtab16(sums[2 * number], word), dsp.sxtab16_odd(sums[2 * number + 1], word)]
        return found
