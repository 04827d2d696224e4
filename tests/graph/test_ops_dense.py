"""FULLY_CONNECTED: numpy meaning and lowering against TFLite Micro; the primitive's form; what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.arithmetic import quantise_multiplier
from aot.graph.evaluate import requantise
from aot.graph.expr import Const, Load
from aot.graph.primitive import Contract, Geometry, Map
from tests.graph.lowered import agree, extremes, lower, primitives, read, sweep
from tests.one_operator import T, fully_connected, one_operator

FLOAT_BOUND = 1e-5
SHAPES = ((1, 1), (1, 3), (1, 16), (2, 7), (3, 5), (1, 1, 1, 8), (1, 2, 3, 4), (2, 1, 5))
LAYERS = {
    "input_shape": SHAPES,
    "units": (1, 2, 3, 5, 8, 17),
    "activation": ("NONE", "RELU", "RELU6", "RELU_N1_TO_1"),
    "bias": (True, False),
    "keep_num_dims": (False, True),
}
INT8 = {
    **LAYERS,
    "input_zero_point": (-128, -1, 0, 1, 127),
    "output_zero_point": (-128, -7, 0, 127),
    "output_scale": (0.4, 0.01, 0.0005, 0.00002, 3e4),
    "weight_scale": ("one", "each"),
}


def layer_of(case: dict) -> dict:
    return {name: case[name] for name in LAYERS if name not in ("input_shape", "units")}


@pytest.mark.parametrize("part", range(2))
def test_int8_equals_tflite_micro(part):
    """Rounded twice, as TFLite Micro does; LiteRT's kernel rounds once."""
    for number, case in enumerate(sweep(60, part, **INT8)):
        scales = np.random.default_rng(number).uniform(0.002, 0.02, case["units"]).astype(np.float32).tolist()
        model = fully_connected(
            case["input_shape"],
            case["units"],
            input_q=(0.05, case["input_zero_point"]),
            output_q=(case["output_scale"], case["output_zero_point"]),
            weight_scale=scales if case["weight_scale"] == "each" else scales[0],
            seed=number,
            **layer_of(case),
        )
        agree(model, *extremes(model, number))


def test_float_is_near_tflite_micro():
    for number, case in enumerate(sweep(40, 0, **LAYERS)):
        model = fully_connected(case["input_shape"], case["units"], dtype="float32", seed=number, **layer_of(case))
        agree(model, *extremes(model, number), bound=FLOAT_BOUND)


def test_the_product_of_scales_is_a_double():
    """Biases near the edge between two outputs, where the last bits of the multiplier show: in float32, some would differ."""
    rng = np.random.default_rng(7)
    differences = 0
    for input_scale, weight_scale in rng.uniform(0.01, 0.1, (10, 2)).astype(np.float32).tolist():
        output_scale = float(np.float32(input_scale * weight_scale * 5e6))
        edges = (rng.integers(-100, 100, 64) + 0.5) * (output_scale / (input_scale * weight_scale))
        biases = np.rint(edges) + rng.integers(-40, 41, 64)
        for scale in (weight_scale, [weight_scale] * 64):
            weights, bias = T((64, 4), "int8", scale, data=np.ones((64, 4))), T((64,), "int32", data=biases)
            model = dense_with(T((1, 4), "int8", input_scale, 5), weights, bias, T((1, 64), "int8", output_scale, 3))
            (found,) = agree(model, [np.full((1, 4), 5, np.int8)])
            single = float(np.float32(input_scale) * np.float32(weight_scale)) / output_scale
            rounded = requantise(biases.astype(np.int32), *quantise_multiplier(single))
            differences += int((np.clip(rounded + 3, -128, 127) != found).sum())
    assert differences > 0


@pytest.mark.parametrize(("first", "kept"), [(-6, 0), (-120, 0), (-128, 5)])
def test_weights_with_one_scale_may_have_a_zero_point(first, kept):
    """It is taken off at compile time where the differences are int8 themselves."""
    weights = T((3, 4), "int8", 0.01, 5, np.arange(first, first + 12).reshape(3, 4))
    model = dense_with(weights=weights, bias=None, output=T((2, 3), "int8", 0.001, 3))
    (contract,) = primitives(model)
    assert isinstance(contract, Contract) and contract.right_zero_point == kept
    agree(model)


@pytest.mark.parametrize(
    ("input_shape", "depth", "output_shape", "keep", "space", "window"),
    [
        ((2, 12), 4, (6, 3), False, (6, 3), (4,)),  # rows cut through a dimension: a flat copy
        ((3, 4, 2), 6, (4, 3), False, (4, 3), (6,)),
        ((2, 5, 4), 4, (2, 5, 3), True, (2, 5, 3), (4,)),
        ((2, 5, 4), 4, (10, 3), False, (2, 5, 3), (4,)),
        ((10, 4), 4, (2, 5, 3), False, (2, 5, 3), (4,)),
        ((2, 5, 4), 4, (5, 2, 3), False, (5, 2, 3), (4,)),  # other rows on each side: a flat copy
        ((2, 3, 2), 6, (2, 3), False, (2, 3), (3, 2)),
        ((2, 1, 3, 2), 6, (1, 2, 1, 3), False, (2, 3), (3, 2)),
        ((6,), 6, (3,), False, (1, 3), (6,)),
        ((4, 1), 1, (4, 3), False, (4, 3), (1,)),
    ],
)
def test_rows_of_any_shape(input_shape, depth, output_shape, keep, space, window):
    weights = T((3, depth), "int8", 0.01, 0, np.arange(3 * depth).reshape(3, depth) - 9)
    model = dense_with(T(input_shape, "int8", 0.05, -3), weights, output=T(output_shape, "int8", 0.02, 3), keep_num_dims=keep)
    contract = primitives(model)[-1]
    assert (contract.space, contract.window) == (space, window)
    agree(model)


# The primitive's form: what kernels rely on.


def test_lowers_to_one_contract_with_its_geometry():
    (contract,) = primitives(fully_connected((2, 16), 8))
    assert isinstance(contract, Contract)
    assert (contract.space, contract.window, contract.store) == ((2, 8), (16,), ())
    assert contract.geometry == Geometry("dense", (2, 1, 1, 16), (2, 1, 1, 8))
    assert contract.left.fill is None
    assert isinstance(contract.initial, Load)


def test_multipliers_have_one_element_per_output_channel():
    lowering = lower(read(fully_connected(units=5, weight_scale=0.01, bias=False)))
    assert {value.name: value.shape for value in lowering.values} == {"n0_multiplier": (5,), "n0_shift": (5,)}
    assert isinstance(lowering.primitives[0].initial, Const)


def test_rows_that_cut_a_dimension_are_copied_flat_first():
    copy, contract = primitives(dense_with(T((2, 12), "int8", 0.05, -3), output=T((6, 3), "int8", 0.02, 3)))
    assert isinstance(copy, Map)
    assert contract.left.buffer == copy.out


def test_weights_of_a_float_layer_may_be_computed_at_run_time():
    inputs = [T((2, 4), "float32"), T((3, 4), "float32"), T((3,), "float32")]
    agree(one_operator("FULLY_CONNECTED", inputs, [T((2, 3), "float32")], {}), bound=FLOAT_BOUND)


# What is refused.


INPUT, OUTPUT = T((2, 4), "int8", 0.05, -3), T((2, 3), "int8", 0.1, 3)


def dense_with(input: T = INPUT, weights: T | None = None, bias: T | None = None, output: T = OUTPUT, **options) -> bytes:
    return one_operator("FULLY_CONNECTED", [input, weights or weights_with(), bias], [output], options)


def weights_with(
    shape=(3, 4), dtype="int8", scale: float | list[float] | None = 0.01, zero_point=0, axis=0, data: float | None = 1.0
) -> T:
    return T(shape, dtype, scale, zero_point, None if data is None else np.full(shape, data), axis)


REFUSED = [
    (dense_with(T((2, 4), "int32", 0.05)), "int32 is not supported for 'in0' (supported: int8, uint8, int16, float32)"),
    (dense_with(T((2, 4), "float32"), weights_with(dtype="uint8")), "uint8 is not supported for 'in1'"),
    (dense_with(weights=weights_with(dtype="int16")), "int16 is not supported for 'in1' (supported: int8, int4)"),
    (dense_with(output=T((2, 3), "int16", 0.1)), "'out0' is int16 but 'in0' is int8"),
    (dense_with(weights=weights_with(data=None)), "the weights 'in1' must be constant"),
    (dense_with(bias=T((3,), "int64", data=np.zeros(3))), "int64 is not supported for 'in2'"),
    (dense_with(bias=T((4,), "int32", data=np.zeros(4))), "the bias 'in2' has 4 elements for 3 output channels"),
    (dense_with(T((2, 4), "int8")), "'in0' is int8 without a scale and zero point"),
    (dense_with(weights=weights_with(scale=[0.1, 0.1, 0.1], zero_point=1)), "have a zero point that is not 0"),
    (dense_with(weights=weights_with(scale=[0.1] * 4, axis=1)), "have 4 scales for 3 output channels"),
    (dense_with(weights=weights_with(scale=0)), "'in1' has scale 0"),
    (dense_with(output=T((2, 3), "int8", 1e-30)), "more than int32 arithmetic can"),
    (dense_with(weights_format=1), "shuffled weights (SHUFFLED4x16INT8) are not supported"),
    (dense_with(fused_activation_function="SIGN_BIT"), "the fused activation sign_bit is not supported"),
    (dense_with(T((2, 5), "int8", 0.05)), "an input of 10 elements does not divide into rows of the weights' 4"),
    (dense_with(T((4, 2), "int8", 0.05), keep_num_dims=True), "the input 4x2 must end with the weights' 4 channels"),
    (dense_with(weights=weights_with((3, 2, 2))), "'in1' has 3 dimensions, not 2"),
    (one_operator("FULLY_CONNECTED", [T((2, 4), "int8", 0.05)], [T((2, 3), "int8", 0.1)], {}), "has 1 inputs, not 2 or 3"),
]


@pytest.mark.parametrize(("model", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(model, message):
    with pytest.raises(CompileError, match=re.escape(message)) as error:
        read(model)
    assert "node 0 FULLY_CONNECTED 'out0'" in str(error.value)
