"""SELECT and SELECT_V2: compute, lowering and the oracle agree; what is refused says why."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import CompileError
from tests.graph.lowered import agree, read
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs, tflm_runs

TYPES = ("float32", "int8", "int16", "uint8", "int32", "int64", "uint32", "bool")
BROADCASTS = (
    ((4, 3), (4, 3), (4, 3)),
    ((1, 3), (4, 3), (4, 3)),
    ((4, 1), (4, 3), (4, 3)),
    ((3,), (4, 3), (4, 3)),
    ((4, 3), (1, 3), (4, 1)),
    ((), (4, 3), (3,)),
    ((4, 3), (), ()),
    ((1, 3), (4, 1), (1, 1)),
    ((2, 1, 3, 1), (1, 4, 1, 5), (5,)),
    ((2, 1, 2, 1, 3), (1, 4, 1, 5, 1), (2, 1, 1, 1, 1)),
    ((1, 1), (1, 1), (1, 1)),
)
"""Of some the output has as many elements as an input, which broadcasts all the same."""


def choice(op: str, *shapes: tuple[int, ...], dtype: str = "float32", out: tuple[int, ...] | None = None) -> bytes:
    scale = 0.05 if dtype in ("int8", "int16", "uint8") else None
    values = [T(shape, dtype, scale) for shape in shapes[1:]]
    shape = np.broadcast_shapes(*shapes) if out is None else out
    return one_operator(op, [T(shapes[0], "bool"), *values], [T(shape, dtype, scale)], {})


@pytest.mark.parametrize("dtype", TYPES)
def test_select_v2(dtype: str) -> None:
    oracle = tflm_runs if dtype in ("float32", "int8", "int16") else litert_runs
    for shapes in BROADCASTS:
        agree(choice("SELECT_V2", *shapes, dtype=dtype), oracle=oracle)


@pytest.mark.parametrize("dtype", TYPES)
def test_select(dtype: str) -> None:
    for shapes in (
        ((4, 3), (4, 3), (4, 3)),
        ((4,), (4, 3, 2), (4, 3, 2)),
        ((), (4, 3), (4, 3)),
        ((5,), (5,), (5,)),
        ((1,), (1, 4), (1, 4)),
    ):
        agree(choice("SELECT", *shapes, dtype=dtype, out=shapes[1]), oracle=litert_runs)


def test_one_element_may_have_any_rank() -> None:
    """Scalars and tensors of one element mix, and the file says which the output is."""
    for shapes, out in ((((), (1,), ()), ()), (((1,), (), ()), ()), (((1, 1), (1,), ()), (1,)), (((), (), ()), (1,))):
        agree(choice("SELECT_V2", *shapes, out=out))


def test_constant_operands() -> None:
    condition = T((4, 1), "bool", data=np.array([[1], [0], [1], [0]]))
    value, zero = T((4, 3), "float32"), T((), "float32", data=np.array(0.5))
    agree(one_operator("SELECT_V2", [condition, value, zero], [value], {}))
    agree(one_operator("SELECT_V2", [T((), "bool", data=np.array(True)), zero, value], [value], {}))


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            one_operator(
                "SELECT_V2", [T((2,), "int8", 1.0), T((2,), "int8", 1.0), T((2,), "int8", 1.0)], [T((2,), "int8", 1.0)], {}
            ),
            "int8 is not supported for 'in0'",
        ),
        (choice("SELECT_V2", (2,), (2,), (2,), dtype="float16"), "float16 is not supported for 'in1'"),
        (
            one_operator("SELECT_V2", [T((2,), "bool"), T((2,), "int32"), T((2,), "int64")], [T((2,), "int32")], {}),
            "'in2' is int64 but 'in1' is int32",
        ),
        (one_operator("SELECT_V2", [T((2,), "bool"), T((2,), "int32")], [T((2,), "int32")], {}), "has 2 inputs, not 3"),
        (
            choice("SELECT_V2", (2,), (1, 1), (4, 3), out=(4, 3)),
            "'in0' of shape 2, 'in1' of shape 1x1 and 'in2' of shape 4x3 do not broadcast",
        ),
        (choice("SELECT", (4,), (4, 1), (4, 3), out=(4, 3)), "'in1' of shape 4x1 and 'in2' of shape 4x3 must have the same shape"),
        (choice("SELECT", (3,), (4, 3), (4, 3), out=(4, 3)), "the condition 'in0' of shape 3 does not fit 4x3"),
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value)
