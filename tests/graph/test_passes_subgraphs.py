"""inline_subgraphs: what certainly runs once is put in line; what may run or not, or several times, stays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aot.graph.interpreter import run
from aot.graph.ir import Graph
from aot.graph.ops import OPERATORS
from aot.graph.passes import run_passes, verify
from aot.graph.passes.subgraphs import inline_subgraphs
from aot.graph.tflite import read_model
from tests.graph.stateful import Body, Sub, adds, model, nothing


def graph_of(*bodies: Body) -> Graph:
    return read_model(model(*bodies), "x.tflite", OPERATORS).main


def through(number: int, flag: bool | None = None) -> Body:
    """y = a composite of x, or a branch behind a constant."""

    def graph(s: Sub):
        x, y = s.value(), s.value()
        if flag is None:
            s.composite(number, [x], [y])
        else:
            s.choose(s.constant(flag, "bool"), [x], [y], number, number + 1)
        return [x], [y]

    return graph


def same(graph: Graph, better: Graph, runs: int = 3) -> None:
    verify(better, OPERATORS)
    rng, states = np.random.default_rng(2), ({}, {})
    for _ in range(runs):
        inputs = [rng.integers(-9, 9, graph[name].shape).astype(graph[name].dtype.np) for name in graph.inputs]
        for a, b in zip(*(run(each, inputs, state) for each, state in zip((graph, better), states)), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "bodies,ops",
    [
        ((through(1), adds(1)), ["ADD"]),
        ((through(1), nothing()), ["RESHAPE"]),
        ((through(1), through(2), adds(1)), ["ADD"]),
        ((through(1, True), adds(1), nothing()), ["ADD"]),
        ((through(1, False), adds(1), nothing()), ["RESHAPE"]),
    ],
)
def test_fires(bodies: tuple[Body, ...], ops: list[str]) -> None:
    graph = graph_of(*bodies)
    better = inline_subgraphs(graph)
    assert [node.op for node in better.nodes] == ops
    same(graph, better)


def test_a_condition_that_is_known_inside_alone() -> None:
    """The composite is given a constant, by which the branch in it is known."""

    def main(s: Sub):
        x, y = s.value(), s.value()
        s.composite(1, [s.constant(True, "bool"), x], [y])
        return [x], [y]

    graph = graph_of(main, branch, adds(1), adds(2))
    better = inline_subgraphs(graph)
    assert [node.op for node in better.nodes] == ["ADD"]
    same(graph, better)


def branch(s: Sub):
    flag, x, y = s.value((), "bool"), s.value(), s.value()
    s.choose(flag, [x], [y], 2, 3)
    return [flag, x], [y]


def test_must_not_fire() -> None:
    graph = graph_of(lambda s: branch(s), nothing(), adds(1), adds(2))
    assert inline_subgraphs(graph) is graph
    plain = graph_of(adds(1))
    assert inline_subgraphs(plain) is plain


def test_results_that_are_inputs_or_one_value() -> None:
    def main(s: Sub):
        x, y, a, b, c, d = (s.value() for _ in range(6))
        s.composite(1, [x, y], [a, b, c, d])
        return [x, y], [d, a, b, c, s.add(a, d)]

    def inner(s: Sub):
        x, y = s.value(), s.value()
        total = s.add(x, y)
        return [x, y], [total, y, total, x]

    graph = graph_of(main, inner)
    same(graph, inline_subgraphs(graph))
    same(graph, run_passes(graph))


def test_another_quantisation_inside() -> None:
    """The bytes are handed on as they are."""

    def main(s: Sub):
        x = s.value((1, 4), "int8", scale=0.5, zero_point=0)
        y = s.value((1, 4), "int8", scale=0.5, zero_point=0)
        s.composite(1, [x], [y])
        return [x], [s.add(y, x)]

    def inner(s: Sub):
        x = s.value((1, 4), "int8", scale=0.25, zero_point=7)
        return [x], [s.add(x, x)]

    graph = graph_of(main, inner)
    assert [node.op for node in inline_subgraphs(graph).nodes] == ["RESHAPE", "ADD", "RESHAPE", "ADD"]
    same(graph, inline_subgraphs(graph))
    same(graph, run_passes(graph))


def test_variables_inside() -> None:
    def inner(s: Sub):
        x = s.value()
        total = s.add(s.read(), x)
        s.assign(total)
        return [x], [total]

    def main(s: Sub):
        x, y, z = s.value(), s.value(), s.value()
        s.composite(1, [x], [y])
        s.composite(1, [y], [z])
        return [x], [y, z]

    graph = graph_of(main, inner)
    better = inline_subgraphs(graph)
    assert {node.op for node in better.nodes} <= {"ADD", "RESHAPE"}
    same(graph, better)
    same(graph, run_passes(graph))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8), st.integers(1, 3))
def test_random_graphs(steps: list[tuple[int, int, int]], levels: int) -> None:
    """Every level runs the next one: as a composite, behind constants, behind a flag."""

    def level(number: int) -> Body:
        last = number == levels

        def graph(s: Sub):
            flag, x, y = s.value((), "bool"), s.value(), s.value()
            known = [x, y]
            for kind, first, second in steps:
                a, b, out = known[first % len(known)], known[second % len(known)], s.value()
                if kind == 0 or last:
                    s.node("ADD", [a, b], out)
                elif kind == 1:
                    s.composite(number + 1, [flag, a, b], [out])
                elif kind == 2:
                    s.choose(s.constant(bool(second % 2), "bool"), [flag, a, b], [out], number + 1, levels + 1)
                elif kind == 3:
                    s.choose(flag, [flag, a, b], [out], number + 1, levels + 1)
                else:
                    s.composite(levels + 1, [flag, a, b], [out])
                known.append(out)
            return [flag, x, y], [known[-1]]

        return graph

    def second(s: Sub):
        flag, x, y = s.value((), "bool"), s.value(), s.value()
        return [flag, x, y], [y]

    def main(s: Sub):
        flag, x, y, out = s.value((), "bool"), s.value(), s.value(), s.value()
        s.composite(1, [flag, x, y], [out])
        return [flag, x, y], [out]

    bodies = [main, *(level(number) for number in range(1, levels + 1)), second]
    data = model(*bodies)
    graph = read_model(data, "x.tflite", OPERATORS).main
    if graph.weight > 300:
        return
    same(graph, inline_subgraphs(graph))
    same(graph, run_passes(graph))
