"""Pools: reading one from a reduction, and the loops over its output pixels, which are the same on every core.

Enters: reductions of int8 over windows of rows and columns. Leaves: `Pool`, or the sentence why it is none; `PoolEmitter`.
Invariant: windows are cut at the image's borders, where the instruction says that what lies outside does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

from aot.backends.cmsis_nn.dsp.instructions import Dsp, Image
from aot.backends.generic import activations, generic_constants
from aot.errors import InternalError
from aot.graph.expr import Affine, Axis, Cast, Const, Expr, Load, walk
from aot.graph.ir import DType
from aot.graph.primitive import Reduce
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, Value
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.program import Program

MOST_TAPS = 256
"""Of windows whose sums fit 16 bits."""


@dataclass(frozen=True)
class Side:
    """One direction: `count` windows of `taps` elements, from number * stride - pad on, in an image of `size`. axis: of the space."""

    size: int
    count: int
    taps: int
    stride: int
    pad: int
    axis: int | None

    @property
    def leaves(self) -> bool:
        """Whether some window leaves the image."""
        return self.pad > 0 or (self.count - 1) * self.stride - self.pad + self.taps > self.size

    @property
    def is_covered(self) -> bool:
        """Whether every window has an element inside the image."""
        return all(-self.taps < number * self.stride - self.pad < self.size for number in range(self.count))


@dataclass(frozen=True)
class Pool:
    """initial: what sums or maxima start from."""

    instruction: Reduce
    load: Load
    images: int
    rows: Side
    columns: Side
    depth: int
    initial: int

    @property
    def leaves(self) -> bool:
        return self.rows.leaves or self.columns.leaves

    @property
    def runs_forward(self) -> bool:
        """Whether no window reads rows or columns before its own output's: those may have been overwritten."""
        return self.rows.pad < self.rows.stride and self.columns.pad < self.columns.stride


def pool_of(program: Program, instruction: Reduce) -> Pool | str:
    """The pool that a reduction is, or why it is none."""
    load = instruction.term.x if isinstance(instruction.term, Cast) else instruction.term
    wanted = {"add": DType.INT32, "max": DType.INT8}.get(instruction.combine)
    if not isinstance(load, Load) or load.dtype is not DType.INT8 or instruction.term.dtype is not wanted:
        return "not a sum or maximum of int8"
    if len(load.index) != 4 or not isinstance(instruction.initial, Const) or instruction.store:
        return "not a pool"
    if load.fill is not None and not instruction.skip_fill:
        return "elements outside the image count"
    if program[program.storage(load.buffer)].role == "constant" or activations(program, instruction) != (load.buffer,):
        return "it reads more than its image"
    images, height, width, depth = program[load.buffer].shape
    channel, sides = len(instruction.space) - 1, []
    for size, index in ((height, load.index[1]), (width, load.index[2])):
        side = _side(instruction, size, index)
        if side is None:
            return "its windows are not rows of neighbours"
        sides.append(side)
    rows, columns = sides
    taken = (load.index[0] == Affine(((0, 1),), 0), load.index[3] == Affine(((channel, 1),), 0))
    if not all(taken) or prod(instruction.space) != images * rows.count * columns.count * depth or depth < 4:
        return "its channels are not side by side, or fewer than four"
    if (rows.axis or 0) > (columns.axis or len(instruction.space)) or prod(instruction.window) != rows.taps * columns.taps:
        return "its axes are in another order"
    if not (rows.is_covered and columns.is_covered):
        return "windows outside the image"
    if _asks(instruction.result, channel):
        return "its result depends on the channel"
    return Pool(instruction, load, images, rows, columns, depth, int(instruction.initial.value))


def _side(instruction: Reduce, size: int, index: object) -> Side | None:
    """One direction of the windows."""
    if not isinstance(index, Affine):
        return None
    rank = len(instruction.space)
    outer = [(axis, step) for axis, step in index.terms if axis < rank]
    inner = [(axis, step) for axis, step in index.terms if axis >= rank]
    if len(outer) > 1 or len(inner) > 1 or any(step != 1 for _, step in inner) or any(step < 1 for _, step in outer):
        return None
    axis, stride = outer[0] if outer else (None, 1)
    taps = instruction.window[inner[0][0] - rank] if inner else 1
    count = 1 if axis is None else instruction.space[axis]
    return Side(size, count, taps, stride, -index.offset, axis) if index.offset <= 0 else None


def _asks(result: Expr, channel: int) -> bool:
    return any(isinstance(expr, Load) or (isinstance(expr, Axis) and expr.axis == channel) for expr in walk(result))


def implementation_of(
    program: Program, pool: Pool, emit: Callable[[KernelFunction], None], cost: Cost, note: str
) -> Implementation:
    """A kernel's answer to a pool."""
    instruction = pool.instruction
    return Implementation(
        kernel="average pool" if instruction.combine == "add" else "maximum pool",
        instruction=instruction,
        reads=activations(program, instruction),
        writes=(instruction.out,),
        constants=generic_constants(program, instruction),
        emit=emit,
        rows=Rows(pool.rows.count, 1, images=pool.images),
        style="ordered",
        cost=cost,
        notes=(note,),
    )


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
