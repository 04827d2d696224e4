"""ADD, SUB, MUL: compute, lowering and TFLite Micro agree; what is refused says why."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.expr import Load, Requantise, axis, loads, walk
from aot.graph.primitive import Map
from tests.builder import ModelBuilder
from tests.graph.lowered import agree, extremes, primitives, read, sweep
from tests.one_operator import T, binary, one_operator
from tests.oracle import litert_runs

OPERATORS = ("ADD", "SUB", "MUL")
ZERO_POINTS = (-128, -1, 0, 127)
BROADCASTS = (
    ((1, 3, 5, 7), (1, 3, 5, 7)),
    ((2, 3, 2, 3), (3,)),
    ((3,), (2, 3, 2, 3)),
    ((2, 1, 4, 1), (1, 3, 1, 5)),
    ((1, 1, 1, 1), (2, 3, 4, 5)),
    ((2, 3, 4, 5), (1,)),
    ((5, 1), (4, 1, 3)),
    ((2, 3, 1, 2, 3), (1, 1, 4, 2, 1)),
    ((1, 2, 3, 4, 5), (2, 1, 1, 4, 1)),
    ((7,), (7,)),
    ((), (3, 2)),
)


@pytest.mark.parametrize("op", OPERATORS)
def test_int8(op: str) -> None:
    """Scale ratios 1:1, 1:10, 1:200 either way; zero points at both ends; every activation; every broadcast."""
    for case in sweep(
        48,
        shapes=BROADCASTS,
        scales=((0.1, 0.1), (0.1, 0.01), (0.001, 0.2), (0.2, 0.001), (0.037, 0.051)),
        gain=(0.3, 1.0, 1.7, 5.0),
        left=ZERO_POINTS,
        right=ZERO_POINTS,
        out=ZERO_POINTS,
        activation=("NONE", "RELU", "RELU6", "RELU_N1_TO_1"),
    ):
        a, b = case["scales"]
        product = a * b * 128 if op == "MUL" else max(a, b)
        model = binary(
            op,
            *case["shapes"],
            left_q=(a, case["left"]),
            right_q=(b, case["right"]),
            output_q=(product / case["gain"], case["out"]),
            activation=case["activation"],
        )
        agree(model, *extremes(model))


def test_mul_multiplier_of_at_least_one() -> None:
    """scale_a * scale_b / scale_out of 0.3, 1, 1.7, 5: the last shift left."""
    for ratio in (0.3, 1.0, 1.7, 5.0):
        model = binary("MUL", (1, 4, 4, 4), left_q=(1.0, -7), right_q=(0.5, 9), output_q=(0.5 / ratio, 3))
        agree(model, *extremes(model))


@pytest.mark.parametrize("op", OPERATORS)
def test_all_pairs_of_int8(op: str) -> None:
    """Each of the 256 values with each: the whole function."""
    model = binary(op, (256, 1), (1, 256), left_q=(0.05, -3), right_q=(0.07, 4), output_q=(0.12, 5))
    values = np.arange(-128, 128, dtype=np.int8)
    agree(model, [values.reshape(256, 1), values.reshape(1, 256)])


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("dtype", ["int16", "int32", "float32"])
def test_other_types(op: str, dtype: str) -> None:
    activations = ("NONE",) if dtype == "int32" else ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")
    for case in sweep(12, shapes=BROADCASTS, activation=activations):
        agree(binary(op, *case["shapes"], dtype=dtype, activation=case["activation"]))


@pytest.mark.parametrize("op", OPERATORS)
def test_int16(op: str) -> None:
    """The whole range, scales of every form (powers of two too), with and without `pot_scale_int16`."""
    for case in sweep(
        24,
        scales=((0.001, 0.001), (2.0**-12, 2.0**-15), (2.0**-15, 2.0**-15), (1e-4, 3e-3), (0.0037, 0.00051)),
        gain=(0.3, 1.0, 1.7),
        power_of_two=(False, True),
        activation=("NONE", "RELU", "RELU6"),
        shapes=(((500,), (500,)), ((9, 60), (60,)), ((1, 9, 1), (3, 1, 60))),
    ):
        a, b = case["scales"]
        product = a * b * 32768 if op == "MUL" else max(a, b)
        options = {"fused_activation_function": case["activation"]}
        options |= {} if op == "MUL" else {"pot_scale_int16": case["power_of_two"]}
        inputs = [T(shape, "int16", scale) for shape, scale in zip(case["shapes"], (a, b))]
        out = T(np.broadcast_shapes(*case["shapes"]), "int16", product / case["gain"])
        model = one_operator(op, inputs, [out], options)
        agree(model, *extremes(model))


@pytest.mark.parametrize("op", ["ADD", "SUB"])
def test_int16_zero_points(op: str) -> None:
    for left, right, out in ((300, -5, 7), (32767, -32768, 0), (-32768, 32767, 32767)):
        inputs = [T((200,), "int16", 0.001, left), T((200,), "int16", 0.003, right)]
        model = one_operator(op, inputs, [T((200,), "int16", 0.004, out)], {})
        agree(model, *extremes(model))


@pytest.mark.parametrize("op", OPERATORS)
def test_uint8(op: str) -> None:
    """Old quantised models; LiteRT is the oracle."""
    for case in sweep(
        12,
        shapes=BROADCASTS,
        scales=((0.1, 0.1), (0.1, 0.01), (0.001, 0.2), (0.037, 0.051)),
        gain=(0.3, 1.0, 1.7),
        left=(0, 1, 128, 255),
        right=(0, 128, 130, 255),
        out=(0, 128, 255),
        activation=("NONE", "RELU", "RELU6", "RELU_N1_TO_1"),
    ):
        a, b = case["scales"]
        product = a * b * 128 if op == "MUL" else max(a, b)
        quantisations = {
            "left_q": (a, case["left"]),
            "right_q": (b, case["right"]),
            "output_q": (product / case["gain"], case["out"]),
        }
        model = binary(op, *case["shapes"], dtype="uint8", activation=case["activation"], **quantisations)
        agree(model, *extremes(model), oracle=litert_runs)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_quantised_sum_that_the_file_calls_float32(dtype: str) -> None:
    """Its type is the inputs'; TFLite Micro computes something else."""
    m = ModelBuilder()
    x = m.tensor("x", (2, 50), dtype, scale=0.004, zero_point=3)
    twice = m.tensor("twice", (2, 50), "float32", scale=0.006, zero_point=1)
    out = m.tensor("out", (2, 50), dtype, scale=0.009, zero_point=2)
    for inputs, output in (([x, x], twice), ([twice, x], out)):
        m.operator("ADD", inputs, [output], {"fused_activation_function": "NONE"})
    model = m.build([x], [out])
    assert read(model)["t1"].dtype.value == dtype
    agree(model, *extremes(model), oracle=litert_runs)


@pytest.mark.parametrize("op", OPERATORS)
def test_int64(op: str) -> None:
    for activation, shapes in zip(("NONE", "RELU", "RELU6", "RELU_N1_TO_1"), BROADCASTS):
        model = binary(op, *shapes, dtype="int64", activation=activation)
        agree(model, *extremes(model), oracle=litert_runs)


def test_uint32_products() -> None:
    for activation in ("NONE", "RELU6"):
        model = binary("MUL", (4, 3), (3,), dtype="uint32", activation=activation)
        agree(model, *extremes(model), oracle=litert_runs)


@pytest.mark.parametrize("op", ["SUB", "MUL"])
@pytest.mark.parametrize("activation", ["RELU", "RELU6", "RELU_N1_TO_1"])
def test_activations_of_int32(op: str, activation: str) -> None:
    values = np.array([-7, -1, 0, 1, 3, 8, 1 << 20], np.int32)
    agree(binary(op, (7, 1), (1, 7), dtype="int32", activation=activation), [values.reshape(7, 1), values.reshape(1, 7)])


@pytest.mark.parametrize("op", OPERATORS)
def test_int32_wraps(op: str) -> None:
    limits = np.array([[-(1 << 31), (1 << 31) - 1, 1 << 30, -1]], np.int32)
    agree(binary(op, (1, 4), (4, 1), dtype="int32"), [limits, limits.reshape(4, 1)])


@pytest.mark.parametrize("op", OPERATORS)
def test_constant_operands(op: str) -> None:
    rng = np.random.default_rng(3)
    for shape in ((), (1,), (1, 1, 1, 1), (4,), (2, 3, 4)):
        constant = T(shape, "int8", 0.02, 4, rng.integers(-128, 128, shape))
        value = T((1, 2, 3, 4), "int8", 0.05, -3)
        out = T((1, 2, 3, 4), "int8", 0.07, 5)
        options = {"fused_activation_function": "NONE"}
        for inputs in ((value, constant), (constant, value)):
            agree(one_operator(op, inputs, [out], options))


def test_a_scale_next_to_zero() -> None:
    """An input whose multiplier is flushed to 0 (seen in a real model) adds nothing."""
    agree(binary("ADD", left_q=(0.0282, 3), right_q=(6.8e-12, 0), output_q=(0.0136, -5)))


def test_operands_of_the_output_shape_are_read_at_the_identity_index() -> None:
    (lowered,) = primitives(binary("ADD", (2, 3, 4), (4,)))
    assert isinstance(lowered, Map)
    left, right = loads(lowered.value)
    assert left.index == (axis(0), axis(1), axis(2))
    assert right.index == (axis(2),)


def test_a_scalar_constant_is_not_loaded() -> None:
    constant = T((1,), "int8", 0.02, 4, np.array([7]))
    value, out = T((1, 4), "int8", 0.05, -3), T((1, 4), "int8", 0.07, 5)
    (lowered,) = primitives(one_operator("MUL", [value, constant], [out], {}))
    assert isinstance(lowered, Map)
    assert [load.buffer for load in loads(lowered.value)] == ["t0"]


def test_the_larger_scale_needs_no_multiplication() -> None:
    """x << 20 times a half, exactly, is x << 19: two requantisations remain of three (one, with equal scales)."""
    for right_scale, count in ((0.05, 1), (0.04, 2)):
        (lowered,) = primitives(binary("ADD", left_q=(0.05, -3), right_q=(right_scale, 4)))
        assert isinstance(lowered, Map)
        assert sum(isinstance(part, Requantise) for part in walk(lowered.value)) == count
        assert all(isinstance(part, Load) for part in loads(lowered.value))


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (binary("ADD", dtype="uint32"), "uint32 is not supported for 'in0'"),
        (binary("MUL", dtype="bool"), "bool is not supported for 'in0'"),
        (binary("ADD", dtype="int32", activation="RELU"), "the fused activation relu is not supported for int32"),
        (binary("SUB", dtype="int64", activation="TANH"), "the fused activation tanh is not supported"),
        (binary("ADD", activation="TANH"), "the fused activation tanh is not supported"),
        (binary("ADD", dtype="float32", activation="SIGN_BIT"), "the fused activation sign_bit is not supported"),
        (binary("ADD", output_q=(1e-9, 0)), "the output's scale 1e-09 is too small for inputs of scales 0.05 and 0.07"),
        (one_operator("ADD", [T((2,))], [T((2,))], {}), "has 1 inputs, not 2"),
        (
            one_operator("ADD", [T((2, 3)), T((4, 3))], [T((4, 3))], {}),
            "'in0' of shape 2x3 and 'in1' of shape 4x3 do not broadcast",
        ),
        (one_operator("ADD", [T((2,)), T((2,))], [T((2,))], {}), "'in0' is int8 without a scale and zero point"),
        (
            one_operator("ADD", [T((2,), "int8", 1.0), T((2,), "float32")], [T((2,), "int8", 1.0)], {}),
            "'in1' is float32 but 'in0' is int8",
        ),
        (
            one_operator("MUL", [T((2,), "int16", 1.0, 3), T((2,), "int16", 1.0)], [T((2,), "int16", 1.0)], {}),
            "int16 with a zero point that is not 0 is not supported",
        ),
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value)
    assert "node 0 " in str(caught.value) and "'out0'" in str(caught.value)
