"""L2_NORMALIZATION over the last dimension: float32, int8, uint8.

float32 is exact to the bit (a sum of squares in order, a root, quotients). Integers ignore the input's scale, as the result does.
Source: tflite-micro, tensorflow/lite/micro/kernels/l2norm.cc, kernels/internal/reference/l2normalization.h and
integer_ops/l2normalization.h; uint8: LiteRT, tflite/kernels/l2norm.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.graph import fixedmath
from aot.graph.arithmetic import activation_name
from aot.graph.evaluate import requantise
from aot.graph.expr import Acc, Binary, Expr, Requantise, Unary, add, integer, mul, real
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator
from aot.graph.ops import checks
from aot.graph.ops.rescale import finish, finish_array, offset
from aot.graph.ops.rows import Rows, require_rows
from aot.graph.support import litert, micro

EPSILON = float(np.float32(1e-6))
"""The smallest norm that is divided by; float32 only."""
OUTPUT_BITS = 7
"""The output's scale is 2^-7."""
ZERO_POINTS = {DType.INT8: 0, DType.UINT8: 128}


@dataclass(frozen=True)
class L2Norm:
    activation: str = "none"


def _read(options: Any) -> L2Norm:
    return L2Norm() if options is None else L2Norm(activation_name(options.FusedActivationFunction()))


def _infer(site: Site) -> tuple[Shape, ...]:
    return (require_rows(site),)


def _check(site: Site) -> None:
    require_rows(site)
    data, out = site.input(0), site.output
    assert isinstance(site.node.attributes, L2Norm)
    checks.require_dtype(site, data, DType.FLOAT32, *ZERO_POINTS)
    checks.require_same_dtype(site, out, data)
    if site.node.attributes.activation != "none":
        raise site.error(f"the fused activation {site.node.attributes.activation} is not supported", "supported: none")
    if data.dtype in ZERO_POINTS:
        checks.per_tensor(site, data)
        if checks.per_tensor(site, out) != (2.0**-OUTPUT_BITS, ZERO_POINTS[data.dtype]):
            raise site.error(
                f"{data.dtype} L2_NORMALIZATION needs an output with scale 1/128 and zero point {ZERO_POINTS[data.dtype]}"
            )


def _compute(site: Site, data: np.ndarray) -> tuple[np.ndarray]:
    """Integers: the sum of squares wraps, as in the reference."""
    dtype = site.output.dtype
    if dtype is DType.FLOAT32:
        with np.errstate(all="ignore"):
            total = np.add.accumulate(data * data, axis=-1, dtype=np.float32)[..., -1:]
            norm = np.sqrt(total)
            return (data / np.where(norm < np.float32(EPSILON), np.float32(EPSILON), norm),)
    _, zero_point = checks.per_tensor(site, site.input(0))
    wide = data.astype(np.int64) - zero_point
    total = (wide * wide).sum(axis=-1, keepdims=True).astype(np.int32)
    multiplier, shift = (fixedmath.evaluated(lambda x, part=part: fixedmath.inverse_square_root(x)[part], total) for part in (0, 1))
    left, more = _scaling(dtype)
    scaled = requantise(wide << left, multiplier, shift + more)
    return (finish_array(scaled, ZERO_POINTS[dtype], *dtype.limits, dtype),)


def _scaling(dtype: DType) -> tuple[int, int]:
    """By how many bits the element is shifted before its product with 1/norm, and by how many the result is then."""
    return (OUTPUT_BITS, 0) if dtype is DType.UINT8 else (0, OUTPUT_BITS)


def _lower(site: Site, lowering: Lowering) -> None:
    """Sum of squares; root or inverse root; quotients or products."""
    rows, data = Rows(site, lowering), site.input(0)
    if data.dtype is DType.FLOAT32:
        square = mul(rows.swept_element, rows.swept_element)
        norm = Binary("max", Unary("sqrt", Acc(DType.FLOAT32)), real(EPSILON))
        rows.finish(Binary("div", rows.element, rows.reduce("norm", "add", real(0.0), square, norm)))
        return
    _, zero_point = checks.per_tensor(site, data)
    swept = offset(rows.swept_element, zero_point)
    total = rows.reduce("total", "add", integer(0), mul(swept, swept))
    multiplier, shift = fixedmath.inverse_square_root(total)
    left, more = _scaling(data.dtype)
    element: Expr = offset(rows.element, zero_point)
    element = Binary("shl", element, integer(left)) if left else element
    scaled = Requantise(element, rows.map("multiplier", multiplier), rows.map("shift", add(shift, integer(more))))
    rows.finish(finish(scaled, ZERO_POINTS[data.dtype], *data.dtype.limits, data.dtype))


OPERATORS = (
    Operator("L2_NORMALIZATION", "L2NormOptions", _read, _infer, _check, _compute, _lower).supports(
        micro("int8, float32"), litert("uint8"), notes="Over the last dimension; float32 is exact; a fused activation is refused."
    ),
)
