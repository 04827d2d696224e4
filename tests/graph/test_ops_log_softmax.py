"""LOG_SOFTMAX: numpy meaning and lowering against TFLite Micro (uint8: LiteRT); what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from aot.errors import CompileError
from tests.graph.lowered import agree, extremes, read, sweep
from tests.graph.reducing import compiled
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs, tflm_runs

SHAPES = ((1,), (5,), (1, 1), (1, 10), (3, 7), (2, 3, 4), (1, 2, 3, 2), (1, 300))
SCALES = (1 / 256, 0.1, 0.003, 1.0, 0.5, 17.0, 1e-4)
ORACLE = {"int8": tflm_runs, "uint8": litert_runs}


def log_softmax(shape, dtype="int8", scale=0.1, zero_point=0) -> bytes:
    if dtype == "float32":
        return one_operator("LOG_SOFTMAX", [T(shape, dtype)], [T(shape, dtype)], {})
    out = T(shape, dtype, 1 / 16, np.iinfo(dtype).max)
    return one_operator("LOG_SOFTMAX", [T(shape, dtype, scale, zero_point)], [out], {})


@pytest.mark.parametrize("dtype", ORACLE)
def test_integers_equal_the_reference(dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    for number, case in enumerate(sweep(28, 1, shape=SHAPES, scale=SCALES, zero_point=(low, 0, high, 7))):
        model = log_softmax(case["shape"], dtype, case["scale"], case["zero_point"])
        agree(model, *extremes(model, number), oracle=ORACLE[dtype])


@pytest.mark.parametrize("scale", SCALES)
def test_every_difference(scale):
    """Each difference in a row of two, and a row with each input once."""
    every = np.arange(-128, 128, dtype=np.int8)
    agree(log_softmax((256, 2), scale=scale), [np.stack([every, np.full(256, 127, np.int8)], axis=-1)])
    agree(log_softmax((1, 256), scale=scale), [every.reshape(1, 256)])


def test_sums_of_every_size():
    """Up to 4000 times 1, whose logarithm takes the difference furthest down."""
    rng = np.random.default_rng(3)
    for length in (2, 3, 17, 300, 1025, 4000):
        rows = (rng.integers(-128, 128, (12, length)) * rng.random((12, 1)) ** 3).astype(np.int8)
        for scale in (0.02, 0.3):
            agree(log_softmax(rows.shape, scale=scale), [rows])


def test_float_is_near_tflite_micro():
    for number, shape in enumerate(SHAPES):
        model = log_softmax(shape, "float32")
        agree(model, *extremes(model, number), bound=5e-7)


def test_float_of_large_numbers_does_not_overflow():
    agree(log_softmax((2, 3), "float32"), [np.array([[1e4, -1e4, 9.9e3], [-1e38, 2e38, 0]], np.float32)])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32"])
def test_compiled(dtype):
    for shape in ((2, 3, 40), (1, 7), (2, 600)):
        model = log_softmax(shape, dtype, zero_point=3)
        compiled(model, *extremes(model), bound=1e-6 if dtype == "float32" else 0.0)


# What is refused.

INPUT, OUTPUT = T((2, 3), "int8", 0.05, -3), T((2, 3), "int8", 1 / 16, 127)


def log_softmax_with(input=INPUT, output=OUTPUT) -> bytes:
    return one_operator("LOG_SOFTMAX", [input], [output], {})


REFUSED = [
    (log_softmax_with(T((2, 3), "int16", 0.05)), "int16 is not supported for 'in0' (supported: float32, int8, uint8)"),
    (log_softmax_with(output=T((2, 3), "float32")), "'out0' is float32 but 'in0' is int8"),
    (log_softmax_with(output=T((2, 3), "int8", 1 / 16, 0)), "int8 LOG_SOFTMAX needs an output with scale 1/16 and zero point 127"),
    (
        log_softmax_with(T((2, 3), "uint8", 0.1), T((2, 3), "uint8", 1 / 16)),
        "uint8 LOG_SOFTMAX needs an output with scale 1/16 and zero point 255",
    ),
    (log_softmax_with(T((2, 3), "int8", 1e-9)), "beta * scale = 1e-09 is too small for fixed-point arithmetic"),
    (log_softmax_with(T((), "float32"), T((), "float32")), "'in0' is a scalar; LOG_SOFTMAX needs a dimension"),
]


@pytest.mark.parametrize(("model", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(model, message):
    with pytest.raises(CompileError, match=re.escape(message)):
        read(model)
