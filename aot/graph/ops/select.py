"""SELECT and SELECT_V2: of two values the first where a condition holds, else the second; any type.

SELECT_V2 broadcasts all three. SELECT wants equal shapes, but its condition may be a scalar or choose along the first axis.
Numbers are copied as they are: TFLite does not compare quantisations, and the converter gives all the same one.
Sources: tflite-micro, tensorflow/lite/micro/kernels/select.cc (SELECT_V2: float32, int8, int16); other types and SELECT: LiteRT.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from aot.graph.expr import Expr, Select, axis
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.ops.broadcast import broadcast_shape, operand
from aot.graph.ops.checks import describe, shape_text
from aot.graph.ops.elementwise import Form, append_map, elementwise
from aot.graph.ops.movement import MOVABLE
from aot.graph.support import litert, micro


def _check(site: Site) -> None:
    condition, yes, no = (site.input(position) for position in range(3))
    checks.require_dtype(site, condition, DType.BOOL)
    checks.require_dtype(site, yes, *MOVABLE)
    for value in (no, site.output):
        checks.require_same_dtype(site, value, yes)


# SELECT


def _infer(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (3,))
    condition, yes, no = (site.input(position) for position in range(3))
    if yes.shape != no.shape:
        shapes = f"{describe(yes)} of shape {shape_text(yes.shape)} and {describe(no)} of shape {shape_text(no.shape)}"
        raise site.error(f"{shapes} must have the same shape", "SELECT_V2 broadcasts")
    if condition.shape not in ((), yes.shape, yes.shape[:1]):
        raise site.error(
            f"the condition {describe(condition)} of shape {shape_text(condition.shape)} does not fit {shape_text(yes.shape)}",
            "it must have the same shape, or one element for each index of the first axis",
        )
    return (broadcast_shape(site, yes),)


def _compute(site: Site, condition: np.ndarray, yes: np.ndarray, no: np.ndarray) -> tuple[np.ndarray]:
    along = condition if condition.shape == yes.shape else condition.reshape(condition.shape + (1,) * (yes.ndim - condition.ndim))
    return (np.where(along, yes, no),)


def _lower(site: Site, lowering: Lowering) -> None:
    shape, condition = site.output.shape, site.input(0)
    chosen = load(condition, tuple(axis(number) for number in range(len(condition.shape))))
    append_map(site, lowering, Select(chosen, *(operand(site.input(position), shape) for position in (1, 2))))


# SELECT_V2


@dataclass(frozen=True)
class _Choice:
    shape: Shape

    def array(self, condition: np.ndarray, yes: np.ndarray, no: np.ndarray) -> np.ndarray:
        return np.where(condition, yes, no).reshape(self.shape)

    def expression(self, condition: Expr, yes: Expr, no: Expr) -> Expr:
        return Select(condition, yes, no)


def _form(site: Site) -> Form:
    _check(site)
    return _Choice(site.output.shape)


def _infer_broadcasting(site: Site) -> tuple[Shape, ...]:
    """Scalars and tensors of one element mix: then the file says which the output is."""
    checks.require_counts(site, (3,))
    values = tuple(site.input(position) for position in range(3))
    shape = broadcast_shape(site, *values)
    single = all(value.size == 1 for value in (*values, site.output))
    return (site.output.shape if single else shape,)


OPERATORS = (
    Operator("SELECT", None, lambda options: None, _infer, _check, _compute, _lower).supports(
        litert("bool, int8, uint8, int16, uint16, int32, uint32, int64, uint64, float32"),
        notes="Any type; the condition may also be a scalar or choose along the first axis.",
    ),
    replace(elementwise("SELECT_V2", _form), infer=_infer_broadcasting).supports(
        micro("int8, int16, float32"),
        litert("bool, uint8, uint16, int32, uint32, int64, uint64"),
        notes="Broadcasts all three operands.",
    ),
)
