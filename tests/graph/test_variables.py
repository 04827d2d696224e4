"""Variables: the reader turns them into data flow that means what TFLite Micro does, or refuses in one sentence."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import aot
from aot.errors import CompileError
from aot.graph.ops import OPERATORS
from aot.graph.shapes import fix_shapes
from aot.graph.tflite import read_model
from aot.run import run_bundle
from tests.graph.running import random_runs, runs_agree
from tests.graph.stateful import Body, Sub, accumulator, adds, initialiser, model
from tests.oracle import litert_runs, tflm_runs


def both(*bodies: Body):
    """The bodies one after the other in one sub-graph."""

    def graph(s: Sub):
        sides = [body(s) for body in bodies]
        return [t for inputs, _ in sides for t in inputs], [t for _, outputs in sides for t in outputs]

    return graph


def once(number: int) -> Body:
    def graph(s: Sub):
        s.call_once(number)
        return [], []

    return graph


def swapped(s: Sub):
    a, b = s.read(name="a"), s.read(name="b")
    s.assign(b, "a")
    s.assign(a, "b")
    return [], [s.read(name="a"), s.read(name="b"), a]


def read_before_and_after(s: Sub):
    x, before = s.value(), s.read()
    s.assign(x)
    return [x], [before, s.read(), x]


def assigned_twice(s: Sub):
    x = s.value()
    s.assign(x)
    r = s.read()
    s.assign(s.add(r, r))
    return [x], [s.read(), r]


def constant_assigned(s: Sub):
    x, before = s.value(), s.read()
    s.assign(s.constant([[1, 2, 3, 4]]))
    return [x], [s.add(before, x), s.read()]


def delayed(s: Sub):
    """y = what x was two runs before."""
    x, a, b = s.value(), s.read(name="a"), s.read(name="b")
    s.assign(a, "b")
    s.assign(x, "a")
    return [x], [b]


def unread(s: Sub):
    x = s.value()
    s.assign(x)
    return [x], [s.add(x, x)]


def incremented(s: Sub):
    s.assign(s.add(s.read(), s.constant(1)))
    return [], []


def passing(s: Sub):
    x = s.value()
    return [x], [s.add(x, x)]


DATA_FLOW = {
    "accumulated": (accumulator,),
    "initialised": (both(once(1), accumulator), initialiser(1, 2, 3, 4)),
    "swapped": (
        both(once(1), passing, swapped),
        both(initialiser(1, 2, 3, 4, name="a"), initialiser(5, 6, 7, 8, name="b")),
    ),
    "read before and after": (read_before_and_after,),
    "assigned twice": (assigned_twice,),
    "a constant assigned": (constant_assigned,),
    "delayed": (delayed,),
    "never read": (unread,),
    "initialised twice": (both(once(1), once(1), accumulator), incremented),
    "initialised by two": (both(once(1), once(2), accumulator), initialiser(1, 2, 3, 4), incremented),
}


@pytest.mark.parametrize("name", DATA_FLOW)
def test_data_flow(name: str) -> None:
    data = model(*DATA_FLOW[name])
    runs_agree(data, random_runs(data, 4))


@pytest.mark.parametrize("dtype,zero_point", [("int8", 5), ("int8", -128), ("int16", 0)])
@pytest.mark.parametrize("resource", [True, False])
def test_what_quantised_variables_hold_first(dtype: str, zero_point: int, resource: bool) -> None:
    def graph(s: Sub):
        q = {"scale": 0.5, "zero_point": zero_point}
        x, out = s.value((1, 4), dtype, **q), s.value((1, 4), dtype, **q)
        held = s.read(out) if resource else s.value((1, 4), dtype, variable=True, **q)
        y = s.add(held, x)
        if resource:
            s.assign(y)
        return [x], [y]

    data = model(graph)
    runs_agree(data, random_runs(data, 4))


def flat(s: Sub, x: int, **q) -> int:
    return s.node("RESHAPE", [x, s.constant([4], "int32")], s.value((4,), "uint8", **q))


def test_a_variable_of_uint8_holds_zeros_first() -> None:
    """TFLite knows the zero point of int8 alone."""

    def graph(s: Sub):
        q = {"scale": 0.5, "zero_point": 120}
        x, held = s.value((1, 4), "uint8", **q), s.value((1, 4), "uint8", variable=True, **q)
        return [x], [flat(s, held, **q), flat(s, x, **q)]

    found = runs_agree(model(graph))
    assert (found[0][0] == 0).all()


def test_a_variable_of_uint8_that_is_assigned_holds_the_zero_point_first() -> None:
    def graph(s: Sub):
        q = {"scale": 0.5, "zero_point": 120}
        x = s.value((1, 4), "uint8", **q)
        before = s.read(s.value((1, 4), "uint8", **q))
        s.assign(x)
        return [x], [flat(s, before, **q)]

    found = runs_agree(model(graph))
    assert (found[0][0] == 120).all()


def held(values: int, name: str = "state") -> Body:
    """A branch, or body behind a flag, that assigns: y = state; state := state + x. `values`: reads only, if 0."""

    def graph(s: Sub):
        x, before = s.value(), s.read(name=name)
        if values:
            s.assign(s.add(before, x), name)
        return [x], [before]

    return graph


@pytest.mark.parametrize("branches", [(held(1), adds(2)), (adds(2), held(1)), (held(1), held(1)), (held(0), held(1))])
def test_assigned_in_branches(branches: tuple[Body, Body]) -> None:
    def main(s: Sub):
        flag, x, y = s.value((), "bool"), s.value(), s.value()
        s.choose(flag, [x], [y], 1, 2)
        return [flag, x], [y, s.read()]

    x = np.array([[1, -2, 3, 4.5]], np.float32)
    runs_agree(model(main, *branches), [[np.array(flag), x] for flag in (True, False, True, True, False)])


def test_assigned_in_a_loop() -> None:
    def main(s: Sub):
        i, x, j, y = s.value((), "int32"), s.value(), s.value((), "int32"), s.value()
        s.assign(x)
        s.loop([i, x], [j, y], 1, 2)
        r = s.read()
        s.assign(s.add(r, s.read(name="kept")), "kept")
        return [i, x], [j, y, r, s.read(name="kept")]

    def condition(s: Sub):
        i, x = s.value((), "int32"), s.value()
        return [i, x], [s.node("LESS", [i, s.constant(4, "int32")], s.value((), "bool"))]

    def body(s: Sub):
        i, x = s.value((), "int32"), s.value()
        s.assign(s.add(s.read(), x))
        return [i, x], [s.add(i, s.constant(1, "int32")), s.read()]

    x = np.array([[1, -2, 3, 4.5]], np.float32)
    runs_agree(model(main, condition, body), [[np.array(i, np.int32), x * i] for i in (2, 0, 7, 3)])


def test_a_condition_that_changes_a_variable() -> None:
    def main(s: Sub):
        x, y = s.value(), s.value()
        s.loop([x], [y], 1, 2)
        return [x], [y]

    def condition(s: Sub):
        x = s.value()
        s.assign(x)
        return [x], [s.constant(False, "bool")]

    refused(model(main, condition, adds(1)), "its condition has more than one output, or changes a variable")


def test_variables_of_subgraphs_keep_their_content() -> None:
    """A tensor that a branch declares a variable is that branch's own, whoever runs it."""

    def main(s: Sub):
        flag, x, y, z = s.value((), "bool"), s.value(), s.value(), s.value()
        s.choose(flag, [x], [y], 1, 2)
        s.choose(flag, [x], [z], 1, 2)
        return [flag, x], [y, z]

    def graph(s: Sub):
        x, v = s.value(), s.value(variable=True)
        return [x], [s.add(x, v)]

    x = np.array([[1, -2, 3, 4.5]], np.float32)
    runs_agree(model(main, graph, graph), [[np.array(flag), x] for flag in (True, False)], oracle=litert_runs)


# Signatures.


def test_an_output_that_is_read_from_a_variable_has_its_name() -> None:
    data = model(read_before_and_after, signatures=[("serve", 0)])
    (signature,) = read_model(data, "x.tflite", OPERATORS).signatures
    assert (signature.inputs, signature.outputs) == (("x0",), ("y0", "y1", "y2"))
    runs_agree(data)


def test_a_variable_that_two_signatures_share(tmp_path: Path) -> None:
    """One adds to it, the other one reads it."""

    def shown(s: Sub):
        x = s.value()
        return [x], [s.add(s.read(), x)]

    data = model(both(once(2), accumulator), shown, initialiser(1, 2, 3, 4), signatures=[("add", 0), ("show", 1)])
    (tmp_path / "two.tflite").write_bytes(data)
    bundle = aot.compile(tmp_path / "two.tflite")
    x, state, total = np.ones((1, 4), np.float32), None, np.array([[1, 2, 3, 4]], np.float32)
    for number in range(6):
        result = run_bundle(bundle, [x], entry=bundle.entries[number % 2], state=state)
        state = result.state
        total = total + 1 if number % 2 == 0 else total
        np.testing.assert_array_equal(result.outputs[0], total if number % 2 == 0 else total + 1)


def test_signatures_that_use_a_variable_as_different_types() -> None:
    def other(dtype: str, shape: tuple[int, ...]) -> Body:
        def graph(s: Sub):
            x = s.value(shape, dtype)
            s.assign(x)
            return [x], [s.add(x, x)]

        return graph

    for body in (other("int32", (1, 4)), other("float32", (2, 2)), other("float32", (1, 5))):
        refused(
            model(accumulator, body), "subgraph 1, node 1 ASSIGN_VARIABLE: 'v0' has another type or shape than its variable has"
        )


# Refusals.


def refused(data: bytes, text: str) -> None:
    begin = time.monotonic()
    with pytest.raises(CompileError, match=text):
        read_model(data, "x.tflite", OPERATORS)
    assert time.monotonic() - begin < 2


def test_another_quantisation() -> None:
    def graph(s: Sub):
        x = s.value((1, 4), "int8", scale=0.5, zero_point=1)
        s.assign(x)
        return [x], [s.read(s.value((1, 4), "int8", scale=0.25, zero_point=1))]

    refused(model(graph), "node 2 READ_VARIABLE 'v2': 'v2' has another quantisation than what was assigned to its variable")


def test_another_type() -> None:
    def graph(s: Sub):
        x = s.value((1, 4), "int32")
        s.assign(x)
        return [x], [s.read(s.value())]

    refused(model(graph), "READ_VARIABLE 'v2': 'v2' has another type or shape than its variable has elsewhere")


def test_resources_in_the_wrong_place() -> None:
    def added(s: Sub):
        x = s.value()
        return [x], [s.node("ADD", [x, s.handle()], s.value())]

    def returned(s: Sub):
        x = s.value()
        return [x], [s.add(x, x), s.handle()]

    def read_from_data(s: Sub):
        x, y = s.value(), s.value()
        s.m.operator("READ_VARIABLE", [x], [y], {})
        return [x], [y]

    def assigned_to_data(s: Sub):
        x = s.value()
        s.m.operator("ASSIGN_VARIABLE", [x, x], [], {})
        return [x], [s.add(x, x)]

    def given(s: Sub):
        handle, y = s.value((), "resource"), s.value()
        s.m.operator("READ_VARIABLE", [handle], [y], {})
        return [handle], [y]

    def assigned(s: Sub):
        s.assign(s.handle("other"))
        return [], [s.constant([1])]

    def typed(s: Sub):
        s.m.operator("VAR_HANDLE", [], [s.value()], {"container": "", "shared_name": "state"})
        return [], [s.constant([1])]

    refused(model(typed), "its output 'v0' is float32, not a resource")
    refused(model(added), "node 1 ADD 'v2': reads a resource as if it were data")
    refused(model(returned), "its output 'handle_state' is a resource, not data")
    for body in (read_from_data, assigned_to_data, given):
        refused(model(body), "its resource does not come from a VAR_HANDLE in the same subgraph")
    refused(model(assigned), "node 2 ASSIGN_VARIABLE: 'handle_other' is resource, which a variable can't hold")


@pytest.mark.parametrize(
    "op,reads,writes", [("VAR_HANDLE", 1, 1), ("VAR_HANDLE", 0, 2), ("READ_VARIABLE", 0, 1), ("CALL_ONCE", 0, 1)]
)
def test_counts_of_inputs_and_outputs(op: str, reads: int, writes: int) -> None:
    def graph(s: Sub):
        inputs, outputs = [s.value() for _ in range(reads)], [s.value() for _ in range(writes)]
        options = {"init_subgraph_index": 1} if op == "CALL_ONCE" else {}
        s.m.operator(op, inputs, outputs, options)
        return inputs, outputs

    refused(model(graph, initialiser(1, 2, 3, 4)), f"{op}.*: has {reads} inputs and {writes} outputs")


def test_initialisations_that_can_not_be() -> None:
    def looped(s: Sub):
        end = s.value((), "int32")
        s.loop([s.constant(0, "int32")], [end], 2, 3)
        s.assign(end)
        return [], []

    def condition(s: Sub):
        i = s.value((), "int32")
        return [i], [s.node("LESS", [i, s.constant(10, "int32")], s.value((), "bool"))]

    def body(s: Sub):
        i = s.value((), "int32")
        return [i], [s.add(i, s.constant(0, "int32"))]

    def branched(s: Sub):
        end = s.value((), "int32")
        s.choose(s.constant(True, "bool"), [], [end], 4, 4)
        s.assign(end)
        return [], []

    def inner(s: Sub):
        end = s.value((), "int32")
        s.loop([s.constant(0, "int32")], [end], 2, 3)
        return [], [end]

    def large(s: Sub):
        v = s.value((10_000_000,))
        s.m.operator("FILL", [s.constant([10_000_000], "int32"), s.constant(1.0)], [v], {})
        s.assign(v)
        return [], []

    start = both(once(1), passing)
    where = "subgraph 0, node 0 CALL_ONCE: the initialisation in subgraph1"
    refused(model(start, accumulator), f"{where} has inputs")
    refused(model(start, looped, condition, body), f"{where} has a WHILE that can't be run at compile time")
    refused(model(start, branched, condition, body, inner), f"{where} has a IF that can't be run at compile time")
    refused(model(start, large), f"{where} computes 40000000 bytes, more than 16777216")
    refused(model(both(once(0), passing)), "subgraph 0 runs itself")
    refused(model(both(once(9), passing)), "runs subgraph 9, but the file has 1")


def test_an_initialisation_after_its_variable_was_used() -> None:
    """It would be seen from the second run on alone."""
    late = both(accumulator, once(1))
    refused(model(late, initialiser(1, 2, 3, 4)), "node 4 CALL_ONCE: subgraph1 initialises a variable that has been used before it")
    runs_agree(model(both(accumulator, once(1)), initialiser(1, 2, 3, 4, name="other")))


def test_an_initialisation_in_a_branch() -> None:
    """It would depend on the branch whether, and in which run, it happens."""

    def main(s: Sub):
        flag, x, y = s.value((), "bool"), s.value(), s.value()
        s.choose(flag, [x], [y], 1, 2)
        return [flag, x], [y]

    text = "node 0 IF 'v2': runs subgraph 1, which has a CALL_ONCE: only an entry of the model may"
    refused(model(main, both(once(3), accumulator), adds(1), initialiser(1, 2, 3, 4)), text)


def test_shapes_that_are_fixed_later() -> None:
    """A variable keeps its shape, whatever the input is."""
    graph = read_model(model(unread), "x.tflite", OPERATORS).main
    with pytest.raises(CompileError, match="the variable 'v0' is assigned 3x4, but it is 1x4"):
        fix_shapes(graph, {"v0": (3, 4)}, OPERATORS)


def test_one_variable_for_two_memories() -> None:
    def graph(s: Sub):
        x, v, y = s.value(), s.value((1, 4), variable=True), s.value()
        weights, bias = s.constant(np.ones((4, 4))), s.constant(np.zeros(4))
        inputs = [x, *[weights] * 8, -1, -1, -1, *[bias] * 4, -1, -1, v, v, -1, -1, -1, -1]
        s.m.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [y], {"fused_activation_function": "TANH"})
        return [x], [y]

    refused(model(graph), "changes the variable 'v1' twice")


@pytest.mark.parametrize("dtype", ["string", "resource", "variant", "bfloat16", "complex64"])
def test_types_that_can_not_be_compiled(dtype: str, tmp_path: Path) -> None:
    def passed(s: Sub):
        x = s.value((1, 4), dtype)
        return [x], [x]

    def kept(s: Sub):
        x = s.value((1, 4), dtype, variable=True)
        return [], [x]

    def chosen(s: Sub):
        flag, x, y = s.value((), "bool"), s.value((1, 4), dtype), s.value((1, 4), dtype)
        s.choose(flag, [x], [y], 1, 1)
        return [flag, x], [y]

    def composed(s: Sub):
        x, y = s.value((1, 4), dtype), s.value((1, 4), dtype)
        s.composite(1, [x], [y])
        return [x], [y]

    def assigned(s: Sub):
        x = s.value((1, 4), dtype)
        s.assign(x)
        return [x], [s.read(s.value((1, 4), dtype))]

    for graph, text in ((passed, "compiled"), (kept, "compiled"), (chosen, "compiled"), (composed, "compiled"), (assigned, "")):
        (tmp_path / "m.tflite").write_bytes(model(graph, passed))
        with pytest.raises(CompileError, match=f"is {dtype}, which {f'can.t be {text}' if text else 'a variable can.t hold'}"):
            aot.compile(tmp_path / "m.tflite")


@pytest.mark.parametrize("oracle", [tflm_runs, litert_runs])
def test_both_oracles_agree_on_an_accumulator(oracle) -> None:
    runs_agree(model(both(once(1), accumulator), initialiser(1, 2, 3, 4)), oracle=oracle)
