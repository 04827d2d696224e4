"""Float functions as expressions: exp, tanh, logistic, log in float32, without a maths library.

Enters: a float32 expression. Leaves: a float32 expression of additions, multiplications, at most one division, and bit tricks.
Invariant: the stated bound, in ulp of the exact result, holds for every float32 (the test samples them densely), also where the
result is denormal; a NaN gives a NaN.

Method: range reduction by a power of two, then a polynomial (our own fit: least squares, reweighted until the error is level).
Rounding to an integer is `x + 1.5 * 2^23`, whose low bits are that integer: no conversion, so that a NaN can't reach one.
"""

from __future__ import annotations

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

EXP_ULP, TANH_ULP, LOGISTIC_ULP, LOG_ULP = 1.1, 3.0, 3.0, 1.0
"""Bounds, in units of the last place of the exact result."""

SIGN_BIT = -(1 << 31)


def exp(x: Expr) -> Expr:
    """e^x, within EXP_ULP. Below -104: 0; above 88.73: infinity."""
    inside = _between(x, -104.0, 89.0)
    power, rest = _reduce(inside)
    half = Binary("shr", power, integer(1))
    scaled = mul(add(_exp_minus_1(rest), real(1.0)), _two_to(half))
    return mul(scaled, _two_to(sub(power, half)))


def logistic(x: Expr) -> Expr:
    """1 / (1 + e^-x), within LOGISTIC_ULP, also where the result is tiny."""
    small = exp(_with_bits(x, "or", SIGN_BIT))
    numerator = Select(Binary("lt", x, real(0.0)), small, real(1.0))
    return Binary("div", numerator, add(small, real(1.0)))


def tanh(x: Expr) -> Expr:
    """Hyperbolic tangent, within TANH_ULP; odd, -0 gives -0.

    tanh |x| = t / (t + 2) with t = e^(2|x|) - 1 = 2^n * (e^r - 1) + (2^n - 1).
    """
    magnitude = _with_bits(x, "and", ~SIGN_BIT)
    double = _below(add(magnitude, magnitude), 20.0)
    power, rest = _reduce(double)
    scale = _two_to(power)
    t = add(mul(_exp_minus_1(rest), scale), sub(scale, real(1.0)))
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
    tail = sub(mul(mul(f, square), _polynomial(f, LOG_TERMS)), mul(square, real(0.5)))
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


def _exp_minus_1(r: Expr) -> Expr:
    """e^r - 1 for |r| <= ln2 / 2."""
    return add(r, mul(mul(r, r), _polynomial(r, EXP_TERMS)))


def _polynomial(x: Expr, terms: tuple[float, ...]) -> Expr:
    """terms[0] + terms[1] * x + ..., by Horner's rule."""
    result: Expr = real(terms[-1])
    for term in reversed(terms[:-1]):
        result = add(mul(result, x), real(term))
    return result


def _two_to(power: Expr) -> Expr:
    """2^power as a float32, for int32 powers in [-126, 127]."""
    return Bitcast(Binary("shl", add(power, integer(127)), integer(23)), DType.FLOAT32)


def _with_bits(x: Expr, op: str, mask: int) -> Expr:
    """The float32 whose bits are those of x `op` mask."""
    return Bitcast(Binary(op, Bitcast(x, DType.INT32), Const(mask, DType.INT32)), DType.FLOAT32)


def _below(x: Expr, high: float) -> Expr:
    """At most `high`; a NaN stays one (`min` and `max` would lose it)."""
    return Select(Binary("gt", x, real(high)), real(high), x)


def _between(x: Expr, low: float, high: float) -> Expr:
    return _below(Select(Binary("lt", x, real(low)), real(low), x), high)
