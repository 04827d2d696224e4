"""Floats to the nearest integer inside a range, in numpy and as an expression: halves go away from zero, as C's `round` has them.
Integer sums with their bias, which come before it.

Enters: float32 or float64 numbers, NaN and infinity among them. Leaves: int32 numbers in [low, high].
Invariant: `nearest_array` and `nearest` are the same function; the clamp comes first, so that nothing overflows. A NaN gives `high`.
"""

from __future__ import annotations

import numpy as np

from aot.graph.expr import Binary, Cast, Const, Expr, Select, add, sub
from aot.graph.ir import DType


def nearest_array(x: np.ndarray, low: int, high: int) -> np.ndarray:
    """int32 of a float array."""
    kind = x.dtype.type
    with np.errstate(invalid="ignore"):
        inside = np.where(x < kind(high), np.maximum(x, kind(low)), kind(high))
    whole = np.trunc(inside)
    return (whole + np.where(np.abs(inside - whole) >= 0.5, np.sign(inside), 0)).astype(np.int32)


def nearest(x: Expr, low: int, high: int) -> Expr:
    """int32 of a float expression. The fraction that truncation drops is exact."""
    inside = _within(x, low, high)
    whole = Cast(inside, DType.INT32)
    fraction = sub(inside, Cast(whole, x.dtype))
    up = Cast(Binary("ge", fraction, Const(0.5, x.dtype)), DType.INT32)
    down = Cast(Binary("le", fraction, Const(-0.5, x.dtype)), DType.INT32)
    return sub(add(whole, up), down)


def _within(x: Expr, low: int, high: int) -> Expr:
    most, least = Const(float(high), x.dtype), Const(float(low), x.dtype)
    below = Select(Binary("lt", x, most), x, most)
    return Select(Binary("gt", below, least), below, least)


def with_bias(total: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Exact integer sums (float64 or int64, channels last) and a bias for each channel (if it has elements) as int64, which wraps."""
    whole = total.astype(np.int64)
    with np.errstate(over="ignore"):
        return whole if bias is None or not bias.size else whole + bias.reshape(-1).astype(np.int64)
