"""What CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED share: types, weights, bias, and the `Ending`s that turn sums into outputs.

Enters: a site whose inputs are activation, weights and an optional bias. Leaves: an `Ending`, in numpy and as expressions.
Invariant: an int8 ending lowers to exactly `int8(clamp(requantise(acc, multiplier[c], shift[c]) + zero_point))`: kernels match it.

The forms, by activation and weights: int8 with int8 or int4, uint8 with uint8, int16 with int8 or int4, float32 with float32: here;
float32 with int8 or int4 (hybrid): `hybrid.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from aot.graph import arithmetic
from aot.graph.evaluate import requantise
from aot.graph.expr import Acc, Affine, Binary, Const, Expr, Requantise, add, cast, clamp, integer, real
from aot.graph.ir import DType, Site, Value
from aot.graph.operator import Lowering, constant_element
from aot.graph.ops import checks
from aot.graph.ops.rounded_once import RoundedOnce
from aot.graph.ops.rounding import with_bias
from aot.graph.ops.wide import Wide, wide

_FORMS: dict[DType, dict[DType, tuple[DType, ...]]] = {
    DType.INT8: {DType.INT8: (DType.INT32,), DType.INT4: (DType.INT32,)},
    DType.UINT8: {DType.UINT8: (DType.INT32,)},
    DType.INT16: {DType.INT8: (DType.INT64, DType.INT32), DType.INT4: (DType.INT64, DType.INT32)},
    DType.FLOAT32: {DType.FLOAT32: (DType.FLOAT32,), DType.INT8: (DType.FLOAT32,), DType.INT4: (DType.FLOAT32,)},
}
"""For each activation type the types of weights, and for those the types of biases."""


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
    sums: DType = DType.INT32

    def finish(self, total: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        """Exact sums (float64 or int64, channels last) to the output."""
        acc = with_bias(total, bias).astype(np.int32)
        with np.errstate(over="ignore"):
            scaled = requantise(acc, self.multiplier, self.shift) + np.int32(self.zero_point)
        return np.clip(scaled, self.low, self.high).astype(self.dtype.np)

    def result(self, lowering: Lowering, channel: Affine) -> Expr:
        multiplier = constant_element(lowering.constant("multiplier", self.multiplier), DType.INT32, (channel,))
        shift = constant_element(lowering.constant("shift", self.shift), DType.INT32, (channel,))
        scaled = add(Requantise(Acc(DType.INT32), multiplier, shift), integer(self.zero_point))
        return cast(clamp(scaled, self.low, self.high), self.dtype)


@dataclass(frozen=True)
class Quantised16:
    """Sums of int16 times int8 to int16, as TFLite's 64-bit accumulators go. `sums` is int32 where no sum can leave it."""

    rescaling: Wide
    sums: DType
    input_zero_point: int = 0
    weights_zero_point: int = 0

    def finish(self, total: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        """Exact sums to the output."""
        return self.rescaling.array(with_bias(total, bias))

    def result(self, lowering: Lowering, channel: Affine) -> Expr:
        return self.rescaling.expression(lowering, cast(Acc(self.sums), DType.INT64), channel)


@dataclass(frozen=True)
class Real:
    """float32 sums, clamped by the activation."""

    activation: str
    input_zero_point: int = 0
    weights_zero_point: int = 0
    sums: DType = DType.FLOAT32

    def finish(self, total: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        """float64 sums (channels last) to the output."""
        with np.errstate(all="ignore"):
            return clamp_array(
                (total if bias is None or not bias.size else total + bias.reshape(-1)).astype(np.float32), self.activation
            )

    def result(self, lowering: Lowering, channel: Affine) -> Expr:
        return clamp_expr(Acc(DType.FLOAT32), self.activation)


Ending = Quantised | RoundedOnce | Quantised16 | Real


def clamp_array(x: np.ndarray, activation: str) -> np.ndarray:
    """A float32 array through a fused activation (a NaN stays one)."""
    low, high = arithmetic.float_range(activation) or (None, None)
    return x if activation == "none" else np.clip(x, np.float32(low), np.float32(high))


def clamp_expr(x: Expr, activation: str) -> Expr:
    """A float32 expression through a fused activation (a NaN stays one)."""
    low, high = arithmetic.float_range(activation) or (arithmetic.FLOAT32_LOWEST, arithmetic.FLOAT32_MAX)
    x = x if low == arithmetic.FLOAT32_LOWEST else Binary("max", x, real(low))
    return x if high == arithmetic.FLOAT32_MAX else Binary("min", real(high), x)


# Types.


def is_hybrid(site: Site) -> bool:
    """float32 activations with integer weights."""
    return site.input(0).dtype is DType.FLOAT32 and site.input(1).dtype is not DType.FLOAT32


def check_dtypes(site: Site, channels: int) -> None:
    """Types that go together; integer weights, and the bias of integer activations, are constant."""
    data, weights, bias = site.input(0), site.input(1), bias_of(site, channels)
    checks.require_dtype(site, data, *_FORMS)
    checks.require_dtype(site, weights, *_FORMS[data.dtype])
    checks.require_same_dtype(site, site.output, data)
    if bias is not None:
        checks.require_dtype(site, bias, *_FORMS[data.dtype][weights.dtype])
    if weights.dtype.is_integer:
        checks.require_constant(site, weights, "weights")
    if data.dtype.is_integer and bias is not None:
        checks.require_constant(site, bias, "bias")


# Endings.


def quantised(site: Site, activation: str, scales: Sequence[float], channels: int, weights_zero_point: int = 0) -> Quantised:
    """The ending of sums in int32, from the real rescalings (one, or one for each channel)."""
    _, input_zero_point = checks.per_tensor(site, site.input(0))
    _, zero_point = checks.per_tensor(site, site.output)
    multiplier, shift = checks.multipliers(site, scales, channels)
    low, high = checks.output_range(site, activation, site.output)
    return Quantised(multiplier, shift, input_zero_point, weights_zero_point, zero_point, low, high, site.output.dtype)


def rounded_once(site: Site, activation: str, scales: Sequence[float], channels: int, weights_zero_point: int = 0) -> RoundedOnce:
    """The ending of LiteRT's FULLY_CONNECTED, from the same rescalings."""
    _, input_zero_point = checks.per_tensor(site, site.input(0))
    _, zero_point = checks.per_tensor(site, site.output)
    low, high = checks.output_range(site, activation, site.output)
    reals = np.resize(np.array(scales, np.float64), channels)
    return RoundedOnce(reals, input_zero_point, weights_zero_point, zero_point, low, high, site.output.dtype)


def quantised16(
    site: Site, activation: str, scales: Sequence[float], axis: int, int32_sums: bool, weights_zero_point: int = 0
) -> Quantised | Quantised16:
    """The ending of int16 activations. A bias of int32 (or, without a bias, `int32_sums`) makes TFLite add up in int32 and rescale
    as it does for int8; else it adds up in int64. `axis`: the weights' output channels."""
    for value in (site.input(0), site.output):
        if checks.per_tensor(site, value)[1] != 0:
            raise site.error(f"{checks.describe(value)} has a zero point that is not 0", "TFLite's int16 activations are symmetric")
    channels = site.input(1).shape[axis]
    bias = bias_of(site, channels)
    if bias.dtype is DType.INT32 if bias is not None else int32_sums:
        return quantised(site, activation, scales, channels, weights_zero_point)
    rescaling = wide(site, scales, *checks.output_range(site, activation, site.output))
    if _sums_fit_int32(site, axis, weights_zero_point):
        return Quantised16(aligned(rescaling), DType.INT32, 0, weights_zero_point)
    return Quantised16(rescaling, DType.INT64, 0, weights_zero_point)


def aligned(rescaling: Wide) -> Wide:
    """The same rescaling of int32 sums, with one shift for all channels where that can be: nothing is loaded for it, and from 32 on it
    costs no shift of two registers. A factor has 15 bits, an int32 31: the product may move 16 bits to the left."""
    used = rescaling.down[rescaling.factor != 0]
    down = int(used.min(initial=46)) + 16
    if used.size and int(used.max()) > down:
        return rescaling
    left = np.where(rescaling.factor != 0, down - rescaling.down, 0)
    return replace(rescaling, factor=rescaling.factor << left, down=np.full_like(rescaling.down, down))


def _sums_fit_int32(site: Site, axis: int, weights_zero_point: int) -> bool:
    """Whether no input of int16 can bring a channel's sum, bias included, out of int32."""
    weights = checks.require_constant(site, site.input(1), "weights")
    rows = np.moveaxis(weights, axis, 0).reshape(weights.shape[axis], -1).astype(np.int64) - weights_zero_point
    reach = np.abs(rows).sum(1) << 15
    bias = bias_of(site, len(rows))
    numbers = [0] * len(rows) if bias is None else checks.require_constant(site, bias, "bias").reshape(-1).tolist()
    return all(int(most) + abs(number) <= arithmetic.INT32_MAX for most, number in zip(reach, numbers))


def convolution_ending(site: Site, activation: str, axis: int, int32_sums: bool = False) -> Ending:
    """The ending of a convolution (not hybrid) whose weights have their output channels on `axis`.

    uint8 rounds the product of input and weights scale to float32 (LiteRT, tflite/kernels/kernel_util.cc,
    GetQuantizedConvolutionMultipler) and allows weights a zero point.
    """
    data, weights = site.input(0), site.input(1)
    if data.dtype is DType.FLOAT32:
        checks.require_activation(site, activation)
        return Real(activation)
    input_scale, _ = checks.per_tensor(site, data)
    output_scale, _ = checks.per_tensor(site, site.output)
    channels = weights.shape[axis]
    if data.dtype is DType.UINT8:
        scale, zero_point = checks.per_tensor(site, weights)
        with np.errstate(all="ignore"):
            product = float(np.float32(input_scale) * np.float32(scale))
        return quantised(site, activation, [arithmetic.ratio_scale(product, output_scale)], channels, zero_point)
    filter_scales = checks.channel_scales(site, weights, axis)
    scales = arithmetic.convolution_scales(input_scale, filter_scales, output_scale)
    if data.dtype is DType.INT16:
        return quantised16(site, activation, np.resize(scales, channels).tolist(), axis, int32_sums)
    return quantised(site, activation, scales, channels)


# Bias and weights.


def bias_of(site: Site, channels: int) -> Value | None:
    """The bias, or None where the node has none (absent, or a tensor without elements)."""
    bias = site.optional(2)
    if bias is None or bias.size == 0:
        return None
    if bias.size != channels:
        raise site.error(f"the bias {checks.describe(bias)} has {bias.size} elements for {channels} output channels")
    return bias


def bias_element(site: Site, lowering: Lowering, channels: int, channel: Affine, dtype: DType) -> Expr:
    """The channel's bias, 0 without one. CompileError if it must be reshaped at run time. A constant one fits `dtype`."""
    bias = bias_of(site, channels)
    if bias is None:
        return Const(0.0 if dtype.is_float else 0, dtype)
    if bias.data is not None:
        return constant_element(lowering.constant("bias", bias.data.reshape(-1).astype(dtype.np)), dtype, (channel,))
    if bias.shape != (channels,):
        raise site.error(f"the bias {checks.describe(bias)} is computed at run time and has shape {checks.shape_text(bias.shape)}")
    return constant_element(bias.name, dtype, (channel,))


def weights_operand(site: Site, lowering: Lowering, zero_point: int) -> tuple[Value, int]:
    """Weights as int8 without a zero point where they fit (int4 always does), and the zero point that stays; else as they are."""
    weights = site.input(1)
    if weights.data is None or (weights.dtype is not DType.INT4 and zero_point == 0):
        return weights, zero_point
    moved = weights.data.astype(np.int32) - zero_point
    low, high = DType.INT8.limits
    if moved.min() < low or moved.max() > high:
        return weights, zero_point
    data = moved.astype(np.int8)
    return Value(lowering.constant("weights", data), DType.INT8, weights.shape, None, data), 0


def fill_of(value: Value, zero_point: int) -> Const:
    """What padding holds: real 0."""
    return Const(zero_point if value.dtype.is_integer else 0.0, value.dtype)
