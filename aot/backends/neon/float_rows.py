"""Where the rows of a float layer lie: the input's, in place or copied with their padding, and the output's.

Enters: a layer and its function. Leaves: addresses; loops over images and rows.
Invariant: nothing outside the image is read; a scattered buffer is addressed row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from aot.backends.neon.float_layer import FloatLayer
from aot.backends.neon.float_streams import Streams
from aot.backends.neon.simd_float import LANES, NBYTES, Floats, constant_floats
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, Value

_BURST = 4  # vectors that a turn of a copying loop moves


class Frame:
    """A layer's function under construction."""

    def __init__(self, function: KernelFunction, layer: FloatLayer) -> None:
        self.function, self.layer, self.floats = function, layer, Floats(function)

    def each_row(self, row: Callable[[Value, Value, Streams], None], among: range | None = None) -> None:
        """`row(image number, y, output)` for each output row that is asked for (of `among`, a part of all)."""
        function, (images, height) = self.function, self.layer.geometry.output[:2]
        rows = range(height) if among is None else among
        with function.loop(0, images) if images > 1 else _single() as image:
            if height == 1:
                row(image, I32(0), self._output(image, I32(0)))
                return
            with function.loop(*(self._within(rows) if images == 1 else (rows.start, rows.stop))) as y:
                row(image, y, self._output(image, y))

    def _within(self, rows: range) -> tuple[Value, Value]:
        """Where the rows asked for begin and end among `rows`."""
        function, builder = self.function, self.function.builder
        first, behind = function.y0, function.y1
        if rows.start:
            first = builder.select(builder.icmp_signed(">", first, I32(rows.start)), first, I32(rows.start))
        if rows.stop < self.layer.geometry.output[1]:
            behind = builder.select(builder.icmp_signed("<", behind, I32(rows.stop)), behind, I32(rows.stop))
        return first, behind

    def _output(self, image: Value, y: Value) -> Streams:
        """The streams at the first pixel of a row."""
        layer, function, builder = self.layer, self.function, self.function.builder
        out, names = layer.out, [load.buffer for load in layer.ending.streams]
        if layer.instruction.out in function.scattered:
            first = function.row(layer.instruction.out, y)
            return Streams(self.floats, layer.ending, (first, *map(function.pointer, names)), 4 * out.pixel)
        place = builder.add(builder.mul(y, I32(4 * out.row)), builder.mul(image, I32(4 * out.image)))
        place = builder.add(place, I32(4 * out.offset))
        beside = [layer.instruction.out, *(load.buffer for load in layer.ending.beside)]
        pointers = [self.floats.at(function.pointer(name), place) for name in beside]
        channels = [function.pointer(load.buffer) for load in layer.ending.channels]
        return Streams(self.floats, layer.ending, (*pointers, *channels), 4 * out.pixel)

    def input_row(self, image: Value, y: Value) -> Value:
        """The first byte of a row that the input has."""
        function, builder = self.function, self.function.builder
        name, (_, height, width, depth) = self.layer.source, self.layer.geometry.input
        if name in function.scattered:
            return function.row(name, y)
        row_nbytes = 4 * width * depth
        place = builder.add(builder.mul(y, I32(row_nbytes)), builder.mul(image, I32(height * row_nbytes)))
        return self.floats.at(function.pointer(name), place)

    def tap_row(self, y: Value, number: int) -> Value:
        """The input row, maybe outside, that row `number` of the kernel meets for output row `y`."""
        g, builder = self.layer.geometry, self.function.builder
        return builder.add(builder.mul(y, I32(g.stride[0])), I32(number * g.dilation[0] - g.pad_top))

    def is_inside(self, row: Value) -> Value:
        return self.function.builder.icmp_unsigned("<", row, I32(self.layer.geometry.input[1]))

    def copy(self, source: Value, target: Value, count: int) -> None:
        """`count` floats."""
        self._burst(count, [source, target], lambda at, n, pointers: self._move(pointers[0], pointers[1], at, n))

    def clear(self, target: Value, count: int) -> None:
        """`count` zeros."""
        zero = constant_floats(0.0)
        self._burst(count, [target], lambda at, n, pointers: self.floats.store(zero, pointers[0], at, n))

    def _move(self, source: Value, target: Value, nbytes: int, count: int) -> None:
        self.floats.store(self.floats.load(source, nbytes, count), target, nbytes, count)

    def _burst(self, count: int, pointers: list[Value], one: Callable[[int, int, list[Value]], None]) -> None:
        """`one(bytes behind the pointers, floats, pointers)` for all vectors."""
        turns, rest = divmod(count, LANES * _BURST)
        if turns:
            with self.function.carried_loop(0, turns, pointers) as carried:
                for at in range(_BURST):
                    one(NBYTES * at, LANES, list(carried.values))
                carried.next = tuple(self.floats.at(pointer, NBYTES * _BURST) for pointer in carried.values)
            pointers = list(carried.results)
        for first in range(0, rest, LANES):
            one(4 * first, min(LANES, rest - first), pointers)


class _single:
    """One turn without a loop."""

    def __enter__(self) -> Value:
        return I32(0)

    def __exit__(self, *_: object) -> None:
        return None


def row_floats(layer: FloatLayer) -> int:
    """Floats of an input row."""
    return prod(layer.geometry.input[2:])
