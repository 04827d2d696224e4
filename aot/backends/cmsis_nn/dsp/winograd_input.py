"""Winograd's transformation of inputs: image rows across, then four of them down.

Enters: a geometry. Leaves: instructions, and what they need of scratch.
Invariant: an input is an unsigned byte u = x + 128; a word holds two channels of a pixel, and transformed rows lie as [position][pair][tile],
their low halves lifted by LIFT. Four rows down become [position][pair][band][tile].

Words of channels (0, 2) and (1, 3) come from four bytes by UXTB16. Transformation is plain 32-bit arithmetic on two halves at once: the
sum is right in both as soon as the low half of the result is not negative, which LIFT sees to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from aot.backends.cmsis_nn.dsp.ending import word32
from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.cmsis_nn.dsp.winograd_weights import INPUT_ACROSS, LIFT, pairs_of
from aot.backends.cmsis_nn.shared import digest
from aot.graph.primitive import Geometry
from aot.llvm.types import I8, I32, POINTER, Value

_STRAIGHT_TILES = 8  # more tiles of a row are transformed by a loop


@dataclass(frozen=True)
class Tiles:
    """How an image is cut: tiles of 2 x 4 outputs, `at_once` of a row together. zero_point: of the input, as it is."""

    geometry: Geometry
    zero_point: int
    at_once: int

    @property
    def pairs(self) -> int:
        return pairs_of(self.geometry.input[3])

    @property
    def count(self) -> int:
        """Tiles of a row."""
        return -(-self.geometry.output[2] // 4)

    @property
    def room(self) -> int:
        """Tiles of a row, the last block's missing ones included."""
        return -(-self.count // self.at_once) * self.at_once

    @property
    def plane_nbytes(self) -> int:
        """Bytes of one position of a row."""
        return 4 * self.pairs * self.room

    @property
    def row_nbytes(self) -> int:
        return 6 * self.plane_nbytes

    def row(self, dsp: Dsp, image: Value, number: Value, into: Value) -> None:
        """Transform input row `number` of the image, which may lie outside, across; by a local function."""
        type = ir.FunctionType(ir.VoidType(), [POINTER, I32, POINTER])
        key = (self.geometry.input, self.geometry.output[2], self.geometry.pad_left, self.zero_point, self.room)
        function = dsp.function.helper(f"winograd_row_{digest(key)}", type, lambda made: self._row(dsp, made))
        dsp.builder.call(function, [image, number, into])

    def _row(self, outer: Dsp, function: ir.Function) -> None:
        dsp = Dsp(outer.function, ir.IRBuilder(function.append_basic_block("entry")))
        image, number, into = function.args
        _, height, width, depth = self.geometry.input
        inside = dsp.builder.icmp_unsigned("<", number, I32(height))
        with dsp.builder.if_else(inside) as (then, otherwise):
            with then:
                self._across(dsp, dsp.at(image, dsp.builder.mul(number, I32(width * depth))), into)
            with otherwise:
                self._fill(dsp, into)
        dsp.builder.ret_void()

    def _fill(self, dsp: Dsp, into: Value) -> None:
        """A row of zero points."""
        for position, value in enumerate(INPUT_ACROSS.sum(1) * (self.zero_point + 128)):
            word = ((int(value) + LIFT) & 0xFFFF) | (int(value) & 0xFFFF) << 16
            with dsp.repeat(self.pairs * self.room, [dsp.at(into, position * self.plane_nbytes)]) as carried:
                dsp.store_word(I32(word32(word)), carried.values[0])
                carried.next = (dsp.at(carried.values[0], 4),)

    def _across(self, dsp: Dsp, row: Value, into: Value) -> None:
        """Four channels a turn; those that are left over by bytes."""
        quads, rest = divmod(self.geometry.input[3], 4)
        if quads:
            with dsp.repeat(quads, [row, into]) as carried:
                here, there = carried.values
                self._quad(dsp, here, there, 4)
                carried.next = (dsp.at(here, 4), dsp.at(there, 8 * self.room))
            row, into = carried.results
        if rest:
            self._quad(dsp, row, into, rest)

    def _quad(self, dsp: Dsp, row: Value, into: Value, channels: int) -> None:
        """All tiles of up to four channels. Tiles inside the row, where there are many, by a loop."""
        width, depth, left = self.geometry.input[2], self.geometry.input[3], self.geometry.pad_left
        last = width - (channels < 4)
        inner = [tile for tile in range(self.count) if 4 * tile >= left and 4 * tile - left + 6 <= last]
        loops = self.count > _STRAIGHT_TILES and len(inner) > 2
        columns: dict[int, tuple[Value, Value]] = {}
        for tile in range(self.count):
            if loops and tile in inner:
                continue
            start = 4 * tile - left
            for column in range(start, start + 6):
                if column not in columns:
                    columns[column] = self._column(dsp, row, column, channels)
            self._tile(dsp, [columns[column] for column in range(start, start + 6)], dsp.at(into, 4 * tile))
        if loops:
            first = inner[0]
            starts = [dsp.at(row, (4 * first - left) * depth), dsp.at(into, 4 * first)]
            with dsp.repeat(len(inner), starts) as carried:
                here, there = carried.values
                self._tile(dsp, [self._loaded(dsp, here, column * depth) for column in range(6)], there)
                carried.next = (dsp.at(here, 4 * depth), dsp.at(there, 4))

    def _column(self, dsp: Dsp, row: Value, column: int, channels: int) -> tuple[Value, Value]:
        """Both words of a pixel; of the zero point outside the row."""
        if not 0 <= column < self.geometry.input[2]:
            both = I32((self.zero_point + 128) * 0x10001)
            return both, both
        offset = column * self.geometry.input[3]
        if channels == 4 or column < self.geometry.input[2] - 1:
            return self._loaded(dsp, row, offset)
        return self._by_bytes(dsp, row, offset, channels)

    def _loaded(self, dsp: Dsp, row: Value, offset: int) -> tuple[Value, Value]:
        """Four channels; what the next pixel has in their place meets weights of 0."""
        word = dsp.builder.xor(dsp.any_word(row, offset), I32(-0x7F7F7F80))
        return dsp.uxtb16(word), dsp.uxtb16_odd(word)

    def _by_bytes(self, dsp: Dsp, row: Value, offset: int, channels: int) -> tuple[Value, Value]:
        """Fewer than four, at the end of a row: nothing is read behind it."""
        builder = dsp.builder
        bytes_ = [builder.load(dsp.at(row, offset + number), align=1, typ=I8) for number in range(channels)]
        halves = [builder.zext(builder.xor(byte, I8(-128)), I32) for byte in bytes_]
        even = halves[0] if channels < 3 else builder.or_(halves[0], builder.shl(halves[2], I32(16)))
        return even, halves[1] if channels > 1 else I32(0)

    def _tile(self, dsp: Dsp, columns: Sequence[tuple[Value, Value]], into: Value) -> None:
        """Six columns become six positions of a tile, for both words."""
        builder = dsp.builder
        add, sub = builder.add, builder.sub

        def scaled(value: Value, by: int) -> Value:
            return builder.shl(value, I32(by))

        for half in range(2):
            c0, c1, c2, c3, c4, c5 = (column[half] for column in columns)
            lifted = add(c4, I32(LIFT))
            far, near = sub(lifted, scaled(c2, 2)), sub(c3, scaled(c1, 2))
            difference, outer, inner = sub(lifted, c2), sub(c0, c2), sub(c3, c1)
            last = add(sub(c5, c3), I32(LIFT))
            positions = (
                add(difference, scaled(outer, 2)),
                add(far, near),
                sub(far, near),
                add(difference, scaled(inner, 1)),
                sub(difference, scaled(inner, 1)),
                sub(last, scaled(inner, 2)),
            )
            for number, value in enumerate(positions):
                dsp.store_word(value, into, number * self.plane_nbytes + 4 * half * self.room)

    def down(self, dsp: Dsp, rows: Sequence[Value], into: Value) -> None:
        """Four transformed rows become the four bands of each word; by a local function."""
        type = ir.FunctionType(ir.VoidType(), [POINTER] * 5)
        key = (self.pairs, self.room)
        function = dsp.function.helper(f"winograd_bands_{digest(key)}", type, lambda made: self._down(dsp, made))
        dsp.builder.call(function, [*rows, into])

    def _down(self, outer: Dsp, function: ir.Function) -> None:
        dsp = Dsp(outer.function, ir.IRBuilder(function.append_basic_block("entry")))
        *rows, into = function.args
        with dsp.repeat(6 * self.pairs, [*rows, into]) as planes:
            *starts, place = planes.values
            with dsp.repeat(self.room // 2, [*starts, place]) as tiles:
                *here, there = tiles.values
                self._bands(dsp, here, there)
                tiles.next = tuple(dsp.at(pointer, 8) for pointer in tiles.values)
            *ends, end = tiles.results
            planes.next = (*ends, dsp.at(end, 12 * self.room))
        dsp.builder.ret_void()

    def _bands(self, dsp: Dsp, rows: Sequence[Value], into: Value) -> None:
        """Two tiles: rows 0 - 2, 1 + 2, 2 - 1, 1 - 3."""
        second, third = dsp.pair(rows[1]), dsp.pair(rows[2])
        band = 4 * self.room

        def store(number: int, values: list[Value]) -> None:
            dsp.store_pair(values[0], values[1], into, number * band)

        store(1, [dsp.sadd16(a, b) for a, b in zip(second, third)])
        store(2, [dsp.ssub16(b, a) for a, b in zip(second, third)])
        store(0, [dsp.ssub16(a, b) for a, b in zip(dsp.pair(rows[0]), third)])
        store(3, [dsp.ssub16(a, b) for a, b in zip(second, dsp.pair(rows[3]))])
