"""RESHAPE, SQUEEZE, EXPAND_DIMS: views of any type, which lower to nothing; and SHAPE, which is a constant.

Sources: tflite-micro, tensorflow/lite/micro/kernels/reshape_common.cc, squeeze.cc, expand_dims.cc, shape.cc;
the legacy forms of RESHAPE's target as in LiteRT.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator, constant_element
from aot.graph.ops import checks
from aot.graph.ops.movement import MOVABLE
from aot.graph.primitive import Map, identity
from aot.graph.shapes import MAX_RANK
from aot.graph.support import ANY, litert, micro

VIEWABLE = (*MOVABLE, DType.INT4, DType.FLOAT16, DType.FLOAT64)
"""Types of what may be seen under another shape."""


def _check_view(site: Site) -> None:
    checks.require_dtype(site, site.input(0), *VIEWABLE)
    checks.require_same_dtype(site, site.output, site.input(0))


def _compute_view(site: Site, x: np.ndarray, *_: np.ndarray | None) -> tuple[np.ndarray]:
    return (x.reshape(site.output.shape),)


def _lower_view(site: Site, lowering: Lowering) -> None:
    """Nothing: the output is the input's bytes under another shape."""


# RESHAPE


@dataclass(frozen=True)
class Reshape:
    """`shape` is the target where the node has no second input (None: the file states none). One entry may be -1."""

    shape: Shape | None = None


def _read_reshape(options: Any) -> Reshape:
    if options is None or options.NewShapeIsNone():
        return Reshape()
    return Reshape(tuple(int(options.NewShape(position)) for position in range(options.NewShapeLength())))


def _target(site: Site) -> Shape:
    """The target with its -1. A target that is computed at run time is taken from the output's own shape in the file."""
    assert isinstance(site.node.attributes, Reshape)
    stated, second = site.node.attributes.shape, site.optional(1)
    if second is not None and second.data is not None:
        checks.require_dtype(site, second, DType.INT32, DType.INT64)
        return tuple(int(size) for size in second.data.reshape(-1))
    if second is None and stated is not None:
        return () if stated == (0,) else stated  # the old way to say "scalar"
    return site.output.shape


def _infer_reshape(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (1, 2))
    value, target = site.input(0), _target(site)
    if len(target) > MAX_RANK:
        raise site.error(f"the target shape has {len(target)} dimensions, more than {MAX_RANK}")
    unknown = [position for position, size in enumerate(target) if size == -1]
    known = math.prod(size for size in target if size != -1)
    if len(unknown) > 1 or min(target, default=0) < -1:
        raise site.error(f"the target shape {list(target)} is not a shape with at most one -1")
    if unknown and known and value.size % known == 0:
        target = tuple(value.size // known if size == -1 else size for size in target)
    elif unknown or known != value.size:
        raise site.error(f"{value.size} elements of {checks.describe(value)} do not fill the target shape {list(target)}")
    return (target,)


# SQUEEZE


@dataclass(frozen=True)
class Squeeze:
    """Axes to drop; none: every axis of size 1."""

    axes: tuple[int, ...] = ()


def _read_squeeze(options: Any) -> Squeeze:
    if options is None:
        return Squeeze()
    return Squeeze(tuple(int(options.SqueezeDims(position)) for position in range(options.SqueezeDimsLength())))


def _infer_squeeze(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (1,))
    assert isinstance(site.node.attributes, Squeeze)
    value = site.input(0)
    rank = len(value.shape)
    dropped = {axis + rank if axis < 0 else axis for axis in site.node.attributes.axes}
    for axis in sorted(dropped):
        if not 0 <= axis < rank or value.shape[axis] != 1:
            raise site.error(f"axis {axis} of shape {checks.shape_text(value.shape)} can't be squeezed")
    if not dropped:
        dropped = {axis for axis, size in enumerate(value.shape) if size == 1}
    return (tuple(size for axis, size in enumerate(value.shape) if axis not in dropped),)


# EXPAND_DIMS


def _infer_expand_dims(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (2,))
    shape = site.input(0).shape
    position = checks.require_constant(site, site.input(1), "axis")
    checks.require_dtype(site, site.input(1), DType.INT32, DType.INT64)
    if position.size != 1:
        raise site.error(f"the axis has {position.size} elements, not one")
    axis = int(position.reshape(-1)[0])
    place = axis + len(shape) + 1 if axis < 0 else axis
    if not 0 <= place <= len(shape):
        raise site.error(f"there is no axis {axis} to add to shape {checks.shape_text(shape)}")
    return ((*shape[:place], 1, *shape[place:]),)


# SHAPE


def _infer_shape(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (1,))
    return ((len(site.input(0).shape),),)


def _check_shape(site: Site) -> None:
    checks.require_dtype(site, site.input(0), *VIEWABLE)
    checks.require_dtype(site, site.output, DType.INT32, DType.INT64)


def _compute_shape(site: Site, x: np.ndarray) -> tuple[np.ndarray]:
    return (np.array(site.input(0).shape, site.output.dtype.np),)


def _lower_shape(site: Site, lowering: Lowering) -> None:
    out = site.output
    name = lowering.constant("shape", np.array(site.input(0).shape, out.dtype.np))
    lowering.append(Map(out.name, out.shape, constant_element(name, out.dtype, identity(1)), nodes=(site.node.index,)))


OPERATORS = (
    Operator("RESHAPE", "ReshapeOptions", _read_reshape, _infer_reshape, _check_view, _compute_view, _lower_view).supports(
        *ANY,
        notes="A view: no code. The shape must be known at compile time.",
    ),
    Operator("SQUEEZE", "SqueezeOptions", _read_squeeze, _infer_squeeze, _check_view, _compute_view, _lower_view).supports(
        *ANY,
        notes="A view: no code.",
    ),
    Operator("EXPAND_DIMS", None, lambda options: None, _infer_expand_dims, _check_view, _compute_view, _lower_view).supports(
        micro("int8, int16, float32"),
        litert("bool, int4, uint8, uint16, int32, uint32, int64, uint64, float16, float64"),
        notes="A view: no code.",
    ),
    Operator("SHAPE", None, lambda options: None, _infer_shape, _check_shape, _compute_shape, _lower_shape).supports(
        *ANY,
        notes="A constant.",
    ),
)
