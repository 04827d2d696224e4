"""CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED in types other than int8 and float32: against TFLite Micro, or LiteRT where it lacks them.

`agree` compares compute, lowering and the oracle; compiled code is compared with compute. Refusals are at the end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from aot.driver import Options, compile_model, resolve_target
from aot.errors import CompileError
from aot.graph.arithmetic import quantise_multiplier
from aot.graph.evaluate import requantise
from aot.graph.expr import walk
from aot.graph.interpreter import run
from aot.graph.ir import DType, Model
from aot.graph.ops.rounded_once import RoundedOnce
from aot.graph.primitive import Contract
from aot.run import run_bundle
from tests.builder import ModelBuilder
from tests.graph.lowered import Oracle, agree, assert_near, extremes, primitives, read, sweep
from tests.graph.test_ops_conv import CONVOLUTIONS, DEPTHWISE, WINDOWS, fits, window_of
from tests.one_operator import T, conv2d, depthwise, fully_connected, one_operator
from tests.oracle import litert_runs, tflm_runs

FLOAT_BOUND = 1e-6
DENSE = {
    "input_shape": ((1, 1), (1, 3), (1, 16), (2, 7), (3, 5), (1, 1, 1, 8), (1, 2, 3, 4), (2, 1, 5), (1, 70)),
    "units": (1, 2, 3, 5, 8, 17),
    "activation": ("NONE", "RELU", "RELU6", "RELU_N1_TO_1"),
    "bias": (True, False),
    "keep_num_dims": (False, True),
}
OUTPUT_SCALES = (0.4, 0.01, 0.0005, 0.00002, 3e4)
OUTPUT_SCALES_16 = (0.01, 0.0005, 0.00002, 0.000005, 0.4)
"""With int16 inputs at 0.001 and weights around 0.01: multipliers from 2 to 2.5e-5."""


def conv_of(case: dict, seed: int, **fields) -> bytes:
    shape = (case["batch"], case["height"], case["width"], case["channels"] * case["groups"])
    return conv2d(shape, case["filters"] * case["groups"], groups=case["groups"], seed=seed, **window_of(case), **fields)


def depthwise_of(case: dict, seed: int, **fields) -> bytes:
    shape = (case["batch"], case["height"], case["width"], case["channels"])
    return depthwise(shape, case["multiplier"], seed=seed, **window_of(case), **fields)


def dense_of(case: dict, seed: int, **fields) -> bytes:
    fields |= {name: case[name] for name in ("activation", "bias", "keep_num_dims")}
    return fully_connected(case["input_shape"], case["units"], seed=seed, **fields)


FAMILIES = {
    "conv": ({**WINDOWS, **CONVOLUTIONS}, conv_of),
    "depthwise": ({**WINDOWS, **DEPTHWISE}, depthwise_of),
    "dense": (DENSE, dense_of),
}


def compare(family: str, count: int, oracle: Oracle, choices: dict, model_of, bound: float = 0.0, seed: int = 0) -> None:
    """A sweep over a family's shapes; `model_of(case, number)` gives further fields of the model. LiteRT's CONV_2D wants a bias."""
    shapes, build = FAMILIES[family]
    for number, case in enumerate(sweep(count, seed, **shapes, **choices)):
        if family != "dense" and not fits(case):
            continue
        if oracle is litert_runs and family == "conv":
            case["bias"] = True
        model = build(case, number, **model_of(case, number))
        agree(model, *extremes(model, number), bound=bound, oracle=oracle)


@pytest.mark.parametrize("family", FAMILIES)
def test_uint8(family: str) -> None:
    choices = {
        "in_zero": (0, 1, 128, 255),
        "out_zero": (0, 120, 255),
        "weight_zero": (0, 7, 128, 255),
        "output_scale": OUTPUT_SCALES,
    }

    def fields(case: dict, number: int) -> dict:
        return {
            "dtype": "uint8",
            "input_q": (0.05, case["in_zero"]),
            "output_q": (case["output_scale"], case["out_zero"]),
            "weight_scale": float(np.random.default_rng(number).uniform(0.002, 0.02)),
            "weight_zero_point": case["weight_zero"],
        }

    compare(family, 60, litert_runs, choices, fields)


INT16_BIAS = [(family, bias) for family in FAMILIES for bias in ("int64", "int32") if (family, bias) != ("depthwise", "int32")]


@pytest.mark.parametrize(("family", "bias_dtype"), INT16_BIAS)
def test_int16(family: str, bias_dtype: str) -> None:
    choices = {"output_scale": OUTPUT_SCALES_16, "per_channel": (True, False)}

    def fields(case: dict, number: int) -> dict:
        scale = np.random.default_rng(number).uniform(0.002, 0.02, case["units"]).tolist() if family == "dense" else None
        return {
            "dtype": "int16",
            "weights_dtype": "int8",
            "bias_dtype": bias_dtype,
            "input_q": (0.001, 0),
            "output_q": (case["output_scale"], 0),
            "weight_scale": scale if case["per_channel"] else 0.01,
        }

    compare(family, 60, tflm_runs, choices, fields)


@pytest.mark.parametrize("family", FAMILIES)
def test_int4_weights(family: str) -> None:
    """FULLY_CONNECTED with a scale for each channel is LiteRT's alone, which rounds once."""
    choices = {"in_zero": (-128, -1, 0, 127), "out_zero": (-128, 3, 127), "output_scale": OUTPUT_SCALES}

    def fields(case: dict, number: int) -> dict:
        scale = 0.01 if family == "dense" else (None, 0.01)[number % 2]
        zeros = {"input_q": (0.05, case["in_zero"]), "output_q": (case["output_scale"], case["out_zero"])}
        return {"weights_dtype": "int4", "weight_scale": scale, **zeros}

    compare(family, 40, tflm_runs, choices, fields)


def test_int4_weights_of_a_dense_layer_per_channel() -> None:
    choices = {"in_zero": (-128, -1, 0, 127), "out_zero": (-128, 3, 127), "output_scale": OUTPUT_SCALES}

    def fields(case: dict, number: int) -> dict:
        zeros = {"input_q": (0.05, case["in_zero"]), "output_q": (case["output_scale"], case["out_zero"])}
        return {"weights_dtype": "int4", "weight_scale": None, **zeros}

    compare("dense", 40, litert_runs, choices, fields)


def contract_of(model: bytes) -> Contract:
    found = primitives(model)[-1]
    assert isinstance(found, Contract)
    return found


@pytest.mark.parametrize("op", ["CONV_2D", "DEPTHWISE_CONV_2D"])
def test_uint8_rounds_the_product_of_scales_to_float32(op: str) -> None:
    """Biases near the edge between two outputs, where the last bits of the multiplier show; a double would give others."""
    rng, differences = np.random.default_rng(7), 0
    shape = (64, 1, 1, 1) if op == "CONV_2D" else (1, 1, 1, 64)
    options = {"stride_h": 1, "stride_w": 1, "padding": "VALID"} | ({} if op == "CONV_2D" else {"depth_multiplier": 64})
    for scale, weight_scale in rng.uniform(0.01, 0.1, (10, 2)).astype(np.float32):
        product = float(scale) * float(weight_scale)
        out_scale = float(np.float32(product * 5e6))
        bias = np.rint((rng.integers(-100, 100, 64) + 0.5) * out_scale / product) + rng.integers(-40, 41, 64)
        weights = T(shape, "uint8", float(weight_scale), 7, np.full(shape, 8))
        specs = [T((1, 1, 1, 1), "uint8", float(scale), 3), weights, T((64,), "int32", product, 0, bias)]
        model = one_operator(op, specs, [T((1, 1, 1, 64), "uint8", out_scale, 120)], options)
        (found,) = agree(model, [np.full((1, 1, 1, 1), 3, np.uint8)], oracle=litert_runs)
        other = requantise(bias.astype(np.int32), *quantise_multiplier(product / out_scale)) + 120
        differences += int((np.clip(other, 0, 255) != found).sum())
    assert differences > 0


# int16: sums of 64 bits.


def dense16(columns: int, weight: int, bias: T | None = None, output_scale: float = 1.0, **options) -> bytes:
    """Two rows of int16, three units with all weights the same but for their sign; by default the multiplier is 2^-10."""
    weights = np.full((3, columns), weight)
    weights[1] *= -1
    specs = [T((2, columns), "int16", 1.0), T((3, columns), "int8", 2.0**-10, data=weights), bias]
    return one_operator("FULLY_CONNECTED", specs, [T((2, 3), "int16", output_scale)], options)


@pytest.mark.parametrize(
    ("columns", "weight", "sums"),
    [(512, 127, "int32"), (513, 127, "int32"), (516, 127, "int32"), (517, 127, "int64"), (600, 127, "int64"), (600, 3, "int32")],
)
@pytest.mark.parametrize("output_scale", [1.0, 300.0])
def test_int16_sums_are_int32_where_none_can_leave_it(columns: int, weight: int, sums: str, output_scale: float) -> None:
    model = dense16(columns, weight, output_scale=output_scale)
    assert contract_of(model).initial.dtype is DType(sums)
    agree(model, *extremes(model))


@pytest.mark.parametrize(
    ("bias", "sums"),
    [
        ([(1 << 31) - 1 - (100 * 127 << 15), 0, 5], "int32"),
        ([(1 << 31) - (100 * 127 << 15), 0, 5], "int64"),
        ([1 << 31, -(1 << 40), 1 << 40], "int64"),
        ([(1 << 46) - (1 << 33), -(1 << 46), 0], "int64"),
    ],
)
def test_int16_biases_count_for_the_reach_of_sums(bias: Sequence[int], sums: str) -> None:
    model = dense16(100, 127, T((3,), "int64", data=np.array(bias, np.int64)), output_scale=1e5)
    assert contract_of(model).initial.dtype is DType(sums)
    agree(model, *extremes(model))


@pytest.mark.parametrize(("type", "sums"), [(2, "int32"), (4, "int64"), (0, "int64")])
def test_int16_without_a_bias_adds_up_in_what_the_options_say(type: int, sums: str) -> None:
    """In int32 the sums of 600 columns wrap."""
    model = dense16(600, 127, quantized_bias_type=type, output_scale=200.0)
    assert contract_of(model).initial.dtype is DType(sums)
    agree(model, extremes(model)[-1])
    options = {"stride_h": 1, "stride_w": 1, "padding": "VALID", "quantized_bias_type": type}
    specs = [T((1, 1, 2, 600), "int16", 1.0), T((2, 1, 1, 600), "int8", 2.0**-10, data=np.full((2, 1, 1, 600), 127))]
    model = one_operator("CONV_2D", specs, [T((1, 1, 2, 2), "int16", 200.0)], options)
    assert contract_of(model).initial.dtype is DType(sums)
    agree(model, extremes(model)[-1])


@pytest.mark.parametrize("bias_dtype", ["int64", "int32"])
@pytest.mark.parametrize("output_scale", [2.0**-16, 2.0**-14, 1.0, 2.0**11, 2.0**20, 2.0**22, 1e30])
def test_int16_multipliers_of_every_size(bias_dtype: str, output_scale: float) -> None:
    """2^-10 / output scale: from 2^6, near the largest that 64-bit rescaling can, to what is rounded down to 0."""
    agree(model := dense16(7, 127, T((3,), bias_dtype, 2.0**-10, data=[5, -5, 100]), output_scale), *extremes(model))


def test_int16_multipliers_are_rounded_to_16_bits() -> None:
    """Which shows in results that a 31-bit multiplier would not give."""
    model = conv2d((1, 4, 4, 3), 40, (1, 1), dtype="int16", weights_dtype="int8", input_q=(0.001, 0), output_q=(0.00003, 0))
    (found,) = agree(model, *extremes(model))
    (other,) = agree(
        conv2d(
            (1, 4, 4, 3),
            40,
            (1, 1),
            dtype="int16",
            weights_dtype="int8",
            input_q=(0.001, 0),
            output_q=(0.00003, 0),
            bias_dtype="int32",
        )
    )
    assert (found != other).any() and np.abs(found.astype(int) - other).max() <= 4


def test_int16_channels_of_very_different_scales_have_shifts_of_their_own() -> None:
    scales = [2.0**-30, 2.0**-1, 0.0, 0.01]
    weights = np.random.default_rng(0).integers(-127, 128, (4, 1, 1, 6))
    weights[2] = 0
    bias = T((4,), "int64", data=np.array([1 << 36, -7, 9, 100], np.int64))
    for biases in (bias, T((4,), "int64", data=[100, -7, 9, 100])):
        specs = [T((1, 2, 3, 6), "int16", 1.0), T(weights.shape, "int8", scales, data=weights), biases]
        options = {"stride_h": 1, "stride_w": 1, "padding": "VALID"}
        agree(model := one_operator("CONV_2D", specs, [T((1, 2, 3, 4), "int16", 64.0)], options), *extremes(model))


# Weights.


def test_int4_weights_become_int8_so_that_kernels_for_int8_take_them() -> None:
    model = conv2d((1, 6, 6, 4), 8, weights_dtype="int4")
    graph = read(model)
    contract = contract_of(model)
    assert contract.right.dtype is DType.INT8 and contract.right.buffer == "n0_weights"
    assert kernels(model, "cortex-m4") == [("conv 3x3", "a 3x3 kernel, not 1x1")]
    assert graph["t1"].dtype is DType.INT4


def kernels(model: bytes, target: str) -> list[tuple[str, str]]:
    """For each instruction the kernel, and why the first one declined of those that are for the target."""
    seen = []
    chosen, backend = resolve_target(Options(target=target))
    observe = lambda stage, result: seen.extend(result.choices if stage == "schedule" else ())  # noqa: E731
    compile_model(Model("model", (read(model),)), chosen, backend, Options(target=target), observe)
    declined = [[text for _, text in choice.declined if not text.startswith(f"{target} has ")] for choice in seen]
    return [(choice.implementation.kernel, texts[0] if texts else "") for choice, texts in zip(seen, declined, strict=True)]


def test_kernels_for_int8_decline_other_types() -> None:
    """Activations of int16 beside weights of int8, whose sums do not become int16 at once."""
    model = conv2d((1, 6, 6, 4), 8, dtype="float32", weights_dtype="int8")
    assert kernels(model, "cortex-m4")[-1] == ("generic contract", "its result does not begin with a requantisation to int16")


def test_kernels_take_symmetric_hybrid_layers() -> None:
    """Their int8 activations and weights make sums, which a Map goes on with."""
    model = conv2d((1, 6, 6, 4), 8, dtype="float32", weights_dtype="int8", weight_scale=0.01)
    assert [kernel for kernel, _ in kernels(model, "cortex-m4")][-2:] == ["conv 3x3", "generic map"]


@pytest.mark.parametrize("bias_dtype", ["int64", "int32"])
def test_kernels_take_int16(bias_dtype: str) -> None:
    model = conv2d((1, 6, 6, 4), 8, dtype="int16", weights_dtype="int8", bias_dtype=bias_dtype)
    assert kernels(model, "cortex-m4")[0][0] == "conv 3x3"


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
def test_a_bias_without_elements_is_none(dtype: str) -> None:
    """LiteRT and TFLite Micro read past such a bias; -1 means the same to TFLite Micro."""
    empty = T((0,), {"uint8": "int32", "int16": "int64"}.get(dtype, dtype), data=np.zeros(0))
    scale = None if dtype == "float32" else 0.01
    weights = T((3, 4), "uint8" if dtype == "uint8" else "int8", 0.01, data=np.arange(12).reshape(3, 4))
    found = [
        run(read(one_operator("FULLY_CONNECTED", [T((2, 4), dtype, scale), weights, bias], [T((2, 3), dtype, scale)], {})), [data])
        for data in [np.arange(8).reshape(2, 4).astype(dtype)]
        for bias in (empty, None)
    ]
    assert (found[0][0] == found[1][0]).all() and found[0][0].any()


def test_integers_instead_of_doubles_where_they_give_the_same() -> None:
    """LiteRT's FULLY_CONNECTED rounds a double; 8 bits of output can be had from a multiplication of integers."""
    rng = np.random.default_rng(1)
    found = 0
    for number in range(40):
        scales = rng.uniform(1e-4, 0.3, (1, 8)[number % 2]) * float(np.float32(0.37))
        if number % 5 == 0:  # ties
            scales = np.ldexp(1.0, rng.integers(-12, -3, len(scales)))
        ending = RoundedOnce(scales, 0, 0, int(rng.integers(-128, 128)), -128, 127, DType.INT8)
        fixed = ending.fixed_point()
        if fixed is None:
            continue
        found += 1
        near = np.rint((rng.integers(-260, 260, (1000, len(scales))) + 0.5) / scales) + rng.integers(-1, 2, (1000, len(scales)))
        sums = np.concatenate([near.astype(np.int64), rng.integers(-(1 << 31), 1 << 31, (1000, len(scales)))])
        want = ending.finish(sums.astype(np.float64), None)
        assert (np.clip(fixed.array(sums) + ending.zero_point, -128, 127) == want).all()
    assert found > 20


@pytest.mark.parametrize("scale", [0.7, 3.0])
def test_doubles_where_integers_do_not(scale: float) -> None:
    model = fully_connected(
        (3, 9), 4, weights_dtype="int4", weight_scale=[scale, scale / 3, scale / 1e6, scale], input_q=(0.1, 3), output_q=(0.1, -4)
    )
    assert any(node.dtype is DType.FLOAT64 for node in walk(contract_of(model).result))
    agree(model, *extremes(model), oracle=litert_runs)


@pytest.mark.parametrize("fields", [{"dtype": "int16", "weights_dtype": "int8", "input_q": (0.05, 0)}, {"weights_dtype": "int4"}])
def test_pruned_channels(fields: dict) -> None:
    weights = np.random.default_rng(3).integers(-8, 8, (3, 2, 2, 4))
    weights[1] = 0
    dtype = fields.get("dtype", "int8")
    specs = [T((1, 4, 4, 4), dtype, 0.05, 0), T(weights.shape, fields["weights_dtype"], [0.1, 0.0, 0.2], data=weights)]
    bias = T((3,), "int64" if dtype == "int16" else "int32", data=[4, 5, 6])
    options = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
    (out,) = agree(model := one_operator("CONV_2D", [*specs, bias], [T((1, 4, 4, 3), dtype, 0.3)], options), *extremes(model))
    assert not out[..., 1].any()


@pytest.mark.parametrize("family", FAMILIES)
def test_float16_weights_become_float32_at_compile_time(family: str) -> None:
    """Weights and bias behind DEQUANTIZE, as converters write them."""
    shape = {"conv": (4, 2, 2, 3), "depthwise": (1, 2, 2, 3), "dense": (4, 3)}[family]
    channels = 3 if family == "depthwise" else 4
    rng, m = np.random.default_rng(2), ModelBuilder()
    x = m.tensor("x", (2, 3) if family == "dense" else (1, 4, 4, 3), "float32")
    y = m.tensor("y", (2, 4) if family == "dense" else (1, 4, 4, channels), "float32")
    wide = []
    for name, dims in (("weights", shape), ("bias", (channels,))):
        half = m.tensor(name, dims, "float16", data=rng.normal(size=dims).astype(np.float16))
        wide.append(m.tensor(f"{name}32", dims, "float32"))
        m.operator("DEQUANTIZE", [half], [wide[-1]])
    op = {"conv": "CONV_2D", "depthwise": "DEPTHWISE_CONV_2D", "dense": "FULLY_CONNECTED"}[family]
    m.operator(op, [x, *wide], [y], {} if family == "dense" else {"stride_h": 1, "stride_w": 1, "padding": "SAME"})
    model = m.build([x], [y])
    agree(model, oracle=litert_runs)
    assert [kernel for kernel, _ in kernels(model, "cortex-m0")] == ["generic contract"]


# Compiled code.

COMPILED = {
    "uint8 conv": conv2d((2, 6, 5, 4), 6, groups=2, dtype="uint8", input_q=(0.05, 3), weight_scale=0.01, weight_zero_point=128),
    "uint8 depthwise": depthwise((1, 6, 5, 3), 2, dtype="uint8", input_q=(0.05, 3), weight_scale=0.01, weight_zero_point=9),
    "uint8 dense": fully_connected((2, 40), 4, dtype="uint8", input_q=(0.05, 3), output_q=(0.1, 120), weight_zero_point=128),
    "int16 conv": conv2d((1, 6, 5, 4), 6, groups=2, dtype="int16", weights_dtype="int8", output_q=(0.01, 0)),
    "int16 depthwise": depthwise((1, 6, 5, 3), 2, dtype="int16", weights_dtype="int8", output_q=(0.01, 0)),
    "int16 dense, int32 bias": fully_connected((2, 40), 4, dtype="int16", weights_dtype="int8", bias_dtype="int32"),
    "int16 dense, int64 sums": dense16(600, 127, output_scale=300.0),
    "int4 conv": conv2d((1, 6, 5, 4), 6, weights_dtype="int4"),
    "int4 dense": fully_connected((2, 40), 3, weights_dtype="int4", weight_scale=[0.01, 0.2, 0.03]),
    "int4 dense in doubles": fully_connected((2, 40), 3, weights_dtype="int4", weight_scale=[0.1, 3.0, 1e-8]),
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name: str) -> None:
    compiled(COMPILED[name])


def compiled(model: bytes) -> None:
    """The code for this machine gives what `compute` gives."""
    graph = read(model)
    target, backend = resolve_target(Options())
    bundle = compile_model(Model("model", (graph,)), target, backend, Options(), lambda stage, result: None)
    for inputs in extremes(model):
        for found, expected in zip(run_bundle(bundle, inputs).outputs, run(graph, inputs), strict=True):
            assert_near(found, expected, "compiled and computed", FLOAT_BOUND)


# What is refused.


def conv_with(input: T, weights: T, bias: T | None, output: T, op: str = "CONV_2D") -> bytes:
    return one_operator(op, [input, weights, bias], [output], {"stride_h": 1, "stride_w": 1, "padding": "SAME"})


def of(dtype: str, *shape: int, scale: float | Sequence[float] = 0.05, zero: int = 0, data: float | None = None) -> T:
    return T(shape, dtype, scale, zero, None if data is None else np.full(shape, data))


X16, Y16, X8, Y8 = of("int16", 1, 2, 2, 3), of("int16", 1, 2, 2, 3), of("uint8", 1, 2, 2, 3), of("uint8", 1, 2, 2, 3)
W8, D8, U8 = of("int8", 3, 1, 1, 3, data=1), of("int8", 1, 1, 1, 3, data=1), of("uint8", 3, 1, 1, 3, data=1)
XF, YF = T((1, 2, 2, 3), "float32"), T((1, 2, 2, 3), "float32")
REFUSED = [
    (conv_with(X16, D8, of("int32", 3, data=0), Y16, "DEPTHWISE_CONV_2D"), "the bias 'in2' of int16 activations is int32"),
    (conv_with(of("int16", 1, 2, 2, 3, zero=1), W8, None, Y16), "'in0' has a zero point that is not 0"),
    (conv_with(X16, W8, None, of("int16", 1, 2, 2, 3, zero=-1)), "'out0' has a zero point that is not 0"),
    (conv_with(X16, W8, of("float32", 3, data=0), Y16), "float32 is not supported for 'in2' (supported: int64, int32)"),
    (conv_with(X16, W8, None, of("int16", 1, 2, 2, 3, scale=1e-6)), "more than TFLite's int16 arithmetic can"),
    (conv_with(X16, of("int8", 3, 1, 1, 3, zero=1, data=1), None, Y16), "the weights 'in1' have a zero point that is not 0"),
    (conv_with(X16, of("int8", 3, 1, 1, 3), None, Y16), "the weights 'in1' must be constant"),
    (conv_with(X16, W8, of("int64", 3), Y16), "the bias 'in2' must be constant"),
    (conv_with(X16, W8, None, of("int8", 1, 2, 2, 3)), "'out0' is int8 but 'in0' is int16"),
    (conv_with(X8, U8, of("int64", 3, data=0), Y8), "int64 is not supported for 'in2' (supported: int32)"),
    (conv_with(X8, of("uint8", 3, 1, 1, 3, scale=(1, 2, 3), data=1), None, Y8), "'in1' has 3 scales; only weights may have more"),
    (conv_with(X8, of("uint8", 3, 1, 1, 3, scale=0, data=1), None, Y8), "'in1' has scale 0"),
    (conv_with(X8, of("uint8", 3, 1, 1, 3, data=1), None, of("uint8", 1, 2, 2, 3, scale=1e-30)), "more than int32 arithmetic can"),
    (conv_with(of("int8", 1, 2, 2, 3), of("int4", 3, 1, 1, 3, zero=1, data=1), None, of("int8", 1, 2, 2, 3)), "have a zero point"),
    (conv_with(XF, of("int8", 3, 1, 1, 3, zero=1, data=1), None, YF), "the weights 'in1' have a zero point that is not 0"),
    (conv_with(XF, T((3, 1, 1, 3), "int8", data=np.ones(9)), None, YF), "'in1' is int8 without a scale and zero point"),
    (conv_with(XF, of("int8", 3, 1, 1, 3), None, YF), "the weights 'in1' must be constant"),
    (conv_with(XF, W8, of("int32", 3, data=1), YF), "int32 is not supported for 'in2' (supported: float32)"),
    (conv_with(XF, of("int16", 3, 1, 1, 3, data=1), None, YF), "int16 is not supported for 'in1' (supported: float32, int8, int4)"),
]


@pytest.mark.parametrize(("model", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError, match=re.escape(sentence)) as error:
        read(model)
    assert re.search(r"node 0 (DEPTHWISE_)?CONV_2D 'out0'", str(error.value))
