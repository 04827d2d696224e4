"""RESIZE_NEAREST_NEIGHBOR of any type, RESIZE_BILINEAR of int8, uint8, int16 and float32; NHWC.

Every combination of flags that TFLite takes. RESIZE_BILINEAR: int8 and int16 in fixed point with 10 fractional bits, float32
within 1 ulp of the largest of the four elements, uint8 in float32 (as LiteRT's reference does), rounded half up.
Sources: tflite-micro, tensorflow/lite/kernels/internal/reference/resize_nearest_neighbor.h and resize_bilinear.h; types and flags:
tensorflow/lite/micro/kernels/resize_bilinear.cc, for uint8 and int16 LiteRT.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.graph.expr import Binary, Const, Expr, IndexMap, Select, Table, add, axis, cast, integer, mul, real, sub
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator, constant_element, load
from aot.graph.ops import checks
from aot.graph.ops.movement import MAX_TABLE, append_move, check_movable, constant_integers
from aot.graph.primitive import Map
from aot.graph.support import alone, litert, micro

ONE = 1 << 10
"""1 in RESIZE_BILINEAR's fixed point."""


@dataclass(frozen=True)
class Resize:
    """Attributes of the resizing operators."""

    align_corners: bool = False
    half_pixel_centers: bool = False


def _read_resize(options: Any) -> Resize:
    return Resize() if options is None else Resize(bool(options.AlignCorners()), bool(options.HalfPixelCenters()))


def _attributes(site: Site) -> Resize:
    assert isinstance(site.node.attributes, Resize)
    return site.node.attributes


def _size(site: Site) -> tuple[int, int]:
    """Height and width of the output."""
    checks.require_counts(site, (2,))
    checks.require_rank(site, site.input(0), 4)
    checks.require_elements(site, site.input(0))
    data = constant_integers(site, 1, "size").reshape(-1)
    if data.size != 2 or (data < 1).any():
        raise site.error(f"the size {data[:4].tolist()} is not a height and a width of at least 1")
    if max(*data.tolist(), *site.input(0).shape[1:3]) > MAX_TABLE:
        raise site.error("an image as high or as wide as this can't be resized", f"at most {MAX_TABLE} on each side")
    height, width = data.tolist()
    return height, width


def _infer_resize(site: Site) -> tuple[Shape, ...]:
    rows, columns = _size(site)
    batches, _, _, channels = site.input(0).shape
    return ((batches, rows, columns, channels),)


def _index(number: int, entries: tuple[int, ...]) -> IndexMap:
    """The table, or a line through its entries if they lie on one."""
    first = entries[0]
    step = entries[1] - first if len(entries) > 1 else 0
    if all(entry == first + step * position for position, entry in enumerate(entries)):
        return axis(number, step, first)
    return Table(number, entries)


# RESIZE_NEAREST_NEIGHBOR


def _nearest(size: int, out: int, attributes: Resize) -> tuple[int, ...]:
    """The input position of each of `out` positions, in float32 as TFLite computes it."""
    offset = np.float32(0.5 if attributes.half_pixel_centers else 0)
    scaled = (np.arange(out, dtype=np.float32) + offset) * _float_scale(size, out, attributes)
    rounded = [math.floor(x + 0.5) if attributes.align_corners else math.floor(x) for x in scaled.tolist()]
    return tuple(max(0, min(position, size - 1)) for position in rounded)


def _float_scale(size: int, out: int, attributes: Resize) -> np.float32:
    corners = attributes.align_corners and out > 1
    return np.float32(size - 1) / np.float32(out - 1) if corners else np.float32(size) / np.float32(out)


def _positions(site: Site) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Input rows and columns of the output's rows and columns."""
    _, height, width, _ = site.input(0).shape
    rows, columns = _size(site)
    return _nearest(height, rows, _attributes(site)), _nearest(width, columns, _attributes(site))


def _compute_nearest(site: Site, x: np.ndarray, *_: np.ndarray) -> tuple[np.ndarray]:
    rows, columns = _positions(site)
    return (x[:, rows][:, :, columns],)


def _lower_nearest(site: Site, lowering: Lowering) -> None:
    rows, columns = _positions(site)
    append_move(site, lowering, (axis(0), _index(1, rows), _index(2, columns), axis(3)))


# RESIZE_BILINEAR


@dataclass(frozen=True)
class Line:
    """Along one axis: for each output position the two input positions that it lies between, and the second one's weight.

    Fixed point: weights in 1/1024, in [0, 1024], and 0 where both positions are one. float32: weight and `rest` = 1 - weight.
    """

    low: np.ndarray
    high: np.ndarray
    weight: np.ndarray
    rest: np.ndarray


def _fixed_line(size: int, out: int, attributes: Resize) -> Line:
    """Positions in 1/1024; int64, which holds everything exactly. TFLite reads outside the input where its rounded scale, over
    thousands of outputs, leads there; here the last element is taken."""
    corners = attributes.align_corners and out > 1
    scale = (ONE * (size - 1) + (out - 1) // 2) // (out - 1) if corners else (ONE * size + out // 2) // out
    scaled = np.arange(out, dtype=np.int64) * scale
    if attributes.half_pixel_centers:
        scaled += scale // 2 - ONE // 2
    low = np.clip(scaled // ONE, 0, size - 1)
    high = np.clip((scaled + ONE - 1) // ONE, 0, size - 1)
    weight = np.where(low == high, 0, scaled - ONE * low)
    return Line(low, high, weight, ONE - weight)


def _float_line(size: int, out: int, attributes: Resize) -> Line:
    """Weights outside [0, 1] at the border: both positions are the same one there."""
    position = np.arange(out, dtype=np.float32)
    scale = _float_scale(size, out, attributes)
    half = np.float32(0.5)
    scaled = (position + half) * scale - half if attributes.half_pixel_centers else position * scale
    low = np.clip(np.floor(scaled).astype(np.int64), 0, size - 1)
    high = np.clip(np.ceil(scaled).astype(np.int64), 0, size - 1)
    weight = scaled - low.astype(np.float32)
    return Line(low, high, weight, np.float32(1) - weight)


def _lines(site: Site) -> tuple[Line, Line]:
    line = _fixed_line if _is_fixed(site) else _float_line
    _, height, width, _ = site.input(0).shape
    rows, columns = _size(site)
    return line(height, rows, _attributes(site)), line(width, columns, _attributes(site))


def _is_fixed(site: Site) -> bool:
    return site.input(0).dtype in (DType.INT8, DType.INT16)


def _wide(site: Site) -> DType:
    """A type that holds 1024 * 1024 times an element."""
    return DType.INT64 if site.input(0).dtype is DType.INT16 else DType.INT32


def _check_bilinear(site: Site) -> None:
    checks.require_dtype(site, site.input(0), DType.INT8, DType.UINT8, DType.INT16, DType.FLOAT32)
    checks.require_same_dtype(site, site.output, site.input(0))
    if _attributes(site).align_corners and _attributes(site).half_pixel_centers:
        raise site.error("aligned corners and half pixel centres exclude each other", "TFLite refuses both together, too")


def _compute_bilinear(site: Site, x: np.ndarray, *_: np.ndarray) -> tuple[np.ndarray]:
    rows, columns = _lines(site)
    top, bottom = x[:, rows.low], x[:, rows.high]
    corners = (top[:, :, columns.low], bottom[:, :, columns.low], top[:, :, columns.high], bottom[:, :, columns.high])
    down, down_rest = (part[:, None, None] for part in (rows.weight, rows.rest))
    right, right_rest = (part[:, None] for part in (columns.weight, columns.rest))
    weights = ((down_rest, right_rest), (down, right_rest), (down_rest, right), (down, right))
    wide = np.int64 if _is_fixed(site) else np.float32
    total = wide(0)
    for number, (corner, (vertical, horizontal)) in enumerate(zip(corners, weights)):
        term = corner.astype(wide) * vertical * horizontal
        total = term if number == 0 else total + term
    return (_finished(np.asarray(total), x.dtype),)


def _finished(total: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Rounded half away from zero (fixed point), half up (uint8), or as it is."""
    if total.dtype == np.int64:
        half = ONE * ONE // 2
        return (np.sign(total) * ((np.abs(total) + half) // (ONE * ONE))).astype(dtype)
    return (total + np.float32(0.5)).astype(dtype) if dtype == np.uint8 else total


def _lower_bilinear(site: Site, lowering: Lowering) -> None:
    rows, columns = _lines(site)
    value = _fixed_value(site, lowering, rows, columns) if _is_fixed(site) else _float_value(site, lowering, rows, columns)
    lowering.append(Map(site.output.name, site.output.shape, value, nodes=(site.node.index,)))


def _corners(site: Site, rows: Line, columns: Line, dtype: DType) -> tuple[Expr, Expr, Expr, Expr]:
    """Top left, bottom left, top right, bottom right."""
    pairs = ((rows.low, columns.low), (rows.high, columns.low), (rows.low, columns.high), (rows.high, columns.high))
    a, b, c, d = (
        cast(
            load(site.input(0), (axis(0), _index(1, tuple(row.tolist())), _index(2, tuple(column.tolist())), axis(3))),
            dtype,
        )
        for row, column in pairs
    )
    return a, b, c, d


def _weight(lowering: Lowering, purpose: str, data: np.ndarray, number: int) -> Expr:
    """A number for each position of an axis; one for all where they are equal."""
    if (data == data[0]).all():
        return Const(data[0].item(), DType(data.dtype.name))
    return constant_element(lowering.constant(purpose, data), DType(data.dtype.name), (axis(number),))


def _fixed_value(site: Site, lowering: Lowering, rows: Line, columns: Line) -> Expr:
    """Along the row, then down: three products, which add up to the same integer as TFLite's four terms of two."""
    wide = _wide(site)
    down = cast(_weight(lowering, "row_weight", rows.weight.astype(np.int16), 1), wide)
    right = cast(_weight(lowering, "column_weight", columns.weight.astype(np.int16), 2), wide)
    top_left, bottom_left, top_right, bottom_right = _corners(site, rows, columns, wide)
    top, bottom = _between(top_left, top_right, right), _between(bottom_left, bottom_right, right)
    total = _between(top, bottom, down)
    half = ONE * ONE // 2
    positive = Binary("gt", total, integer(0, wide))
    rounded = add(total, Select(positive, integer(half, wide), integer(-half, wide)))
    return cast(Binary("div", rounded, integer(ONE * ONE, wide)), site.output.dtype)


def _between(first: Expr, second: Expr, weight: Expr) -> Expr:
    """1024 * first + (second - first) * weight."""
    return add(mul(first, integer(ONE, first.dtype)), mul(sub(second, first), weight))


def _float_value(site: Site, lowering: Lowering, rows: Line, columns: Line) -> Expr:
    """TFLite's four terms in its order."""
    down, down_rest = (_weight(lowering, "row_weight", part, 1) for part in (rows.weight, rows.rest))
    right, right_rest = (_weight(lowering, "column_weight", part, 2) for part in (columns.weight, columns.rest))
    corners = _corners(site, rows, columns, DType.FLOAT32)
    weights = ((down_rest, right_rest), (down, right_rest), (down_rest, right), (down, right))
    terms = [mul(mul(corner, vertical), horizontal) for corner, (vertical, horizontal) in zip(corners, weights)]
    total = add(add(add(terms[0], terms[1]), terms[2]), terms[3])
    return cast(add(total, real(0.5)), DType.UINT8) if site.output.dtype is DType.UINT8 else total


OPERATORS = (
    Operator(
        "RESIZE_NEAREST_NEIGHBOR",
        "ResizeNearestNeighborOptions",
        _read_resize,
        _infer_resize,
        check_movable,
        _compute_nearest,
        _lower_nearest,
    ).supports(
        micro("int8, int16, float32"),
        litert("bool, uint8, uint16, int32, uint32"),
        alone("int64, uint64"),
        notes="The size is constant.",
    ),
    Operator(
        "RESIZE_BILINEAR",
        "ResizeBilinearOptions",
        _read_resize,
        _infer_resize,
        _check_bilinear,
        _compute_bilinear,
        _lower_bilinear,
    ).supports(
        micro("int8, float32"),
        litert("uint8, int16"),
        notes="float32 within 1 ulp of the largest of the four elements; int8 and int16 in fixed point, uint8 in float32, as TFLite's.",
    ),
)
