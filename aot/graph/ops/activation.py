"""RELU, RELU6, RELU_N1_TO_1, LOGISTIC, TANH: int8 and float32.

int8 LOGISTIC and TANH are tables of 256 entries, filled with TFLite's fixed-point arithmetic.
Sources: tflite-micro, tensorflow/lite/micro/kernels/activations_common.cc, logistic_common.cc, tanh.cc and
tensorflow/lite/kernels/internal/reference/integer_ops/logistic.h, tanh.h. RELU_N1_TO_1, which TFLite Micro lacks: LiteRT.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from aot.graph import floatmath
from aot.graph.arithmetic import (
    complement_over_one_plus,
    exp_of_negative,
    quantise_multiplier,
    reciprocal_of_one_plus,
    requantise,
    rounding_shift_right,
)
from aot.graph.evaluate import execute
from aot.graph.expr import Expr, Lookup, add, cast, clamp, integer
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.ops.contraction import clamp_array, clamp_expr
from aot.graph.ops.rescale import Rescale, finish, finish_array, offset, rescale
from aot.graph.primitive import Map


def _infer(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (1,))
    return (site.input(0).shape,)


def _require_dtypes(site: Site) -> None:
    checks.require_dtype(site, site.input(0), DType.INT8, DType.FLOAT32)
    checks.require_same_dtype(site, site.output, site.input(0))


def _is_float(site: Site) -> bool:
    return site.input(0).dtype is DType.FLOAT32


# RELU, RELU6, RELU_N1_TO_1


def _relu_numbers(site: Site, activation: str) -> tuple[Rescale, int, int, int, int]:
    """Rescaling, input and output zero point, bounds.

    TFLite Micro's RELU6 does not rescale: it clamps in the input's quantisation and ignores the output's. So do we.
    """
    scale, zero_point = checks.per_tensor(site, site.input(0))
    if activation == "relu6":
        checks.per_tensor(site, site.output)
        low, high = checks.output_range(site, activation, site.input(0))
        return Rescale(1 << 30, 1), zero_point, zero_point, low, high
    out_scale, out_zero_point = checks.per_tensor(site, site.output)
    low, high = checks.output_range(site, activation, site.output)
    with np.errstate(all="ignore"):
        ratio = float(np.float32(scale) / np.float32(out_scale))
    return rescale(site, ratio), zero_point, out_zero_point, low, high


def _relu(name: str) -> Operator:
    activation = name.lower()

    def check(site: Site) -> None:
        _require_dtypes(site)
        if not _is_float(site):
            _relu_numbers(site, activation)

    def compute(site: Site, x: np.ndarray) -> tuple[np.ndarray]:
        if _is_float(site):
            return (clamp_array(x, activation),)
        scale, zero_point, out_zero_point, low, high = _relu_numbers(site, activation)
        return (finish_array(scale.array(x.astype(np.int32) - np.int32(zero_point)), out_zero_point, low, high, DType.INT8),)

    def expression(site: Site) -> Expr:
        x = load(site.input(0))
        if _is_float(site):
            return clamp_expr(x, activation)
        scale, zero_point, out_zero_point, low, high = _relu_numbers(site, activation)
        if scale.is_one and zero_point == out_zero_point:
            return cast(clamp(cast(x, DType.INT32), low, high), DType.INT8)
        return finish(scale.expression(offset(x, zero_point)), out_zero_point, low, high, DType.INT8)

    return Operator(name, None, lambda options: None, _infer, check, compute, _lower_with(expression))


# LOGISTIC and TANH

INPUT_INTEGER_BITS = 4
"""Their fixed-point input is Q4.27: what lies outside +-15 saturates."""


def _saturating_table(scale: float, zero_point: int, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The int8 output for each int8 input, -128 first; `function`: Q4.27 to the (unclamped) output."""
    multiplier, shift = quantise_multiplier(float(np.float32(scale)) * (1 << (31 - INPUT_INTEGER_BITS)))
    radius = math.floor(15 * 2.0 ** (31 - INPUT_INTEGER_BITS - shift))
    x = np.arange(-128, 128, dtype=np.int32) - np.int32(zero_point)
    inside = np.abs(x) < radius
    fixed = requantise(np.where(inside, x, 0), np.array(multiplier), np.array(min(shift, checks.MAX_SHIFT)))
    limits = np.where(x < 0, -128, 127) if radius else np.where(x <= 0, -128, 127)
    return np.where(inside, np.clip(function(fixed), -128, 127), limits).astype(np.int8)


def _logistic_of(x: np.ndarray) -> np.ndarray:
    """Q4.27 to the real result in units of 1/256, minus 128. Source: gemmlowp, fixedpoint/fixedpoint.h, logistic."""
    positive = reciprocal_of_one_plus(exp_of_negative(-np.abs(x), INPUT_INTEGER_BITS))
    result = np.where(x == 0, 1 << 30, np.where(x > 0, positive, np.int32(0x7FFFFFFF) - positive))
    return rounding_shift_right(result, 23) - 128


def _tanh_of(x: np.ndarray) -> np.ndarray:
    """Q4.27 to the real result in units of 1/128. Source: gemmlowp, fixedpoint/fixedpoint.h, tanh.

    The raw bits of -|x| are taken as Q5.26, which doubles it: tanh |x| = (1 - e^(-2|x|)) / (1 + e^(-2|x|)).
    """
    magnitude = complement_over_one_plus(exp_of_negative(-np.abs(x), INPUT_INTEGER_BITS + 1))
    return rounding_shift_right(np.sign(x) * magnitude, 24)


_TABLES = {"LOGISTIC": _logistic_of, "TANH": _tanh_of}
_FLOATS = {"LOGISTIC": floatmath.logistic, "TANH": floatmath.tanh}
_OUTPUTS = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)}
"""The one output quantisation (scale, zero point) that TFLite defines."""


def _table(site: Site) -> np.ndarray:
    scale, zero_point = checks.per_tensor(site, site.input(0))
    if not 2.0**-28 <= scale < 2.0**32:
        raise site.error(f"the input's scale {scale:.3g} is too small or too large")
    return _saturating_table(scale, zero_point, _TABLES[site.node.op])


def _sigmoid(name: str) -> Operator:
    def check(site: Site) -> None:
        _require_dtypes(site)
        if not _is_float(site):
            scale, zero_point = _OUTPUTS[name]
            if checks.per_tensor(site, site.output) != (scale, zero_point):
                raise site.error(f"the int8 output must have scale 1/{round(1 / scale)} and zero point {zero_point}")
            _table(site)

    def compute(site: Site, x: np.ndarray) -> tuple[np.ndarray]:
        if not _is_float(site):
            return (_table(site)[x.astype(np.int32) + 128],)
        arrays = {site.input(0).name: x, site.output.name: np.empty(x.shape, np.float32)}
        execute(Map(site.output.name, x.shape, _FLOATS[name](load(site.input(0)))), arrays)
        return (arrays[site.output.name],)

    def lower(site: Site, lowering: Lowering) -> None:
        x = load(site.input(0))
        if _is_float(site):
            value: Expr = _FLOATS[name](x)
        else:
            table = lowering.constant(f"{name.lower()}_table", _table(site))
            value = Lookup(table, add(cast(x, DType.INT32), integer(128)), DType.INT8)
        lowering.append(Map(site.output.name, site.output.shape, value, nodes=(site.node.index,)))

    return Operator(name, None, lambda options: None, _infer, check, compute, lower)


def _lower_with(expression: Callable[[Site], Expr]) -> Callable[[Site, Lowering], None]:
    def lower(site: Site, lowering: Lowering) -> None:
        lowering.append(Map(site.output.name, site.output.shape, expression(site), nodes=(site.node.index,)))

    return lower


OPERATORS = (*map(_relu, ("RELU", "RELU6", "RELU_N1_TO_1")), *map(_sigmoid, ("LOGISTIC", "TANH")))
