"""IF, WHILE, STABLEHLO_COMPOSITE: TFLite Micro, `compute`, Programs and compiled code agree; refusals; time at compile time.

LiteRT gives other results where a body hands a value on to another place; TFLite Micro is the oracle.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from aot.driver import Options, compile_model, resolve_target
from aot.errors import CompileError
from aot.graph.interpreter import run
from aot.graph.ops import OPERATORS, control
from aot.graph.tflite import read_model
from tests.graph.lowered import Oracle
from tests.graph.running import runs_agree
from tests.graph.stateful import Body, Sub, adds, model, nothing
from tests.oracle import litert_runs, tflm_runs

Results = Callable[[Sub, list[int]], list[int]]


def counted(n: int, results: Results, limit: int = 4, dtype: str = "float32", given: Callable | None = None, **q) -> bytes:
    """i, x... -> while i < limit: i += 1, x... = results(x...). `given` picks what the loop is given from the inputs x."""

    def values(s: Sub) -> list[int]:
        return [s.value((), "int32"), *(s.value((1, 4), dtype, **q) for _ in range(n))]

    def main(s: Sub):
        inputs, outputs = values(s), values(s)
        s.loop(inputs if given is None else [inputs[0], *given(s, inputs[1:])], outputs, 1, 2)
        return inputs, outputs

    def condition(s: Sub):
        inputs = values(s)
        return inputs, [s.node("LESS", [inputs[0], s.constant(limit, "int32")], s.value((), "bool"))]

    def body(s: Sub):
        inputs = values(s)
        return inputs, [s.add(inputs[0], s.constant(1, "int32")), *results(s, inputs[1:])]

    return model(main, condition, body)


def starts(n: int, dtype: str = "float32", counts: Sequence[int] = (0, 5, 3, 4, 1, -2)) -> list[list[np.ndarray]]:
    """Inputs of runs whose loops start at these counts: 4 turns, none, one ..."""
    rng, runs = np.random.default_rng(3), []
    for count in counts:
        arrays = rng.standard_normal((n, 1, 4)) if dtype == "float32" else rng.integers(-128, 128, (n, 1, 4))
        runs.append([np.array(count, np.int32), *arrays.astype(dtype)])
    return runs


LOOPS: dict[str, tuple[int, Results]] = {
    "plain": (1, lambda s, x: [s.add(x[0], x[0])]),
    "swapped": (2, lambda s, x: [x[1], x[0]]),
    "rotated": (3, lambda s, x: [x[1], x[2], x[0]]),
    "invariant": (2, lambda s, x: [s.add(x[0], x[1]), x[1]]),
    "all invariant": (2, lambda s, x: x),
    "one result twice": (2, lambda s, x: [s.add(x[0], x[1])] * 2),
    "one input twice": (2, lambda s, x: [x[1], x[1]]),
    "a constant result": (2, lambda s, x: [s.constant([[1, 2, 3, 4]]), x[0]]),
    "old and new": (2, lambda s, x: [s.add(x[0], x[1]), x[0]]),
}


@pytest.mark.parametrize("name", LOOPS)
def test_what_a_loop_carries(name: str) -> None:
    runs_agree(counted(*LOOPS[name]), starts(LOOPS[name][0]))


def test_a_loop_that_is_given_one_value_twice() -> None:
    data = counted(2, lambda s, x: [s.add(x[0], x[1]), x[0]], given=lambda s, x: [x[0], x[0]])
    runs_agree(data, starts(2))


@pytest.mark.parametrize("name", ["swapped", "invariant", "old and new"])
def test_a_loop_that_is_given_a_constant(name: str) -> None:
    """Trap 43."""
    runs_agree(counted(*LOOPS[name], given=lambda s, x: [x[0], s.constant([[9, 8, 7, 6]])]), starts(2))


def test_a_quantised_loop() -> None:
    data = counted(
        2, lambda s, x: [s.add(x[0], x[1]), s.node("RELU", [x[0]], s.like(x[0]))], dtype="int8", scale=0.1, zero_point=-3
    )
    runs_agree(data, starts(2, "int8"))


@pytest.mark.parametrize("used", [0, 1])
def test_a_loop_one_of_whose_results_nobody_uses(used: int) -> None:
    def main(s: Sub):
        inputs, outputs = ([s.value((), "int32"), s.value()] for _ in range(2))
        s.loop(inputs, outputs, 1, 2)
        return inputs, [outputs[used]]

    runs_agree(model(main, *below(4)), starts(1))


def below(limit: int) -> tuple[Body, Body]:
    """Condition and body: while i < limit: i += 1, x += x."""

    def condition(s: Sub):
        i, x = s.value((), "int32"), s.value()
        return [i, x], [s.node("LESS", [i, s.constant(limit, "int32")], s.value((), "bool"))]

    def body(s: Sub):
        i, x = s.value((), "int32"), s.value()
        return [i, x], [s.add(i, s.constant(1, "int32")), s.add(x, x)]

    return condition, body


def test_a_loop_in_a_loop_in_a_branch() -> None:
    def main(s: Sub):
        flag, i, x = s.value((), "bool"), s.value((), "int32"), s.value()
        j, y = s.value((), "int32"), s.value()
        s.choose(flag, [i, x], [j, y], 1, 2)
        return [flag, i, x], [j, y]

    def looped(first: int) -> Body:
        def graph(s: Sub):
            i, x, j, y = s.value((), "int32"), s.value(), s.value((), "int32"), s.value()
            s.loop([i, x], [j, y], first, first + 1)
            return [i, x], [j, s.add(y, x)]

        return graph

    def straight(s: Sub):
        i, x = s.value((), "int32"), s.value()
        return [i, x], [i, x]

    def inner(s: Sub):
        i, x = s.value((), "int32"), s.value()
        k, y = s.value((), "int32"), s.value()
        s.loop([s.constant(2, "int32"), x], [k, y], 5, 6)
        return [i, x], [s.add(i, s.constant(1, "int32")), s.add(y, s.constant(1))]

    runs = [[np.array(flag), *inputs] for flag in (True, False) for inputs in starts(1, counts=(0, 3, 4))]
    runs_agree(model(main, looped(3), straight, below(4)[0], inner, *below(4)), runs)


def flagged(body: Body, condition: Body, start: bool | None = None) -> bytes:
    """flag, x: a loop that carries its condition; `start`: a constant one."""

    def main(s: Sub):
        flag = s.value((), "bool") if start is None else s.constant(start, "bool")
        x, after, y = s.value(), s.value((), "bool"), s.value()
        s.loop([flag, x], [after, y], 1, 2)
        return [x] if start is not None else [flag, x], [after, y]

    return model(main, condition, body)


def toggled(s: Sub):
    flag, x = s.value((), "bool"), s.value()
    return [flag, x], [s.node("LOGICAL_NOT", [flag], s.value((), "bool")), s.add(x, x)]


def carried(s: Sub):
    flag, x = s.value((), "bool"), s.value()
    return [flag, x], [flag]


def unchanged(s: Sub):
    flag, x = s.value((), "bool"), s.value()
    return [flag, x], [flag, x]


def constant(flag: bool) -> Body:
    def graph(s: Sub):
        return [s.value((), "bool"), s.value()], [s.constant(flag, "bool")]

    return graph


ROW = np.array([[1, -2, 3, 4.5]], np.float32)
FLAGS = [[np.array(True), ROW], [np.array(False), ROW]]


def test_a_condition_that_is_carried() -> None:
    runs_agree(flagged(toggled, carried), FLAGS)
    for start in (True, False):
        runs_agree(flagged(toggled, carried, start), [[ROW]], oracle=litert_runs)


def test_a_loop_that_never_runs() -> None:
    runs_agree(flagged(toggled, constant(False)), FLAGS)


def choice(first: Body, second: Body, flag: bool | None = None) -> bytes:
    def main(s: Sub):
        condition = s.value((), "bool") if flag is None else s.constant(flag, "bool")
        x, y = s.value(), s.value()
        s.choose(condition, [x], [y], 1, 2)
        return [x] if flag is not None else [condition, x], [y]

    return model(main, first, second)


def numbers(s: Sub):
    return [s.value()], [s.constant([[1, 2, 3, 4]])]


BRANCHES: dict[str, tuple[Body, Body]] = {
    "sums": (adds(1), adds(2)),
    "empty": (nothing(), adds(2)),
    "both empty": (nothing(), nothing()),
    "constant": (numbers, adds(1)),
}


@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize("flag", [None, True, False])
def test_branches(name: str, flag: bool | None) -> None:
    """Traps 41 and 43; with a constant condition too."""
    oracle: Oracle = litert_runs if name == "constant" else tflm_runs
    runs = FLAGS if flag is None else [[ROW]]
    data = choice(*BRANCHES[name], flag)
    runs_agree(data, runs, oracle=oracle)


def test_branches_without_inputs_and_with_several_outputs() -> None:
    def main(s: Sub):
        flag, y, z = s.value((), "bool"), s.value(), s.value((2,), "int32")
        s.choose(flag, [], [y, z], 1, 2)
        return [flag], [y, z]

    def made(number: int) -> Body:
        return lambda s: ([], [s.constant([[number] * 4]), s.constant([number, -number], "int32")])

    runs_agree(model(main, made(1), made(2)), [FLAGS[0][:1], FLAGS[1][:1]], oracle=litert_runs)


def composed(*bodies: Body) -> bytes:
    def main(s: Sub):
        x, y, z = s.value(), s.value(), s.value()
        s.composite(1, [x], [y])
        s.composite(1, [y], [z])
        return [x], [y, z]

    return model(main, *bodies)


def test_composites() -> None:
    def twice(s: Sub):
        x, y = s.value(), s.value()
        s.composite(2, [x], [y])
        return [x], [s.add(y, x)]

    for bodies in ((adds(1),), (nothing(),), (twice, adds(3))):
        runs_agree(composed(*bodies), oracle=litert_runs)


def test_many_composites_in_one() -> None:
    """More rewrites than the outer graph has nodes."""

    def many(s: Sub):
        x = y = s.value()
        for _ in range(150):
            z = s.value()
            s.composite(2, [y], [z])
            y = z
        return [x], [y]

    def main(s: Sub):
        x, y = s.value(), s.value()
        s.composite(1, [x], [y])
        return [x], [y]

    runs_agree(model(main, many, adds(1)), [[ROW]], oracle=None)


# Refusals.


def refused(data: bytes, text: str) -> None:
    begin = time.monotonic()
    with pytest.raises(CompileError, match=text):
        read_model(data, "x.tflite", OPERATORS)
    assert time.monotonic() - begin < 5


def test_conditions_that_are_no_bool() -> None:
    def main(dtype: str, shape: tuple) -> Body:
        def graph(s: Sub):
            flag, x, y = s.value(shape, dtype), s.value(), s.value()
            s.choose(flag, [x], [y], 1, 1)
            return [flag, x], [y]

        return graph

    refused(model(main("int8", ()), adds(1)), r"node 0 IF 'v2': its condition is int8\[\], not one bool")
    refused(model(main("bool", (2,)), adds(1)), r"its condition is bool\[2\], not one bool")


def test_subgraphs_that_do_not_fit() -> None:
    refused(
        choice(adds(1, shape=(1, 5)), adds(1)), r"input 0 of its sub-graph is float32\[1, 5\], that of the node float32\[1, 4\]"
    )
    refused(choice(adds(1, "int32"), adds(1)), r"input 0 of its sub-graph is int32\[1, 4\], that of the node float32")

    def two(s: Sub):
        x = s.value()
        return [x], [x, s.add(x, x)]

    refused(choice(two, adds(1)), "its outputs are 2 in the sub-graph, 1 in the node")
    refused(choice(two, two), "has 1 outputs, not 2")
    refused(choice(lambda s: ([], [s.constant([[1, 2, 3, 4]])]), adds(1)), "its inputs are 0 in the sub-graph, 1 in the node")

    def other(s: Sub):
        x = s.value()
        return [x], [s.node("CAST", [x], s.value((1, 4), "int32"), {"in_data_type": "FLOAT32", "out_data_type": "INT32"})]

    refused(choice(adds(1), other), "output 0 of its sub-graph is float32.*, that of the node int32")
    refused(choice(other, other), "output 0 of its sub-graph is int32.*, that of the node float32")


def test_a_loop_whose_shapes_change() -> None:
    def grown(s: Sub):
        flag, x = s.value((), "bool"), s.value()
        return [flag, x], [flag, s.node("CONCATENATION", [x, x], s.value((1, 8)), {"axis": 1})]

    refused(flagged(grown, carried), r"output 1 of its sub-graph is float32\[1, 8\], that of the node float32\[1, 4\]")


def test_loops_without_a_condition() -> None:
    refused(flagged(toggled, lambda s: ([s.value((), "bool"), s.value()], [])), "its condition has no output")
    refused(flagged(toggled, toggled), "its condition has more than one output, or changes a variable")
    wide = lambda s: ([s.value((), "bool"), (x := s.value())], [x])  # noqa: E731
    refused(flagged(toggled, wide), r"its condition is float32\[1, 4\], not one bool")


def test_the_reference_meaning_of_an_endless_loop_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "MAX_TURNS", 50)
    graph = read_model(flagged(unchanged, carried), "x.tflite", OPERATORS).main
    with pytest.raises(CompileError, match="the loop still runs after 50 turns"):
        run(graph, FLAGS[0])


# Loops are compiled, never run at compile time.


def counting(limit: int, step: int) -> tuple[Body, Body]:
    def condition(s: Sub):
        i = s.value((), "int32")
        return [i], [s.node("LESS", [i, s.constant(limit, "int32")], s.value((), "bool"))]

    def body(s: Sub):
        i = s.value((), "int32")
        return [i], [s.add(i, s.constant(step, "int32"))]

    return condition, body


def from_zero(condition: int, body: int) -> Body:
    """x + (what a loop from 0 ends with)."""

    def main(s: Sub):
        x, end = s.value((), "int32"), s.value((), "int32")
        s.loop([s.constant(0, "int32")], [end], condition, body)
        return [x], [s.add(x, end)]

    return main


def nested_counting(s: Sub):
    i, end = s.value((), "int32"), s.value((), "int32")
    s.loop([s.constant(0, "int32")], [end], 3, 4)
    return [i], [s.add(i, s.constant(1, "int32"))]


def hidden(s: Sub):
    """A loop in a branch that is known to be taken."""
    x, end = s.value((), "int32"), s.value((), "int32")
    s.choose(s.constant(True, "bool"), [s.constant(0, "int32")], [end], 1, 1)
    return [x], [s.add(x, end)]


def around(s: Sub):
    i, end = s.value((), "int32"), s.value((), "int32")
    s.loop([i], [end], 2, 3)
    return [i], [end]


ENDLESS = {
    "endless": (from_zero(1, 2), *counting(10, 0)),
    "always": (from_zero(1, 2), lambda s: ([s.value((), "int32")], [s.constant(True, "bool")]), counting(1, 1)[1]),
    "long": (from_zero(1, 2), counting(10**6, 1)[0], nested_counting, *counting(10**6, 1)),
    "hidden": (hidden, around, *counting(10, 0)),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_no_loop_runs_at_compile_time(name: str) -> None:
    begin = time.monotonic()
    read = read_model(model(*ENDLESS[name]), "x.tflite", OPERATORS)
    bundle = compile_model(read, *resolve_target(Options()), Options(), lambda stage, result: None)
    assert bundle.object and time.monotonic() - begin < 20


# How sub-graphs may run others.


def chain(number: int, count: int = 1) -> Body:
    """x through a composite `count` times."""

    def graph(s: Sub):
        x = y = s.value()
        for _ in range(count):
            z = s.value()
            s.composite(number, [y], [z])
            y = z
        return [x], [y]

    return graph


def test_subgraphs_that_run_themselves_or_are_not_there() -> None:
    refused(model(chain(0)), "node 0 STABLEHLO_COMPOSITE 'v1': subgraph 0 runs itself")
    refused(model(chain(1), chain(2), chain(1)), "subgraph 1 runs itself")
    refused(model(chain(7)), "runs subgraph 7, but the file has 1")
    refused(model(chain(-1)), "runs subgraph -1, but the file has 1")


def test_subgraphs_that_are_nested_deeply() -> None:
    read_model(model(*map(chain, range(1, 9)), adds(1)), "x.tflite", OPERATORS)
    refused(model(*map(chain, range(1, 14)), adds(1)), "its subgraphs are nested deeper than 8")
    # the innermost is read first
    refused(model(adds(1), *map(chain, range(12))), r"its subgraphs have 9 nodes in 8 levels, more than 4000 in 8")


def test_subgraphs_that_grow_exponentially() -> None:
    refused(
        model(*(chain(number, 10) for number in range(1, 8)), adds(1)), "its subgraphs have 21110 nodes in 4 levels, more than 4000"
    )
    wide = model(chain(1, 100), chain(2, 99), adds(1))
    refused(wide, "the subgraphs that nodes run have more than 8000 nodes together")
