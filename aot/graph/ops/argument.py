# pyright: basic
"""ARG_MAX and ARG_MIN: the index of the largest or smallest element along one axis, the first of equal ones; int32 or int64.

Inputs: float32, int8, uint8, int32, bool. A NaN in first place wins (index 0), anywhere else it never does.
Source: tflite-micro, tensorflow/lite/micro/kernels/arg_min_max.cc and kernels/internal/reference/arg_min_max.h; types that it lacks:
LiteRT, tflite/kernels/arg_min_max.cc.
"""

from __future__ import annotations

import numpy as np

from aot.graph.expr import Acc, Axis, Binary, Expr, Load, Select, Unary, add, axis, cast, fixed, integer
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.primitive import Reduce
from aot.graph.support import litert, micro

DTYPES = (DType.FLOAT32, DType.INT8, DType.UINT8, DType.INT32, DType.BOOL)
SMALL = (DType.INT8, DType.UINT8, DType.BOOL)
"""Types of 8 bits, which fit into one int32 together with an index."""


def _axis(site: Site) -> int:
    checks.require_counts(site, (2,))
    data, number = site.input(0), site.input(1)
    checks.require_elements(site, data)
    checks.require_dtype(site, number, DType.INT32, DType.INT64)
    return checks.require_axis(site, data, checks.constant_number(site, number, "axis"))


def _infer(site: Site) -> tuple[Shape, ...]:
    number, shape = _axis(site), site.input(0).shape
    return ((*shape[:number], *shape[number + 1 :]),)


def _check(site: Site) -> None:
    _axis(site)
    checks.require_dtype(site, site.input(0), *DTYPES)
    checks.require_dtype(site, site.output, DType.INT32, DType.INT64)


def _compute(site: Site, data: np.ndarray, axis: np.ndarray) -> tuple[np.ndarray]:
    number, is_max = _axis(site), site.node.op == "ARG_MAX"
    numbers = _without_nan(data, number, np.inf if is_max else -np.inf) if data.dtype.kind == "f" else data
    found = numbers.argmax(axis=number) if is_max else numbers.argmin(axis=number)
    return (np.asarray(found).astype(site.output.dtype.np),)


def _without_nan(data: np.ndarray, number: int, best: float) -> np.ndarray:
    """NaNs in first place are the best there is, which comes first; all others the worst, of which the first place's comes first."""
    is_first = np.arange(data.shape[number]).reshape(-1, *(1,) * (data.ndim - 1 - number)) == 0
    return np.where(np.isnan(data), np.where(is_first, np.float32(best), np.float32(-best)), data)


def _lower(site: Site, lowering: Lowering) -> None:
    length = site.input(0).shape[_axis(site)]
    if site.input(0).dtype in SMALL and length <= 1 << 23:
        _lower_packed(site, lowering, (length - 1).bit_length())
    else:
        _lower_twice(site, lowering, length)


def _lower_packed(site: Site, lowering: Lowering, bits: int) -> None:
    """One Reduce over numbers of element and index: the element above `bits`, then the index, so counted that the first wins."""
    is_max, mask = site.node.op == "ARG_MAX", integer((1 << bits) - 1)
    position: Expr = Axis(len(site.output.shape))
    low = Binary("sub", mask, position) if is_max else position
    number = add(Binary("shl", cast(_element(site, True), DType.INT32), integer(bits)), low)
    found = Binary("and", Acc(DType.INT32), mask)
    initial = integer(DType.INT32.limits[0] if is_max else DType.INT32.limits[1])
    _append(
        site,
        lowering,
        site.output.name,
        "max" if is_max else "min",
        initial,
        number,
        Binary("xor", found, mask) if is_max else found,
    )


def _lower_twice(site: Site, lowering: Lowering, length: int) -> None:
    """The largest or smallest element, then the smallest index that has it. Floats: the smallest is the largest of -x."""
    dtype, is_max = site.input(0).dtype, site.node.op == "ARG_MAX"
    negated = dtype.is_float and not is_max

    def sign(x: Expr) -> Expr:
        return Unary("neg", x) if negated else x

    name = lowering.temporary("best", dtype, site.output.shape)
    combine = "max" if is_max or negated else "min"
    _append(site, lowering, name, combine, sign(_element(site, False)), sign(_element(site, True)), sign(Acc(dtype)))
    best = Load(name, tuple(axis(number) for number in range(len(site.output.shape))), dtype)
    position = Axis(len(site.output.shape))
    term = Select(Binary("eq", _element(site, True), best), position, integer(length))
    found = Acc(DType.INT32)
    index = Select(Binary("eq", found, integer(length)), integer(0), found) if dtype.is_float else found  # the first is a NaN
    _append(site, lowering, site.output.name, "min", integer(length), term, index)


def _append(site: Site, lowering: Lowering, out: str, combine: str, initial: Expr, term: Expr, result: Expr) -> None:
    """A Reduce over the axis; a result for the output gets its type."""
    window = (site.input(0).shape[_axis(site)],)
    result = cast(result, site.output.dtype) if out == site.output.name else result
    lowering.append(Reduce(out, site.output.shape, window, combine, initial, term, result, nodes=(site.node.index,)))


def _element(site: Site, swept: bool) -> Load:
    """The element at the window's position on the axis; or the first one."""
    number, rank = _axis(site), len(site.output.shape)
    along = axis(rank) if swept else fixed(0)
    kept = tuple(axis(position) for position in range(rank))
    return load(site.input(0), (*kept[:number], along, *kept[number:]))


OPERATORS = (
    Operator("ARG_MAX", "ArgMaxOptions", lambda options: None, _infer, _check, _compute, _lower).supports(
        micro("int8, float32"),
        litert("uint8, int32, bool"),
        notes="Indices are int32 or int64; the first of equal elements; a NaN wins in first place only.",
    ),
    Operator("ARG_MIN", "ArgMinOptions", lambda options: None, _infer, _check, _compute, _lower).supports(
        micro("int8, float32"),
        litert("uint8, int32, bool"),
        notes="Indices are int32 or int64; the first of equal elements; a NaN wins in first place only.",
    ),
)
