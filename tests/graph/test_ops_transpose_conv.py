"""TRANSPOSE_CONV: numpy meaning and lowering against TFLite Micro and LiteRT, compiled code, the phases, what is refused."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest

from aot.driver import Options, compile_model, resolve_target
from aot.errors import CompileError
from aot.graph.interpreter import run
from aot.graph.ir import Model
from aot.graph.ops.transpose_conv import runs
from aot.graph.primitive import Contract, Map
from aot.run import run_bundle
from tests.graph.lowered import agree, assert_near, extremes, lower, primitives, read, sweep
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs

FLOAT_BOUND = 1e-5
CASES = {
    "batch": (1, 1, 2),
    "size": ((1, 1), (1, 5), (4, 1), (3, 4), (5, 2)),
    "extra": ((0, 0), (0, 0), (1, 0), (-1, 2), (3, -3)),
    "kernel": ((1, 1), (1, 3), (2, 2), (3, 2), (4, 4), (5, 3), (7, 1)),
    "stride": ((1, 1), (2, 2), (2, 1), (3, 2), (4, 3), (1, 5)),
    "padding": ("SAME", "VALID"),
    "depth": (1, 2, 3, 8),
    "channels": (1, 2, 3, 5),
    "activation": ("NONE", "NONE", "RELU", "RELU6", "RELU_N1_TO_1"),
    "bias": (True, False),
}
ZERO_POINTS = (-128, -1, 0, 1, 127)
OPTIONS = {"stride_h": 2, "stride_w": 2, "padding": "SAME"}
SHAPE, WEIGHTS = T((4,), "int32", data=np.array([1, 4, 4, 1])), T((1, 2, 2, 2), "int8", 0.01, data=np.ones((1, 2, 2, 2)))
DATA, OUTPUT = T((1, 2, 2, 2), "int8", 0.05, -3), T((1, 4, 4, 1), "int8", 0.1, 5)


def transpose_conv(
    batch=1,
    size=(3, 4),
    extra=(0, 0),
    kernel=(3, 3),
    stride=(2, 2),
    padding="SAME",
    depth=2,
    channels=3,
    activation="NONE",
    bias=True,
    *,
    dtype="int8",
    input_q=(0.05, -3),
    output_q=(0.4, 5),
    weight_scale: float | None = None,
    weights_zero_point=0,
    bias_dtype=None,
    is_shape_known=True,
    seed=0,
) -> bytes:
    """The output is as large as the input's convolution implies, plus `extra`."""
    rng = np.random.default_rng(seed)
    spatial = [
        max(n * s if padding == "SAME" else (n - 1) * s + max(k, s), 1) for n, k, s in zip(size, kernel, stride, strict=True)
    ]
    out = (batch, *(max(n + more, 1) for n, more in zip(spatial, extra)), channels)
    shape = T((4,), "int32", data=np.array(out) if is_shape_known else None)
    options = {"stride_h": stride[0], "stride_w": stride[1], "padding": padding, "fused_activation_function": activation}
    weights_shape = (channels, *kernel, depth)
    if dtype == "float32":
        weights = T(weights_shape, dtype, data=rng.standard_normal(weights_shape) * 0.3)
        biases = [T((channels,), dtype, data=rng.standard_normal(channels))] if bias else []
        return one_operator("TRANSPOSE_CONV", [shape, weights, T((batch, *size, depth), dtype), *biases], [T(out, dtype)], options)
    scale = rng.uniform(0.002, 0.02, channels).astype(np.float32).tolist() if weight_scale is None else weight_scale
    low, high = (0, 256) if dtype == "uint8" else (-127, 128)
    data = rng.integers(low, high, weights_shape)
    weights = T(weights_shape, "uint8" if dtype == "uint8" else "int8", scale, weights_zero_point, data)
    bias_dtype = bias_dtype or ("int64" if dtype == "int16" else "int32")
    bias_scale = (np.asarray(scale) * input_q[0]).tolist()
    limit = 20000 if dtype == "int16" else 2000
    biases = [T((channels,), bias_dtype, bias_scale, 0, rng.integers(-limit, limit + 1, channels))] if bias else []
    x, y = T((batch, *size, depth), dtype, *input_q), T(out, dtype, *output_q)
    return one_operator("TRANSPOSE_CONV", [shape, weights, x, *biases], [y], options)


@pytest.mark.parametrize("part", range(4))
def test_int8_equals_tflite_micro(part):
    choices = {"output_scale": (0.4, 0.01, 0.0005, 3e4), "zero_point": ZERO_POINTS, "out_zero_point": ZERO_POINTS}
    for number, case in enumerate(sweep(36, part, **CASES, **choices, weight_scale=(None, 0.01))):
        quantised = {"input_q": (0.05, case.pop("zero_point")), "output_q": (case.pop("output_scale"), case.pop("out_zero_point"))}
        model = transpose_conv(**case, **quantised, seed=number)
        agree(model, *extremes(model, number))


@pytest.mark.parametrize("part", range(2))
def test_float_is_near_tflite_micro(part):
    for number, case in enumerate(sweep(30, part, **CASES)):
        model = transpose_conv(**case, dtype="float32", seed=number)
        agree(model, *extremes(model, number), bound=FLOAT_BOUND)


@pytest.mark.parametrize("part", range(3))
def test_int16_equals_tflite_micro(part):
    choices = {"output_scale": (1e-2, 1e-3, 2e-5, 1.0), "bias_dtype": ("int64", "int64", "int16"), "weight_scale": (None, 0.01)}
    for number, case in enumerate(sweep(36, part, **CASES, **choices)):
        quantised = {"input_q": (0.001, 0), "output_q": (case.pop("output_scale"), 0)}
        model = transpose_conv(**case, **quantised, dtype="int16", seed=number)
        agree(model, *extremes(model, number))


@pytest.mark.parametrize("part", range(2))
def test_uint8_equals_litert(part):
    choices = {"output_scale": (0.4, 0.05), "zero_point": (0, 3, 128, 255), "weights_zero_point": (0, 1, 127, 255)}
    for number, case in enumerate(sweep(30, part, **{**CASES, "extra": ((0, 0),)}, **choices)):  # LiteRT checks the sizes
        quantised = {"input_q": (0.05, case.pop("zero_point")), "output_q": (case.pop("output_scale"), 128), "weight_scale": 0.01}
        model = transpose_conv(**case, **quantised, dtype="uint8", seed=number)
        agree(model, *extremes(model, number), oracle=litert_runs)


def test_where_no_output_size_exists_there_is_no_padding():
    """VALID with a kernel longer than output and stride together; a little shorter, and there is padding."""
    for kernel in range(1, 12):
        shape, weights = T((4,), "int32", data=np.array([1, 2, 3, 1])), T((1, kernel, 3, 1), "float32", data=np.arange(3 * kernel))
        inputs = [shape, weights, T((1, 2, 2, 1), "float32")]
        agree(one_operator("TRANSPOSE_CONV", inputs, [T((1, 2, 3, 1), "float32")], {**OPTIONS, "stride_h": 4, "padding": "VALID"}))


@pytest.mark.parametrize("bias", [(1 << 31) - 1, -(1 << 31)])
def test_an_accumulator_at_the_edge_of_int32(bias):
    model = one_operator(
        "TRANSPOSE_CONV", [SHAPE, WEIGHTS, DATA, T((1,), "int32", 0.0005, data=np.array([bias]))], [OUTPUT], OPTIONS
    )
    agree(model, *extremes(model))


@pytest.mark.parametrize("bias", [(1 << 33) + 12345, -(1 << 31), 7])
def test_int16_sums_leave_int32(bias):
    """Full-scale inputs and weights over 600 channels, and biases of more than 32 bits."""
    weights = T((1, 2, 2, 600), "int8", 0.001, data=np.full((1, 2, 2, 600), 127))
    inputs = [
        T((4,), "int32", data=np.array([1, 4, 4, 1])),
        weights,
        T((1, 2, 2, 600), "int16", 0.001),
        T((1,), "int64", 1e-6, data=np.array([bias])),
    ]
    model = one_operator("TRANSPOSE_CONV", inputs, [T((1, 4, 4, 1), "int16", 0.5)], OPTIONS)
    agree(model, *extremes(model))
    assert str(contracts(model)[0].initial.dtype) == "int64"


def test_a_shape_computed_at_run_time_is_what_the_file_says():
    agree(transpose_conv(is_shape_known=False))


def test_weights_computed_at_run_time():
    shape = T((4,), "int32", data=np.array([1, 5, 6, 3]))
    inputs = [shape, T((3, 3, 2, 2), "float32"), T((1, 3, 3, 2), "float32")]
    agree(one_operator("TRANSPOSE_CONV", inputs, [T((1, 5, 6, 3), "float32")], OPTIONS), bound=FLOAT_BOUND)


# The primitives' form.


def contracts(model: bytes) -> list[Contract]:
    return [primitive for primitive in primitives(model) if isinstance(primitive, Contract)]


@pytest.mark.parametrize("each", [False, True])
def test_runs_cover_every_output_with_every_tap(each):
    """By brute force: output o reads kernel position k at input i where o + padding = i * stride + k."""
    for out, kernel, stride, padding in np.ndindex(9, 8, 6, 5):
        out, kernel, stride = out + 1, kernel + 1, stride + 1
        found = {}
        for part in runs(out, kernel, stride, padding, each):
            for step, phase in np.ndindex(part.steps, part.phases):
                taps = {part.kernel + phase - t * stride: step + t - part.before for t in range(part.taps)}
                assert found.setdefault(part.first + phase + step * stride, taps) is taps
        wanted = {o: {k: (o + padding - k) // stride for k in range(kernel) if (o + padding - k) % stride == 0} for o in range(out)}
        assert found == wanted
        assert not each or {part.phases for part in runs(out, kernel, stride, padding, each)} == {1}


def test_a_huge_stride_makes_few_runs():
    assert len(runs(1 << 29, 7, (1 << 29) - 3, 1, False)) <= 5


def test_int8_phases_are_convolutions_for_kernels():
    found = contracts(transpose_conv(kernel=(3, 2), stride=(2, 2)))
    assert [(contract.space, contract.window) for contract in found] == [
        ((1, 3, 4, 3), (2, 1, 2)),
        ((1, 3, 4, 3), (2, 1, 2)),
        ((1, 3, 4, 3), (1, 1, 2)),
        ((1, 3, 4, 3), (1, 1, 2)),
    ]
    assert [contract.geometry and contract.geometry.kernel for contract in found] == [(2, 1), (2, 1), (1, 1), (1, 1)]
    assert sorted(value.name for value in lower(read(transpose_conv())).values) == ["n0_bias", "n0_multiplier", "n0_shift"]


def test_outputs_that_no_tap_reaches_are_a_map():
    found = primitives(transpose_conv(kernel=(1, 1), stride=(2, 1)))
    assert [type(primitive) for primitive in found] == [Contract, Map]


def test_many_phases_share_loops():
    assert len(primitives(transpose_conv(size=(9, 9), kernel=(7, 7), stride=(5, 5)))) <= 16
    assert len(primitives(transpose_conv(size=(9, 9), padding="VALID", dtype="float32", stride=(2, 2), kernel=(4, 4)))) == 1


COMPILED = {
    "SAME": transpose_conv(depth=8),
    "VALID, odd": transpose_conv(1, (4, 5), (1, 0), (4, 5), (2, 3), "VALID", 7, 5),
    "a kernel shorter than the stride": transpose_conv(2, (3, 2), (0, 0), (1, 2), (3, 4), depth=4),
    "phases that begin behind the first input": transpose_conv(1, (3, 3), (-3, -3), (3, 3), (4, 4)),
    "many phases": transpose_conv(1, (2, 3), (0, 1), (6, 7), (5, 4), depth=3, activation="RELU"),
    "an output far beyond the input": transpose_conv(1, (2, 2), (9, 9), depth=3),
    "float32": transpose_conv(dtype="float32", kernel=(5, 4)),
    "int16": transpose_conv(dtype="int16", input_q=(0.001, 0), output_q=(0.01, 0), depth=8),
    "int16 in 64 bits": transpose_conv(dtype="int16", input_q=(0.001, 0), output_q=(1.0, 0), depth=600, weight_scale=0.01),
    "uint8": transpose_conv(dtype="uint8", input_q=(0.05, 99), output_q=(0.4, 3), weight_scale=0.01, weights_zero_point=77),
}


def compiled(model: bytes, cpu: str | None, bound: float = 0.0) -> list[str]:
    """Compiled code gives what `compute` gives; the names of the kernels."""
    graph, options = read(model), Options(target=cpu)
    bundle = compile_model(Model("model", (graph,)), *resolve_target(options), options, lambda stage, result: None)
    for inputs in extremes(model):
        for found, expected in zip(run_bundle(bundle, inputs).outputs, run(graph, inputs), strict=True):
            assert_near(found, expected, f"compiled for {cpu} and computed", bound)
    return [layer.kernel for layer in bundle.main.layers]


ON_CPUS = [(name, cpu) for cpu in (None, "cortex-m4", "cortex-m0plus") for name in COMPILED]
if not os.environ.get("AOT_SWEEP"):  # every case on this machine and on one of the cores
    ON_CPUS = ON_CPUS[: len(COMPILED)] + ON_CPUS[len(COMPILED) : 2 * len(COMPILED) : 2] + ON_CPUS[2 * len(COMPILED) + 1 :: 2]


@pytest.mark.parametrize(("name", "cpu"), ON_CPUS)
def test_compiled(name, cpu):
    compiled(COMPILED[name], cpu, FLOAT_BOUND)


def test_kernels_claim_phases():
    phases = ["conv 2x2", "conv 2x1", "conv 1x2", "conv 1x1"]
    assert compiled(COMPILED["SAME"], "cortex-m4") == phases
    assert compiled(COMPILED["int16"], "cortex-m4") == phases
    assert [kernel for kernel in compiled(COMPILED["uint8"], "cortex-m4") if kernel != "generic map"] == phases


# What is refused.


def with_(shape: T | None = SHAPE, weights=WEIGHTS, data=DATA, output=OUTPUT, bias: T | None = None, **options) -> bytes:
    inputs = [shape, weights, data, *([] if bias is None else [bias])]
    return one_operator("TRANSPOSE_CONV", inputs, [output], {**OPTIONS, **options})


def shape_of(*sizes: int, dtype="int32") -> T:
    return T((len(sizes),), dtype, data=np.array(sizes))


def weights_of(shape=(1, 2, 2, 2), dtype="int8", scale: object = 0.01, zero_point=0) -> T:
    return T(shape, dtype, scale, zero_point, np.ones(shape))  # type: ignore[arg-type]


INT16 = {"data": T((1, 2, 2, 2), "int16", 0.01), "output": T((1, 4, 4, 1), "int16", 0.01)}
REFUSED = [
    (with_(stride_h=0), "the stride 0x2 must be at least 1"),
    (one_operator("TRANSPOSE_CONV", [SHAPE, WEIGHTS, DATA], [OUTPUT]), "the stride 0x0 must be at least 1"),
    (with_(padding=2), "padding 2 is not supported (supported: same, valid)"),
    (with_(shape_of(1, 4, 4)), "the output shape 1x4x4 is not one of four dimensions of at least 1"),
    (with_(shape_of(1, 0, 4, 1)), "the output shape 1x0x4x1 is not one of four dimensions of at least 1"),
    (with_(shape_of(1, -4, 4, 1)), "the output shape 1x-4x4x1 is not one of four dimensions of at least 1"),
    (with_(shape_of(1, 4, 4, 1, dtype="int64")), "int64 is not supported for 'in0' (supported: int32)"),
    (with_(T((4,), "int32"), output=T((4, 4), "int8", 0.1)), "the output shape 4x4 is not one of four dimensions"),
    (with_(shape_of(2, 4, 4, 1)), "the output shape 2x4x4x1 does not fit 1 images and 1 output channels"),
    (with_(shape_of(1, 4, 4, 2)), "the output shape 1x4x4x2 does not fit 1 images and 1 output channels"),
    (with_(shape_of(1, 4, 5, 1)), "the file says its output is 1x4x4x1, its inputs give 1x4x5x1"),
    (with_(weights=weights_of((1, 2, 2, 3))), "the input has 2 channels, the weights have 3"),
    (with_(weights=weights_of((1, 2, 2))), "'in1' has 3 dimensions, not 4"),
    (with_(weights=weights_of((1, 0, 2, 2))), "'in1' is empty"),
    (with_(weights=T((1, 2, 2, 2), "int8", 0.01)), "the weights 'in1' must be constant"),
    (with_(weights=weights_of(dtype="uint8")), "uint8 is not supported for 'in1' (supported: int8)"),
    (with_(weights=weights_of(zero_point=3)), "the weights 'in1' have a zero point that is not 0"),
    (
        with_(weights=T((1, 2, 2, 2), "int8", [0.1, 0.2], 0, np.ones((1, 2, 2, 2)), 1)),
        "the weights 'in1' have 2 scales for 1 output channels",
    ),
    (with_(bias=T((2,), "int32", data=np.zeros(2))), "the bias 'in3' has 2 elements for 1 output channels"),
    (with_(bias=T((1,), "int64", data=np.zeros(1))), "int64 is not supported for 'in3' (supported: int32)"),
    (with_(bias=T((1,), "int32")), "the bias 'in3' must be constant"),
    (with_(**INT16, bias=T((1,), "int32", data=np.zeros(1))), "int32 is not supported for 'in3' (supported: int64, int16)"),
    (with_(**{**INT16, "data": T((1, 2, 2, 2), "int16", 0.01, 1)}), "has a zero point that is not 0"),
    (with_(data=T((1, 2, 2, 2), "int32", 0.1)), "int32 is not supported for 'in2'"),
    (with_(output=T((1, 4, 4, 1), "int16", 0.1)), "'out0' is int16 but 'in2' is int8"),
    (with_(output=T((1, 4, 4, 1), "int8", 1e-30)), "more than int32 arithmetic can"),
    (with_(**{**INT16, "output": T((1, 4, 4, 1), "int16", 1e-9)}), "more than TFLite's int16 arithmetic can"),
    (with_(fused_activation_function="TANH"), "the fused activation tanh is not supported"),
    (one_operator("TRANSPOSE_CONV", [SHAPE, WEIGHTS], [OUTPUT], OPTIONS), "has 2 inputs, not 3 or 4"),
    (with_(None), "input 0 is missing"),
]


@pytest.mark.parametrize(("model", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(model, message):
    with pytest.raises(CompileError, match=re.escape(message)):
        read(model)
