"""Variables renewed in place: where it fires, where it must not; random graphs with state give the same in every way of running them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aot.driver import Options, compile_model, resolve_target
from aot.graph.interpreter import run
from aot.graph.ir import Graph, Model
from aot.graph.ops import OPERATORS
from aot.graph.passes import run_passes
from aot.graph.tflite import read_model
from aot.lower.build import build_program
from aot.lower.execute import execute_program
from aot.lower.fuse import fuse
from aot.run import run_bundle
from tests.graph.stateful import Body, Sub, model

Q = {"scale": 0.5, "zero_point": 3}


def graph_of(body: Body) -> Graph:
    return read_model(model(body), "x.tflite", OPERATORS).main


def copies(graph: Graph) -> int:
    """Temporaries that a state buffer is copied from in the end."""
    program = fuse(build_program(graph, OPERATORS))
    return sum(1 for buffer in program.buffers if buffer.role == "temporary" and buffer.base is None)


def agree(graph: Graph, seed: int = 0, runs: int = 4) -> None:
    """Interpreter, Programs before and after fusion, and compiled code give the same outputs and hold the same, over several runs."""
    rng = np.random.default_rng(seed)
    options = Options()
    bundle = compile_model(Model("x", (graph,)), *resolve_target(options), options, lambda stage, result: None)
    better = run_passes(graph)
    programs = {"built": build_program(graph, OPERATORS), "fused": fuse(build_program(better, OPERATORS))}
    states: dict[str, dict[str, np.ndarray]] = {name: {} for name in ("compute", "better", *programs)}
    held = None
    for number in range(runs):
        inputs = [_random(rng, graph, name) for name in graph.inputs]
        expected = run(graph, inputs, states["compute"])
        results = {"better": run(better, inputs, states["better"])}
        for name, program in programs.items():
            found = execute_program(program, dict(zip(program.inputs, inputs)), states[name])
            results[name] = [found[output] for output in program.outputs]
        result = run_bundle(bundle, inputs, state=held)
        held, results["compiled"] = result.state, list(result.outputs)
        for name, arrays in results.items():
            for a, b in zip(arrays, expected, strict=True):
                np.testing.assert_array_equal(a, b, f"run {number}, {name}")


def _random(rng: np.random.Generator, graph: Graph, name: str) -> np.ndarray:
    value = graph[name]
    if value.dtype.is_float:
        return rng.integers(-8, 9, value.shape).astype(value.dtype.np)
    return rng.integers(*value.dtype.limits, value.shape, value.dtype.np, endpoint=True)


def shifted(keep_end: bool = True, extra: int = 0) -> Body:
    """c = (the old window without its first row, x); window := c. `extra`: a reader of the old window after that."""

    def graph(s: Sub):
        x, window = s.value((1, 1, 3)), s.read(s.value((1, 4, 3)))
        begin = [0, 1, 0] if keep_end else [0, 0, 0]
        part = s.node(
            "SLICE",
            [window, s.constant(begin, "int32"), s.constant([1, 3, 3], "int32")],
            s.value((1, 3, 3)),
        )
        pair = [part, x] if keep_end else [x, part]
        c = s.node("CONCATENATION", pair, s.value((1, 4, 3)), {"axis": 1})
        s.assign(c)
        more = [s.add(c, window)] if extra else []
        return [x], [s.node("RELU", [c], s.value((1, 4, 3))), *more]

    return graph


@pytest.mark.parametrize(
    "body,fires",
    [(shifted(), True), (shifted(keep_end=False), False), (shifted(extra=1), False)],
    ids=["ahead", "behind", "read after"],
)
def test_shifts(body: Body, fires: bool) -> None:
    """A shift to the front reads ahead of what it writes; one to the back would overwrite what it has not read."""
    graph = graph_of(body)
    assert (copies(graph) == 0) == fires
    agree(graph)


def transposed(s: Sub):
    x, held = s.value((2, 3)), s.read(s.value((3, 2)))
    turned = s.node("TRANSPOSE", [held, s.constant([1, 0], "int32")], s.value((2, 3)))
    total = s.add(turned, x)
    s.assign(s.node("RESHAPE", [total, s.constant([3, 2], "int32")], s.value((3, 2))))
    return [x], [s.add(total, x)]


def reversed_(s: Sub):
    """The state backwards: no element may be written before it was read."""
    x, held = s.value((1, 5)), s.read(s.value((1, 5)))
    part = s.node(
        "STRIDED_SLICE",
        [held, s.constant([0, -1], "int32"), s.constant([1, -6], "int32"), s.constant([1, -1], "int32")],
        s.value((1, 5)),
        {"begin_mask": 3, "end_mask": 3},
    )
    y = s.add(part, x)
    s.assign(y)
    return [x], [s.add(y, y)]


def two_halves(s: Sub):
    """Each half comes from the other one."""
    x, held = s.value((1, 2)), s.read(s.value((1, 4)))
    halves = [s.node("SLICE", [held, s.constant([0, at], "int32"), s.constant([1, 2], "int32")], s.value((1, 2))) for at in (0, 2)]
    c = s.node("CONCATENATION", [s.add(halves[1], x), halves[0]], s.value((1, 4)), {"axis": 1})
    s.assign(c)
    return [x], [s.add(c, c)]


def accumulated_int8(s: Sub):
    x, held = s.value((1, 8), "int8", **Q), s.read(s.value((1, 8), "int8", **Q))
    y = s.add(held, x)
    s.assign(y)
    return [x], [s.node("RELU", [y], s.like(y)), y]


def chained(s: Sub):
    """b := a; a := x: the old content of one is the new one of another."""
    x = s.value((1, 4))
    a, b = s.read(s.value((1, 4)), "a"), s.read(s.value((1, 4)), "b")
    s.assign(s.add(a, x), "a")
    s.assign(a, "b")
    return [x], [s.add(a, b)]


@pytest.mark.parametrize("body", [transposed, reversed_, two_halves, accumulated_int8, chained], ids=lambda body: body.__name__)
def test_contents_that_overlap(body: Body) -> None:
    agree(graph_of(body))


@st.composite
def bodies(draw) -> Body:
    """Random data flow on rows of int8 through two variables: sums, parts, joins, clamps; what is read and assigned when is drawn."""
    steps = draw(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 99), st.integers(0, 99)), min_size=2, max_size=9))

    def graph(s: Sub):
        def row(width: int) -> int:
            return s.value((1, width), "int8", **Q)

        x = row(6)
        known = [x]
        for kind, first, second in steps:
            a, b = known[first % len(known)], known[second % len(known)]
            name = "ab"[first % 2]
            if kind == 0:
                known.append(s.read(row(6), name))
            elif kind == 1:
                s.assign(b, name)
            elif kind == 2:
                known.append(s.add(a, b))
            elif kind == 3:
                known.append(s.node("RELU", [a], row(6)))
            elif kind in (4, 5):
                at = 1 + second % 5
                cut = [
                    s.node("SLICE", [v, s.constant([0, begin], "int32"), s.constant([1, size], "int32")], row(size))
                    for v, begin, size in ((a, at, 6 - at), (b, 0, at))
                ]
                cut = cut if kind == 4 else cut[::-1]
                known.append(s.node("CONCATENATION", cut, row(6), {"axis": 1}))
            elif kind == 6:
                backwards = [s.constant(numbers, "int32") for numbers in ([0, -1], [1, -7], [1, -1])]
                known.append(s.node("STRIDED_SLICE", [a, *backwards], row(6), {"begin_mask": 3, "end_mask": 3}))
            else:
                total = s.add(a, b)
                s.assign(total, name)
                known.append(total)
        return [x], [s.add(x, known[-1]), s.read(row(6), "a"), s.read(row(6), "b")]

    return graph


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(bodies())
def test_random_graphs_with_state(body: Body) -> None:
    agree(graph_of(body))
