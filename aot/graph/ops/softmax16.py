"""SOFTMAX of int16 to int16, with two tables of 513 entries between which values are interpolated.

Enters: a site of `softmax.py`. Leaves: its result as arrays and as primitives.
Source: tflite-micro, tensorflow/lite/kernels/internal/reference/softmax.h, SoftmaxInt16; micro/kernels/softmax_common.cc;
kernels/internal/common.h, LUTPopulate and LUTLookup (in float32).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aot.graph.evaluate import requantise
from aot.graph.expr import Acc, Binary, Expr, Load, Lookup, Requantise, Unary, add, axis, cast, clamp, integer, mul, sub
from aot.graph.ir import DType, Site
from aot.graph.operator import Lowering
from aot.graph.ops import checks
from aot.graph.ops.rows import Rows
from aot.graph.primitive import Map

LONGEST_ROW = (1 << 31) // 32767 - 1
"""With more elements their sum could overflow int32."""
RANGE = 65535
EXP_REACH = 10.0
"""The table of exponentials covers [-10, 0]."""


def check(site: Site, length: int, beta: float) -> None:
    _, zero_point = checks.per_tensor(site, site.input(0))
    if zero_point:
        raise site.error(f"int16 SOFTMAX needs an input with zero point 0, not {zero_point}")
    if length > LONGEST_ROW:
        raise site.error(f"a row of {length} elements is longer than the {LONGEST_ROW} whose sum int16 SOFTMAX can hold")
    if beta < 0:
        raise site.error(f"beta = {beta:.3g} is below 0")
    scaling_of(site, beta)


def scaling_of(site: Site, beta: float) -> tuple[int, int]:
    """Difference of inputs to a position in the table of exponentials, where 65535 is EXP_REACH."""
    scale, _ = checks.per_tensor(site, site.input(0))
    multiplier, shift = checks.multipliers(site, (float(np.float32(scale)) * beta / (EXP_REACH / RANGE),), 1)
    return int(multiplier[0]), int(shift[0])


def _table(low: float, high: float, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """512 steps from `low` to `high` and the end, as int16 of scale 1/32768; each start is moved to halve the error in the middle."""
    f32 = np.float32
    start, end = f32(low), f32(high)
    step = (end - start) / f32(512)
    starts, ends = (start + np.arange(first, first + 512, dtype=f32) * step for first in (0, 1))
    middles = starts + step / f32(2)
    output_scale = f32(2.0) / f32(RANGE)
    factor = f32(65536) / (output_scale * f32(32767) - output_scale * f32(-32768))
    first, middle, last = (function(x) * factor for x in (starts, middles, ends))
    between = _round((last + _round(first)) / f32(2))
    moved = _round(first) - _round((between - _round(middle)) / f32(2))
    return np.clip(np.append(moved, _round(function(np.array([end])) * factor)), -32768, 32767).astype(np.int16)


def _round(x: np.ndarray) -> np.ndarray:
    """Halves away from zero; float32."""
    return (np.sign(x) * np.floor(np.abs(x.astype(np.float64)) + 0.5)).astype(np.float32)


def exponentials() -> np.ndarray:
    scale = np.float32(EXP_REACH) / np.float32(RANGE)
    return _table(float(scale * np.float32(-RANGE)), 0.0, lambda x: np.exp(x.astype(np.float64)).astype(np.float32))


def reciprocals() -> np.ndarray:
    """1 / (1 + x) for x in [0, 1]."""
    scale = np.float32(1) / np.float32(RANGE)
    return _table(0.0, float(scale * np.float32(RANGE)), lambda x: np.float32(1) / (np.float32(1) + x))


def _interpolated(value: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The table's function at int16 positions."""
    wide, index = table.astype(np.int64), (value >> 7) + 256
    return wide[index] + (((wide[index + 1] - wide[index]) * (value & 127) + 64) >> 7)


def compute(site: Site, data: np.ndarray, beta: float) -> np.ndarray:
    """The scaled difference wraps where scales are large, as in the reference."""
    wide = data.astype(np.int32)
    scaled = requantise(wide - wide.max(axis=-1, keepdims=True), *scaling_of(site, beta))
    exponential = _interpolated(np.clip(scaled + np.int32(32767), -32768, 32767), exponentials())
    total = exponential.sum(axis=-1, keepdims=True)
    zeros = 32 - np.frexp(total.astype(np.float64))[1].astype(np.int64)
    position = (((total << (zeros - 1)) + (1 << 13)) >> 14) - (1 << 15) - (1 << 16)
    reciprocal = _interpolated(np.clip(position, -32768, 32767), reciprocals())
    shift = 31 - zeros
    result = (exponential * reciprocal + (1 << (shift - 1))) >> shift
    return np.clip(result, 0, 32767).astype(np.int16)


def lower(site: Site, lowering: Lowering, beta: float) -> None:
    """Largest input; exponentials into a buffer; their sum; its reciprocal; products, all in int32."""
    rows, shape = Rows(site, lowering), site.input(0).shape
    largest = rows.largest()
    difference = sub(cast(rows.element, DType.INT32), cast(largest, DType.INT32))
    multiplier, shift = scaling_of(site, beta)
    scaled = Requantise(difference, integer(multiplier), integer(shift))
    position = clamp(add(scaled, integer(32767)), -32768, 32767)
    exponential = lowering.temporary("exponential", DType.INT16, shape)
    value = cast(_between(lowering.constant("exponentials", exponentials()), position), DType.INT16)
    lowering.append(Map(exponential, shape, value, nodes=(site.node.index,)))
    term = cast(Load(exponential, rows.swept, DType.INT16), DType.INT32)
    total = rows.reduce("total", "add", integer(0), term, Acc(DType.INT32))
    reciprocal = rows.map("reciprocal", _reciprocal(total, lowering.constant("reciprocals", reciprocals())))
    element = Load(exponential, tuple(axis(number) for number in range(len(shape))), DType.INT16)
    right = sub(integer(31), Unary("clz", total))
    half = Binary("shl", integer(1), sub(right, integer(1)))
    result = Binary("shr", add(mul(cast(element, DType.INT32), reciprocal), half), right)
    rows.finish(cast(clamp(result, 0, 32767), DType.INT16))


def _reciprocal(total: Expr, table: str) -> Expr:
    """1 / total in Q0.15, times the power of two that `total` is above."""
    scaled = Binary("shl", total, sub(Unary("clz", total), integer(1)))
    rounded = Binary("shr", add(Binary("shr", scaled, integer(13)), integer(1)), integer(1))
    return _between(table, clamp(sub(rounded, integer((1 << 15) + (1 << 16))), -32768, 32767))


def _between(table: str, position: Expr) -> Expr:
    """`_interpolated` as an expression; int32."""
    index = add(Binary("shr", position, integer(7)), integer(256))
    base = cast(Lookup(table, index, DType.INT16), DType.INT32)
    slope = sub(cast(Lookup(table, add(index, integer(1)), DType.INT16), DType.INT32), base)
    step = mul(slope, Binary("and", position, integer(127)))
    return add(base, Binary("shr", add(step, integer(64)), integer(7)))


__all__ = ["LONGEST_ROW", "check", "compute", "exponentials", "lower", "reciprocals", "scaling_of"]
