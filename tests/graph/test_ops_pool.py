"""AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D: numpy meaning and lowering against TFLite Micro; the primitive's form; what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.expr import Const, text
from aot.graph.ir import DType
from aot.graph.primitive import Reduce
from tests.builder import ModelBuilder
from tests.graph.lowered import agree, extremes, primitives, read, sweep
from tests.graph.reducing import compiled, identical
from tests.one_operator import T, one_operator, pool
from tests.oracle import litert_runs, tflm_runs

WINDOWS = {
    "op": ("AVERAGE_POOL_2D", "MAX_POOL_2D"),
    "batch": (1, 2),
    "channels": (1, 2, 3, 5, 7, 17),
    "height": (1, 2, 5, 8),
    "width": (1, 3, 4, 7),
    "window": ((1, 1), (1, 3), (3, 1), (2, 2), (3, 3), (8, 4), (9, 9)),
    "stride": ((1, 1), (2, 1), (2, 2), (1, 3), (4, 3)),
    "padding": ("SAME", "VALID"),
    "activation": ("NONE", "RELU", "RELU6", "RELU_N1_TO_1"),
}


def model_of(case: dict, **fields) -> bytes | None:
    """None where a VALID window is larger than the input."""
    if case["padding"] == "VALID" and (case["height"] < case["window"][0] or case["width"] < case["window"][1]):
        return None
    shape = (case["batch"], case["height"], case["width"], case["channels"])
    return pool(case["op"], shape, case["window"], **{name: case[name] for name in ("stride", "padding", "activation")}, **fields)


@pytest.mark.parametrize("part", range(3))
def test_int8_equals_tflite_micro(part):
    """Averages round half away from zero and divide by the number of elements inside."""
    for number, case in enumerate(sweep(60, part, **WINDOWS, zero_point=(-128, -1, 0, 127), scale=(0.05, 0.7, 4.0))):
        if model := model_of(case, q=(case["scale"], case["zero_point"])):
            agree(model, *extremes(model, number))


@pytest.mark.parametrize(("dtype", "oracle"), [("int16", tflm_runs), ("uint8", litert_runs)])
def test_other_types(dtype, oracle):
    """uint8 is LiteRT's. int16 with a zero point is computed as TFLite Micro does."""
    points = {"int16": (0, -32768, 32767, 9), "uint8": (0, 128, 255, 3)}[dtype]
    for number, case in enumerate(sweep(60, 5, **WINDOWS, zero_point=points, scale=(0.05, 0.7, 4.0))):
        if shape := model_of(case, dtype="float32") and (case["batch"], case["height"], case["width"], case["channels"]):
            spec = [T(shape, dtype, case["scale"], case["zero_point"])]
            out = pool(case["op"], shape, case["window"], stride=case["stride"], padding=case["padding"], dtype="float32")
            options = {"padding": case["padding"], "fused_activation_function": case["activation"]}
            options |= {"stride_h": case["stride"][0], "stride_w": case["stride"][1]}
            options |= {"filter_height": case["window"][0], "filter_width": case["window"][1]}
            out_shape = read(out).by_name[read(out).outputs[0]].shape
            model = one_operator(case["op"], spec, [T(out_shape, dtype, case["scale"], case["zero_point"])], options)
            agree(model, *extremes(model, number), oracle=oracle)


def test_l2_equals_tflite_micro():
    """To the bit: the same additions in the same order, a division and a root, all correctly rounded."""
    for number, case in enumerate(sweep(40, 0, **{**WINDOWS, "op": ("L2_POOL_2D",)})):
        if model := model_of(case, dtype="float32"):
            identical(model, *extremes(model, number))


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8", "float32"])
def test_compiled(dtype):
    """With all passes; two batches (in another engine only the first was written), channels that are no multiple of 4."""
    for op in ("AVERAGE_POOL_2D", "MAX_POOL_2D", *(("L2_POOL_2D",) if dtype == "float32" else ())):
        for padding in ("SAME", "VALID"):
            model = pool(op, (2, 5, 7, 5), (3, 2), stride=(2, 1), padding=padding, dtype=dtype, q=(0.05, 3), activation="RELU6")
            compiled(model, *extremes(model))


@pytest.mark.parametrize(("dtype", "oracle"), [("int8", tflm_runs), ("int16", tflm_runs), ("uint8", litert_runs)])
def test_a_long_window_of_the_largest_number(dtype, oracle):
    """25 rows of 5, all at either end: sums leave 8 and 16 bits, quotients are exact; negative sums round away from zero."""
    model = pool(input_shape=(2, 25, 5, 3), window=(25, 5), stride=(25, 5), dtype=dtype, q=(0.05, 0))
    inputs = np.full((2, 25, 5, 3), np.iinfo(dtype).min, dtype)
    inputs[:, 0, 0] += 62
    inputs[:, 0, 1, :2] += 1
    agree(model, *extremes(model), [inputs], oracle=oracle)


def test_a_clamp_behind_an_int16_pool_stays():
    """What is known of a pool's output must be in quantised units, else RELU6 would cut at 6."""
    m = ModelBuilder()
    x, y, z = (m.tensor(name, (1, 4, 4, 2), "int16", scale=0.01) for name in "xyz")
    options = {**OPTIONS, "filter_height": 1, "filter_width": 1, "stride_h": 1, "stride_w": 1}
    m.operator("AVERAGE_POOL_2D", [x], [y], {**options, "fused_activation_function": "RELU6"})
    m.operator("MAX_POOL_2D", [y], [z], {**options, "fused_activation_function": "RELU_N1_TO_1"})
    model = m.build([x], [z])
    agree(model, *extremes(model))
    compiled(model, *extremes(model))


def test_float_equals_tflite_micro():
    """The same additions in the same order: no bound is needed."""
    for number, case in enumerate(sweep(60, 0, **WINDOWS)):
        if model := model_of(case, dtype="float32"):
            agree(model, *extremes(model, number), bound=0)


def test_large_windows_accumulate_in_32_bits():
    model = pool(input_shape=(1, 64, 64, 2), window=(64, 64), stride=(1, 1), q=(0.05, 127))
    agree(model, *extremes(model))


# The primitive's form.


def test_average_over_a_window_inside_divides_by_a_constant():
    (reduce,) = primitives(pool("AVERAGE_POOL_2D", (1, 6, 6, 4), (3, 2), stride=(3, 2)))
    assert isinstance(reduce, Reduce)
    assert (reduce.space, reduce.window, reduce.combine, reduce.skip_fill) == ((1, 2, 3, 4), (3, 2), "add", False)
    assert text(reduce.term) == "int32(%t0[i0, 3*i1 + i4, 2*i2 + i5, i3])"
    assert text(reduce.result) == "int8(min(max(div(select(gt(acc, 0), add(acc, 3), sub(acc, 3)), 6), -128), 127))"


def test_average_over_a_window_that_leaves_counts_what_is_inside():
    (reduce,) = primitives(pool("AVERAGE_POOL_2D", (1, 4, 6, 4), (3, 2), stride=(1, 2), padding="SAME"))
    assert reduce.skip_fill
    assert "mul(sub(min(add((x1 = sub(i1, 1)), 3), 4), max(x1, 0)), 2)" in text(reduce.result)


def test_max_accumulates_in_the_inputs_type():
    (reduce,) = primitives(pool("MAX_POOL_2D", padding="SAME", input_shape=(1, 5, 5, 3)))
    assert (reduce.combine, reduce.initial, reduce.skip_fill) == ("max", Const(-128, DType.INT8), True)
    assert text(reduce.result) == "acc"
    assert text(primitives(pool("MAX_POOL_2D", activation="RELU"))[0].result) == "min(max(acc, -3:int8), 127:int8)"


# What is refused.

INPUT, OUTPUT = T((1, 4, 4, 3), "int8", 0.05, -3), T((1, 2, 2, 3), "int8", 0.05, -3)
OPTIONS = {"filter_height": 2, "filter_width": 2, "stride_h": 2, "stride_w": 2, "padding": "VALID"}


def pool_with(input=INPUT, output=OUTPUT, op="AVERAGE_POOL_2D", **options) -> bytes:
    return one_operator(op, [input], [output], {**OPTIONS, **options})


REFUSED = [
    (pool_with(T((1, 4, 4, 3), "int32")), "int32 is not supported for 'in0' (supported: int8, int16, uint8, float32)"),
    (pool_with(T((1, 4, 4, 3), "int8", 0.05), op="L2_POOL_2D"), "int8 is not supported for 'in0' (supported: float32)"),
    (
        pool("AVERAGE_POOL_2D", (1, 300, 300, 1), (300, 300), dtype="int16", q=(0.05, 0)),
        "the sum of a window of 90000 elements leaves int32, that of 65535 does not",
    ),
    (pool_with(T((1, 4, 4, 3), "int16", 0.05), T((1, 2, 2, 3), "int16", 0.06)), "must have the same quantisation"),
    (pool_with(output=T((1, 2, 2, 3), "float32")), "'out0' is float32 but 'in0' is int8"),
    (pool_with(output=T((1, 2, 2, 3), "int8", 0.06, -3)), "'in0' and 'out0' must have the same quantisation"),
    (pool_with(output=T((1, 2, 2, 3), "int8", 0.05, -2), op="MAX_POOL_2D"), "'in0' and 'out0' must have the same quantisation"),
    (pool_with(T((1, 4, 4, 3), "int8")), "'in0' is int8 without a scale and zero point"),
    (pool_with(fused_activation_function="TANH"), "the fused activation tanh is not supported"),
    (pool_with(stride_w=0), "stride 2x0 and dilation 1x1 must be at least 1"),
    (pool_with(filter_height=-1), "kernel -1x2"),
    (pool_with(filter_height=5), "the kernel 5x2 with dilation 1x1 is larger than the input 4x4"),
    (pool_with(T((4, 4, 3), "int8", 0.05, -3)), "'in0' has 3 dimensions, not 4"),
    (one_operator("AVERAGE_POOL_2D", [INPUT, INPUT], [OUTPUT], OPTIONS), "has 2 inputs, not 1"),
    (one_operator("MAX_POOL_2D", [INPUT], [OUTPUT, OUTPUT], OPTIONS), "has 2 outputs, not 1"),
    (one_operator("MAX_POOL_2D", [INPUT], [OUTPUT]), "kernel 0x0, stride 0x0"),
]


@pytest.mark.parametrize(("model", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(model, message):
    with pytest.raises(CompileError, match=re.escape(message)) as error:
        read(model)
    assert re.search(r"node 0 (AVERAGE|MAX|L2)_POOL_2D 'out0'", str(error.value))


def test_a_nearly_equal_scale_is_accepted():
    """TFLite Micro tolerates 1e-6 between the scales, and rescales nothing."""
    agree(pool_with(output=T((1, 2, 2, 3), "int8", float(np.float32(0.05) + np.float32(5e-7)), -3)))
