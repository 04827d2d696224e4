"""SPLIT, SPLIT_V, UNPACK against TFLite Micro, LiteRT or, for what neither takes, numpy."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import CompileError
from tests.graph.lowered import agree, read
from tests.graph.test_ops_movement import OTHERS
from tests.graph.test_ops_slicing import DTYPES, numbers, tensor
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs


@pytest.mark.parametrize("dtype", DTYPES)
def test_split(dtype: str) -> None:
    for axis, parts in ((0, 2), (1, 3), (2, 1), (-1, 4), (-3, 2)):
        shape = [2, 3, 4]
        shape[axis] //= parts
        inputs = [numbers(axis), tensor((2, 3, 4), dtype)]
        agree(one_operator("SPLIT", inputs, [tensor(shape, dtype)] * parts, {"num_splits": parts}))


@pytest.mark.parametrize("dtype", DTYPES)
def test_unpack(dtype: str) -> None:
    for axis in (0, 1, 2, -1):
        shape = [2, 3, 4]
        count = shape.pop(axis)
        options = {"axis": axis, "num": count}
        agree(one_operator("UNPACK", [tensor((2, 3, 4), dtype)], [tensor(shape, dtype)] * count, options))


# SPLIT_V


def split_v(shape, sizes, number: int, dtype: str = "int8", stated=None, index: str = "int32") -> bytes:
    """`stated`: the sizes as the file says them, where those may be -1."""
    outs = [tensor((*shape[: number % len(shape)], size, *shape[number % len(shape) :][1:]), dtype) for size in sizes]
    inputs = [tensor(shape, dtype), numbers(sizes if stated is None else stated, index), numbers(number)]
    return one_operator("SPLIT_V", inputs, outs, {"num_splits": len(sizes)})


@pytest.mark.parametrize("dtype", ["int8", "float32", "int16", "int32"])
def test_split_v(dtype: str) -> None:
    for sizes, number in (((1, 1), 0), ((1, 2), 1), ((4,), 2), ((1, 2, 1), -1), ((2, 1), -2)):
        agree(split_v((2, 3, 4), sizes, number, dtype))


def test_one_size_may_be_the_rest() -> None:
    agree(split_v((2, 6), (1, 3, 2), 1, stated=(1, -1, 2)), oracle=litert_runs)
    agree(split_v((2, 6), (1, 3, 2), 1, stated=(1, 3, -1), index="int64"), oracle=litert_runs)


@pytest.mark.parametrize("dtype", OTHERS)
def test_parts_of_other_types(dtype: str) -> None:
    def same_parts(model: bytes, sizes: list[int]) -> None:
        agree(model, oracle=lambda _, invocations: [np.split(x[-1], np.cumsum(sizes)[:-1], 1) for x in invocations])

    same_parts(split_v((2, 6), (1, 3, 2), 1, dtype), [1, 3, 2])
    inputs = [numbers(1), tensor((2, 6), dtype)]
    same_parts(one_operator("SPLIT", inputs, [tensor((2, 3), dtype)] * 2, {"num_splits": 2}), [3, 3])
    unpack = one_operator("UNPACK", [tensor((2, 6), dtype)], [tensor((6,), dtype)] * 2, {"axis": 0, "num": 2})
    agree(unpack, oracle=lambda _, invocations: [list(x[0]) for x in invocations])


# What is refused


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            one_operator("SPLIT", [numbers(3), tensor((5,))], [tensor((5,))], {"num_splits": 1}),
            "axis 3 is outside the 1 dimensions of 'in1'",
        ),
        (
            one_operator("SPLIT", [numbers(0), tensor((5,))], [tensor((2,))] * 2, {"num_splits": 2}),
            "an axis of 5 does not split into 2 parts",
        ),
        (
            one_operator("SPLIT", [numbers([0, 1]), tensor((4,))], [tensor((2,))] * 2, {"num_splits": 2}),
            "the axis has 2 elements, not one",
        ),
        (
            one_operator("UNPACK", [tensor((3,))], [tensor(())] * 2, {"num": 2}),
            "an axis of 3 does not unpack into 2 parts for 2 outputs",
        ),
        (one_operator("UNPACK", [tensor((1,))], [tensor((), "float32")], {"num": 1}), "'out0' is float32 but 'in0' is int8"),
        (split_v((5,), (2, 2), 0), "an axis of 5 does not split into parts of these sizes: 2, 2"),
        (split_v((5,), (2, 3), 0, stated=(-1, -1)), "an axis of 5 does not split into parts of these sizes: -1, -1"),
        (split_v((5,), (2, 3), 0, stated=(7, -1)), "an axis of 5 does not split into parts of these sizes: 7, -2"),
        (split_v((5,), (2, 3), 0, stated=(2, 2, 1)), "has 3 sizes for 2 parts and 2 outputs"),
        (
            one_operator("SPLIT_V", [tensor((5,)), T((1,), "int32"), numbers(0)], [tensor((5,))], {"num_splits": 1}),
            "the sizes 'in1' must be constant",
        ),
        (
            one_operator("SPLIT_V", [tensor((5,)), numbers([5]), T((), "int32")], [tensor((5,))], {"num_splits": 1}),
            "the axis 'in2' must be constant",
        ),
        (
            one_operator("SPLIT_V", [tensor((5,)), numbers([5]), numbers(1)], [tensor((5,))], {"num_splits": 1}),
            "axis 1 is outside the 1 dimensions of 'in0'",
        ),
        (
            one_operator("SPLIT_V", [tensor((5,)), numbers([5]), numbers(0)], [tensor((5,), "int16")], {"num_splits": 1}),
            "'out0' is int16 but 'in0' is int8",
        ),
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value) and "node 0 " in str(caught.value)
