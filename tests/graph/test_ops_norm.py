"""L2_NORMALIZATION: numpy meaning and lowering against TFLite Micro (uint8: LiteRT); what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.interpreter import run
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_model
from tests.graph.lowered import agree, extremes, read, sweep
from tests.graph.reducing import compiled, identical
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs, tflm_runs
from tests.shared import golden, model

SHAPES = ((1,), (5,), (1, 1), (1, 10), (3, 7), (2, 3, 4), (1, 2, 3, 2), (2, 300))
ZERO_POINT = {"int8": 0, "uint8": 128}
ORACLE = {"int8": tflm_runs, "uint8": litert_runs}


def norm(shape, dtype="int8", scale=0.1, zero_point=0) -> bytes:
    quantised = dtype in ZERO_POINT
    specs = [T(shape, dtype, scale, zero_point) if quantised else T(shape, dtype)]
    out = T(shape, dtype, 1 / 128, ZERO_POINT[dtype]) if quantised else T(shape, dtype)
    return one_operator("L2_NORMALIZATION", specs, [out], {})


@pytest.mark.parametrize("dtype", ZERO_POINT)
def test_integers_equal_the_reference(dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    for number, case in enumerate(sweep(24, 1, shape=SHAPES, zero_point=(low, 0, high, 7))):
        built = norm(case["shape"], dtype, zero_point=case["zero_point"])
        agree(built, *extremes(built, number), oracle=ORACLE[dtype])


@pytest.mark.parametrize("dtype", ZERO_POINT)
def test_sums_of_every_size(dtype):
    """Sums of squares from 0 and 1 to beyond 2^29, in rows whose other elements are 0; each gives another inverse root."""
    rng = np.random.default_rng(4)
    rows = np.zeros((64, 9000), np.int64)
    for number, row in enumerate(rows[:-4]):
        row[: int(1.1**number * 3) - 2] = (
            rng.integers(-2, 3, 1) if number < 20 else rng.integers(-100, 101, int(1.1**number * 3) - 2)
        )
    rows[-4:] = np.array([[127], [120], [90], [-100]])
    data = (rows + ZERO_POINT[dtype]).astype(dtype)
    agree(norm(data.shape, dtype, zero_point=ZERO_POINT[dtype]), [data], oracle=ORACLE[dtype])


def test_float_equals_tflite_micro():
    for number, shape in enumerate(shape for shape in SHAPES if len(shape) <= 4):
        built = norm(shape, "float32")
        identical(built, *extremes(built, number))


def test_float_special_rows():
    """Zeros are divided by 1e-6; squares that overflow, vanish, or are NaN."""
    rows = [[0, 0, -0.0], [1e-8, 0, 0], [1e30, 1, 0], [np.nan, 1, 2], [np.inf, 1, 0], [1e-30, 1e-30, 0]]
    identical(norm((6, 3), "float32"), [np.array(rows, np.float32)])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32"])
def test_compiled(dtype):
    for shape in ((2, 3, 40), (1, 7), (5, 1)):
        built = norm(shape, dtype, zero_point=3)
        compiled(built, *extremes(built))


def test_real_model():
    name = "unit/litert_test/simple_l2_norm"
    graph, data = read_model(model(name).read_bytes(), "m.tflite", OPERATORS).main, np.load(golden(name))
    (out,) = run(graph, [data["in0_0"]])
    assert np.allclose(out, data["out0_0"], rtol=3e-7, atol=0)


# What is refused.

INPUT, OUTPUT = T((2, 3), "int8", 0.05, -3), T((2, 3), "int8", 1 / 128, 0)


def norm_with(input=INPUT, output=OUTPUT, **options) -> bytes:
    return one_operator("L2_NORMALIZATION", [input], [output], options)


REFUSED = [
    (norm_with(T((2, 3), "int16", 0.05)), "int16 is not supported for 'in0' (supported: float32, int8, uint8)"),
    (norm_with(output=T((2, 3), "float32")), "'out0' is float32 but 'in0' is int8"),
    (norm_with(output=T((2, 3), "int8", 1 / 127)), "int8 L2_NORMALIZATION needs an output with scale 1/128 and zero point 0"),
    (norm_with(T((2, 3), "uint8", 0.1), T((2, 3), "uint8", 1 / 128)), "with scale 1/128 and zero point 128"),
    (norm_with(fused_activation_function="RELU"), "the fused activation relu is not supported (supported: none)"),
    (norm_with(T((), "float32"), T((), "float32")), "'in0' is a scalar; L2_NORMALIZATION needs a dimension"),
    (norm_with(T((2, 3), "int8")), "'in0' is int8 without a scale and zero point"),
]


@pytest.mark.parametrize(("built", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(built, message):
    with pytest.raises(CompileError, match=re.escape(message)):
        read(built)
