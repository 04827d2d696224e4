"""ARG_MAX and ARG_MIN: numpy meaning and lowering against TFLite Micro, or LiteRT where it lacks the type; what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.expr import text
from aot.graph.interpreter import run
from aot.graph.ops import OPERATORS
from aot.graph.primitive import Reduce
from aot.graph.tflite import read_model
from tests.graph.lowered import primitives, read, sweep
from tests.graph.reducing import compiled, identical
from tests.graph.test_ops_reduce import values
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs, tflm_runs
from tests.shared import golden, model

OPS = ("ARG_MAX", "ARG_MIN")
TYPES = [*((dtype, "int32") for dtype in ("float32", "int8", "uint8", "int32", "bool")), ("int8", "int64"), ("float32", "int64")]
INT32, INT64 = 2, 4
"""TFLite's numbers of the output's type."""


def argument(op: str, shape, axis: int, dtype="int8", out="int32") -> bytes:
    kept = [size for number, size in enumerate(shape) if number != axis % len(shape)]
    quantised = 0.05 if dtype in ("int8", "uint8") else None
    inputs = [T(shape, dtype, quantised), T((1,), "int32", data=np.array([axis]))]
    return one_operator(op, inputs, [T(kept, out)], {"output_type": INT64 if out == "int64" else INT32})


def few(data: np.ndarray) -> np.ndarray:
    """Signs instead of numbers, so that equal ones compete."""
    return data if data.dtype == bool else data % 2 if data.dtype.kind == "u" else np.sign(data)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(("dtype", "out"), TYPES)
def test_equals_the_reference(op, dtype, out):
    """Half of the cases have few different numbers, so that equal ones compete."""
    oracle = tflm_runs if dtype in ("int8", "float32") and out == "int32" else litert_runs
    for number, case in enumerate(
        sweep(16, 0, shape=((5,), (3, 4), (2, 3, 4), (2, 1, 5, 3), (1, 300), (9, 1)), axis=(0, -1, 1, -2))
    ):
        if -len(case["shape"]) <= case["axis"] < len(case["shape"]):
            data = values(case["shape"], dtype, number)
            identical(argument(op, **case, dtype=dtype, out=out), [data if number % 2 else few(data)], oracle=oracle)


@pytest.mark.parametrize("op", OPS)
def test_nan_and_infinity(op):
    nan, inf = np.nan, np.inf
    rows = [[nan, 1, 2], [1, nan, 2], [2, nan, 1], [nan] * 3, [inf] * 3, [-inf] * 3, [inf, nan, -inf], [-inf, nan, -inf]]
    rows += [[nan, inf, inf], [inf, nan, inf], [0.0, -0.0, 0.0], [-0.0, 0.0, nan], [nan, -inf, -inf]]
    built = argument(op, (len(rows), 3), 1, "float32")
    identical(built, [np.array(rows, np.float32)])
    compiled(built, [np.array(rows, np.float32)])


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(("dtype", "out"), TYPES)
def test_compiled(op, dtype, out):
    for shape, axis in (((3, 4, 5), 1), ((2, 37), 1), ((6,), 0), ((7, 3), 0)):
        compiled(argument(op, shape, axis, dtype, out), *([few(values(shape, dtype, seed))] for seed in range(2)))


def test_8_bits_are_one_reduction():
    (reduce,) = primitives(argument("ARG_MAX", (2, 5), 1))
    assert isinstance(reduce, Reduce)
    assert text(reduce.term) == "add(shl(int32(%t0[i0, i1]), 3), sub(7, i1))"
    assert text(reduce.result) == "xor(and(acc, 7), 7)"
    assert len(primitives(argument("ARG_MAX", (2, 5), 1, "float32"))) == 2


def test_real_model():
    name = "unit/glow/arg_min"
    graph, data = read_model(model(name).read_bytes(), "m.tflite", OPERATORS).main, np.load(golden(name))
    (out,) = run(graph, [data["in0_0"]])
    assert np.array_equal(out, data["out0_0"]) and out.dtype == data["out0_0"].dtype


# What is refused.

AXIS = T((1,), "int32", data=np.array([1]))


INPUT, OUTPUT = T((2, 3), "float32"), T((2,), "int32")


def argument_with(input=INPUT, axis=AXIS, output=OUTPUT) -> bytes:
    return one_operator("ARG_MAX", [input, axis], [output], {"output_type": INT32})


REFUSED = [
    (argument_with(T((2, 3), "int16", 0.1)), "int16 is not supported for 'in0' (supported: float32, int8, uint8, int32, bool)"),
    (argument_with(output=T((2,), "float32")), "float32 is not supported for 'out0' (supported: int32, int64)"),
    (argument_with(axis=T((1,), "int32")), "the axis 'in1' must be constant"),
    (argument_with(axis=T((1,), "int32", data=np.array([-3]))), "axis -3 is outside the 2 dimensions of 'in0'"),
    (argument_with(axis=T((2,), "int32", data=np.array([0, 1]))), "the axis 'in1' has 2 elements, not 1"),
    (argument_with(T((), "float32"), T((1,), "int32", data=np.array([0])), T((), "int32")), "axis 0 is outside the 0 dimensions"),
]


@pytest.mark.parametrize(("built", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(built, message):
    with pytest.raises(CompileError, match=re.escape(message)):
        read(built)
