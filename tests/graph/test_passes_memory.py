"""widen_variables: a window of past inputs that is put together in every run comes to live in the state. Fires, must not, same bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aot.graph.interpreter import run
from aot.graph.ir import Graph
from aot.graph.ops import OPERATORS
from aot.graph.passes import verify
from aot.graph.passes.memory import widen_variables
from aot.graph.tflite import read_model
from tests.graph.running import runs_agree
from tests.graph.stateful import Body, Sub, model

CUTS = ("SLICE", "STRIDED_SLICE", "SPLIT", "SPLIT_V", "RESHAPE")


def window(
    old: int = 3,
    new: int = 2,
    axis: int = 1,
    cut: str = "SLICE",
    begin: int | None = None,
    reader: bool = False,
    first: bool = True,
    clamp: bool = False,
    shown: bool = False,
    once: bool = False,
) -> Body:
    """c = (state, x) along an axis; state := the last `old` rows of c (or those from `begin` on). The other flags spoil the pattern."""

    def shape(rows: int) -> tuple[int, int, int]:
        return (1, rows, 2) if axis == 1 else (1, 2, rows)

    def graph(s: Sub):
        if once:
            s.call_once(1)
        x, held = s.value(shape(new)), s.read(s.value(shape(old)))
        pair = [held, x] if first else [x, held]
        c = s.node("CONCATENATION", pair, s.value(shape(old + new)), {"axis": axis - 3 if cut == "SPLIT_V" else axis})
        clamped = s.node("RELU", [c], s.like(c)) if clamp else c
        s.assign(part(s, clamped, new if begin is None else begin))
        return [x], [s.add(c, c), *([s.add(held, held)] if reader else []), *([held] if shown else [])]

    def part(s: Sub, c: int, at: int) -> int:
        begins, sizes = [0, 0, 0], list(shape(old))
        begins[axis] = at
        out = s.value(shape(old))
        ends = [b + n for b, n in zip(begins, sizes)]
        if cut == "SLICE":
            return s.node("SLICE", [c, s.constant(begins, "int32"), s.constant(sizes, "int32")], out)
        if cut == "STRIDED_SLICE":
            return s.node("STRIDED_SLICE", [c, *(s.constant(n, "int32") for n in (begins, ends, [1, 1, 1]))], out)
        if cut == "SPLIT_V":
            rest = s.value(shape(at))
            s.m.operator("SPLIT_V", [c, s.constant([at, old], "int32"), s.constant(axis, "int32")], [rest, out], {"num_splits": 2})
            return out
        if cut == "SPLIT":
            rest = s.value(shape(at))
            s.m.operator("SPLIT", [s.constant(axis, "int32"), c], [rest, out], {"num_splits": 2})
            return out
        flat = s.node("RESHAPE", [c, s.constant([2 * (old + new)], "int32")], s.value((2 * (old + new),)))
        end = s.node("SLICE", [flat, s.constant([2 * at], "int32"), s.constant([2 * old], "int32")], s.value((2 * old,)))
        return s.node("RESHAPE", [end, s.constant(list(shape(old)), "int32")], out)

    return graph


def graph_of(*bodies: Body) -> Graph:
    return read_model(model(*bodies), "x.tflite", OPERATORS).main


def same_in_every_run(graph: Graph, better: Graph, runs: int = 4) -> None:
    verify(better, OPERATORS)
    rng, states = np.random.default_rng(1), ({}, {})
    for _ in range(runs):
        inputs = [rng.standard_normal(graph[name].shape).astype(np.float32) for name in graph.inputs]
        for a, b in zip(*(run(each, inputs, state) for each, state in zip((graph, better), states)), strict=True):
            np.testing.assert_array_equal(a, b)


def widths(graph: Graph) -> list[int]:
    return [value.size for value in graph.values if value.is_variable]


@pytest.mark.parametrize("cut,axis", [(cut, axis) for cut in CUTS for axis in (1, 2) if (cut, axis) != ("RESHAPE", 2)])
def test_fires(cut: str, axis: int) -> None:
    old, new = (2, 2) if cut == "SPLIT" else (3, 2)
    graph = graph_of(window(old, new, axis, cut))
    better = widen_variables(graph)
    assert widths(better) == [2 * (old + new)]
    same_in_every_run(graph, better)
    runs_agree(model(window(old, new, axis, cut)))


def test_what_was_there_at_first_stays() -> None:
    body = initialiser_of(6)
    graph = graph_of(window(once=True), body)
    better = widen_variables(graph)
    (variable,) = (value for value in better.values if value.is_variable)
    np.testing.assert_array_equal(variable.content.reshape(-1), [0, 0, 0, 0, 1, 2, 3, 4, 5, 6])
    same_in_every_run(graph, better)
    runs_agree(model(window(once=True), body))


def initialiser_of(count: int) -> Body:
    def graph(s: Sub):
        s.assign(s.constant(np.arange(1, count + 1).reshape(1, 3, 2)))
        return [], []

    return graph


MUST_NOT = {
    "not the end": window(begin=1),
    "the start": window(begin=0),
    "another reader": window(reader=True),
    "an output": window(shown=True),
    "behind the new": window(first=False),
    "clamped": window(clamp=True),
    "flat, along the last axis": window(3, 2, 2, "RESHAPE"),
}


@pytest.mark.parametrize("name", MUST_NOT)
def test_must_not_fire(name: str) -> None:
    graph = graph_of(MUST_NOT[name])
    assert widths(widen_variables(graph)) == [6]
    same_in_every_run(graph, widen_variables(graph))


def test_a_variable_that_is_joined_with_itself() -> None:
    def graph(s: Sub):
        x, held = s.value((1, 2)), s.read(s.value((1, 2)))
        c = s.node("CONCATENATION", [held, x, held], s.value((1, 6)), {"axis": 1})
        s.assign(s.node("SLICE", [c, s.constant([0, 4], "int32"), s.constant([1, 2], "int32")], s.value((1, 2))))
        return [x], [c]

    read = graph_of(graph)
    assert widths(widen_variables(read)) == [2]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.integers(1, 4), st.integers(1, 4), st.integers(1, 2), st.sampled_from(CUTS), st.integers(0, 4), st.booleans(), st.booleans()
)
def test_random_windows(old: int, new: int, axis: int, cut: str, begin: int, reader: bool, shown: bool) -> None:
    if cut == "SPLIT":
        old = new = begin = max(old, new)
    begin = min(begin, new) if cut != "SPLIT_V" else new
    graph = graph_of(window(old, new, axis, cut, begin, reader, shown=shown))
    same_in_every_run(graph, widen_variables(graph))
