"""LOGISTIC and TANH: int8, int16, uint8 and float32.

int8: tables of 256 entries, filled with TFLite Micro's fixed-point arithmetic. int16: `sigmoid16.py`. uint8: LiteRT's tables.
Sources: tflite-micro, tensorflow/lite/micro/kernels/logistic_common.cc, tanh.cc and
tensorflow/lite/kernels/internal/reference/integer_ops/logistic.h, tanh.h.
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
from aot.graph.expr import Expr
from aot.graph.ir import DType, Site
from aot.graph.ops import checks, sigmoid16
from aot.graph.ops.single import Constant, byte_lookup, quantisations, require_types, single
from aot.graph.ops.tabulated import nearest, tabulated
from aot.graph.support import litert, micro

INPUT_INTEGER_BITS = 4
"""The fixed-point input of int8 is Q4.27: what lies outside +-15 saturates."""


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


def _logistic(x: np.ndarray) -> np.ndarray:
    """float32 to float32, each step rounded."""
    return np.float32(1) / (np.float32(1) + nearest(np.exp)(-x))


_TABLES = {"LOGISTIC": _logistic_of, "TANH": _tanh_of}
_FLOATS = {"LOGISTIC": floatmath.logistic, "TANH": floatmath.tanh}
_FUNCTIONS = {"LOGISTIC": _logistic, "TANH": nearest(np.tanh)}
_OUTPUTS = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)}
"""The one output quantisation (scale, zero point) that TFLite Micro's int8 forms have."""


def _table(site: Site) -> np.ndarray:
    scale, zero_point = checks.per_tensor(site, site.input(0))
    if not 2.0**-28 <= scale < 2.0**32:
        raise site.error(f"the input's scale {scale:.3g} is too small or too large")
    return _saturating_table(scale, zero_point, _TABLES[site.node.op])


def _check(site: Site) -> None:
    require_types(site, DType.INT8, DType.INT16, DType.UINT8, DType.FLOAT32)
    dtype = site.input(0).dtype
    if dtype is DType.INT8:
        scale, zero_point = _OUTPUTS[site.node.op]
        if checks.per_tensor(site, site.output) != (scale, zero_point):
            raise site.error(f"the int8 output must have scale 1/{round(1 / scale)} and zero point {zero_point}")
        _table(site)
    elif dtype is DType.INT16:
        sigmoid16.check(site)
    elif dtype is DType.UINT8:
        _check_uint8(site)


def _check_uint8(site: Site) -> None:
    _, _, scale, _ = quantisations(site)
    if site.node.op == "LOGISTIC" and scale != 1 / 256:
        raise site.error(f"the uint8 output must have scale 1/256, not {scale:.3g}")


def _element(site: Site, x: Expr, constant: Constant) -> Expr:
    op = site.node.op
    match x.dtype:
        case DType.INT8:
            return byte_lookup(_table(site), x, constant)
        case DType.INT16:
            return sigmoid16.element(site, x, constant)
        case DType.UINT8:
            return tabulated(site, x, constant, _FUNCTIONS[op])
        case _:
            pass
    return _FLOATS[op](x)


OPERATORS = tuple(
    single(name, _element, _check).supports(
        micro("int8, int16, float32"),
        litert("uint8"),
        notes="float32 within 3 ulp; quantised outputs have TFLite's fixed scale; an int16 scale beyond TFLite's int32 products is refused.",
    )
    for name in _TABLES
)
