"""Shapes: declared ones are checked, open ones inferred, inputs fixed by the user."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from aot.errors import CompileError, InternalError
from aot.graph.interpreter import run
from aot.graph.ops import OPERATORS
from aot.graph.shapes import fix_shapes, settle_shapes
from aot.graph.tflite import read_file, read_model
from tests import one_operator as one
from tests.builder import ModelBuilder
from tests.graph.permissive import ANYTHING, permissive
from tests.one_operator import T, one_operator
from tests.shared import MODELS, model


def read(data: bytes):
    return read_model(data, "m.tflite", OPERATORS).main


def refusal(action, *arguments) -> str:
    with pytest.raises(CompileError) as caught:
        action(*arguments)
    return str(caught.value)


def flatten_chain(batch_in_file: int = 1, signature: int | None = -1, computed: bool = True) -> bytes:
    """x (batch, 2, 3) -> RESHAPE to (batch, 6): the target is PACK(SHAPE(x)[0], 6), or a constant."""
    m = ModelBuilder()
    open_ = {"shape_signature": (signature, 2, 3)} if signature is not None else {}
    x = m.tensor("x:0", (batch_in_file, 2, 3), "float32", **open_)
    target = m.tensor("target", (2,), "int32") if computed else m.constant(np.array([batch_in_file, 6], np.int32))
    y = m.tensor("y", (batch_in_file, 6), "float32", **({"shape_signature": (signature, 6)} if open_ else {}))
    if computed:
        shape, batch, six = m.tensor("shape", (3,), "int32"), m.tensor("batch", (), "int32"), m.constant(np.array(6, np.int32))
        m.operator("SHAPE", [x], [shape], {"out_type": "INT32"})
        ends = [m.constant(np.array([value], np.int32)) for value in (0, 1, 1)]
        m.operator("STRIDED_SLICE", [shape, *ends], [batch], {"shrink_axis_mask": 1})
        m.operator("PACK", [batch, six], [target], {"values_count": 2, "axis": 0})
    m.operator("RESHAPE", [x, target], [y], {})
    return m.build([x], [y])


# Declared shapes.


def test_a_declared_shape_that_its_inputs_contradict():
    data = one_operator("RELU", [T((2, 3), "float32")], [T((3, 3), "float32")])
    assert refusal(read, data) == "m.tflite: node 0 RELU 'out0': the file says its output is 3x3, its inputs give 2x3"


def test_a_scalar_is_not_a_vector_of_one():
    data = one_operator("RELU", [T((1,), "float32")], [T((), "float32")])
    m = ModelBuilder()
    x, y = m.tensor("x", (1,), "float32"), m.tensor("y", (1, 1), "float32")
    m.operator("RELU", [x], [y])
    assert "the file says its output is 1x1, its inputs give 1" in refusal(read, m.build([x], [y]))
    # No shape at all may mean a scalar or an unknown rank: there the inferred shape counts.
    assert read(data)["t1"].shape == (1,)


@pytest.mark.parametrize(("dims", "signature"), [((1, 3), (-1, 3)), ((-1, 3), None), ((0, 3), None), ((), None), ((0,), None)])
def test_an_open_output_gets_the_inferred_shape(dims, signature):
    m = ModelBuilder()
    x, y = m.tensor("x", (2, 3), "float32"), m.tensor("y", dims, "float32", shape_signature=signature)
    m.operator("RELU", [x], [y])
    assert read(m.build([x], [y]))["t1"].shape == (2, 3)


def test_an_open_batch_is_1():
    m = ModelBuilder()
    x, y = m.tensor("x", (-1, 3), "float32"), m.tensor("y", (-1, 3), "float32")
    m.operator("RELU", [x], [y])
    graph = read(m.build([x], [y]))
    assert graph["t0"].shape == graph["t1"].shape == (1, 3)


def test_an_inferred_shape_that_is_too_large():
    m = ModelBuilder()
    x = m.tensor("x", (4, 1 << 20), "float32")
    wide, y = m.tensor("wide", (-1, 1 << 20), "float32"), m.tensor("y", (-1, 1), "float32")
    m.operator("CONCATENATION", [x] * 65, [wide], {"axis": 0})
    m.operator("RELU", [wide], [y])
    text = "m.tflite: node 0 CONCATENATION 'wide': its output would have more than 1073741824 bytes: 260x1048576 of float32"
    assert refusal(read, m.build([x], [y])) == text


def test_an_inferred_shape_of_too_many_dimensions():
    m = ModelBuilder()
    x, y = m.tensor("x", (1,) * 8, "float32"), m.tensor("y", None, "float32")
    m.operator("PACK", [x], [y], {"values_count": 1, "axis": 0})
    assert refusal(read, m.build([x], [y])) == "m.tflite: node 0 PACK 'y': its output has 9 dimensions, more than 8"


def test_too_many_outputs():
    m = ModelBuilder()
    x, y, z = (m.tensor(name, (2,), "float32") for name in "xyz")
    m.operator("RELU", [x], [y, z])
    table = {"RELU": replace(permissive("RELU"), infer=lambda site: ((2,),))}
    assert "node 0 RELU 'y': has 2 outputs, not 1" in refusal(read_model, m.build([x], [y, z]), "m.tflite", table)


def test_nodes_are_checked_when_read():
    data = one_operator("TANH", [T((1, 4), "float64")], [T((1, 4), "float64")])
    assert "node 0 TANH 'out0': float64 is not supported" in refusal(read, data)


# Shape arithmetic.


def test_a_chain_of_shape_arithmetic_is_known():
    graph = read(flatten_chain())
    assert graph["t2"].shape == (1, 6)
    fixed = fix_shapes(graph, {"x:0": (5, 2, 3)}, OPERATORS)
    assert fixed["t0"].shape == (5, 2, 3) and fixed[fixed.outputs[0]].shape == (5, 6)
    assert not any(value.is_constant for value in fixed.values if value.name in fixed.producers)
    x = np.arange(30, dtype=np.float32).reshape(5, 2, 3)
    assert run(fixed, [x])[0].tolist() == x.reshape(5, 6).tolist()


def test_a_constant_target_that_no_longer_fits():
    graph = read(flatten_chain(computed=False))
    text = refusal(fix_shapes, graph, {"x:0": (5, 2, 3)}, OPERATORS)
    assert text.startswith("node 0 RESHAPE 'y': 30 elements of 'x:0' do not fill the target shape [1, 6]")


def test_an_operator_that_contradicts_itself():
    broken = replace(permissive("SHAPE"), compute=lambda site, x: (np.zeros(7, np.int32),))
    with pytest.raises(InternalError, match="node 0 SHAPE 'out0': computes shape"):
        read_model(one_operator("SHAPE", [T((1, 2))], [T((2,), "int32")]), "m.tflite", {"SHAPE": broken})


# Shapes that the user fixes.


def test_inputs_by_label_and_by_name():
    graph = read(one.conv2d((1, 6, 6, 4)))
    for name in ("in0", "t0"):
        fixed = fix_shapes(graph, {name: (2, 12, 10, 4)}, OPERATORS)
        assert fixed["t3"].shape == (2, 12, 10, 8) and fixed["t1"] is graph["t1"]
    assert fix_shapes(graph, {}, OPERATORS) is graph
    assert graph["t0"].shape == (1, 6, 6, 4)


@pytest.mark.parametrize(
    ("name", "shape", "text"),
    [
        ("inO", (1,), "the model has no input 'inO' (did you mean in0? inputs: in0)"),
        ("zebra", (1,), "the model has no input 'zebra' (inputs: in0)"),
        ("out0", (1,), "the model has no input 'out0'"),
        ("in0", (1, 6), "input 'in0': shape 1x6 has 2 dimensions, the model's 1x6x6x4 has 4"),
        ("in0", (1, 6, -1, 4), "input 'in0': shape 1x6x-1x4 has a dimension below 1"),
        ("in0", (1, 0, 6, 4), "input 'in0': shape 1x0x6x4 has a dimension below 1"),
        ("in0", (1 << 20, 1 << 20, 6, 4), "input 'in0': would have more than 1073741824 bytes: 1048576x1048576x6x4 of int8"),
        ("in0", (1, 6, 6, 5), "node 0 CONV_2D 'out0': "),
    ],
)
def test_shapes_that_are_refused(name, shape, text):
    graph = read(one.conv2d((1, 6, 6, 4)))
    with pytest.raises(CompileError, match=re.escape(text)):
        fix_shapes(graph, {name: shape}, OPERATORS)


def test_a_model_without_inputs():
    m = ModelBuilder()
    graph = read(m.build([], [m.constant(np.ones(2, np.int8))]))
    assert refusal(fix_shapes, graph, {"x": (1,)}, OPERATORS) == "the model has no input 'x' (inputs: none)"


def test_a_real_model_with_a_larger_batch():
    graph = read_file(model("KWS"), OPERATORS).main
    (name,) = graph.inputs
    shape = graph[name].shape
    fixed = fix_shapes(graph, {graph[name].label: (3, *shape[1:])}, OPERATORS)
    assert fixed[fixed.outputs[0]].shape == (3, *graph[graph.outputs[0]].shape[1:])


@pytest.mark.skipif(not MODELS.is_dir(), reason="the real models are not beside the repository")
def test_every_real_model_declares_what_is_inferred():
    """All operators there are infer, from every real model's inputs, the shapes that the file declares."""
    table = ANYTHING | {name: replace(operator, check=lambda site: None) for name, operator in OPERATORS.items()}
    count = 0
    for path in sorted(MODELS.rglob("*.tflite")):
        try:
            graph = read_file(path, table).main
        except CompileError as error:
            assert any(text in error.what for text in ("must be constant", "a projection of the hidden state")), str(error)
            continue
        count += 1
        assert settle_shapes(graph, table).values == graph.values
    assert count >= 237
