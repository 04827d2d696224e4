"""MEAN and SUM over constant axes: int8, int16 and uint8 (quantised), float32, int32, int64.

Source: tflite-micro, tensorflow/lite/micro/kernels/reduce_common.cc and tensorflow/lite/kernels/internal/reference/reduce.h,
QuantizedMeanOrSum; uint8, int32 and int64: LiteRT, tflite/kernels/reduce.cc with the same reference. float32 is exact to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aot.graph import arithmetic
from aot.graph.evaluate import requantise
from aot.graph.expr import Acc, Binary, Const, Expr, Requantise, add, cast, clamp, integer, real
from aot.graph.ir import DType, Site
from aot.graph.operator import Lowering, Operator
from aot.graph.ops import checks, reduction
from aot.graph.support import litert, micro

QUANTISED = (DType.INT8, DType.INT16, DType.UINT8)
DTYPES = (*QUANTISED, DType.FLOAT32, DType.INT32, DType.INT64)


@dataclass(frozen=True)
class _Rescaling:
    """Sum of the inputs to output: MEAN's division is part of the multiplier."""

    multiplier: int
    shift: int
    offset: int
    zero_point: int


def _is_mean(site: Site) -> bool:
    return site.node.op == "MEAN"


def _rescaling(site: Site) -> _Rescaling:
    """The multiplier of the scales. MEAN divides it by the count with truncation, first shifted up as far as the count allows."""
    input_scale, input_zero_point = checks.per_tensor(site, site.input(0))
    output_scale, zero_point = checks.per_tensor(site, site.output)
    count, ratio = reduction.count(site), arithmetic.ratio_scale(input_scale, output_scale)
    multiplier, shift = arithmetic.quantise_multiplier(ratio)
    if _is_mean(site):
        up = min(count.bit_length() - 1, 32, 31 + shift)
        multiplier, shift, ratio = (multiplier << up) // count, shift - up, ratio / count
    if shift > checks.MAX_SHIFT:
        raise site.error(f"its scales would multiply the sum by {ratio:.3g}, more than int32 arithmetic can")
    offset = int(np.int64(-input_zero_point * count).astype(np.int32))
    return _Rescaling(multiplier, shift, offset, zero_point)


def _check(site: Site) -> None:
    reduction.reduced_axes(site)
    data = site.input(0)
    checks.require_dtype(site, data, *DTYPES)
    checks.require_same_dtype(site, site.output, data)
    if data.dtype in QUANTISED:
        _rescaling(site)


def _compute(site: Site, data: np.ndarray, axes: np.ndarray) -> tuple[np.ndarray]:
    """float32: summed in the order of memory from 0, then divided. int32, int64: the sum wraps, the quotient goes towards 0."""
    dtype, rows, shape = site.input(0).dtype, reduction.rows(site, data), reduction.infer(site)[0]
    if dtype in QUANTISED:
        return (_rescaled(_rescaling(site), rows, dtype).reshape(shape),)
    count = reduction.count(site)
    if dtype is DType.FLOAT32:
        total = np.add.accumulate(rows, axis=1, dtype=np.float32)[:, -1] + np.float32(0)
        return ((total / np.float32(count) if _is_mean(site) else total).reshape(shape),)
    total = rows.sum(axis=1, dtype=np.int64)
    quotient = total // count + ((total < 0) & (total % count != 0)) if _is_mean(site) else total
    return (quotient.astype(data.dtype).reshape(shape),)


def _rescaled(scaling: _Rescaling, rows: np.ndarray, dtype: DType) -> np.ndarray:
    total = (rows.sum(axis=1, dtype=np.int64) + scaling.offset).astype(np.int32)
    scaled = requantise(total, scaling.multiplier, scaling.shift) + np.int32(scaling.zero_point)
    return np.clip(scaled, *dtype.limits).astype(dtype.np)


def _lower(site: Site, lowering: Lowering) -> None:
    dtype = site.input(0).dtype
    ending = _quantised_ending if dtype in QUANTISED else _real_ending if dtype is DType.FLOAT32 else _integer_ending
    initial, result = ending(site)
    reduction.append(site, lowering, "add", initial, lambda load: cast(load, initial.dtype), result)


def _quantised_ending(site: Site) -> tuple[Const, Expr]:
    scaling, dtype = _rescaling(site), site.output.dtype
    scaled = Requantise(Acc(DType.INT32), integer(scaling.multiplier), integer(scaling.shift))
    return integer(scaling.offset), cast(clamp(add(scaled, integer(scaling.zero_point)), *dtype.limits), dtype)


def _real_ending(site: Site) -> tuple[Const, Expr]:
    total = Acc(DType.FLOAT32)
    return real(0.0), Binary("div", total, real(reduction.count(site))) if _is_mean(site) else total


def _integer_ending(site: Site) -> tuple[Const, Expr]:
    """MEAN's sum is an int64."""
    acc = DType.INT64 if _is_mean(site) else site.output.dtype
    total = Acc(acc)
    count = integer(reduction.count(site), acc)
    return integer(0, acc), cast(Binary("div", total, count), site.output.dtype) if _is_mean(site) else total


OPERATORS = tuple(
    Operator(name, "ReducerOptions", reduction.read, reduction.infer, _check, _compute, _lower).supports(
        micro("int8, int16, float32"), litert("uint8, int32, int64"), notes="Constant axes; float32 is exact."
    )
    for name in ("MEAN", "SUM")
)
