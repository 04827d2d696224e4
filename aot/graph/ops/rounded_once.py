"""Requantisation that rounds once, in double precision: what LiteRT's FULLY_CONNECTED does with its int32 sums of 8-bit products.

Enters: a double factor for each output channel. Leaves: `RoundedOnce`, in numpy and as an expression.
Invariant: both are the same function of every int32. The expression has no doubles where integers are proven to give the same:
an output of 8 bits is a staircase of at most 255 steps, and each is looked at.

Source: LiteRT, tflite/kernels/internal/reference/integer_ops/fully_connected.h, reference/fully_connected.h (those with scales).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aot.graph.arithmetic import INT32_MAX, INT32_MIN
from aot.graph.expr import Acc, Affine, Binary, Cast, Const, Expr, add, cast, clamp, integer, mul
from aot.graph.ir import DType
from aot.graph.operator import Lowering, constant_element
from aot.graph.ops.rounding import nearest, nearest_array, with_bias

_LEAST_SHIFT, _MOST_SHIFT = 32, 62


@dataclass(frozen=True)
class FixedPoint:
    """(acc * factor + offset) >> shift, in 64 bits; a factor for each channel."""

    factor: np.ndarray
    offset: int
    shift: int

    def array(self, acc: np.ndarray) -> np.ndarray:
        """int64 of int64 sums, channels last."""
        return (acc * self.factor + np.int64(self.offset)) >> np.int64(self.shift)


@dataclass(frozen=True)
class RoundedOnce:
    """int32 sums times a double for each channel, rounded to the nearest (halves away from zero), moved, clamped."""

    scales: np.ndarray
    input_zero_point: int
    weights_zero_point: int
    zero_point: int
    low: int
    high: int
    dtype: DType
    sums: DType = DType.INT32

    def finish(self, total: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        """Exact sums (channels last) to the output."""
        rounded = self._rounded(with_bias(total, bias).astype(np.int32))
        return (rounded + self.zero_point).astype(self.dtype.np)

    def _rounded(self, acc: np.ndarray) -> np.ndarray:
        return nearest_array(acc * self.scales, self.low - self.zero_point, self.high - self.zero_point)

    def result(self, lowering: Lowering, channel: Affine) -> Expr:
        fixed = self.fixed_point()
        rounded = self._in_doubles(lowering, channel) if fixed is None else self._in_integers(fixed, lowering, channel)
        return cast(add(rounded, integer(self.zero_point)), self.dtype)

    def _in_doubles(self, lowering: Lowering, channel: Affine) -> Expr:
        scale = constant_element(lowering.constant("scale", self.scales), DType.FLOAT64, (channel,))
        product = mul(Cast(Acc(DType.INT32), DType.FLOAT64), scale)
        return nearest(product, self.low - self.zero_point, self.high - self.zero_point)

    def _in_integers(self, fixed: FixedPoint, lowering: Lowering, channel: Affine) -> Expr:
        factor = constant_element(lowering.constant("factor", fixed.factor.astype(np.int32)), DType.INT32, (channel,))
        product = mul(cast(Acc(DType.INT32), DType.INT64), cast(factor, DType.INT64))
        moved = add(product, integer(fixed.offset, DType.INT64))
        whole = cast(Binary("shr", moved, Const(fixed.shift, DType.INT64)), DType.INT32)
        return clamp(whole, self.low - self.zero_point, self.high - self.zero_point)

    def fixed_point(self) -> FixedPoint | None:
        """Integers that give the same for every int32, if those with the most bits do."""
        largest = float(self.scales.max())
        shift = min(_MOST_SHIFT, 31 - int(np.frexp(largest)[1])) if largest > 0 else _MOST_SHIFT
        if shift < _LEAST_SHIFT:
            return None
        factor = np.minimum(np.rint(np.ldexp(self.scales, shift)), INT32_MAX).astype(np.int64)
        halves = ((1 << (shift - 1)) - below for below in (0, 1))
        return next((found for half in halves if self._same(found := FixedPoint(factor, half, shift))), None)

    def _same(self, fixed: FixedPoint) -> bool:
        """Whether both reach each output (its steps, rows; channels, columns) at the same sum."""
        steps = np.arange(self.low + 1, self.high + 1, dtype=np.int64)[:, None] - self.zero_point
        first = self._first_sums(steps)
        before, at = (fixed.array(np.clip(sums, INT32_MIN, INT32_MAX)) for sums in (first - 1, first))
        never, always = first > INT32_MAX, first <= INT32_MIN
        return bool(np.all(np.where(always, at >= steps, before < steps) & np.where(never, at < steps, at >= steps)))

    def _first_sums(self, steps: np.ndarray) -> np.ndarray:
        """The smallest sum that is rounded to a step or more; INT32_MAX + 1 where none is, INT32_MIN where all are."""
        low = np.full((len(steps), len(self.scales)), INT32_MIN, np.int64)
        high = np.full_like(low, INT32_MAX + 1)
        while (low < high).any():
            middle = (low + high) >> 1
            reached = (self._rounded(middle) >= steps) & (middle <= INT32_MAX)
            low, high = np.where(reached, low, np.minimum(middle + 1, high)), np.where(reached, middle, high)
        return low
