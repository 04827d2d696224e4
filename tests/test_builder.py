"""What tests/builder.py makes loads and runs in TFLite Micro and LiteRT, and both agree."""

from __future__ import annotations

import numpy as np
import pytest
import tflite

from tests import one_operator as one
from tests.builder import ModelBuilder, options_table
from tests.one_operator import T, one_operator
from tests.oracle import litert_run, litert_runs, tflm_run, tflm_runs

MODELS = {
    "conv": lambda: one.conv2d(),
    "conv dilated": lambda: one.conv2d((1, 9, 7, 3), 5, (3, 2), dilation=(2, 1), padding="VALID"),
    "conv float": lambda: one.conv2d(dtype="float32", stride=(2, 1), activation="RELU6"),
    "depthwise": lambda: one.depthwise(multiplier=2, stride=(2, 2)),
    "fully connected float": lambda: one.fully_connected(dtype="float32"),
    "average pool": lambda: one.pool(padding="SAME", window=(3, 3)),
    "max pool": lambda: one.pool("MAX_POOL_2D", activation="RELU"),
    "add": lambda: one.binary("ADD"),
    "mul broadcast": lambda: one.binary("MUL", (1, 4, 4, 3), (3,), activation="RELU"),
    "add float": lambda: one.binary("ADD", dtype="float32"),
    "relu": lambda: one.unary("RELU"),
    "logistic": lambda: one.unary("LOGISTIC", output_q=(1 / 256, -128)),
    "softmax": lambda: one.unary("SOFTMAX", (2, 10), output_q=(1 / 256, -128), options={"beta": 1.0}),
    "quantize": lambda: one_operator("QUANTIZE", [T((1, 5), "float32")], [T((1, 5), "int8", 0.1, 3)], {}),
    "reshape": lambda: one_operator(
        "RESHAPE", [T((2, 6)), T((2,), "int32", data=np.array([3, 4]))], [T((3, 4))], {"new_shape": [3, 4]}
    ),
    "concatenation": lambda: one_operator(
        "CONCATENATION", [T((1, 2), scale=0.1), T((1, 3), scale=0.1)], [T((1, 5), scale=0.1)], {"axis": -1}
    ),
    "mean": lambda: one_operator(
        "MEAN",
        [T((1, 4, 4, 3), "int8", 0.1, 2), T((2,), "int32", data=np.array([1, 2]))],
        [T((1, 3), "int8", 0.05, 1)],
        {"keep_dims": False},
    ),
    "strided slice": lambda: one_operator(
        "STRIDED_SLICE",
        [T((4, 4), "float32"), *(T((2,), "int32", data=np.array(v)) for v in ([1, 0], [4, 4], [2, 1]))],
        [T((2, 4), "float32")],
        {"begin_mask": 0},
    ),
    "greater equal": lambda: one.binary("GREATER_EQUAL", dtype="float32", out_dtype="bool"),
    "broadcast to, whose code is over 127": lambda: one_operator(
        "BROADCAST_TO", [T((1, 3), "float32"), T((2,), "int32", data=np.array([2, 3]))], [T((2, 3), "float32")], {}, version=2
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_both_engines_run_it_and_agree(name):
    model = MODELS[name]()
    inputs = one.random_inputs(model, seed=1)
    for ours, theirs in zip(tflm_run(model, inputs), litert_run(model, inputs), strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        assert len(np.unique(ours)) > 1 or ours.dtype == bool
        if ours.dtype == np.float32:
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(ours, theirs)


def test_fully_connected_int8_differs_by_at_most_one():
    """LiteRT's int8 FULLY_CONNECTED rounds once, TFLite Micro's twice."""
    model = one.fully_connected((3, 40), 12)
    inputs = one.random_inputs(model)
    ours, theirs = tflm_run(model, inputs)[0].astype(int), litert_run(model, inputs)[0].astype(int)
    assert abs(ours - theirs).max() <= 1


def test_absent_bias():
    model = one.conv2d(bias=False)
    assert len(np.unique(tflm_run(model, one.random_inputs(model))[0])) > 20


def test_int16_activations():
    weights = np.random.default_rng(0).integers(-127, 128, (4, 8))
    specs = [T((1, 8), "int16", 0.001), T((4, 8), "int8", 0.01, data=weights), T((4,), "int64", 1e-5, data=np.arange(4))]
    model = one_operator("FULLY_CONNECTED", specs, [T((1, 4), "int16", 0.002)], {})
    inputs = one.random_inputs(model)
    assert abs(tflm_run(model, inputs)[0].astype(int) - litert_run(model, inputs)[0]).max() <= 1


def test_if_with_subgraphs():
    m = ModelBuilder()
    condition, x, y = m.tensor("condition", (), "bool"), m.tensor("x", (2,), "float32"), m.tensor("y", (2,), "float32")
    m.operator("IF", [condition, x], [y], {"then_subgraph_index": 1, "else_subgraph_index": 2})
    m.end_subgraph([condition, x], [y])
    for op in ("NEG", "RELU"):
        a, b = m.tensor("a", (2,), "float32"), m.tensor("b", (2,), "float32")
        m.operator(op, [a], [b], None)
        if op == "NEG":
            m.end_subgraph([a], [b])
    model = m.build([a], [b])
    value = np.array([-1.0, 2.0], np.float32)
    for run in (tflm_run, litert_run):
        assert run(model, [np.array(True), value])[0].tolist() == [1.0, -2.0]
        assert run(model, [np.array(False), value])[0].tolist() == [0.0, 2.0]


def test_variables_keep_their_value_between_invocations():
    m = ModelBuilder()
    handle = m.tensor("handle", (), "resource")
    x, old, new = (m.tensor(name, (2,), "float32") for name in ("x", "old", "new"))
    start = m.constant(np.array([10, 20], np.float32))
    m.operator("CALL_ONCE", [], [], {"init_subgraph_index": 1})
    m.operator("VAR_HANDLE", [], [handle], {"container": "", "shared_name": "sum"})
    m.operator("READ_VARIABLE", [handle], [old], {})
    m.operator("ADD", [x, old], [new], {})
    m.operator("ASSIGN_VARIABLE", [handle, new], [], {})
    m.end_subgraph([x], [new])
    del start
    handle, start = m.tensor("handle", (), "resource"), m.constant(np.array([10, 20], np.float32))
    m.operator("VAR_HANDLE", [], [handle], {"container": "", "shared_name": "sum"})
    m.operator("ASSIGN_VARIABLE", [handle, start], [], {})
    model = m.build([], [])
    invocations = [[np.array([1, 2], np.float32)]] * 2
    for runs in (tflm_runs, litert_runs):
        assert [outputs[0].tolist() for outputs in runs(model, invocations)] == [[11.0, 22.0], [12.0, 24.0]]


def test_all_tensors_of_litert():
    m = ModelBuilder()
    x, middle, y = (m.tensor(name, (3,), "float32") for name in ("x", "middle", "y"))
    m.operator("NEG", [x], [middle], {})
    m.operator("RELU", [middle], [y])
    found = litert_run(m.build([x], [y]), [np.array([-1, 0, 2], np.float32)], all_tensors=True)
    assert found[middle].tolist() == [1.0, 0.0, -2.0] and found[y].tolist() == [1.0, 0.0, 0.0]


def test_signatures_are_read_by_litert():
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="needs LiteRT: pip install ai-edge-litert")
    m = ModelBuilder()
    x, y = m.tensor("x", (3,), "float32"), m.tensor("y", (3,), "float32")
    m.operator("NEG", [x], [y], {})
    m.signature("serve", {"input": x}, {"output": y})
    assert litert.Interpreter(model_content=m.build([x], [y])).get_signature_list() == {
        "serve": {"inputs": ["input"], "outputs": ["output"]}
    }


def test_int4_constants_are_packed_low_nibble_first():
    m = ModelBuilder()
    m.constant(np.array([-8, 7, 1]), "int4")
    buffer = tflite.Model.GetRootAs(m.build([], [])).Buffers(1)
    assert buffer.DataAsNumpy().tolist() == [0x78, 0x01]


def test_constants_are_aligned_to_16_bytes():
    m = ModelBuilder()
    for size in (1, 3, 17):
        m.constant(np.arange(size, dtype=np.int8))
    data = m.build([], [])
    model = tflite.Model.GetRootAs(data)
    for index in (1, 2, 3):
        assert (
            model.Buffers(index).DataAsNumpy().__array_interface__["data"][0] % 16
            == np.frombuffer(data, np.uint8).__array_interface__["data"][0] % 16
        )


def test_options_table_names():
    known = {
        "CONV_2D": "Conv2DOptions",
        "PADV2": "PadV2Options",
        "MEAN": "ReducerOptions",
        "MAX_POOL_2D": "Pool2DOptions",
        "RELU": None,
    }
    assert {op: options_table(op) for op in known} == known
