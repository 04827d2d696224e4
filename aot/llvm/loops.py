"""Generic loop nests for `Map`, `Reduce` and `Contract`: correct for every index map, with constant bounds.

Enters: a KernelFunction of one of these primitives. Leaves: its body.
Invariant: windows are cut at the borders before their loops begin (`Contract`, `Reduce` with `skip_fill`): no tests inside.
The row axis is the first axis of the space with more than one position, but for the last; it runs from y0 to y1. That of a reduction
which accumulates is the first such axis of its window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

from aot.errors import InternalError
from aot.graph.expr import Acc, Affine, Axis, IndexMap, Load, Table, walk
from aot.graph.ir import DType
from aot.graph.primitive import Call, Contract, Control, Map, Primitive, Reduce, describe, expressions, loads_of, store_of
from aot.llvm import arithmetic
from aot.llvm.emission import Index, KernelFunction
from aot.llvm.expressions import Scalars, index_range, straighten, uniform
from aot.llvm.types import I32, Value, constant
from aot.lower.indexing import strides
from aot.lower.rows import instruction_axis, row_axis


def emit_generic(function: KernelFunction) -> None:
    """Fill the body for the function's own instruction (not a Call)."""
    instruction = function.implementation.instruction
    if isinstance(instruction, Call | Control):
        raise InternalError(f"{describe(instruction)} has no generic code")
    if 0 not in instruction.space:
        Nest(function, instruction).emit()


@dataclass
class Span:
    """One loop over consecutive axes that every access walks as one: the last axis gets the index, the others are 0."""

    axes: list[int]
    start: Index
    stop: Index
    full: bool = field(default=True)


@dataclass(frozen=True)
class Cut:
    """A window axis and the indices that must stay inside [0, size): coefficient * axis + rest."""

    axis: int
    coefficient: int
    rest: Affine
    size: int


class Nest:
    """The loop nest of one primitive."""

    def __init__(self, function: KernelFunction, primitive: Map | Reduce | Contract) -> None:
        self.function, self.primitive = function, primitive
        self.builder = function.builder
        self.space = primitive.space
        self.window = () if isinstance(primitive, Map) else primitive.window
        self.cuts, self.unchecked = find_cuts(function, primitive)
        self.walks = Walks(function, primitive, self.cuts, self.unchecked)
        self.axes: dict[int, Value] = {}
        self.accumulates = function.implementation.rows.accumulates
        self.rows = instruction_axis(primitive, self.accumulates)

    def emit(self) -> None:
        spans = self._merged(self._space_spans())
        copy = word_copy(self.function, self.primitive, self.walks, spans[-1]) if spans else None
        if copy is None:
            self._each(spans, self._element)
        else:
            self._each(spans, lambda: self._words(copy), copy.elements)

    def scalars(self, acc: Value | None = None) -> Scalars:
        return Scalars(self.function, self.axes, acc, self.unchecked)

    def _space_spans(self) -> list[Span]:
        spans: list[Span] = []
        for number, extent in enumerate(self.space):
            if number == self.rows:
                spans.append(Span([number], self.function.y0, self.function.y1, False))
            elif extent != 1:
                spans.append(Span([number], 0, extent))
        return spans

    def _window_spans(self) -> list[Span]:
        """The window's loops, cut at the borders; computed where the space's axes are known."""
        spans: list[Span] = []
        for position, extent in enumerate(self.window):
            number = len(self.space) + position
            cuts = [cut for cut in self.cuts if cut.axis == number]
            if cuts or number == self.rows:
                spans.append(Span([number], *self._limits(cuts, *self._whole(number, extent)), False))
            elif extent != 1:
                spans.append(Span([number], 0, extent))
        return spans

    def _whole(self, number: int, extent: int) -> tuple[Value, Value]:
        return (self.function.y0, self.function.y1) if number == self.rows else (I32(0), I32(extent))

    def _limits(self, cuts: Sequence[Cut], low: Value, high: Value) -> tuple[Value, Value]:
        for cut in cuts:
            rest = self.scalars().index(cut.rest)
            before = self._divide_up(self.builder.neg(rest), cut.coefficient)
            beyond = self._divide_up(self.builder.sub(I32(cut.size), rest), cut.coefficient)
            low = self._pick(">", low, before)
            high = self._pick("<", high, beyond)
        return low, high

    def _divide_up(self, x: Value, by: int) -> Value:
        """ceil(max(x, 0) / by)."""
        x = self._pick(">", x, I32(0))
        return x if by == 1 else self.builder.udiv(self.builder.add(x, I32(by - 1)), I32(by))

    def _pick(self, sign: str, a: Value, b: Value) -> Value:
        return self.builder.select(self.builder.icmp_signed(sign, a, b), a, b)

    def _merged(self, spans: list[Span]) -> list[Span]:
        """Spans with neighbours joined where all accesses allow it."""
        merged: list[Span] = []
        for span in spans:
            if merged and span.full and self.walks.joins(merged[-1].axes[-1], span.axes[0]):
                outer = merged[-1]
                extent = I32(self.function.extents[span.axes[0]])
                outer.axes.append(span.axes[0])
                outer.start, outer.stop = (self._times(bound, extent) for bound in (outer.start, outer.stop))
            else:
                merged.append(span)
        return merged

    def _times(self, bound: Index, extent: Value) -> Index:
        if isinstance(bound, int):
            return bound * int(extent.constant)
        return self.builder.mul(bound, extent, flags=("nsw",))

    def _set(self, span: Span, index: Value) -> None:
        for number in span.axes[:-1]:
            self.axes[number] = I32(0)
        self.axes[span.axes[-1]] = index

    def _each(self, spans: Sequence[Span], body: Callable[[], None], step: int = 1) -> None:
        """The loops around `body`; the innermost takes `step` positions at a time."""
        if not spans:
            body()
            return
        with self.function.loop(spans[0].start, spans[0].stop, 1 if spans[1:] else step) as index:
            self._set(spans[0], index)
            self._each(spans[1:], body, step)

    def _fold(self, spans: Sequence[Span], acc: Value, body: Callable[[Value], Value]) -> Value:
        if not spans:
            return body(acc)
        with self.function.carried_loop(spans[0].start, spans[0].stop, (acc,)) as carried:
            self._set(spans[0], carried.index)
            carried.next = (self._fold(spans[1:], carried.values[0], body),)
        return carried.results[0]

    def _element(self) -> None:
        """Compute and store one output element."""
        primitive = self.primitive
        if isinstance(primitive, Map):
            result = self.scalars().value(primitive.value)
        else:
            initial = self._initial()
            step = self._product if isinstance(primitive, Contract) else self._term
            acc = self._fold(self._merged(self._window_spans()), initial, step)
            result = self.scalars(acc).value(primitive.result)
        address = self.function.mapped_address(primitive.out, store_of(primitive), self.axes)
        self.function.store_at(primitive.out, address, result)

    def _initial(self) -> Value:
        """What the accumulator starts as: in a later step of a reduction that accumulates, as the output so far."""
        assert not isinstance(self.primitive, Map)
        initial = self.scalars().value(self.primitive.initial)
        if not self.accumulates:
            return initial
        if not isinstance(self.primitive.result, Acc):
            raise InternalError(f"a reduction that accumulates in its output has a result of its own: {describe(self.primitive)}")
        held = self.function.mapped_address(self.primitive.out, store_of(self.primitive), self.axes)
        first = self.builder.icmp_signed("==", self.function.y0, I32(0))
        return self.builder.select(first, initial, self.function.load_at(self.primitive.out, held))

    def _words(self, copy: WordCopy) -> None:
        """Copy one word of elements."""
        primitive = self.primitive
        assert isinstance(primitive, Map) and isinstance(primitive.value, Load)
        source = self.function.mapped_address(primitive.value.buffer, primitive.value.index, self.axes)
        target = self.function.mapped_address(primitive.out, store_of(primitive), self.axes)
        self.builder.store(self.builder.load(source, align=copy.align, typ=I32), target, align=copy.align)

    def _product(self, acc: Value) -> Value:
        primitive = self.primitive
        assert isinstance(primitive, Contract)
        scalars = self.scalars()
        dtype = primitive.initial.dtype

        def factor(load: Load, zero_point: int) -> Value:
            wide = arithmetic.cast(self.builder, scalars.value(load), load.dtype, dtype)
            return arithmetic.binary(self.builder, "sub", wide, constant(zero_point, dtype), dtype) if zero_point else wide

        left, right = factor(primitive.left, primitive.left_zero_point), factor(primitive.right, primitive.right_zero_point)
        product = arithmetic.binary(self.builder, "mul", left, right, dtype)
        return arithmetic.binary(self.builder, "add", acc, product, dtype)

    def _term(self, acc: Value) -> Value:
        primitive = self.primitive
        assert isinstance(primitive, Reduce)
        scalars = self.scalars()
        combined = arithmetic.binary(self.builder, primitive.combine, acc, scalars.value(primitive.term), primitive.initial.dtype)
        inside = [scalars.inside(load) for load in loads_of_term(primitive)] if primitive.skip_fill else []
        for condition in inside:
            if condition is not None:
                combined = self.builder.select(condition, combined, acc)
        return combined


@dataclass(frozen=True)
class WordCopy:
    """A copy that moves 4 bytes at a time: `elements` of them, at addresses that are multiples of `align` bytes."""

    elements: int
    align: int


def word_copy(function: KernelFunction, primitive: Primitive, walks: Walks, inner: Span) -> WordCopy | None:
    """How to copy by words; None for what is no copy, not contiguous in the innermost loop, or too badly aligned for the core.

    In a copy to lower addresses of the same storage every word is read before the words at its place and above are written.
    """
    if not isinstance(primitive, Map) or not isinstance(primitive.value, Load) or primitive.value.fill is not None:
        return None
    load, nbytes = primitive.value, primitive.value.dtype.nbytes
    accesses = ((load.buffer, load.index), (primitive.out, store_of(primitive)))
    whole = 4 // nbytes if nbytes in (1, 2) else 0
    extents = [function.extents[number] for number in inner.axes]
    divided = not inner.full and function.implementation.rows.count > 1
    if not whole or load.dtype is DType.BOOL or prod(extents[divided:]) % whole:
        return None
    if walks.fixed or uniform(function.buffer(load.buffer).data) is not None:
        return None
    align = 4
    for (name, index), steps in zip(accesses, walks.steps, strict=True):
        offset = sum(straightened(part).offset * stride for part, stride in strided(function, name, index))
        outer = [step for number, step in steps.items() if number != inner.axes[-1]]
        if steps.get(inner.axes[-1], 0) != 1:
            return None
        align = min(
            align, function.align_of(name), *(step & -step for step in (nbytes * each for each in (offset, *outer)) if step)
        )
    return WordCopy(whole, align) if align == 4 or "unaligned" in function.target.has else None


def straightened(index: IndexMap) -> Affine:
    """An index that is known to be affine, as such."""
    simple = straighten(index) if isinstance(index, Table) else index
    assert isinstance(simple, Affine)
    return simple


def strided(function: KernelFunction, name: str, maps: Sequence[IndexMap]) -> list[tuple[IndexMap, int]]:
    """Each index of an access with its stride in elements; a scattered buffer's rows have none."""
    shape = function.buffer(name).shape
    rows = row_axis(shape) if name in function.scattered else None
    return [(index, stride) for number, (index, stride) in enumerate(zip(maps, strides(shape), strict=True)) if number != rows]


class Walks:
    """How each access moves along each axis, to see which neighbouring axes can be walked as one.

    rows: the axes that go through the rows of scattered buffers.
    """

    def __init__(
        self, function: KernelFunction, primitive: Map | Reduce | Contract, cuts: Sequence[Cut], unchecked: Sequence[Load]
    ) -> None:
        self.function, self.extents = function, function.extents
        self.steps: list[dict[int, int]] = []
        self.rows: set[int] = set()
        self.fixed: set[int] = {expr.axis for expr in walk(*expressions(primitive)) if isinstance(expr, Axis)}
        free = {id(load) for load in unchecked}
        for expr in walk(*expressions(primitive)):
            if isinstance(expr, Load) and uniform(function.buffer(expr.buffer).data) is None:
                self._access(expr.buffer, expr.index)
            if isinstance(expr, Load) and expr.fill is not None and id(expr) not in free:
                self._check(expr.index, function.buffer(expr.buffer).shape)
        self._access(primitive.out, store_of(primitive))
        self.fixed |= {number for cut in cuts for number in axes_of(cut.rest)}

    def _access(self, name: str, maps: Sequence[IndexMap]) -> None:
        steps: dict[int, int] = {}
        if name in self.function.scattered and (rows := row_axis(self.function.buffer(name).shape)) is not None:
            self.rows |= axes_of(maps[rows])
        for index, stride in strided(self.function, name, maps):
            simple = straighten(index) if isinstance(index, Table) else index
            if isinstance(simple, Table):
                self.fixed.add(simple.axis)
            else:
                for number, coefficient in simple.terms:
                    steps[number] = steps.get(number, 0) + coefficient * stride
        self.steps.append(steps)

    def _check(self, maps: Sequence[IndexMap], shape: Sequence[int]) -> None:
        for index, size in zip(maps, shape):
            low, high = index_range(index, self.extents)
            if low < 0 or high >= size:
                self.fixed |= axes_of(index)

    def joins(self, outer: int, inner: int) -> bool:
        """Whether axis `inner` continues axis `outer` in every access."""
        if {outer, inner} & (self.fixed | self.rows):
            return False
        return all(steps.get(outer, 0) == steps.get(inner, 0) * self.extents[inner] for steps in self.steps)


def axes_of(index: IndexMap) -> set[int]:
    return {index.axis} if isinstance(index, Table) else {number for number, _ in index.terms}


def loads_of_term(primitive: Reduce) -> tuple[Load, ...]:
    """The loads of a reduction's term that may fall outside."""
    return tuple(expr for expr in walk(primitive.term) if isinstance(expr, Load) and expr.fill is not None)


def find_cuts(function: KernelFunction, primitive: Primitive) -> tuple[tuple[Cut, ...], tuple[Load, ...]]:
    """Where the window can be cut, and the loads that then never fall outside."""
    if isinstance(primitive, Contract):
        fill = primitive.left.fill
        loads = (primitive.left,) if fill is not None and fill.value == primitive.left_zero_point else ()
    elif isinstance(primitive, Reduce) and primitive.skip_fill:
        loads = loads_of_term(primitive)
    else:
        return (), ()
    rank = len(primitive.space)
    cuts: list[Cut] = []
    unchecked: list[Load] = []
    for load in loads:
        found = [_cut(index, size, rank, function.extents) for index, size in zip(load.index, function.buffer(load.buffer).shape)]
        cuts += [cut for cut in found if isinstance(cut, Cut)]
        if None not in found:
            unchecked.append(load)
    return tuple(dict.fromkeys(cuts)), tuple(unchecked)


def _cut(index: IndexMap, size: int, rank: int, extents: Sequence[int]) -> Cut | bool | None:
    """How to keep one index inside: a Cut, False (nothing to do), or None (it must be tested)."""
    low, high = index_range(index, extents)
    if low >= 0 and high < size:
        return False
    simple = straighten(index) if isinstance(index, Table) else index
    if isinstance(simple, Table):
        return None
    inner = [(number, coefficient) for number, coefficient in simple.terms if number >= rank]
    if len(inner) != 1 or inner[0][1] <= 0:
        return None
    rest = Affine(tuple(term for term in simple.terms if term[0] < rank), simple.offset)
    return Cut(inner[0][0], inner[0][1], rest, size)


def tables_of(primitive: Primitive) -> tuple[Table, ...]:
    """Every index table that needs data: the ones not on a line."""
    maps = [index for load in loads_of(primitive) for index in load.index]
    maps += [] if isinstance(primitive, Call | Control) else store_of(primitive)
    return tuple(dict.fromkeys(index for index in maps if isinstance(index, Table) and isinstance(straighten(index), Table)))
