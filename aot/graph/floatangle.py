"""The angle of a point as an expression: atan2 in float32, without a maths library.

Enters: two float32 expressions. Leaves: a float32 expression with one division.
Invariant: within ANGLE_ULP of the exact result for all operands, also where it is denormal; special operands give what C's `atan2`
gives, a NaN gives a NaN.

Method: the smaller of |y| and |x| over the larger is reduced from [0, 1] to [-tan(pi / 8), tan(pi / 8)] by a turn of pi / 4, inside
the one division; then an odd polynomial (our own fit: least squares, reweighted until the error is level).
"""

from __future__ import annotations

import math

from aot.graph.expr import Binary, Bitcast, Const, Expr, Select, Unary, add, integer, mul, real, sub
from aot.graph.ir import DType

ANGLE_ULP = 3.0
"""Bound, in units of the last place of the exact result."""

_TERMS = (-0.33333316, 0.19998488, -0.14243826, 0.10595828, -0.060829904)
"""(atan(t) - t) / t^3 in powers of t^2 on |t| <= tan(pi / 8), relative error of atan below 2^-28."""
_PI = (3.14159274101257324, -8.74227765734758577e-08)
_HALF_PI = (1.57079637050628662, -4.37113882867379e-08)
"""Each as the nearest float32 and the rest."""
_SMALL, _LARGE = 2.0**-100, 2.0**126
"""Operands are scaled outside of these, so that none is denormal and their sum is finite."""


def angle(y: Expr, x: Expr) -> Expr:
    """atan2(y, x): the angle of the point (x, y), in (-pi, pi]; signed zeros count."""
    high, low = Unary("abs", x), Unary("abs", y)
    steep = Binary("lt", high, low)
    low, high = Select(steep, high, low), Select(steep, low, high)
    first = _first_octant(low, high)
    quarter = Select(steep, _minus(_HALF_PI, first), first)
    behind = Binary("lt", Bitcast(x, DType.INT32), integer(0))
    half = Select(behind, _minus(_PI, quarter), quarter)
    sign = Binary("and", Bitcast(y, DType.INT32), Const(-(1 << 31), DType.INT32))
    signed = Bitcast(Binary("or", Bitcast(half, DType.INT32), sign), DType.FLOAT32)
    number = Binary("and", Binary("eq", x, x), Binary("eq", y, y))
    return Select(number, signed, real(math.nan))


def _minus(whole: tuple[float, float], part: Expr) -> Expr:
    """whole - part."""
    return add(sub(real(whole[0]), part), real(whole[1]))


def _first_octant(low: Expr, high: Expr) -> Expr:
    """The arc tangent of low / high, for 0 <= low <= high; 0 where both are."""
    scale = Select(Binary("lt", high, real(_SMALL)), real(2.0**40), real(1.0))
    scale = Select(Binary("gt", high, real(_LARGE)), real(0.5), scale)
    a, b = mul(low, scale), mul(high, scale)
    infinite = Binary("eq", low, real(math.inf))
    turned = Binary("or", Binary("gt", a, mul(b, real(math.tan(math.pi / 8)))), infinite)
    numerator = Select(turned, sub(a, b), a)
    denominator = Select(turned, add(a, b), b)
    no_quotient = Binary("or", Binary("eq", high, real(0.0)), infinite)
    t = Select(no_quotient, real(0.0), Binary("div", numerator, denominator))
    square = mul(t, t)
    series: Expr = real(_TERMS[-1])
    for term in reversed(_TERMS[:-1]):
        series = add(mul(series, square), real(term))
    small = add(t, mul(mul(t, square), series))
    return Select(turned, add(real(math.pi / 4), small), small)
