"""REDUCE_MAX, _MIN, _PROD, _ALL, _ANY: numpy meaning and lowering against TFLite Micro, or LiteRT where it lacks the type."""

from __future__ import annotations

import re

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.expr import text
from tests.graph.lowered import agree, primitives, read, sweep
from tests.graph.reducing import compiled, fits, identical, reducer
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs, tflm_runs

CASES = {
    "shape": ((5,), (3, 4), (2, 3, 4), (1, 5, 4, 3), (2, 7, 1, 5), (1, 1, 1, 8), (2, 3, 2, 3, 2)),
    "axes": ((0,), (-1,), (1,), (1, 2), (2, 1), (0, -1), (1, 1, -2), (0, 1, 2)),
    "keep_dims": (False, True),
}
MICRO = {
    ("REDUCE_MAX", "int8"),
    ("REDUCE_MAX", "float32"),
    ("REDUCE_MIN", "int8"),
    ("REDUCE_MIN", "float32"),
    ("REDUCE_ALL", "bool"),
}
TYPES = [
    *(
        (op, dtype)
        for op in ("REDUCE_MAX", "REDUCE_MIN")
        for dtype in ("int8", "float32", "uint8", "int16", "int32", "int64", "bool")
    ),
    *(("REDUCE_PROD", dtype) for dtype in ("float32", "int32", "int64")),
    ("REDUCE_ALL", "bool"),
    ("REDUCE_ANY", "bool"),
]


def values(shape, dtype: str, seed: int) -> np.ndarray:
    """All of the range; floats with zeros of both signs; mostly true or mostly false."""
    rng = np.random.default_rng(seed)
    if dtype == "float32":
        data = rng.standard_normal(shape).astype(np.float32)
        return np.where(rng.random(shape) < 0.3, np.float32(-0.0 if seed % 2 else 0.0), data)
    if dtype == "bool":
        return rng.random(shape) < (0.1, 0.5, 0.9)[seed % 3]
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


@pytest.mark.parametrize(("op", "dtype"), TYPES)
def test_equals_the_reference(op, dtype):
    oracle = tflm_runs if (op, dtype) in MICRO else litert_runs
    for number, case in enumerate(sweep(24, 0, **CASES)):
        if fits(case):
            model = reducer(op, **case, dtype=dtype)
            identical(model, [values(case["shape"], dtype, number)], oracle=oracle)


@pytest.mark.parametrize("op", ["REDUCE_MAX", "REDUCE_MIN"])
def test_nan_and_infinity(op):
    """A NaN never wins, wherever it stands; infinities of the losing side neither."""
    nan, inf = np.nan, np.inf
    rows = [
        [nan, 1, 2],
        [1, nan, 2],
        [2, 1, nan],
        [nan] * 3,
        [inf] * 3,
        [-inf] * 3,
        [inf, -inf, nan],
        [0.0, -0.0, 0.0],
        [-0.0, 0.0, -0.0],
    ]
    (found,) = identical(reducer(op, (9, 3), (1,), dtype="float32"), [np.array(rows, np.float32)])
    assert not np.isnan(found).any() and abs(found[3]) == np.finfo(np.float32).max
    assert np.signbit(found[7:]).tolist() == [False, True], "the first of equal zeros wins"


def test_the_lowered_form_has_the_same_signs_of_zero():
    for op in ("REDUCE_MAX", "REDUCE_MIN"):
        compiled(reducer(op, (2, 3), (1,), dtype="float32"), [np.array([[0.0, -0.0, 0.0], [-0.0, 0.0, -0.0]], np.float32)])


@pytest.mark.parametrize(("op", "dtype"), TYPES)
def test_compiled(op, dtype):
    for shape, axes in (((3, 4, 5), (1,)), ((2, 37), (1,)), ((4, 3), (0, 1))):
        compiled(reducer(op, shape, axes, dtype=dtype), *([values(shape, dtype, seed)] for seed in range(3)))


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_products_of_quantised_numbers(dtype):
    """LiteRT rescales after every factor, and rounds once each time."""
    info = np.iinfo(dtype)
    points = (0, info.min, info.max, 5) if dtype == "int8" else (0,)
    for number, case in enumerate(sweep(30, 0, **CASES, input=points, output=points, scale=(0.02, 0.1, 1.5, 1e-3))):
        scale, points = case.pop("scale"), (case.pop("input"), case.pop("output"))
        if fits(case) and np.prod([case["shape"][axis] for axis in {axis % len(case["shape"]) for axis in case["axes"]}]) <= 32:
            model = reducer("REDUCE_PROD", **case, dtype=dtype, input_q=(0.02, points[0]), output_q=(scale, points[1]))
            identical(model, [values(case["shape"], dtype, number)], oracle=litert_runs)
    for count in (1, 8, 31):
        compiled(reducer("REDUCE_PROD", (3, count), (1,), dtype=dtype), [values((3, count), dtype, 1)])


def test_integers_without_quantisation():
    for op in ("REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"):
        for dtype in ("int8", "int16", "uint8"):
            model = one_operator(
                op, [T((3, 4), dtype), T((1,), "int32", data=np.array([1]))], [T((3,), dtype)], {"keep_dims": False}
            )
            agree(model, [values((3, 4), dtype, 1)], oracle=litert_runs)
            compiled(model, [values((3, 4), dtype, 1)])


def test_lowers_to_one_reduce():
    (reduce,) = primitives(reducer("REDUCE_MIN", (2, 5), (1,), dtype="float32"))
    assert (reduce.combine, text(reduce.term), text(reduce.result)) == ("max", "neg(%t0[i0, i1])", "neg(acc)")
    (reduce,) = primitives(reducer("REDUCE_MIN", (2, 5), (1,), dtype="int8"))
    assert (reduce.combine, text(reduce.initial), text(reduce.term)) == ("min", "127:int8", "%t0[i0, i1]")


# What is refused.

AXES = T((1,), "int32", data=np.array([1]))


def reduce_with(op: str, input: T, output: T | None = None, axes: T | None = AXES) -> bytes:
    return one_operator(op, [input, axes], [output or T((2,), input.dtype, input.scale, input.zero_point)], {"keep_dims": False})


REFUSED = [
    (reduce_with("REDUCE_MAX", T((2, 3), "int8", 0.5), T((2,), "int8", 0.25)), "'in0' and 'out0' must have the same quantisation"),
    (reduce_with("REDUCE_MAX", T((2, 3), "int8", 0.5), T((2,), "int8")), "'out0' is int8 without a scale and zero point"),
    (reduce_with("REDUCE_MIN", T((2, 3), "float32"), T((2,), "int32")), "'out0' is int32 but 'in0' is float32"),
    (reduce_with("REDUCE_PROD", T((2, 33), "int8", 0.5)), "a product of 33 quantised numbers is not supported (at most 32)"),
    (reduce_with("REDUCE_PROD", T((2, 3), "uint8", 0.5)), "uint8 is not supported for 'in0' (supported: int8, int16)"),
    (reduce_with("REDUCE_PROD", T((2, 3), "int8", 0.5), T((2,), "int8")), "'out0' is int8 without a scale and zero point"),
    (reduce_with("REDUCE_PROD", T((2, 3), "int8", 500.0), T((2,), "int8", 0.5)), "its scales would multiply every factor by 630"),
    (reduce_with("REDUCE_PROD", T((2, 3), "bool")), "bool is not supported for 'in0'"),
    (reduce_with("REDUCE_ALL", T((2, 3), "int32")), "int32 is not supported for 'in0' (supported: bool)"),
    (reduce_with("REDUCE_ANY", T((2, 3), "bool"), axes=T((1,), "int32")), "the axes 'in1' must be constant"),
    (
        reduce_with("REDUCE_MAX", T((2, 3), "float32"), axes=T((1,), "int32", data=np.array([2]))),
        "axis 2 is outside the 2 dimensions",
    ),
]


@pytest.mark.parametrize(("model", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(model, message):
    with pytest.raises(CompileError, match=re.escape(message)):
        read(model)
