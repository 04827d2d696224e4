"""Gathering the columns of one channel for a depthwise kernel: rows packed two by two as int16, column by column, in scratch.

Enters: a depthwise geometry. Leaves: scratch sizes and instructions.
Invariant: column x of the strip (counted from the left padding) lies at x * words * 4: word j holds rows 2j (low half) and 2j + 1;
rows and columns outside the image hold the zero point. The high half above an odd last row may hold anything: its weight is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aot.backends.cmsis_nn.dsp.instructions import Dsp, Image
from aot.graph.primitive import Geometry
from aot.llvm.types import I32, Value

_REACH = 4095  # of LDRSB and LDRSH
_STRAIGHT_ROWS = 4  # more rows are gathered in pairs, by a loop


@dataclass(frozen=True)
class Columns:
    """Strips of `rows` input rows, for every `step`-th output row of the geometry. element: bytes of an input."""

    geometry: Geometry
    zero_point: int
    rows: int
    step: int
    element: int = 1

    @property
    def pixel_nbytes(self) -> int:
        """Bytes of an input pixel."""
        return self.geometry.input[3] * self.element

    @property
    def words(self) -> int:
        """Words of a column."""
        return (self.rows + 1) // 2

    @property
    def count(self) -> int:
        """Columns that the outputs read, padding included."""
        g = self.geometry
        return (g.output[2] - 1) * g.stride[1] + (g.kernel[1] - 1) * g.dilation[1] + 1

    @property
    def nbytes(self) -> int:
        return 4 * self.words * self.count

    @property
    def inside(self) -> range:
        """The columns that lie in the image."""
        g = self.geometry
        return range(min(g.pad_left, self.count), max(min(self.count, g.pad_left + g.input[2]), min(g.pad_left, self.count)))

    @property
    def masks(self) -> tuple[tuple[bool, ...], ...]:
        """Which rows of a strip exist, for each kind of strip, in the order of their first appearance."""
        return tuple(dict.fromkeys(self._mask(y) for y in range(0, self.geometry.output[1], self.step)))

    def _mask(self, y: int) -> tuple[bool, ...]:
        """Which rows of the strip of output row y exist."""
        g = self.geometry
        top = y * g.stride[0] - g.pad_top
        return tuple(0 <= top + row * g.dilation[0] < g.input[1] for row in range(self.rows))

    def instructions(self, y: int) -> float:
        """What the strip of output row y is expected to take."""
        count = len(self.inside)
        turns = 0 if count <= self._block else -(-count // self._block)
        rows = sum(self._mask(y))
        if self.rows <= _STRAIGHT_ROWS:
            return count * (rows + rows // 2 + -(-self.words // 2)) + 4 * turns + 6
        if rows < self.rows:
            return self.rows * (6 * count + 10)
        return self.rows // 2 * (4 * count + 4 * turns + 4) + self.rows % 2 * (2 * count + 4 * turns)

    @property
    def code_instructions(self) -> float:
        """Those of the code for strips of all kinds."""
        each = self.rows + self.rows // 2 + -(-self.words // 2) if self.rows <= _STRAIGHT_ROWS else 6
        ways = len(self.masks) if self.rows <= _STRAIGHT_ROWS else 1
        return ways * (min(len(self.inside), self._block) * each + 4) + (
            0 if self.rows <= _STRAIGHT_ROWS or len(self.masks) == 1 else 26
        )

    @property
    def _block(self) -> int:
        """Columns a turn."""
        count = len(self.inside)
        return max(1, count) if count <= 6 else next((size for size in (6, 5, 4, 3) if count % size == 0), 4)

    def top(self, dsp: Dsp, y: Value) -> Value:
        """The first input row of the strip of output row y."""
        g = self.geometry
        scaled = y if g.stride[0] == 1 else dsp.builder.mul(y, I32(g.stride[0]))
        return dsp.builder.add(scaled, I32(-g.pad_top)) if g.pad_top else scaled

    def pad(self, dsp: Dsp, into: Value) -> None:
        """Fill the columns outside the image; they stay so."""
        outside = [range(self.inside.start), range(self.inside.stop, self.count)]
        for columns in outside:
            if columns:
                with dsp.repeat(len(columns) * self.words, [dsp.at(into, 4 * self.words * columns.start)]) as carried:
                    dsp.store_word(self._zero_pair(), carried.values[0])
                    carried.next = (dsp.at(carried.values[0], 4),)

    def gather(self, dsp: Dsp, image: Image, top: Value, into: Value) -> None:
        """Gather the strip that starts at input row `top`. `image`: of the channel, its first byte being that of the first pixel's input."""
        if not self.inside:
            return
        g, builder = self.geometry, dsp.builder
        image = image.at(dsp.at(image.base, (self.inside.start - g.pad_left) * self.pixel_nbytes))
        strip = _Strip(dsp, image, top, top if image.offsets is not None else image.row(dsp, top), g.dilation[0])
        place = dsp.at(into, 4 * self.words * self.inside.start)
        full, others = tuple([True] * self.rows), [mask for mask in self.masks if not all(mask)]
        ways: list[tuple[Value | None, Callable[[], None]]] = []
        if full in self.masks:
            last = g.input[1] - (self.rows - 1) * g.dilation[0]
            ways.append((builder.icmp_unsigned("<", top, I32(last)) if others else None, lambda: self._whole(dsp, strip, place)))
        if self._are_plain(others):
            for mask in others:
                above = builder.icmp_signed("<", top, I32(0)) if len(others) == 2 and mask is others[0] else None
                ways.append((above, lambda mask=mask: self._straight(dsp, strip, place, mask)))
        elif others:
            ways.append((None, lambda: self._careful(dsp, strip, place)))
        _choose(dsp, ways)

    def _are_plain(self, masks: Sequence[tuple[bool, ...]]) -> bool:
        """Whether strips at the border get code of their own: one or two kinds (the first is above the image), few rows."""
        if not masks or len(masks) > 2 or self.rows > _STRAIGHT_ROWS:
            return False
        return len(masks) == 1 or (not masks[0][0] and masks[1][0])

    def _input(self, dsp: Dsp, pointer: Value, offset: int = 0) -> Value:
        return dsp.element(pointer, offset, self.element)

    def _zero_pair(self) -> Value:
        half = self.zero_point & 0xFFFF
        word = half | half << 16
        return I32(word - (1 << 32) if word >> 31 else word)

    def _whole(self, dsp: Dsp, strip: _Strip, into: Value) -> None:
        """A strip whose rows all exist."""
        if self.rows <= _STRAIGHT_ROWS:
            self._straight(dsp, strip, into, tuple([True] * self.rows))
            return
        with dsp.repeat(self.rows // 2, [strip.start, into]) as carried:
            first, place = carried.values
            both = [strip.address(first), strip.address(strip.following(first))]
            self._loop(dsp, both, place, lambda here, at: self._pair(dsp, here[0], here[1], at))
            carried.next = (strip.following(first, 2), dsp.at(place, 4))
        if self.rows % 2:
            last, place = carried.results
            self._loop(dsp, [strip.address(last)], place, lambda here, at: dsp.store_word(self._input(dsp, here[0]), at))

    def _pair(self, dsp: Dsp, first: Value, second: Value, at: Value) -> None:
        dsp.store_word(dsp.pack(self._input(dsp, first), self._input(dsp, second)), at)

    def _straight(self, dsp: Dsp, strip: _Strip, into: Value, mask: tuple[bool, ...]) -> None:
        """Up to four rows in one pass over the columns; rows not in the mask are the zero point."""
        g = self.geometry
        row_nbytes = g.dilation[0] * g.input[2] * self.pixel_nbytes
        if strip.is_scattered or (self.rows - 1) * row_nbytes + 5 * self.pixel_nbytes > _REACH:
            present = [row for row in range(self.rows) if mask[row]]
            starts = [strip.address(strip.following(strip.start, row)) for row in present]
            rows = [(present.index(row) if mask[row] else 0, 0) for row in range(self.rows)]
        else:
            starts, rows = [strip.start], [(0, row * row_nbytes) for row in range(self.rows)]

        def column(here: Sequence[Value], at: Value) -> None:
            bytes_ = [self._input(dsp, here[pointer], offset) if mask[row] else None for row, (pointer, offset) in enumerate(rows)]
            self._store(dsp, bytes_, at)

        self._loop(dsp, starts, into, column)

    def _store(self, dsp: Dsp, rows: list[Value | None], at: Value) -> None:
        """Store a column of up to four rows."""
        words = [self._word(dsp, rows[first : first + 2]) for first in range(0, len(rows), 2)]
        if len(words) == 2:
            dsp.store_pair(words[0], words[1], at)
        else:
            dsp.store_word(words[0], at)

    def _word(self, dsp: Dsp, rows: list[Value | None]) -> Value:
        builder, zero = dsp.builder, self.zero_point & 0xFFFF
        if len(rows) == 1:
            return self._zero_pair() if rows[0] is None else rows[0]
        low, high = rows
        if low is None and high is None:
            return self._zero_pair()
        if low is None:
            return builder.or_(builder.shl(high, I32(16)), I32(zero))
        if high is None:
            return builder.or_(builder.and_(low, I32(0xFFFF)), I32((zero << 16) - (1 << 32) if zero >> 15 else zero << 16))
        return dsp.pack(low, high)

    def _loop(self, dsp: Dsp, starts: Sequence[Value], into: Value, column: Callable[[Sequence[Value], Value], None]) -> None:
        """`column(pointers, place)` for each column inside the image, several a turn."""
        count, depth, block = len(self.inside), self.pixel_nbytes, self._block
        with dsp.repeat(count // block, [*starts, into]) as carried:
            *here, place = carried.values
            for number in range(block):
                column([dsp.at(pointer, number * depth) for pointer in here], dsp.at(place, 4 * self.words * number))
            carried.next = (*(dsp.at(pointer, block * depth) for pointer in here), dsp.at(place, 4 * self.words * block))
        *here, place = carried.results
        for number in range(count % block):
            column([dsp.at(pointer, number * depth) for pointer in here], dsp.at(place, 4 * self.words * number))

    def _careful(self, dsp: Dsp, strip: _Strip, into: Value) -> None:
        """A strip at the border, row by row: copied, or the zero point where the row does not exist."""
        g, builder = self.geometry, dsp.builder
        with dsp.repeat(self.rows, [strip.start, strip.top, into]) as carried:
            here, row, place = carried.values
            with builder.if_else(builder.icmp_unsigned("<", row, I32(g.input[1]))) as (then, otherwise):
                with then:
                    self._halves(dsp, strip.address(here), place)
                with otherwise:
                    self._halves(dsp, None, place)
            carried.next = (strip.following(here), builder.add(row, I32(g.dilation[0])), dsp.at(place, 2))

    def _halves(self, dsp: Dsp, source: Value | None, into: Value) -> None:
        with dsp.repeat(len(self.inside), [into] if source is None else [into, source]) as carried:
            value = I32(self.zero_point) if source is None else self._input(dsp, carried.values[1])
            dsp.store_half(value, carried.values[0])
            forward = [4 * self.words, self.pixel_nbytes]
            carried.next = tuple(dsp.at(pointer, nbytes) for pointer, nbytes in zip(carried.values, forward))


@dataclass(frozen=True)
class _Strip:
    """The rows of a strip, from input row `top` on, each `apart` rows after the one before: known by their addresses or, where they are
    scattered, by their numbers. start: the first."""

    dsp: Dsp
    image: Image
    top: Value
    start: Value
    apart: int

    @property
    def is_scattered(self) -> bool:
        return self.image.offsets is not None

    def following(self, row: Value, count: int = 1) -> Value:
        """The row that comes `count` rows of the strip later."""
        if self.is_scattered:
            return self.dsp.builder.add(row, I32(count * self.apart)) if count else row
        return self.dsp.at(row, count * self.apart * self.image.row_nbytes)

    def address(self, row: Value) -> Value:
        """The address of a row that exists."""
        return self.image.row(self.dsp, row) if self.is_scattered else row


def _choose(dsp: Dsp, ways: list[tuple[Value | None, Callable[[], None]]]) -> None:
    """The first way whose condition holds; the last one needs none."""
    (condition, emit), *others = ways
    if condition is None or not others:
        emit()
        return
    with dsp.builder.if_else(condition) as (then, otherwise):
        with then:
            emit()
        with otherwise:
            _choose(dsp, others)
