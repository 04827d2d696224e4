"""Custom operators of the firmware: how they are read, what is refused, what passes must leave alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aot.driver import Options, compile
from aot.errors import CompileError
from aot.graph.interpreter import run
from aot.graph.ir import DType, Graph, Model
from aot.graph.operator import FirmwareCall
from aot.graph.ops import OPERATORS
from aot.graph.passes import run_passes
from aot.graph.primitive import Argument, Arguments, Call
from aot.graph.tflite import read_model
from tests.builder import ModelBuilder
from tests.graph.lowered import lower
from tests.one_operator import T, one_operator

FUNCTIONS = {"My": "my_function", "Other": "other_function"}


def mine(inputs, outputs, options: bytes | None = b"abc", code: str = "My") -> bytes:
    return one_operator("CUSTOM", inputs, outputs, custom_code=code, custom_options=options)


def read(data: bytes, functions=FUNCTIONS) -> Model:
    """The model, with those of the functions that it has operators for."""
    return read_model(data, "m.tflite", OPERATORS, {name: each for name, each in functions.items() if name.encode() in data})


def test_functions_that_nothing_needs():
    data = mine([T((1,))], [T((1,))])
    with pytest.raises(CompileError, match=r"no custom operator 'my' \(did you mean My\? its custom operators: My\)"):
        read_model(data, "m.tflite", OPERATORS, {"my": "f"})
    many = ModelBuilder()
    x = many.tensor("x", (1,), "float32")
    outputs = [many.tensor(f"y{number}", (1,), "float32") for number in range(21)]
    for number, y in enumerate(outputs):
        many.operator("CUSTOM", [x], [y], custom_code=f"Code{number}")
    with pytest.raises(CompileError, match=r"Code0, Code1, Code2, Code3 or Code4\? `aot inspect` lists all 21\)"):
        read_model(many.build([x], outputs), "m.tflite", OPERATORS, {"code": "f"})


def passed(data: bytes) -> Graph:
    return run_passes(read(data).main, OPERATORS, lambda stage, result: None)


def test_what_is_read():
    model = read(mine([T((2, 3), "int8", 0.5, -3), None], [T((4,), "float32")], b"\0\1\2"))
    (node,) = model.main.nodes
    assert node.op == "CUSTOM" and node.attributes == FirmwareCall("My", "my_function", b"\0\1\2")
    assert model.custom_codes == ("My",)
    assert read(mine([T((1,))], [T((1,))], None)).main.nodes[0].attributes == FirmwareCall("My", "my_function", b"")


def test_what_it_lowers_to():
    (call,) = lower(
        read(mine([T((2, 3), "int8", 0.5, -3), None, T((), "int32", data=np.array(7, np.int32))], [T((4,), "float32")])).main
    ).primitives
    assert isinstance(call, Call) and (call.kernel, call.ins, call.outs) == ("my_function", ("t0", "t1"), ("t2",))
    inputs = (Argument(0, DType.INT8, (2, 3), 0.5, -3), None, Argument(1, DType.INT32, ()))
    assert call.attributes == Arguments("My", inputs, (Argument(0, DType.FLOAT32, (4,)),), b"abc")


def test_a_value_read_twice_is_one_buffer():
    m = ModelBuilder()
    x, y = m.tensor("x", (4,), "float32"), m.tensor("y", (4,), "float32")
    m.operator("CUSTOM", [x, x], [y], custom_code="My")
    (call,) = lower(read(m.build([x], [y])).main).primitives
    assert isinstance(call, Call) and call.ins == ("t0",)
    assert isinstance(call.attributes, Arguments) and [each and each.position for each in call.attributes.inputs] == [0, 0]


def many(count: int) -> bytes:
    return mine([T((1,), "float32")] * count, [T((1,), "float32")])


def state() -> bytes:
    m = ModelBuilder()
    x, y = m.tensor("x", (4,), "float32", variable=True), m.tensor("y", (4,), "float32")
    m.operator("CUSTOM", [x], [y], custom_code="My")
    return m.build([], [y])


def open_shape(shape, signature) -> bytes:
    m = ModelBuilder()
    x, y = m.tensor("x", (4,), "float32"), m.tensor("y", shape, "float32", shape_signature=signature)
    m.operator("CUSTOM", [x], [y], custom_code="My")
    return m.build([x], [y])


PER_AXIS = T((2, 2), "int8", [0.5, 0.25], data=np.zeros((2, 2), np.int8))
HINT = r"(`aot ops` lists those that are; a function of the firmware computes it with --custom NAME=c_function)"
REFUSED = {
    "unknown": (lambda: mine([T((1,))], [T((1,))], code="Unknown"), f"custom operator 'Unknown' is not supported {HINT}"),
    "code": (lambda: mine([T((1,))], [T((1,))], code=""), "custom operator '' is not supported"),
    "string": (lambda: mine([T((1,), "string")], [T((1,))]), "its input 0 is string, which a firmware function can't be given"),
    "int4": (lambda: mine([T((2,))], [T((2,), "int4")]), "its output 0 is int4, which a firmware function can't be given"),
    "scales": (lambda: mine([T((1,)), PER_AXIS], [T((1,))]), "its input 1 has 2 scales; a firmware function is told one for each tensor"),
    "zero point": (lambda: mine([T((1,), "int64", 0.5, 1 << 40)], [T((1,))]), "zero point 1099511627776"),
    "no outputs": (lambda: mine([T((1,))], []), "has no outputs"),
    "tensors": (lambda: many(64), "has 65 inputs and outputs, more than 64"),
    "variable": (state, "its input 0 is a variable, which a firmware function can't change"),
    "open": (
        lambda: open_shape((-1, 4), None),
        "node 0 CUSTOM 'y': the file leaves the shape of its output 'y' open "
        "(a firmware function can't say it: convert the model with fixed shapes)",
    ),
    "zero": (lambda: open_shape((0, 4), None), "leaves the shape of its output 'y' open"),
    "no shape": (lambda: open_shape(None, None), "leaves the shape of its output 'y' open"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str):
    data, text = REFUSED[name]
    with pytest.raises(CompileError) as refused:
        read(data())
    assert text in str(refused.value)


def test_a_declared_shape_counts_whatever_the_signature_leaves_open():
    assert read(open_shape((1, 4), (-1, 4))).main["t1"].shape == (1, 4)
    assert read(many(63)).main.nodes


def test_a_function_takes_the_place_of_an_operator_of_aot():
    from flatbuffers import flexbuffers

    data = mine([T((4,), "int16")], [T((4,), "int16")], bytes(flexbuffers.Dumps({"delay_length": 1})), "SignalDelay")
    assert read(data).main.nodes[0].op == "SignalDelay"
    attributes = read(data, {"SignalDelay": "mine"}).main.nodes[0].attributes
    assert isinstance(attributes, FirmwareCall) and attributes.function == "mine"


def test_the_interpreter_says_that_it_can_not():
    graph = read(mine([T((1,), "float32")], [T((1,), "float32")])).main
    with pytest.raises(CompileError, match="node 0 CUSTOM 'out0': only the firmware can compute it, with its function my_function"):
        run(graph, [np.zeros(1, np.float32)])


def test_nothing_is_folded():
    """Not from constants, not from no inputs at all, not within a branch: shapes and passes leave such nodes."""
    constant = T((2,), "int32", data=np.array([3, 4], np.int32))
    for inputs in ([constant], []):
        assert [node.op for node in passed(mine(inputs, [T((2,), "int32")])).nodes] == ["CUSTOM"]
    m = ModelBuilder()
    yes, x, y = m.constant(np.array([True])), m.constant(np.array([1, 2], np.int32)), m.tensor("y", (2,), "int32")
    m.operator("IF", [yes, x], [y], {"then_subgraph_index": 1, "else_subgraph_index": 1})
    m.end_subgraph([], [y])
    a, b = m.tensor("a", (2,), "int32"), m.tensor("b", (2,), "int32")
    m.operator("CUSTOM", [a], [b], custom_code="My")
    graph = passed(m.build([a], [b]))
    assert any(node.op in ("IF", "CUSTOM") for node in graph.nodes)


def test_equal_nodes_stay_two():
    m = ModelBuilder()
    x, a, b, y = (m.tensor(name, (4,), "float32") for name in "xaby")
    m.operator("CUSTOM", [x], [a], custom_code="My")
    m.operator("CUSTOM", [x], [b], custom_code="My")
    m.operator("ADD", [a, b], [y], {})
    assert [node.op for node in passed(m.build([x], [y])).nodes] == ["CUSTOM", "CUSTOM", "ADD"]


def test_what_nothing_needs_is_not_called():
    m = ModelBuilder()
    x, a, y = (m.tensor(name, (4,), "float32") for name in "xay")
    m.operator("CUSTOM", [x], [a], custom_code="My")
    m.operator("RELU", [x], [y])
    assert [node.op for node in passed(m.build([x], [y])).nodes] == ["RELU"]


def test_another_shape_must_not_reach_it(tmp_path: Path):
    m = ModelBuilder()
    x, a, y = (
        m.tensor("x", (1, 4), "float32", shape_signature=(-1, 4)),
        m.tensor("a", (1, 4), "float32"),
        m.tensor("y", (1, 4), "float32"),
    )
    m.operator("RELU", [x], [a])
    m.operator("CUSTOM", [a], [y], custom_code="My")
    path = tmp_path / "m.tflite"
    path.write_bytes(m.build([x], [y]))
    options = Options(custom={"My": "my_function"}, shapes={"x": (2, 4)})
    with pytest.raises(CompileError, match="node 1 CUSTOM 'y': --shape makes its input 0 2x4 instead of 1x4"):
        compile(path, options=options)
    assert compile(path, options=Options(custom={"My": "my_function"}, shapes={"x": (1, 4)})).functions == ("my_function",)
