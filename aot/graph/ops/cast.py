"""CAST: numbers of one type to another, without regard to quantisation. A number becomes true where it is not 0.

Integers wrap. Floats are truncated towards zero and saturate, as do those of current TFLite Micro; a NaN becomes 0 in the types that
it has, the largest number in those that only LiteRT has (uint8, uint16, int64).
Source: tflite-micro, tensorflow/lite/micro/kernels/cast.cc (int8, int16, int32, uint32, float32, bool); other types: LiteRT. uint64,
which neither has, wraps and saturates in the same way.
"""

from __future__ import annotations

import numpy as np

from aot.graph.expr import Binary, Cast, Const, Expr, Select, cast, integer, real
from aot.graph.ir import DType, Site
from aot.graph.ops import checks
from aot.graph.ops.elementwise import Expressed, Form, elementwise
from aot.graph.ops.movement import MOVABLE
from aot.graph.support import alone, litert, micro

_NAN_IS_LARGEST = (DType.UINT8, DType.UINT16, DType.INT64, DType.UINT64)


def _form(site: Site) -> Form:
    checks.require_dtype(site, site.input(0), *MOVABLE)
    checks.require_dtype(site, site.output, *MOVABLE)
    dtype = site.output.dtype
    saturates = site.input(0).dtype is DType.FLOAT32 and dtype.is_integer

    def function(x: Expr) -> Expr:
        return saturated(x, dtype, nan_is_largest=dtype in _NAN_IS_LARGEST) if saturates else cast(x, dtype)

    return Expressed(function)


def saturated(x: Expr, dtype: DType, nan_is_largest: bool = False) -> Expr:
    """A float32 truncated to an integer type; what is outside becomes the nearest bound, a NaN 0 or the largest number."""
    low, high = dtype.limits
    if float(np.float32(high)) == high:
        return _clamped(x, dtype, nan_is_largest)
    too_small, small_enough = Binary("lt", x, real(low)), Binary("lt", x, real(high + 1))
    inside = Select(Binary("and", small_enough, Binary("ge", x, real(low))), x, real(0.0))
    bounded = Select(too_small, integer(low, dtype), Cast(inside, dtype))
    if nan_is_largest:
        return Select(small_enough, bounded, integer(high, dtype))
    return Select(Binary("ge", x, real(high + 1)), integer(high, dtype), bounded)


def _clamped(x: Expr, dtype: DType, nan_is_largest: bool) -> Expr:
    """The same for types whose bounds are float32 numbers: the float itself is clamped."""
    low, high = (Const(float(limit), DType.FLOAT32) for limit in dtype.limits)
    below = Select(Binary("lt", x, high), x, high)  # a NaN becomes `high`
    inside = Select(Binary("gt", below, low), below, low)
    number = Select(Binary("eq", x, x), inside, real(0.0)) if not nan_is_largest else inside
    return Cast(number, dtype)


OPERATORS = (
    elementwise("CAST", _form, counts=(1,)).supports(
        micro("int8, int16, int32, uint32, float32, bool"),
        litert("uint8, uint16, int64"),
        alone("uint64"),
        notes="Between any two of these; floats are truncated and saturate; a NaN becomes 0, or the largest number in types that only LiteRT has.",
    ),
)
