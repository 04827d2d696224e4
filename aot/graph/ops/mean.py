"""MEAN: int8 and float32, over constant axes.

Source: tflite-micro, tensorflow/lite/micro/kernels/reduce_common.cc and
tensorflow/lite/kernels/internal/reference/reduce.h, QuantizedMeanOrSum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from aot.graph import arithmetic
from aot.graph.evaluate import requantise
from aot.graph.expr import Acc, Binary, Const, Expr, Requantise, add, axis, cast, clamp, integer, real
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.primitive import Reduce


@dataclass(frozen=True)
class Mean:
    keep_dims: bool = False


def _read(options) -> Mean:
    return Mean() if options is None else Mean(bool(options.KeepDims()))


def _axes(site: Site) -> tuple[int, ...]:
    """The reduced axes, sorted, each once; axes below 0 count from the end."""
    checks.require_counts(site, (2,))
    data, axes = site.input(0), site.input(1)
    checks.require_dtype(site, axes, DType.INT32)
    checks.require_elements(site, data)
    rank = len(data.shape)
    found = set()
    for number in checks.require_constant(site, axes, "axes").reshape(-1).tolist():
        if rank and not -rank <= number < rank:
            raise site.error(f"axis {number} is outside the {rank} dimensions of {checks.describe(data)}")
        found.add(number % rank if rank else 0)
    return tuple(sorted(found)) if rank else ()


def _keeps(site: Site) -> bool:
    assert isinstance(site.node.attributes, Mean)
    return site.node.attributes.keep_dims


def _infer(site: Site) -> tuple[Shape, ...]:
    axes, shape = _axes(site), site.input(0).shape
    if _keeps(site):
        return (tuple(1 if number in axes else size for number, size in enumerate(shape)),)
    return (tuple(size for number, size in enumerate(shape) if number not in axes),)


def _count(site: Site) -> int:
    """Elements in each mean."""
    return math.prod(site.input(0).shape[number] for number in _axes(site))


@dataclass(frozen=True)
class _Rescaling:
    """Sum of `count` inputs to output: the division is part of the multiplier."""

    multiplier: int
    shift: int
    offset: int
    zero_point: int


def _rescaling(site: Site) -> _Rescaling:
    """The multiplier of the scales, divided by the count with truncation; it is first shifted up as far as the count allows."""
    input_scale, input_zero_point = checks.per_tensor(site, site.input(0))
    output_scale, zero_point = checks.per_tensor(site, site.output)
    count, ratio = _count(site), arithmetic.ratio_scale(input_scale, output_scale)
    multiplier, shift = arithmetic.quantise_multiplier(ratio)
    up = min(count.bit_length() - 1, 32, 31 + shift)
    multiplier, shift = (multiplier << up) // count, shift - up
    if shift > checks.MAX_SHIFT:
        raise site.error(f"its scales would multiply the sum by {ratio / count:.3g}, more than int32 arithmetic can")
    offset = int(np.int64(-input_zero_point * count).astype(np.int32))
    return _Rescaling(multiplier, shift, offset, zero_point)


def _check(site: Site) -> None:
    _axes(site)
    data = site.input(0)
    checks.require_dtype(site, data, DType.INT8, DType.FLOAT32)
    checks.require_same_dtype(site, site.output, data)
    if data.dtype is DType.INT8:
        _rescaling(site)


def _compute(site: Site, data: np.ndarray, axes: np.ndarray) -> tuple[np.ndarray]:
    """float32: summed in the order of memory, then divided."""
    reduced, shape, count = _axes(site), _infer(site)[0], _count(site)
    kept = [number for number in range(data.ndim) if number not in reduced]
    rows = data.transpose(*kept, *reduced).reshape(-1, count)
    if data.dtype.kind == "f":
        total = np.add.accumulate(rows, axis=1, dtype=np.float32)[:, -1]
        return ((total / np.float32(count)).reshape(shape),)
    scaling = _rescaling(site)
    total = (rows.sum(axis=1, dtype=np.int64) + scaling.offset).astype(np.int32)
    scaled = requantise(total, scaling.multiplier, scaling.shift) + np.int32(scaling.zero_point)
    return (np.clip(scaled, -128, 127).astype(np.int8).reshape(shape),)


def _lower(site: Site, lowering: Lowering) -> None:
    """One Reduce over the output's shape; the window has the reduced axes in their order."""
    reduced, shape, data = _axes(site), _infer(site)[0], site.input(0)
    positions = iter(range(len(shape)))
    index = []
    for number in range(len(data.shape)):
        is_reduced = number in reduced
        position = next(positions) if not is_reduced or _keeps(site) else -1
        index.append(axis(len(shape) + reduced.index(number) if is_reduced else position))
    initial, result = _integer_ending(site) if data.dtype is DType.INT8 else _real_ending(site)
    term = cast(load(data, tuple(index)), initial.dtype)
    window = tuple(data.shape[number] for number in reduced)
    lowering.append(Reduce(site.output.name, shape, window, "add", initial, term, result, nodes=(site.node.index,)))


def _integer_ending(site: Site) -> tuple[Const, Expr]:
    scaling = _rescaling(site)
    scaled = Requantise(Acc(DType.INT32), integer(scaling.multiplier), integer(scaling.shift))
    return integer(scaling.offset), cast(clamp(add(scaled, integer(scaling.zero_point)), -128, 127), DType.INT8)


def _real_ending(site: Site) -> tuple[Const, Expr]:
    return real(0.0), Binary("div", Acc(DType.FLOAT32), real(_count(site)))


OPERATORS = (Operator("MEAN", "ReducerOptions", _read, _infer, _check, _compute, _lower),)
