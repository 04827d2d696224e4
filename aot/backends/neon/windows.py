# pyright: basic
"""Where a convolution's windows are read: in the image as it lies, or from a ring of padded copies of its rows.

Enters: a layer's geometry. Leaves: `Windows`: runs of bytes of one pixel's window, and the loop over output rows, which hands on a pointer
for each row of the windows.
Invariant: nothing outside the image, and nothing outside a padded row, is read by who reads whole runs from the pixels given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from llvmlite import ir

from aot.backends.layers.operands import Layer
from aot.backends.neon.simd import BYTES16, Simd, splat
from aot.graph.primitive import Geometry
from aot.llvm.types import I32, Value

QUAD = 4
_CHUNK, _UNROLLED = 16, 8
_ROW_INSTRUCTIONS = 30  # of the loops around a row's copy


@dataclass(frozen=True)
class Run:
    """Neighbouring bytes of a window: of its row `row`, from `offset` bytes behind the pixel's first."""

    row: int
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Line:
    """Pixels of an output row, or of several that follow each other: `count` from number `first` of `row`. rows: for each row of
    the windows, where that of the first pixel starts."""

    image: Value
    row: Value
    count: int | Value
    rows: Sequence[Value]


@dataclass(frozen=True)
class Windows:
    """geometry: as a convolution's; int8. flat: rows of pixels are one line (`is_flattable`). padded: rows are copied."""

    geometry: Geometry
    zero_point: int
    flat: bool
    padded: bool

    @staticmethod
    def of(layer: Layer, flat: bool) -> Windows:
        """flat: whether lines may run on over rows where the geometry allows it."""
        g = layer.geometry
        inside = all(
            pad == 0 and (size - 1) * stride + (kernel - 1) * dilation < extent
            for pad, size, stride, kernel, dilation, extent in zip(
                (g.pad_top, g.pad_left), g.output[1:3], g.stride, g.kernel, g.dilation, g.input[1:3], strict=True
            )
        )
        shortest = min(run.nbytes for run in _runs(g))
        padded = not inside or shortest < QUAD
        return Windows(g, layer.instruction.left_zero_point, flat and not padded and is_flattable(layer), padded)

    @property
    def runs(self) -> tuple[Run, ...]:
        return _runs(self.geometry)

    @property
    def step(self) -> int:
        """Bytes from a pixel to the next."""
        return self.geometry.stride[1] * self.geometry.input[3]

    @property
    def least(self) -> int:
        """Pixels that a line has at least."""
        return self.geometry.output[2]

    @property
    def slots(self) -> int:
        """Rows of the ring: those from the first to the last of a window."""
        return (self.geometry.kernel[0] - 1) * self.geometry.dilation[0] + 1

    @property
    def line_nbytes(self) -> int:
        g = self.geometry
        columns = (g.output[2] - 1) * g.stride[1] + (g.kernel[1] - 1) * g.dilation[1] + 1
        return -(-(columns * g.input[3] + QUAD - 1) // _CHUNK) * _CHUNK

    @property
    def scratch_nbytes(self) -> int:
        return self.slots * self.line_nbytes if self.padded else 0

    @property
    def _copied_nbytes(self) -> int:
        """Of an image's row, what windows reach."""
        g = self.geometry
        return max(0, min(g.input[2] * g.input[3], self.line_nbytes - g.pad_left * g.input[3]))

    @property
    def instructions(self) -> float:
        """For an inference, beside what becomes of the lines."""
        g = self.geometry
        if not self.padded:
            return 10.0 * g.input[0] * (1 if self.flat else g.output[1])
        rows = min(g.output[1] * g.stride[0] + self.slots, g.output[1] * self.slots)
        filled = self.scratch_nbytes / _CHUNK
        return g.input[0] * (rows * (_ROW_INSTRUCTIONS + self._copied_nbytes / _CHUNK * 1.5) + filled + 10 * g.output[1])

    def emit(
        self, simd: Simd, source: Value, scratch: Value | None, rows: tuple[Value, Value], line: Callable[[Line], None]
    ) -> None:
        """`line` for each line of output rows [rows[0], rows[1]) of each image."""
        g, function, builder = self.geometry, simd.function, simd.builder
        y0, y1 = rows
        with function.carried_loop(0, g.input[0], [source]) as images:
            image = images.values[0]
            if self.padded:
                assert scratch is not None
                _Ring(self, simd, image, scratch).emit(y0, y1, lambda y, found: line(Line(images.index, y, g.output[2], found)))
            elif self.flat:
                row = g.input[2] * g.input[3]
                count = g.output[2] if g.output[1] == 1 else builder.mul(builder.sub(y1, y0), I32(g.output[2]))
                line(Line(images.index, y0, count, [simd.at(image, builder.mul(y0, I32(row)))]))
            else:
                with function.loop(y0, y1) as y:
                    found = self._in_place(simd, image, y)
                    line(Line(images.index, y, g.output[2], found))
            images.next = (simd.at(image, prod(g.input[1:])),)

    def _in_place(self, simd: Simd, image: Value, y: Value) -> list[Value]:
        g = self.geometry
        row = g.input[2] * g.input[3]
        first = simd.at(image, simd.builder.mul(y, I32(g.stride[0] * row)))
        return [simd.at(first, number * g.dilation[0] * row) for number in range(g.kernel[0])]


def is_flattable(layer: Layer) -> bool:
    """Whether a layer's pixels follow each other in memory over all rows, in input and output, and nobody asks for a pixel's place."""
    g = layer.geometry
    whole = g.kernel == g.stride == (1, 1) and g.pad_top == g.pad_left == 0 and g.input[1:3] == g.output[1:3]
    return whole and not layer.rest_axes & layer.pixel_axes and layer.out.row in (0, g.output[2] * layer.out.pixel)


def _runs(g: Geometry) -> tuple[Run, ...]:
    depth = g.input[3]
    if g.dilation[1] == 1 or g.kernel[1] == 1:
        return tuple(Run(row, 0, g.kernel[1] * depth) for row in range(g.kernel[0]))
    taps = range(g.kernel[1])
    return tuple(Run(row, tap * g.dilation[1] * depth, depth) for row in range(g.kernel[0]) for tap in taps)


class _Ring:
    """Rows of the padded image, the newest `slots` of them. Row number v of it lies in slot (v - first) mod slots."""

    def __init__(self, windows: Windows, simd: Simd, image: Value, scratch: Value) -> None:
        self.windows, self.simd, self.image, self.scratch = windows, simd, image, scratch

    def emit(self, y0: Value, y1: Value, line: Callable[[Value, list[Value]], None]) -> None:
        w, simd, builder, function = self.windows, self.simd, self.simd.builder, self.simd.function
        stride, slots = w.geometry.stride[0], w.slots
        fill(simd, self.scratch, w.scratch_nbytes, w.zero_point)
        first = builder.mul(y0, I32(stride))
        with function.carried_loop(y0, y1, [first, I32(0), first, I32(0)]) as carried:
            start, slot, fresh, into = carried.values
            if stride >= slots:
                fresh, into = start, I32(0)
            with function.carried_loop(fresh, builder.add(start, I32(slots)), [into]) as copies:
                self._copy(copies.index, copies.values[0])
                copies.next = (self._after(copies.values[0], 1),)
            line(
                carried.index, [self._slot(self._after(slot, row * w.geometry.dilation[0])) for row in range(w.geometry.kernel[0])]
            )
            following = builder.add(start, I32(stride))
            moved = self._after(slot, stride) if stride < slots else slot
            carried.next = (following, moved, builder.add(start, I32(slots)), copies.results[0])

    def _after(self, slot: Value, count: int) -> Value:
        """The slot so many after this one."""
        if count == 0:
            return slot
        builder, slots = self.simd.builder, I32(self.windows.slots)
        further = builder.add(slot, I32(count))
        return builder.select(builder.icmp_signed(">=", further, slots), builder.sub(further, slots), further)

    def _slot(self, number: Value) -> Value:
        return self.simd.at(self.scratch, self.simd.builder.mul(number, I32(self.windows.line_nbytes)))

    def _copy(self, number: Value, slot: Value) -> None:
        """Row `number` of the padded image into its slot."""
        w, simd, builder = self.windows, self.simd, self.simd.builder
        g, nbytes = w.geometry, w._copied_nbytes
        depth = g.input[3]
        to = simd.at(self._slot(slot), g.pad_left * depth)
        y = builder.sub(number, I32(g.pad_top))
        inside = builder.icmp_unsigned("<", y, I32(g.input[1]))
        with builder.if_else(inside) as (there, beyond):
            with there:
                copy(simd, to, simd.at(self.image, builder.mul(y, I32(g.input[2] * depth))), nbytes)
            with beyond:
                fill(simd, to, nbytes, w.zero_point)


def copy(simd: Simd, to: Value, source: Value, nbytes: int) -> None:
    """`nbytes` bytes to a place that does not overlap."""
    _by_chunks(simd, nbytes, (to, source), lambda there, here, type, at: simd.store(simd.load(here, type, at), there, at))


def fill(simd: Simd, to: Value, nbytes: int, value: int) -> None:
    """The same int8 in `nbytes` bytes."""

    def store(there: Value, type: Any, at: int) -> None:
        found = splat(value, type) if type == BYTES16 else type(int.from_bytes(bytes([value & 255]) * (type.width // 8), "little"))
        simd.store(found, there, at)

    _by_chunks(simd, nbytes, (to,), store)


def _by_chunks(simd: Simd, nbytes: int, pointers: tuple[Value, ...], move: Callable[..., None]) -> None:
    """`move(*pointers, type, distance)` for chunks of 16 bytes, the last one moved back so that it ends with the bytes; shorter chunks for
    what is less than one."""
    block = _CHUNK * _UNROLLED
    turns = nbytes // block
    if turns > 1:
        with simd.function.carried_loop(0, turns, list(pointers)) as carried:
            for at in range(0, block, _CHUNK):
                move(*carried.values, BYTES16, at)
            carried.next = tuple(simd.at(one, block) for one in carried.values)
        pointers, left = carried.results, nbytes % block
    else:
        left = nbytes
    at = 0
    while left - at >= _CHUNK:
        move(*pointers, BYTES16, at)
        at += _CHUNK
    if at < left and nbytes >= _CHUNK:
        move(*pointers, BYTES16, left - _CHUNK)
        return
    while at < left:
        some = 1 << ((left - at).bit_length() - 1)
        move(*pointers, ir.IntType(8 * some), at)
        at += some
