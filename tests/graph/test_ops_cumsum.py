"""CUMSUM: numpy meaning and lowering against TFLite Micro (int32, int64: LiteRT); what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.expr import text
from aot.graph.primitive import Reduce
from tests.builder import ModelBuilder
from tests.graph.lowered import extremes, primitives, read, sweep
from tests.graph.reducing import compiled, identical
from tests.graph.test_ops_reduce import values
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs, tflm_runs

CASES = {
    "shape": ((5,), (3, 4), (2, 3, 4), (2, 1, 5, 3), (1, 100), (75, 2)),
    "axis": (0, -1, 1, -2),
    "exclusive": (False, True),
    "reverse": (False, True),
}


def cumsum(shape, axis=-1, exclusive=False, reverse=False, dtype="float32", input_q=(0.1, 3), output_q=(0.5, -4)) -> bytes:
    specs = [T(shape, dtype, *(q if dtype == "int8" else (None, 0))) for q in (input_q, output_q)]
    inputs = [specs[0], T((1,), "int32", data=np.array([axis]))]
    return one_operator("CUMSUM", inputs, [specs[1]], {"exclusive": exclusive, "reverse": reverse})


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
def test_equals_the_reference(dtype):
    """Also in order, so that floats agree to the bit, and integers wrap."""
    for number, case in enumerate(sweep(24, 0, **CASES)):
        if case["axis"] < len(case["shape"]) and case["axis"] >= -len(case["shape"]):
            oracle = tflm_runs if dtype == "float32" else litert_runs
            identical(cumsum(**case, dtype=dtype), [values(case["shape"], dtype, number)], oracle=oracle)


def test_int8_equals_tflite_micro():
    """The sum starts from minus the zero point there. 5000 times 255 leaves int32, and wraps."""
    points, scales = (-128, 0, 127, 5), (0.1, 0.5, 3.0, 1e-3)
    for number, case in enumerate(sweep(32, 1, **CASES, input=points, output=points, scale=scales)):
        scale, points = case.pop("scale"), (case.pop("input"), case.pop("output"))
        if case["axis"] < len(case["shape"]) and case["axis"] >= -len(case["shape"]):
            model = cumsum(**case, dtype="int8", input_q=(0.1, points[0]), output_q=(scale, points[1]))
            identical(model, *extremes(model, number))
    model = cumsum((5000, 1), 0, dtype="int8", input_q=(0.1, -128), output_q=(50.0, 0))
    identical(model, *extremes(model))


def test_special_floats():
    nan, inf = np.nan, np.inf
    rows = np.array([[0.0, -0.0, 1, nan, 2], [inf, 1, -inf, 1, 1], [-0.0, -0.0, 0, 0, 0], [1e38, 3e38, -3e38, 1, 1]], np.float32)
    for exclusive, reverse in ((False, False), (False, True), (True, False), (True, True)):
        with np.errstate(all="ignore"):
            identical(cumsum((4, 5), 1, exclusive, reverse), [rows])


def test_the_first_block_has_cut_windows():
    (reduce,) = primitives(cumsum((2, 5), 1, exclusive=True))
    assert isinstance(reduce, Reduce)
    assert (text(reduce.term), reduce.skip_fill) == ("%t0[i0, i1 + i2 + -5 else 0.0]", True)


@pytest.mark.parametrize("dtype", ["float32", "int8", "int32", "int64"])
def test_compiled(dtype):
    for shape, axis in (((3, 4, 5), 1), ((2, 100), 1), ((70, 3), 0)):
        for exclusive, reverse in ((False, False), (True, True)):
            compiled(cumsum(shape, axis, exclusive, reverse, dtype), [values(shape, dtype, 3)])


def test_long_axes_are_cut_into_few_blocks():
    """Each block and each sum before one is a Reduce; the work stays far below length^2 and the code short."""
    assert len(primitives(cumsum((2, 32), 1))) == 1
    assert [reduce.space for reduce in primitives(cumsum((2, 70), 1))] == [(2, 32), (2, 1), (2, 32), (2, 1), (2, 6)]
    assert len(primitives(cumsum((1, 50_000), 1))) == 31


@pytest.mark.parametrize("exclusive", [False, True])
def test_behind_movement(exclusive):
    """What a window's cut leaves out is not what a PAD before it fills in, whatever is fused."""
    m = ModelBuilder()
    x, padded, turned, y = (m.tensor(n, s, "float32") for n, s in (("x", (3, 4)), ("p", (5, 7)), ("t", (7, 5)), ("y", (7, 5))))
    pads, value = m.constant(np.array([[1, 1], [2, 1]], np.int32)), m.constant(np.float32(5))
    m.operator("PADV2", [x, pads, value], [padded], {})
    m.operator("TRANSPOSE", [padded, m.constant(np.array([1, 0], np.int32))], [turned], {})
    m.operator("CUMSUM", [turned, m.constant(np.array([0], np.int32))], [y], {"exclusive": exclusive, "reverse": False})
    compiled(m.build([x], [y]), [values((3, 4), "float32", 1)])


# What is refused.

AXIS = T((1,), "int32", data=np.array([1]))


INPUT = T((2, 3), "float32")


def cumsum_with(input=INPUT, axis=AXIS, output=INPUT) -> bytes:
    return one_operator("CUMSUM", [input, axis], [output], {})


REFUSED = [
    (cumsum_with(T((2, 3), "int16", 0.1)), "int16 is not supported for 'in0' (supported: float32, int8, int32, int64)"),
    (cumsum_with(output=T((2, 3), "int32")), "'out0' is int32 but 'in0' is float32"),
    (cumsum_with(axis=T((1,), "int32")), "the axis 'in1' must be constant"),
    (cumsum_with(axis=T((1,), "int64", data=np.array([1]))), "int64 is not supported for 'in1' (supported: int32)"),
    (cumsum_with(axis=T((1,), "int32", data=np.array([2]))), "axis 2 is outside the 2 dimensions of 'in0'"),
    (
        cumsum_with(T((2, 3), "int8", 1.0), output=T((2, 3), "int8", 1e-6)),
        "its input's scale is 1e+06 times its output's, more than 2^19",
    ),
    (cumsum_with(T((2, 3), "int8"), output=T((2, 3), "int8", 1.0)), "'in0' is int8 without a scale and zero point"),
]


@pytest.mark.parametrize(("model", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(model, message):
    with pytest.raises(CompileError, match=re.escape(message)):
        read(model)
