"""PAD, PADV2, TRANSPOSE, RESIZE_NEAREST_NEIGHBOR: elements move, none is computed. One `Map` of one load each.

Sources: tflite-micro, tensorflow/lite/micro/kernels/pad_common.cc, transpose_common.cc, resize_nearest_neighbor.cc and
tensorflow/lite/kernels/internal/reference/resize_nearest_neighbor.h.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from aot.graph.expr import Const, IndexMap, Table, axis
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.primitive import Map

MOVABLE = (DType.INT8, DType.UINT8, DType.INT16, DType.INT32, DType.INT64, DType.FLOAT32, DType.BOOL)
"""Types of the elements that can be moved."""

_INDICES = (DType.INT32, DType.INT64)


def check_movable(site: Site) -> None:
    checks.require_dtype(site, site.input(0), *MOVABLE)
    checks.require_same_dtype(site, site.output, site.input(0))


def constant_integers(site: Site, position: int, purpose: str) -> np.ndarray:
    """The integers of an input that must be constant."""
    value = site.input(position)
    data = checks.require_constant(site, value, purpose)
    checks.require_dtype(site, value, *_INDICES)
    return data


def append_move(site: Site, lowering: Lowering, index: tuple[IndexMap, ...], fill: Const | None = None) -> None:
    """out[i] = input 0 at index(i)."""
    lowering.append(Map(site.output.name, site.output.shape, load(site.input(0), index, fill), nodes=(site.node.index,)))


# PAD, PADV2


def paddings(site: Site) -> tuple[tuple[int, int], ...]:
    """Elements before and after, for each axis."""
    data, rank = constant_integers(site, 1, "paddings"), len(site.input(0).shape)
    if data.size != 2 * rank:
        raise site.error(f"{data.size} paddings for {rank} dimensions, not {2 * rank}")
    if (data < 0).any():
        raise site.error("negative paddings are not supported")
    return tuple((int(before), int(after)) for before, after in data.reshape(rank, 2))


def pad_value(site: Site) -> int | float | bool:
    """What the padding holds: PADV2's third input, else real 0."""
    value = site.optional(2)
    if value is not None:
        data = checks.require_constant(site, value, "padding value")
        if data.size != 1:
            raise site.error(f"the padding value has {data.size} elements, not one")
        return data.reshape(-1)[0].item()
    return checks.per_tensor(site, site.output)[1] if site.output.dtype in (DType.INT8, DType.UINT8) else 0


def _infer_pad(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (2, 3))
    shape = tuple(size + before + after for size, (before, after) in zip(site.input(0).shape, paddings(site)))
    return (shape,)


def _check_pad(site: Site) -> None:
    check_movable(site)
    pad_value(site)
    value = site.optional(2)
    if value is not None:
        checks.require_same_dtype(site, value, site.input(0))
        if value.dtype is DType.INT8:
            checks.require_same_quantisation(site, value, site.output)


def _compute_pad(site: Site, x: np.ndarray, *_: np.ndarray | None) -> tuple[np.ndarray]:
    return (np.pad(x, paddings(site), constant_values=pad_value(site)) if x.ndim else x,)


def _lower_pad(site: Site, lowering: Lowering) -> None:
    index = tuple(axis(number, 1, -before) for number, (before, _) in enumerate(paddings(site)))
    inside = not any(map(any, paddings(site)))
    append_move(site, lowering, index, None if inside else Const(pad_value(site), site.input(0).dtype))


# TRANSPOSE


def permutation(site: Site) -> tuple[int, ...]:
    """For each output axis, the input axis that it was."""
    data, rank = constant_integers(site, 1, "permutation"), len(site.input(0).shape)
    axes = tuple(int(number) + rank if number < 0 else int(number) for number in data.reshape(-1))
    if sorted(axes) != list(range(rank)):
        raise site.error(f"{[int(number) for number in data.reshape(-1)]} is not a permutation of {rank} axes")
    return axes


def _infer_transpose(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (2,))
    return (tuple(site.input(0).shape[number] for number in permutation(site)),)


def _compute_transpose(site: Site, x: np.ndarray, *_: np.ndarray) -> tuple[np.ndarray]:
    return (np.ascontiguousarray(x.transpose(permutation(site))),)


def _lower_transpose(site: Site, lowering: Lowering) -> None:
    axes = permutation(site)
    append_move(site, lowering, tuple(axis(axes.index(number)) for number in range(len(axes))))


# RESIZE_NEAREST_NEIGHBOR


@dataclass(frozen=True)
class Resize:
    """Attributes of the resizing operators."""

    align_corners: bool = False
    half_pixel_centers: bool = False


def _read_resize(options) -> Resize:
    return Resize() if options is None else Resize(bool(options.AlignCorners()), bool(options.HalfPixelCenters()))


def _nearest(size: int, out: int, attributes: Resize) -> tuple[int, ...]:
    """The input position of each of `out` positions, in float32 as TFLite computes it."""
    corners = attributes.align_corners and out > 1
    scale = np.float32(size - 1) / np.float32(out - 1) if corners else np.float32(size) / np.float32(out)
    offset = np.float32(0.5 if attributes.half_pixel_centers else 0)
    real = (np.arange(out, dtype=np.float32) + offset) * scale
    rounded = [math.floor(x + 0.5) if attributes.align_corners else math.floor(x) for x in real.tolist()]
    return tuple(max(0, min(position, size - 1)) for position in rounded)


def _size(site: Site) -> tuple[int, int]:
    """Height and width of the output."""
    checks.require_counts(site, (2,))
    checks.require_rank(site, site.input(0), 4)
    checks.require_elements(site, site.input(0))
    data = constant_integers(site, 1, "size")
    if data.size != 2 or (data < 1).any():
        raise site.error(f"the size {data.reshape(-1)[:4].tolist()} is not a height and a width of at least 1")
    height, width = data.reshape(-1).tolist()
    return height, width


def _positions(site: Site) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Input rows and columns of the output's rows and columns."""
    assert isinstance(site.node.attributes, Resize)
    _, height, width, _ = site.input(0).shape
    rows, columns = _size(site)
    return _nearest(height, rows, site.node.attributes), _nearest(width, columns, site.node.attributes)


def _infer_resize(site: Site) -> tuple[Shape, ...]:
    rows, columns = _size(site)
    batches, _, _, channels = site.input(0).shape
    return ((batches, rows, columns, channels),)


def _compute_resize(site: Site, x: np.ndarray, *_: np.ndarray) -> tuple[np.ndarray]:
    rows, columns = _positions(site)
    return (x[:, rows][:, :, columns],)


def _lower_resize(site: Site, lowering: Lowering) -> None:
    rows, columns = _positions(site)
    append_move(site, lowering, (axis(0), _index(1, rows), _index(2, columns), axis(3)))


def _index(number: int, entries: tuple[int, ...]) -> IndexMap:
    """The table, or a line through its entries if they lie on one."""
    first = entries[0]
    step = entries[1] - first if len(entries) > 1 else 0
    if all(entry == first + step * position for position, entry in enumerate(entries)):
        return axis(number, step, first)
    return Table(number, entries)


OPERATORS = (
    Operator("PAD", None, lambda options: None, _infer_pad, _check_pad, _compute_pad, _lower_pad),
    Operator("PADV2", None, lambda options: None, _infer_pad, _check_pad, _compute_pad, _lower_pad),
    Operator("TRANSPOSE", None, lambda options: None, _infer_transpose, check_movable, _compute_transpose, _lower_transpose),
    Operator(
        "RESIZE_NEAREST_NEIGHBOR",
        "ResizeNearestNeighborOptions",
        _read_resize,
        _infer_resize,
        check_movable,
        _compute_resize,
        _lower_resize,
    ),
)
