"""What the reader makes of good files: values, constants, quantisation, nodes, signatures, metadata."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.flatbuffer import root
from aot.graph.ir import DType
from aot.graph.tflite import read_file, read_model
from tests import one_operator as one
from tests.builder import ModelBuilder
from tests.graph.permissive import ANYTHING, permissive
from tests.one_operator import T, one_operator
from tests.shared import MODELS


def read(data: bytes):
    return read_model(data, "test.tflite", ANYTHING)


def constant(dtype: str, data, shape=None, **fields) -> np.ndarray:
    """What a constant of these elements is read as (as the left operand of an ADD)."""
    m = ModelBuilder()
    x = m.tensor("x", np.shape(data) if shape is None else shape, dtype, data=None if isinstance(data, bytes) else data, **fields)
    y = m.tensor("y", (1,))
    m.operator("ADD", [x], [y])
    return read(m.build([], [y])).main["t0"].data


def test_a_convolution():
    data = one.conv2d((1, 5, 7, 3), 4, (3, 2), input_q=(0.5, -7), output_q=(0.25, 9))
    model = read(data)
    graph = model.main
    x, weights, bias, y = (graph[f"t{index}"] for index in range(4))
    assert graph.inputs == ("t0",) and graph.outputs == ("t3",)
    assert [value.name for value in graph.values] == ["t0", "t1", "t2", "t3"]
    assert (x.label, x.dtype, x.shape, str(x.quantisation)) == ("in0", DType.INT8, (1, 5, 7, 3), "q(0.5, -7)")
    assert (y.label, y.dtype, y.shape, str(y.quantisation)) == ("out0", DType.INT8, (1, 5, 7, 4), "q(0.25, 9)")
    assert weights.shape == (4, 3, 2, 3) and weights.quantisation.per_axis and weights.quantisation.axis == 0
    assert len(set(weights.quantisation.scales)) == 4 and weights.quantisation.zero_points == (0,) * 4
    assert bias.dtype is DType.INT32 and bias.data.shape == (4,) and abs(bias.data).max() > 4
    (node,) = graph.nodes
    assert (node.op, node.inputs, node.outputs, node.index) == ("CONV_2D", ("t0", "t1", "t2"), ("t3",), 0)
    assert model.name == "test" and model.sha256 == hashlib.sha256(data).hexdigest()
    assert model.constant_nbytes == weights.data.nbytes + bias.data.nbytes == 4 * 3 * 2 * 3 + 16


def test_constants_are_views_of_the_file():
    values = np.arange(7, dtype=np.int16)
    found = constant("int16", values)
    assert found.tolist() == values.tolist() and not found.flags.writeable and not found.flags.owndata


@pytest.mark.parametrize(
    "dtype",
    [
        "float16",
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "bool",
        "complex64",
    ],
)
def test_constants_of_every_type(dtype):
    values = np.array([[0, 1, 3], [1, 0, 2]]).astype(dtype)
    found = constant(dtype, values)
    assert found.dtype == values.dtype and found.tolist() == values.tolist()


@pytest.mark.parametrize("shape", [(5,), (2, 3), (4,), ()])
def test_int4_constants(shape):
    values = np.arange(-8, -8 + int(np.prod(shape)), dtype=np.int8).reshape(shape)
    found = constant("int4", values)
    assert found.dtype == np.int8 and found.tolist() == values.tolist()


def test_bools_that_are_not_0_or_1():
    m = ModelBuilder()
    x, y = m.tensor("x", (3,), "bool", buffer=m.buffer(b"\0\2\xff")), m.tensor("y", (3,), "bool")
    m.operator("LOGICAL_NOT", [x], [y])
    assert read(m.build([], [y])).main["t0"].data.view(np.uint8).tolist() == [0, 1, 1]


def test_string_constants():
    m = ModelBuilder()
    x = m.tensor("x", (2,), "string", buffer=m.buffer(struct.pack("<iiii", 2, 16, 18, 21) + b"abcde"))
    y = m.tensor("y", (2,), "string")
    m.operator("RESHAPE", [x], [y])
    graph = read(m.build([], [y])).main
    assert graph["t0"].dtype is DType.STRING and graph["t0"].data.tolist() == [b"ab", b"cde"]


def test_a_buffer_shared_by_two_tensors():
    m = ModelBuilder()
    buffer = m.buffer(bytes(range(8)))
    a, b, y = m.tensor("a", (8,), "int8", buffer=buffer), m.tensor("b", (2,), "int32", buffer=buffer), m.tensor("y", (8,), "int8")
    m.operator("ADD", [a, b], [y])
    model = read(m.build([], [y]))
    assert np.shares_memory(model.main["t0"].data, model.main["t1"].data) and model.constant_nbytes == 8
    assert model.main["t1"].data.tolist() == [0x03020100, 0x07060504]


def test_buffer_0_is_no_data():
    m = ModelBuilder()
    m.buffers[0] = b"1234"
    x, y = m.tensor("x", (4,)), m.tensor("y", (4,))
    m.operator("RELU", [x], [y])
    assert not read(m.build([x], [y])).main["t0"].is_constant


def test_a_buffer_outside_the_flatbuffer():
    def build(offset: int) -> bytes:
        m = ModelBuilder()
        x, y = m.tensor("x", (4,), "int16", buffer=m.buffer((offset, 8))), m.tensor("y", (4,), "int16")
        m.operator("RELU", [x], [y])
        return m.build([], [y])

    end = len(build(999))
    model = read(build(end) + np.array([5, -6, 7, 8], "<i2").tobytes())
    assert model.main["t0"].data.tolist() == [5, -6, 7, 8] and model.constant_nbytes == 8


def test_optional_inputs():
    model = one.conv2d(bias=False)
    assert read(model).main.nodes[0].inputs == ("t0", "t1", None)


def test_an_empty_tensor_that_nobody_writes_is_a_constant():
    model = one_operator("RESHAPE", [T((1,), "float32")], [T((), "float32")], {})
    m = ModelBuilder()
    x, shape, y = m.tensor("x", (1,), "float32"), m.tensor("shape", (0,), "int32"), m.tensor("y", (), "float32")
    m.operator("RESHAPE", [x, shape], [y])
    assert read(m.build([x], [y])).main["t1"].data.shape == (0,)
    assert read(model).main["t1"].shape == ()


def test_labels_that_are_not_utf8():
    m = ModelBuilder()
    x, y = m.tensor(b"caf\xff", (2,)), m.tensor("\u00fcber", (2,))
    m.operator("RELU", [x], [y])
    graph = read(m.build([x], [y])).main
    assert graph["t0"].label == "caf\ufffd" and graph["t1"].label == "\u00fcber"


def test_variables():
    m = ModelBuilder()
    x, state, y = m.tensor("x", (2,)), m.tensor("state", (2,), variable=True), m.tensor("y", (2,))
    m.operator("SVDF", [x, x, x, -1, state], [y])
    graph = read(m.build([x], [y])).main
    assert graph["t1"].is_variable and not graph["t0"].is_variable and not graph["t1"].is_constant


def test_subgraphs_and_signatures():
    m = ModelBuilder("made by hand")
    a, b, c = (m.tensor(name, (2,), "float32") for name in "abc")
    m.operator("ADD", [a, b], [c])
    m.end_subgraph([a, b], [c])
    d, e = m.tensor("d", (2,), "float32"), m.tensor("e", (2,), "float32")
    m.operator("NEG", [d], [e])
    m.signature("sum", {"right": b, "left": a}, {"total": c}, 0)
    m.signature("negative", {}, {"out": e}, 1)
    model = read(m.build([d], [e]))
    assert [graph.name for graph in model.graphs] == ["main", "subgraph1"] and model.description == "made by hand"
    first, second = model.signatures
    assert (first.key, first.graph, first.inputs, first.outputs) == ("sum", 0, ("left", "right"), ("total",))
    assert (second.key, second.graph, second.inputs, second.outputs) == ("negative", 1, ("d",), ("out",))


def test_metadata():
    m = ModelBuilder()
    x, y = m.tensor("x", (2,)), m.tensor("y", (2,))
    m.operator("RELU", [x], [y])
    m.add_metadata("", b"")
    m.add_metadata("min_runtime_version", b"1.5.0")
    assert read(m.build([x], [y])).metadata == {"": b"", "min_runtime_version": b"1.5.0"}


def test_resources_become_data_flow():
    m = ModelBuilder()
    handle, x, y = m.tensor("handle", (), "resource"), m.tensor("x", (2,)), m.tensor("y", (2,))
    m.operator("VAR_HANDLE", [], [handle], {"container": "", "shared_name": "state"})
    m.operator("READ_VARIABLE", [handle], [y])
    m.operator("ASSIGN_VARIABLE", [handle, x], [])
    graph = read(m.build([x], [y])).main
    assert not graph.nodes and graph.outputs == ("variable0",) and graph.updates == (("variable0", "t1"),)


def test_a_variable_that_was_assigned_is_read_as_what_it_holds_by_then():
    m = ModelBuilder()
    handle, x, y = m.tensor("handle", (), "resource"), m.tensor("x", (2,)), m.tensor("y", (2,))
    m.operator("VAR_HANDLE", [], [handle], {"container": "", "shared_name": "state"})
    m.operator("ASSIGN_VARIABLE", [handle, x], [])
    m.operator("READ_VARIABLE", [handle], [y])
    graph = read(m.build([x], [y])).main
    assert graph.outputs == ("t1",) and graph.updates == (("variable0", "t1"),)


def test_a_variable_tensor_of_a_further_subgraph_assigned_to_a_resource():
    m = ModelBuilder()
    x = m.tensor("x", (4,), "float32")
    m.end_subgraph([x], [x])
    held, handle, out = (
        m.tensor("held", (4,), "float32", variable=True),
        m.tensor("h", (1,), "resource"),
        m.tensor("r", (4,), "float32"),
    )
    m.operator("VAR_HANDLE", [], [handle], {"shared_name": "a"})
    m.operator("ASSIGN_VARIABLE", [handle, held], [])
    m.operator("READ_VARIABLE", [handle], [out])
    graph = read(m.build([], [out])).graphs[1]
    assert graph.outputs == ("subgraph1_t0",) and graph.updates == (("variable0", "subgraph1_t0"),)


def test_both_operator_code_fields():
    data = one.unary("RELU", dtype="float32")
    (code,) = root(data, b"TFL3", "").tables(1, "operator code")
    for slot, width in ((0, 1), (3, 4)):
        position = code.offset(slot, width)
        assert position is not None
        assert read(data[:position] + bytes(width) + data[position + width :]).main.nodes[0].op == "RELU"
    wide = one_operator("BROADCAST_TO", [T((1,)), T((1,), "int32", data=np.array([3]))], [T((3,))], {})
    assert read(wide).main.nodes[0].op == "BROADCAST_TO"


def test_options_reach_the_operator():
    seen = []
    table = {"CONV_2D": permissive("CONV_2D", seen.append), "RELU": permissive("RELU", seen.append)}
    read_model(one.conv2d(stride=(2, 3), padding="VALID"), "x", table)
    assert (seen[0].StrideH(), seen[0].StrideW(), seen[0].Padding(), seen[0].DilationHFactor()) == (2, 3, 1, 1)
    read_model(one.unary("RELU"), "x", table)
    assert seen[1] is None


def test_vectors_and_strings_in_options():
    seen = []
    table = {name: permissive(name, seen.append) for name in ("RESHAPE", "VAR_HANDLE")}
    read_model(one_operator("RESHAPE", [T((6,))], [T((2, 3))], {"new_shape": [2, 3]}), "x", table)
    with pytest.raises(CompileError, match="its output 'out0' is a resource, not data"):
        read_model(one_operator("VAR_HANDLE", [], [T((), "resource")], {"container": "box", "shared_name": "s"}), "x", table)
    assert seen[0].NewShapeAsNumpy().tolist() == [2, 3] and seen[1].Container() == b"box"


def test_an_operator_without_options_ignores_the_files():
    table = {"RELU": replace(permissive("RELU"), options=None, read=lambda options: (options,))}
    data = one_operator("RELU", [T((2,))], [T((2,))], {}, table="AddOptions")
    assert read_model(data, "x", table).main.nodes[0].attributes == (None,)


def test_quantisation_that_means_nothing_is_dropped():
    for dtype in ("float32", "bool"):
        assert read(one_operator("RELU", [T((2,), dtype, 0.5)], [T((2,), dtype)])).main["t0"].quantisation is None
    assert read(one_operator("RELU", [T((2,), "int32", 0.0)], [T((2,), "int32")])).main["t0"].quantisation is None


def test_scale_0_is_kept_on_pruned_channels():
    weights = T((2, 3), "int8", [0.5, 0.0], data=np.zeros((2, 3)))
    model = one_operator("FULLY_CONNECTED", [T((1, 3), "int8", 0.1), weights], [T((1, 2), "int8", 0.1)], {})
    assert read(model).main["t1"].quantisation.scales == (0.5, 0.0)


def test_a_bias_with_the_axis_of_its_weights():
    bias = T((3,), "int32", [0.1, 0.2, 0.3], data=np.zeros(3), axis=3)
    assert read(one_operator("ADD", [T((3,)), bias], [T((3,))])).main["t1"].quantisation.axis == 0


def test_constant_outputs_and_inputs_that_are_outputs():
    m = ModelBuilder()
    x, c = m.tensor("x", (2,)), m.constant(np.array([1, 2], np.int8))
    graph = read(m.build([x], [c, x, c])).main
    assert graph.outputs == ("t1", "t0", "t1") and graph["t1"].data.tolist() == [1, 2]


def test_unused_tensors_are_not_read():
    m = ModelBuilder()
    x, y = m.tensor("x", (2,)), m.tensor("y", (2,))
    m.tensor("broken", (2,), "int8", buffer=77)
    m.operator("RELU", [x], [y])
    assert [value.name for value in read(m.build([x], [y])).main.values] == ["t0", "t1"]


def test_read_file(tmp_path):
    path = tmp_path / "some.model.tflite"
    path.write_bytes(one.unary("RELU"))
    assert read_file(path, ANYTHING).name == "some.model" and read_file(str(path), ANYTHING).main.nodes[0].op == "RELU"


@pytest.mark.skipif(not MODELS.is_dir(), reason="the real models are not beside the repository")
def test_every_real_model_is_read_or_its_operator_is_named():
    refused = {}
    paths = sorted(MODELS.rglob("*.tflite"))
    for path in paths:
        try:
            model = read_file(path, ANYTHING)
        except CompileError as error:
            refused[path.name] = error.what
            continue
        for graph in model.graphs:
            graph.verify()
            assert str(graph).count("\n") >= len(graph.nodes)
    assert len(paths) >= 240
    assert refused == {
        f"audio_preprocessor_{dtype}.tflite": "custom operator 'SignalWindow' is not supported" for dtype in ("float", "int8")
    }
