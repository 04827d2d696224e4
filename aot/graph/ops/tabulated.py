"""Quantised operators that are tables of a float function: every value of 8 bits, or 512 steps of an int16 with interpolation.

Enters: a site, a float function in numpy. Leaves: tables, and the expressions that read them.
Invariant: every step is rounded to float32 where TFLite rounds it; what does not fit into int32 is saturated (as Arm cores do; in C it
is undefined), a NaN is 0.
Source: tflite-micro, tensorflow/lite/kernels/internal/common.h, LUTPopulateInt8, LUTPopulateInt16, LUTLookup; micro/kernels/elu.cc.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aot.graph.expr import Binary, Expr, Lookup, add, cast, integer, mul, sub
from aot.graph.ir import DType, Site
from aot.graph.ops.single import Constant, byte_lookup, quantisations

Function = Callable[[np.ndarray], np.ndarray]
"""float32 to float32, as C's functions of a float: the nearest float32 to the exact result."""

STEPS = 512


def nearest(function: Callable[[np.ndarray], np.ndarray]) -> Function:
    """The float32 function that rounds a float64 one once."""

    def rounded(x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return function(x.astype(np.float64)).astype(np.float32)

    return rounded


def tabulated(site: Site, x: Expr, constant: Constant, function: Function) -> Expr:
    """The quantised `function` of an int8, uint8 or int16 element."""
    if x.dtype is DType.INT16:
        return _interpolated(constant("table", steps(site, function)), x)
    return byte_lookup(every_byte(site, function), x, constant)


def every_byte(site: Site, function: Function) -> np.ndarray:
    """The output for each value of an 8-bit input, the smallest first."""
    scale, zero_point, out_scale, out_zero_point = quantisations(site)
    low, high = site.input(0).dtype.limits
    with np.errstate(all="ignore"):
        x = np.float32(scale) * (np.arange(low, high + 1) - zero_point).astype(np.float32)
        rounded = _round(function(x) * (np.float32(1) / np.float32(out_scale)))
        return _saturated(rounded + np.float32(out_zero_point), site.output.dtype)


def steps(site: Site, function: Function) -> np.ndarray:
    """The output at 513 inputs, 128 apart; each but the last is moved by half of the interpolation's error in its middle."""
    scale, zero_point, out_scale, out_zero_point = quantisations(site)
    with np.errstate(all="ignore"):
        low, high = _ends(scale, zero_point)
        out_low, out_high = _ends(out_scale, out_zero_point)
        step = (high - low) / np.float32(STEPS)
        factor = np.float32(1 << 16) / (out_high - out_low)
        starts = low + np.arange(STEPS).astype(np.float32) * step
        ends = low + np.arange(1, STEPS + 1).astype(np.float32) * step
        at_start = _round(function(starts) * factor)
        between = _round((function(ends) * factor + at_start) / np.float32(2))
        error = between - _round(function(starts + step / np.float32(2)) * factor)
        last = _round(function(np.array([high])) * factor)
        return _saturated(np.concatenate([at_start - _round(error / np.float32(2)), last]), DType.INT16)


def _ends(scale: float, zero_point: int) -> tuple[np.float32, np.float32]:
    """The real numbers of the smallest and the largest int16."""
    low, high = DType.INT16.limits
    return np.float32(scale) * np.float32(low - zero_point), np.float32(scale) * np.float32(high - zero_point)


def _round(x: np.ndarray) -> np.ndarray:
    """float32 to whole numbers, halves away from zero."""
    wide = x.astype(np.float64)
    return np.trunc(wide + np.copysign(0.5, wide)).astype(np.float32)


def _saturated(x: np.ndarray, dtype: DType) -> np.ndarray:
    return np.clip(np.where(np.isnan(x), np.float32(0), x), *dtype.limits).astype(dtype.np)


def _interpolated(table: str, x: Expr) -> Expr:
    """Between two steps: the upper 9 bits choose them, the lower 7 weigh. The slope wraps as an int16, the result too."""
    value = cast(x, DType.INT32)
    index = add(Binary("shr", value, integer(7)), integer(STEPS // 2))
    start, end = (cast(Lookup(table, each, DType.INT16), DType.INT32) for each in (index, add(index, integer(1))))
    slope = cast(cast(sub(end, start), DType.INT16), DType.INT32)
    part = add(mul(slope, Binary("and", value, integer(127))), integer(64))
    return cast(add(start, Binary("shr", part, integer(7))), DType.INT16)
