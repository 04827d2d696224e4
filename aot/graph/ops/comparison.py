"""EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL; MAXIMUM and MINIMUM. Broadcasting.

8-bit operands are compared in real units: (x - zero_point) << 8, rescaled by their scale, which TFLite wants below 1. Where scales
are small, neighbours fall together; bytes are the reference's. MAXIMUM and MINIMUM compare the numbers as they are, without regard
to the quantisation (the converter gives all three the same one).
Sources: tflite-micro, tensorflow/lite/micro/kernels/comparisons.cc, maximum_minimum.h and
tensorflow/lite/kernels/internal/reference/comparisons.h. What TFLite Micro lacks (uint8, int16 comparisons): LiteRT, which rescales
int16 for EQUAL and NOT_EQUAL only; TFLite Micro's int16 GREATER reads multipliers that nobody has written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from aot.graph.expr import Binary, Expr
from aot.graph.ir import DType, Site, Value
from aot.graph.operator import Operator
from aot.graph.ops import checks
from aot.graph.ops.binary import require_dtypes
from aot.graph.ops.elementwise import Form, elementwise
from aot.graph.ops.rescale import Rescale, offset, rescale, shifted_term, shifted_term_array
from aot.graph.support import litert, micro

LEFT_SHIFT = 8
_BYTES = (DType.INT8, DType.UINT8)
_NUMPY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


@dataclass(frozen=True)
class _Direct:
    """The numbers themselves are compared."""

    op: str

    def array(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return _NUMPY[self.op](left, right)

    def expression(self, left: Expr, right: Expr) -> Expr:
        return Binary(self.op, left, right)


@dataclass(frozen=True)
class _Side:
    """How one operand becomes an int32 in common units."""

    dtype: DType
    zero_point: int
    scale: Rescale

    def array(self, x: np.ndarray) -> np.ndarray:
        return shifted_term_array(x, self.zero_point, LEFT_SHIFT, self.scale)

    def expression(self, x: Expr) -> Expr:
        return shifted_term(x, self.zero_point, LEFT_SHIFT, self.scale)

    @property
    def separates(self) -> bool:
        """Whether no two differences from the zero point fall together (then it keeps their order)."""
        low, high = self.dtype.limits
        reach = np.arange(low - high, high - low + 1, dtype=np.int32) << np.int32(LEFT_SHIFT)
        return bool((np.diff(self.scale.array(reach)) > 0).all())


@dataclass(frozen=True)
class _Rescaled:
    """Both numbers are compared in common units."""

    op: str
    left: _Side
    right: _Side

    def array(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return _NUMPY[self.op](self.left.array(left), self.right.array(right))

    def expression(self, left: Expr, right: Expr) -> Expr:
        if self.left.scale != self.right.scale or not self.left.separates:
            return Binary(self.op, self.left.expression(left), self.right.expression(right))
        if self.left == self.right:
            return Binary(self.op, left, right)
        return Binary(self.op, offset(left, self.left.zero_point), offset(right, self.right.zero_point))


def _side(site: Site, value: Value) -> _Side:
    scale, zero_point = checks.per_tensor(site, value)
    if scale >= 1:
        raise site.error(f"{checks.describe(value)} has scale {scale:.3g}; TFLite compares scales below 1 only")
    return _Side(value.dtype, zero_point, rescale(site, float(np.float32(scale))))


def _comparison(name: str, op: str, *further: DType) -> Operator:
    """`further`: types beyond those that all six have."""

    def form(site: Site) -> Form:
        left, right = site.input(0), site.input(1)
        common = (DType.FLOAT32, DType.INT32, DType.INT64, *_BYTES, DType.INT16)
        checks.require_dtype(site, left, *common, *further)
        checks.require_same_dtype(site, right, left)
        checks.require_dtype(site, site.output, DType.BOOL)
        if left.dtype in _BYTES or (left.dtype is DType.INT16 and op in ("eq", "ne") and _has_scales(left, right)):
            return _Rescaled(op, _side(site, left), _side(site, right))
        if left.dtype is DType.INT16 and _has_scales(left, right):
            checks.require_same_quantisation(site, left, right)
        return _Direct(op)

    return elementwise(name, form)


def _has_scales(*values: Value) -> bool:
    return any(value.quantisation is not None and value.quantisation.scales for value in values)


@dataclass(frozen=True)
class _Extreme:
    """The larger or the smaller of two; where they do not compare (a NaN, zeros of two signs), the second."""

    name: str

    def array(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.where(left > right if self.name == "MAXIMUM" else left < right, left, right)

    def expression(self, left: Expr, right: Expr) -> Expr:
        return Binary("max", right, left) if self.name == "MAXIMUM" else Binary("min", left, right)


def _extreme(name: str) -> Operator:
    def form(site: Site) -> Form:
        require_dtypes(site, DType.FLOAT32, *_BYTES, DType.INT16, DType.INT32, DType.INT64)
        return _Extreme(name)

    return elementwise(name, form)


OPERATORS = (
    _comparison("EQUAL", "eq", DType.BOOL).supports(
        micro("int8, int32, int64, float32, bool"),
        litert("uint8, int16"),
        notes="8-bit operands are compared rescaled, as TFLite does: where scales are small, neighbours fall together.",
    ),
    _comparison("NOT_EQUAL", "ne", DType.BOOL).supports(
        micro("int8, int32, int64, float32, bool"), litert("uint8, int16"), notes="As EQUAL."
    ),
    _comparison("LESS", "lt").supports(
        micro("int8, int32, int64, float32"),
        litert("uint8, int16"),
        notes="As EQUAL; TFLite Micro's int16 reads multipliers that nobody has written: ours is LiteRT's.",
    ),
    _comparison("LESS_EQUAL", "le").supports(micro("int8, int32, int64, float32"), litert("uint8, int16"), notes="As LESS."),
    _comparison("GREATER", "gt").supports(micro("int8, int32, int64, float32"), litert("uint8, int16"), notes="As LESS."),
    _comparison("GREATER_EQUAL", "ge").supports(micro("int8, int32, int64, float32"), litert("uint8, int16"), notes="As LESS."),
    _extreme("MAXIMUM").supports(
        micro("int8, int16, int32, int64, float32"),
        litert("uint8"),
        notes="Numbers are compared as they are, without their scales, as TFLite does.",
    ),
    _extreme("MINIMUM").supports(
        micro("int8, int16, int32, int64, float32"),
        litert("uint8"),
        notes="Numbers are compared as they are, without their scales, as TFLite does.",
    ),
)
