"""TOPK_V2: the k largest elements of each row, in descending order, and their indices (int32 or int16); equal ones by index.

float32, int8, int16, uint8, int32, int64; k is constant. A NaN comes after every number.
Source: LiteRT, tflite/kernels/topk_v2.cc (TFLite Micro has no such operator).
"""

from __future__ import annotations

import numpy as np

from aot.graph.expr import Acc, Affine, Axis, Binary, Bitcast, Expr, Load, Lookup, Select, add, axis, cast, integer, mul, real
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.primitive import Map, Reduce
from aot.graph.support import litert

DTYPES = (DType.FLOAT32, DType.INT8, DType.INT16, DType.UINT8, DType.INT32, DType.INT64)
INDICES = (DType.INT32, DType.INT16)


def _count(site: Site) -> int:
    """k, from 1 to the length of a row."""
    checks.require_counts(site, (2,), 2)
    data, number = site.input(0), site.input(1)
    checks.require_elements(site, data)
    checks.require_dtype(site, number, DType.INT32, DType.INT16)
    if not data.shape:
        raise site.error(f"{checks.describe(data)} is a scalar; TOPK_V2 needs a dimension")
    k = checks.constant_number(site, number, "k", "make k a constant when the model is exported")
    if not 1 <= k <= data.shape[-1]:
        raise site.error(f"k = {k} is not between 1 and the row's {data.shape[-1]} elements")
    return k


def _infer(site: Site) -> tuple[Shape, ...]:
    shape = (*site.input(0).shape[:-1], _count(site))
    return shape, shape


def _check(site: Site) -> None:
    _count(site)
    data, (values, indices) = site.input(0), site.outputs
    checks.require_dtype(site, data, *DTYPES)
    checks.require_same_dtype(site, values, data)
    checks.require_dtype(site, indices, *INDICES)
    if data.shape[-1] - 1 > indices.dtype.limits[1]:
        raise site.error(f"{indices.dtype} can't number the {data.shape[-1]} elements of a row")


def _compute(site: Site, data: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A stable ascending sort of the row read backwards, read backwards: equal elements stand as in the row."""
    order = np.argsort(_ordered(data)[..., ::-1], axis=-1, kind="stable")
    first = (data.shape[-1] - 1 - order[..., ::-1])[..., : _count(site)]
    return np.take_along_axis(data, first, axis=-1), first.astype(site.outputs[1].dtype.np)


def _ordered(data: np.ndarray) -> np.ndarray:
    """What elements are ordered by: themselves; for floats an int32 in the same order, the smallest for a NaN."""
    if data.dtype.kind != "f":
        return data
    bits = (data + np.float32(0)).view(np.int32)  # -0 becomes 0
    return np.where(np.isnan(data), DType.INT32.limits[0], np.where(bits < 0, bits ^ DType.INT32.limits[1], bits))


# Lowering: an element's rank is how many come before it; the index of rank r is the only one that has it. No sorting.


def _lower(site: Site, lowering: Lowering) -> None:
    """Keys of floats; each element's rank; the index for each of k ranks; the elements there."""
    data, (values, indices) = site.input(0), site.outputs
    rank, length, nodes = len(data.shape), data.shape[-1], (site.node.index,)
    key = _keys(site, lowering)
    ranks = lowering.temporary("ranks", DType.INT32, data.shape)
    lowering.append(
        Reduce(ranks, data.shape, (length,), "add", integer(0), _comes_before(key, rank), Acc(DType.INT32), nodes=nodes)
    )
    found = lowering.temporary("found", DType.INT32, indices.shape)
    has_rank = Binary("eq", Load(ranks, _swept(rank), DType.INT32), Axis(rank - 1))
    term = Select(has_rank, Axis(rank), integer(0))
    lowering.append(Reduce(found, indices.shape, (length,), "add", integer(0), term, Acc(DType.INT32), nodes=nodes))
    index = Load(found, tuple(axis(number) for number in range(rank)), DType.INT32)
    lowering.append(Map(indices.name, indices.shape, cast(index, indices.dtype), nodes=nodes))
    lowering.append(Map(values.name, values.shape, Lookup(data.name, _flat(data.shape, index), data.dtype), nodes=nodes))


def _comes_before(key: Load, rank: int) -> Expr:
    """1 if the element at the window's position comes before the one at the output's, else 0; keys have no NaN."""
    other = Load(key.buffer, _swept(rank), key.dtype)
    is_earlier = Binary("lt", Axis(rank), Axis(rank - 1))
    # `ge` for earlier elements, `gt` for later ones
    return cast(Select(is_earlier, Binary("ge", other, key), Binary("gt", other, key)), DType.INT32)


def _keys(site: Site, lowering: Lowering) -> Load:
    """`_ordered`, in a buffer where it has to be computed."""
    data = site.input(0)
    element = load(data)
    if data.dtype is not DType.FLOAT32:
        return element
    bits = Bitcast(add(element, real(0.0)), DType.INT32)  # -0 becomes 0
    ordered = Select(Binary("lt", bits, integer(0)), Binary("xor", bits, integer(DType.INT32.limits[1])), bits)
    value = Select(Binary("eq", element, element), ordered, integer(DType.INT32.limits[0]))
    name = lowering.temporary("keys", DType.INT32, data.shape)
    lowering.append(Map(name, data.shape, value, nodes=(site.node.index,)))
    return Load(name, element.index, DType.INT32)


def _swept(rank: int) -> tuple[Affine, ...]:
    """The element at the window's position in the output's row."""
    return (*(axis(number) for number in range(rank - 1)), axis(rank))


def _flat(shape: Shape, last: Expr) -> Expr:
    """The flat index of an element of the output's row."""
    total, stride = last, 1
    for number in reversed(range(len(shape) - 1)):
        stride *= shape[number + 1]
        total = add(total, mul(Axis(number), integer(stride))) if shape[number] > 1 else total
    return total


OPERATORS = (
    Operator("TOPK_V2", "TopKV2Options", lambda options: None, _infer, _check, _compute, _lower).supports(
        litert("int8, uint8, int16, int32, int64, float32"),
        notes="k is constant; a NaN comes after every number; of equal elements the first comes first.",
    ),
)
