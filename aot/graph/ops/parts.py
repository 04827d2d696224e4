"""SPLIT, SPLIT_V, UNPACK: one value of any type becomes several, each a `Map` of one load with an affine index.

Sources: tflite-micro, tensorflow/lite/micro/kernels/split.cc, split_v.cc, unpack.cc; a size of -1: LiteRT.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.graph.expr import axis, fixed
from aot.graph.ir import Shape, Site, Value
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.ops.movement import MOVABLE, axis_of, constant_axis, constant_integers
from aot.graph.primitive import Map
from aot.graph.support import alone, litert, micro


@dataclass(frozen=True)
class Split:
    """`count` equal parts."""

    count: int = 0


def _read_split(options: Any) -> Split:
    return Split() if options is None else Split(options.NumSplits())


def _append_parts(site: Site, lowering: Lowering, value: Value, number: int) -> None:
    """Each output is the next part of `value` along an axis."""
    start = 0
    for out in site.outputs:
        index = tuple(axis(k, 1, start if k == number else 0) for k in range(len(value.shape)))
        lowering.append(Map(out.name, out.shape, load(value, index), nodes=(site.node.index,)))
        start += out.shape[number]


# SPLIT


def _split_parts(site: Site) -> tuple[Value, int, int]:
    """The value that is split, the axis, and the size of each part."""
    checks.require_counts(site, (2,), len(site.outputs))
    assert isinstance(site.node.attributes, Split)
    value, count = site.input(1), site.node.attributes.count
    number = constant_axis(site, 0, value)
    if count != len(site.outputs) or count < 1 or value.shape[number] % count:
        raise site.error(f"an axis of {value.shape[number]} does not split into {count} parts for {len(site.outputs)} outputs")
    return value, number, value.shape[number] // count


def _infer_split(site: Site) -> tuple[Shape, ...]:
    value, number, size = _split_parts(site)
    return ((*value.shape[:number], size, *value.shape[number + 1 :]),) * len(site.outputs)


def _compute_split(site: Site, _: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(np.ascontiguousarray(part) for part in np.split(x, len(site.outputs), _split_parts(site)[1]))


def _lower_split(site: Site, lowering: Lowering) -> None:
    value, number, _ = _split_parts(site)
    _append_parts(site, lowering, value, number)


# SPLIT_V


def _split_sizes(site: Site) -> tuple[int, tuple[int, ...]]:
    """The axis, and the size of each part; one may say -1, the rest."""
    checks.require_counts(site, (3,), len(site.outputs))
    assert isinstance(site.node.attributes, Split)
    value = site.input(0)
    number = constant_axis(site, 2, value)
    sizes = constant_integers(site, 1, "sizes").reshape(-1).tolist()
    if not len(sizes) == len(site.outputs) == site.node.attributes.count:
        raise site.error(f"has {len(sizes)} sizes for {site.node.attributes.count} parts and {len(site.outputs)} outputs")
    whole, rest = value.shape[number], [k for k, size in enumerate(sizes) if size == -1]
    if len(rest) == 1:
        sizes[rest[0]] = whole - sum(sizes) - 1
    if min(sizes, default=0) < 0 or sum(sizes) != whole:
        raise site.error(f"an axis of {whole} does not split into parts of these sizes: {_text(sizes)}")
    return number, tuple(sizes)


def _text(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes[:16])) + (" ..." if len(sizes) > 16 else "")


def _infer_split_v(site: Site) -> tuple[Shape, ...]:
    number, sizes = _split_sizes(site)
    shape = site.input(0).shape
    return tuple((*shape[:number], size, *shape[number + 1 :]) for size in sizes)


def _compute_split_v(site: Site, x: np.ndarray, *_: np.ndarray) -> tuple[np.ndarray, ...]:
    number, sizes = _split_sizes(site)
    ends = np.cumsum(sizes)[:-1].tolist()
    return tuple(np.ascontiguousarray(part) for part in np.split(x, ends, number))


def _lower_split_v(site: Site, lowering: Lowering) -> None:
    _append_parts(site, lowering, site.input(0), _split_sizes(site)[0])


# UNPACK


@dataclass(frozen=True)
class Unpack:
    count: int = 0
    axis: int = 0


def _read_unpack(options: Any) -> Unpack:
    return Unpack() if options is None else Unpack(options.Num(), options.Axis())


def _unpack_axis(site: Site) -> int:
    checks.require_counts(site, (1,), len(site.outputs))
    a, value = site.node.attributes, site.input(0)
    assert isinstance(a, Unpack)
    number = axis_of(site, value, a.axis)
    if not a.count == len(site.outputs) == value.shape[number]:
        raise site.error(f"an axis of {value.shape[number]} does not unpack into {a.count} parts for {len(site.outputs)} outputs")
    return number


def _infer_unpack(site: Site) -> tuple[Shape, ...]:
    number, shape = _unpack_axis(site), site.input(0).shape
    return ((*shape[:number], *shape[number + 1 :]),) * len(site.outputs)


def _compute_unpack(site: Site, x: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(np.array(part, x.dtype) for part in np.moveaxis(x, _unpack_axis(site), 0))


def _lower_unpack(site: Site, lowering: Lowering) -> None:
    number, value = _unpack_axis(site), site.input(0)
    for position, out in enumerate(site.outputs):
        rest = iter(range(len(out.shape)))
        index = tuple(fixed(position) if k == number else axis(next(rest)) for k in range(len(value.shape)))
        lowering.append(Map(out.name, out.shape, load(value, index), nodes=(site.node.index,)))


def _check_parts(site: Site) -> None:
    value = site.input(1 if site.node.op == "SPLIT" else 0)
    checks.require_dtype(site, value, *MOVABLE)
    for out in site.outputs:
        checks.require_same_dtype(site, out, value)


OPERATORS = (
    Operator("SPLIT", "SplitOptions", _read_split, _infer_split, _check_parts, _compute_split, _lower_split).supports(
        micro("int8, int16, int32, float32"),
        litert("uint8, int64"),
        alone("bool, uint16, uint32, uint64"),
        notes="The axis is constant.",
    ),
    Operator("SPLIT_V", "SplitVOptions", _read_split, _infer_split_v, _check_parts, _compute_split_v, _lower_split_v).supports(
        micro("int8, int16, int32, float32"),
        litert("uint8, int64"),
        alone("bool, uint16, uint32, uint64"),
        notes="Axis and sizes are constant; a size of -1 is LiteRT's.",
    ),
    Operator("UNPACK", "UnpackOptions", _read_unpack, _infer_unpack, _check_parts, _compute_unpack, _lower_unpack).supports(
        micro("int8, int16, int32, float32"), litert("bool, uint8"), alone("uint16, uint32, int64, uint64"), notes="Exact."
    ),
)
