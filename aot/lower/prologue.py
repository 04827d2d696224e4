"""Fusion of Maps into what reads them: the consumer's loads become the Map's expression.

Enters: a Program. Leaves: a Program that computes the same elements with fewer instructions.
Invariant: only a temporary that a single instruction reads disappears; a Map that computes is inlined only where each of its
elements is read at most once; one that only moves data may be read more often. A fill stays a fill.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from aot.graph.expr import Affine, Const, Expr, Load, loads, rewrite
from aot.graph.primitive import Contract, Geometry, Map, Reduce, reads
from aot.lower.draft import Draft, is_loop_nest, is_remap, loads_from, looks_up, merged_nodes, moderate, writes_at_position
from aot.lower.indexing import Index, inside, rebase, rebase_load, reindex

if TYPE_CHECKING:
    from aot.graph.ir import Shape
    from aot.lower.program import Program


def inline_maps(program: Program) -> Program:
    """b[i] = f(a[i]); out[i] = g(b[at(i)])  ->  out[i] = g(f(a[at(i)])).

    Only where b is a temporary that one instruction reads, no more often than b has elements (any number of times if f only moves
    data), and where running f that late keeps no more bytes alive. A contraction's operands take in data movement only: kernels
    match loads.
    """
    draft = Draft(program)
    for position in range(len(draft.slots)):
        while _inline_one(draft, position):
            pass
    return draft.finish()


def _inline_one(draft: Draft, position: int) -> bool:
    """Inline the first Map that the slot may take in; whether there was one."""
    consumer, program = draft.slots[position], draft.program
    if not isinstance(consumer, Map | Reduce | Contract) or not is_loop_nest(consumer):
        return False
    for storage in draft.storages(reads(consumer)):
        slots = draft.writers.get(storage, [])
        producer = draft.slots[slots[0]] if len(slots) == 1 and draft.private(storage, position) else None
        if not isinstance(producer, Map) or not is_loop_nest(producer) or not draft.may_wait(slots[0], position):
            continue
        if looks_up(consumer, storage, program) or not writes_at_position(producer, program):
            continue
        fused = _Inlining(program, producer, storage).into(consumer)
        if fused is not None:
            draft.put(slots[0], None)
            draft.put(position, replace(fused, nodes=merged_nodes(producer, consumer)))
            return True
    return False


@dataclass(frozen=True)
class _Inlining:
    """One Map on its way into its reader. Methods answer None where that can't be said, or would change what is computed."""

    program: Program
    producer: Map
    storage: str

    def into(self, consumer: Map | Reduce | Contract) -> Map | Reduce | Contract | None:
        if not is_remap(self.producer) and self.reads_of(consumer) > prod(self.producer.space):
            return None
        match consumer:
            case Map():
                value = self.inlined(consumer.value, consumer.space)
                return None if value is None else replace(consumer, value=value)
            case Reduce():
                return self.into_reduce(consumer)
            case Contract():
                return self.into_contract(consumer)

    def reads_of(self, consumer: Map | Reduce | Contract) -> int:
        """How many times the consumer loads an element of the producer's."""
        space, window = prod(consumer.space), 1 if isinstance(consumer, Map) else prod(consumer.window)
        match consumer:
            case Map():
                roots = ((consumer.value, space),)
            case Reduce():
                roots = ((consumer.initial, space), (consumer.term, space * window), (consumer.result, space))
            case Contract():
                inner = space * window
                roots = ((consumer.left, inner), (consumer.right, inner), (consumer.initial, space), (consumer.result, space))
        return sum(count * len(self.loads_in(root)) for root, count in roots)

    def loads_in(self, expr: Expr) -> tuple[Load, ...]:
        return loads_from(self.storage, self.program, expr)

    def into_reduce(self, consumer: Reduce) -> Reduce | None:
        extents = (*consumer.space, *consumer.window)
        initial, result = self.inlined(consumer.initial, consumer.space), self.inlined(consumer.result, consumer.space)
        term = self.inlined(consumer.term, extents) if 0 not in extents or not self.loads_in(consumer.term) else None
        if initial is None or result is None or term is None:
            return None
        skip_fill = consumer.skip_fill
        if skip_fill and self.loads_in(consumer.term):
            if not self.may_leave(consumer.term, extents):
                skip_fill = not self.may_leave(term, extents)  # nothing was skipped: a fill that the producer brings must count
            elif self.may_leave(self.producer.value, self.producer.space):
                return None  # what the producer reads outside its source counts, what the consumer reads outside is skipped
        return replace(consumer, initial=initial, term=term, result=result, skip_fill=skip_fill)

    def into_contract(self, consumer: Contract) -> Contract | None:
        extents = (*consumer.space, *consumer.window)
        initial, result = self.inlined(consumer.initial, consumer.space), self.inlined(consumer.result, consumer.space)
        left, right, geometry = consumer.left, consumer.right, consumer.geometry
        if self.loads_in(left):
            left, geometry = self.operand(left, extents), self.geometry_after(consumer)
            if (
                left is None
                or (consumer.geometry is not None and geometry is None)
                or not self.adds_nothing(left, consumer, extents)
            ):
                return None
        if self.loads_in(right):
            right = self.operand(right, extents) if geometry is None else None
            if right is None or self.may_leave(right, extents):
                return None
        if initial is None or result is None:
            return None
        return replace(consumer, left=left, right=right, initial=initial, result=result, geometry=geometry)

    def operand(self, load: Load, extents: Shape) -> Load | None:
        """A contraction's operand with the producer inlined: still a load."""
        new = self.of_load(load, extents) if 0 not in extents else None
        return new if isinstance(new, Load) else None

    def adds_nothing(self, left: Load, consumer: Contract, extents: Shape) -> bool:
        """Whether what lies outside the left operand is its zero point."""
        return not self.may_leave(left, extents) or (left.fill is not None and left.fill.value == consumer.left_zero_point)

    def geometry_after(self, consumer: Contract) -> Geometry | None:
        """The geometry of a convolution that reads the producer's source: that may pad rows and columns, and nothing else."""
        geometry, value = consumer.geometry, self.producer.value
        if geometry is None or geometry.kind == "dense" or not isinstance(value, Load):
            return None
        shape = self.program[value.buffer].shape
        if len(shape) != 4 or self.program[consumer.left.buffer].shape != geometry.input or self.producer.space != geometry.input:
            return None
        offsets = _offsets(value.index)
        if offsets is None or offsets[0] or offsets[3] or shape[0] != geometry.input[0] or shape[3] != geometry.input[3]:
            return None
        top, left = geometry.pad_top - offsets[1], geometry.pad_left - offsets[2]
        return None if top < 0 or left < 0 else replace(geometry, input=shape, pad_top=top, pad_left=left)

    def inlined(self, expr: Expr, extents: Shape) -> Expr | None:
        """`expr`, over axes of these extents, with the producer's expression for each load of its buffer."""
        new: dict[Load, Expr | None] = {}
        for load in self.loads_in(expr):
            new[load] = self.of_load(load, extents)
            if new[load] is None:
                return None
        if not new:
            return expr
        answer = rewrite(expr, lambda node: new.get(node) if isinstance(node, Load) else None)
        return answer if moderate(answer) else None

    def of_load(self, load: Load, extents: Shape) -> Expr | None:
        """What the load yields, as the producer's expression over the consumer's axes."""
        value, space = self.producer.value, self.producer.space
        if load.dtype is not value.dtype:
            return None
        index = reindex(load.index, self.program[load.buffer].shape, space, extents)
        if index is None:
            return None
        if all(inside(position, extents, size) for position, size in zip(index, space, strict=True)):
            return rebase(value, index, extents)
        if isinstance(value, Const):
            return value if value == load.fill else None
        if not isinstance(value, Load) or load.fill is None:
            return None
        return self.with_fill(value, load.fill, index, extents)

    def with_fill(self, value: Load, fill: Const, index: Index, extents: Shape) -> Load | None:
        """A load of the producer's source that yields `fill` wherever the index is outside the producer's space."""
        if self.may_leave(value, self.producer.space) and value.fill != fill:
            return None
        shape = self.program[value.buffer].shape
        for number, (position, size) in enumerate(zip(index, self.producer.space, strict=True)):
            if not inside(position, extents, size) and not _leaves_with(value.index, number, size, shape):
                return None
        moved = rebase_load(value, index, extents)
        return None if moved is None else replace(moved, fill=fill)

    def may_leave(self, expr: Expr, extents: Shape) -> bool:
        """Whether a load under `expr` that has a fill may be outside its buffer."""
        for load in loads(expr):
            if load.fill is not None:
                shape = self.program[load.buffer].shape
                if not all(inside(position, extents, size) for position, size in zip(load.index, shape, strict=True)):
                    return True
        return False


def _offsets(index: Index) -> tuple[int, ...] | None:
    """The offsets of an index whose position k is axis k plus a constant."""
    found: list[int] = []
    for number, position in enumerate(index):
        if not isinstance(position, Affine) or position.terms not in (((number, 1),), ()):
            return None
        found.append(position.offset)
    return tuple(found)


def _leaves_with(index: Index, number: int, size: int, shape: Shape) -> bool:
    """Whether an axis value outside [0, size) always puts some position of `index` outside `shape`."""
    for position, bound in zip(index, shape, strict=True):
        if (
            isinstance(position, Affine)
            and position.terms == ((number, 1),)
            and position.offset <= 0
            and position.offset + size >= bound
        ):
            return True
    return False
