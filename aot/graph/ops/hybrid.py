"""Hybrid contractions: float32 activations are quantised at run time, row by row, to meet integer weights.

Enters: a site with float32 activations and int8 or int4 weights. Leaves: a `Hybrid` ending, and the primitives that quantise rows.
Invariant: `Hybrid.read` and `Rows.quantise` compute the same integers and scales: float32 operations in LiteRT's order, its doubles
where it has doubles. (A row is an image of a convolution, a row of FULLY_CONNECTED. NaNs do not count for the range.)

TFLite Micro has no hybrid kernels. Source: LiteRT, tflite/kernels/conv.cc, depthwise_conv.cc, fully_connected.cc (EvalHybrid...),
tflite/kernels/internal/reference/portable_tensor_utils.cc (PortableSymmetricQuantizeFloats, PortableAsymmetricQuantizeFloats).
Outputs are within 2 ulp of LiteRT's, which may add the bias before or after the product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from aot.graph.expr import (
    Acc,
    Affine,
    Binary,
    Cast,
    Const,
    Expr,
    IndexMap,
    Load,
    Select,
    Unary,
    add,
    affine,
    cast,
    integer,
    mul,
    real,
    sub,
)
from aot.graph.ir import DType, Shape, Site, Value
from aot.graph.operator import Lowering, constant_element
from aot.graph.ops import checks
from aot.graph.ops.contraction import clamp_array, clamp_expr
from aot.graph.ops.rounding import nearest, nearest_array
from aot.graph.primitive import Map, Reduce

_SYMMETRIC, _LOW, _HIGH = 127, -128, 127


@dataclass(frozen=True)
class Hybrid:
    """int32 sums of a quantised row to float32: times the row's scale and the channel's, plus the bias, clamped.

    scales: float32, the weights' one (then it is part of the row's scale), or one for each channel.
    asymmetric: rows are quantised to the whole of int8 around a zero point, which is taken off at once: differences of 9 bits.
    """

    activation: str
    scales: Sequence[float]
    asymmetric: bool
    input_zero_point: int = 0
    weights_zero_point: int = 0
    sums: DType = DType.INT32

    @property
    def dtype(self) -> DType:
        """The type of quantised activations."""
        return DType.INT16 if self.asymmetric else DType.INT8

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows (N, K) of float32 as integers without a zero point, and a float32 scale for each."""
        with np.errstate(all="ignore"):
            values, scale = (_asymmetric if self.asymmetric else _symmetric)(rows)
            return values, scale if len(self.scales) > 1 else scale * np.float32(self.scales[0])

    def finish(self, total: np.ndarray, bias: np.ndarray | None, scale: np.ndarray) -> np.ndarray:
        """Sums (rows first, channels last), the rows' scales, to the output."""
        with np.errstate(all="ignore"):
            factor = scale.reshape(-1, *[1] * (total.ndim - 1))
            if len(self.scales) > 1:
                factor = factor * np.array(self.scales, np.float32)
            out = total.astype(np.float32) * factor
            return clamp_array(out if bias is None or not bias.size else out + bias.reshape(-1), self.activation)

    def result(self, lowering: Lowering, channel: Affine, scale: Load, bias: Expr) -> Expr:
        factor: Expr = scale
        if len(self.scales) > 1:
            array = np.array(self.scales, np.float32)
            factor = mul(factor, constant_element(lowering.constant("weights_scale", array), DType.FLOAT32, (channel,)))
        scaled = mul(Cast(Acc(DType.INT32), DType.FLOAT32), factor)
        return clamp_expr(scaled if isinstance(bias, Const) else add(scaled, bias), self.activation)


def hybrid(site: Site, activation: str, axis: int, asymmetric: bool) -> Hybrid:
    """The hybrid ending of weights whose output channels lie on `axis`."""
    checks.require_activation(site, activation)
    return Hybrid(activation, weights_scales(site, axis), asymmetric)


def weights_scales(site: Site, axis: int) -> Sequence[float]:
    """The weights' scales; one, if all are the same."""
    scales = checks.channel_scales(site, site.input(1), axis)
    return scales[:1] if len(set(scales)) == 1 else scales


# In numpy.


def _symmetric(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    reach = np.fmax.reduce(np.abs(x), axis=1, initial=np.float32(0))
    empty = reach == 0
    inverse = np.where(empty, np.float32(0), np.float32(_SYMMETRIC) / reach)
    return nearest_array(x * inverse[:, None], -_SYMMETRIC, _SYMMETRIC), np.where(
        empty, np.float32(1), reach / np.float32(_SYMMETRIC)
    )


def _asymmetric(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    least = np.fmin.reduce(x, axis=1, initial=np.float32(0))
    most = np.fmax.reduce(x, axis=1, initial=np.float32(0))
    empty = least == most
    step = (most.astype(np.float64) - least) / 255
    zero_point = np.where(empty, 0, nearest_array(_zero_point(least / step, most / step), _LOW, _HIGH))
    scale = np.where(empty, np.float32(1), step.astype(np.float32))
    inverse = np.where(empty, np.float32(0), np.float32(1) / scale)
    moved = zero_point.astype(np.float32)[:, None] + x * inverse[:, None]
    return nearest_array(moved, _LOW, _HIGH) - zero_point[:, None].astype(np.int32), scale


def _zero_point(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """From the end of the range, in steps, that loses less (doubles)."""
    return np.where(128 + np.abs(low) < 127 + np.abs(high), _LOW - low, _HIGH - high)


# As primitives.


@dataclass(frozen=True)
class Rows:
    """Rows of a float32 value: iteration axes `rows`, then `depth`; `index` finds an element of `value` at them."""

    value: Value
    rows: Shape
    depth: Shape
    index: tuple[IndexMap, ...]

    def quantise(self, site: Site, lowering: Lowering, ending: Hybrid) -> tuple[Value, str]:
        """Appends the primitives. The quantised value, of this one's shape, and the name of the buffer with the rows' scales."""
        made = _Quantiser(self, lowering, (site.node.index,))
        factor = float(np.float32(ending.scales[0])) if len(ending.scales) == 1 else 1.0
        return (made.asymmetric if ending.asymmetric else made.symmetric)(factor)


@dataclass(frozen=True)
class _Quantiser:
    of: Rows
    lowering: Lowering
    nodes: tuple[int, ...]

    @property
    def row(self) -> Affine:
        """The number of the row at the iteration axes."""
        rows = self.of.rows
        return affine({number: prod(rows[number + 1 :]) for number in range(len(rows))})

    @property
    def x(self) -> Load:
        return Load(self.of.value.name, self.of.index, DType.FLOAT32)

    def reduce(self, purpose: str, term: Expr) -> Load:
        """The largest term of each row, at least 0."""
        out = self._temporary(purpose, DType.FLOAT32)
        acc = Acc(DType.FLOAT32)
        self.lowering.append(Reduce(out, self.of.rows, self.of.depth, "max", real(0.0), term, acc, (self.row,), nodes=self.nodes))
        return Load(out, (self.row,), DType.FLOAT32)

    def each_row(self, purpose: str, value: Expr) -> Load:
        out = self._temporary(purpose, value.dtype)
        self.lowering.append(Map(out, self.of.rows, value, (self.row,), self.nodes))
        return Load(out, (self.row,), value.dtype)

    def each_element(self, value: Expr) -> Value:
        shape = self.of.value.shape
        out = self.lowering.temporary("quantised", value.dtype, shape)
        self.lowering.append(Map(out, (*self.of.rows, *self.of.depth), value, self.of.index, self.nodes))
        return Value(out, value.dtype, shape)

    def _temporary(self, purpose: str, dtype: DType) -> str:
        return self.lowering.temporary(purpose, dtype, (prod(self.of.rows),))

    def symmetric(self, factor: float) -> tuple[Value, str]:
        reach = self.reduce("reach", Unary("abs", self.x))
        empty = Binary("eq", reach, real(0.0))
        scale = Select(empty, real(1.0), Binary("div", reach, real(_SYMMETRIC)))
        inverse = self.each_row("inverse", Select(empty, real(0.0), Binary("div", real(_SYMMETRIC), reach)))
        scales = self.each_row("scale", _times(scale, factor))
        return self.each_element(cast(nearest(mul(self.x, inverse), -_SYMMETRIC, _SYMMETRIC), DType.INT8)), scales.buffer

    def asymmetric(self, factor: float) -> tuple[Value, str]:
        # The maximum of the negated: a "min" would take a NaN.
        least, most = Unary("neg", self.reduce("least", Unary("neg", self.x))), self.reduce("most", self.x)
        empty = Binary("eq", least, most)
        low, high = Cast(least, DType.FLOAT64), Cast(most, DType.FLOAT64)
        step = Binary("div", sub(high, low), _double(255))
        point = nearest(_zero_point_expression(Binary("div", low, step), Binary("div", high, step)), _LOW, _HIGH)
        zero_point = self.each_row("zero_point", Select(empty, integer(0), point))
        scale = self.each_row("row_scale", Select(empty, real(1.0), Cast(step, DType.FLOAT32)))
        inverse = self.each_row("inverse", Select(empty, real(0.0), Binary("div", real(1.0), scale)))
        scales = scale if factor == 1 else self.each_row("scale", _times(scale, factor))
        moved = add(Cast(zero_point, DType.FLOAT32), mul(self.x, inverse))
        return self.each_element(cast(sub(nearest(moved, _LOW, _HIGH), zero_point), DType.INT16)), scales.buffer


def _times(x: Expr, factor: float) -> Expr:
    return x if factor == 1 else mul(x, real(factor))


def _double(value: float) -> Const:
    return Const(float(value), DType.FLOAT64)


def _zero_point_expression(low: Expr, high: Expr) -> Expr:
    less = Binary("lt", add(_double(128), Unary("abs", low)), add(_double(127), Unary("abs", high)))
    return Select(less, sub(_double(_LOW), low), sub(_double(_HIGH), high))
