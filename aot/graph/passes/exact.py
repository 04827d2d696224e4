"""Rules that are proven by computing both sides for every possible operand: 8-bit types have few enough.

Enters: a graph. Leaves: a graph with cheaper arithmetic and the same outputs bit for bit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aot.errors import CompileError
from aot.graph.ir import DType, Graph, Node, Site, Value
from aot.graph.ops import OPERATORS
from aot.graph.ops.pool import Pool2D
from aot.graph.ops.views import Reshape
from aot.graph.passes.ranges import BYTES
from aot.graph.passes.rewrite import Edit, fresh, producer, rewrite, same_type

MAX_MEAN_COUNT = 64
"""Elements of the largest mean that is tried: all its sums are 255 * count + 1 rows of that many bytes."""


def mean_to_pool(graph: Graph) -> Graph:
    """MEAN over height and width -> AVERAGE_POOL_2D of everything, where both round alike."""
    return rewrite(graph, _mean_to_pool)


def _mean_to_pool(graph: Graph, node: Node) -> Edit | None:
    """MEAN(x[N, H, W, C], axes 1 and 2) -> RESHAPE(AVERAGE_POOL_2D(x, kernel HxW)).

    float32: always, both sum in the same order and divide. int8: if scale and zero point stay, and both give the same for every
    sum of H * W int8 numbers. MEAN multiplies, rounds to whole units and only then halves, so that this holds for few sizes
    (1 and 3 elements, say); where it does not, MEAN stays.
    """
    if node.op != "MEAN":
        return None
    site = graph.site(node)
    data, axes = site.input(0), site.input(1).data
    if len(data.shape) != 4 or axes is None or {int(axis) % 4 for axis in axes.reshape(-1)} != {1, 2} or 0 in data.shape:
        return None
    if not same_type(data, site.output) or data.dtype not in (DType.FLOAT32, DType.INT8):
        return None
    n, height, width, channels = data.shape
    attributes = Pool2D((height, width), (height, width), "valid", "none")
    if data.dtype is not DType.FLOAT32 and not _means_agree(site, attributes):
        return None
    pooled = replace(site.output, name=fresh(graph, f"{site.output.name}_pool"), shape=(n, 1, 1, channels), label="")
    pool = Node("AVERAGE_POOL_2D", (data.name,), (pooled.name,), attributes, node.index)
    view = Node("RESHAPE", (pooled.name,), node.outputs, Reshape(site.output.shape), node.index)
    return Edit((pool, view), values=(pooled,))


def _means_agree(site: Site, attributes: Pool2D) -> bool:
    """Whether MEAN and AVERAGE_POOL_2D give the same for every sum."""
    data, (_, height, width, _) = site.input(0), site.input(0).shape
    count = height * width
    if count > MAX_MEAN_COUNT:
        return False
    sums = np.arange(-128 * count, 127 * count + 1)
    least, larger = np.divmod(sums, count)
    rows = (least.astype(np.int8)[:, None] + (np.arange(count) < larger[:, None])).reshape(len(sums), height, width, 1)
    small = replace(data, shape=rows.shape, data=None)
    out = (len(sums), 1, 1, 1)
    keep = replace(site.node, attributes=replace(site.node.attributes, keep_dims=True))  # type: ignore[type-var]
    mean = Site(keep, (small, site.input(1)), (replace(site.output, shape=out),))
    pool = Site(replace(site.node, op="AVERAGE_POOL_2D", attributes=attributes), (small,), mean.outputs)
    means = OPERATORS["MEAN"].compute(mean, rows, site.input(1).data)[0]
    return np.array_equal(means, OPERATORS["AVERAGE_POOL_2D"].compute(pool, rows)[0])


def merge_requantisations(graph: Graph) -> Graph:
    """Two changes of quantisation in a row -> one, where every 8-bit number comes out the same."""
    return rewrite(graph, _merge_requantisation)


def _merge_requantisation(graph: Graph, node: Node) -> Edit | None:
    """QUANTIZE(QUANTIZE(x)), QUANTIZE(DEQUANTIZE(x)) -> QUANTIZE(x), if equal for each of x's 256 values."""
    inner = producer(graph, node.inputs[0], "QUANTIZE", "DEQUANTIZE") if node.op == "QUANTIZE" else None
    if inner is None:
        return None
    first, second = graph.site(inner), graph.site(node)
    source = first.input(0)
    if source.dtype not in BYTES or source.is_variable:
        return None
    direct = Node("QUANTIZE", (source.name,), node.outputs, node.attributes, node.index)
    merged = Site(direct, (source,), second.outputs)
    if not _is_supported(merged):
        return None
    x = _every(source)
    (between,) = OPERATORS[inner.op].compute(first, x)
    (after,) = OPERATORS[node.op].compute(second, between)
    return Edit((direct,)) if np.array_equal(after, OPERATORS["QUANTIZE"].compute(merged, x)[0]) else None


def _is_supported(site: Site) -> bool:
    try:
        OPERATORS[site.node.op].check(site)
    except CompileError:
        return False
    return True


def _every(value: Value) -> np.ndarray:
    low, high = value.dtype.limits
    return np.arange(low, high + 1).astype(value.dtype.np)
