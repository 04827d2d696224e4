"""ADD_N: int8, int32, float32; SQUARED_DIFFERENCE: int8, int16, int32, float32, broadcasting.

ADD_N starts its int8 sum at the real value of the byte 0, not at real 0, as TFLite Micro does: one more term.
Sources: tflite-micro, tensorflow/lite/micro/kernels/add_n.cc, squared_difference.cc and
tensorflow/lite/kernels/internal/reference/add_n.h. int32 ADD_N, which TFLite Micro lacks: LiteRT.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np

from aot.graph import arithmetic
from aot.graph.expr import Expr, add, integer, mul, real, sub
from aot.graph.ir import DType, Shape, Site
from aot.graph.ops import checks
from aot.graph.ops.binary import Ending, quantised_ending, require_dtypes
from aot.graph.ops.elementwise import Form, elementwise
from aot.graph.ops.rescale import Rescale, rescale, shifted_term, shifted_term_array
from aot.graph.support import litert, micro

MOST_TERMS = 64
"""Of ADD_N: a sum is one expression."""


# ADD_N


@dataclass(frozen=True)
class _Sum:
    """Terms added in order, from 0."""

    zero: Expr

    def array(self, *terms: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return functools.reduce(np.add, terms, np.zeros((), terms[0].dtype))

    def expression(self, *terms: Expr) -> Expr:
        return functools.reduce(add, terms, self.zero)


@dataclass(frozen=True)
class _QuantisedSum:
    """Terms shifted left and rescaled to half their scale, added to `start`, and rescaled."""

    zero_point: int
    input: Rescale
    output: Rescale
    ending: Ending

    @property
    def start(self) -> np.ndarray:
        return shifted_term_array(np.zeros((), np.int8), self.zero_point, self._shift, self.input)

    @property
    def _shift(self) -> int:
        return arithmetic.ADD_LEFT_SHIFT[DType.INT8]

    def array(self, *terms: np.ndarray) -> np.ndarray:
        scaled = (shifted_term_array(x, self.zero_point, self._shift, self.input) for x in terms)
        with np.errstate(over="ignore"):
            return self.ending.array(self.output.array(functools.reduce(np.add, scaled, self.start)))

    def expression(self, *terms: Expr) -> Expr:
        scaled = (shifted_term(x, self.zero_point, self._shift, self.input) for x in terms)
        return self.ending.expression(self.output.expression(functools.reduce(add, scaled, integer(int(self.start)))))


def _infer_sum(site: Site) -> tuple[Shape, ...]:
    if not 2 <= len(site.inputs) <= MOST_TERMS:
        raise site.error(f"has {len(site.inputs)} inputs, not 2 to {MOST_TERMS}")
    checks.require_counts(site, (len(site.inputs),))
    first = site.input(0)
    for value in (site.input(position) for position in range(1, len(site.inputs))):
        if value.shape != first.shape:
            shapes = (f"{checks.describe(each)} of shape {checks.shape_text(each.shape)}" for each in (first, value))
            raise site.error(f"{' and '.join(shapes)} must have the same shape", "ADD_N does not broadcast")
    return (first.shape,)


def _sum_form(site: Site) -> Form:
    first = site.input(0)
    checks.require_dtype(site, first, DType.INT8, DType.INT32, DType.FLOAT32)
    for value in (*(site.input(position) for position in range(1, len(site.inputs))), site.output):
        checks.require_same_dtype(site, value, first)
    if first.dtype is not DType.INT8:
        return _Sum(real(0.0) if first.dtype.is_float else integer(0))
    for position in range(1, len(site.inputs)):
        checks.require_same_quantisation(site, site.input(position), first)
    (scale, zero_point), (out_scale, _) = checks.per_tensor(site, first), checks.per_tensor(site, site.output)
    half, _, out = arithmetic.sum_scales(scale, scale, out_scale, arithmetic.ADD_LEFT_SHIFT[DType.INT8])
    output = rescale(site, out)
    if output.shift > 0:
        raise site.error(f"the output's scale {out_scale:.3g} is too small for inputs of scale {scale:.3g}")
    return _QuantisedSum(zero_point, rescale(site, half), output, quantised_ending(site, "none"))


# SQUARED_DIFFERENCE

_SQUARE_LEFT_SHIFT = {DType.INT8: 7, DType.INT16: 0}


@dataclass(frozen=True)
class _Square:
    """float32, or wrapping int32."""

    def array(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            difference = left - right
            return difference * difference

    def expression(self, left: Expr, right: Expr) -> Expr:
        difference = sub(left, right)
        return mul(difference, difference)


@dataclass(frozen=True)
class _QuantisedSquare:
    """(rescale(x1 << s) - rescale(x2 << s)) squared, rescaled."""

    zero_points: tuple[int, int]
    left_shift: int
    inputs: tuple[Rescale, Rescale]
    output: Rescale
    ending: Ending

    def array(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        sides = zip((left, right), self.zero_points, self.inputs)
        a, b = (shifted_term_array(x, zero_point, self.left_shift, scale) for x, zero_point, scale in sides)
        return self.ending.array(self.output.array(_Square().array(a, b)))

    def expression(self, left: Expr, right: Expr) -> Expr:
        sides = zip((left, right), self.zero_points, self.inputs)
        a, b = (shifted_term(x, zero_point, self.left_shift, scale) for x, zero_point, scale in sides)
        return self.ending.expression(self.output.expression(_Square().expression(a, b)))


def _square_form(site: Site) -> Form:
    require_dtypes(site, DType.FLOAT32, DType.INT32, *_SQUARE_LEFT_SHIFT)
    dtype = site.output.dtype
    if dtype not in _SQUARE_LEFT_SHIFT:
        return _Square()
    (left_scale, left), (right_scale, right) = (checks.per_tensor(site, site.input(position)) for position in (0, 1))
    scale, zero_point = checks.per_tensor(site, site.output)
    if dtype is DType.INT16 and (left or right or zero_point):
        raise site.error("int16 with a zero point that is not 0 is not supported")
    left_shift = _SQUARE_LEFT_SHIFT[dtype]
    one, two, _ = arithmetic.sum_scales(left_scale, right_scale, scale, left_shift)
    factor = arithmetic.square_scale(left_scale, right_scale, scale, left_shift)
    inputs = rescale(site, one), rescale(site, two)
    return _QuantisedSquare((left, right), left_shift, inputs, rescale(site, factor), quantised_ending(site, "none"))


OPERATORS = (
    replace(elementwise("ADD_N", _sum_form), infer=_infer_sum).supports(
        micro("int8, float32"),
        litert("int32"),
        notes="Exact; int8 begins at the real value of byte 0, as in TFLite Micro; no broadcasting.",
    ),
    elementwise("SQUARED_DIFFERENCE", _square_form).supports(micro("int8, int16, int32, float32"), notes="Exact."),
)
