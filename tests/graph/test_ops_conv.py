"""CONV_2D and DEPTHWISE_CONV_2D: numpy meaning and lowering against TFLite Micro; the primitive's form; what is refused."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.expr import Acc, Binary, Cast, Const, Load, Requantise, text
from aot.graph.interpreter import run, run_all
from aot.graph.ir import DType
from aot.graph.primitive import Contract, Geometry
from tests.graph.lowered import agree, assert_near, extremes, lower, primitives, read, run_lowered, sweep
from tests.one_operator import T, conv2d, depthwise, one_operator, random_inputs

FLOAT_BOUND = 1e-5
"""Sums of up to 140 products in another order; terms may cancel."""
WINDOWS = {
    "batch": (1, 2),
    "height": (1, 2, 5, 6),
    "width": (1, 3, 4, 7),
    "kernel": ((1, 1), (1, 3), (3, 1), (2, 2), (3, 3), (5, 4)),
    "stride": ((1, 1), (2, 1), (2, 2), (1, 3), (4, 3)),
    "dilation": ((1, 1), (1, 1), (2, 1), (2, 3)),
    "padding": ("SAME", "VALID"),
    "activation": ("NONE", "RELU", "RELU6", "RELU_N1_TO_1"),
    "bias": (True, False),
}
ZERO_POINTS = {"input_zero_point": (-128, -1, 0, 1, 127), "output_zero_point": (-128, -7, 0, 127)}
OUTPUT_SCALES = (0.4, 0.01, 0.0005, 0.00002, 3e4)
"""With inputs at 0.05 and weights around 0.01: multipliers about 1e-3, 0.05, 1, 25 and 2e-8."""


def fits(case: dict) -> bool:
    spans = [(k - 1) * d + 1 for k, d in zip(case["kernel"], case["dilation"])]
    return case["padding"] == "SAME" or (case["height"] >= spans[0] and case["width"] >= spans[1])


def window_of(case: dict) -> dict:
    return {name: case[name] for name in ("kernel", "stride", "dilation", "padding", "activation", "bias")}


def quantised_of(case: dict) -> dict:
    return {
        "input_q": (0.05, case["input_zero_point"]),
        "output_q": (case["output_scale"], case["output_zero_point"]),
        "weight_scale": case["weight_scale"],
    }


INT8 = {**WINDOWS, **ZERO_POINTS, "output_scale": OUTPUT_SCALES, "weight_scale": (None, 0.01)}
CONVOLUTIONS = {"channels": (1, 2, 3, 5, 7), "filters": (1, 2, 3, 5, 8), "groups": (1, 1, 1, 2, 3)}
DEPTHWISE = {"channels": (1, 2, 3, 5, 7), "multiplier": (1, 1, 2, 3)}


@pytest.mark.parametrize("part", range(4))
def test_conv_int8_equals_tflite_micro(part):
    for number, case in enumerate(sweep(40, part, **INT8, **CONVOLUTIONS)):
        if fits(case):
            shape = (case["batch"], case["height"], case["width"], case["channels"] * case["groups"])
            filters = case["filters"] * case["groups"]
            model = conv2d(shape, filters, groups=case["groups"], seed=number, **window_of(case), **quantised_of(case))
            agree(model, *extremes(model, number))


@pytest.mark.parametrize("part", range(2))
def test_conv_float_is_near_tflite_micro(part):
    for number, case in enumerate(sweep(20, part, **WINDOWS, **CONVOLUTIONS)):
        if fits(case):
            shape = (case["batch"], case["height"], case["width"], case["channels"] * case["groups"])
            model = conv2d(
                shape, case["filters"] * case["groups"], groups=case["groups"], dtype="float32", seed=number, **window_of(case)
            )
            agree(model, *extremes(model, number), bound=FLOAT_BOUND)


@pytest.mark.parametrize("part", range(4))
def test_depthwise_int8_equals_tflite_micro(part):
    for number, case in enumerate(sweep(40, part, **INT8, **DEPTHWISE)):
        if fits(case):
            shape = (case["batch"], case["height"], case["width"], case["channels"])
            model = depthwise(shape, case["multiplier"], seed=number, **window_of(case), **quantised_of(case))
            agree(model, *extremes(model, number))


def test_depthwise_float_is_near_tflite_micro():
    for number, case in enumerate(sweep(30, 0, **WINDOWS, **DEPTHWISE)):
        if fits(case):
            shape = (case["batch"], case["height"], case["width"], case["channels"])
            model = depthwise(shape, case["multiplier"], dtype="float32", seed=number, **window_of(case))
            agree(model, *extremes(model, number), bound=FLOAT_BOUND)


@pytest.mark.parametrize("bias", [(1 << 31) - 1, -(1 << 31), 1 << 30])
@pytest.mark.parametrize("output_scale", [0.5, 0.001, 0.00001])
def test_conv_with_an_accumulator_at_the_edge_of_int32(bias, output_scale):
    biases = np.array([bias, bias - np.sign(bias) * 40000], np.int64)
    agree(conv_with(bias=T((2,), "int32", data=biases), output=T((1, 2, 2, 2), "int8", output_scale, 3)))


@pytest.mark.parametrize("scales", ["one", "each"])
def test_conv_multipliers_are_exact_to_the_last_bit(scales):
    """Biases near the edge between two outputs, where the last bits of the multiplier show."""
    rng = np.random.default_rng(7)
    for input_scale, *weight_scales in rng.uniform(0.01, 0.1, (10, 65)).astype(np.float32).tolist():
        weight_scales = weight_scales if scales == "each" else weight_scales[:1]
        products = input_scale * np.array(weight_scales)
        output_scale = float(np.float32(products.min() * 1e7))
        edges = (rng.integers(-100, 100, 64) + 0.5) * output_scale / products
        bias = T((64,), "int32", data=np.rint(edges) + rng.integers(-40, 41, 64))
        weights = T((64, 1, 1, 3), "int8", weight_scales, data=np.ones((64, 1, 1, 3)))
        input, output = T((1, 1, 1, 3), "int8", input_scale, 5), T((1, 1, 1, 64), "int8", output_scale, 3)
        agree(conv_with(input=input, weights=weights, bias=bias, output=output), [np.full((1, 1, 1, 3), 5, np.int8)])


def test_a_pruned_channel_has_scale_0_and_gives_the_zero_point():
    weights = np.ones((2, 1, 1, 3), np.int8)
    weights[1] = 0
    out = agree(conv_with(weights=T((2, 1, 1, 3), "int8", [0.01, 0.0], data=weights), bias=T((2,), "int32", data=[5, 7])))[0]
    assert (out[..., 1] == 3).all()


def test_a_bias_without_elements_is_none():
    graph = read(conv_with(bias=T((0,), "int32", data=np.zeros(0))))
    assert isinstance(lower(graph).primitives[0].initial, Const)


# The primitive's form: what kernels rely on.


def test_conv_lowers_to_one_contract_with_its_geometry():
    (contract,) = primitives(conv2d((2, 6, 5, 4), 8, (3, 2), stride=(2, 1), dilation=(1, 2), activation="RELU"))
    assert isinstance(contract, Contract)
    assert (contract.space, contract.window, contract.store) == ((2, 3, 5, 8), (3, 2, 4), ())
    assert contract.geometry == Geometry("conv", (2, 6, 5, 4), (2, 3, 5, 8), (3, 2), (2, 1), (1, 2), 0, 1)
    assert (contract.left_zero_point, contract.right_zero_point) == (-3, 0)
    assert contract.left.fill == Const(-3, DType.INT8)
    assert text(contract.result) == ("int8(min(max(add(requantise(acc, %n0_multiplier[i3], %n0_shift[i3]), 5), 5), 127))")
    match contract.result:
        case Cast(
            Binary("min", Binary("max", Binary("add", Requantise(Acc(), Load(), Load()), Const()), Const()), Const()), DType.INT8
        ):
            pass
        case _:
            pytest.fail("kernels match this form")


def test_multipliers_have_one_element_per_output_channel_also_for_one_scale():
    lowering = lower(read(conv2d(filters=8, weight_scale=0.01)))
    assert {value.name: value.shape for value in lowering.values} == {"n0_bias": (8,), "n0_multiplier": (8,), "n0_shift": (8,)}


def test_a_window_that_stays_inside_needs_no_fill():
    assert primitives(conv2d(padding="VALID"))[0].left.fill is None
    assert primitives(conv2d(kernel=(1, 1), stride=(2, 2)))[0].left.fill is None
    assert primitives(conv2d((1, 6, 1, 4), kernel=(1, 3)))[0].left.fill is not None


def test_groups_and_depthwise_have_a_space_of_five_axes():
    grouped = primitives(conv2d((1, 4, 4, 6), 9, groups=3))[0]
    assert (grouped.space, grouped.window) == ((1, 4, 4, 3, 3), (3, 3, 2))
    assert grouped.geometry.groups == 3
    assert ", ".join(map(str, grouped.store)) == "i0, i1, i2, 3*i3 + i4"
    spread = primitives(depthwise((1, 4, 4, 5), 2))[0]
    assert (spread.space, spread.window) == ((1, 4, 4, 5, 2), (3, 3))
    assert (spread.geometry.kind, spread.geometry.multiplier, spread.geometry.output) == ("depthwise", 2, (1, 4, 4, 10))
    assert str(spread.store[3]) == "2*i3 + i4"
    plain = primitives(depthwise((1, 4, 4, 5), 1))[0]
    assert (plain.space, str(plain.store[3])) == ((1, 4, 4, 5, 1), "i3")


def test_explicit_padding_is_padding_with_real_0():
    """What folding a PAD into a convolution gives."""
    graph = read(conv2d((1, 4, 5, 2), 3, padding="VALID", stride=(2, 1)))
    padded = read(conv2d((1, 9, 7, 2), 3, padding="VALID", stride=(2, 1)))
    node = replace(graph.nodes[0], attributes=replace(graph.nodes[0].attributes, padding=(2, 3, 0, 2)))
    output = replace(graph[graph.outputs[0]], shape=padded[padded.outputs[0]].shape)
    values = tuple(output if value.name == output.name else value for value in graph.values)
    folded = replace(graph, nodes=(node,), values=values)
    (x,) = random_inputs(conv2d((1, 4, 5, 2)))
    arrays = run_all(folded, [x])
    wide = np.pad(x, ((0, 0), (2, 3), (0, 2), (0, 0)), constant_values=-3)
    assert (arrays[output.name] == run(padded, [wide])[0]).all()
    assert_near(run_lowered(folded, arrays)[output.name], arrays[output.name], "lowered and computed")


# What is refused.

INPUT, WEIGHTS = T((1, 2, 2, 3), "int8", 0.05, -3), T((2, 1, 1, 3), "int8", [0.01, 0.02], data=np.ones((2, 1, 1, 3)))
BIAS, OUTPUT = T((2,), "int32", data=np.zeros(2)), T((1, 2, 2, 2), "int8", 0.1, 3)
OPTIONS = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}


def conv_with(op="CONV_2D", input=INPUT, weights=WEIGHTS, bias: T | None = BIAS, output=OUTPUT, **options) -> bytes:
    return one_operator(op, [input, weights, bias], [output], {**OPTIONS, **options})


def weights_with(shape=(2, 1, 1, 3), dtype="int8", scale=(0.01, 0.02), zero_point=0, axis=0, data: float | None = 1.0) -> T:
    return T(shape, dtype, scale, zero_point, None if data is None else np.full(shape, data), axis)


FLOAT = {"input": T((1, 2, 2, 3), "float32"), "output": T((1, 2, 2, 2), "float32")}
REFUSED = [
    (conv_with(input=T((1, 2, 2, 3), "int32", 0.05)), "int32 is not supported for 'in0' (supported: int8, uint8, int16, float32)"),
    (conv_with(input=T((1, 2, 2, 3), "uint8", 0.05)), "int8 is not supported for 'in1' (supported: uint8)"),
    (conv_with(**FLOAT), "int32 is not supported for 'in2' (supported: float32)"),
    (conv_with(weights=weights_with(dtype="int16")), "int16 is not supported for 'in1' (supported: int8, int4)"),
    (conv_with(output=T((1, 2, 2, 2), "int16", 0.1)), "'out0' is int16 but 'in0' is int8"),
    (conv_with(bias=T((2,), "int64", data=np.zeros(2))), "int64 is not supported for 'in2' (supported: int32)"),
    (conv_with(bias=T((2,), "float32", data=np.zeros(2))), "float32 is not supported for 'in2' (supported: int32)"),
    (conv_with(bias=T((3,), "int32", data=np.zeros(3))), "the bias 'in2' has 3 elements for 2 output channels"),
    (conv_with(bias=T((2,), "int32")), "the bias 'in2' must be constant"),
    (conv_with(weights=weights_with(data=None)), "the weights 'in1' must be constant"),
    (conv_with(input=T((1, 2, 2, 3), "int8")), "'in0' is int8 without a scale and zero point"),
    (conv_with(output=T((1, 2, 2, 2), "int8")), "'out0' is int8 without a scale and zero point"),
    (conv_with(weights=weights_with(scale=None)), "'in1' is int8 without a scale and zero point"),
    (conv_with(input=T((1, 2, 2, 3), "int8", (0.1, 0.1, 0.1), axis=3)), "'in0' has 3 scales; only weights may have more than one"),
    (conv_with(weights=weights_with(zero_point=1)), "the weights 'in1' have a zero point that is not 0"),
    (conv_with(weights=weights_with(scale=(0.1, 0.1, 0.1), axis=3)), "the weights 'in1' have 3 scales for 2 output channels"),
    (conv_with(weights=weights_with(scale=(0.1, 0))), "the weights 'in1' have scale 0 for output channel 1"),
    (conv_with(weights=weights_with(scale=0)), "the weights 'in1' have scale 0 for output channel 0"),
    (conv_with(output=T((1, 2, 2, 2), "int8", 1e-30)), "more than int32 arithmetic can"),
    (
        conv_with(output=T((1, 2, 2, 2), "int8", 1e-10), fused_activation_function="RELU6"),
        "is too small for the fused activation relu6",
    ),
    (conv_with(fused_activation_function="TANH"), "the fused activation tanh is not supported"),
    (
        conv_with(**FLOAT, weights=weights_with(dtype="float32", scale=None), bias=None, fused_activation_function=17),
        "activation 17",
    ),
    (conv_with(stride_h=0), "stride 0x1 and dilation 1x1 must be at least 1"),
    (conv_with(dilation_w_factor=0), "dilation 1x0 must be at least 1"),
    (conv_with(padding=3), "padding 3 is not supported (supported: same, valid)"),
    (
        conv_with(weights=weights_with((2, 3, 1, 3)), padding="VALID"),
        "the kernel 3x1 with dilation 1x1 is larger than the input 2x2",
    ),
    (
        conv_with(weights=weights_with((2, 1, 2, 3)), padding="VALID", dilation_w_factor=2),
        "the kernel 1x2 with dilation 1x2 is larger",
    ),
    (conv_with(weights=weights_with((2, 2, 1, 3)), dilation_h_factor=1 << 30), "spans 1073741825 elements, more than 16777216"),
    (conv_with(weights=weights_with((2, 1, 1, 2))), "the input has 3 channels, which the weights' 2 do not divide"),
    (conv_with(weights=weights_with((2, 1, 1, 1)), bias=None), "2 output channels do not divide into 3 groups"),
    (conv_with(input=T((2, 2, 3), "int8", 0.05)), "'in0' has 3 dimensions, not 4"),
    (conv_with(weights=weights_with((2, 3))), "'in1' has 2 dimensions, not 4"),
    (one_operator("CONV_2D", [INPUT], [OUTPUT], OPTIONS), "has 1 inputs, not 2 or 3"),
    (one_operator("CONV_2D", [INPUT, None], [OUTPUT], OPTIONS), "input 1 is missing"),
    (one_operator("CONV_2D", [INPUT, WEIGHTS, BIAS], [OUTPUT]), "stride 0x0"),
    (conv_with("DEPTHWISE_CONV_2D"), "weights of shape 2x1x1x3 do not fit an input of 3 channels"),
    (conv_with("DEPTHWISE_CONV_2D", weights=weights_with((1, 1, 1, 4), scale=0.1)), "weights of shape 1x1x1x4 do not fit"),
    (conv_with("DEPTHWISE_CONV_2D", weights=weights_with((1, 1, 1, 3), scale=0.1)), "has 2 elements for 3 output channels"),
]


@pytest.mark.parametrize(("model", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(model, message):
    with pytest.raises(CompileError, match=re.escape(message)) as error:
        read(model)
    assert re.search(r"node 0 (DEPTHWISE_)?CONV_2D 'out0'", str(error.value))
