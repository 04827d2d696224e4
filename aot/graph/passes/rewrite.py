"""Rewriting a graph: rules answer with an `Edit`, which is applied until no rule fires.

Enters: a graph and rules. Leaves: a graph without the values that nothing names any more.
Invariant: a model's inputs and outputs keep their names, order, types and shapes; nodes stay in topological order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    renames: Mapping[str, str] = field(default_factory=dict[str, str])


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
    return rebuild(graph, _needed(nodes, graph.results), edit.values)


def without_dead_nodes(graph: Graph) -> Graph:
    """The graph without the nodes that no output depends on, in this run or a later one."""
    graph = _without_dead_updates(graph)
    kept = _needed(graph.nodes, graph.results)
    return graph if len(kept) == len(graph.nodes) else rebuild(graph, kept)


def _without_dead_updates(graph: Graph) -> Graph:
    """Without the updates of variables whose content no output ever depends on."""
    live: set[str] = set()
    while True:
        needed = set(graph.outputs) | {value for variable, value in graph.updates if variable in live}
        for node in _needed(graph.nodes, needed):
            needed.update(filter(None, node.inputs))
        found = {variable for variable, _ in graph.updates if variable in needed}
        if found == live:
            break
        live = found
    updates = tuple(pair for pair in graph.updates if pair[0] in live)
    return graph if updates == graph.updates else rebuild(replace(graph, updates=updates), graph.nodes)


def _needed(nodes: Sequence[Node], results: Iterable[str]) -> list[Node]:
    """The nodes that a result depends on."""
    needed: set[str | None] = set(results)
    kept: list[Node] = []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.outputs):
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
    names.update(dict.fromkeys((*graph.outputs, *(name for pair in graph.updates for name in pair))))
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
    return name not in graph.results and graph.readers.get(name, ()) == (node,)


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

    None where that would make a result of the graph the same value as an input, a constant, a variable or another result.
    """
    (out,) = node.outputs
    value = graph[source]
    if value.is_variable or value.shape != graph[out].shape or not same_type(value, graph[out]):
        return None
    if out not in graph.results:
        return Edit(renames={out: source})
    if source in graph.producers and source not in graph.results:
        return Edit(renames={source: out})
    return None
