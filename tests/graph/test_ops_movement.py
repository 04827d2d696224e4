"""PAD, PADV2, TRANSPOSE, RESIZE_NEAREST_NEIGHBOR: all permutations, all flags, odd sizes, against TFLite Micro and LiteRT."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.expr import Affine, Load, Table
from aot.graph.primitive import Map
from tests.graph.lowered import agree, primitives, read, sweep
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs, tflm_runs

DTYPES = ("int8", "float32")
ZERO_POINTS = (-128, -1, 0, 127)


def tensor(shape: Sequence[int], dtype: str = "int8", zero_point: int = 0, scale: float = 0.1, data=None) -> T:
    return T(shape, dtype, scale if dtype in ("int8", "uint8", "int16") else None, zero_point, data)


def numbers(*values, dtype: str = "int32") -> T:
    return T(np.shape(values), dtype, data=np.array(values))


# PAD, PADV2


def pad(
    shape: Sequence[int], paddings: Sequence[tuple[int, int]], dtype: str = "int8", zero_point: int = 0, value: float | None = None
) -> bytes:
    out = [size + before + after for size, (before, after) in zip(shape, paddings)]
    inputs = [tensor(shape, dtype, zero_point), T((len(shape), 2), "int32", data=np.array(paddings).reshape(-1, 2))]
    if value is not None:
        inputs.append(tensor((), dtype, zero_point, data=np.array(value)))
    return one_operator("PAD" if value is None else "PADV2", inputs, [tensor(out, dtype, zero_point)], {})


PADDINGS = (
    ((1, 3, 5, 2), ((0, 0), (1, 2), (3, 0), (0, 0))),
    ((2, 3, 2, 3), ((1, 0), (0, 1), (2, 2), (0, 3))),
    ((7,), ((2, 3),)),
    ((3, 4), ((0, 0), (0, 5))),
    ((2, 3, 1), ((1, 1), (1, 1), (1, 1))),
    ((1, 2, 2, 2, 2), ((0, 1), (1, 0), (0, 0), (2, 0), (0, 2))),
    ((2, 3), ((0, 0), (0, 0))),
)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pad(dtype: str) -> None:
    for (shape, paddings), zero_point, value in itertools.product(PADDINGS, ZERO_POINTS, (None, -5, 100)):
        agree(pad(shape, paddings, dtype, zero_point, value), bound=0.0)


@pytest.mark.parametrize("dtype", ["int16", "int32"])
def test_pad_of_other_types(dtype: str) -> None:
    agree(pad((2, 3), ((1, 0), (0, 2)), dtype))


def test_pad_fills_with_the_output_zero_point() -> None:
    model = pad((1, 2), ((0, 0), (1, 1)), zero_point=-7)
    assert agree(model, [np.array([[5, 6]], np.int8)])[0].tolist() == [[-7, 5, 6, -7]]


# TRANSPOSE


def transpose(shape: Sequence[int], perm: Sequence[int], dtype: str = "int8") -> bytes:
    out = [shape[number] for number in perm]
    return one_operator("TRANSPOSE", [tensor(shape, dtype), numbers(*perm)], [tensor(out, dtype)], {})


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_every_permutation(rank: int) -> None:
    for perm in itertools.permutations(range(rank)):
        agree(transpose((2, 3, 4, 5)[:rank], perm), bound=0.0)


@pytest.mark.parametrize(("rank", "oracle"), [(5, tflm_runs), (6, litert_runs)])
def test_permutations_of_high_rank(rank: int, oracle) -> None:
    rng = np.random.default_rng(rank)
    for dtype in DTYPES:
        agree(transpose((2, 3, 1, 4, 2, 3)[:rank], rng.permutation(rank).tolist(), dtype), bound=0.0, oracle=oracle)


def test_negative_permutation_entries() -> None:
    model = one_operator("TRANSPOSE", [tensor((2, 3, 4)), numbers(-1, 0, -2)], [tensor((4, 2, 3))], {})
    agree(model, oracle=litert_runs)


# RESIZE_NEAREST_NEIGHBOR


def resize(
    size: Sequence[int], out: Sequence[int], align_corners: bool, half_pixel: bool, dtype: str = "int8", channels: int = 3
) -> bytes:
    options = {"align_corners": align_corners, "half_pixel_centers": half_pixel}
    inputs = [tensor((2, *size, channels), dtype), numbers(*out)]
    return one_operator("RESIZE_NEAREST_NEIGHBOR", inputs, [tensor((2, *out, channels), dtype)], options)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("half_pixel", [False, True])
def test_resize(align_corners: bool, half_pixel: bool) -> None:
    """Up, down, odd sizes, size 1, both axes different."""
    sizes = (1, 2, 3, 5, 7, 8, 10, 13)
    for case in sweep(40, rows=sizes, columns=sizes, out_rows=sizes, out_columns=sizes, dtype=DTYPES, channels=(1, 3)):
        size, out = (case["rows"], case["columns"]), (case["out_rows"], case["out_columns"])
        agree(resize(size, out, align_corners, half_pixel, case["dtype"], case["channels"]), bound=0.0)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("half_pixel", [False, True])
def test_resize_of_every_small_size(align_corners: bool, half_pixel: bool) -> None:
    """Where the float32 rounding matters: one row, every pair of sizes."""
    for size, out in itertools.product(range(1, 24, 3), range(1, 24, 2)):
        agree(resize((1, size), (1, out), align_corners, half_pixel, channels=1))


def test_resize_uses_a_line_where_the_table_is_one() -> None:
    (half,) = primitives(resize((8, 8), (4, 16), False, False))
    assert isinstance(half, Map) and isinstance(half.value, Load)
    assert half.value.index[1] == Affine(((1, 2),), 0)
    assert half.value.index[2] == Table(2, tuple(position // 2 for position in range(16)))


# What is refused


def padding_value(**fields) -> T:
    return T((), "int8", 0.1, fields.pop("zero_point", 0), np.array(3), **fields)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (one_operator("PAD", [tensor((2,)), T((1, 2), "int32")], [tensor((3,))], {}), "the paddings 'in1' must be constant"),
        (one_operator("PAD", [tensor((2,)), numbers((0, 1), (0, 0))], [tensor((3,))], {}), "4 paddings for 1 dimensions, not 2"),
        (one_operator("PAD", [tensor((2,)), numbers((-1, 0))], [tensor((1,))], {}), "negative paddings are not supported"),
        (one_operator("PAD", [tensor((2,)), numbers((0, 1.0), dtype="float32")], [tensor((3,))], {}), "float32 is not supported"),
        (
            one_operator("PAD", [T((2,), "float16"), numbers((0, 1))], [T((3,), "float16")], {}),
            "float16 is not supported for 'in0'",
        ),
        (
            one_operator("PADV2", [tensor((2,)), numbers((0, 1)), tensor((2,), data=np.zeros(2))], [tensor((3,))], {}),
            "the padding value has 2 elements, not one",
        ),
        (
            one_operator("PADV2", [tensor((2,)), numbers((0, 1)), padding_value(zero_point=1)], [tensor((3,))], {}),
            "'in2' and 'out0' must have the same quantisation",
        ),
        (
            one_operator("PADV2", [tensor((2,)), numbers((0, 1)), tensor((), "float32", data=np.zeros(()))], [tensor((3,))], {}),
            "'in2' is float32 but 'in0' is int8",
        ),
        (
            one_operator("PADV2", [tensor((2,)), numbers((0, 1)), tensor(())], [tensor((3,))], {}),
            "the padding value 'in2' must be constant",
        ),
        (one_operator("TRANSPOSE", [tensor((2, 3)), numbers(0, 0)], [tensor((2, 2))], {}), "[0, 0] is not a permutation of 2 axes"),
        (one_operator("TRANSPOSE", [tensor((2, 3)), numbers(0)], [tensor((2,))], {}), "[0] is not a permutation of 2 axes"),
        (one_operator("TRANSPOSE", [tensor((2,)), T((1,), "int32")], [tensor((2,))], {}), "the permutation 'in1' must be constant"),
        (
            one_operator("RESIZE_NEAREST_NEIGHBOR", [tensor((1, 2, 2, 1)), numbers(2, 0)], [tensor((1, 2, 0, 1))], {}),
            "the size [2, 0] is not a height and a width of at least 1",
        ),
        (one_operator("RESIZE_NEAREST_NEIGHBOR", [tensor((2, 2)), numbers(2, 2)], [tensor((2, 2))], {}), "has 2 dimensions, not 4"),
        (
            one_operator("RESIZE_NEAREST_NEIGHBOR", [tensor((1, 2, 2, 1)), numbers(2, 2)], [tensor((1, 2, 2, 1), "float32")], {}),
            "'out0' is float32 but 'in0' is int8",
        ),
        (
            one_operator("RESIZE_NEAREST_NEIGHBOR", [tensor((1, 2, 2, 1)), numbers(1 << 30, 1 << 30)], [tensor((1, 2, 2, 1))], {}),
            "the file says its output is 1x2x2x1, its inputs give 1x1073741824x1073741824x1",
        ),
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value) and "node 0 " in str(caught.value)
