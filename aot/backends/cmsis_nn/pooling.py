"""Pools: the loops over their output pixels, which are the same on every core.

Enters: a `Pool`. Leaves: `PoolEmitter`.
Invariant: windows are cut at the image's borders, where the instruction says that what lies outside does not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from aot.backends.cmsis_nn.dsp.instructions import Dsp, Image
from aot.backends.layers.pools import Pool, Side
from aot.errors import InternalError
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, Value


@dataclass
class PoolEmitter:
    """Emits one pool, pixel by pixel; what becomes of a pixel is a core's own affair."""

    function: KernelFunction
    pool: Pool
    image: Image = field(init=False)

    def __post_init__(self) -> None:
        self.dsp = Dsp(self.function)
        self.is_sum = self.pool.instruction.combine == "add"
        self.nbytes = self.function.buffer(self.pool.instruction.out).dtype.nbytes

    def emit(self) -> None:
        pool, dsp, builder, function = self.pool, self.dsp, self.dsp.builder, self.function
        row_nbytes = pool.columns.count * pool.depth * self.nbytes
        self.image = Image.of(function, pool.load.buffer, pool.columns.size * pool.depth)
        target = dsp.at(function.pointer(pool.instruction.out), builder.mul(function.y0, I32(row_nbytes)))
        with dsp.repeat(pool.images, [self.image.base, target]) as images:
            image, out = images.values
            number = I32(0) if pool.images == 1 else builder.sub(I32(pool.images), images.index)
            with dsp.repeat(builder.sub(function.y1, function.y0), [out, function.y0]) as lines:
                here, y = lines.values
                lines.next = (self._line(image, here, {0: number}, y), builder.add(y, I32(1)))
            image_nbytes = (pool.rows.size * pool.columns.size * pool.depth, pool.rows.count * row_nbytes)
            images.next = tuple(dsp.at(pointer, nbytes) for pointer, nbytes in zip(images.values, image_nbytes))

    def _line(self, image: Value, out: Value, axes: dict[int, Value], y: Value) -> Value:
        """One row of outputs; returns where the next begins."""
        pool, dsp, builder = self.pool, self.dsp, self.dsp.builder
        first, rows = self._cut(pool.rows, y)
        start = image if self.is_scattered else dsp.at(image, builder.mul(first, I32(pool.columns.size * pool.depth)))
        with dsp.repeat(pool.columns.count, [out, I32(0)]) as pixels:
            here, x = pixels.values
            left, columns = self._cut(pool.columns, x)
            source = dsp.at(start, builder.mul(left, I32(pool.depth)))
            sides = ((pool.rows.axis, y), (pool.columns.axis, x))
            known = {**axes, **{axis: value for axis, value in sides if axis is not None}}
            pixels.next = (self.pixel(source, here, (first, rows), columns, known), builder.add(x, I32(1)))
        return pixels.results[0]

    def _cut(self, side: Side, number: Value) -> tuple[Value, Value]:
        """First element and extent of a window, inside the image."""
        builder = self.dsp.builder
        start = number if side.stride == 1 else builder.mul(number, I32(side.stride))
        if not side.leaves:
            return start, I32(side.taps)
        start = builder.sub(start, I32(side.pad))
        end = builder.add(start, I32(side.taps))
        first = builder.select(builder.icmp_signed("<", start, I32(0)), I32(0), start)
        last = builder.select(builder.icmp_signed(">", end, I32(side.size)), I32(side.size), end)
        return first, builder.sub(last, first)

    @property
    def is_scattered(self) -> bool:
        return self.image.offsets is not None

    def pixel(self, source: Value, out: Value, rows: tuple[Value, Value], columns: Value, axes: dict[int, Value]) -> Value:
        """All channels of an output pixel; returns where the next one begins. rows: the first and their number; source: in the first row,
        or from where rows count."""
        raise InternalError("a core's own")
