"""Average and maximum pools, and means over rows and columns: four or eight channels at a time.

Enters: reductions of int8 over windows of rows and columns. Leaves: `Implementation`s, or the sentence why not.
Invariant: sums stay inside 16 bits, as a window has at most 256 elements; windows are cut at the image's borders, where the
instruction says that what lies outside does not count.

A word holds four channels. Sums: SXTAB16 adds two of them at once; maxima: SSUB8 compares four, SEL takes the larger ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

from aot.backends.cmsis_nn.dsp.instructions import Dsp, Image
from aot.backends.generic import activations, generic_constants
from aot.graph.expr import Acc, Affine, Axis, Cast, Const, Expr, Load, walk
from aot.graph.ir import DType
from aot.graph.primitive import Primitive, Reduce
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I8, I32, Value
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.program import Program
from aot.target import Target

_MOST_TAPS = 256
_STRAIGHT_TAPS = 9  # of windows that never leave the image: without loops


def claim_pool(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Pools whose channels lie side by side."""
    pool = read_pool(program, instruction, target)
    if isinstance(pool, str):
        return pool
    if pool.rows.taps * pool.columns.taps > _MOST_TAPS:
        return f"windows of {pool.rows.taps * pool.columns.taps} elements (at most {_MOST_TAPS})"
    reduce, taps = pool.instruction, pool.rows.taps * pool.columns.taps
    return Implementation(
        kernel="average pool" if reduce.combine == "add" else "maximum pool",
        instruction=instruction,
        reads=activations(program, instruction),
        writes=(reduce.out,),
        constants=generic_constants(program, instruction),
        emit=lambda function: _Emitter(function, pool).emit(),
        rows=Rows(pool.rows.count, 1, pool.rows.needs),
        scatters=(pool.load.buffer,) if pool.images == 1 and pool.rows.size > 1 and pool.rows.count > 1 else (),
        overlap=((pool.load.buffer, "forward"),) if pool.runs_forward and program[reduce.out].dtype.nbytes == 1 else (),
        style="ordered",
        cost=Cost(
            int(prod(reduce.space) * (1.4 * taps + 12)), 500, step_instructions=20 + 6 * pool.columns.count * -(-pool.depth // 8)
        ),
        notes=("eight channels at a time",),
    )


@dataclass(frozen=True)
class _Side:
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

    def needs(self, first: int, last: int) -> tuple[int, int]:
        """The part of the image that windows [first, last) read."""
        start = first * self.stride - self.pad
        end = (last - 1) * self.stride - self.pad + self.taps
        return max(0, min(start, self.size)), max(0, min(end, self.size))


@dataclass(frozen=True)
class Pool:
    """initial: what sums or maxima start from."""

    instruction: Reduce
    load: Load
    images: int
    rows: _Side
    columns: _Side
    depth: int
    initial: int

    @property
    def leaves(self) -> bool:
        return self.rows.leaves or self.columns.leaves

    @property
    def runs_forward(self) -> bool:
        """Whether no window reads rows or columns before its own output's: those may have been overwritten."""
        return self.rows.pad < self.rows.stride and self.columns.pad < self.columns.stride


def sums_up(program: Program, instruction: Reduce) -> bool:
    """Whether it stores its sums as they are."""
    return instruction.combine == "add" and instruction.result == Acc(program[instruction.out].dtype)


def read_pool(program: Program, instruction: Primitive, target: Target) -> Pool | str:
    """The pool that an instruction is, or why it is none."""
    if "dsp" not in target.has:
        return f"{target.name} has no DSP extension (SXTAB16, SEL)"
    if "mve" in target.has:
        return "Helium has vectors for it"
    return _read(program, instruction) if isinstance(instruction, Reduce) else "not a reduction"


def _read(program: Program, instruction: Reduce) -> Pool | str:
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


def _side(instruction: Reduce, size: int, index: object) -> _Side | None:
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
    return _Side(size, count, taps, stride, -index.offset, axis) if index.offset <= 0 else None


def _asks(result: Expr, channel: int) -> bool:
    return any(isinstance(expr, Load) or (isinstance(expr, Axis) and expr.axis == channel) for expr in walk(result))


@dataclass
class _Emitter:
    """Emits one pool."""

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
            pixels.next = (self._pixel(source, here, (first, rows), columns, known), builder.add(x, I32(1)))
        return pixels.results[0]

    def _cut(self, side: _Side, number: Value) -> tuple[Value, Value]:
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

    def _pixel(self, source: Value, out: Value, rows: tuple[Value, Value], columns: Value, axes: dict[int, Value]) -> Value:
        """All channels of an output pixel. rows: the first and their number; source: in the first row, or from where rows count."""
        dsp, depth = self.dsp, self.pool.depth
        for width, turns in ((8, depth // 8), (4, depth % 8 // 4), (1, depth % 4)):
            if not turns:
                continue
            with dsp.repeat(turns, [source, out]) as carried:
                here, there = carried.values
                self._finish(self._window(here, rows, columns, width), width, there, axes)
                carried.next = (dsp.at(here, width), dsp.at(there, width * self.nbytes))
            source, out = carried.results
        return out

    def _window(self, source: Value, rows: tuple[Value, Value], columns: Value, width: int) -> list[Value]:
        """Sums or maxima of `width` channels over a window: of four channels two words of halves, or a word; of one itself."""
        pool, dsp = self.pool, self.dsp
        image, row_nbytes = replace(self.image, base=source), pool.columns.size * pool.depth
        splat = int.from_bytes(bytes([pool.initial & 0xFF]) * 4, "little", signed=True)
        start = 0 if self.is_sum else (splat if width > 1 else pool.initial)
        accs: list[Value] = [I32(start)] * (1 if width == 1 else width // (2 if self.is_sum else 4))
        if not pool.leaves and pool.rows.taps * pool.columns.taps <= _STRAIGHT_TAPS:
            for row in range(pool.rows.taps):
                line, skipped = source, row * row_nbytes
                if self.is_scattered:
                    line, skipped = image.row(dsp, dsp.builder.add(rows[0], I32(row))), 0
                for column in range(pool.columns.taps):
                    accs = self._tap(line, skipped + column * pool.depth, width, accs)
            return accs
        with dsp.repeat(rows[1], [rows[0] if self.is_scattered else source, *accs]) as lines:
            at, *accs = lines.values
            line = image.row(dsp, at) if self.is_scattered else at
            with dsp.repeat(columns, [line, *accs]) as taps:
                here, *accs = taps.values
                taps.next = (dsp.at(here, pool.depth), *self._tap(here, 0, width, accs))
            following = dsp.builder.add(at, I32(1)) if self.is_scattered else dsp.at(at, row_nbytes)
            lines.next = (following, *taps.results[1:])
        return list(lines.results[1:])

    def _tap(self, source: Value, offset: int, width: int, accs: Sequence[Value]) -> list[Value]:
        dsp, builder = self.dsp, self.dsp.builder
        if width == 1:
            x = dsp.byte(source, offset)
            if self.is_sum:
                return [builder.add(accs[0], x)]
            return [builder.select(builder.icmp_signed(">", x, accs[0]), x, accs[0])]
        found: list[Value] = []
        for number in range(width // 4):
            word = dsp.any_word(source, offset + 4 * number)
            if self.is_sum:
                found += [dsp.sxtab16(accs[2 * number], word), dsp.sxtab16_odd(accs[2 * number + 1], word)]
            else:
                found.append(dsp.larger_bytes(accs[number], word))
        return found

    def _finish(self, accs: Sequence[Value], width: int, out: Value, axes: dict[int, Value]) -> None:
        """Store the channels' results."""
        dsp, instruction = self.dsp, self.pool.instruction
        if instruction.result == Acc(DType.INT8) and width > 1:
            for number, acc in enumerate(accs):
                dsp.builder.store(acc, dsp.at(out, 4 * number), align=1)
            return
        for number, acc in enumerate(self._channels(accs, width)):
            value = self.function.value(instruction.result, axes, acc=acc)
            self.function.store_at(instruction.out, dsp.at(out, number * self.nbytes), value)

    def _channels(self, accs: Sequence[Value], width: int) -> list[Value]:
        """Each channel's accumulator, in its own type."""
        builder = self.dsp.builder
        if not self.is_sum:
            return [builder.trunc(builder.lshr(acc, I32(8 * byte)), I8) for acc in accs for byte in range(min(4, width))]
        sums = channel_sums(self.dsp, accs, width)
        return [each if not self.pool.initial else builder.add(each, I32(self.pool.initial)) for each in sums]


def channel_sums(dsp: Dsp, words: Sequence[Value], width: int) -> list[Value]:
    """The sums of `width` channels in their order, from words of halves; or that of a single one."""
    if width == 1:
        return list(words)
    builder = dsp.builder
    low = [builder.ashr(builder.shl(word, I32(16)), I32(16)) for word in words]
    high = [builder.ashr(word, I32(16)) for word in words]
    return [half for two in range(0, len(words), 2) for half in (*low[two : two + 2], *high[two : two + 2])]
