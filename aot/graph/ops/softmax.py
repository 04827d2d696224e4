"""SOFTMAX over the last dimension: int8 to int8 in fixed point, and float32.

Source: tflite-micro, tensorflow/lite/micro/kernels/softmax_common.cc, tensorflow/lite/kernels/internal/reference/softmax.h and
common.h, GetReciprocal; gemmlowp, fixedpoint/fixedpoint.h.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from aot.graph import arithmetic, floatmath
from aot.graph.arithmetic import FLOAT32_LOWEST, INT32_MAX, NEWTON_SLOPE, NEWTON_START
from aot.graph.evaluate import requantise
from aot.graph.expr import (
    Acc,
    Affine,
    Binary,
    Const,
    Expr,
    Load,
    Lookup,
    Requantise,
    Select,
    Unary,
    add,
    axis,
    cast,
    clamp,
    fixed,
    integer,
    mul,
    real,
    sub,
)
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.primitive import Map, Reduce

DIFFERENCE_BITS = 5
"""Integer bits of the scaled difference to the largest input: Q5.26."""
SUM_BITS = 12
"""Integer bits of the sum of exponentials: Q12.19."""
SHIFT_OFFSET = SUM_BITS + 31 - 8
"""Minus the right shift of exp * 1/sum to an int8 result, for a sum without leading zeros."""
LONG_ROW = 512
"""From this row length on, a sum can be so large that every result rounds to 0 (TFLite Micro aborts at run time there)."""
WIDE_ROW = 1 << SUM_BITS
"""From this row length on, a sum in int32 could overflow."""


@dataclass(frozen=True)
class Softmax:
    beta: float = 1.0


def _read(options) -> Softmax:
    return Softmax(0.0 if options is None else float(options.Beta()))


def _beta(site: Site) -> float:
    assert isinstance(site.node.attributes, Softmax)
    return site.node.attributes.beta


def _infer(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (1,))
    data = site.input(0)
    if not data.shape:
        raise site.error(f"{checks.describe(data)} is a scalar; SOFTMAX needs a dimension")
    checks.require_elements(site, data)
    return (data.shape,)


def _check(site: Site) -> None:
    _infer(site)
    data, out = site.input(0), site.output
    checks.require_dtype(site, data, DType.INT8, DType.FLOAT32)
    checks.require_same_dtype(site, out, data)
    if not math.isfinite(_beta(site)):
        raise site.error("beta is not a finite number")
    if data.dtype is DType.INT8:
        if checks.per_tensor(site, out) != (1 / 256, -128):
            raise site.error("int8 SOFTMAX needs an output with scale 1/256 and zero point -128")
        _exponentials(site)


def _exponentials(site: Site) -> np.ndarray:
    """exp(-d * scale * beta) in Q0.31 for differences d = 0..255 to the row's largest input; int32. 0 where TFLite drops it."""
    scale, _ = checks.per_tensor(site, site.input(0))
    real_multiplier = min(_beta(site) * scale * (1 << (31 - DIFFERENCE_BITS)), float(INT32_MAX))
    if not real_multiplier > 1.0:
        raise site.error(f"beta * scale = {_beta(site) * scale:.3g} is too small for fixed-point arithmetic")
    multiplier, shift = arithmetic.quantise_multiplier(real_multiplier)
    radius = math.floor(((1 << DIFFERENCE_BITS) - 1) * (1 << (31 - DIFFERENCE_BITS)) / (1 << shift))
    difference = np.arange(256, dtype=np.int32)
    scaled = requantise(-np.minimum(difference, radius), multiplier, shift)
    return np.where(difference <= radius, arithmetic.exp_of_negative(scaled, DIFFERENCE_BITS), 0).astype(np.int32)


def _compute(site: Site, data: np.ndarray) -> tuple[np.ndarray]:
    return (_real_compute(data, _beta(site)) if data.dtype.kind == "f" else _integer_compute(site, data),)


def _integer_compute(site: Site, data: np.ndarray) -> np.ndarray:
    wide = data.astype(np.int64)
    exponential = _exponentials(site)[wide.max(axis=-1, keepdims=True) - wide]
    total = arithmetic.rounding_shift_right(exponential, SUM_BITS).sum(axis=-1, keepdims=True, dtype=np.int64)
    total = np.minimum(total, INT32_MAX)
    zeros = 32 - np.frexp(total.astype(np.float64))[1].astype(np.int64)  # the leading zeros of an int32
    reciprocal = arithmetic.reciprocal_of_one_plus((total << zeros) - (1 << 31))
    shift = zeros - SHIFT_OFFSET
    scaled = requantise(exponential, np.where(shift < -31, 0, reciprocal), np.maximum(shift, -31))
    return np.clip(scaled - 128, -128, 127).astype(np.int8)


def _real_compute(data: np.ndarray, beta: float) -> np.ndarray:
    """Exponentials correctly rounded, summed in order, all in float32."""
    with np.errstate(all="ignore"):
        difference = (data - data.max(axis=-1, keepdims=True)) * np.float32(beta)
        exponential = np.exp(difference.astype(np.float64)).astype(np.float32)
        return exponential / np.add.accumulate(exponential, axis=-1, dtype=np.float32)[..., -1:]


# Lowering: rows keep the input's dimensions, the last one as 1.


@dataclass(frozen=True)
class _Rows:
    """Where primitives over rows and over elements read."""

    site: Site

    @property
    def space(self) -> Shape:
        return (*self.site.input(0).shape[:-1], 1)

    @property
    def window(self) -> Shape:
        return self.site.input(0).shape[-1:]

    @property
    def swept(self) -> tuple[Affine, ...]:
        """The element at the window's position in this row."""
        rank = len(self.space)
        return (*(axis(number) for number in range(rank - 1)), axis(rank))

    def row(self, buffer: str, dtype: DType) -> Load:
        """This row's value, from an element's position as well."""
        rank = len(self.space)
        return Load(buffer, (*(axis(number) for number in range(rank - 1)), fixed(0)), dtype)


def _lower(site: Site, lowering: Lowering) -> None:
    if site.input(0).dtype is DType.FLOAT32:
        _real_lower(site, lowering)
    else:
        _integer_lower(site, lowering)


def _largest(site: Site, lowering: Lowering, lowest: Const) -> str:
    """The row's largest input."""
    rows, data, nodes = _Rows(site), site.input(0), (site.node.index,)
    name = lowering.temporary("largest", data.dtype, rows.space)
    result = Acc(data.dtype)
    lowering.append(Reduce(name, rows.space, rows.window, "max", lowest, load(data, rows.swept), result, nodes=nodes))
    return name


def _integer_lower(site: Site, lowering: Lowering) -> None:
    """Largest input; sum of exponentials from a table; reciprocal of the sum; exponential times reciprocal."""
    rows, data, nodes = _Rows(site), site.input(0), (site.node.index,)
    largest = rows.row(_largest(site, lowering, Const(-128, DType.INT8)), DType.INT8)
    table = lowering.constant("exponentials", _exponentials(site))

    def exponential(element: Load) -> Expr:
        return Lookup(table, sub(cast(largest, DType.INT32), cast(element, DType.INT32)), DType.INT32)

    total = lowering.temporary("total", DType.INT32, rows.space)
    term = _rounding_shift_right(exponential(load(data, rows.swept)), SUM_BITS)
    wide = rows.window[0] >= WIDE_ROW
    acc = DType.INT64 if wide else DType.INT32
    result = cast(Binary("min", Acc(acc), integer(INT32_MAX, acc)), DType.INT32) if wide else Acc(acc)
    lowering.append(Reduce(total, rows.space, rows.window, "add", integer(0, acc), cast(term, acc), result, nodes=nodes))

    reciprocal = lowering.temporary("reciprocal", DType.INT32, rows.space)
    sum_of_row = rows.row(total, DType.INT32)
    is_long = rows.window[0] >= LONG_ROW
    lowering.append(Map(reciprocal, rows.space, _reciprocal(sum_of_row, is_long), nodes=nodes))
    shift = sub(Unary("clz", sum_of_row), integer(SHIFT_OFFSET))
    shift = Binary("max", shift, integer(-31)) if is_long else shift
    scaled = Requantise(exponential(load(data)), rows.row(reciprocal, DType.INT32), shift)
    output = cast(clamp(sub(scaled, integer(128)), -128, 127), DType.INT8)
    lowering.append(Map(site.output.name, data.shape, output, nodes=nodes))


def _rounding_shift_right(x: Expr, exponent: int) -> Expr:
    """x / 2^exponent of an int32 x >= 0, halves up, without overflow."""
    return Binary("shr", add(Binary("shr", x, integer(exponent - 1)), integer(1)), integer(1))


def _reciprocal(total: Expr, is_long: bool) -> Expr:
    """1 / (total shifted up to [1, 2)) in Q0.31: `arithmetic.reciprocal_of_one_plus` as an expression.

    Products use `Requantise` with shift 0, whose multiplier is the factor that is not negative. The steps of Newton's method are
    below 1/2 (the first estimate is within 1/17), so that their left shift never saturates; only the last one can.
    """
    zeros = Unary("clz", total)
    fraction = Binary("and", Binary("shl", total, zeros), integer(INT32_MAX))
    half_denominator = add(Binary("shr", fraction, integer(1)), integer(1 << 30))
    estimate = add(_product(integer(NEWTON_SLOPE), half_denominator), integer(NEWTON_START))
    for _ in range(3):
        error = sub(integer(1 << 29), _product(estimate, half_denominator))
        estimate = add(estimate, Binary("shl", _product(error, estimate), integer(2)))
    is_one = Binary("gt", estimate, integer((1 << 30) - 1))
    result = Select(is_one, integer(INT32_MAX), Binary("shl", estimate, integer(1)))
    return Select(Binary("lt", zeros, integer(SHIFT_OFFSET - 31)), integer(0), result) if is_long else result


def _product(x: Expr, factor: Expr) -> Expr:
    return Requantise(x, factor, integer(0))


def _real_lower(site: Site, lowering: Lowering) -> None:
    """Largest input; exponentials into a buffer; their sum; quotients."""
    rows, data, nodes = _Rows(site), site.input(0), (site.node.index,)
    largest = rows.row(_largest(site, lowering, real(FLOAT32_LOWEST)), DType.FLOAT32)
    exponential = lowering.temporary("exponential", DType.FLOAT32, data.shape)
    difference = sub(load(data), largest)
    scaled = difference if _beta(site) == 1.0 else mul(difference, real(_beta(site)))
    lowering.append(Map(exponential, data.shape, floatmath.exp(scaled), nodes=nodes))
    total = lowering.temporary("total", DType.FLOAT32, rows.space)
    term = Load(exponential, rows.swept, DType.FLOAT32)
    lowering.append(Reduce(total, rows.space, rows.window, "add", real(0.0), term, Acc(DType.FLOAT32), nodes=nodes))
    element = Load(exponential, tuple(axis(number) for number in range(len(data.shape))), DType.FLOAT32)
    lowering.append(Map(site.output.name, data.shape, Binary("div", element, rows.row(total, DType.FLOAT32)), nodes=nodes))


OPERATORS = (Operator("SOFTMAX", "SoftmaxOptions", _read, _infer, _check, _compute, _lower),)
