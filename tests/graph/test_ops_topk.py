"""TOPK_V2: numpy meaning and lowering against LiteRT; what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_model
from tests.graph.lowered import read, sweep
from tests.graph.reducing import compiled, identical
from tests.graph.test_ops_reduce import values
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs
from tests.shared import model

TYPES = ("float32", "int8", "int16", "uint8", "int32", "int64")


def topk(shape, k: int, dtype="float32", index="int32", k_dtype="int32") -> bytes:
    scale = 0.1 if dtype in ("int8", "uint8", "int16") else None
    out = (*shape[:-1], k)
    inputs = [T(shape, dtype, scale), T((), k_dtype, data=np.array(k))]
    return one_operator("TOPK_V2", inputs, [T(out, dtype, scale), T(out, index)], {})


@pytest.mark.parametrize("dtype", TYPES)
def test_equals_litert(dtype):
    """Half of the cases have few different numbers: equal ones come in the order of the row."""
    for number, case in enumerate(sweep(20, 0, shape=((5,), (3, 4), (2, 3, 4), (1, 60), (2, 2, 2, 9), (7, 1)), k=(1, 2, 3, 100))):
        k = min(case["k"], case["shape"][-1])
        data = values(case["shape"], dtype, number)
        data = data if number % 2 or dtype == "uint8" else np.sign(data)
        identical(topk(case["shape"], k, dtype), [data % 3 if dtype == "uint8" else data], oracle=litert_runs)


def test_int16_indices_and_counts():
    for index in ("int32", "int16"):
        for k_dtype in ("int32", "int16"):
            identical(topk((2, 40), 7, "int8", index, k_dtype), [values((2, 40), "int8", 1)], oracle=litert_runs)


def test_nan_and_infinity():
    nan, inf = np.nan, np.inf
    rows = [[nan, 1, 2, nan], [1, nan, -inf, 2], [nan] * 4, [inf, nan, -inf, inf], [0.0, -0.0, 0.0, -0.0], [-0.0, nan, 0.0, -1e-45]]
    built = topk((6, 4), 4)
    identical(built, [np.array(rows, np.float32)], oracle=litert_runs)
    compiled(built, [np.array(rows, np.float32)])


@pytest.mark.parametrize("dtype", TYPES)
def test_compiled(dtype):
    for shape, k in (((3, 4, 5), 2), ((2, 37), 37), ((6,), 1)):
        compiled(topk(shape, k, dtype), *([values(shape, dtype, seed)] for seed in range(2)))


# What is refused.


INPUT, K = T((2, 3), "float32"), T((), "int32", data=np.array(2))


def topk_with(input=INPUT, k=K, out=(2, 2), dtype="float32", index="int32") -> bytes:
    return one_operator("TOPK_V2", [input, k], [T(out, dtype), T(out, index)], {})


REFUSED = [
    (topk_with(T((2, 3), "bool"), dtype="bool"), "bool is not supported for 'in0'"),
    (topk_with(dtype="int32"), "'out0' is int32 but 'in0' is float32"),
    (topk_with(index="int64"), "int64 is not supported for 'out1' (supported: int32, int16)"),
    (topk_with(k=T((), "int32")), "the k 'in1' must be constant (make k a constant when the model is exported)"),
    (topk_with(k=T((), "int64", data=np.array(2))), "int64 is not supported for 'in1' (supported: int32, int16)"),
    (topk_with(k=T((), "int32", data=np.array(4))), "k = 4 is not between 1 and the row's 3 elements"),
    (topk_with(k=T((), "int32", data=np.array(-1))), "k = -1 is not between 1 and the row's 3 elements"),
    (topk_with(k=T((2,), "int32", data=np.array([1, 2]))), "the k 'in1' has 2 elements, not 1"),
    (topk_with(T((), "float32")), "'in0' is a scalar; TOPK_V2 needs a dimension"),
    (topk_with(T((1, 40000), "float32"), out=(1, 2), index="int16"), "int16 can't number the 40000 elements of a row"),
]


@pytest.mark.parametrize(("built", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(built, message):
    with pytest.raises(CompileError, match=re.escape(message)):
        read(built)


def test_a_real_model_whose_k_is_an_input():
    with pytest.raises(CompileError, match=r"the k '.*' must be constant"):
        read_model(model("unit/litert_test/simple_topk_op_runtime_k").read_bytes(), "m.tflite", OPERATORS)
