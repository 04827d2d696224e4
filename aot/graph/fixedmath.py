"""Fixed-point functions as expressions: reciprocal, logarithm, inverse square root; int32, without loops or 64-bit numbers but products.

Enters: int32 expressions. Leaves: int32 expressions, equal to gemmlowp's and TFLite's fixed-point code bit for bit over the stated range.
`evaluated` gives their numpy meaning, so that each function is written once.
A product of two Q0.31 numbers is a `Requantise` with shift 0, whose multiplier is the factor that is not negative.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aot.graph.arithmetic import INT32_MAX, NEWTON_SLOPE, NEWTON_START
from aot.graph.evaluate import execute
from aot.graph.expr import Binary, Cast, Expr, Load, Requantise, Select, Unary, add, integer, sub
from aot.graph.ir import DType
from aot.graph.primitive import Map, identity

HALF_SQRT_2 = 1518500250
"""sqrt(1/2) in Q0.31."""


def evaluated(function: Callable[[Expr], Expr], x: np.ndarray) -> np.ndarray:
    """The function of every element of an int32 array."""
    value = function(Load("x", identity(x.ndim), DType.INT32))
    arrays = {"x": x.astype(np.int32), "y": np.zeros(x.shape, np.int32)}
    execute(Map("y", x.shape, value), arrays)
    return arrays["y"]


def product(x: Expr, factor: Expr | int) -> Expr:
    """x * factor of Q0.31 numbers, rounded to nearest, halves away from zero; `factor` >= 0."""
    return Requantise(x, integer(factor) if isinstance(factor, int) else factor, integer(0))


def saturating_shift_left(x: Expr, count: int) -> Expr:
    """x * 2^count of x >= 0, saturated to int32."""
    return Select(Binary("gt", x, integer(INT32_MAX >> count)), integer(INT32_MAX), Binary("shl", x, integer(count)))


def rounding_shift_right(x: Expr, count: int) -> Expr:
    """x / 2^count, halves away from zero, without overflow; count >= 1."""
    less = add(x, Binary("shr", x, integer(31)))
    return Binary("shr", add(Binary("shr", less, integer(count - 1)), integer(1)), integer(1))


def reciprocal_of_one_plus(fraction: Expr) -> Expr:
    """1 / (1 + x) in Q0.31 of x in Q0.31, 0 <= x < 1: `arithmetic.reciprocal_of_one_plus` as an expression.

    The steps of Newton's method are below 1/2 (the first estimate is within 1/17), so that their left shift never saturates; only
    the last one can. Source: gemmlowp, fixedpoint/fixedpoint.h, one_over_one_plus_x_for_x_in_0_1.
    """
    half_denominator = add(Binary("shr", fraction, integer(1)), integer(1 << 30))
    estimate = add(product(integer(NEWTON_SLOPE), half_denominator), integer(NEWTON_START))
    for _ in range(3):
        error = sub(integer(1 << 29), product(estimate, half_denominator))
        estimate = add(estimate, Binary("shl", product(error, estimate), integer(2)))
    return saturating_shift_left(estimate, 1)


# Logarithm.

LOG_2, SQRT_SQRT_HALF = 1488522236, 1805811301
ALPHA_N, ALPHA_D, ALPHA_I, ALPHA_F = 117049297, 127690142, 1057819769, 638450708
"""Constants of the quotient of polynomials; Q0.31."""
POWER_BITS = 25
"""Fraction bits of powers of two, and of the sum before its last shift: Q6.25."""
QUARTER = 1 << (POWER_BITS - 2)


def log(x: Expr, integer_bits: int = 12) -> Expr:
    """The natural logarithm in Q5.26 of x >= 1 in Q(integer_bits).

    Source: tflite-micro, tensorflow/lite/kernels/internal/common.h, log_x_for_x_greater_than_or_equal_to_1_impl.
    """
    power, mantissa = _power_and_mantissa(x, integer_bits)
    q = sub(mantissa, integer(SQRT_SQRT_HALF))
    q = add(q, q)
    square = product(Unary("abs", q), Unary("abs", q))
    numerator = add(product(q, mantissa), product(product(q, square), ALPHA_N))
    inner = add(add(integer(ALPHA_I), q), product(square, ALPHA_D))
    mean = _half_sum(mantissa, integer(SQRT_SQRT_HALF))
    denominator_minus_1 = add(product(inner, mean), product(q, ALPHA_F))
    quotient = product(rounding_shift_right(numerator, 31 - POWER_BITS), reciprocal_of_one_plus(denominator_minus_1))
    return Binary("shl", add(product(power, LOG_2), quotient), integer(1))


def _power_and_mantissa(x: Expr, integer_bits: int) -> tuple[Expr, Expr]:
    """x = mantissa * 2^power, power in Q6.25 (its fraction is 1/4 or 3/4), mantissa in Q0.31 around 2^-1/4.

    Two candidates: x as it is, and x times sqrt(1/2); the smaller mantissa and the larger power belong together.
    """
    zeros = Unary("clz", x)
    scaled = Binary("shl", x, sub(zeros, integer(1)))
    mantissa_a = saturating_shift_left(product(scaled, HALF_SQRT_2), 1)
    power_a = add(Binary("shl", sub(integer(integer_bits), zeros), integer(POWER_BITS)), integer(QUARTER))
    headroom = sub(Unary("clz", product(x, HALF_SQRT_2)), integer(1))
    most = Binary("shr", integer(INT32_MAX), headroom)
    mantissa_b = Select(Binary("gt", x, most), integer(INT32_MAX), Binary("shl", x, headroom))
    power_b = sub(Binary("shl", sub(integer(integer_bits), headroom), integer(POWER_BITS)), integer(QUARTER))
    return Binary("max", power_a, power_b), Binary("min", mantissa_a, mantissa_b)


def _half_sum(a: Expr, b: Expr) -> Expr:
    """(a + b + 1) / 2 of a, b >= 0, without overflow."""
    return sub(Binary("or", a, b), Binary("shr", Binary("xor", a, b), integer(1)))


# Inverse square root.

ROOT_STEPS = 5
LARGE = 1 << 29


def inverse_square_root(total: Expr) -> tuple[Expr, Expr]:
    """1 / sqrt(total) as (multiplier, shift): multiplier / 2^31 * 2^shift, shift <= 0. A total below 2 counts as 1.

    Newton's method from 1, with 3 integer bits. Source: tflite-micro, tensorflow/lite/kernels/internal/common.h,
    GetInvSqrtQuantizedMultiplierExp.
    """
    is_one = Binary("le", total, integer(1))
    is_large = Binary("ge", total, integer(LARGE))
    x = Select(is_large, Binary("shr", total, integer(2)), Select(is_one, integer(2), total))
    pairs = sub(Binary("shr", sub(Unary("clz", x), integer(1)), integer(1)), integer(1))
    right = sub(add(integer(11), Cast(is_large, DType.INT32)), pairs)
    root = _inverse_root(Binary("shl", x, add(pairs, pairs)))
    multiplier = Binary("shl", root, Binary("max", sub(integer(0), right), integer(0)))
    shift = Binary("min", sub(integer(0), right), integer(0))
    return Select(is_one, integer(INT32_MAX), multiplier), Select(is_one, integer(0), shift)


def _inverse_root(x: Expr) -> Expr:
    """sqrt(1/2) / sqrt(x) in Q3.28 of x in Q2.29, 1/4 <= x < 1."""
    half_input = rounding_shift_right(Binary("shr", x, integer(1)), 1)
    estimate: Expr = integer(1 << 28)
    for _ in range(ROOT_STEPS):
        cube = saturating_shift_left(product(product(estimate, estimate), estimate), 6)
        step = sub(product(estimate, (1 << 28) + (1 << 27)), product(cube, half_input))
        estimate = saturating_shift_left(step, 3)
    return product(estimate, HALF_SQRT_2)
