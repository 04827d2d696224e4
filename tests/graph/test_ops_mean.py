"""MEAN and SUM: numpy meaning and lowering against TFLite Micro; what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.expr import text
from aot.graph.ops.reduction import Reduction
from tests.graph.lowered import agree, extremes, primitives, read, sweep
from tests.graph.reducing import compiled, fits, reducer
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs, tflm_runs

CASES = {
    "shape": ((5,), (3, 4), (2, 3, 4), (1, 5, 4, 3), (2, 7, 1, 5), (1, 1, 1, 8), (2, 16, 16, 2)),
    "axes": ((0,), (-1,), (1,), (1, 2), (2, 1), (0, -1), (1, 1, -2), (0, 1, 2), ()),
    "keep_dims": (False, True),
}
INT8 = {
    **CASES,
    "input_zero_point": (-128, -1, 0, 127),
    "output_zero_point": (-128, 5, 127),
    "output_scale": (0.05, 0.013, 0.3, 0.001, 20.0, 1e-4),
}


def mean(shape, axes, keep_dims=False, dtype="int8", input_q=(0.05, -3), output_q=(0.05, -3)) -> bytes:
    return reducer("MEAN", shape, axes, keep_dims, dtype, input_q, output_q)


@pytest.mark.parametrize("part", range(3))
def test_int8_equals_tflite_micro(part):
    """Also where the division by the count shortens the multiplier, and where scales differ."""
    for number, case in enumerate(sweep(50, part, **INT8)):
        if fits(case) and case["axes"]:
            quantisation = {
                "input_q": (0.05, case["input_zero_point"]),
                "output_q": (case["output_scale"], case["output_zero_point"]),
            }
            model = mean(case["shape"], case["axes"], case["keep_dims"], **quantisation)
            agree(model, *extremes(model, number))


@pytest.mark.parametrize("op", ["MEAN", "SUM"])
@pytest.mark.parametrize(("dtype", "oracle"), [("int8", tflm_runs), ("int16", tflm_runs), ("uint8", litert_runs)])
def test_quantised_types(op, dtype, oracle):
    """SUM multiplies by the scales alone; uint8 is LiteRT's; int16 with a zero point is computed as TFLite Micro does."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    points = (0, low, high, 5)
    scales = (0.05, 0.013, 0.3, 0.001, 20.0, 1e-4)
    for number, case in enumerate(sweep(36, 7, **CASES, input=points, output=points, scale=scales)):
        if fits(case) and case["axes"]:
            quantisation = {"input_q": (0.05, case["input"]), "output_q": (case["scale"], case["output"])}
            model = reducer(op, case["shape"], case["axes"], case["keep_dims"], dtype, **quantisation)
            agree(model, *extremes(model, number), oracle=oracle)


@pytest.mark.parametrize("op", ["MEAN", "SUM"])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_whole_numbers(op, dtype):
    """SUM wraps; MEAN of int32 sums in 64 bits and rounds towards 0. LiteRT's, as TFLite Micro has neither."""
    for number, case in enumerate(sweep(16, 3, **CASES)):
        if fits(case) and case["axes"]:
            model = reducer(op, case["shape"], case["axes"], case["keep_dims"], dtype)
            rng = np.random.default_rng(number)
            info = np.iinfo(dtype)
            high = info.max // (1 if dtype == "int32" or op == "SUM" else 1000)
            agree(model, [rng.integers(-high, high, case["shape"], dtype=dtype)], oracle=litert_runs)


def test_float_sum_equals_tflite_micro():
    for number, case in enumerate(sweep(30, 0, **CASES)):
        if fits(case) and case["axes"]:
            model = reducer("SUM", case["shape"], case["axes"], case["keep_dims"], "float32")
            agree(model, *extremes(model, number), bound=0)


@pytest.mark.parametrize("op", ["MEAN", "SUM"])
@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8", "float32", "int32", "int64"])
def test_compiled(op, dtype):
    q = {"input_q": (0.05, 3), "output_q": (0.5, -4 if dtype == "int8" else 4)}
    for shape, axes in (((3, 4, 5), (1,)), ((2, 37), (1,)), ((2, 5, 5, 3), (1, 2))):
        model = reducer(op, shape, axes, dtype=dtype, **q)
        compiled(model, *extremes(model))


def test_uint8_and_int16_means_stay_means():
    """The pass that makes pools of means is for int8 and float32."""
    for dtype in ("uint8", "int16"):
        compiled(reducer("MEAN", (1, 3, 1, 4), (1, 2), dtype=dtype, input_q=(0.05, 0), output_q=(0.05, 0)))


def test_float_equals_tflite_micro():
    """The same additions in the same order: no bound is needed."""
    for number, case in enumerate(sweep(50, 0, **CASES)):
        if fits(case) and case["axes"]:
            model = mean(case["shape"], case["axes"], case["keep_dims"], "float32")
            agree(model, *extremes(model, number), bound=0)


def test_ties_of_many_counts():
    """Equal scales give exact halves, which the shortened multiplier may push to either side."""
    for count in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 31, 32, 33, 49, 64, 100, 128, 255, 256, 300):
        agree(mean((1, count, 64), (1,), output_q=(0.05, 3)))
        halves = np.zeros((1, count, 64), np.int8)
        for column in range(64):
            halves[0, : (column - 32) * count // 2 % (count + 1), column] = 1 if column % 2 else -1
        agree(mean((1, count, 64), (1,), input_q=(0.05, 0)), [halves])


def test_a_tiny_ratio_of_scales_leaves_no_room_to_shift():
    agree(mean((1, 64, 2), (1,), input_q=(1e-6, -3), output_q=(900.0, 3)))
    agree(mean((1, 64, 2), (1,), input_q=(1e-9, -3), output_q=(1.0, 3)))


def test_lowers_to_one_reduce_over_the_reduced_axes():
    (reduce,) = primitives(mean((2, 5, 4, 3), (2, 1)))
    assert (reduce.space, reduce.window, reduce.combine, reduce.store) == ((2, 3), (5, 4), "add", ())
    assert text(reduce.term) == "int32(%t0[i0, i2, i3, i1])"
    (kept,) = primitives(mean((2, 5, 4, 3), (1, 2), keep_dims=True))
    assert (kept.space, text(kept.term)) == ((2, 1, 1, 3), "int32(%t0[i0, i4, i5, i3])")
    assert text(kept.initial) == "60"


def test_without_options_dimensions_are_dropped():
    axes = T((1,), "int32", data=np.array([1], np.int32))
    model = one_operator("MEAN", [T((2, 3), "float32"), axes], [T((2,), "float32")])
    assert read(model).nodes[0].attributes == Reduction(False)


# What is refused.

INPUT, AXES, OUTPUT = T((2, 3), "int8", 0.05, -3), T((1,), "int32", data=np.array([1])), T((2,), "int8", 0.05, -3)


def mean_with(input=INPUT, axes: T | None = AXES, output=OUTPUT) -> bytes:
    return one_operator("MEAN", [input, axes], [output], {"keep_dims": False})


REFUSED = [
    (
        mean_with(T((2, 3), "bool"), output=T((2,), "bool")),
        "bool is not supported for 'in0' (supported: int8, int16, uint8, float32",
    ),
    (mean_with(T((2, 3), "uint8")), "'out0' is int8 but 'in0' is uint8"),
    (mean_with(output=T((2,), "float32")), "'out0' is float32 but 'in0' is int8"),
    (mean_with(T((2, 3), "int8")), "'in0' is int8 without a scale and zero point"),
    (mean_with(axes=T((1,), "int32")), "the axes 'in1' must be constant"),
    (mean_with(axes=T((1,), "int64", data=np.array([1]))), "int64 is not supported for 'in1' (supported: int32)"),
    (mean_with(axes=T((1,), "int32", data=np.array([2]))), "axis 2 is outside the 2 dimensions of 'in0'"),
    (mean_with(axes=T((1,), "int32", data=np.array([-3]))), "axis -3 is outside the 2 dimensions of 'in0'"),
    (mean_with(T((2, 3), "int8", 1e20, -3), output=T((2,), "int8", 1e-3, 0)), "more than int32 arithmetic can"),
    (mean_with(axes=None), "input 1 is missing"),
]


@pytest.mark.parametrize(("model", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(model, message):
    with pytest.raises(CompileError, match=re.escape(message)) as error:
        read(model)
    assert "node 0 MEAN 'out0'" in str(error.value)
