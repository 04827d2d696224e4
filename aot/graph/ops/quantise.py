# pyright: basic
"""QUANTIZE and DEQUANTIZE: float32 to and from integers, integers to integers of another quantisation. DENSIFY: a sparse constant
as it is, for the reader has spread it out.

Sources: tflite-micro, tensorflow/lite/micro/kernels/quantize_common.cc, dequantize_common.cc and
tensorflow/lite/kernels/internal/reference/quantize.h, requantize.h, dequantize.h. What TFLite Micro lacks (uint8 from float32, int16
and uint8 from uint8, float16, constant int4): LiteRT.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aot.graph.arithmetic import ratio_scale
from aot.graph.expr import Binary, Cast, Expr, add, cast, integer, mul, real
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator, constant_element, load
from aot.graph.ops import checks
from aot.graph.ops.rescale import Rescale, finish, finish_array, offset, rescale
from aot.graph.ops.rounding import nearest, nearest_array
from aot.graph.primitive import Map, identity
from aot.graph.support import alone, litert, micro


def _infer(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (1,))
    return (site.input(0).shape,)


# QUANTIZE

_REQUANTISED: dict[DType, tuple[DType, ...]] = {
    DType.INT8: (DType.INT8, DType.UINT8, DType.INT16, DType.INT32),
    DType.UINT8: (DType.INT8, DType.UINT8, DType.INT16),
    DType.INT16: (DType.INT8, DType.INT16, DType.INT32),
    DType.INT32: (DType.INT8, DType.INT16),
    DType.FLOAT32: (DType.INT8, DType.UINT8, DType.INT16),
}
"""Output types for each input type."""


def _quantize_check(site: Site) -> None:
    checks.require_dtype(site, site.input(0), *_REQUANTISED)
    checks.require_dtype(site, site.output, *_REQUANTISED[site.input(0).dtype])
    checks.per_tensor(site, site.output)
    if site.input(0).dtype is not DType.FLOAT32:
        _requantisation(site)


def _requantisation(site: Site) -> tuple[Rescale, int, int]:
    """Rescaling, input and output zero point of integers to integers."""
    scale, zero_point = checks.per_tensor(site, site.input(0))
    out_scale, out_zero_point = checks.per_tensor(site, site.output)
    return rescale(site, ratio_scale(scale, out_scale)), zero_point, out_zero_point


def _quantize_compute(site: Site, x: np.ndarray) -> tuple[np.ndarray]:
    dtype = site.output.dtype
    if site.input(0).dtype is not DType.FLOAT32:
        scale, zero_point, out_zero_point = _requantisation(site)
        with np.errstate(over="ignore"):
            return (finish_array(scale.array(x.astype(np.int32) - np.int32(zero_point)), out_zero_point, *dtype.limits, dtype),)
    scale, zero_point = checks.per_tensor(site, site.output)
    low, high = (limit - zero_point for limit in dtype.limits)
    with np.errstate(all="ignore"):
        quotient = x / np.float32(scale)
    return ((nearest_array(quotient, low, high) + np.int32(zero_point)).astype(dtype.np),)


def _quantize_expression(site: Site) -> Expr:
    dtype = site.output.dtype
    if site.input(0).dtype is not DType.FLOAT32:
        scale, zero_point, out_zero_point = _requantisation(site)
        return finish(scale.expression(offset(load(site.input(0)), zero_point)), out_zero_point, *dtype.limits, dtype)
    scale, zero_point = checks.per_tensor(site, site.output)
    low, high = (limit - zero_point for limit in dtype.limits)
    rounded = nearest(Binary("div", load(site.input(0)), real(scale)), low, high)
    return cast(add(rounded, integer(zero_point)) if zero_point else rounded, dtype)


def _quantize_lower(site: Site, lowering: Lowering) -> None:
    lowering.append(Map(site.output.name, site.output.shape, _quantize_expression(site), nodes=(site.node.index,)))


# DEQUANTIZE


def _dequantize_check(site: Site) -> None:
    value = site.input(0)
    checks.require_dtype(site, value, DType.INT8, DType.UINT8, DType.INT16, DType.INT4, DType.FLOAT16)
    checks.require_dtype(site, site.output, DType.FLOAT32)
    if value.dtype is DType.INT4:
        checks.require_constant(site, value, "int4 input")
        checks.quantisation(site, value)
    elif value.dtype is not DType.FLOAT16:
        _first_scale(site)


def _first_scale(site: Site) -> tuple[float, int]:
    """The scale and zero point. Of scales per channel TFLite Micro uses the first alone (LiteRT: each), and so do we."""
    value = site.input(0)
    found = checks.quantisation(site, value)
    first = replace(found, scales=found.scales[:1], zero_points=found.zero_points[:1])
    return checks.per_tensor(site, replace(value, quantisation=first))


def _dequantize_compute(site: Site, x: np.ndarray) -> tuple[np.ndarray]:
    """The product with the float32 scale is rounded once: x - zero_point has at most 17 bits."""
    if x.dtype == np.float16:
        return (x.astype(np.float32),)
    scale, zero_point = _each_scale(site) if site.input(0).dtype is DType.INT4 else _first_scale(site)
    with np.errstate(all="ignore"):
        return ((x.astype(np.int32) - np.int32(zero_point)).astype(np.float32) * np.float32(scale),)


def _each_scale(site: Site) -> tuple[np.ndarray, np.ndarray]:
    """Scales and zero points of int4 (LiteRT's alone), in a shape that broadcasts to the input's."""
    found, rank = checks.quantisation(site, site.input(0)), len(site.input(0).shape)
    shape = [-1 if found.per_axis and number == found.axis else 1 for number in range(rank)]
    return np.array(found.scales, np.float32).reshape(shape), np.array(found.zero_points, np.int32).reshape(shape)


def _dequantize_lower(site: Site, lowering: Lowering) -> None:
    value, out = site.input(0), site.output
    if value.data is not None:
        converted = lowering.constant("dequantised", _dequantize_compute(site, value.data)[0])
        expression: Expr = constant_element(converted, DType.FLOAT32, identity(len(out.shape)))
    elif value.dtype is DType.FLOAT16:
        expression = Cast(load(value), DType.FLOAT32)
    else:
        scale, zero_point = _first_scale(site)
        expression = mul(Cast(offset(load(value), zero_point), DType.FLOAT32), real(scale))
    lowering.append(Map(out.name, out.shape, expression, nodes=(site.node.index,)))


# DENSIFY


def _densify_check(site: Site) -> None:
    checks.require_constant(site, site.input(0), "input")
    checks.require_same_dtype(site, site.output, site.input(0))


def _densify_lower(site: Site, lowering: Lowering) -> None:
    lowering.append(Map(site.output.name, site.output.shape, load(site.input(0)), nodes=(site.node.index,)))


OPERATORS = (
    Operator("QUANTIZE", None, lambda options: None, _infer, _quantize_check, _quantize_compute, _quantize_lower).supports(
        micro(
            "float32 to int8, float32 to int16, int8, int8 to uint8, int8 to int16, int8 to int32, uint8 to int8, "
            "int16, int16 to int8, int16 to int32, int32 to int8, int32 to int16"
        ),
        litert("float32 to uint8, uint8, uint8 to int16"),
        notes="Exact; a NaN gives the largest number.",
    ),
    Operator("DEQUANTIZE", None, lambda options: None, _infer, _dequantize_check, _dequantize_compute, _dequantize_lower).supports(
        micro("int8, uint8, int16"), litert("int4, float16"), notes="Exact; int4 must be constant."
    ),
    Operator("DENSIFY", None, lambda options: None, _infer, _densify_check, lambda site, x: (x,), _densify_lower).supports(
        litert("int8, float32"),
        alone("bool, int4, uint8, int16, uint16, int32, uint32, int64, uint64, float16, float64"),
        notes="Constants only: the reader has spread them out.",
    ),
)
