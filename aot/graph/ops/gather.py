"""GATHER, GATHER_ND, EMBEDDING_LOOKUP: elements of any type at positions that another value holds.

A position that is computed at run time and lies outside is clamped to the nearest one inside (TFLite Micro
stops there); a constant one is refused. GATHER by a constant list moves data by a table, which fuses; anything else is a `Lookup`.
EMBEDDING_LOOKUP of int8 rows may give float32: scale * q.
Sources: tflite-micro, tensorflow/lite/micro/kernels/gather.cc, gather_nd.cc, embedding_lookup.cc; one scale for each row: LiteRT.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.graph.expr import Axis, Expr, IndexMap, Lookup, Table, axis, cast, fixed, mul, real
from aot.graph.ir import DType, Shape, Site, Value
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.ops.movement import MOVABLE, append_move, axis_of, check_movable
from aot.graph.ops.positions import INDICES, clamped, clamped_array, flat, require_inside, strides
from aot.graph.primitive import Map
from aot.graph.support import alone, litert, micro

# GATHER


@dataclass(frozen=True)
class Gather:
    axis: int = 0
    batch_dims: int = 0


def _read_gather(options: Any) -> Gather:
    return Gather() if options is None else Gather(options.Axis(), options.BatchDims())


def _gather_axes(site: Site) -> tuple[int, int]:
    """The axis, and how many leading axes values and indices have in common."""
    checks.require_counts(site, (2,))
    a, value, indices = site.node.attributes, site.input(0), site.input(1)
    assert isinstance(a, Gather)
    number, index_rank = axis_of(site, value, a.axis), len(indices.shape)
    shared = a.batch_dims + index_rank if a.batch_dims < 0 else a.batch_dims
    if not 0 <= shared <= min(number, index_rank):
        raise site.error(f"{a.batch_dims} batch dimensions do not fit axis {number} and indices of {index_rank} dimensions")
    if value.shape[:shared] != indices.shape[:shared]:
        shapes = f"{checks.shape_text(value.shape)} and {checks.shape_text(indices.shape)}"
        raise site.error(f"values and indices of shape {shapes} do not share {shared} batch dimensions")
    return number, shared


def _infer_gather(site: Site) -> tuple[Shape, ...]:
    number, shared = _gather_axes(site)
    value, indices = site.input(0).shape, site.input(1).shape
    return ((*value[:number], *indices[shared:], *value[number + 1 :]),)


def _check_gather(site: Site) -> None:
    check_movable(site)
    checks.require_dtype(site, site.input(1), *INDICES)
    checks.require_elements(site, site.input(0))
    require_inside(site, site.input(1), site.input(0).shape[_gather_axes(site)[0]])


def _compute_gather(site: Site, x: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray]:
    number, shared = _gather_axes(site)
    positions = clamped_array(indices, 0, x.shape[number] - 1)
    if not shared:
        return (np.take(x, positions, number),)
    batches = np.ogrid[tuple(slice(size) for size in x.shape[:shared])]
    kept = positions.ndim - shared
    batches = (part.reshape(*part.shape, *[1] * kept) for part in batches)
    found = np.moveaxis(x, number, shared)[(*batches, positions)]  # batches, kept indices, axes before `number`, axes after it
    return (np.ascontiguousarray(np.moveaxis(found, range(shared, shared + kept), range(number, number + kept))),)


def _lower_gather(site: Site, lowering: Lowering) -> None:
    number, shared = _gather_axes(site)
    value, indices = site.input(0), site.input(1)
    kept = len(indices.shape) - shared
    after = range(number + kept, number + kept + len(value.shape) - number - 1)
    if indices.data is not None and not shared and kept < 2:
        position = _table(indices.data, number)
        append_move(site, lowering, (*map(axis, range(number)), position, *map(axis, after)))
        return
    read = load(indices, tuple(map(axis, (*range(shared), *range(number, number + kept)))))
    at = (*map(Axis, range(number)), clamped(read, 0, value.shape[number] - 1), *map(Axis, after))
    _append_lookup(site, lowering, value, flat(zip(at, strides(value.shape))))


def _table(positions: np.ndarray, number: int) -> IndexMap:
    """Constant positions, a list or a single one, as an index map of output axis `number`."""
    return Table(number, tuple(positions.tolist())) if positions.ndim else fixed(int(positions))


def _append_lookup(site: Site, lowering: Lowering, value: Value, index: Expr) -> None:
    out = site.output
    lowering.append(Map(out.name, out.shape, Lookup(value.name, index, value.dtype), nodes=(site.node.index,)))


# GATHER_ND


def _depth(site: Site) -> int:
    """Coordinates of each position."""
    checks.require_counts(site, (2,))
    value, indices = site.input(0), site.input(1)
    if not value.shape or not indices.shape:
        raise site.error("values and indices must have a dimension at least")
    if indices.shape[-1] > len(value.shape):
        raise site.error(f"positions of {indices.shape[-1]} coordinates in {len(value.shape)} dimensions")
    return indices.shape[-1]


def _infer_gather_nd(site: Site) -> tuple[Shape, ...]:
    depth = _depth(site)
    return ((*site.input(1).shape[:-1], *site.input(0).shape[depth:]),)


def _check_gather_nd(site: Site) -> None:
    check_movable(site)
    value, indices = site.input(0), site.input(1)
    checks.require_dtype(site, indices, *INDICES)
    checks.require_elements(site, value)
    if indices.data is not None and indices.data.size:
        first = _first(site, indices.data)
        last = value.size - _slice_size(site)
        if first.min() < 0 or first.max() > last:
            raise site.error(f"{checks.describe(indices)} names positions outside shape {checks.shape_text(value.shape)}")


def _slice_size(site: Site) -> int:
    """Elements at each position."""
    return math.prod(site.input(0).shape[_depth(site) :])


def _first(site: Site, indices: np.ndarray) -> np.ndarray:
    """The flat position of each slice's first element: int32, which wraps. Like TFLite, it asks only whether the sum is inside."""
    steps = np.array(strides(site.input(0).shape)[: _depth(site)], np.int32)
    return (indices.astype(np.int32) * steps).sum(-1, dtype=np.int32)


def _compute_gather_nd(site: Site, x: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray]:
    size = _slice_size(site)
    first = np.clip(_first(site, indices), 0, x.size - size)
    return (x.reshape(-1)[first[..., None] + np.arange(size)].reshape(site.output.shape),)


def _lower_gather_nd(site: Site, lowering: Lowering) -> None:
    value, indices, depth = site.input(0), site.input(1), _depth(site)
    count = len(indices.shape) - 1
    steps = strides(value.shape)
    coordinates = (load(indices, (*map(axis, range(count)), fixed(k))) for k in range(depth))
    first = flat((cast(coordinate, DType.INT32), step) for coordinate, step in zip(coordinates, steps))
    start = clamped(first, 0, value.size - _slice_size(site))
    rest = ((Axis(count + k), step) for k, step in enumerate(steps[depth:]))
    _append_lookup(site, lowering, value, flat(((start, 1), *rest)))


# EMBEDDING_LOOKUP


def _infer_embedding(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (2,))
    checks.require_rank(site, site.input(0), 1)
    if len(site.input(1).shape) < 2:
        raise site.error(f"{checks.describe(site.input(1))} has {len(site.input(1).shape)} dimensions, not 2 or more")
    return ((site.input(0).shape[0], *site.input(1).shape[1:]),)


def _check_embedding(site: Site) -> None:
    indices, value = site.input(0), site.input(1)
    checks.require_dtype(site, indices, DType.INT32)
    checks.require_elements(site, value)
    require_inside(site, indices, value.shape[0])
    if value.dtype is DType.INT8 and site.output.dtype is DType.FLOAT32:
        _row_scales(site)
        return
    checks.require_dtype(site, value, *MOVABLE)
    checks.require_same_dtype(site, site.output, value)


def _row_scales(site: Site) -> np.ndarray:
    """float32: one scale for all rows, or one for each."""
    value = site.input(1)
    found = checks.quantisation(site, value)
    if any(found.zero_points):
        raise site.error(f"{checks.describe(value)} has a zero point that is not 0", "float32 rows come from symmetric ones")
    if found.per_axis and (found.axis != 0 or len(found.scales) != value.shape[0]):
        raise site.error(f"{checks.describe(value)} has {len(found.scales)} scales, not one for each of {value.shape[0]} rows")
    return np.array(found.scales, np.float32)


def _compute_embedding(site: Site, indices: np.ndarray, x: np.ndarray) -> tuple[np.ndarray]:
    positions = clamped_array(indices, 0, x.shape[0] - 1)
    rows = x[positions]
    if x.dtype == site.output.dtype.np:
        return (rows,)
    scales = _row_scales(site)
    scale = scales[positions].reshape(-1, *[1] * (x.ndim - 1)) if scales.size > 1 else scales[0]
    return ((rows.astype(np.float32) * scale).astype(np.float32),)


def _lower_embedding(site: Site, lowering: Lowering) -> None:
    indices, value, out = site.input(0), site.input(1), site.output
    row = clamped(load(indices), 0, value.shape[0] - 1)
    at = (row, *map(Axis, range(1, len(value.shape))))
    found = Lookup(value.name, flat(zip(at, strides(value.shape))), value.dtype)
    if out.dtype is value.dtype:
        lowering.append(Map(out.name, out.shape, found, nodes=(site.node.index,)))
        return
    scales = _row_scales(site)
    many = scales.size > 1
    scale = Lookup(lowering.constant("scales", scales), row, DType.FLOAT32) if many else real(float(scales[0]))
    lowering.append(Map(out.name, out.shape, mul(cast(found, DType.FLOAT32), scale), nodes=(site.node.index,)))


OPERATORS = (
    Operator("GATHER", "GatherOptions", _read_gather, _infer_gather, _check_gather, _compute_gather, _lower_gather).supports(
        micro("int8, float32"),
        litert("bool, uint8, int16, int32, int64"),
        alone("uint16, uint32, uint64"),
        notes="A computed position outside is clamped (TFLite Micro stops there), a constant one refused.",
    ),
    Operator(
        "GATHER_ND", None, lambda options: None, _infer_gather_nd, _check_gather_nd, _compute_gather_nd, _lower_gather_nd
    ).supports(
        micro("int8, float32"), litert("bool, uint8, int16, int32, int64"), alone("uint16, uint32, uint64"), notes="As GATHER."
    ),
    Operator(
        "EMBEDDING_LOOKUP",
        None,
        lambda options: None,
        _infer_embedding,
        _check_embedding,
        _compute_embedding,
        _lower_embedding,
    ).supports(
        micro("int8, int8 to float32, float32"),
        litert("bool, uint8, int16, uint16, int32, uint32, int64, uint64"),
        notes="As GATHER; int8 rows to float32 may have a scale each, as in LiteRT.",
    ),
)
