"""MEAN: numpy meaning and lowering against TFLite Micro; what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.expr import text
from aot.graph.ops.mean import Mean
from tests.graph.lowered import agree, extremes, primitives, read, sweep
from tests.one_operator import T, one_operator

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
    reduced = {axis % len(shape) for axis in axes}
    kept = [1 if number in reduced else size for number, size in enumerate(shape) if keep_dims or number not in reduced]
    specs = [T(out, dtype, *(q if dtype == "int8" else (None, 0))) for out, q in ((shape, input_q), (kept, output_q))]
    axis_spec = T((len(axes),), "int32", data=np.array(axes, np.int32)) if axes else T((0,), "int32", data=np.zeros(0, np.int32))
    return one_operator("MEAN", [specs[0], axis_spec], [specs[1]], {"keep_dims": keep_dims})


def fits(case: dict) -> bool:
    rank = len(case["shape"])
    return all(-rank <= axis < rank for axis in case["axes"])


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
    assert read(model).nodes[0].attributes == Mean(False)


# What is refused.

INPUT, AXES, OUTPUT = T((2, 3), "int8", 0.05, -3), T((1,), "int32", data=np.array([1])), T((2,), "int8", 0.05, -3)


def mean_with(input=INPUT, axes: T | None = AXES, output=OUTPUT) -> bytes:
    return one_operator("MEAN", [input, axes], [output], {"keep_dims": False})


REFUSED = [
    (mean_with(T((2, 3), "uint8", 0.05)), "uint8 is not supported for 'in0' (supported: int8, float32)"),
    (mean_with(T((2, 3), "int32"), output=T((2,), "int32")), "int32 is not supported for 'in0'"),
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
