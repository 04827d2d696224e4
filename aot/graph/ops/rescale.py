"""Requantisation by one compile-time multiplier, in numpy and as an expression: ADD, MUL, RELU, QUANTIZE.

Enters: a site and the real factor between two scales. Leaves: `Rescale`.
Invariant: `array` and `expression` are the same function of an int32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aot.graph.arithmetic import requantise
from aot.graph.expr import Binary, Expr, Requantise, add, cast, clamp, integer, sub
from aot.graph.ir import DType, Site
from aot.graph.ops import checks


@dataclass(frozen=True)
class Rescale:
    """Multiplication by multiplier / 2^31 * 2^shift with TFLite's two roundings."""

    multiplier: int
    shift: int

    def array(self, x: np.ndarray) -> np.ndarray:
        """int32 to int32."""
        return requantise(x, np.array(self.multiplier), np.array(self.shift))

    def expression(self, x: Expr) -> Expr:
        return x if self.is_one else Requantise(x, integer(self.multiplier), integer(self.shift))

    @property
    def is_one(self) -> bool:
        """Whether it changes no int32 whose double is an int32."""
        return (self.multiplier, self.shift) == (1 << 30, 1)


def rescale(site: Site, real: float) -> Rescale:
    multiplier, shift = checks.multipliers(site, (real,), 1)
    return Rescale(int(multiplier[0]), int(shift[0]))


def offset(x: Expr, zero_point: int) -> Expr:
    """x - zero_point as int32."""
    wide = cast(x, DType.INT32)
    return sub(wide, integer(zero_point)) if zero_point else wide


def finish(x: Expr, zero_point: int, low: int, high: int, dtype: DType) -> Expr:
    """dtype(clamp(x + zero_point)) of an int32 x."""
    moved = add(x, integer(zero_point)) if zero_point else x
    return cast(moved if (low, high) == DType.INT32.limits else clamp(moved, low, high), dtype)


def finish_array(x: np.ndarray, zero_point: int, low: int, high: int, dtype: DType) -> np.ndarray:
    """The meaning of `finish`; the addition wraps."""
    return np.clip(x + np.int32(zero_point), low, high).astype(dtype.np)


def shifted_term(x: Expr, zero_point: int, left_shift: int, scale: Rescale) -> Expr:
    """An operand of a quantised sum: (x - zero_point) << left_shift, rescaled.

    The scale of at least one operand is exactly a half: multiplying by it takes one off the shift, without rounding.
    """
    power = left_shift - 1 + scale.shift
    if scale.multiplier == 1 << 30 and scale.shift <= 0 <= power:
        return Binary("shl", offset(x, zero_point), integer(power))
    return scale.expression(Binary("shl", offset(x, zero_point), integer(left_shift)))


def shifted_term_array(x: np.ndarray, zero_point: int, left_shift: int, scale: Rescale) -> np.ndarray:
    """The meaning of `shifted_term`."""
    return scale.array((x.astype(np.int32) - np.int32(zero_point)) << np.int32(left_shift))
