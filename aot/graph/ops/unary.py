"""ABS, CEIL, COS, EXP, FLOOR, LOG, LOGICAL_NOT, NEG, ROUND, RSQRT, SIGN, SIN, SQRT, SQUARE: float32 and what else each has.

float32: exact, but for COS, EXP, LOG, SIN (the bounds of `floatmath` and `trigonometry`).
TFLite Micro has ABS and RSQRT of int8 and int16. From LiteRT: ABS of int32, NEG of integers (their bits: a quantised one is
negated as it stands), SIGN, and the tables of EXP, LOG, SQRT.
Sources: tflite-micro, tensorflow/lite/micro/kernels/elementwise.cc, ceil.cc, exp.cc, floor.cc, neg.cc, round.cc and
tensorflow/lite/kernels/internal/reference/round.h; LiteRT, tflite/kernels/elementwise.cc, exp.cc, neg.cc, sign.cc.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from aot.graph import arithmetic, floatmath, trigonometry
from aot.graph.expr import Binary, Cast, Const, Expr, Requantise, Select, Unary, add, cast, integer, mul, real
from aot.graph.fixedmath import evaluated, inverse_square_root
from aot.graph.ir import DType, Site
from aot.graph.operator import Operator
from aot.graph.ops import checks
from aot.graph.ops.rescale import finish, offset, rescale
from aot.graph.ops.single import Constant, byte_lookup, quantisations, ratio, require_no_zero_points, require_types, single
from aot.graph.ops.tabulated import Function, nearest, tabulated
from aot.graph.support import litert, micro

_QUANTISED = (DType.INT8, DType.INT16)


def _check(site: Site) -> None:
    """float32, or quantised int8 or (symmetric) int16."""
    require_types(site, DType.FLOAT32, *_QUANTISED)
    _check_quantised(site)


def _check_quantised(site: Site) -> None:
    if site.input(0).dtype is DType.INT16:
        require_no_zero_points(site)
    elif site.input(0).dtype is DType.INT8:
        quantisations(site)


# float32 alone.


def _float(name: str, function: Callable[[Expr], Expr]) -> Operator:
    return single(name, lambda site, x, constant: function(x), lambda site: require_types(site, DType.FLOAT32))


def _wave(name: str, function: Callable[[Expr, str], Expr]) -> Operator:
    def element(site: Site, x: Expr, constant: Constant) -> Expr:
        return function(x, constant("two_over_pi", trigonometry.two_over_pi()))

    return single(name, element, lambda site: require_types(site, DType.FLOAT32))


def _round(x: Expr) -> Expr:
    """The nearest whole number, half to even; 0 instead of -0, but for -0 itself (TFLite adds up from the floor)."""
    return Select(Binary("eq", x, real(0.0)), x, add(Unary("rint", x), real(0.0)))


def _reciprocal_root(x: Expr) -> Expr:
    return Binary("div", real(1.0), Unary("sqrt", x))


# Of all numbers, without a scale.


def _plain(name: str, function: Callable[[Expr], Expr], *allowed: DType) -> Operator:
    return single(name, lambda site, x, constant: function(x), lambda site: require_types(site, *allowed))


def _sign(x: Expr) -> Expr:
    """1, 0 or -1; a NaN stays one."""
    zero, one, minus_one = (Const(value, x.dtype) for value in ((0.0, 1.0, -1.0) if x.dtype.is_float else (0, 1, -1)))
    below = Select(Binary("lt", x, zero), minus_one, Select(Binary("eq", x, zero), zero, x))
    return Select(Binary("gt", x, zero), one, below)


# ABS


def _abs_check(site: Site) -> None:
    require_types(site, DType.FLOAT32, DType.INT8, DType.INT16, DType.INT32)
    if _is_quantised(site):
        _check_quantised(site)
        rescale(site, ratio(site))


def _is_quantised(site: Site) -> bool:
    """int16 is taken as a plain number where it has no scale."""
    value = site.input(0)
    return value.dtype is DType.INT8 or (value.dtype is DType.INT16 and value.quantisation is not None)


def _abs(site: Site, x: Expr, constant: Constant) -> Expr:
    if not _is_quantised(site):
        return cast(Unary("abs", x), x.dtype)
    _, zero_point, _, out_zero_point = quantisations(site)
    size = rescale(site, ratio(site)).expression(Unary("abs", offset(x, zero_point)))
    return finish(size, out_zero_point, *x.dtype.limits, x.dtype)


# Tables of float functions: EXP, LOG.


def _tabulated(name: str, real_form: Callable[[Expr], Expr], function: Callable[[Site], Function]) -> Operator:
    def element(site: Site, x: Expr, constant: Constant) -> Expr:
        return real_form(x) if x.dtype is DType.FLOAT32 else tabulated(site, x, constant, function(site))

    return single(name, element, _check)


def _positive(function: Function, otherwise: np.float32) -> Function:
    """`function` of positive numbers; a constant for the others."""
    return lambda x: np.where(x > 0, function(np.where(x > 0, x, np.float32(1))), otherwise)


def _log_of(site: Site) -> Function:
    """Without a logarithm: the smallest output."""
    scale, zero_point = checks.per_tensor(site, site.output)
    low, _ = site.output.dtype.limits
    return _positive(nearest(np.log), np.float32(low - zero_point) * np.float32(scale))


# RSQRT of int8 (a table) and int16, in fixed point.


def _rsqrt_check(site: Site) -> None:
    _check(site)
    if site.input(0).dtype is not DType.FLOAT32:
        _root_factor(site)


def _rsqrt(site: Site, x: Expr, constant: Constant) -> Expr:
    if x.dtype is DType.FLOAT32:
        return _reciprocal_root(x)
    if x.dtype is DType.INT16:
        return Cast(_fixed_root(site, offset(x, 0)), DType.INT16)
    return byte_lookup(_rsqrt_table(site), x, constant)


def _rsqrt_table(site: Site) -> np.ndarray:
    """The int8 output for each int8 input, -128 first."""
    _, zero_point, _, _ = quantisations(site)
    return evaluated(lambda x: _fixed_root(site, x), np.arange(-128 - zero_point, 128 - zero_point, dtype=np.int32)).astype(np.int8)


def _fixed_root(site: Site, x: Expr) -> Expr:
    """The int32 output of an input less its zero point. 0 gives the largest; so do negative numbers, which TFLite Micro refuses."""
    extra = 20
    _, _, _, out_zero_point = quantisations(site)
    (multiplier, shift), (low, high) = _root_factor(site), site.output.dtype.limits
    root, root_shift = inverse_square_root(x)
    unit = Requantise(integer(1), root, add(root_shift, integer(extra)))
    result = finish(Requantise(unit, integer(multiplier), integer(shift - extra)), out_zero_point, low, high, DType.INT32)
    return Select(Binary("gt", x, integer(0)), result, integer(high))


def _root_factor(site: Site) -> tuple[int, int]:
    """1 / (root of the input's scale * output scale) as (multiplier, shift). In double, as TFLite Micro computes since August 2026."""
    scale, _, out_scale, _ = quantisations(site)
    product = math.sqrt(scale) * out_scale
    if product == 0 or arithmetic.quantise_multiplier(1 / product)[1] > checks.MAX_SHIFT:
        raise site.error(f"its scales would multiply the reciprocal root by more than int32 arithmetic can: 1 / {product:.3g}")
    return arithmetic.quantise_multiplier(1 / product)


# SQRT


def _sqrt(site: Site, x: Expr, constant: Constant) -> Expr:
    """Quantised: towards zero, not to the nearest. A negative number, which LiteRT refuses, is taken as 0."""
    if x.dtype is DType.FLOAT32:
        return Unary("sqrt", x)
    scale, zero_point, out_scale, out_zero_point = quantisations(site)
    number = Binary("max", offset(x, zero_point), integer(0))
    root = Unary("sqrt", mul(real(scale), Cast(number, DType.FLOAT32)))
    quotient = Binary("div", root, real(out_scale))
    fitting = Select(Binary("lt", quotient, real(1 << 17)), quotient, real(1 << 17))
    return finish(Cast(fitting, DType.INT32), out_zero_point, *x.dtype.limits, x.dtype)


_INTEGERS = (DType.INT8, DType.INT16, DType.INT32, DType.INT64)

OPERATORS = (
    single("ABS", _abs, _abs_check).supports(micro("int8, int16, float32"), litert("int32"), notes="Exact."),
    _float("CEIL", lambda x: Unary("ceil", x)).supports(micro("float32"), notes="Exact."),
    _wave("COS", trigonometry.cosine).supports(micro("float32"), notes="Within 3 ulp of the exact result, also of large angles."),
    _tabulated("EXP", floatmath.exp, lambda site: nearest(np.exp)).supports(
        micro("float32"), litert("int8, int16"), notes="float32 within 1.1 ulp; integers are LiteRT's tables."
    ),
    _float("FLOOR", lambda x: Unary("floor", x)).supports(micro("float32"), notes="Exact."),
    _tabulated("LOG", floatmath.log, _log_of).supports(
        micro("float32"), litert("int8, int16"), notes="float32 within 1 ulp; integers are LiteRT's tables."
    ),
    _plain("LOGICAL_NOT", lambda x: Unary("not", x), DType.BOOL).supports(micro("bool"), notes="Exact."),
    _plain("NEG", lambda x: Unary("neg", x), DType.FLOAT32, *_INTEGERS).supports(
        micro("float32"),
        litert("int8, int16, int32, int64"),
        notes="Exact; a quantised number is negated as it stands, as LiteRT does.",
    ),
    _float("ROUND", _round).supports(micro("float32"), notes="Exact; halves to even."),
    single("RSQRT", _rsqrt, _rsqrt_check).supports(micro("int8, int16, float32"), notes="Exact."),
    _plain("SIGN", _sign, DType.FLOAT32, DType.INT32).supports(litert("float32, int32"), notes="Exact."),
    _wave("SIN", trigonometry.sine).supports(micro("float32"), notes="Within 3 ulp of the exact result, also of large angles."),
    single("SQRT", _sqrt, _check).supports(
        micro("float32"), litert("int8, int16"), notes="float32 is exact; integers are LiteRT's tables."
    ),
    _float("SQUARE", lambda x: mul(x, x)).supports(micro("float32"), notes="Exact."),
)
