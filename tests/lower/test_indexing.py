"""Index maps: every answer of the algebra equals the index it stands for, at every iteration."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aot.graph.expr import Affine, IndexMap, Table, affine, axis, fixed
from aot.lower.indexing import bounds, compose, delinearise, linear, reindex, simplify

SETTINGS = settings(max_examples=300, deadline=None, derandomize=True)


def at(index: IndexMap, position: tuple[int, ...]) -> int:
    if isinstance(index, Affine):
        return index.offset + sum(coefficient * position[number] for number, coefficient in index.terms)
    return index.entries[position[index.axis]]


def everywhere(extents: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(product(*map(range, extents)))


@st.composite
def indices(draw, extents: tuple[int, ...], low: int = -9, high: int = 9) -> IndexMap:
    if draw(st.booleans()):
        number = draw(st.integers(0, len(extents) - 1))
        size = extents[number]
        return Table(number, tuple(draw(st.lists(st.integers(low, high), min_size=size, max_size=size))))
    terms = {number: draw(st.integers(-3, 3)) for number in draw(st.sets(st.integers(0, len(extents) - 1), max_size=2))}
    return affine(terms, draw(st.integers(low, high)))


SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


@SETTINGS
@given(st.data())
def test_bounds_and_simplify(data) -> None:
    extents = data.draw(SHAPES)
    index = data.draw(indices(extents))
    values = [at(index, position) for position in everywhere(extents)]
    assert bounds(index, extents) == (min(values), max(values))
    assert [at(simplify(index, extents), position) for position in everywhere(extents)] == values


@SETTINGS
@given(st.data())
def test_compose(data) -> None:
    extents, inner_extents = data.draw(SHAPES), data.draw(SHAPES)
    index = data.draw(indices(extents))
    by = tuple(data.draw(indices(inner_extents, 0, size - 1)) for size in extents)
    composed = compose(index, by, inner_extents)
    for position in everywhere(inner_extents) if composed is not None else ():
        middle = tuple(at(one, position) for one in by)
        if isinstance(index, Affine) or 0 <= middle[index.axis] < len(index.entries):
            assert at(composed, position) == at(index, middle)  # type: ignore[arg-type]


def test_compose_answers_none_where_a_table_would_need_two_axes() -> None:
    assert compose(Table(0, (3, 1, 4, 1)), (affine({0: 2, 1: 1}),), (2, 2)) is None
    assert compose(affine({0: 1, 1: 1}), (Table(0, (1, 0, 2)), axis(1)), (3, 2)) is None


def test_compose_answers_none_where_a_table_would_be_left() -> None:
    assert compose(Table(0, (3, 1)), (axis(0, 1, -1),), (3,)) is None


@SETTINGS
@given(st.data())
def test_delinearise_is_the_inverse_of_linear(data) -> None:
    shape = data.draw(SHAPES)
    extents = data.draw(SHAPES)
    index = tuple(data.draw(indices(extents, 0, 2)) for _ in shape)
    position = linear(index, shape, extents)
    found = None if position is None else delinearise(position, shape, extents)
    if found is None:
        return
    flat = [int(np.dot([at(one, p) for one in index], np.cumprod([1, *shape[:0:-1]])[::-1])) for p in everywhere(extents)]
    again = [np.ravel_multi_index([at(one, p) for one in found], shape) for p in everywhere(extents)]
    assert flat == again


def test_delinearise_splits_merged_axes() -> None:
    merged = affine({0: 3, 1: 1})
    assert delinearise(merged, (4, 3), (4, 3)) == (axis(0), axis(1))
    assert delinearise(merged, (1, 12), (4, 3)) == (fixed(0), merged)
    assert delinearise(axis(0), (4, 3), (12,)) is None, "needs a division"


@SETTINGS
@given(st.data())
def test_reindex_names_the_same_element(data) -> None:
    source = data.draw(st.sampled_from([(2, 3, 4), (6, 4), (24,), (1, 2, 12), (2, 1, 3, 4), (2, 12, 1)]))
    target = data.draw(st.sampled_from([(2, 3, 4), (6, 4), (24,), (1, 2, 12), (2, 1, 3, 4), (2, 12, 1), (3, 8)]))
    extents = (2, 3)
    index = tuple(data.draw(indices(extents, 0, size - 1)) for size in source)
    found = reindex(index, source, target, extents)
    for position in everywhere(extents) if found is not None else ():
        old, new = [at(one, position) for one in index], [at(one, position) for one in found]
        was_inside = all(0 <= one < size for one, size in zip(old, source))
        is_inside = all(0 <= one < size for one, size in zip(new, target))
        assert was_inside == is_inside, "a fill stays a fill"
        if was_inside:
            assert np.ravel_multi_index(old, source) == np.ravel_multi_index(new, target)


@pytest.mark.parametrize(
    ("source", "target", "index", "expected"),
    [
        ((1, 1, 1, 8), (1, 8), (fixed(0), fixed(0), fixed(0), axis(3)), (fixed(0), axis(3))),
        ((1, 8), (1, 2, 2, 2), (fixed(0), affine({0: 4, 1: 2, 2: 1})), (fixed(0), axis(0), axis(1), axis(2))),
        ((4,), (1, 4), (axis(0, 1, -1),), (fixed(0), axis(0, 1, -1))),
    ],
)
def test_reindex_examples(source, target, index, expected) -> None:
    assert reindex(index, source, target, (2, 2, 2, 8)) == expected
