"""The algebra of index maps: bounds, composition, and moving an index from one shape to another of the same elements.

Enters: index maps and the extents of the axes they run over (a primitive's space, then its window). Leaves: index maps, or None
where the answer is not an `Affine` or a `Table` (the caller then leaves things as they are).
Invariant: an answer equals the index it replaces at every iteration, or there is no answer.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from aot.graph.expr import Affine, Axis, Binary, Expr, IndexMap, Load, Table, affine, axis, fixed, integer, rewrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aot.graph.ir import Shape

Index = tuple[IndexMap, ...]


def bounds(index: IndexMap, extents: Shape) -> tuple[int, int]:
    """Smallest and largest position (inclusive) over these extents, none of which is 0."""
    if isinstance(index, Table):
        return min(index.entries[: extents[index.axis]]), max(index.entries[: extents[index.axis]])
    ends = [coefficient * (extents[number] - 1) for number, coefficient in index.terms]
    return index.offset + sum(end for end in ends if end < 0), index.offset + sum(end for end in ends if end > 0)


def inside(index: IndexMap, extents: Shape, size: int) -> bool:
    """Whether the index always lies in [0, size)."""
    low, high = bounds(index, extents)
    return low >= 0 and high < size


def simplify(index: IndexMap, extents: Shape) -> IndexMap:
    """Normal form: no terms of axes of extent 1, and no table that is a straight line."""
    if isinstance(index, Affine):
        return Affine(tuple((number, coefficient) for number, coefficient in index.terms if extents[number] > 1), index.offset)
    entries = index.entries[: extents[index.axis]]
    first = next(iter(entries), 0)
    step = entries[1] - first if len(entries) > 1 else 0
    if all(entry == first + step * position for position, entry in enumerate(entries)):
        return axis(index.axis, step, first)
    return Table(index.axis, entries)


def same(a: Iterable[IndexMap], b: Iterable[IndexMap], extents: Shape) -> bool:
    """Whether two indices are equal at every iteration."""
    return [simplify(index, extents) for index in a] == [simplify(index, extents) for index in b]


def compose(index: IndexMap, by: Index, extents: Shape) -> IndexMap | None:
    """`index` with each of its axes k replaced by `by[k]`, which runs over `extents`."""
    if isinstance(index, Table):
        inner = simplify(by[index.axis], extents)
        return _on_one_axis(inner, extents, lambda position: index.entries[position], len(index.entries))
    total = Affine((), index.offset)
    tables: list[tuple[Table, int]] = []
    for number, coefficient in index.terms:
        inner = by[number] if isinstance(by[number], Affine) else simplify(by[number], extents)
        if isinstance(inner, Affine):
            total = add_affine(total, inner, coefficient)
        else:
            tables.append((inner, coefficient))
    return total if not tables else _with_tables(simplify(total, extents), tables, extents)


def _with_tables(total: IndexMap, tables: list[tuple[Table, int]], extents: Shape) -> IndexMap | None:
    """The sum of an affine index and scaled tables, if it depends on one axis only."""
    assert isinstance(total, Affine)
    axes = {table.axis for table, _ in tables} | {number for number, _ in total.terms}
    if len(axes) != 1:
        return None
    number = axes.pop()
    slope = dict(total.terms).get(number, 0)
    entries = (
        total.offset + slope * at + sum(coefficient * table.entries[at] for table, coefficient in tables)
        for at in range(extents[number])
    )
    return simplify(Table(number, tuple(entries)), extents)


def _on_one_axis(inner: IndexMap, extents: Shape, function: Callable[[int], int], size: int) -> IndexMap | None:
    """`function` of an index that depends on at most one axis and stays in [0, size)."""
    if not inside(inner, extents, size):
        return None
    if isinstance(inner, Table):
        return simplify(Table(inner.axis, tuple(map(function, inner.entries))), extents)
    if not inner.terms:
        return fixed(function(inner.offset))
    if len(inner.terms) > 1:
        return None
    number, coefficient = next(iter(inner.terms))
    return simplify(Table(number, tuple(function(inner.offset + coefficient * at) for at in range(extents[number]))), extents)


def add_affine(a: Affine, b: Affine, factor: int = 1) -> Affine:
    """a + factor * b."""
    terms = dict(a.terms)
    for number, coefficient in b.terms:
        terms[number] = terms.get(number, 0) + factor * coefficient
    return affine(terms, a.offset + factor * b.offset)


def strides(shape: Shape) -> tuple[int, ...]:
    """Elements between neighbours along each axis, row-major."""
    return tuple(prod(shape[number + 1 :]) for number in range(len(shape)))


def linear(index: Index, shape: Shape, extents: Shape) -> Affine | None:
    """The position in row-major order of an index that is inside `shape`; None where a table is among it."""
    total = Affine()
    for position, stride in zip(index, strides(shape), strict=True):
        position = simplify(position, extents)
        if isinstance(position, Table):
            return None
        total = add_affine(total, position, stride)
    simple = simplify(total, extents)
    return simple if isinstance(simple, Affine) else None


def delinearise(position: Affine, shape: Shape, extents: Shape) -> tuple[Affine, ...] | None:
    """The index into `shape` whose row-major position this is.

    Each term is shared out by division through the strides, the largest first. Where each resulting index is inside its dimension,
    the answer is right, because a mixed-radix representation is unique; else there is no answer.
    """
    rest, offset = dict(position.terms), position.offset
    found: list[Affine] = []
    for size, stride in zip(shape, strides(shape), strict=True):
        if size == 1:
            found.append(fixed(0))
            continue
        found.append(affine({number: _towards_zero(coefficient, stride) for number, coefficient in rest.items()}, offset // stride))
        rest = {number: coefficient - stride * _towards_zero(coefficient, stride) for number, coefficient in rest.items()}
        offset %= stride
    if offset or any(rest.values()):
        return None
    return tuple(found) if all(inside(index, extents, size) for index, size in zip(found, shape, strict=True)) else None


def _towards_zero(a: int, b: int) -> int:
    return -(-a // b) if a < 0 else a // b


def reindex(index: Index, source: Shape, target: Shape, extents: Shape) -> Index | None:
    """The index into `target` that names the element that `index` names in `source`, a shape of the same elements.

    Where only dimensions of 1 come or go, an index outside its dimension stays outside (a fill stays a fill), and tables are kept.
    """
    if source == target:
        return index
    if [size for size in source if size != 1] == [size for size in target if size != 1]:
        if not all(inside(position, extents, 1) for position, size in zip(index, source, strict=True) if size == 1):
            return None
        kept = iter([position for position, size in zip(index, source, strict=True) if size != 1])
        return tuple(fixed(0) if size == 1 else next(kept) for size in target)
    if not all(inside(position, extents, size) for position, size in zip(index, source, strict=True)):
        return None
    position = linear(index, source, extents)
    return None if position is None else delinearise(position, target, extents)


def axis_value(index: IndexMap) -> Expr | None:
    """The index as an int32 expression; None for a table."""
    if isinstance(index, Table):
        return None
    total: Expr | None = None
    for number, coefficient in index.terms:
        term: Expr = Axis(number) if coefficient == 1 else Binary("mul", Axis(number), integer(coefficient))
        total = term if total is None else Binary("add", total, term)
    if total is None:
        return integer(index.offset)
    return Binary("add", total, integer(index.offset)) if index.offset else total


def rebase(expr: Expr, by: Index, extents: Shape) -> Expr | None:
    """`expr` with each iteration axis k replaced by `by[k]` over `extents`, in load indices and axis values."""
    if by == tuple(map(axis, range(len(by)))):
        return expr
    failed = False

    def rule(node: Expr) -> Expr | None:
        nonlocal failed
        new: Expr | None = None
        if isinstance(node, Load):
            new = rebase_load(node, by, extents)
            failed |= new is None
        elif isinstance(node, Axis):
            new = axis_value(simplify(by[node.axis], extents))
            failed |= new is None
        return new

    answer = rewrite(expr, rule)
    return None if failed else answer


def rebase_load(load: Load, by: Index, extents: Shape) -> Load | None:
    """`load` with each axis k in its index replaced by `by[k]` over `extents`."""
    index = compose_all(load.index, by, extents)
    return None if index is None else Load(load.buffer, index, load.dtype, load.fill)


def compose_all(index: Index, by: Index, extents: Shape) -> Index | None:
    """`compose` for each position of an index."""
    found: list[Affine | Table] = []
    for position in index:
        composed = compose(position, by, extents)
        if composed is None:
            return None
        found.append(composed)
    return tuple(found)
