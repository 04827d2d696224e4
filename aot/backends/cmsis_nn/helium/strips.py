"""Strips: runs of pixels of an output row whose windows lie in rows of one distance, in the image or in a padded copy of it.

Enters: a geometry. Leaves: for a run of pixels the first byte of the first window, and the distance of its rows.
Invariant: what is read of the image, chunks included, lies inside its rows; a padded copy has 16 bytes behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.cmsis_nn.helium.memory import VECTOR, pad_row
from aot.graph.primitive import Geometry
from aot.llvm.types import I32, Value

_NBYTES = 4096  # of scratch for padded rows, if those of one pixel are less


@dataclass(frozen=True)
class Strips:
    """span: bytes that the product reads from a window's first byte in a row on; 0: windows are always copied. limit: pixels at a time
    at most, of copied ones, or of all (`limits`)."""

    geometry: Geometry
    zero_point: int
    span: int
    limit: int
    limits: bool

    @cached_property
    def inside(self) -> range:
        """Columns whose windows can be read in the image."""
        g = self.geometry
        depth, step = g.input[3], g.stride[1] * g.input[3]
        nbytes = g.input[2] * depth
        last = (nbytes - self.span + g.pad_left * depth) // step
        width = (g.kernel[1] - 1) * g.dilation[1] + 1
        fitting = (g.input[2] - width + g.pad_left) // g.stride[1]
        first, behind = -(-g.pad_left // g.stride[1]), min(last, fitting, g.output[2] - 1) + 1
        if not self.span or behind <= first or not self._whole_rows:
            return range(0)
        return range(first, behind)

    @cached_property
    def _whole_rows(self) -> list[int]:
        """Rows whose windows have all their rows in the image."""
        return [y for y in range(self.geometry.output[1]) if self._is_whole(y)]

    def _is_whole(self, y: int) -> bool:
        g = self.geometry
        top = y * g.stride[0] - g.pad_top
        return top >= 0 and top + (g.kernel[0] - 1) * g.dilation[0] < g.input[1]

    @cached_property
    def always_inside(self) -> bool:
        """Whether nothing is copied ever."""
        g = self.geometry
        return len(self.inside) == g.output[2] and len(self._whole_rows) == g.output[1]

    @cached_property
    def most(self) -> int:
        """Pixels of the longest copied strip, or of the longest of all where they are limited."""
        if self.always_inside:
            return min(self.limit, self.geometry.output[2])
        g = self.geometry
        longest = g.output[2]
        if len(self._whole_rows) == g.output[1] and self.inside and not self.limits:
            longest = max(self.inside.start, g.output[2] - self.inside.stop)
        fitting = (_NBYTES // g.kernel[0] - (g.kernel[1] - 1) * g.dilation[1] * g.input[3]) // (g.stride[1] * g.input[3])
        return max(1, min(longest, self.limit, fitting))

    @cached_property
    def row_nbytes(self) -> int:
        """Of a padded row."""
        g = self.geometry
        return ((self.most - 1) * g.stride[1] + (g.kernel[1] - 1) * g.dilation[1] + 1) * g.input[3]

    @property
    def nbytes(self) -> int:
        """Scratch for padded rows."""
        return 0 if self.always_inside else -(-(self.row_nbytes * self.geometry.kernel[0] + VECTOR) // VECTOR) * VECTOR

    @cached_property
    def pieces(self) -> list[tuple[int, bool]]:
        """(pixels, whether copied) of all pieces of an image, computed at once."""
        found: list[tuple[int, bool]] = []
        for y in range(self.geometry.output[1]):
            x, width = 0, self.geometry.output[2]
            while x < width:
                count, copied = self._piece(x, width, bool(self.inside) and self._is_whole(y))
                found.append((count, copied))
                x += count
        return found

    def _piece(self, x: int, stop: int, whole: bool) -> tuple[int, bool]:
        if whole and x in self.inside:
            return min(self.inside.stop - x, stop - x, self.most if self.limits else stop), False
        end = self.inside.start if whole and x < self.inside.start else stop
        return min(end - x, self.most), True

    def parity(self, unit: int) -> tuple[bool, bool]:
        """Whether a piece can have an odd number of pixels, and two or more. unit: a flat row is computed in multiples of it."""
        counts = {count for count, _ in self.pieces}
        if unit and self.geometry.output[2] != unit:
            bounds = {unit, self.geometry.output[2], self.inside.stop, self.most if self.limits or not self.always_inside else 0}
            counts |= {1} if any(bound % 2 for bound in bounds) else set()
        return any(count % 2 for count in counts), any(count > 1 for count in counts)

    def instructions(self, pixels: int) -> int:
        """What copying the rows of `pixels` windows takes."""
        g = self.geometry
        nbytes = ((pixels - 1) * g.stride[1] + (g.kernel[1] - 1) * g.dilation[1] + 1) * g.input[3]
        return 20 + g.kernel[0] * (40 + 3 * nbytes // VECTOR)

    def begin(self, dsp: Dsp, image: Value, y: Value, scratch: Value | None) -> _Row:
        """An output row."""
        g, builder = self.geometry, dsp.builder
        top = builder.sub(builder.mul(y, I32(g.stride[0])), I32(g.pad_top)) if g.output[1] > 1 or g.pad_top else I32(0)
        whole = None
        if self.inside and len(self._whole_rows) < g.output[1]:
            last = g.input[1] - (g.kernel[0] - 1) * g.dilation[0]
            whole = builder.and_(builder.icmp_signed(">=", top, I32(0)), builder.icmp_signed("<", top, I32(last)))
        return _Row(self, dsp, image, top, whole, scratch)


@dataclass(frozen=True)
class _Row:
    """top: the input row of its windows' first row. whole: whether all of their rows are in the image; None: yes, where it matters."""

    strips: Strips
    dsp: Dsp
    image: Value
    top: Value
    whole: Value | None
    scratch: Value | None

    def piece(self, x: Value, stop: Value) -> tuple[Value, Value, Value]:
        """The run of pixels from x on: its first window, how many they are, and the bytes from a row's span to the next row."""
        strips, builder = self.strips, self.dsp.builder
        if strips.always_inside:
            return self._inside(x, stop)
        if not strips.inside:
            return self._copied(x, stop)
        within = builder.icmp_signed("<", x, I32(strips.inside.stop))
        if strips.inside.start:
            within = builder.and_(within, builder.icmp_signed(">=", x, I32(strips.inside.start)))
        if self.whole is not None:
            within = builder.and_(within, self.whole)
        with builder.if_else(within) as (then, otherwise):
            with then:
                inside = self._inside(x, stop)
                inside_block = builder.block
            with otherwise:
                copied = self._copied(x, stop)
                copied_block = builder.block
        merged: list[Value] = []
        for one, other in zip(inside, copied, strict=True):
            phi = builder.phi(one.type)
            phi.add_incoming(one, inside_block)
            phi.add_incoming(other, copied_block)
            merged.append(phi)
        return merged[0], merged[1], merged[2]

    def _minimum(self, a: Value, b: Value) -> Value:
        builder = self.dsp.builder
        return builder.select(builder.icmp_signed("<", a, b), a, b)

    def _inside(self, x: Value, stop: Value) -> tuple[Value, Value, Value]:
        strips, dsp, builder = self.strips, self.dsp, self.dsp.builder
        g = strips.geometry
        width, depth = g.input[2:]
        end = stop if strips.inside.stop == g.output[2] else self._minimum(stop, I32(strips.inside.stop))
        count = builder.sub(end, x)
        if strips.limits:
            count = self._minimum(count, I32(strips.most))
        offset = builder.mul(x, I32(g.stride[1] * depth))
        if g.output[1] > 1 or g.input[1] > 1:
            offset = builder.add(offset, builder.mul(self.top, I32(width * depth)))
        first = dsp.at(dsp.at(self.image, offset), -g.pad_left * depth)
        return first, count, I32(g.dilation[0] * width * depth - strips.span)

    def _copied(self, x: Value, stop: Value) -> tuple[Value, Value, Value]:
        """Rows copied to scratch, with the zero point where there is no pixel."""
        strips, dsp, builder = self.strips, self.dsp, self.dsp.builder
        g = strips.geometry
        count = self._minimum(builder.sub(self._end(x, stop), x), I32(strips.most))
        depth, width, height = g.input[3], g.input[2], g.input[1]
        left = builder.sub(builder.mul(x, I32(g.stride[1])), I32(g.pad_left))
        span = (g.kernel[1] - 1) * g.dilation[1] + 1
        right = builder.add(builder.add(left, builder.mul(count, I32(g.stride[1]))), I32(span - g.stride[1]))
        first, last = (self._within(bound, I32(width)) for bound in (left, right))
        outside = self._within(builder.sub(I32(0), left), builder.sub(right, left))
        before = builder.mul(outside, I32(depth))
        middle = builder.mul(builder.sub(last, first), I32(depth))
        whole = builder.mul(builder.sub(right, left), I32(depth))
        after = builder.sub(whole, builder.add(before, middle))
        column = dsp.at(self.image, builder.mul(first, I32(depth)))
        with dsp.repeat(g.kernel[0], [self.scratch, self.top]) as carried:
            to, row = carried.values
            exists = builder.icmp_unsigned("<", row, I32(height))
            source = dsp.at(column, builder.mul(builder.select(exists, row, I32(0)), I32(width * depth)))
            parts = [builder.select(exists, a, b) for a, b in ((before, whole), (middle, I32(0)), (after, I32(0)))]
            pad_row(dsp, to, source, parts, I32(strips.zero_point))
            carried.next = (dsp.at(to, strips.row_nbytes), builder.add(row, I32(g.dilation[0])))
        return self.scratch, count, I32(strips.row_nbytes - strips.span)

    def _end(self, x: Value, stop: Value) -> Value:
        """Where pixels that can be read in the image begin, or the end."""
        strips, builder = self.strips, self.dsp.builder
        if not strips.inside.start:
            return stop
        before = builder.icmp_signed("<", x, I32(strips.inside.start))
        if self.whole is not None:
            before = builder.and_(before, self.whole)
        return builder.select(before, I32(strips.inside.start), stop)

    def _within(self, x: Value, most: Value) -> Value:
        """Between 0 and `most`."""
        builder = self.dsp.builder
        low = builder.select(builder.icmp_signed("<", x, I32(0)), I32(0), x)
        return self._minimum(low, most)
