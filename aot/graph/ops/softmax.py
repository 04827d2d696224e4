"""SOFTMAX over the last dimension: int8 and uint8 to 8 bits or int16, int16 to int16, all in fixed point; float32.

float32: within 4 ulp of the exact quotient for rows up to a few hundred. int16: `softmax16.py`.
Source: tflite-micro, tensorflow/lite/micro/kernels/softmax_common.cc, tensorflow/lite/kernels/internal/reference/softmax.h and
common.h, GetReciprocal; gemmlowp, fixedpoint/fixedpoint.h; uint8: LiteRT, tflite/kernels/activations.cc.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.graph import arithmetic, fixedmath, floatmath
from aot.graph.arithmetic import INT32_MAX
from aot.graph.evaluate import requantise
from aot.graph.expr import (
    Acc,
    Binary,
    Expr,
    Load,
    Lookup,
    Requantise,
    Select,
    Unary,
    add,
    axis,
    cast,
    clamp,
    integer,
    mul,
    real,
    sub,
)
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator
from aot.graph.ops import checks, softmax16
from aot.graph.ops.rows import Rows, require_rows
from aot.graph.primitive import Map
from aot.graph.support import litert, micro

DIFFERENCE_BITS = 5
"""Integer bits of the scaled difference to the largest input: Q5.26."""
SUM_BITS = 12
"""Integer bits of the sum of exponentials: Q12.19."""
LONG_ROW = 512
"""From this row length on, a sum can be so large that every 8-bit result rounds to 0 (TFLite Micro aborts at run time there)."""
WIDE_ROW = 1 << SUM_BITS
"""From this row length on, a sum in int32 could overflow."""
FORMS = {
    (DType.INT8, DType.INT8): (256, -128),
    (DType.UINT8, DType.UINT8): (256, 0),
    (DType.INT8, DType.INT16): (65536, -32768),
    (DType.UINT8, DType.INT16): (65536, -32768),
    (DType.INT16, DType.INT16): (32768, 0),
}
"""(input, output): 1 / scale and zero point of the output."""
SCALE_TOLERANCE = 1e-3
"""How far the output's scale may be off, as a part of it."""
OUTPUTS = {source: tuple(out for kind, out in FORMS if kind is source) for source in (DType.INT8, DType.UINT8, DType.INT16)} | {
    DType.FLOAT32: (DType.FLOAT32,)
}


@dataclass(frozen=True)
class Softmax:
    beta: float = 1.0


def _read(options: Any) -> Softmax:
    return Softmax(0.0 if options is None else float(options.Beta()))


def beta_of(site: Site) -> float:
    assert isinstance(site.node.attributes, Softmax)
    return site.node.attributes.beta


def _infer(site: Site) -> tuple[Shape, ...]:
    return (require_rows(site),)


def _check(site: Site) -> None:
    shape, data, out = require_rows(site), site.input(0), site.output
    checks.require_dtype(site, data, *OUTPUTS)
    if out.dtype not in OUTPUTS[data.dtype]:
        raise site.error(f"{checks.describe(out)} is {out.dtype} but {checks.describe(data)} is {data.dtype}")
    if not math.isfinite(beta_of(site)):
        raise site.error("beta is not a finite number")
    if data.dtype is DType.FLOAT32:
        return
    parts, zero_point = FORMS[data.dtype, out.dtype]
    scale, point = checks.per_tensor(site, out)
    if abs(scale * parts - 1) > SCALE_TOLERANCE or point != zero_point:
        raise site.error(f"{out.dtype} SOFTMAX of {data.dtype} needs an output with scale 1/{parts} and zero point {zero_point}")
    if data.dtype is DType.INT16:
        softmax16.check(site, shape[-1], beta_of(site))
    else:
        exponentials(site, beta_of(site))


def exponentials(site: Site, beta: float) -> np.ndarray:
    """exp(-d * scale * beta) in Q0.31 for differences d = 0..255 to the row's largest input; int32. 0 where TFLite drops it."""
    scaled, radius = scaled_differences(site, beta)
    return np.where(np.arange(256) <= radius, arithmetic.exp_of_negative(scaled, DIFFERENCE_BITS), 0).astype(np.int32)


def scaled_differences(site: Site, beta: float) -> tuple[np.ndarray, int]:
    """-d * scale * beta in Q5.26 for d = 0..255, and the largest d for which it fits (the others have that one's)."""
    multiplier, shift, radius = _scaling(site, beta)
    return requantise(-np.minimum(np.arange(256, dtype=np.int32), radius), multiplier, shift), radius


def scaling_of(site: Site) -> tuple[int, int, int]:
    """Of 8-bit inputs: multiplier and shift that bring a difference to Q5.26, and the largest difference for which it fits."""
    return _scaling(site, beta_of(site))


def _scaling(site: Site, beta: float) -> tuple[int, int, int]:
    scale, _ = checks.per_tensor(site, site.input(0))
    real_multiplier = min(beta * scale * (1 << (31 - DIFFERENCE_BITS)), float(INT32_MAX))
    if not real_multiplier > 1.0:
        raise site.error(f"beta * scale = {beta * scale:.3g} is too small for fixed-point arithmetic")
    multiplier, shift = arithmetic.quantise_multiplier(real_multiplier)
    radius = math.floor(((1 << DIFFERENCE_BITS) - 1) * (1 << (31 - DIFFERENCE_BITS)) / (1 << shift))
    return multiplier, shift, radius


def sums(exponential: np.ndarray) -> np.ndarray:
    """The sum of a row's exponentials in Q12.19, saturated to int32; the last dimension stays as 1."""
    total = arithmetic.rounding_shift_right(exponential, SUM_BITS).sum(axis=-1, keepdims=True, dtype=np.int64)
    return np.minimum(total, INT32_MAX)


def _compute(site: Site, data: np.ndarray) -> tuple[np.ndarray]:
    match site.input(0).dtype:
        case DType.FLOAT32:
            return (_real_compute(data, beta_of(site)),)
        case DType.INT16:
            return (softmax16.compute(site, data, beta_of(site)),)
        case _:
            pass
    return (_integer_compute(site, data),)


def _integer_compute(site: Site, data: np.ndarray) -> np.ndarray:
    wide, dtype = data.astype(np.int64), site.output.dtype
    exponential = exponentials(site, beta_of(site))[wide.max(axis=-1, keepdims=True) - wide]
    total = sums(exponential)
    zeros = 32 - np.frexp(total.astype(np.float64))[1].astype(np.int64)  # the leading zeros of an int32
    reciprocal = arithmetic.reciprocal_of_one_plus((total << zeros) - (1 << 31))
    shift = zeros - _shift_offset(site)
    scaled = requantise(exponential, np.where(shift < -31, 0, reciprocal), np.maximum(shift, -31))
    return np.clip(scaled + dtype.limits[0], *dtype.limits).astype(dtype.np)


def _shift_offset(site: Site) -> int:
    """Minus the right shift of exp * 1/sum to a result, for a sum without leading zeros."""
    return SUM_BITS + 31 - site.output.dtype.bits


def _real_compute(data: np.ndarray, beta: float) -> np.ndarray:
    """Exponentials correctly rounded, summed in order, all in float32."""
    with np.errstate(all="ignore"):
        difference = (data - data.max(axis=-1, keepdims=True)) * np.float32(beta)
        exponential = np.exp(difference.astype(np.float64)).astype(np.float32)
        return exponential / np.add.accumulate(exponential, axis=-1, dtype=np.float32)[..., -1:]


def _lower(site: Site, lowering: Lowering) -> None:
    match site.input(0).dtype:
        case DType.FLOAT32:
            _real_lower(site, lowering)
        case DType.INT16:
            softmax16.lower(site, lowering, beta_of(site))
        case _:
            _integer_lower(site, lowering)


def _integer_lower(site: Site, lowering: Lowering) -> None:
    """Largest input; sum of exponentials from a table; reciprocal of the sum; exponential times reciprocal."""
    rows, dtype, offset = Rows(site, lowering), site.output.dtype, _shift_offset(site)
    largest = rows.largest()
    table = lowering.constant("exponentials", exponentials(site, beta_of(site)))
    total = append_sum(rows, largest, table)
    is_long = rows.length >= LONG_ROW and offset > 31
    reciprocal = rows.map("reciprocal", _reciprocal(total, offset, is_long))
    shift = sub(Unary("clz", total), integer(offset))
    shift = Binary("max", shift, integer(-31)) if is_long else shift
    scaled = Requantise(looked_up(table, largest, rows.element), reciprocal, shift)
    rows.finish(cast(clamp(add(scaled, integer(dtype.limits[0])), *dtype.limits), dtype))


def looked_up(table: str, largest: Load, element: Load) -> Expr:
    """The entry of an int32 table for the difference between the row's largest input and this one."""
    return Lookup(table, sub(cast(largest, DType.INT32), cast(element, DType.INT32)), DType.INT32)


def append_sum(rows: Rows, largest: Load, table: str) -> Load:
    """`sums` of the row, from a table of exponentials."""
    term = _rounding_shift_right(looked_up(table, largest, rows.swept_element), SUM_BITS)
    if rows.length < WIDE_ROW:
        return rows.reduce("total", "add", integer(0), term)
    wide = DType.INT64
    saturated = cast(Binary("min", Acc(wide), integer(INT32_MAX, wide)), DType.INT32)
    return rows.reduce("total", "add", integer(0, wide), cast(term, wide), saturated)


def _rounding_shift_right(x: Expr, exponent: int) -> Expr:
    """x / 2^exponent of an int32 x >= 0, halves up, without overflow."""
    return Binary("shr", add(Binary("shr", x, integer(exponent - 1)), integer(1)), integer(1))


def _reciprocal(total: Expr, offset: int, is_long: bool) -> Expr:
    """1 / (total shifted up to [1, 2)) in Q0.31; 0 where every result rounds to 0."""
    zeros = Unary("clz", total)
    fraction = Binary("and", Binary("shl", total, zeros), integer(INT32_MAX))
    result = fixedmath.reciprocal_of_one_plus(fraction)
    return Select(Binary("lt", zeros, integer(offset - 31)), integer(0), result) if is_long else result


def _real_lower(site: Site, lowering: Lowering) -> None:
    """Largest input; exponentials into a buffer; their sum; quotients."""
    rows, shape = Rows(site, lowering), site.input(0).shape
    difference = sub(rows.element, rows.largest())
    scaled = difference if beta_of(site) == 1.0 else mul(difference, real(beta_of(site)))
    exponential = lowering.temporary("exponential", DType.FLOAT32, shape)
    lowering.append(Map(exponential, shape, floatmath.exp(scaled), nodes=(site.node.index,)))
    total = rows.reduce("total", "add", real(0.0), Load(exponential, rows.swept, DType.FLOAT32))
    element = Load(exponential, tuple(axis(number) for number in range(len(shape))), DType.FLOAT32)
    rows.finish(Binary("div", element, total))


OPERATORS = (
    Operator("SOFTMAX", "SoftmaxOptions", _read, _infer, _check, _compute, _lower).supports(
        micro("int8, int8 to int16, int16, float32"),
        litert("uint8, uint8 to int16"),
        notes="Over the last dimension; float32 within 4 ulp for rows up to a few hundred; quantised outputs have TFLite's fixed scale.",
    ),
)
