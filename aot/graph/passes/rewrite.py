"""Rewriting a graph: rules answer with an `Edit`, which is applied until no rule fires.

Enters: a graph and rules. Leaves: a graph without the values that nothing names any more.
Invariant: a model's inputs and outputs keep their names, order, types and shapes; nodes stay in topological order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aot.errors import InternalError
from aot.graph.ir import Graph, Node, Value


@dataclass(frozen=True)
class Edit:
    """What a rule does about the node that it was shown.

    nodes: stand in the node's place (none: it goes). drop: other nodes that go. values: new ones, or others of known names.
    renames: old name to new, wherever a node that stays reads or writes it.
    """

    nodes: tuple[Node, ...] = ()
    drop: tuple[Node, ...] = ()
    values: tuple[Value, ...] = ()
    renames: Mapping[str, str] = field(default_factory=dict)


Rule = Callable[[Graph, Node], Edit | None]


def rewrite(graph: Graph, *rules: Rule) -> Graph:
    """The graph after every edit of these rules, node by node from the first, again from the start until nothing changes."""
    left = 100 + 20 * len(graph.nodes)
    changed = True
    while changed:
        changed = False
        position = 0
        while position < len(graph.nodes):
            node = graph.nodes[position]
            edit = next((found for rule in rules if (found := rule(graph, node)) is not None), None)
            if edit is None:
                position += 1
                continue
            left -= 1
            if left < 0:
                raise InternalError(f"graph {graph.name}: rules undo each other at {node}")
            count = len(graph.nodes)
            graph, changed = apply(graph, node, edit), True
            position = max(0, position - max(0, count - len(graph.nodes)))
    return graph


def apply(graph: Graph, node: Node, edit: Edit) -> Graph:
    """The graph with this node edited, without the nodes that nothing reads after that (they would hold on to what they read)."""
    nodes: list[Node] = []
    gone = {id(dropped) for dropped in edit.drop}
    for kept in graph.nodes:
        if kept is node:
            nodes += edit.nodes
        elif id(kept) not in gone:
            nodes.append(_renamed(kept, edit.renames) if edit.renames else kept)
    variables = {value.name for value in (*graph.values, *edit.values) if value.is_variable}
    return rebuild(graph, _needed(nodes, graph.outputs, variables), edit.values)


def without_dead_nodes(graph: Graph) -> Graph:
    """The graph without the nodes that no output depends on. A node that touches a variable, or has no outputs, stays."""
    kept = _needed(graph.nodes, graph.outputs, {value.name for value in graph.values if value.is_variable})
    return graph if len(kept) == len(graph.nodes) else rebuild(graph, kept)


def _needed(nodes: Sequence[Node], outputs: Iterable[str], variables: Collection[str]) -> list[Node]:
    """The nodes that an output depends on, that touch a variable, or that have no outputs."""
    needed: set[str | None] = set(outputs)
    kept: list[Node] = []
    for node in reversed(nodes):
        if not node.outputs or not needed.isdisjoint(node.outputs) or (variables and not set(node.inputs).isdisjoint(variables)):
            kept.append(node)
            needed.update(node.inputs)
    return kept[::-1]


def rebuild(graph: Graph, nodes: Iterable[Node], values: Iterable[Value] = ()) -> Graph:
    """The graph of these nodes, with the values that they and its inputs and outputs name, in the order of their first use."""
    nodes = tuple(nodes)
    known = {**graph.by_name, **{value.name: value for value in values}}
    names = dict.fromkeys(graph.inputs)
    for node in nodes:
        for name in (*node.inputs, *node.outputs):
            if name is not None:
                names[name] = None
    names.update(dict.fromkeys(graph.outputs))
    return replace(graph, values=tuple(known[name] for name in names), nodes=nodes)


def _renamed(node: Node, renames: Mapping[str, str]) -> Node:
    inputs = tuple(renames.get(name, name) if name is not None else None for name in node.inputs)
    outputs = tuple(renames.get(name, name) for name in node.outputs)
    return node if (inputs, outputs) == (node.inputs, node.outputs) else replace(node, inputs=inputs, outputs=outputs)


# What rules ask of a graph.


def producer(graph: Graph, name: str | None, *ops: str) -> Node | None:
    """The node that computes this value, if it is one of these operators."""
    node = graph.producers.get(name) if name is not None else None
    return node if node is not None and node.op in ops else None


def is_only_reader(graph: Graph, node: Node, name: str) -> bool:
    """Whether nothing but this node needs the value."""
    return name not in graph.outputs and graph.readers.get(name, ()) == (node,)


def is_stateful(graph: Graph, node: Node) -> bool:
    """Whether a node may do more than compute its outputs: it has none, or it touches a variable."""
    return not node.outputs or any(graph[name].is_variable for name in filter(None, node.inputs))


def same_type(value: Value, other: Value) -> bool:
    """Whether two values hold the same numbers when they hold the same bytes: type and, for integers, quantisation."""
    return value.dtype is other.dtype and (value.dtype.is_float or value.quantisation == other.quantisation)


def fresh(graph: Graph, name: str) -> str:
    """`name`, or with the first number after it that no value has."""
    found, count = name, 1
    while found in graph.by_name:
        found, count = f"{name}_{count}", count + 1
    return found


def bypass(graph: Graph, node: Node, source: str) -> Edit | None:
    """Remove a node whose only output equals the value `source`.

    None where that would make a model output the same value as an input, a constant, a variable or another output.
    """
    (out,) = node.outputs
    value = graph[source]
    if value.is_variable or value.shape != graph[out].shape or not same_type(value, graph[out]):
        return None
    if out not in graph.outputs:
        return Edit(renames={out: source})
    if source in graph.producers and source not in graph.outputs:
        return Edit(renames={source: out})
    return None
