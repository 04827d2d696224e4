"""Quantised arithmetic at compile time: scales to integer multipliers, activation ranges, fixed-point functions.

Enters: scales and zero points of values. Leaves: Q0.31 multipliers with shifts, integer and float clamps, int32 arrays.
Invariant: every step has the precision (float32 or double) and the rounding that TFLite Micro's preparation code uses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from aot.graph.evaluate import requantise
from aot.graph.ir import DType

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
FLOAT32_MAX = float(np.finfo(np.float32).max)
FLOAT32_LOWEST = -FLOAT32_MAX

ACTIVATIONS = ("none", "relu", "relu_n1_to_1", "relu6", "tanh", "sign_bit")
"""Fused activations, by TFLite's number. Operators' attributes hold the name; the last two have no quantised form."""

ADD_LEFT_SHIFT = {DType.INT8: 20, DType.UINT8: 20, DType.INT16: 15}
"""How far ADD and SUB shift their inputs left before rescaling them."""


def activation_name(code: int) -> str:
    """The name of a fused activation's number in the file; a number outside the schema gets a name that no operator supports."""
    return ACTIVATIONS[code] if 0 <= code < len(ACTIVATIONS) else f"activation {code}"


def round_half_away(x: float) -> int:
    """C's `round`: halves go away from zero."""
    return int(math.copysign(math.floor(abs(x) + 0.5), x))


# Multipliers.


def quantise_multiplier(real: float) -> tuple[int, int]:
    """A real multiplier >= 0 as (multiplier, shift): real = multiplier / 2^31 * 2^shift, multiplier 0 or in [2^30, 2^31).

    Below 2^-32 or so it is 0. Source: tflite-micro, tensorflow/lite/kernels/internal/quantization_util.cc, QuantizeMultiplier.
    """
    if real == 0.0:
        return 0, 0
    fraction, shift = math.frexp(real)
    multiplier = round_half_away(fraction * (1 << 31))
    if multiplier == 1 << 31:
        multiplier, shift = multiplier // 2, shift + 1
    return (multiplier, shift) if shift >= -31 else (0, 0)


def quantise_multipliers(reals: Iterable[float]) -> tuple[np.ndarray, np.ndarray]:
    """`quantise_multiplier` of each: two int32 arrays, multipliers and shifts."""
    pairs = [quantise_multiplier(real) for real in reals]
    return np.array([pair[0] for pair in pairs], np.int32), np.array([pair[1] for pair in pairs], np.int32)


def convolution_scales(input_scale: float, filter_scales: Sequence[float], output_scale: float) -> list[float]:
    """Accumulator to output, one for each filter scale; in doubles throughout.

    Source: tflite-micro, tensorflow/lite/kernels/kernel_util.cc, PopulateConvolutionQuantizationParams. FULLY_CONNECTED computes
    the same, with one weight scale too: GetQuantizedConvolutionMultipler (until August 2026 it rounded the product to float32).
    """
    return [_single(input_scale) * _single(scale) / _single(output_scale) for scale in filter_scales]


def product_scale(scale_a: float, scale_b: float, output_scale: float) -> float:
    """Product to output, of MUL. Source: tflite-micro, tensorflow/lite/micro/kernels/mul_common.cc."""
    return _single(scale_a) * _single(scale_b) / _single(output_scale)


def ratio_scale(input_scale: float, output_scale: float) -> float:
    """Input to output, of QUANTIZE (integer to integer), MEAN and SUM; in doubles."""
    return _single(input_scale) / _single(output_scale)


def sum_scales(scale_a: float, scale_b: float, output_scale: float, left_shift: int) -> tuple[float, float, float]:
    """The three multipliers of ADD and SUB: first input, second input, output.

    Source: tflite-micro, tensorflow/lite/micro/kernels/add_common.cc, CalculateOpDataAdd.
    """
    twice_largest = 2 * max(_single(scale_a), _single(scale_b))
    return (
        _single(scale_a) / twice_largest,
        _single(scale_b) / twice_largest,
        twice_largest / ((1 << left_shift) * _single(output_scale)),
    )


def square_scale(scale_a: float, scale_b: float, output_scale: float, left_shift: int) -> float:
    """Square to output, of SQUARED_DIFFERENCE. Source: tflite-micro, tensorflow/lite/micro/kernels/squared_difference.cc."""
    twice_largest = 2 * max(_single(scale_a), _single(scale_b))
    return twice_largest * twice_largest / ((1 << 2 * left_shift) * _single(output_scale))


def quotient_scale(scale_a: float, scale_b: float, output_scale: float, single: bool = False) -> float:
    """Quotient to output, of DIV. `single`: in float32, as LiteRT; TFLite Micro computes in doubles.

    Source: tflite-micro, tensorflow/lite/micro/kernels/div.cc (until September 2026 it computed in float32 too).
    """
    if single:
        with np.errstate(all="ignore"):
            return float(np.float32(scale_a) / (np.float32(scale_b) * np.float32(output_scale)))
    return _single(scale_a) / (_single(scale_b) * _single(output_scale))


def _single(scale: float) -> float:
    """A scale as the float32 that the file holds, widened to double."""
    return float(np.float32(scale))


# Activation ranges.


def quantised_range(activation: str, dtype: DType, scale: float, zero_point: int) -> tuple[int, int] | None:
    """Smallest and largest output of a fused activation in a quantised type; None if it has no such form, or leaves int32.

    The bounds 0, 6, -1, 1 are divided by the scale in float32 and rounded half away from zero.
    Source: tflite-micro, tensorflow/lite/kernels/kernel_util.cc, CalculateActivationRangeQuantized.
    """
    low, high = dtype.limits
    if activation not in _FLOAT_RANGES:
        return None
    real_low, real_high = _FLOAT_RANGES[activation]
    for bound, is_low in ((real_low, True), (real_high, False)):
        if bound is None:
            continue
        with np.errstate(all="ignore"):
            quotient = float(np.float32(bound) / np.float32(scale))
        if not INT32_MIN <= quotient <= INT32_MAX:
            return None
        q = zero_point + round_half_away(quotient)
        low, high = (max(low, q), high) if is_low else (low, min(high, q))
    return low, high


def float_range(activation: str) -> tuple[float, float] | None:
    """Smallest and largest float32 output of a fused activation; None for one that is not a clamp."""
    if activation not in _FLOAT_RANGES:
        return None
    low, high = _FLOAT_RANGES[activation]
    return FLOAT32_LOWEST if low is None else low, FLOAT32_MAX if high is None else high


_FLOAT_RANGES: dict[str, tuple[float | None, float | None]] = {
    "none": (None, None),
    "relu": (0.0, None),
    "relu_n1_to_1": (-1.0, 1.0),
    "relu6": (0.0, 6.0),
    "relu_0_to_1": (0.0, 1.0),
}


# Fixed-point numbers: int32 arrays; Qm.n has m integer bits, n = 31 - m fraction bits.


def rounding_high_multiply(a: np.ndarray | int, b: np.ndarray | int) -> np.ndarray:
    """int32 x int32 -> int32: 2ab / 2^32, halves away from zero, saturated (gemmlowp's SaturatingRoundingDoublingHighMul)."""
    a, b = np.asarray(a, np.int64), np.asarray(b, np.int64)
    product = a * b
    nudged = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    high = np.where(nudged >= 0, nudged >> 31, -((-nudged) >> 31))
    return np.where((a == INT32_MIN) & (b == INT32_MIN), INT32_MAX, high).astype(np.int32)


def rounding_shift_right(x: np.ndarray, exponent: int) -> np.ndarray:
    """x / 2^exponent, halves away from zero (gemmlowp's RoundingDivideByPOT); exponent in [0, 31]."""
    x = np.asarray(x, np.int64)
    mask = (1 << exponent) - 1
    return ((x >> exponent) + ((x & mask) > (mask >> 1) + (x < 0))).astype(np.int32)


def saturating_shift_left(x: np.ndarray, exponent: int) -> np.ndarray:
    """x * 2^exponent, saturated to int32."""
    return np.clip(np.asarray(x, np.int64) << exponent, INT32_MIN, INT32_MAX).astype(np.int32)


def _wrap(x: np.ndarray) -> np.ndarray:
    return np.asarray(x, np.int64).astype(np.int32)


_EXP_OF_MINUS_POWERS = ((-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535), (3, 720401), (4, 242))
"""(k, exp(-2^k) in Q0.31)."""


def exp_of_negative(x: np.ndarray, integer_bits: int = 5) -> np.ndarray:
    """exp(x) in Q0.31 of int32 x <= 0 in Q(integer_bits), at most 5 integer bits. exp(0) is the largest int32.

    x is split into -1/4 <= fraction < 0 (a polynomial) and multiples of a quarter (a product of constants).
    Source: gemmlowp, fixedpoint/fixedpoint.h, exp_on_negative_values.
    """
    fraction_bits = 31 - integer_bits
    x = np.asarray(x, np.int32)
    quarter = np.int32(1 << (fraction_bits - 2))
    fraction = (x & (quarter - 1)) - quarter
    result = _exp_of_fraction(saturating_shift_left(fraction, integer_bits))
    remainder = _wrap(np.asarray(fraction, np.int64) - x)
    for power, constant in _EXP_OF_MINUS_POWERS:
        if integer_bits > power:
            has_bit = (remainder & np.int32(1 << (fraction_bits + power))) != 0
            result = np.where(has_bit, rounding_high_multiply(result, constant), result)
    return np.where(x == 0, INT32_MAX, result).astype(np.int32)


def _exp_of_fraction(a: np.ndarray) -> np.ndarray:
    """exp(a) in Q0.31 of a in Q0.31, -1/4 <= a < 0: the Taylor polynomial around -1/8."""
    exp_of_minus_eighth, third = 1895147668, 715827883
    x = _wrap(np.asarray(a, np.int64) + (1 << 28))
    x2 = rounding_high_multiply(x, x)
    x3, x4 = rounding_high_multiply(x2, x), rounding_high_multiply(x2, x2)
    cubic = _wrap(rounding_shift_right(x4, 2).astype(np.int64) + x3)
    tail = rounding_shift_right(_wrap(rounding_high_multiply(cubic, third).astype(np.int64) + x2), 1)
    polynomial = _wrap(x.astype(np.int64) + tail)
    return _wrap(rounding_high_multiply(polynomial, exp_of_minus_eighth).astype(np.int64) + exp_of_minus_eighth)


def reciprocal_of_one_plus(x: np.ndarray) -> np.ndarray:
    """1 / (1 + x) in Q0.31 of x in Q0.31, 0 <= x < 1.

    Source: gemmlowp, fixedpoint/fixedpoint.h, one_over_one_plus_x_for_x_in_0_1.
    """
    return saturating_shift_left(_twice_reciprocal_of_one_plus(x), 1)


def complement_over_one_plus(x: np.ndarray) -> np.ndarray:
    """(1 - x) / (1 + x) in Q0.31 of x in Q0.31, 0 <= x < 1: 2 / (1 + x) - 1.

    Source: gemmlowp, fixedpoint/fixedpoint.h, one_minus_x_over_one_plus_x_for_x_in_0_1.
    """
    return saturating_shift_left(_wrap(_twice_reciprocal_of_one_plus(x).astype(np.int64) - (1 << 29)), 2)


def _twice_reciprocal_of_one_plus(x: np.ndarray) -> np.ndarray:
    """2 / (1 + x) in Q2.29 of x in Q0.31: the reciprocal of (1 + x) / 2 by three steps of Newton's method."""
    half_denominator = ((np.asarray(x, np.int64) + (1 << 31)) >> 1).astype(np.int32)
    estimate = _wrap(rounding_high_multiply(half_denominator, NEWTON_SLOPE).astype(np.int64) + NEWTON_START)
    for _ in range(3):
        error = _wrap((1 << 29) - rounding_high_multiply(half_denominator, estimate).astype(np.int64))
        step = saturating_shift_left(rounding_high_multiply(estimate, error), 2)
        estimate = _wrap(estimate.astype(np.int64) + step)
    return estimate


NEWTON_START, NEWTON_SLOPE = 1515870810, -1010580540
"""48/17 and -32/17 in Q2.29: the first estimate of 1/d is START + SLOPE * d for d in [1/2, 1)."""

__all__ = [
    "ACTIVATIONS",
    "ADD_LEFT_SHIFT",
    "FLOAT32_LOWEST",
    "FLOAT32_MAX",
    "INT32_MAX",
    "INT32_MIN",
    "NEWTON_SLOPE",
    "NEWTON_START",
    "activation_name",
    "complement_over_one_plus",
    "convolution_scales",
    "exp_of_negative",
    "float_range",
    "product_scale",
    "quantise_multiplier",
    "quantise_multipliers",
    "quantised_range",
    "quotient_scale",
    "ratio_scale",
    "reciprocal_of_one_plus",
    "requantise",
    "round_half_away",
    "rounding_high_multiply",
    "rounding_shift_right",
    "saturating_shift_left",
    "square_scale",
    "sum_scales",
]
