"""STRIDED_SLICE, SLICE, SPLIT, UNPACK: masks, negative strides, ends outside the axis, against TFLite Micro and LiteRT."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import numpy as np
import pytest

from aot.errors import CompileError
from tests.graph.lowered import agree, read
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs

DTYPES = ("int8", "float32", "int32")
MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def tensor(shape: Sequence[int], dtype: str = "int8") -> T:
    return T(shape, dtype, 0.1 if dtype in ("int8", "uint8", "int16") else None)


def numbers(values: Sequence[int], dtype: str = "int32") -> T:
    return T(np.shape(values), dtype, data=np.array(values, dtype))


def strided_slice(shape, begin, end, strides, out=None, dtype: str = "int8", **masks: int) -> bytes:
    """`out` defaults to what numpy gives for begin and end without masks."""
    if out is None:
        index = tuple(slice(*entry) for entry in zip(begin, end, strides))
        out = np.empty(shape)[index].shape
    options = {name: masks.get(name, 0) for name in MASKS}
    inputs = [tensor(shape, dtype), *map(numbers, (begin, end, strides))]
    return one_operator("STRIDED_SLICE", inputs, [tensor(out, dtype)], options)


@pytest.mark.parametrize("stride", [-7, -3, -2, -1, 1, 2, 3, 7])
def test_one_axis(stride: int) -> None:
    """Every begin and end around an axis of 5, also outside it, that leaves something."""
    for begin, end in itertools.product(range(-7, 8), repeat=2):
        count = len(range(5)[begin:end:stride])
        if count:
            agree(strided_slice((5,), [begin], [end], [stride], (count,)))


def test_masks() -> None:
    """Random begins, ends, strides and begin, end, shrink masks on ranks 1 to 4: numpy is asked for the shape."""
    picker = random.Random(8)
    done = 0
    while done < 120:
        shape = [picker.randint(1, 5) for _ in range(picker.randint(1, 4))]
        rank = len(shape)
        begin_mask, end_mask, shrink = (picker.getrandbits(rank) for _ in range(3))
        shrink &= picker.getrandbits(rank)
        begin = [picker.randint(-size, size - 1) for size in shape]
        end = [picker.randint(-size - 1, size + 1) for size in shape]
        strides = [picker.choice((1, 1, 2, 3)) if shrink >> k & 1 else picker.choice((-2, -1, 1, 1, 2)) for k in range(rank)]
        index = tuple(
            (0 if begin_mask >> k & 1 else begin[k])
            if shrink >> k & 1
            else slice(None if begin_mask >> k & 1 else begin[k], None if end_mask >> k & 1 else end[k], strides[k])
            for k in range(rank)
        )
        out = np.empty(shape)[index].shape
        if 0 in out:
            continue
        masks = {"begin_mask": begin_mask, "end_mask": end_mask, "shrink_axis_mask": shrink}
        agree(strided_slice(shape, begin, end, strides, out, picker.choice(DTYPES), **masks))
        done += 1


def test_shrinking_ignores_end_and_stride() -> None:
    for stride, end in itertools.product((1, 2, 5), (-9, 0, 9)):
        agree(strided_slice((4, 3), [2, 0], [end, 3], [stride, 1], (3,), shrink_axis_mask=1))


def test_ellipsis_and_new_axes() -> None:
    """TFLite Micro has neither: LiteRT."""
    shape = (2, 3, 4)
    cases = (
        ([0, 1], [0, 3], [1, 1], {"ellipsis_mask": 1}, (2, 3, 2)),
        ([1, 0], [2, 0], [1, 1], {"ellipsis_mask": 2}, (1, 3, 4)),
        ([1, 0, 1], [2, 0, 3], [1, 1, 2], {"ellipsis_mask": 2, "shrink_axis_mask": 1}, (3, 1)),
        ([0, 0, 1], [0, 2, 3], [1, 1, 1], {"new_axis_mask": 1}, (1, 2, 2, 4)),
        ([0, 0, 0], [2, 0, 3], [1, 1, 1], {"new_axis_mask": 2}, (2, 1, 3, 4)),
        ([0, 0], [0, 0], [1, 1], {"ellipsis_mask": 1, "new_axis_mask": 2}, (2, 3, 4, 1)),
    )
    for begin, end, strides, masks, out in cases:
        agree(strided_slice(shape, begin, end, strides, out, **masks), oracle=litert_runs)


def test_entries_for_the_first_axes_only() -> None:
    agree(strided_slice((3, 4), [1], [3], [1], (2, 4)), oracle=litert_runs)


# SLICE


@pytest.mark.parametrize("dtype", DTYPES)
def test_slice(dtype: str) -> None:
    for shape, begin, size in (
        ((5,), (1,), (3,)),
        ((3, 4), (1, 0), (2, -1)),
        ((2, 3, 4), (0, 1, 2), (-1, 1, 2)),
        ((2, 3, 4, 5), (1, 2, 0, 4), (1, 1, 4, 1)),
    ):
        out = tuple(whole - start if count == -1 else count for whole, start, count in zip(shape, begin, size))
        agree(one_operator("SLICE", [tensor(shape, dtype), numbers(begin), numbers(size)], [tensor(out, dtype)], {}))


# SPLIT, UNPACK


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


# What is refused

ONE = numbers([0])


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (strided_slice((5,), [0], [5], [0], (5,)), "the stride of entry 0 is 0"),
        (strided_slice((5,), [7], [8], [1], (), shrink_axis_mask=1), "entry 0 selects element 7 with stride 1 of an axis of 5"),
        (strided_slice((5,), [1], [2], [-1], (), shrink_axis_mask=1), "entry 0 selects element 1 with stride -1 of an axis of 5"),
        (strided_slice((5,), [0] * 33, [5] * 33, [1] * 33, (5,), new_axis_mask=-1), "have 33 entries, more than 32"),
        (strided_slice((5,), [0, 0], [5, 5], [1, 1], (5,)), "2 entries with these masks do not fit an input of 1 dimensions"),
        (strided_slice((5, 5), [0, 0], [5, 5], [1, 1], (5, 5), ellipsis_mask=3), "2 entries with these masks do not fit"),
        (
            one_operator("STRIDED_SLICE", [tensor((5,)), ONE, numbers([1, 2]), numbers([1])], [tensor((1,))], {}),
            "begin, end and strides have 1, 2, 1 entries",
        ),
        (
            one_operator("STRIDED_SLICE", [tensor((5,)), ONE, T((1,), "int32"), numbers([1])], [tensor((1,))], {}),
            "the end 'in2' must be constant",
        ),
        (
            one_operator("STRIDED_SLICE", [tensor((5,)), ONE, numbers([5]), numbers([1])], [tensor((5,))], {"offset": True}),
            "an end that is an offset from the begin is not supported",
        ),
        (one_operator("STRIDED_SLICE", [tensor((5,)), ONE, ONE], [tensor((5,))], {}), "has 3 inputs, not 4"),
        (
            one_operator("SLICE", [tensor((5,)), numbers([2]), numbers([4])], [tensor((4,))], {}),
            "elements 2 to 6 are not in an axis of 5",
        ),
        (
            one_operator("SLICE", [tensor((5,)), numbers([0, 0]), ONE], [tensor((4,))], {}),
            "begin and size have 2 and 1 entries for 1",
        ),
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
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value) and "node 0 " in str(caught.value)
