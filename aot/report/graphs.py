"""The model's graph as read, and what became of it: nodes, and who reads whose result.

Enters: an entry. Leaves: dictionaries of `nodes` and `edges` (pairs of node numbers, from an earlier node to a later one).
Invariant: a node of the model's graph names the layers that compute it, a node of the fused graph the model's nodes that it computes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aot.bundle import Entry
    from aot.lower.program import Program
    from aot.report.places import Names


class _Drawing:
    """Nodes and edges, while they come."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.edges: dict[tuple[int, int], None] = {}
        self.makers: dict[str, list[int]] = {}

    def add(self, kind: str, title: str, detail: str, reads: Iterable[str], makes: Iterable[str], **more: Any) -> None:
        """A node; edges come from all that have made what it reads."""
        number = len(self.nodes)
        self.nodes.append({"kind": kind, "title": title, "detail": detail, **more})
        for name in reads:
            self.edges.update(((maker, number), None) for maker in self.makers.get(name, ()) if maker != number)
        for name in makes:
            self.makers.setdefault(name, []).append(number)

    def made(self) -> dict[str, Any]:
        return {"nodes": self.nodes, "edges": [list(edge) for edge in sorted(self.edges)]}


def model_graph(entry: Entry) -> dict[str, Any] | None:
    """The nodes as read, with inputs and outputs; None where the model is not at hand."""
    graph = entry.graph
    if graph is None:
        return None
    drawing = _Drawing()
    for name in graph.inputs:
        drawing.add("input", graph[name].label or name, _type(graph[name].dtype, graph[name].shape), (), (name,))
    for variable in (value for value in graph.values if value.is_variable and value.name not in graph.inputs):
        drawing.add("state", variable.label or variable.name, _type(variable.dtype, variable.shape), (), (variable.name,))
    layers: dict[int, list[int]] = {}
    for number, layer in enumerate(entry.layers):
        for index in layer.nodes:
            layers.setdefault(index, []).append(number)
    for node in graph.nodes:
        out = graph[node.outputs[0]] if node.outputs else None
        detail = "" if out is None else _type(out.dtype, out.shape)
        reads = [name for name in node.inputs if name is not None]
        inner = sum(len(each.nodes) for each in node.graphs)
        drawing.add(
            "node",
            node.op,
            detail,
            reads,
            node.outputs,
            node=node.index,
            layers=layers.get(node.index, []),
            label="" if out is None else out.label or out.name,
            inner_nodes=inner,
        )
    for name in graph.outputs:
        drawing.add("output", graph[name].label or name, _type(graph[name].dtype, graph[name].shape), (name,), ())
    return drawing.made()


def fused_graph(entry: Entry, names: Names) -> dict[str, Any] | None:
    """The layers, with inputs and outputs; None where there is no Plan."""
    if entry.plan is None:
        return None
    program = entry.plan.schedule.program
    drawing = _Drawing()
    for name in dict.fromkeys(map(program.storage, program.inputs)):
        drawing.add("input", names.buffer(name), _type_of(program, name), (), (name,))
    for state in (buffer.name for buffer in program.buffers if buffer.role == "state" and buffer.base is None):
        drawing.add("state", names.buffer(state), _type_of(program, state), (), (state,))
    for position, number in sorted(names.layer_at.items()):
        layer, one = entry.layers[number], entry.plan.schedule.choices[position].implementation
        drawing.add(
            "layer",
            layer.kernel,
            _type_of(program, one.writes[0]),
            map(program.storage, one.reads),
            map(program.storage, one.writes),
            layer=number,
            model_nodes=list(layer.nodes),
            label="+".join(layer.operators),
        )
    for name in dict.fromkeys(map(program.storage, program.outputs)):
        drawing.add("output", names.buffer(name), _type_of(program, name), (name,), ())
    return drawing.made()


def _type_of(program: Program, name: str) -> str:
    return _type(program[name].dtype, program[name].shape)


def _type(dtype: object, shape: Sequence[int]) -> str:
    """`int8 1x49x10x1`."""
    return f"{dtype} {'x'.join(map(str, shape))}".strip()
