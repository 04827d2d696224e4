"""LEAKY_RELU and PRELU: int8, int16, uint8 and float32. What is below zero is multiplied by a number, or by an element of `alpha`.

float32 is exact. TFLite Micro divides scales in double, LiteRT in float32, so that a few int16 results differ by one: ours are the
former's. PRELU of int16 has an int8 alpha.
Sources: tflite-micro, tensorflow/lite/micro/kernels/leaky_relu_common.cc, prelu_common.cc and
tensorflow/lite/kernels/internal/reference/leaky_relu.h, prelu.h. uint8, which TFLite Micro lacks: LiteRT.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.graph.evaluate import execute
from aot.graph.expr import Binary, Expr, Select, Unary, integer, mul, real
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator
from aot.graph.ops import checks
from aot.graph.ops.broadcast import broadcast_shape, operand
from aot.graph.ops.rescale import Rescale, finish, offset, rescale
from aot.graph.ops.single import Constant, quantisations, ratio, require_types, single
from aot.graph.primitive import Map
from aot.graph.support import litert, micro

_TYPES = (DType.INT8, DType.INT16, DType.UINT8, DType.FLOAT32)

# LEAKY_RELU


@dataclass(frozen=True)
class LeakyRelu:
    """alpha: what negative numbers are multiplied by, a float32 of any sign."""

    alpha: float = 0.0


def _read(options: Any) -> LeakyRelu:
    return LeakyRelu(0.0 if options is None else float(options.Alpha()))


def _alpha(site: Site) -> float:
    assert isinstance(site.node.attributes, LeakyRelu)
    return site.node.attributes.alpha


def _scales(site: Site) -> tuple[Rescale, Rescale]:
    """Of what is not negative, and of what is, by the size of alpha."""
    micro = site.input(0).dtype is not DType.UINT8
    return rescale(site, ratio(site, 1.0, micro)), rescale(site, abs(ratio(site, _alpha(site), micro)))


def _check_leaky(site: Site) -> None:
    require_types(site, *_TYPES)
    if site.input(0).dtype is not DType.FLOAT32:
        _scales(site)


def _leaky(site: Site, x: Expr, constant: Constant) -> Expr:
    if x.dtype is DType.FLOAT32:
        return Select(Binary("gt", x, real(0.0)), x, mul(x, real(_alpha(site))))
    _, zero_point, _, out_zero_point = quantisations(site)
    plain, leaky = _scales(site)
    number = offset(x, zero_point)
    below = leaky.expression(number)
    if _alpha(site) < 0:
        below = Unary("neg", below)
    result = Select(Binary("ge", number, integer(0)), plain.expression(number), below)
    return finish(result, out_zero_point, *x.dtype.limits, x.dtype)


# PRELU


def _infer(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (2,))
    data, alpha = site.input(0), site.input(1)
    if broadcast_shape(site, data, alpha) != data.shape:
        raise site.error(
            f"alpha of shape {checks.shape_text(alpha.shape)} is larger than the input of shape {checks.shape_text(data.shape)}"
        )
    return (data.shape,)


def _prelu_scales(site: Site) -> tuple[Rescale, Rescale]:
    """Of what is not negative, and of its product with alpha."""
    alpha_scale, _ = checks.per_tensor(site, site.input(1))
    micro = site.input(0).dtype is not DType.UINT8
    return rescale(site, ratio(site, 1.0, micro)), rescale(site, ratio(site, alpha_scale, micro))


def _check_prelu(site: Site) -> None:
    require_types(site, *_TYPES)
    dtype = site.input(0).dtype
    checks.require_dtype(site, site.input(1), DType.INT8 if dtype is DType.INT16 else dtype)
    if dtype is not DType.FLOAT32:
        _prelu_scales(site)


def _prelu(site: Site) -> Expr:
    x, alpha = (operand(site.input(position), site.output.shape) for position in (0, 1))
    if x.dtype is DType.FLOAT32:
        return Select(Binary("ge", x, real(0.0)), x, mul(x, alpha))
    _, zero_point, _, out_zero_point = quantisations(site)
    _, alpha_zero_point = checks.per_tensor(site, site.input(1))
    plain, leaky = _prelu_scales(site)
    number = offset(x, zero_point)
    below = leaky.expression(mul(number, offset(alpha, alpha_zero_point)))
    result = Select(Binary("ge", number, integer(0)), plain.expression(number), below)
    return finish(result, out_zero_point, *x.dtype.limits, x.dtype)


def _compute_prelu(site: Site, x: np.ndarray, alpha: np.ndarray) -> tuple[np.ndarray]:
    out = np.empty(site.output.shape, site.output.dtype.np)
    execute(_map(site), {site.input(0).name: x, site.input(1).name: alpha, site.output.name: out})
    return (out,)


def _map(site: Site) -> Map:
    return Map(site.output.name, site.output.shape, _prelu(site), nodes=(site.node.index,))


def _lower_prelu(site: Site, lowering: Lowering) -> None:
    lowering.append(_map(site))


OPERATORS = (
    single("LEAKY_RELU", _leaky, _check_leaky, "LeakyReluOptions", _read).supports(
        micro("int8, int16, float32"),
        litert("uint8"),
        notes="Exact; LiteRT divides scales in float32, so that a few of its int16 results differ by one.",
    ),
    Operator("PRELU", None, lambda options: None, _infer, _check_prelu, _compute_prelu, _lower_prelu).supports(
        micro("int8, int16x8, float32"), litert("uint8"), notes="Exact; alpha of int16 is int8."
    ),
)
