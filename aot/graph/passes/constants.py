"""Passes over constants and what is not needed: folding, sharing, dead nodes.

Enters: a graph. Leaves: a graph that computes less, with the same outputs bit for bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from aot.graph.ir import Graph, Node, Value
from aot.graph.operator import may_fold
from aot.graph.ops import OPERATORS
from aot.graph.passes.rewrite import Edit, rebuild, rewrite, without_dead_nodes
from aot.graph.shapes import SHAPE_READERS, has_elements

GROWTH, SMALL_NBYTES = 4, 64 << 10
"""A result folds if it has at most SMALL_NBYTES, or at most GROWTH times the constants that it comes from; but none gets larger
than GROWTH times all constants of the graph, however long the chain."""


def fold_constants(graph: Graph) -> Graph:
    """op(constants) -> constant, unless the read-only data would grow too much; SHAPE of anything -> constant."""
    limit = GROWTH * sum(value.nbytes for value in graph.values if value.is_constant)
    return rewrite(graph, lambda graph, node: _fold(graph, node, limit))


def _fold(graph: Graph, node: Node, limit: int) -> Edit | None:
    """y = op(constants...) -> constant y, if y is small or not much larger than its inputs."""
    if not may_fold(node, OPERATORS) or not node.outputs or any(graph[name].is_constant for name in node.outputs):
        return None
    arrays = [_known(graph, node, name) for name in node.inputs]
    if any(array is None and name is not None for array, name in zip(arrays, node.inputs)):
        return None
    outputs = [graph[name] for name in node.outputs]
    before = sum(graph[name].nbytes for name in dict.fromkeys(filter(None, node.inputs)) if graph[name].is_constant)
    after = sum(value.nbytes for value in outputs)
    if after > SMALL_NBYTES and after > min(limit, GROWTH * before):
        return None
    results = OPERATORS[node.op].compute(graph.site(node), *arrays)
    return Edit(values=tuple(replace(value, data=np.array(array)) for value, array in zip(outputs, results, strict=True)))


def _known(graph: Graph, node: Node, name: str | None) -> np.ndarray | None:
    """A constant's data; for a node that reads no more than a shape, zeros without memory."""
    value = None if name is None else graph[name]
    if value is None or value.is_variable:
        return None
    if value.data is None and node.op in SHAPE_READERS and has_elements(value.dtype):
        return np.broadcast_to(np.zeros((), value.dtype.np), value.shape)
    return value.data


def remove_dead_nodes(graph: Graph) -> Graph:
    """Nodes and updates of variables that no output depends on, in this run or a later one -> nothing."""
    return without_dead_nodes(graph)


def common_subexpressions(graph: Graph) -> Graph:
    """y = op(x), z = op(x) -> y = op(x), z := y, where op and attributes and the outputs' types are the same.

    Constants of the same type and content become one. Results of the graph stay values of their own, and what does not fold stays.
    """
    first: dict[Hashable, tuple[str, ...]] = {}
    renames: dict[str, str] = {}
    for value in graph.values:
        if value.data is not None and value.name not in graph.results:
            _share(first, (_type(value), hashlib.sha256(value.data.tobytes()).digest()), (value.name,), renames)
    nodes: list[Node] = []
    for node in graph.nodes:
        node = replace(node, inputs=tuple(renames.get(name, name) if name is not None else None for name in node.inputs))
        outputs = tuple(_type(graph[name]) for name in node.outputs)
        key = (node.op, node.inputs, node.attributes, outputs, tuple(map(id, node.graphs)))
        may_go = may_fold(node, OPERATORS) and not any(name in graph.results for name in node.outputs)
        if not (may_go and _share(first, key, node.outputs, renames)):
            nodes.append(node)
    return rebuild(graph, nodes)


def _share(first: dict[Hashable, tuple[str, ...]], key: Hashable, names: tuple[str, ...], renames: dict[str, str]) -> bool:
    """Rename `names` to those that came first under this key; False if these are the first."""
    known = first.setdefault(key, names)
    if known is names:
        return False
    renames.update(zip(names, known, strict=True))
    return True


def _type(value: Value) -> Hashable:
    return value.dtype, value.shape, value.quantisation
