"""Powers as expressions: x^y of float32 through a logarithm in float64, and of int32 by repeated squaring.

Enters: two expressions of one dtype. Leaves: an expression of that dtype.
Invariant: the float32 power is within POWER_ULP of the exact result for all operands, also where it is denormal; special operands
give what C's `pow` gives (IEEE 754-2008, 9.2.1). The int32 power wraps.

Method: log2 x = k + log2 m with m next to 1, by the series of the inverse hyperbolic tangent of (m - 1) / (m + 1); its product with y
needs some 31 bits, hence float64. The fraction of the product, at most 1/2, goes to float32's e^r. A constant exponent that is small
costs multiplications only.
"""

from __future__ import annotations

import math

from aot.graph.expr import Binary, Bitcast, Cast, Const, Expr, Select, Unary, add, integer, mul, real, sub
from aot.graph.floatmath import ROUND
from aot.graph.ir import DType

POWER_ULP = 2.0
"""Bound, in units of the last place of the exact result."""

_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
_SERIES = tuple(2 / math.log(2) / (2 * term + 1) for term in range(7))
"""log2((1 + s) / (1 - s)) / s in powers of s^2; |s| <= 0.172, relative error below 2^-37."""
_EXP2_TERMS = tuple(math.log(2) ** term / math.factorial(term) for term in range(8))
"""2^r in powers of r; |r| <= 1/2, relative error below 2^-26."""
_FARTHEST = 160.0
"""Beyond 2^-160 and 2^160 a result is 0 and infinity."""


def power(x: Expr, y: Expr) -> Expr:
    """x^y in float32."""
    special = _small_power(x, y.value) if isinstance(y, Const) else None
    return _general_power(x, y) if special is None else special


def _small_power(x: Expr, exponent: float) -> Expr | None:
    """x^exponent by at most one operation, which rounds once; None for other exponents."""
    if exponent == 1:
        return x
    if exponent == 2:
        return mul(x, x)
    if exponent == -1:
        return Binary("div", real(1.0), x)
    if exponent == 0.5:
        root = Unary("sqrt", add(x, real(0.0)))  # -0 becomes 0
        return Select(Binary("eq", x, real(-math.inf)), real(math.inf), root)
    return None


def _general_power(x: Expr, y: Expr) -> Expr:
    one, zero, infinity = real(1.0), real(0.0), real(math.inf)
    size = Unary("abs", x)
    growth = Select(Binary("eq", size, one), Const(0.0, DType.FLOAT64), mul(Cast(y, DType.FLOAT64), _log2(size)))
    magnitude = _exp2(growth)
    up = Binary("gt", y, zero)
    magnitude = Select(Binary("eq", size, zero), Select(up, zero, infinity), magnitude)
    magnitude = Select(Binary("eq", size, infinity), Select(up, infinity, zero), magnitude)
    whole, odd = _parity(y)
    negative = Binary("lt", Bitcast(x, DType.INT32), integer(0))
    signed = Select(Binary("and", negative, odd), Unary("neg", magnitude), magnitude)
    finite = Binary("and", Binary("lt", x, zero), Binary("gt", x, real(-math.inf)))
    undefined = Binary("and", finite, Unary("not", whole))
    number = Binary("and", Binary("eq", x, x), Binary("eq", y, y))
    result = Select(Binary("and", number, Unary("not", undefined)), signed, real(math.nan))
    return Select(Binary("or", Binary("eq", y, zero), Binary("eq", x, one)), one, result)


def _parity(y: Expr) -> tuple[Expr, Expr]:
    """Whether y is a whole number, and whether an odd one (none beyond 2^24 is)."""
    small = Binary("lt", Unary("abs", y), real(2.0**24))
    bit = Binary("and", Cast(Select(small, y, real(0.0)), DType.INT32), integer(1))
    whole = Binary("eq", Unary("trunc", y), y)
    return whole, Binary("and", whole, Binary("ne", bit, integer(0)))


def _log2(x: Expr) -> Expr:
    """log2 of a positive finite float32, in float64 (where it is never denormal)."""
    bits = Bitcast(Cast(x, DType.FLOAT64), DType.INT64)
    above = sub(bits, Const(_SQRT_HALF_BITS, DType.INT64))
    exponent = Binary("shr", above, Const(52, DType.INT64))
    mantissa = Bitcast(sub(bits, Binary("shl", exponent, Const(52, DType.INT64))), DType.FLOAT64)
    one = Const(1.0, DType.FLOAT64)
    s = Binary("div", sub(mantissa, one), add(mantissa, one))
    square = mul(s, s)
    series: Expr = Const(_SERIES[-1], DType.FLOAT64)
    for term in reversed(_SERIES[:-1]):
        series = add(mul(series, square), Const(term, DType.FLOAT64))
    return add(Cast(Cast(exponent, DType.INT32), DType.FLOAT64), mul(s, series))


def _exp2(t: Expr) -> Expr:
    """2^t in float32 of a float64; a NaN gives any number."""
    low, high = Const(-_FARTHEST, DType.FLOAT64), Const(_FARTHEST, DType.FLOAT64)
    inside = Select(Binary("lt", t, high), t, high)
    inside = Select(Binary("gt", inside, low), inside, low)
    shifted = add(Cast(inside, DType.FLOAT32), real(ROUND))
    exponent = sub(Bitcast(shifted, DType.INT32), Bitcast(real(ROUND), DType.INT32))
    rest = Cast(sub(inside, Cast(exponent, DType.FLOAT64)), DType.FLOAT32)
    result: Expr = real(_EXP2_TERMS[-1])
    for term in reversed(_EXP2_TERMS[:-1]):
        result = add(mul(result, rest), real(term))
    half = Binary("shr", exponent, integer(1))  # 2^exponent alone may be no normal number
    return mul(mul(result, _two_to(half)), _two_to(sub(exponent, half)))


def _two_to(exponent: Expr) -> Expr:
    """2^exponent in float32, of an int32 in [-126, 127]."""
    return Bitcast(Binary("shl", add(exponent, integer(127)), integer(23)), DType.FLOAT32)


def whole_power(x: Expr, y: Expr) -> Expr:
    """x^y of int32, wrapping; 0 where y < 0."""
    if isinstance(y, Const):
        return _constant_whole_power(x, int(y.value))
    result: Expr = integer(1)
    square = x
    for bit in range(31):
        has_bit = Binary("ne", Binary("and", y, integer(1 << bit)), integer(0))
        result = Select(has_bit, mul(result, square), result)
        square = mul(square, square)
    return Select(Binary("lt", y, integer(0)), integer(0), result)


def _constant_whole_power(x: Expr, exponent: int) -> Expr:
    result: Expr | None = None
    square = x
    while exponent > 0:
        if exponent & 1:
            result = square if result is None else mul(result, square)
        exponent >>= 1
        square = mul(square, square) if exponent else square
    return integer(1) if result is None else result
