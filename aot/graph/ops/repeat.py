"""BROADCAST_TO, BROADCAST_ARGS, TILE, FILL, ZEROS_LIKE: outputs larger than what they are made of, of any type.

Shapes must be known at compile time: what a model computes from constants and shapes is.
Sources: tflite-micro, tensorflow/lite/micro/kernels/broadcast_to.cc, broadcast_args.cc, fill.cc, zeros_like.cc; TILE, which
TFLite Micro lacks: LiteRT.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aot.graph.expr import Affine, Const, affine, axis, fixed
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator, constant_element, load
from aot.graph.ops import checks
from aot.graph.ops.broadcast import stretched_index
from aot.graph.ops.movement import MOVABLE, append_move, check_movable, constant_integers
from aot.graph.primitive import Map, identity
from aot.graph.shapes import MAX_RANK
from aot.graph.support import alone, litert, micro


def _no_options(options: Any) -> None:
    return None


def _sizes(site: Site, position: int, purpose: str) -> Shape:
    """A constant list of sizes, none below 0."""
    data = constant_integers(site, position, purpose).reshape(-1)
    if data.size > MAX_RANK:
        raise site.error(f"{data.size} entries of the {purpose} are more than {MAX_RANK}")
    if (data < 0).any():
        raise site.error(f"the {purpose} {data.tolist()} must not be negative")
    return tuple(data.tolist())


# BROADCAST_TO


def _infer_broadcast_to(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (2,))
    shape, out = site.input(0).shape, _sizes(site, 1, "shape")
    fits = len(shape) <= len(out) and all(size in (1, whole) for size, whole in zip(shape[::-1], out[::-1]))
    if not fits:
        raise site.error(f"shape {checks.shape_text(shape)} does not broadcast to {checks.shape_text(out)}")
    return (out,)


def _compute_broadcast_to(site: Site, x: np.ndarray, *_: np.ndarray) -> tuple[np.ndarray]:
    return (np.array(np.broadcast_to(x, site.output.shape)),)


def _lower_broadcast_to(site: Site, lowering: Lowering) -> None:
    append_move(site, lowering, stretched_index(site.input(0).shape, site.output.shape))


# BROADCAST_ARGS


def _infer_broadcast_args(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (2,))
    for position in (0, 1):
        checks.require_rank(site, site.input(position), 1)
    return ((max(site.input(0).size, site.input(1).size),),)


def _check_broadcast_args(site: Site) -> None:
    checks.require_dtype(site, site.output, DType.INT32, DType.INT64)
    for position in (0, 1):
        checks.require_same_dtype(site, site.input(position), site.output)
    _broadcast(site)


def _broadcast(site: Site) -> np.ndarray:
    """The shape to which both shapes broadcast."""
    left, right = (constant_integers(site, position, "shape").tolist() for position in (0, 1))
    rank = max(len(left), len(right))
    pairs = list(zip([1] * (rank - len(left)) + left, [1] * (rank - len(right)) + right))
    if any(a != b and 1 not in (a, b) for a, b in pairs):
        raise site.error(f"the shapes {left[:MAX_RANK]} and {right[:MAX_RANK]} do not broadcast")
    return np.array([b if a == 1 else a for a, b in pairs], site.output.dtype.np)


def _compute_broadcast_args(site: Site, *_: np.ndarray) -> tuple[np.ndarray]:
    return (_broadcast(site),)


def _lower_broadcast_args(site: Site, lowering: Lowering) -> None:
    out = site.output
    name = lowering.constant("shape", _broadcast(site))
    lowering.append(Map(out.name, out.shape, constant_element(name, out.dtype, identity(1)), nodes=(site.node.index,)))


# TILE


def _infer_tile(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (2,))
    shape, times = site.input(0).shape, _sizes(site, 1, "multiples")
    if len(times) != len(shape):
        raise site.error(f"{len(times)} multiples for {len(shape)} dimensions")
    return (tuple(size * count for size, count in zip(shape, times)),)


def _times(site: Site) -> Shape:
    """How often each axis is repeated."""
    return tuple(whole // size if size else 1 for size, whole in zip(site.input(0).shape, site.output.shape))


def _compute_tile(site: Site, x: np.ndarray, *_: np.ndarray) -> tuple[np.ndarray]:
    return (np.tile(x, _times(site)).reshape(site.output.shape),)


def _lower_tile(site: Site, lowering: Lowering) -> None:
    """Space: for an axis that is repeated and longer than 1, the repetition and the position in it; else the axis itself."""
    value, out = site.input(0), site.output
    space: list[int] = []
    index: list[Affine] = []
    store: list[Affine] = []
    for size, count in zip(value.shape, _times(site)):
        first = len(space)
        if size > 1 and count > 1:
            space += [count, size]
            index.append(axis(first + 1))
            store.append(affine({first: size, first + 1: 1}))
        else:
            space.append(size * count)
            index.append(fixed(0) if size == 1 else axis(first))
            store.append(axis(first))
    read = load(value, tuple(index))
    place = () if tuple(space) == out.shape else tuple(store)
    lowering.append(Map(out.name, tuple(space), read, place, (site.node.index,)))


# FILL and ZEROS_LIKE


def _infer_fill(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (2,))
    if site.input(1).size != 1:
        raise site.error(f"the value {checks.describe(site.input(1))} has {site.input(1).size} elements, not one")
    return (_sizes(site, 0, "shape"),)


def _check_fill(site: Site) -> None:
    checks.require_dtype(site, site.input(1), *MOVABLE)
    checks.require_same_dtype(site, site.output, site.input(1))


def _compute_fill(site: Site, _: np.ndarray, value: np.ndarray) -> tuple[np.ndarray]:
    return (np.full(site.output.shape, value.reshape(()), value.dtype),)


def _lower_fill(site: Site, lowering: Lowering) -> None:
    value, out = site.input(1), site.output
    element = load(value, (fixed(0),) * len(value.shape))
    lowering.append(Map(out.name, out.shape, element, nodes=(site.node.index,)))


def _infer_zeros(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (1,))
    return (site.input(0).shape,)


def _compute_zeros(site: Site, x: np.ndarray) -> tuple[np.ndarray]:
    """The number 0, whatever the zero point."""
    return (np.zeros_like(x),)


def _lower_zeros(site: Site, lowering: Lowering) -> None:
    out = site.output
    zero = Const(False if out.dtype is DType.BOOL else 0, out.dtype)
    lowering.append(Map(out.name, out.shape, zero, nodes=(site.node.index,)))


OPERATORS = (
    Operator(
        "BROADCAST_TO", None, _no_options, _infer_broadcast_to, check_movable, _compute_broadcast_to, _lower_broadcast_to
    ).supports(
        micro("bool, int8, uint8, int16, int32, uint32, int64, uint64, float32"),
        alone("uint16"),
        notes="The shape must be known at compile time.",
    ),
    Operator(
        "BROADCAST_ARGS",
        None,
        _no_options,
        _infer_broadcast_args,
        _check_broadcast_args,
        _compute_broadcast_args,
        _lower_broadcast_args,
    ).supports(micro("int32, int64"), notes="Operands must be known at compile time."),
    Operator("TILE", None, _no_options, _infer_tile, check_movable, _compute_tile, _lower_tile).supports(
        litert("bool, int8, uint8, int16, uint16, int32, uint32, int64, uint64, float32"),
        notes="Multiples must be known at compile time.",
    ),
    Operator("FILL", None, _no_options, _infer_fill, _check_fill, _compute_fill, _lower_fill).supports(
        micro("int8, int32, float32"),
        litert("bool, uint8, int16, uint16, uint32, int64, uint64"),
        notes="The shape must be known at compile time.",
    ),
    Operator("ZEROS_LIKE", None, _no_options, _infer_zeros, check_movable, _compute_zeros, _lower_zeros).supports(
        micro("int8, int32, int64, float32"),
        alone("bool, uint8, int16, uint16, uint32, uint64"),
        notes="Zeros are bytes 0, whatever the zero point.",
    ),
)
