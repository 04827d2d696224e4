"""ELU, GELU and HARD_SWISH: ELU of int8 and float32, GELU of int8, int16, uint8 and float32, HARD_SWISH of int8, uint8 and float32.

float32: ELU within 3 ulp, GELU as `gelu.py` says, HARD_SWISH exact. Quantised forms are tables: of TFLite's float functions (ELU, GELU)
and of its 16-bit fixed-point arithmetic (HARD_SWISH).
Sources: tflite-micro, tensorflow/lite/micro/kernels/elu.cc, hard_swish_common.cc and
tensorflow/lite/kernels/internal/reference/elu.h, hard_swish.h. GELU and uint8, which TFLite Micro lacks: LiteRT,
tflite/kernels/internal/reference/gelu.h.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.graph import floatmath
from aot.graph.arithmetic import quantise_multiplier
from aot.graph.expr import Binary, Expr, Select, add, clamp, mul, real
from aot.graph.gelu import approximate_gelu, gelu
from aot.graph.ir import DType, Site
from aot.graph.ops.single import Constant, byte_lookup, quantisations, require_types, single
from aot.graph.ops.tabulated import Function, nearest, tabulated
from aot.graph.support import litert, micro

# ELU


def _elu(site: Site, x: Expr, constant: Constant) -> Expr:
    if x.dtype is DType.INT8:
        return tabulated(site, x, constant, _elu_function)
    return Select(Binary("lt", x, real(0.0)), floatmath.exp_minus_1(x), x)


def _elu_function(x: np.ndarray) -> np.ndarray:
    """TFLite Micro's: e^x is rounded to float32 before 1 is taken from it."""
    return np.where(x < 0, nearest(np.exp)(x) - np.float32(1), x)


def _check_elu(site: Site) -> None:
    require_types(site, DType.INT8, DType.FLOAT32)
    if site.input(0).dtype is DType.INT8:
        quantisations(site)


# GELU


@dataclass(frozen=True)
class Gelu:
    """approximate: by the hyperbolic tangent."""

    approximate: bool = False


def _read_gelu(options: Any) -> Gelu:
    return Gelu() if options is None else Gelu(bool(options.Approximate()))


def _is_approximate(site: Site) -> bool:
    assert isinstance(site.node.attributes, Gelu)
    return site.node.attributes.approximate


def _check_gelu(site: Site) -> None:
    require_types(site, DType.INT8, DType.INT16, DType.UINT8, DType.FLOAT32)
    if site.input(0).dtype is not DType.FLOAT32:
        quantisations(site)


def _gelu(site: Site, x: Expr, constant: Constant) -> Expr:
    approximate = _is_approximate(site)
    if x.dtype is DType.FLOAT32:
        return approximate_gelu(x) if approximate else gelu(x)
    return tabulated(site, x, constant, _approximate_gelu_function if approximate else _gelu_function)


_complement = np.vectorize(math.erfc, otypes=[np.float64])


def _gelu_function(x: np.ndarray) -> np.ndarray:
    complement = nearest(_complement)(x * np.float32(-math.sqrt(0.5)))
    return np.float32(0.5) * x * complement


def _approximate_gelu_function(x: np.ndarray) -> np.ndarray:
    cubic = np.float32(0.044715) * x * x * x
    inside = np.float32(math.sqrt(2 / math.pi)) * (x + cubic)
    return np.float32(0.5) * x * (np.float32(1) + _tanh(inside))


_tanh: Function = nearest(np.tanh)


# HARD_SWISH

_MAX_EXPONENT = 31


def _hard_swish(site: Site, x: Expr, constant: Constant) -> Expr:
    if x.dtype is not DType.FLOAT32:
        return byte_lookup(_hard_swish_table(site), x, constant)
    gate = clamp(add(x, real(3.0)), 0.0, 6.0)
    return Binary("div", mul(x, gate), real(6.0))


def _check_hard_swish(site: Site) -> None:
    require_types(site, DType.INT8, DType.UINT8, DType.FLOAT32)
    if site.input(0).dtype is not DType.FLOAT32:
        _hard_swish_multipliers(site)


def _hard_swish_multipliers(site: Site) -> tuple[int, int, int, int]:
    """Input in units of 1/128 to the output's scale and to 3/32768: each a Q0.15 multiplier with its exponent."""
    scale, _, out_scale, _ = quantisations(site)
    with np.errstate(all="ignore"):
        fine = np.float32(1 / 128) * np.float32(scale)
        to_output, to_gate = float(fine / np.float32(out_scale)), float(fine / np.float32(3 / 32768))
    (output, exponent), (gate, gate_exponent) = (_multiplier16(number) for number in (to_output, to_gate))
    if exponent > 0:
        raise site.error(f"the output's scale {out_scale:.3g} is too small for an input of scale {scale:.3g}")
    if gate_exponent > _MAX_EXPONENT:
        raise site.error(f"the input's scale {scale:.3g} is too large")
    return output, exponent, gate, gate_exponent


def _multiplier16(number: float) -> tuple[int, int]:
    if not math.isfinite(number):
        return 0, _MAX_EXPONENT + 1
    multiplier, exponent = quantise_multiplier(number)
    return min((multiplier + (1 << 15)) >> 16, 32767), exponent


def _hard_swish_table(site: Site) -> np.ndarray:
    """The output for each 8-bit input, the smallest first; all in int16."""
    _, zero_point, _, out_zero_point = quantisations(site)
    output, exponent, gate, gate_exponent = _hard_swish_multipliers(site)
    low, high = site.input(0).dtype.limits
    fine = _wrapped((np.arange(low, high + 1) - zero_point) * 128)
    product = _truncated_high_product(_gate(fine, gate, gate_exponent), _rounded_high_product(fine, output))
    moved = _wrapped(_rounded_shift(product, -exponent) + out_zero_point)
    return np.clip(moved, low, high).astype(site.output.dtype.np)


def _gate(fine: np.ndarray, multiplier: int, exponent: int) -> np.ndarray:
    """(x + 3) / 6 within [0, 1], in Q0.15. The last bit of a left shift comes after the multiplication: there it may saturate."""
    value = _saturated(fine << (exponent - 1)) if exponent > 0 else fine
    value = _rounded_high_product(value, multiplier)
    value = _saturated(value << 1) if exponent > 0 else _rounded_shift(value, -exponent)
    return (value + (1 << 15)) >> 1


def _wrapped(x: np.ndarray) -> np.ndarray:
    """The low 16 bits, with their sign."""
    return x.astype(np.int16).astype(np.int64)


def _saturated(x: np.ndarray) -> np.ndarray:
    return np.clip(x, *DType.INT16.limits)


def _rounded_high_product(a: np.ndarray, b: int) -> np.ndarray:
    """2ab / 2^16, halves away from zero, or nearly: gemmlowp's SaturatingRoundingDoublingHighMul of int16; b is not -32768."""
    product = a * b
    return _towards_zero(product + np.where(product >= 0, 1 << 14, 1 - (1 << 14)))


def _truncated_high_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """2ab / 2^16, towards zero; a >= 0."""
    return _towards_zero(a * b)


def _towards_zero(x: np.ndarray) -> np.ndarray:
    return np.sign(x) * (np.abs(x) >> 15)


def _rounded_shift(x: np.ndarray, exponent: int) -> np.ndarray:
    """x / 2^exponent, halves away from zero: gemmlowp's RoundingDivideByPOT of int16, whose mask has 16 bits."""
    mask = int(np.array((1 << exponent) - 1).astype(np.int16))
    return _wrapped((x >> exponent) + ((x & mask) > (mask >> 1) + (x < 0)))


OPERATORS = (
    single("ELU", _elu, _check_elu).supports(
        micro("int8, float32"), notes="float32 within 3 ulp; int8 is a table of TFLite's float function."
    ),
    single("GELU", _gelu, _check_gelu, "GeluOptions", _read_gelu).supports(
        litert("int8, uint8, int16, float32"),
        notes="float32 within 4 ulp of the exact function (approximate: of x itself below -1); integers are tables of LiteRT's float function.",
    ),
    single("HARD_SWISH", _hard_swish, _check_hard_swish).supports(
        micro("int8, float32"), litert("uint8"), notes="float32 is exact; integers in TFLite's 16-bit fixed point."
    ),
)
