"""DIV: int8 and uint8 (quantised), int32, float32; FLOOR_DIV and FLOOR_MOD: float32 and plain integers. Broadcasting.

A divisor that is 0 at run time never traps. Floats then give what IEEE 754 says; integers x / 0 = x and x mod 0 = x (but FLOOR_DIV
x - 1 where x < 0); a quantised quotient is finite, but means nothing. A constant divisor of 0 is refused, as TFLite stops there
(float32 DIV and FLOOR_MOD do not).

Quantised quotients multiply by the reciprocal in Q0.31, which is a table here. Where the last shift of a small number would be more
than 31, the reference is undefined in C (and wrong on its hosts): here it gives the real quotient's 0.
Sources: tflite-micro, tensorflow/lite/micro/kernels/div.cc, floor_div.cc, floor_mod.cc,
tensorflow/lite/kernels/internal/reference/div.h and tensorflow/lite/kernels/internal/common.h. What TFLite Micro lacks (uint8 DIV,
integers in FLOOR_DIV and FLOOR_MOD): LiteRT, whose int8 and int16 FLOOR_DIV disregard the quantisation. The least number / -1 is
undefined in C (LiteRT's vector code saturates, the rest of its loop wraps around): here it saturates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from aot.graph import arithmetic
from aot.graph.expr import Binary, Cast, Const, Expr, Lookup, Requantise, Select, Unary, add, cast, clamp, integer, mul, sub
from aot.graph.ir import DType, Site
from aot.graph.operator import Lowering
from aot.graph.ops import checks
from aot.graph.ops.binary import (
    Clamp,
    Ending,
    activation_of,
    plain_clamp,
    quantised_ending,
    read_activation,
    require_dtypes,
)
from aot.graph.ops.elementwise import Expressed, Form, append_map, elementwise, operands
from aot.graph.ops.rescale import Rescale, offset, rescale
from aot.graph.support import litert, micro

_BYTES = (DType.INT8, DType.UINT8)
LEAST_HEADROOM = 23
"""Sign bits, less one, of a difference of two bytes."""


def _require_divisor(site: Site, zero_point: int = 0) -> None:
    divisor = site.input(1)
    if divisor.data is not None and (divisor.data == zero_point).any():
        raise site.error(f"the constant divisor {checks.describe(divisor)} has a 0")


# DIV


def _quotient(clamp: Clamp) -> Form:
    def function(left: Expr, right: Expr) -> Expr:
        return clamp.expression(Binary("div", left, right))

    return Expressed(function)


@dataclass(frozen=True)
class _QuantisedQuotient:
    """(x1 << headroom) * reciprocal of |x2|, rescaled with what is left of the shifts."""

    zero_points: tuple[int, int]
    output: Rescale
    ending: Ending

    def array(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        wide = (x.astype(np.int32) - np.int32(zero_point) for x, zero_point in zip((left, right), self.zero_points))
        a, b = np.broadcast_arrays(*wide)
        a, b = np.where(b < 0, -a, a), np.abs(b)
        headroom = 31 - _bits(np.where(a < 0, ~a, a))
        scaled = arithmetic.rounding_high_multiply((a.astype(np.int64) << headroom).astype(np.int32), reciprocals()[b])
        shift = self.output.shift - (_bits(b) - 1) - headroom
        rescaled = arithmetic.requantise(scaled, self.output.multiplier, np.maximum(shift, -31))
        return self.ending.array(np.where(shift < -31, 0, rescaled).astype(np.int32))

    def expression(self, left: Expr, right: Expr, table: str = "reciprocals") -> Expr:
        """`table`: the buffer that holds `reciprocals()`."""
        a, b = (offset(x, zero_point) for x, zero_point in zip((left, right), self.zero_points))
        a, b = Select(Binary("lt", b, integer(0)), Unary("neg", a), a), Unary("abs", b)
        headroom = sub(Unary("clz", Binary("xor", a, Binary("shr", a, integer(31)))), integer(1))
        scaled = Requantise(Binary("shl", a, headroom), Lookup(table, b, DType.INT32), integer(0))
        shift = add(sub(Unary("clz", b), headroom), integer(self.output.shift - 31))
        nearest = Requantise(scaled, integer(self.output.multiplier), Binary("max", shift, integer(-31)))
        return self.ending.expression(Select(Binary("lt", shift, integer(-31)), integer(0), nearest))


def _bits(x: np.ndarray) -> np.ndarray:
    """Bits of int32 numbers >= 0, without leading zeros."""
    return np.frexp(x.astype(np.float64))[1].astype(np.int32)


def reciprocals() -> np.ndarray:
    """For each |divisor| from 0 to 255 the reciprocal, in Q0.31, of its bits read as 1.xxx. Of 0: what the arithmetic gives."""
    divisors = np.arange(256, dtype=np.int64)
    fractions = ((divisors << (32 - _bits(divisors))) - (1 << 31)).astype(np.int32)
    return arithmetic.reciprocal_of_one_plus(fractions)


def _div_form(site: Site) -> Form:
    require_dtypes(site, DType.FLOAT32, DType.INT32, *_BYTES)
    if site.output.dtype not in _BYTES:
        if site.output.dtype is DType.INT32:
            _require_divisor(site)
        return _quotient(plain_clamp(site))
    return _quantised_div(site)


def _quantised_div(site: Site) -> _QuantisedQuotient:
    (left_scale, left), (right_scale, right) = (checks.per_tensor(site, site.input(position)) for position in (0, 1))
    scale, _ = checks.per_tensor(site, site.output)
    _require_divisor(site, right)
    single = site.output.dtype is DType.UINT8
    output = rescale(site, arithmetic.quotient_scale(left_scale, right_scale, scale, single))
    if output.shift > LEAST_HEADROOM:
        raise site.error(f"the output's scale {scale:.3g} is too small for inputs of scales {left_scale:.3g} and {right_scale:.3g}")
    return _QuantisedQuotient((left, right), output, quantised_ending(site, activation_of(site)))


def _lower_div(site: Site, lowering: Lowering) -> None:
    form, (left, right) = _div_form(site), operands(site)
    if isinstance(form, _QuantisedQuotient):
        append_map(site, lowering, form.expression(left, right, lowering.constant("reciprocals", reciprocals())))
    else:
        append_map(site, lowering, form.expression(left, right))


# FLOOR_DIV and FLOOR_MOD


def _floor_quotient(left: Expr, right: Expr) -> Expr:
    """The largest integer not above the quotient: of float32 in float64, as TFLite does; of integers, saturated to their type."""
    if left.dtype.is_float:
        quotient = Binary("div", Cast(left, DType.FLOAT64), Cast(right, DType.FLOAT64))
        return Cast(Unary("floor", quotient), DType.FLOAT32)
    dtype = left.dtype
    left, right = cast(left, DType.INT32), cast(right, DType.INT32)
    quotient = Binary("div", left, right)
    rest = sub(left, mul(quotient, right))
    result = sub(quotient, cast(_differ(rest, right), DType.INT32))
    return result if dtype is DType.INT32 else cast(clamp(result, *dtype.limits), dtype)


def _floor_rest(left: Expr, right: Expr) -> Expr:
    """What the quotient, rounded down, leaves: it has the divisor's sign."""
    rest = Binary("rem", left, right)
    return Select(_differ(rest, right), add(rest, right), rest)


def _differ(rest: Expr, divisor: Expr) -> Expr:
    """Whether a remainder is not 0 and has not the divisor's sign."""
    zero = Const(0, rest.dtype)
    return Binary("and", Binary("ne", rest, zero), Binary("ne", Binary("lt", rest, zero), Binary("lt", divisor, zero)))


def _floor_div_form(site: Site) -> Form:
    require_dtypes(site, DType.FLOAT32, DType.INT8, DType.INT16, DType.INT32)
    _require_divisor(site)
    return Expressed(_floor_quotient)


def _floor_mod_form(site: Site) -> Form:
    require_dtypes(site, DType.FLOAT32, DType.INT8, DType.INT16, DType.INT32, DType.INT64)
    if not site.output.dtype.is_float:
        _require_divisor(site)
    return Expressed(_floor_rest)


OPERATORS = (
    replace(elementwise("DIV", _div_form, options="DivOptions", read=read_activation), lower=_lower_div).supports(
        micro("int8, int32, float32"),
        litert("uint8"),
        notes="x / 0 never traps: floats as in IEEE 754 (TFLite clamps that to finite numbers), int32 x; a constant integer 0 is refused. "
        "Small 8-bit quotients whose last shift in TFLite is of more than 31 bits, which C leaves undefined, are 0.",
    ),
    elementwise("FLOOR_DIV", _floor_div_form).supports(
        micro("float32"),
        litert("int8, int16, int32"),
        notes="Integers disregard the quantisation, as in LiteRT; x / 0 never traps; a constant divisor of 0 is refused.",
    ),
    elementwise("FLOOR_MOD", _floor_mod_form).supports(
        micro("float32"),
        litert("int8, int16, int32, int64"),
        notes="Integers disregard the quantisation, as in LiteRT; x mod 0 = x; a constant integer divisor of 0 is refused.",
    ),
)
