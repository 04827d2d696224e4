"""ADD, SUB and MUL: int8 and int16 (quantised), int32, float32; broadcasting, fused activation.

Quantised sums shift both inputs left, bring them to half the larger input scale's units, add, and rescale to the output.
Source: tflite-micro, tensorflow/lite/micro/kernels/add_common.cc, sub_common.cc, mul_common.cc and
tensorflow/lite/kernels/internal/reference/integer_ops/add.h, mul.h.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from aot.graph import arithmetic
from aot.graph.arithmetic import activation_name
from aot.graph.expr import Binary, Expr, integer, mul
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator
from aot.graph.ops import checks
from aot.graph.ops.broadcast import broadcast_shape, operand
from aot.graph.ops.contraction import clamp_array, clamp_expr
from aot.graph.ops.rescale import Rescale, finish, finish_array, offset, rescale
from aot.graph.primitive import Map

Combine = Literal["add", "sub", "mul"]
_NUMPY: dict[Combine, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


@dataclass(frozen=True)
class Arithmetic:
    """Attributes of ADD, SUB and MUL."""

    activation: str = "none"


def _read(options) -> Arithmetic:
    return Arithmetic() if options is None else Arithmetic(activation_name(options.FusedActivationFunction()))


def _activation(site: Site) -> str:
    assert isinstance(site.node.attributes, Arithmetic)
    return site.node.attributes.activation


# What the operators do to a pair of elements: each form has a numpy meaning and an expression.


@dataclass(frozen=True)
class _Plain:
    """float32 with an activation, or wrapping int32."""

    combine: Combine
    activation: str

    def array(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            result = _NUMPY[self.combine](left, right)
        return clamp_array(result, self.activation) if result.dtype.kind == "f" else result

    def expression(self, left: Expr, right: Expr) -> Expr:
        result = Binary(self.combine, left, right)
        return clamp_expr(result, self.activation) if result.dtype.is_float else result


@dataclass(frozen=True)
class _Ending:
    """Zero point, bounds and type of a quantised output."""

    zero_point: int
    low: int
    high: int
    dtype: DType


@dataclass(frozen=True)
class _QuantisedSum:
    """ADD and SUB: (rescale(x1 << s) +- rescale(x2 << s)), rescaled."""

    combine: Combine
    zero_points: tuple[int, int]
    left_shift: int
    inputs: tuple[Rescale, Rescale]
    output: Rescale
    ending: _Ending

    def array(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        terms = [
            scale.array((x.astype(np.int32) - np.int32(zero_point)) << np.int32(self.left_shift))
            for x, zero_point, scale in zip((left, right), self.zero_points, self.inputs)
        ]
        total = self.output.array(_NUMPY[self.combine](*terms))
        return finish_array(total, self.ending.zero_point, self.ending.low, self.ending.high, self.ending.dtype)

    def expression(self, left: Expr, right: Expr) -> Expr:
        terms = [
            self._term(offset(x, zero_point), scale) for x, zero_point, scale in zip((left, right), self.zero_points, self.inputs)
        ]
        total = self.output.expression(Binary(self.combine, *terms))
        return finish(total, self.ending.zero_point, self.ending.low, self.ending.high, self.ending.dtype)

    def _term(self, x: Expr, scale: Rescale) -> Expr:
        """The scale of at least one input is exactly a half: multiplying by it takes one off the shift, without rounding."""
        power = self.left_shift - 1 + scale.shift
        if scale.multiplier == 1 << 30 and scale.shift <= 0 <= power:
            return Binary("shl", x, integer(power))
        return scale.expression(Binary("shl", x, integer(self.left_shift)))


@dataclass(frozen=True)
class _QuantisedProduct:
    """MUL: x1 * x2, rescaled."""

    zero_points: tuple[int, int]
    output: Rescale
    ending: _Ending

    def array(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        a, b = (x.astype(np.int32) - np.int32(zero_point) for x, zero_point in zip((left, right), self.zero_points))
        return finish_array(self.output.array(a * b), self.ending.zero_point, self.ending.low, self.ending.high, self.ending.dtype)

    def expression(self, left: Expr, right: Expr) -> Expr:
        product = mul(offset(left, self.zero_points[0]), offset(right, self.zero_points[1]))
        total = self.output.expression(product)
        return finish(total, self.ending.zero_point, self.ending.low, self.ending.high, self.ending.dtype)


_Form = _Plain | _QuantisedSum | _QuantisedProduct


def _form(site: Site, combine: Combine) -> _Form:
    if site.input(0).dtype in (DType.FLOAT32, DType.INT32):
        return _Plain(combine, _activation(site))
    (left_scale, left), (right_scale, right) = (checks.per_tensor(site, site.input(position)) for position in (0, 1))
    scale, zero_point = checks.per_tensor(site, site.output)
    ending = _Ending(zero_point, *checks.output_range(site, _activation(site), site.output), site.output.dtype)
    if combine == "mul":
        return _QuantisedProduct((left, right), rescale(site, arithmetic.product_scale(left_scale, right_scale, scale)), ending)
    left_shift = arithmetic.ADD_LEFT_SHIFT[site.output.dtype]
    one, two, out = (rescale(site, real) for real in arithmetic.sum_scales(left_scale, right_scale, scale, left_shift))
    if out.shift > 0:
        raise site.error(f"the output's scale {scale:.3g} is too small for inputs of scales {left_scale:.3g} and {right_scale:.3g}")
    return _QuantisedSum(combine, (left, right), left_shift, (one, two), out, ending)


# The operators.


def _infer(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (2,))
    return (broadcast_shape(site, site.input(0), site.input(1)),)


def _check(site: Site, combine: Combine) -> None:
    left, right, activation = site.input(0), site.input(1), _activation(site)
    checks.require_dtype(site, left, DType.INT8, DType.INT16, DType.INT32, DType.FLOAT32)
    for value in (right, site.output):
        checks.require_same_dtype(site, value, left)
    checks.require_activation(site, activation)
    if left.dtype is DType.INT32 and activation != "none":
        raise site.error(f"the fused activation {activation} is not supported for int32")
    if left.dtype is DType.INT16 and any(checks.per_tensor(site, value)[1] for value in (left, right, site.output)):
        raise site.error("int16 with a zero point that is not 0 is not supported")
    _form(site, combine)


def _operator(name: str, options: str, combine: Combine) -> Operator:
    def compute(site: Site, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray]:
        return (_form(site, combine).array(left, right),)

    def lower(site: Site, lowering: Lowering) -> None:
        shape = site.output.shape
        left, right = (operand(site.input(position), shape) for position in (0, 1))
        lowering.append(Map(site.output.name, shape, _form(site, combine).expression(left, right), nodes=(site.node.index,)))

    return Operator(name, options, _read, _infer, lambda site: _check(site, combine), compute, lower)


OPERATORS = (
    _operator("ADD", "AddOptions", "add"),
    _operator("SUB", "SubOptions", "sub"),
    _operator("MUL", "MulOptions", "mul"),
)
