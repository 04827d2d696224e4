"""What CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED share: bias, requantisation, clamping, in numpy and as expressions.

Enters: a site whose inputs are activation, weights and an optional bias. Leaves: an `Ending`, which turns sums into outputs.
Invariant: an int8 ending lowers to exactly `int8(clamp(requantise(acc, multiplier[c], shift[c]) + zero_point))`: kernels match it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aot.graph import arithmetic
from aot.graph.evaluate import requantise
from aot.graph.expr import Acc, Affine, Binary, Const, Expr, Requantise, add, cast, clamp, integer, real
from aot.graph.ir import DType, Site, Value
from aot.graph.operator import Lowering, constant_element
from aot.graph.ops import checks


@dataclass(frozen=True)
class Quantised:
    """int32 sums to the output's integers: rescaled per output channel, moved to its zero point, clamped."""

    multiplier: np.ndarray
    shift: np.ndarray
    input_zero_point: int
    weights_zero_point: int
    zero_point: int
    low: int
    high: int
    dtype: DType

    def finish(self, total: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        """Exact sums (float64 or int64, channels last) to the output."""
        acc = total.astype(np.int64) + (0 if bias is None else bias.reshape(-1).astype(np.int64))
        scaled = requantise(acc.astype(np.int32), self.multiplier, self.shift) + np.int32(self.zero_point)
        return np.clip(scaled, self.low, self.high).astype(self.dtype.np)

    def initial(self, bias: str | None, channel: Affine) -> Expr:
        return integer(0) if bias is None else constant_element(bias, DType.INT32, (channel,))

    def result(self, lowering: Lowering, channel: Affine) -> Expr:
        multiplier = constant_element(lowering.constant("multiplier", self.multiplier), DType.INT32, (channel,))
        shift = constant_element(lowering.constant("shift", self.shift), DType.INT32, (channel,))
        scaled = add(Requantise(Acc(DType.INT32), multiplier, shift), integer(self.zero_point))
        return cast(clamp(scaled, self.low, self.high), self.dtype)


@dataclass(frozen=True)
class Real:
    """float32 sums, clamped by the activation."""

    activation: str
    input_zero_point: int = 0
    weights_zero_point: int = 0

    def finish(self, total: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        """float64 sums (channels last) to the output."""
        with np.errstate(all="ignore"):
            return clamp_array((total if bias is None else total + bias.reshape(-1)).astype(np.float32), self.activation)

    def initial(self, bias: str | None, channel: Affine) -> Expr:
        return real(0.0) if bias is None else constant_element(bias, DType.FLOAT32, (channel,))

    def result(self, lowering: Lowering, channel: Affine) -> Expr:
        return clamp_expr(Acc(DType.FLOAT32), self.activation)


Ending = Quantised | Real


def clamp_array(x: np.ndarray, activation: str) -> np.ndarray:
    """A float32 array through a fused activation (a NaN stays one)."""
    low, high = arithmetic.float_range(activation) or (None, None)
    return x if activation == "none" else np.clip(x, np.float32(low), np.float32(high))


def clamp_expr(x: Expr, activation: str) -> Expr:
    """A float32 expression through a fused activation."""
    low, high = arithmetic.float_range(activation) or (arithmetic.FLOAT32_LOWEST, arithmetic.FLOAT32_MAX)
    x = x if low == arithmetic.FLOAT32_LOWEST else Binary("max", x, real(low))
    return x if high == arithmetic.FLOAT32_MAX else Binary("min", x, real(high))


def bias_of(site: Site, channels: int) -> Value | None:
    """The bias, or None where the node has none (absent, or a tensor without elements)."""
    bias = site.optional(2)
    if bias is None or bias.size == 0:
        return None
    if bias.size != channels:
        raise site.error(f"the bias {checks.describe(bias)} has {bias.size} elements for {channels} output channels")
    return bias


def check_dtypes(site: Site, channels: int) -> None:
    """int8 or float32 throughout (bias: int32 with int8); int8 weights and bias constant."""
    data, weights, bias = site.input(0), site.input(1), bias_of(site, channels)
    checks.require_dtype(site, data, DType.INT8, DType.FLOAT32)
    if data.dtype is DType.FLOAT32 and weights.dtype.is_integer:
        raise site.error(f"float32 input with {weights.dtype} weights is not supported", "quantise the activations too, or nothing")
    checks.require_dtype(site, weights, data.dtype)
    checks.require_same_dtype(site, site.output, data)
    if bias is not None:
        checks.require_dtype(site, bias, DType.INT32 if data.dtype is DType.INT8 else DType.FLOAT32)
    if data.dtype is DType.INT8:
        checks.require_constant(site, weights, "weights")
        if bias is not None:
            checks.require_constant(site, bias, "bias")


def quantised(site: Site, activation: str, scales: Sequence[float], channels: int, weights_zero_point: int = 0) -> Quantised:
    """The ending of an int8 site, from the real rescalings (one, or one for each channel)."""
    _, input_zero_point = checks.per_tensor(site, site.input(0))
    _, zero_point = checks.per_tensor(site, site.output)
    multiplier, shift = checks.multipliers(site, scales, channels)
    low, high = checks.output_range(site, activation, site.output)
    return Quantised(multiplier, shift, input_zero_point, weights_zero_point, zero_point, low, high, site.output.dtype)


def convolution_ending(site: Site, activation: str, axis: int) -> Ending:
    """The ending of a convolution whose weights have their output channels on `axis`."""
    if site.input(0).dtype is DType.FLOAT32:
        checks.require_activation(site, activation)
        return Real(activation)
    input_scale, _ = checks.per_tensor(site, site.input(0))
    output_scale, _ = checks.per_tensor(site, site.output)
    filter_scales = checks.channel_scales(site, site.input(1), axis)
    scales = arithmetic.convolution_scales(input_scale, filter_scales, output_scale)
    return quantised(site, activation, scales, site.input(1).shape[axis])


def bias_buffer(site: Site, lowering: Lowering, channels: int) -> str | None:
    """The name of a one-dimensional buffer with the bias; None without one. CompileError if it must be reshaped at run time."""
    bias = bias_of(site, channels)
    if bias is None:
        return None
    if bias.data is not None:
        return lowering.constant("bias", bias.data.reshape(-1))
    if bias.shape != (channels,):
        raise site.error(f"the bias {checks.describe(bias)} is computed at run time and has shape {checks.shape_text(bias.shape)}")
    return bias.name


def fill_of(value: Value, ending: Ending) -> Const:
    """What padding holds: real 0."""
    return Const(ending.input_zero_point if value.dtype.is_integer else 0.0, value.dtype)
