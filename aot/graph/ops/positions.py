"""Run-time indices: clamped, so that no index that a model computes reads outside a buffer; and flat positions made of them.

Enters: expressions (or arrays) of an index type. Leaves: int32 expressions (or arrays) inside the stated bounds, for `Lookup`.
Invariant: `clamped` and `clamped_array` are the same function, also of numbers that are no int32.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from aot.graph.expr import Binary, Const, Expr, add, cast, clamp, fixed, integer, mul
from aot.graph.ir import DType, Shape, Site, Value
from aot.graph.operator import load
from aot.graph.ops import checks

INDICES = (DType.INT16, DType.INT32, DType.INT64)
"""Types of run-time indices."""


def clamped(x: Expr, low: int, high: int) -> Expr:
    """min(max(x, low), high) as int32; `low <= high`."""
    wide = x if x.dtype is DType.INT64 else cast(x, DType.INT32)
    return cast(clamp(wide, low, high), DType.INT32)


def clamped_array(x: np.ndarray, low: int, high: int) -> np.ndarray:
    return np.clip(x.astype(np.int64), low, high).astype(np.int32)


def element(value: Value, number: int) -> Expr:
    """One element of a list of indices; a `Const` where it is known."""
    if value.data is not None:
        return Const(int(value.data.reshape(-1)[number]), value.dtype)
    return load(value, (fixed(number),))


def strides(shape: Shape) -> tuple[int, ...]:
    """The distance between neighbours along each axis, in elements."""
    return tuple(math.prod(shape[number + 1 :]) for number in range(len(shape)))


def flat(terms: Iterable[tuple[Expr, int]]) -> Expr:
    """The sum of index * stride, int32."""
    total: Expr | None = None
    for index, stride in terms:
        term = index if stride == 1 else mul(index, integer(stride))
        total = term if total is None else add(total, term)
    return integer(0) if total is None else total


def both(conditions: Sequence[Expr]) -> Expr:
    """Whether all hold; there is at least one."""
    total = conditions[0]
    for condition in conditions[1:]:
        total = Binary("and", total, condition)
    return total


def require_inside(site: Site, value: Value, size: int) -> None:
    """What is known of indices at compile time must be right."""
    if value.data is not None and ((value.data < 0) | (value.data >= size)).any():
        wrong = value.data[(value.data < 0) | (value.data >= size)].reshape(-1)[0]
        raise site.error(f"index {int(wrong)} of {checks.describe(value)} is outside an axis of {size}")
