"""Hypothesis strategy: small random graphs of toy operators, with branches, views and several outputs."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from hypothesis import strategies as st

from aot.graph.ir import DType, Graph
from tests.lower.toy import GraphBuilder

Draw = Callable[[st.SearchStrategy], object]


@st.composite
def graphs(draw, most_nodes: int = 9) -> Graph:
    """A verified Graph of rank-4 int8 values, with at most 400 elements each."""
    builder = GraphBuilder()
    builder.input(1, draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    if draw(st.booleans()):
        builder.input(*builder.shape("t0"))
    if draw(st.booleans()):
        builder.constant(*builder.shape("t0"))
    for _ in range(draw(st.integers(1, most_nodes))):
        _add_node(draw, builder)
    names = [value.name for value in builder.values]
    read = {name for node in builder.nodes for name in node.inputs}
    unread = [name for node in builder.nodes for name in node.outputs if name not in read]
    kept = unread if draw(st.integers(0, 3)) else unread[-1:]
    more = draw(st.lists(st.sampled_from(names), max_size=2)) if not draw(st.integers(0, 3)) else []
    return builder.graph(*(kept or names[-1:]), *more)


def _add_node(draw, builder: GraphBuilder) -> None:
    """One more node; now and then its operands are older values, mostly the newest one."""
    names = [value.name for value in builder.values if value.dtype is DType.INT8]
    x = draw(st.sampled_from([*names, *names[-1:] * 4]))
    shape = builder.shape(x)
    n, h, w, c = shape
    kind = draw(st.sampled_from(KINDS))
    if kind == "add":
        fitting = [name for name in names if all(b in (a, 1) for a, b in zip(shape, builder.shape(name)))]
        builder.node("ADD", x, draw(st.sampled_from(fitting)))
    elif kind == "concat":
        along = draw(st.integers(1, 3))
        fitting = [name for name in names if all(a == b or k == along for k, (a, b) in enumerate(zip(shape, builder.shape(name))))]
        parts = [x, *draw(st.lists(st.sampled_from(fitting), min_size=1, max_size=2))]
        if sum(prod(builder.shape(name)) for name in parts) <= 400:
            builder.concat(along, *parts)
    elif kind == "pad":
        before, after = ((0, *draw(st.tuples(*[st.integers(0, 1)] * 3))) for _ in range(2))
        if prod(b + size + a for b, size, a in zip(before, shape, after)) <= 400:
            builder.pad(x, before, after, draw(st.sampled_from([0, 3, -128])))
    elif kind == "slice":
        begins = [draw(st.integers(0, size - 1)) for size in shape]
        backwards = draw(st.booleans())
        sizes = [begin + 1 if backwards else size - begin for begin, size in zip(begins, shape)]
        builder.node("SLICE", x, shape=tuple(sizes), attributes=tuple((begin, -1 if backwards else 1) for begin in begins))
    elif kind == "gather":
        along = draw(st.integers(1, 3))
        positions = tuple(draw(st.lists(st.integers(0, shape[along] - 1), min_size=1, max_size=4)))
        target = tuple(len(positions) if number == along else size for number, size in enumerate(shape))
        if prod(target) <= 400:
            builder.node("GATHER", x, shape=target, attributes=(along, positions))
    elif kind == "transpose":
        builder.transpose(x, 0, *draw(st.permutations([1, 2, 3])))
    elif kind == "view":
        views = [(n, 1, h * w, c), (n, h, w * c, 1), (1, 1, 1, n * h * w * c), (n, h, 1, w * c), (n, w, h, c)]
        builder.view(x, *draw(st.sampled_from(views)))
    elif kind == "conv":
        pad = draw(st.integers(0, 1))
        size = draw(st.integers(1, min(3, h + 2 * pad, w + 2 * pad)))
        builder.conv(x, draw(st.integers(1, 4)), size, draw(st.integers(1, 2)), pad, draw(st.sampled_from([0, 3, -128])))
    elif kind == "depthwise" and prod(shape) <= 200:
        builder.depthwise(x, draw(st.integers(1, 2)))
    elif kind == "pool":
        pad = draw(st.integers(0, 1))
        builder.pool(x, draw(st.integers(1 + pad, min(3, h + 2 * pad, w + 2 * pad))), 1, pad)
    elif kind == "sum":
        builder.sum(x)
    elif kind == "wide":
        builder.node("NARROW", builder.node("WIDEN", x, dtype=DType.INT32))
    else:
        builder.node(draw(st.sampled_from(["UNARY", "POSITION"])), x)


KINDS = (
    "add", "add", "concat", "concat", "pad", "slice", "gather", "transpose", "view", "view",
    "conv", "conv", "depthwise", "pool", "sum", "wide", "unary", "unary",
)  # fmt: skip
