"""Cases of operators that take parts, join, look up, or only change the shape."""

from __future__ import annotations

from math import prod

from tests.differential.case import cases
from tests.differential.grower import Grower
from tests.differential.movement import MOVED
from tests.differential.net import Fill, Tensor


def reshape(g: Grower, op: str) -> None:
    x = g.value(MOVED)
    shape = other_factors(g, prod(g[x].shape))
    given = list(shape)
    if g.coin():
        given[g.whole(0, len(given) - 1)] = -1
    how = g.pick("tensor", "options", "both")
    inputs = [x] if how == "options" else [x, g.integers(given)]
    g.node(op, inputs, g.like(x, shape), None if how == "tensor" else {"new_shape": given})


def other_factors(g: Grower, count: int) -> tuple[int, ...]:
    """A shape of `count` elements."""
    shape = []
    while count > 1 and len(shape) < 3 and g.coin():
        factor = g.pick(*[size for size in range(1, min(count, 64) + 1) if count % size == 0])
        shape.append(factor)
        count //= factor
    return (*shape, count)


def squeeze(g: Grower, op: str) -> None:
    x = g.value(
        MOVED, fits=lambda tensor: 1 in tensor.shape, shape=None if g.reuse and g.coin() else (1, g.whole(1, 5), 1, g.whole(1, 5))
    )
    ones = [axis for axis, size in enumerate(g[x].shape) if size == 1]
    gone = ones if not ones or g.coin() else [g.pick(*ones)]
    named = gone if gone != ones or g.coin() else []
    if gone and g.coin():
        named = [axis - len(g[x].shape) for axis in named]
    shape = [size for axis, size in enumerate(g[x].shape) if axis not in gone]
    g.node(op, [x], g.like(x, shape), {"squeeze_dims": named})


def expand_dims(g: Grower, op: str) -> None:
    x = g.value(MOVED, rank=(1, 3))
    axis = g.whole(-len(g[x].shape) - 1, len(g[x].shape))
    shape = list(g[x].shape)
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, 1)
    g.node(op, [x, g.integers((axis,) if g.coin() else axis)], g.like(x, shape), {})


def shape_of(g: Grower, op: str) -> None:
    x = g.value(MOVED)
    rank = len(g[x].shape)
    g.node(op, [x], Tensor((rank,) if op == "SHAPE" else (), "int32"), {"out_type": "INT32"} if op == "SHAPE" else {})


def slice_(g: Grower, op: str) -> None:
    x = g.value(MOVED)
    begins = [g.whole(0, size - 1) for size in g[x].shape]
    sizes = [g.whole(1, size - begin) for size, begin in zip(g[x].shape, begins)]
    given = [-1 if begin + size == whole and g.coin() else size for begin, size, whole in zip(begins, sizes, g[x].shape)]
    dtype = g.pick("int32", "int32", "int64")
    g.node(op, [x, g.integers(begins, dtype), g.integers(given, dtype)], g.like(x, sizes), {})


def strided_slice(g: Grower, op: str) -> None:
    """Any begin, end and stride, also outside; masks of all kinds but ellipsis and new axes. An empty result is taken back."""
    x = g.value(MOVED)
    shape = g[x].shape
    begins, ends, strides, kept, masks = [], [], [], [], {"begin_mask": 0, "end_mask": 0, "shrink_axis_mask": 0}
    for axis, size in enumerate(shape):
        if kept and g.seldom():
            begin = g.whole(-size, size - 1)
            for held, number in ((begins, begin), (ends, begin + 1), (strides, 1)):
                held.append(number)
            masks["shrink_axis_mask"] |= 1 << axis
            continue
        stride = g.pick(1, 1, 2, 3, -1, -2)
        first, last = (g.whole(-size - 1, size), g.whole(-size - 2, size + 1)) if g.coin() else (None, None)
        count = len(range(size)[first:last:stride])
        if not count:
            first, last, count = None, None, len(range(size)[::stride])
        for bounds, bound, mask in ((begins, first, "begin_mask"), (ends, last, "end_mask")):
            bounds.append(0 if bound is None else bound)
            masks[mask] |= (bound is None) << axis
        strides.append(stride)
        kept.append(count)
    g.node(op, [x, *(g.integers(numbers) for numbers in (begins, ends, strides))], g.like(x, kept), masks)


def split(g: Grower, op: str) -> None:
    x = g.value(MOVED)
    axis = g.whole(-len(g[x].shape), len(g[x].shape) - 1)
    size = g[x].shape[axis]
    count = g.pick(*[parts for parts in range(1, min(size, 5) + 1) if size % parts == 0])
    part = list(g[x].shape)
    part[axis] = size // count
    g.node(op, [g.integers(axis if g.coin() else (axis,)), x], [g.like(x, part)] * count, {"num_splits": count})


def split_v(g: Grower, op: str) -> None:
    x = g.value(MOVED)
    axis = g.whole(-len(g[x].shape), len(g[x].shape) - 1)
    sizes, left = [], g[x].shape[axis]
    while left > 1 and len(sizes) < 3 and g.coin():
        sizes.append(g.whole(1, left - 1))
        left -= sizes[-1]
    sizes.append(left)
    parts = [[size if n == axis % len(g[x].shape) else whole for n, whole in enumerate(g[x].shape)] for size in sizes]
    given = [*sizes[:-1], -1 if g.seldom() else left]
    g.node(op, [x, g.integers(given), g.integers(axis)], [g.like(x, part) for part in parts], {"num_splits": len(sizes)})


def concatenation(g: Grower, op: str) -> None:
    first = g.value(MOVED, most=100, constant=True)
    rank = len(g[first].shape)
    axis = g.whole(-rank, rank - 1)

    def alike(tensor: Tensor) -> bool:
        pairs = enumerate(zip(tensor.shape, g[first].shape))
        return len(tensor.shape) == rank and all(a == b for n, (a, b) in pairs if n != axis % rank)

    parts = [first]
    for _ in range(g.whole(1, 3)):
        shape = list(g[first].shape)
        shape[axis] = g.whole(1, 4)
        there = None if g.reuse and g.coin() else tuple(shape)
        if there is None and not any(alike(tensor) and tensor.dtype == g[first].dtype for tensor in g.tensors):
            there = tuple(shape)
        like = None if g.seldom() and op == "CONCATENATION" else g[first]
        parts.append(g.value(g[first].dtype, shape=there, like=like, fits=alike, constant=True) if there else first)
    total = list(g[first].shape)
    total[axis] = sum(g[part].shape[axis] for part in parts)
    g.node(op, parts, g.like(first, total), {"axis": axis, "fused_activation_function": "NONE"})


def pack(g: Grower, op: str) -> None:
    first = g.value(MOVED, rank=(1, 3), most=100)
    parts = [first, *(g.value(g[first].dtype, shape=g[first].shape, like=g[first]) for _ in range(g.whole(0, 3)))]
    axis = g.whole(-len(g[first].shape) - 1, len(g[first].shape))
    shape = list(g[first].shape)
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, len(parts))
    g.node(op, parts, g.like(first, shape), {"values_count": len(parts), "axis": axis})


def unpack(g: Grower, op: str) -> None:
    axis = g.whole(0, 3)
    x = g.value(MOVED, fits=lambda tensor: tensor.shape[axis % len(tensor.shape)] <= 9)
    axis %= len(g[x].shape)
    shape = [size for n, size in enumerate(g[x].shape) if n != axis]
    given = axis if g.coin() else axis - len(g[x].shape)
    g.node(op, [x], [g.like(x, shape)] * g[x].shape[axis], {"num": g[x].shape[axis], "axis": given})


def gather(g: Grower, op: str) -> None:
    x = g.value(MOVED)
    axis = g.whole(-len(g[x].shape), len(g[x].shape) - 1)
    where = g.shape(0, 2, 6)
    positions = g.value(
        g.pick("int32", "int32", "int64"), shape=where, fill=Fill(g.whole(0, 99), 0, g[x].shape[axis] - 1), constant=True
    )
    axis_ = axis % len(g[x].shape)
    g.node(op, [x, positions], g.like(x, (*g[x].shape[:axis_], *where, *g[x].shape[axis_ + 1 :])), {"axis": axis, "batch_dims": 0})


def gather_nd(g: Grower, op: str) -> None:
    """One index column for each of the first axes: all columns share the smallest axis' range."""
    x = g.value(MOVED)
    depth = g.whole(1, len(g[x].shape))
    rows = g.shape(1, 2, 6)
    rule = Fill(g.whole(0, 99), 0, min(g[x].shape[:depth]) - 1)
    positions = g.value("int32", shape=(*rows, depth), fill=rule, constant=True)
    g.node(op, [x, positions], g.like(x, (*rows, *g[x].shape[depth:])), {})


def embedding(g: Grower, op: str) -> None:
    table = g.value(("float32", "int8"), rank=2, constant=True)
    rows = g.value("int32", shape=(g.whole(1, 5),), fill=Fill(g.whole(0, 99), 0, g[table].shape[0] - 1))
    g.node(op, [rows, table], g.like(table, (*g[rows].shape, g[table].shape[1])), {})


def update_slice(g: Grower, op: str) -> None:
    x = g.value(MOVED)
    part = tuple(g.whole(1, size) for size in g[x].shape)
    update = g.value(g[x].dtype, shape=part, like=g[x])
    starts = g.value("int32", shape=(len(part),), fill=Fill(g.whole(0, 99), -2, 9), constant=True)
    g.node(op, [x, update, starts], g.like(x), {})


def broadcast_args(g: Grower, op: str) -> None:
    shape = g.shape(1, 4)
    ones = [size if g.coin() else 1 for size in shape]
    g.node(op, [g.integers(shape), g.integers(ones)], Tensor((len(shape),), "int32"), {})


CASES = (
    *cases(reshape, "RESHAPE"),
    *cases(squeeze, "SQUEEZE"),
    *cases(expand_dims, "EXPAND_DIMS"),
    *cases(shape_of, "SHAPE", "RANK"),
    *cases(slice_, "SLICE"),
    *cases(strided_slice, "STRIDED_SLICE"),
    *cases(split, "SPLIT"),
    *cases(split_v, "SPLIT_V"),
    *cases(concatenation, "CONCATENATION"),
    *cases(pack, "PACK"),
    *cases(unpack, "UNPACK"),
    *cases(gather, "GATHER"),
    *cases(gather_nd, "GATHER_ND"),
    *cases(embedding, "EMBEDDING_LOOKUP"),
    *cases(update_slice, "DYNAMIC_UPDATE_SLICE"),
    *cases(broadcast_args, "BROADCAST_ARGS"),
)
