"""RESIZE_NEAREST_NEIGHBOR and RESIZE_BILINEAR: all flags and types, up and down, odd sizes, size 1, against TFLite Micro and LiteRT."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.expr import Affine, Load, Table
from aot.graph.primitive import Map
from tests.graph.lowered import agree, extremes, primitives, read, sweep
from tests.graph.test_ops_movement import OTHERS, numbers, same, tensor
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs, tflm_runs

DTYPES = ("int8", "float32")
SIZES = (1, 2, 3, 5, 7, 8, 10, 13)
# RESIZE_NEAREST_NEIGHBOR


def resize(
    size: Sequence[int],
    out: Sequence[int],
    align_corners: bool,
    half_pixel: bool,
    dtype: str = "int8",
    channels: int = 3,
    op: str = "RESIZE_NEAREST_NEIGHBOR",
) -> bytes:
    options = {"align_corners": align_corners, "half_pixel_centers": half_pixel}
    inputs = [tensor((2, *size, channels), dtype), numbers(*out)]
    return one_operator(op, inputs, [tensor((2, *out, channels), dtype)], options)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("half_pixel", [False, True])
def test_resize(align_corners: bool, half_pixel: bool) -> None:
    """Up, down, odd sizes, size 1, both axes different."""
    for case in sweep(40, rows=SIZES, columns=SIZES, out_rows=SIZES, out_columns=SIZES, dtype=DTYPES, channels=(1, 3)):
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


@pytest.mark.parametrize("dtype", OTHERS)
def test_nearest_of_other_types(dtype: str) -> None:
    same(resize((4, 6), (2, 3), False, False, dtype), lambda x: x[:, ::2, ::2])
    if dtype in ("int16", "uint8"):
        agree(resize((4, 5), (7, 3), True, True, dtype), oracle=tflm_runs if dtype == "int16" else litert_runs)


# RESIZE_BILINEAR

FLAGS = ((False, False), (True, False), (False, True))
"""(align_corners, half_pixel_centers): both together is refused, here as there."""


def bilinear(size: Sequence[int], out: Sequence[int], flags: tuple[bool, bool], dtype: str = "int8", channels: int = 2) -> bytes:
    return resize(size, out, *flags, dtype, channels, "RESIZE_BILINEAR")


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("dtype", ["int8", "float32", "uint8", "int16"])
def test_bilinear(flags: tuple[bool, bool], dtype: str) -> None:
    oracle = tflm_runs if dtype in DTYPES else litert_runs
    for case in sweep(25, rows=SIZES, columns=SIZES, out_rows=SIZES, out_columns=SIZES, channels=(1, 3)):
        model = bilinear((case["rows"], case["columns"]), (case["out_rows"], case["out_columns"]), flags, dtype, case["channels"])
        agree(model, *extremes(model), bound=1e-7, oracle=oracle)


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_bilinear_along_one_axis(flags: tuple[bool, bool], dtype: str) -> None:
    """Every pair of small sizes: where positions round."""
    for size, out in itertools.product((1, 2, 3, 6, 11, 17), range(1, 24, 3)):
        agree(bilinear((1, size), (1, out), flags, dtype, 1), bound=1e-7)
        agree(bilinear((size, 1), (out, 1), flags, dtype, 1), bound=1e-7)


def test_bilinear_rounds_half_away_from_zero() -> None:
    """Halfway between two neighbours, and at both ends of the range."""
    model = bilinear((1, 2), (1, 4), (False, False), channels=1)
    pairs = [(-1, 0), (0, 1), (-2, -1), (-128, 127), (127, 126), (-128, -127)]
    for pair in pairs:
        agree(model, [np.array([pair, pair], np.int8).reshape(2, 1, 2, 1)])


def test_bilinear_far_beyond_the_last_element() -> None:
    """The scale is rounded to 1/1024: after 5000 outputs TFLite is past the input's end. The last element is what we take."""
    model = bilinear((1, 3), (1, 5000), (False, False), channels=1)
    x = np.array([[1, 2, 100]] * 2, np.int8).reshape(2, 1, 3, 1)
    same_rows = agree(model, [x], oracle=lambda model, invocations: [[_linear(inputs[0], 5000)] for inputs in invocations])
    assert same_rows[0][0, 0, -1, 0] == 100


def _linear(x: np.ndarray, out: int) -> np.ndarray:
    """Bilinear along the last axis but one, with a scale of 1/1024."""
    position = np.arange(out)
    low, high = np.minimum(position // 1024, x.shape[2] - 1), np.minimum(-(-position // 1024), x.shape[2] - 1)
    weight = np.where(low == high, 0, position - 1024 * low)[:, None]
    total = x[:, :, low].astype(np.int64) * (1024 - weight) + x[:, :, high].astype(np.int64) * weight
    return (np.sign(total) * ((np.abs(total) + 512) // 1024)).astype(x.dtype)


def test_int8_needs_three_products_of_int32() -> None:
    (block,) = primitives(bilinear((4, 4), (7, 7), (False, False)))
    assert isinstance(block, Map)
    from aot.graph.expr import Binary, walk

    products = [expr for expr in walk(block.value) if isinstance(expr, Binary) and expr.op == "mul"]
    assert {expr.dtype.value for expr in walk(block.value)} <= {"int8", "int16", "int32", "bool"} and len(products) == 6


# What is refused


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
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
            "an image as high or as wide as this can't be resized (at most 65536 on each side)",
        ),
        (
            one_operator("RESIZE_NEAREST_NEIGHBOR", [tensor((1, 2, 2, 1)), numbers(9, 9)], [tensor((1, 2, 2, 1))], {}),
            "the file says its output is 1x2x2x1, its inputs give 1x9x9x1",
        ),
        (
            one_operator("RESIZE_BILINEAR", [tensor((1, 2, 2, 1)), T((2,), "int32")], [tensor((1, 2, 2, 1))], {}),
            "the size 'in1' must be constant",
        ),
        (bilinear((2, 2), (3, 3), (True, True)), "aligned corners and half pixel centres exclude each other"),
        (bilinear((2, 2), (3, 3), (False, False), "int32"), "int32 is not supported for 'in0'"),
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value) and "node 0 " in str(caught.value)
