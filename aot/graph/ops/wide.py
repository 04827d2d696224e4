"""Requantisation of 64-bit sums to int16: what TFLite's kernels for int16 activations do with their accumulators.

Enters: the real rescalings, one or one for each output channel. Leaves: `Wide`, in numpy and as an expression.
Invariant: `array` and `expression` are the same function of an int64 (both wrap where TFLite's overflow).

Source: tflite-micro, tensorflow/lite/kernels/internal/common.cc, MultiplyByQuantizedMultiplier for int64: the multiplier is rounded
to 16 bits, then there is one rounding, halves up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aot.graph import arithmetic
from aot.graph.arithmetic import INT32_MAX, INT32_MIN
from aot.graph.expr import Affine, Binary, Expr, add, cast, clamp, integer, mul
from aot.graph.ir import DType, Site, Value
from aot.graph.operator import Lowering, constant_element
from aot.graph.ops import checks

MAX_SHIFT = 7
"""The largest left shift that TFLite's 64-bit requantisation is defined for."""
MOST_OF_INT16_BY_INT8 = 1 << 22
"""The largest magnitude of a product of an int16 and an int8."""


@dataclass(frozen=True)
class Wide:
    """Sums times `factor` / 2^`down`, clamped to [low, high]; factor and down have one element, or one for each channel."""

    factor: np.ndarray
    down: np.ndarray
    low: int
    high: int

    def array(self, total: np.ndarray) -> np.ndarray:
        """int64 sums (channels last) to int16."""
        half = np.int64(1) << (self.down - 1)
        scaled = (total.astype(np.int64) * self.factor + half) >> self.down
        return np.clip(scaled.astype(np.int32), self.low, self.high).astype(np.int16)

    def expression(self, lowering: Lowering, total: Expr, channel: Affine) -> Expr:
        """The same of one int64 sum."""
        factor, down = (_element(lowering, name, array, channel) for name, array in (("factor", self.factor), ("down", self.down)))
        half = Binary("shl", integer(1, DType.INT64), Binary("sub", down, integer(1, DType.INT64)))
        scaled = cast(Binary("shr", add(mul(total, factor), half), down), DType.INT32)
        return cast(clamp(scaled, self.low, self.high), DType.INT16)


def wide(site: Site, scales: Sequence[float], low: int, high: int) -> Wide:
    """The rescaling of a site from its real factors; CompileError where TFLite's arithmetic can't do one."""
    for real in scales:
        if not np.isfinite(real) or arithmetic.quantise_multiplier(real)[1] > MAX_SHIFT:
            raise site.error(f"its scales would multiply the accumulator by {real:.3g}, more than TFLite's int16 arithmetic can")
    multiplier, shift = (array.astype(np.int64) for array in arithmetic.quantise_multipliers(scales))
    return Wide(np.where(multiplier < 0x7FFF0000, (multiplier + (1 << 15)) >> 16, 0x7FFF), 15 - shift, low, high)


def require_no_zero_point(site: Site, *values: Value) -> None:
    """TFLite's kernels for int16 have no zero points."""
    for value in values:
        if checks.per_tensor(site, value)[1]:
            raise site.error(f"{checks.describe(value)} is {value.dtype} with a zero point that is not 0")


def fits_int32(low: np.ndarray | int, high: np.ndarray | int) -> bool:
    """Whether sums in [low, high] can be added up in int32."""
    return int(np.min(low, initial=0)) >= INT32_MIN and int(np.max(high, initial=0)) <= INT32_MAX


def _element(lowering: Lowering, purpose: str, array: np.ndarray, channel: Affine) -> Expr:
    """An int64 of the channel: a number where all channels share it, else one of a constant of int32."""
    if (array == array[0]).all():
        return integer(int(array[0]), DType.INT64)
    return cast(constant_element(lowering.constant(purpose, array.astype(np.int32)), DType.INT32, (channel,)), DType.INT64)
