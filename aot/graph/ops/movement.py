"""PAD, PADV2, MIRROR_PAD, TRANSPOSE, REVERSE_V2: elements of any type move. One `Map` of one load each.

The types are those of MOVABLE, more than TFLite Micro takes. REVERSE_V2 takes any axes, where TFLite wants neighbours.
Sources: tflite-micro, tensorflow/lite/micro/kernels/pad_common.cc, mirror_pad.cc, transpose_common.cc, reverse.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.graph.expr import Const, IndexMap, Table, axis
from aot.graph.ir import DType, Shape, Site, Value
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.primitive import Map
from aot.graph.support import alone, litert, micro

MOVABLE = (
    DType.INT8,
    DType.UINT8,
    DType.INT16,
    DType.UINT16,
    DType.INT32,
    DType.UINT32,
    DType.INT64,
    DType.UINT64,
    DType.FLOAT32,
    DType.BOOL,
)
"""Types of the elements that can be moved."""

MAX_TABLE = 1 << 16
"""The longest axis whose positions may be kept in a table."""

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


def constant_axis(site: Site, position: int, value: Value) -> int:
    """The axis of `value` that a constant input names, counted from 0."""
    data = constant_integers(site, position, "axis")
    if data.size != 1:
        raise site.error(f"the axis has {data.size} elements, not one")
    return axis_of(site, value, int(data.reshape(-1)[0]))


def axis_of(site: Site, value: Value, number: int) -> int:
    """An axis of a value, counted from 0; negative numbers count from the end."""
    rank = len(value.shape)
    if not -rank <= number < rank:
        raise site.error(f"axis {number} is outside the {rank} dimensions of {checks.describe(value)}")
    return number % rank


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
    return real_zero(site)


def real_zero(site: Site) -> int:
    """The number that stands for real 0 in the output: the zero point of 8-bit types, if they are quantised."""
    quantised = site.output.dtype in (DType.INT8, DType.UINT8) and site.output.quantisation is not None
    return checks.per_tensor(site, site.output)[1] if quantised else 0


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
        quantised = value.quantisation is not None or site.output.quantisation is not None
        if value.dtype in (DType.INT8, DType.UINT8) and quantised:
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


# MIRROR_PAD


@dataclass(frozen=True)
class MirrorPad:
    """`edge`: elements at the border that are not repeated: 1 for REFLECT, 0 for SYMMETRIC."""

    edge: int = 1


def _read_mirror_pad(options: Any) -> MirrorPad:
    return MirrorPad() if options is None else MirrorPad(0 if options.Mode() == 1 else 1)


def mirror_positions(before: int, size: int, after: int, edge: int) -> tuple[int, ...]:
    """The input position of each output position along one axis; neither border is longer than size - edge."""
    head = range(before - 1 + edge, edge - 1, -1)
    tail = range(size - 1 - edge, size - 1 - edge - after, -1)
    return (*head, *range(size), *tail)


def _infer_mirror_pad(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (2,))
    assert isinstance(site.node.attributes, MirrorPad)
    edge = site.node.attributes.edge
    sizes: list[int] = []
    for size, (before, after) in zip(site.input(0).shape, paddings(site)):
        if max(before, after) > max(size - edge, 0):
            raise site.error(f"paddings of {before} and {after} are more than an axis of {size} can mirror")
        if before + after and size + before + after > MAX_TABLE:
            raise site.error(f"an axis of {size + before + after} is too long to be mirrored", f"the longest has {MAX_TABLE}")
        sizes.append(size + before + after)
    return (tuple(sizes),)


def _mirrors(site: Site) -> tuple[tuple[int, ...] | None, ...]:
    """For each axis the input position of each output position; None: the same."""
    assert isinstance(site.node.attributes, MirrorPad)
    edge = site.node.attributes.edge
    return tuple(
        mirror_positions(before, size, after, edge) if before + after else None
        for size, (before, after) in zip(site.input(0).shape, paddings(site))
    )


def _compute_mirror_pad(site: Site, x: np.ndarray, *_: np.ndarray) -> tuple[np.ndarray]:
    for number, positions in enumerate(_mirrors(site)):
        x = x if positions is None else np.take(x, positions, number)
    return (x,)


def _lower_mirror_pad(site: Site, lowering: Lowering) -> None:
    index = tuple(axis(number) if entries is None else Table(number, entries) for number, entries in enumerate(_mirrors(site)))
    append_move(site, lowering, index)


# REVERSE_V2


def reversed_axes(site: Site) -> frozenset[int]:
    data, rank = constant_integers(site, 1, "axes").reshape(-1), len(site.input(0).shape)
    if data.size > rank:
        raise site.error(f"{data.size} axes to reverse in {rank} dimensions")
    axes = [axis_of(site, site.input(0), int(number)) for number in data]
    if len(set(axes)) != len(axes):
        raise site.error(f"the axes {[int(number) for number in data]} name one twice")
    return frozenset(axes)


def _infer_reverse(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (2,))
    reversed_axes(site)
    return (site.input(0).shape,)


def _compute_reverse(site: Site, x: np.ndarray, *_: np.ndarray) -> tuple[np.ndarray]:
    return (np.ascontiguousarray(np.flip(x, tuple(reversed_axes(site)))).reshape(x.shape),)


def _lower_reverse(site: Site, lowering: Lowering) -> None:
    backwards = reversed_axes(site)
    shape = site.input(0).shape
    index = tuple(axis(k, -1, size - 1) if k in backwards else axis(k) for k, size in enumerate(shape))
    append_move(site, lowering, index)


OPERATORS = (
    Operator("PAD", None, lambda options: None, _infer_pad, _check_pad, _compute_pad, _lower_pad).supports(
        micro("int8, int16, int32, float32"),
        litert("bool, uint8, int64"),
        alone("uint16, uint32, uint64"),
        notes="Constant amounts.",
    ),
    Operator("PADV2", None, lambda options: None, _infer_pad, _check_pad, _compute_pad, _lower_pad).supports(
        micro("int8, int16, int32, float32"),
        litert("bool, uint8, int64"),
        alone("uint16, uint32, uint64"),
        notes="Constant amounts.",
    ),
    Operator(
        "MIRROR_PAD",
        "MirrorPadOptions",
        _read_mirror_pad,
        _infer_mirror_pad,
        check_movable,
        _compute_mirror_pad,
        _lower_mirror_pad,
    ).supports(
        micro("int8, float32"), litert("bool, uint8, int16, uint16, int32, uint32, int64, uint64"), notes="Constant amounts."
    ),
    Operator(
        "TRANSPOSE", None, lambda options: None, _infer_transpose, check_movable, _compute_transpose, _lower_transpose
    ).supports(
        micro("int8, int16, float32"),
        litert("bool, uint8, uint16, int32, uint32, int64, uint64"),
        notes="The permutation is constant.",
    ),
    Operator("REVERSE_V2", None, lambda options: None, _infer_reverse, check_movable, _compute_reverse, _lower_reverse).supports(
        micro("bool, int8, uint8, int16, int32, int64, float32"),
        alone("uint16, uint32, uint64"),
        notes="Any constant axes, where TFLite wants neighbours.",
    ),
)
