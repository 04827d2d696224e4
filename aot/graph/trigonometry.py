"""Sine and cosine as expressions: float32, without a maths library, for arguments of every size.

Enters: a float32 expression, the name of a buffer that holds `two_over_pi()`. Leaves: a float32 expression.
Invariant: SIN_ULP bounds the error, in ulp of the exact result, for every float32 (the test samples them densely); a NaN or an
infinity gives a NaN.

Method: |x| = m * 2^(e - 23). The product of m with 96 bits of 2/pi, chosen by e, is |x| * 2/pi modulo 4 with 62 bits of fraction:
the nearest integer is the quadrant, and what is left has bits enough even for the float32 closest to a multiple of pi/2
(Payne and Hanek). Then one polynomial, whose coefficients the quadrant chooses.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from aot.graph.expr import Binary, Bitcast, Cast, Const, Expr, Lookup, Select, add, integer, mul, real, sub
from aot.graph.floatmath import SIGN_BIT, polynomial, with_bits
from aot.graph.ir import DType

SIN_ULP = 3.0
"""Bound of sine's and cosine's error, in units of the last place of the exact result."""

_TWO_OVER_PI = (0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB)
"""32 zero bits, then 2/pi: the 224 bits behind its binary point."""

_SIN_TERMS = (-0.16666667, 0.0083333291, -0.00019839303, 2.718026e-06)
_COS_TERMS = (-0.5, 0.041666646, -0.0013887308, 2.4432209e-05)
"""(sin r - r) / r^3 and (cos r - 1) / r^2 in powers of r^2, |r| <= pi/4: errors below 2^-32 of sine and cosine (our own fit)."""

_PI_QUARTER = 0.78539816
_HALF_PI_OF_2_64 = 1.5707963267948966 * 2.0**-64


def two_over_pi() -> np.ndarray:
    """The constant that `sine` and `cosine` read: bits of 2/pi as int32 words, the highest first."""
    return np.array(_TWO_OVER_PI, np.uint32).view(np.int32)


def sine(x: Expr, words: str) -> Expr:
    """sin x; odd, -0 gives -0."""
    sign = Binary("and", Bitcast(x, DType.INT32), integer(SIGN_BIT))
    return _wave(x, words, 0, sign)


def cosine(x: Expr, words: str) -> Expr:
    """cos x; even."""
    return _wave(x, words, 1, integer(0))


def _wave(x: Expr, words: str, quadrants: int, sign: Expr) -> Expr:
    """sin(|x| + quadrants * pi/2), with the bit `sign` flipped."""
    magnitude = with_bits(x, "and", ~SIGN_BIT)
    near = Binary("le", magnitude, real(_PI_QUARTER))
    turned, reduced = _reduce(magnitude, words)
    r = Select(near, magnitude, reduced)
    quadrant = Select(near, integer(0), turned)
    if quadrants:
        quadrant = add(quadrant, integer(quadrants))
    odd = Binary("ne", Binary("and", quadrant, integer(1)), integer(0))
    flip = Binary("xor", Binary("shl", Binary("and", quadrant, integer(2)), integer(30)), sign)
    wave = Bitcast(Binary("xor", Bitcast(_quarter(r, odd), DType.INT32), flip), DType.FLOAT32)
    return Select(Binary("lt", magnitude, real(float("inf"))), wave, sub(x, x))


def _quarter(r: Expr, odd: Expr) -> Expr:
    """cos r where `odd`, else sin r; |r| <= pi/4."""
    square = mul(r, r)
    terms = [Select(odd, real(cos), real(sin)) for sin, cos in zip(_SIN_TERMS, _COS_TERMS, strict=True)]
    first = Select(odd, real(1.0), r)
    return add(first, mul(first, mul(square, polynomial(square, terms))))


def _reduce(magnitude: Expr, words: str) -> tuple[Expr, Expr]:
    """(q, r) with magnitude = (4k + q) * pi/2 + r, |r| <= pi/4, for magnitudes of at least 1/2."""
    bits = Bitcast(magnitude, DType.INT32)
    exponent = sub(Binary("ushr", bits, integer(23)), integer(127))
    start = add(Binary("min", Binary("max", exponent, integer(-1)), integer(127)), integer(7))
    high, middle, low = _window(start, words)
    mantissa = Binary("or", Binary("and", bits, integer(0x7FFFFF)), integer(0x800000))
    wide = Cast(mantissa, DType.INT64)
    tail = Binary("ushr", mul(wide, _unsigned(low)), _long(32))
    top = Binary("shl", _unsigned(mul(mantissa, high)), _long(32))
    turns = add(add(top, mul(wide, _unsigned(middle))), tail)  # |x| * 2/pi modulo 4, in units of 2^-62
    quadrant = Cast(Binary("ushr", add(turns, _long(1 << 61)), _long(62)), DType.INT32)
    rest = Cast(Binary("shl", turns, _long(2)), DType.FLOAT32)
    return quadrant, mul(rest, real(_HALF_PI_OF_2_64))


def _window(start: Expr, words: str) -> list[Expr]:
    """96 bits of 2/pi from bit `start` (0..134) on, as three int32 words."""
    first, shift = Binary("shr", start, integer(5)), Binary("and", start, integer(31))
    back = sub(integer(31), shift)
    found = [Lookup(words, add(first, integer(number)) if number else first, DType.INT32) for number in range(4)]
    return [Binary("or", Binary("shl", a, shift), Binary("ushr", Binary("ushr", b, integer(1)), back)) for a, b in pairwise(found)]


def _unsigned(x: Expr) -> Expr:
    """The 32 bits of an int32 as an int64 from 0 to 2^32 - 1."""
    return Cast(Cast(x, DType.UINT32), DType.INT64)


def _long(value: int) -> Const:
    return Const(value, DType.INT64)
