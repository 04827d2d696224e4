"""ADD, SUB and MUL: int8, uint8 and int16 (quantised), int32, int64, float32 (MUL also uint32); broadcasting, fused activation.

Quantised sums shift both inputs left, bring them to half the larger input scale's units, add, and rescale to the output.
int16 does so too, also where the options say `pot_scale_int16`: TFLite Micro ignores that, and so do we.
Source: tflite-micro, tensorflow/lite/micro/kernels/add_common.cc, sub_common.cc, mul_common.cc and
tensorflow/lite/kernels/internal/reference/integer_ops/add.h, mul.h. What TFLite Micro lacks (uint8, int64, uint32): LiteRT.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from aot.graph import arithmetic
from aot.graph.arithmetic import activation_name
from aot.graph.expr import Binary, Expr, clamp, mul
from aot.graph.ir import DType, Site
from aot.graph.operator import Operator
from aot.graph.ops import checks
from aot.graph.ops.contraction import clamp_array, clamp_expr
from aot.graph.ops.elementwise import Form, elementwise
from aot.graph.ops.rescale import Rescale, finish, finish_array, offset, rescale, shifted_term, shifted_term_array
from aot.graph.support import litert, micro

Combine = Literal["add", "sub", "mul"]
_NUMPY: dict[Combine, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
QUANTISED = (DType.INT8, DType.UINT8, DType.INT16)
_PLAIN = (DType.FLOAT32, DType.INT32, DType.INT64)


@dataclass(frozen=True)
class Arithmetic:
    """Attributes of ADD, SUB, MUL and DIV."""

    activation: str = "none"


def read_activation(options: Any) -> Arithmetic:
    return Arithmetic() if options is None else Arithmetic(activation_name(options.FusedActivationFunction()))


def activation_of(site: Site) -> str:
    assert isinstance(site.node.attributes, Arithmetic)
    return site.node.attributes.activation


# What the operators do to a pair of elements: each form has a numpy meaning and an expression.


@dataclass(frozen=True)
class Clamp:
    """A fused activation of numbers that are not quantised; without one an integer wraps."""

    activation: str
    dtype: DType

    def array(self, x: np.ndarray) -> np.ndarray:
        return clamp_array(x, self.activation) if self.dtype.is_float else np.clip(x, *self._limits)

    def expression(self, x: Expr) -> Expr:
        if self.dtype.is_float:
            return clamp_expr(x, self.activation)
        return x if self.activation == "none" else clamp(x, *self._limits)

    @property
    def _limits(self) -> tuple[int, int]:
        real_low, real_high = arithmetic.float_range(self.activation) or (-np.inf, np.inf)
        low, high = self.dtype.limits
        return int(max(low, real_low)), int(min(high, real_high))


@dataclass(frozen=True)
class _Plain:
    """Numbers that are not quantised; integers wrap."""

    combine: Combine
    clamp: Clamp

    def array(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return self.clamp.array(_NUMPY[self.combine](left, right))

    def expression(self, left: Expr, right: Expr) -> Expr:
        return self.clamp.expression(Binary(self.combine, left, right))


@dataclass(frozen=True)
class Ending:
    """Zero point, bounds and type of a quantised output."""

    zero_point: int
    low: int
    high: int
    dtype: DType

    def array(self, x: np.ndarray) -> np.ndarray:
        return finish_array(x, self.zero_point, self.low, self.high, self.dtype)

    def expression(self, x: Expr) -> Expr:
        return finish(x, self.zero_point, self.low, self.high, self.dtype)


@dataclass(frozen=True)
class QuantisedSum:
    """ADD and SUB: (rescale(x1 << s) +- rescale(x2 << s)), rescaled."""

    combine: Combine
    zero_points: tuple[int, int]
    left_shift: int
    inputs: tuple[Rescale, Rescale]
    output: Rescale
    ending: Ending

    def array(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        terms = [
            shifted_term_array(x, zero_point, self.left_shift, scale)
            for x, zero_point, scale in zip((left, right), self.zero_points, self.inputs)
        ]
        total = self.output.array(_NUMPY[self.combine](*terms))
        return self.ending.array(total)

    def expression(self, left: Expr, right: Expr) -> Expr:
        terms = [
            shifted_term(x, zero_point, self.left_shift, scale)
            for x, zero_point, scale in zip((left, right), self.zero_points, self.inputs)
        ]
        total = self.output.expression(Binary(self.combine, *terms))
        return self.ending.expression(total)


@dataclass(frozen=True)
class QuantisedProduct:
    """MUL: x1 * x2, rescaled."""

    zero_points: tuple[int, int]
    output: Rescale
    ending: Ending

    def array(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        a, b = (x.astype(np.int32) - np.int32(zero_point) for x, zero_point in zip((left, right), self.zero_points))
        return self.ending.array(self.output.array(a * b))

    def expression(self, left: Expr, right: Expr) -> Expr:
        product = mul(offset(left, self.zero_points[0]), offset(right, self.zero_points[1]))
        total = self.output.expression(product)
        return self.ending.expression(total)


# The operators.


def require_dtypes(site: Site, *allowed: DType) -> None:
    """Both inputs and the output have one of these types."""
    left = site.input(0)
    checks.require_dtype(site, left, *allowed)
    for value in (site.input(1), site.output):
        checks.require_same_dtype(site, value, left)


def plain_clamp(site: Site) -> Clamp:
    checks.require_activation(site, activation_of(site))
    return Clamp(activation_of(site), site.output.dtype)


def quantised_ending(site: Site, activation: str) -> Ending:
    _, zero_point = checks.per_tensor(site, site.output)
    return Ending(zero_point, *checks.output_range(site, activation, site.output), site.output.dtype)


def form_of(site: Site, combine: Combine) -> Form:
    require_dtypes(site, *QUANTISED, *_PLAIN, *((DType.UINT32,) if combine == "mul" else ()))
    if site.output.dtype not in QUANTISED:
        clamp = plain_clamp(site)
        if (combine, clamp.dtype) == ("add", DType.INT32) and clamp.activation != "none":
            raise site.error(f"the fused activation {clamp.activation} is not supported for int32", "TFLite Micro ignores it there")
        return _Plain(combine, clamp)
    return _product(site) if combine == "mul" else _sum(site, combine)


def _product(site: Site) -> QuantisedProduct:
    (left_scale, left), (right_scale, right) = (checks.per_tensor(site, site.input(position)) for position in (0, 1))
    scale, zero_point = checks.per_tensor(site, site.output)
    if site.output.dtype is DType.INT16 and (left or right or zero_point):
        raise site.error("int16 with a zero point that is not 0 is not supported")
    factor = rescale(site, arithmetic.product_scale(left_scale, right_scale, scale))
    return QuantisedProduct((left, right), factor, quantised_ending(site, activation_of(site)))


def _sum(site: Site, combine: Combine) -> QuantisedSum:
    (left_scale, left), (right_scale, right) = (checks.per_tensor(site, site.input(position)) for position in (0, 1))
    scale, _ = checks.per_tensor(site, site.output)
    left_shift = arithmetic.ADD_LEFT_SHIFT[site.output.dtype]
    one, two, out = (rescale(site, real) for real in arithmetic.sum_scales(left_scale, right_scale, scale, left_shift))
    if out.shift > 0:
        raise site.error(f"the output's scale {scale:.3g} is too small for inputs of scales {left_scale:.3g} and {right_scale:.3g}")
    ending = quantised_ending(site, activation_of(site))
    return QuantisedSum(combine, (left, right), left_shift, (one, two), out, ending)


def _dtype(site: Site) -> DType:
    """LiteRT takes the inputs' type; some files call a quantised sum between two layers float32."""
    left, right, output = site.input(0), site.input(1), site.output
    mislabelled = output.dtype is DType.FLOAT32 and output.quantisation is not None
    return left.dtype if mislabelled and left.dtype is right.dtype and left.dtype in QUANTISED else output.dtype


def _operator(name: str, options: str, combine: Combine) -> Operator:
    plain = elementwise(name, lambda site: form_of(site, combine), options=options, read=read_activation)
    return replace(plain, dtype=_dtype)


OPERATORS = (
    _operator("ADD", "AddOptions", "add").supports(
        micro("int8, int16, int32, float32"),
        litert("uint8, int64"),
        notes="Exact; int16 ignores pot_scale_int16, as TFLite Micro does; float overflow is infinite, where TFLite gives the largest number.",
    ),
    _operator("SUB", "SubOptions", "sub").supports(micro("int8, int16, int32, float32"), litert("uint8, int64"), notes="As ADD."),
    _operator("MUL", "MulOptions", "mul").supports(
        micro("int8, int16, int32, float32"),
        litert("uint8, uint32, int64"),
        notes="As ADD; a fused RELU_N1_TO_1 of uint32 begins at 0, where LiteRT's -1 wraps around.",
    ),
)
