"""REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_ALL, REDUCE_ANY over constant axes.

REDUCE_MAX, REDUCE_MIN: float32, integers of 8 to 64 bits, bool; quantised values keep their quantisation. A NaN loses against
every number, and what has no number above the lowest float32 gives that one (REDUCE_MIN: the largest).
REDUCE_PROD: float32, int32, int64, and int8, int16, uint8 without quantisation; integers wrap. float32 is exact to the bit.
Of quantised int8 and int16: `product.py`.
Source: tflite-micro, tensorflow/lite/micro/kernels/reduce_common.cc; types and operators that it lacks: LiteRT, tflite/kernels/reduce.cc.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aot.graph.arithmetic import FLOAT32_LOWEST
from aot.graph.expr import Acc, Const, Expr, Load, Unary
from aot.graph.ir import DType, Site
from aot.graph.operator import Lowering, Operator
from aot.graph.ops import checks, product, reduction
from aot.graph.support import litert, micro

QUANTISABLE = (DType.INT8, DType.INT16, DType.UINT8)
NUMBERS = (*QUANTISABLE, DType.FLOAT32, DType.INT32, DType.INT64)
_FUNCTIONS = {"max": np.maximum, "min": np.minimum, "mul": np.multiply, "and": np.logical_and, "or": np.logical_or}


@dataclass(frozen=True)
class _Rule:
    """acc = combine(acc, x) from `initial`. `negated`: of -x, whose negative is the result."""

    combine: str
    initial: Const
    negated: bool = False


def _rule(site: Site) -> _Rule:
    """REDUCE_MIN of floats is the negated maximum of negated elements, so that NaNs and zeros win and lose as in the reference."""
    op, dtype = site.node.op, site.input(0).dtype
    if dtype is DType.BOOL:
        is_or = op in ("REDUCE_MAX", "REDUCE_ANY")
        return _Rule("or" if is_or else "and", Const(not is_or, dtype))
    if op == "REDUCE_PROD":
        return _Rule("mul", Const(1.0 if dtype.is_float else 1, dtype))
    if dtype.is_float:
        return _Rule("max", Const(FLOAT32_LOWEST, dtype), negated=op == "REDUCE_MIN")
    low, high = dtype.limits
    return _Rule("max", Const(low, dtype)) if op == "REDUCE_MAX" else _Rule("min", Const(high, dtype))


def _check(site: Site) -> None:
    reduction.reduced_axes(site)
    data, op = site.input(0), site.node.op
    logical = op in ("REDUCE_ALL", "REDUCE_ANY")
    checks.require_dtype(site, data, *(() if logical else NUMBERS), *(() if op == "REDUCE_PROD" else (DType.BOOL,)))
    checks.require_same_dtype(site, site.output, data)
    if data.dtype in QUANTISABLE and (data.quantisation or site.output.quantisation):
        if op == "REDUCE_PROD":
            product.check(site)
        else:
            checks.require_same_quantisation(site, data, site.output)


def _is_scaled_product(site: Site) -> bool:
    return site.node.op == "REDUCE_PROD" and site.input(0).dtype in QUANTISABLE and site.input(0).quantisation is not None


def _compute(site: Site, data: np.ndarray, axes: np.ndarray) -> tuple[np.ndarray]:
    if _is_scaled_product(site):
        return (product.compute(site, data),)
    rule, rows = _rule(site), reduction.rows(site, data)
    start = np.full((len(rows), 1), rule.initial.value, data.dtype)
    terms = np.concatenate([start, -rows if rule.negated else rows], axis=1)
    result = _largest(terms) if data.dtype.kind == "f" and rule.combine == "max" else _combined(rule.combine, terms)
    return ((-result if rule.negated else result).reshape(reduction.infer(site)[0]),)


def _largest(terms: np.ndarray) -> np.ndarray:
    """The first of the largest floats of each row, whose first element is a number."""
    numbers = np.where(np.isnan(terms), terms[:, :1], terms)
    return np.take_along_axis(numbers, numbers.argmax(axis=1, keepdims=True), axis=1)[:, 0]


def _combined(combine: str, terms: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return _FUNCTIONS[combine].accumulate(terms, axis=1, dtype=terms.dtype)[:, -1]


def _lower(site: Site, lowering: Lowering) -> None:
    if _is_scaled_product(site):
        product.lower(site, lowering)
        return
    rule, dtype = _rule(site), site.input(0).dtype

    def term(element: Load) -> Expr:
        return Unary("neg", element) if rule.negated else element

    result = Unary("neg", Acc(dtype)) if rule.negated else Acc(dtype)
    reduction.append(site, lowering, rule.combine, rule.initial, term, result)


_EXTREMES = (micro("int8, float32"), litert("uint8, int16, int32, int64, bool"))
OPERATORS = tuple(
    Operator(name, "ReducerOptions", reduction.read, reduction.infer, _check, _compute, _lower).supports(*support, notes=notes)
    for name, support, notes in (
        ("REDUCE_MAX", _EXTREMES, "Constant axes; a NaN loses against every number."),
        ("REDUCE_MIN", _EXTREMES, "Constant axes; a NaN loses against every number."),
        (
            "REDUCE_PROD",
            (litert("int8, uint8, int16, int32, int64, float32"),),
            "Constant axes; integers wrap; uint8 with a scale is refused.",
        ),
        ("REDUCE_ALL", (micro("bool"),), "Constant axes."),
        ("REDUCE_ANY", (litert("bool"),), "Constant axes."),
    )
)
