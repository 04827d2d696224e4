"""GELU as expressions in float32, without a maths library: x * P(x), where P is the normal distribution function.

Enters: a float32 expression. Leaves: a float32 expression with at most two divisions.
Invariant: the stated bound holds for every float32 (the test samples them densely); a NaN gives a NaN.

Method: for a = |x|, P(-a) = e^(-a^2 / 2) * Q(a). The square is taken in twice float32's precision, as e^ needs it; Q, which falls
slowly from 1/2, is a polynomial in (a - 1.5) / (a + 1.5) (our own fit). Then x * P(x) = max(x, 0) - a * P(-a), of which one part is
small: nothing cancels.
"""

from __future__ import annotations

from aot.graph.expr import Binary, Expr, Select, add, mul, real, sub
from aot.graph.floatmath import SIGN_BIT, logistic, multiplied_exp, polynomial, with_bits

GELU_ULP = 4.0
"""Bound of `gelu`'s error, in units of the last place of the exact result."""

APPROXIMATE_GELU_ULP = 4.0
"""Bound of `approximate_gelu`'s error for x >= -1, in units of the last place of the exact result."""

_LARGEST = 15.0
"""e^(-15^2 / 2) is 0 in float32."""

_CENTRE = 1.5
_TERMS = (
    0.617341995,
    -0.195099503,
    -0.0574953631,
    0.0178967807,
    0.0176394079,
    0.00398790324,
    -0.00242912746,
    -0.00271334662,
    -0.00105551537,
    0.000258221698,
    0.000483916607,
    0.00014583912,
    -9.42578026e-06,
)
"""Q(a) * (a + 1.5) in powers of (a - 1.5) / (a + 1.5), 0 <= a <= 15, relative error below 2^-26."""

_TWICE_SQRT_2_OVER_PI, _CUBIC = 1.5957691216057308, 0.044715


def gelu(x: Expr) -> Expr:
    """x * (1 + erf(x / sqrt 2)) / 2, within GELU_ULP, also where the result is tiny."""
    magnitude = with_bits(x, "and", ~SIGN_BIT)
    a = Select(Binary("gt", magnitude, real(_LARGEST)), real(_LARGEST), magnitude)
    return sub(_positive_part(x), _times_below(a))


def approximate_gelu(x: Expr) -> Expr:
    """x * (1 + tanh u) / 2 with u = sqrt(2 / pi) * (x + 0.044715 * x^3), as x / (1 + e^(-2u)), which does not cancel.

    Within APPROXIMATE_GELU_ULP for x >= -1; below, where u's rounding grows in e^(-2u), within one ulp of x itself (x times the
    rounded tanh, which cancels, is no better).
    """
    inside = add(mul(mul(mul(x, x), real(_CUBIC)), x), x)
    return _finite_product(x, logistic(mul(inside, real(_TWICE_SQRT_2_OVER_PI))))


def _times_below(a: Expr) -> Expr:
    """a * P(-a), 0 <= a <= 15."""
    above = add(a, real(_CENTRE))
    terms = polynomial(mul(sub(a, real(_CENTRE)), Binary("div", real(1.0), above)), _TERMS)
    square, error = _square(a)
    return multiplied_exp(mul(terms, Binary("div", a, above)), mul(square, real(-0.5)), mul(error, real(-0.5)))


def _square(a: Expr) -> tuple[Expr, Expr]:
    """a^2 as the float32 nearest to it and what is missing, by Dekker's splitting into halves of 12 bits."""
    square = mul(a, a)
    high = with_bits(a, "and", ~0xFFF)
    low = sub(a, high)
    twice = mul(add(high, high), low)
    return square, add(add(sub(mul(high, high), square), twice), mul(low, low))


def _positive_part(x: Expr) -> Expr:
    """max(x, 0); a NaN stays one."""
    return Select(Binary("lt", x, real(0.0)), real(0.0), x)


def _finite_product(x: Expr, factor: Expr) -> Expr:
    """x * factor, but 0 where the factor is 0 (x may be -infinity there)."""
    return Select(Binary("eq", factor, real(0.0)), real(0.0), mul(x, factor))
