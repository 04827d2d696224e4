"""STRIDED_SLICE, SLICE, DYNAMIC_UPDATE_SLICE: masks, negative strides, ends outside the axis, begins at run time.

Against TFLite Micro, LiteRT or, for what neither takes, numpy.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import numpy as np
import pytest

from aot.errors import CompileError
from tests.graph.lowered import agree, read
from tests.graph.test_ops_movement import OTHERS, same
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs

DTYPES = ("int8", "float32", "int32")
MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def tensor(shape: Sequence[int], dtype: str = "int8") -> T:
    return T(shape, dtype, 0.1 if dtype in ("int8", "uint8", "int16") else None)


def numbers(values: int | Sequence[int], dtype: str = "int32") -> T:
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
        agree(strided_slice(shape, begin, end, strides, out, "int8", **masks), oracle=litert_runs)


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


@pytest.mark.parametrize("dtype", OTHERS)
def test_slices_of_other_types(dtype: str) -> None:
    same(
        one_operator("SLICE", [tensor((3, 4), dtype), numbers((1, 0)), numbers((2, 3))], [tensor((2, 3), dtype)], {}),
        lambda x: x[1:, :3],
    )
    same(strided_slice((5,), [4], [0], [-2], dtype=dtype), lambda x: x[4:0:-2])
    if dtype in ("int16", "bool"):
        agree(strided_slice((5, 3), [4, 0], [0, 3], [-2, 2], dtype=dtype))
        agree(one_operator("SLICE", [tensor((3, 4), dtype), numbers((1, 0)), numbers((2, 3))], [tensor((2, 3), dtype)], {}))
    if dtype in ("uint8", "int64", "uint32"):
        agree(strided_slice((5, 3), [4, 0], [0, 3], [-2, 2], dtype=dtype), oracle=litert_runs)


# A begin at run time


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_slice_from_a_begin_at_run_time(index: str) -> None:
    model = one_operator("SLICE", [tensor((4, 5)), T((2,), index), numbers([2, 5], index)], [tensor((2, 5))], {})
    x = np.arange(20, dtype=np.int8).reshape(4, 5)
    for begin in ([0, 0], [2, 0], [1, 0]):
        agree(model, [x, np.array(begin, index)])
    for begin, clamped in (([-1, 3], 0), ([3, -3], 2), ([np.iinfo(index).max, 0], 2), ([np.iinfo(index).min, 0], 0)):
        agree(model, [x, np.array(begin, index)], oracle=lambda *_, start=clamped: [[x[start : start + 2]]])


def at_run_time(begin: Sequence[int], out: Sequence[int], index: str = "int32", **masks: int) -> bytes:
    """x[begin] of a 4x5 input, with what `masks` say."""
    options = {name: masks.get(name, 0) for name in MASKS}
    inputs = [tensor((4, 5)), T((len(begin),), index), T((len(begin),), index), numbers([1] * len(begin), index)]
    return one_operator("STRIDED_SLICE", inputs, [tensor(out)], options)


def test_an_element_at_run_time() -> None:
    """Shrunk entries; those that mask begin and end stay whole."""
    x = np.arange(20, dtype=np.int8).reshape(4, 5)
    for index, begin in itertools.product(("int32",), ([2, 3], [-1, -5], [0, 0])):
        ends = np.array([value + 1 for value in begin], index)
        inputs = [x, np.array(begin, index), ends]
        agree(at_run_time(begin, (), index, shrink_axis_mask=3), inputs, oracle=lambda *_, b=begin: [[np.array(x[b[0], b[1]])]])
        agree(
            at_run_time(begin, (5,), index, shrink_axis_mask=1, begin_mask=2, end_mask=2),
            inputs,
            oracle=lambda *_, b=begin: [[x[b[0]]]],
        )
        agree(
            at_run_time(begin, (4,), index, shrink_axis_mask=2, begin_mask=1, end_mask=1),
            inputs,
            oracle=lambda *_, b=begin: [[x[:, b[1]]]],
        )
        if begin[0] > 0:
            agree(at_run_time(begin, (5,), index, shrink_axis_mask=1, begin_mask=2, end_mask=2), inputs, oracle=litert_runs)


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_an_element_outside_is_the_nearest(index: str) -> None:
    x = np.arange(20, dtype=np.int8).reshape(4, 5)
    limits = np.iinfo(index)
    for begin, row in ((4, 3), (-5, 0), (limits.max, 3), (limits.min, 0)):
        inputs = [x, np.array([begin, 0], index), np.array([0, 0], index)]
        model = at_run_time([0, 0], (5,), index, shrink_axis_mask=1, begin_mask=2, end_mask=2)
        agree(model, inputs, oracle=lambda *_, row=row: [[x[row]]])


# DYNAMIC_UPDATE_SLICE


def update(
    shape: Sequence[int], part: Sequence[int], dtype: str = "int8", index: str = "int32", starts: Sequence[int] | None = None
) -> bytes:
    data = None if starts is None else np.array(starts)
    inputs = [tensor(shape, dtype), tensor(part, dtype), T((len(shape),), index, data=data)]
    return one_operator("DYNAMIC_UPDATE_SLICE", inputs, [tensor(shape, dtype)], {})


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "float32"])
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_update(dtype: str, index: str) -> None:
    """Every start, also outside, where it is moved inside."""
    rng = np.random.default_rng(6)
    for shape, part in (((5,), (2,)), ((3, 4), (2, 2)), ((3, 4), (1, 4)), ((2, 3, 2), (1, 2, 1)), ((2, 3), (2, 3))):
        x, new = (rng.integers(-100, 100, size).astype(dtype) for size in (shape, part))
        for starts in itertools.product((-7, 0, 1, 2, 9), repeat=len(shape)):
            agree(update(shape, part, dtype, index), [x, new, np.array(starts, index)], bound=0.0)
    x, new = np.arange(5).astype(dtype), np.array([50, 51]).astype(dtype)
    for far in (np.iinfo(index).min, np.iinfo(index).max):
        agree(update((5,), (2,), dtype, index), [x, new, np.array([far], index)], bound=0.0)


def test_update_at_a_constant_place() -> None:
    agree(update((3, 4), (2, 2), starts=[1, 1]))


@pytest.mark.parametrize("dtype", OTHERS)
def test_update_of_other_types(dtype: str) -> None:
    def expected(x: np.ndarray, new: np.ndarray) -> np.ndarray:
        out = x.copy()
        out[1:3] = new
        return out

    same(update((4, 3), (2, 3), dtype, starts=[1, 0]), expected)


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
            one_operator("STRIDED_SLICE", [tensor((5,)), T((1,), "int32"), numbers([2]), numbers([1])], [tensor((1,))], {}),
            "the begin 'in1' must be constant",
        ),
        (
            one_operator("STRIDED_SLICE", [tensor((5,)), ONE, numbers([5]), T((1,), "int32")], [tensor((5,))], {}),
            "the strides 'in3' must be constant",
        ),
        (
            one_operator("SLICE", [tensor((5,)), T((1,), "int32"), numbers([-1])], [tensor((5,))], {}),
            "the begin 'in1' must be constant (a size of -1 depends on it)",
        ),
        (
            one_operator("SLICE", [tensor((5,)), T((1,), "int32"), numbers([6])], [tensor((6,))], {}),
            "elements 0 to 6 are not in an axis of 5",
        ),
        (one_operator("SLICE", [tensor((5,)), ONE, T((1,), "int32")], [tensor((5,))], {}), "the size 'in2' must be constant"),
        (update((3, 4), (4, 4)), "an update of shape 4x4 does not fit into 3x4"),
        (update((3, 4), (4,)), "an update of shape 4 does not fit into 3x4"),
        (
            one_operator("DYNAMIC_UPDATE_SLICE", [tensor((4,)), tensor((2,)), T((2,), "int32")], [tensor((4,))], {}),
            "start indices of shape 2 for 1 dimensions",
        ),
        (
            one_operator("DYNAMIC_UPDATE_SLICE", [tensor((4,)), tensor((2,), "int16"), T((1,), "int32")], [tensor((4,))], {}),
            "'in1' is int16 but 'in0' is int8",
        ),
        (update((4,), (2,), index="uint8"), "uint8 is not supported for 'in2'"),
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value) and "node 0 " in str(caught.value)
