"""The exponential function in float64 as an expression, for results that another implementation's float64 would round to.

Enters: a float64 expression. Leaves: a float64 expression with a few multiplications and additions of float64, and no division.
Invariant: within EXP_RELATIVE of the exact result for |x| <= EXP_FARTHEST; a NaN gives a NaN.

Method: x = n * ln2 / 64 + r; 2^(n mod 64 / 64) from a table, e^r by a polynomial whose small terms are float32.
"""

from __future__ import annotations

import math

import numpy as np

from aot.graph.expr import Binary, Bitcast, Cast, Const, Expr, Lookup, Select, add, cast, integer, mul, real, sub
from aot.graph.floatmath import ROUND, polynomial
from aot.graph.ir import DType

EXP_RELATIVE = 2.0**-44
EXP_FARTHEST = 200.0
"""What lies farther from 0 counts as this: times a float32 that is not 0, e^x is beyond float32 there."""

_STEPS = 64
_SMALL_TERMS = (1 / 3, 1 / 12, 1 / 60)
"""(2 * (e^r - 1 - r) - r^2) / r^3 on |r| <= ln2 / 128."""


def double(value: float) -> Const:
    return Const(float(value), DType.FLOAT64)


def exp_table(factor: float) -> np.ndarray:
    """factor / 2 * 2^(k / 64) for k = 0..63: what `exp` looks into. `factor` is a power of 2 near 1."""
    return np.array([factor / 2 * 2.0 ** (step / _STEPS) for step in range(_STEPS)])


def exp(x: Expr, table: str) -> Expr:
    """factor * e^x; `table`: the name of a constant that holds `exp_table(factor)`.

    2 * e^r = 2 + r * (2 + r) + r^3 * (small terms), exact enough in float32 for the last.
    """
    near = Cast(x, DType.FLOAT32)
    inside = Select(Binary("gt", near, real(EXP_FARTHEST)), double(EXP_FARTHEST), x)
    inside = Select(Binary("lt", near, real(-EXP_FARTHEST)), double(-EXP_FARTHEST), inside)
    shifted = add(mul(Cast(inside, DType.FLOAT32), real(_STEPS / math.log(2))), real(ROUND))
    count = sub(Bitcast(shifted, DType.INT32), Bitcast(real(ROUND), DType.INT32))  # no conversion, which a NaN must not reach
    rest = sub(inside, mul(Cast(count, DType.FLOAT64), double(math.log(2) / _STEPS)))
    small = Cast(rest, DType.FLOAT32)
    tail = mul(mul(mul(small, small), small), polynomial(small, _SMALL_TERMS))
    twice = add(add(mul(add(rest, double(2.0)), rest), Cast(tail, DType.FLOAT64)), double(2.0))
    step = Lookup(table, Binary("and", count, integer(_STEPS - 1)), DType.FLOAT64)
    return mul(twice, _times_two_to(step, Binary("shr", count, integer(_STEPS.bit_length() - 1))))


def _times_two_to(x: Expr, power: Expr) -> Expr:
    """x * 2^power, by adding to the exponent: both are such that the result is a normal number (or nothing depends on it)."""
    exponent = Binary("shl", cast(power, DType.INT64), Const(52, DType.INT64))
    return Bitcast(add(Bitcast(x, DType.INT64), exponent), DType.FLOAT64)
