"""Float functions as expressions: exp, exp - 1, tanh, logistic, log in float32, without a maths library.

Enters: a float32 expression. Leaves: a float32 expression of additions, multiplications, at most one division, and bit tricks.
Invariant: the stated bound, in ulp of the exact result, holds for every float32 (the test samples them densely), also where the
result is denormal; a NaN gives a NaN.

Method: range reduction by a power of two, then a polynomial (our own fit: least squares, reweighted until the error is level).
Rounding to an integer is `x + 1.5 * 2^23`, whose low bits are that integer: no conversion, so that a NaN can't reach one.
"""

from __future__ import annotations

from collections.abc import Sequence

from aot.graph.expr import Binary, Bitcast, Cast, Const, Expr, Select, add, integer, mul, real, sub
from aot.graph.ir import DType

LOG2_E = 1.4426950408889634
LN2_HIGH = 0.693145751953125
"""ln 2 to 15 bits: its product with an integer below 2^9 is exact in float32."""
LN2_LOW = 1.42860677e-06
ROUND = 12582912.0
"""1.5 * 2^23: adding it leaves the nearest integer (half to even) in the low bits of the sum."""

EXP_TERMS = (0.5, 0.16666543, 0.04166628, 0.0083666109, 0.0013946496)
"""(e^r - 1 - r) / r^2 on |r| <= ln2 / 2, relative error of e^r - 1 below 2^-26."""
LOG_TERMS = (0.33333313, -0.25000009, 0.20002119, -0.16667996, 0.14219552, -0.12405589, 0.11888163, -0.11675651, 0.067466386)
"""(log(1 + f) - f + f^2 / 2) / f^3 on sqrt(1/2) <= 1 + f <= sqrt(2), relative error of log below 2^-30."""

EXP_ULP, EXP_MINUS_1_ULP, TANH_ULP, LOGISTIC_ULP, LOG_ULP = 1.1, 2.0, 3.0, 3.0, 1.0
"""Bounds, in units of the last place of the exact result."""

SIGN_BIT = -(1 << 31)


def exp(x: Expr) -> Expr:
    """e^x, within EXP_ULP. Below -104: 0; above 88.73: infinity."""
    power, rest = _reduce(_between(x, -104.0, 89.0))
    return _scaled(add(_exp_minus_1_near_0(rest), real(1.0)), power)


def multiplied_exp(factor: Expr, x: Expr, tail: Expr) -> Expr:
    """factor * e^(x + tail), rounded less often than a product with `exp` is.

    |tail| is some 2^-23 of |x|: the exponent in more precision than a float32 has. The factor is no denormal number.
    """
    power, rest = _reduce(_between(x, -104.0, 89.0))
    return _scaled(add(mul(factor, _exp_minus_1_near_0(add(rest, tail))), factor), power)


def _scaled(x: Expr, power: Expr) -> Expr:
    """x * 2^power; in two steps, as 2^power alone may be no normal float32."""
    half = Binary("shr", power, integer(1))
    return mul(mul(x, _two_to(half)), _two_to(sub(power, half)))


def exp_minus_1(x: Expr) -> Expr:
    """e^x - 1 of x <= 20 (above: as for 20), within EXP_MINUS_1_ULP, also where it is tiny: 2^n * (e^r - 1) + (2^n - 1)."""
    return _exp_minus_1(_between(x, -30.0, 20.0))


def logistic(x: Expr) -> Expr:
    """1 / (1 + e^-x), within LOGISTIC_ULP, also where the result is tiny."""
    small = exp(with_bits(x, "or", SIGN_BIT))
    numerator = Select(Binary("lt", x, real(0.0)), small, real(1.0))
    return Binary("div", numerator, add(small, real(1.0)))


def tanh(x: Expr) -> Expr:
    """Hyperbolic tangent, within TANH_ULP; odd, -0 gives -0.

    tanh |x| = t / (t + 2) with t = e^(2|x|) - 1.
    """
    magnitude = with_bits(x, "and", ~SIGN_BIT)
    t = _exp_minus_1(_below(add(magnitude, magnitude), 20.0))
    positive = Binary("div", t, add(t, real(2.0)))
    sign = Binary("and", Bitcast(x, DType.INT32), integer(SIGN_BIT))
    return Bitcast(Binary("or", Bitcast(positive, DType.INT32), sign), DType.FLOAT32)


def log(x: Expr) -> Expr:
    """Natural logarithm, within LOG_ULP. 0 gives -infinity, a negative number NaN, infinity itself."""
    tiny = Binary("lt", x, real(2.0**-126))
    normal = Select(tiny, mul(x, real(2.0**23)), x)
    bits = Bitcast(normal, DType.INT32)
    above = sub(bits, integer(0x3F3504F3))  # the bits of sqrt(1/2): the mantissa goes to [sqrt(1/2), sqrt(2))
    power = Binary("shr", above, integer(23))
    mantissa = Bitcast(sub(bits, Binary("shl", power, integer(23))), DType.FLOAT32)
    exponent = Cast(sub(power, Select(tiny, integer(23), integer(0))), DType.FLOAT32)
    f = sub(mantissa, real(1.0))
    square = mul(f, f)
    tail = sub(mul(mul(f, square), polynomial(f, LOG_TERMS)), mul(square, real(0.5)))
    low = add(tail, mul(exponent, real(LN2_LOW)))
    result = add(add(f, low), mul(exponent, real(LN2_HIGH)))
    finite = Select(Binary("lt", x, real(float("inf"))), result, x)  # infinity and NaN pass
    below = Select(Binary("eq", x, real(0.0)), real(float("-inf")), real(float("nan")))
    return Select(Binary("le", x, real(0.0)), below, finite)


def _reduce(x: Expr) -> tuple[Expr, Expr]:
    """(n, r) with x = n * ln2 + r and |r| <= ln2 / 2 (and a little); n is int32. |x| < 2^8."""
    shifted = add(mul(x, real(LOG2_E)), real(ROUND))
    power = sub(Bitcast(shifted, DType.INT32), Bitcast(real(ROUND), DType.INT32))
    nearest = sub(shifted, real(ROUND))
    return power, sub(sub(x, mul(nearest, real(LN2_HIGH))), mul(nearest, real(LN2_LOW)))


def _exp_minus_1(x: Expr) -> Expr:
    """e^x - 1 for -30 <= x <= 20, or a NaN."""
    power, rest = _reduce(x)
    scale = _two_to(power)
    return add(mul(_exp_minus_1_near_0(rest), scale), sub(scale, real(1.0)))


def _exp_minus_1_near_0(r: Expr) -> Expr:
    """e^r - 1 for |r| <= ln2 / 2."""
    return add(r, mul(mul(r, r), polynomial(r, EXP_TERMS)))


def polynomial(x: Expr, terms: Sequence[float | Expr]) -> Expr:
    """terms[0] + terms[1] * x + ..., by Horner's rule."""
    *first, last = (real(term) if isinstance(term, int | float) else term for term in terms)
    result: Expr = last
    for term in reversed(first):
        result = add(mul(result, x), term)
    return result


def _two_to(power: Expr) -> Expr:
    """2^power as a float32, for int32 powers in [-126, 127]."""
    return Bitcast(Binary("shl", add(power, integer(127)), integer(23)), DType.FLOAT32)


def with_bits(x: Expr, op: str, mask: int) -> Expr:
    """The float32 whose bits are those of x `op` mask."""
    return Bitcast(Binary(op, Bitcast(x, DType.INT32), Const(mask, DType.INT32)), DType.FLOAT32)


def _below(x: Expr, high: float) -> Expr:
    """At most `high`; a NaN stays one (`min` and `max` would lose it)."""
    return Select(Binary("gt", x, real(high)), real(high), x)


def _between(x: Expr, low: float, high: float) -> Expr:
    return _below(Select(Binary("lt", x, real(low)), real(low), x), high)
