"""Passes over nodes that run sub-graphs: what is known to run once is put in line.

Enters: a graph. Leaves: a graph with fewer nodes that run others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from aot.graph.ir import Graph, Node, Value
from aot.graph.ops.views import Reshape
from aot.graph.passes.rewrite import rebuild, same_type, without_dead_nodes

MAX_INLINED = 10_000
"""Nodes that a graph may have before no more is put in line."""


def inline_subgraphs(graph: Graph) -> Graph:
    """STABLEHLO_COMPOSITE -> its decomposition; IF with a constant condition -> the branch that it takes."""
    values, nodes = dict(graph.by_name), list[Node]()
    waiting = list(reversed(graph.nodes))
    while waiting:
        node = waiting.pop()
        inner = _single_graph(values, node)
        if inner is None or len(nodes) + len(waiting) + len(inner.nodes) > MAX_INLINED:
            nodes.append(node)
        else:
            waiting += reversed(_inlined(values, node, inner))
    if len(nodes) == len(graph.nodes) and all(map(lambda new, old: new is old, nodes, graph.nodes)):
        return graph
    return without_dead_nodes(rebuild(graph, nodes, values.values()))


def _inlined(values: dict[str, Value], node: Node, inner: Graph) -> list[Node]:
    """y = composite(x) -> the nodes of its graph, with values of their own names, which are added. The last ones write y.

    What is no node's output in that graph, or has another quantisation there than here, is handed on by a RESHAPE to its own shape.
    """
    prefix = f"{node.outputs[0]}_body" if node.outputs else f"node{node.index}_body"
    while any(f"{prefix}_{value.name}" in values for value in inner.values):
        prefix += "_"
    names = {value.name: f"{prefix}_{value.name}" for value in inner.values}
    nodes: list[Node] = []
    outer = node.inputs[len(node.inputs) - len(inner.inputs) :]
    for name, given in zip(inner.inputs, outer, strict=True):
        assert given is not None
        if same_type(inner[name], values[given]):
            names[name] = given
        else:
            nodes.append(_same(given, names[name], inner[name], node.index))
    handed: list[tuple[str, str]] = []
    for out, name in zip(node.outputs, inner.outputs, strict=True):
        if name in inner.producers and names[name] not in node.outputs and same_type(inner[name], values[out]):
            names[name] = out
        else:
            handed.append((name, out))
    for value in inner.values:
        values.setdefault(names[value.name], replace(value, name=names[value.name]))
    nodes += [_renamed(each, names, node.index) for each in inner.nodes]
    return nodes + [_same(names[name], out, values[out], node.index) for name, out in handed]


def _renamed(node: Node, names: Mapping[str, str], index: int) -> Node:
    inputs, outputs = tuple(name and names[name] for name in node.inputs), tuple(names[name] for name in node.outputs)
    return replace(node, inputs=inputs, outputs=outputs, index=index)


def _same(source: str, out: str, value: Value, index: int) -> Node:
    """The same bytes as another value, whose quantisation may differ."""
    return Node("RESHAPE", (source,), (out,), Reshape(value.shape), index)


def _single_graph(values: Mapping[str, Value], node: Node) -> Graph | None:
    """The graph that a node certainly runs, once."""
    if node.op == "STABLEHLO_COMPOSITE":
        return node.graphs[0]
    condition = values[node.inputs[0]].data if node.op == "IF" and node.inputs[0] is not None else None
    return None if condition is None else node.graphs[0 if condition.reshape(-1)[0] else 1]
