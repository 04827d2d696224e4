"""Variables of a file while it is read: what keeps its content from one run to the next becomes plain data flow.

Enters: nodes as the file has them, one subgraph after the other. Leaves: names of the values that nodes read instead of variables,
`Graph.updates`, and initial contents.
Invariant: no node that is left has a side effect. VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE and CALL_ONCE are gone; a node that
changes a variable has the new content as a further output; a node that runs sub-graphs gets and gives their variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

import numpy as np

from aot.errors import CompileError, InternalError
from aot.graph.ir import Graph, Node, Shape, Value
from aot.graph.operator import Operator, may_fold
from aot.graph.shapes import can_be_compiled

MAX_INITIAL_NBYTES = 1 << 24
"""Bytes that an initialisation may compute, all its values together: it runs while the model is read."""


class Variables:
    """The variables of a file: their types, and what they hold before the first run."""

    def __init__(self, operators: Mapping[str, Operator]) -> None:
        self.operators = operators
        self.named: dict[object, str] = {}
        self.types: dict[str, tuple[object, Shape]] = {}
        self.initial: dict[str, np.ndarray] = {}

    def name(self, key: object) -> str:
        """The value name of the resource with this key (container and shared name)."""
        return self.named.setdefault(key, f"variable{len(self.named)}")

    def check(self, name: str, value: Value) -> None:
        """CompileError if the variable is used with another type or shape elsewhere, or with a type that it can't hold."""
        if not can_be_compiled(value.dtype):
            raise CompileError(f"'{value.title}' is {value.dtype}, which a variable can't hold")
        found = self.types.setdefault(name, (value.dtype, value.shape))
        if found != (value.dtype, value.shape):
            raise CompileError(f"'{value.title}' has another type or shape than its variable has elsewhere")

    def run_once(self, graph: Graph) -> None:
        """Run an initialisation graph now: what it assigns is what the variables hold before the first run.

        CompileError if it can't be run at compile time: it has inputs, may not end, or computes too much.
        """
        self._require_short(graph)
        arrays = {value.name: value.data for value in graph.values if value.data is not None}
        arrays |= {value.name: self.initial.get(value.name, value.content) for value in graph.values if value.is_variable}
        for node in graph.nodes:
            site = graph.site(node)
            results = self.operators[node.op].compute(site, *(None if name is None else arrays[name] for name in node.inputs))
            arrays.update(zip(node.outputs, results, strict=True))
        for variable, name in graph.updates:
            self.initial[variable] = np.array(arrays[name]).reshape(graph[variable].shape)

    def _require_short(self, graph: Graph) -> None:
        if graph.inputs:
            raise CompileError(f"the initialisation in {graph.name} has inputs")
        for node in graph.nodes:
            if not may_fold(node, self.operators):
                raise CompileError(f"the initialisation in {graph.name} has a {node.op} that can't be run at compile time")
        if graph.computed_nbytes > MAX_INITIAL_NBYTES:
            raise CompileError(
                f"the initialisation in {graph.name} computes {graph.computed_nbytes} bytes, more than {MAX_INITIAL_NBYTES}"
            )

    def reset(self, name: str, value: Value) -> None:
        """A variable that is assigned `value` somewhere holds that one's zero point before the first run, in each of its bytes."""
        if name not in self.initial:
            zero = value.quantisation.zero_point if value.quantisation and value.quantisation.zero_points else 0
            content = np.full(value.nbytes, zero & 255, np.uint8)
            self.initial[name] = content.view(value.dtype.np).reshape(value.shape)

    def initialised(self, graph: Graph) -> Graph:
        """The graph with the initial contents that are known by now."""
        values = (
            replace(value, initial=self.initial[value.name]) if value.is_variable and value.name in self.initial else value
            for value in graph.values
        )
        return replace(graph, values=tuple(values))


class States:
    """The variables of one subgraph: what they hold at the point up to which it has been read."""

    def __init__(self, file: Variables, prefix: str) -> None:
        self.file, self.prefix = file, prefix
        self.handles: dict[str, str] = {}
        self.values: dict[str, Value] = {}
        self.now: dict[str, str] = {}
        self.changed: dict[str, str] = {}

    @property
    def updates(self) -> tuple[tuple[str, str], ...]:
        return tuple(self.changed.items())

    def current(self, name: str) -> str:
        """What a node reads that the file says reads `name`."""
        return self.now.get(name, name)

    def handle(self, handle: str, key: object) -> None:
        """VAR_HANDLE: `handle` stands for the variable of this key."""
        self.handles[handle] = self.file.name(key)

    def initialise(self, graph: Graph) -> None:
        """CALL_ONCE: what the graph assigns is there from the start."""
        for variable, _ in graph.updates:
            if variable in self.values:
                raise CompileError(f"{graph.name} initialises a variable that has been used before it")
        self.file.run_once(graph)

    def read(self, handle: str, out: Value) -> None:
        """READ_VARIABLE: whoever reads `out` reads what the variable holds by now."""
        name = self._named(handle, out)
        value = self.values[self.now.get(name, name)]
        if value.quantisation != out.quantisation and out.dtype.is_integer:
            raise CompileError(f"'{out.title}' has another quantisation than what was assigned to its variable")
        self.now[out.name] = value.name

    def assign(self, handle: str, value: Value) -> None:
        """ASSIGN_VARIABLE: the variable holds `value` from now on."""
        name = self._named(handle, value)
        self.file.reset(name, value)
        self.values[value.name] = value
        self.now[name] = self.changed[name] = value.name

    def _named(self, handle: str, value: Value) -> str:
        name = self.handles.get(handle)
        if name is None:
            raise CompileError("its resource does not come from a VAR_HANDLE in the same subgraph")
        self.file.check(name, value)
        self.values.setdefault(name, replace(value, name=name, data=None, is_variable=True))
        return name

    def update(self, variable: Value, node: int) -> str:
        """A node changes a variable: the name of its new content, an output of that node."""
        self.values.setdefault(variable.name, variable)
        content = f"{variable.name}_after{node}"
        self.values[content] = replace(variable, name=content, data=None, is_variable=False, initial=None)
        self.now[variable.name] = self.changed[variable.name] = content
        return content

    def with_state(self, node: Node, operator: Operator, inputs: Sequence[Value | None]) -> Node:
        """The node with its state as further inputs and outputs. `inputs`: the values that it reads in the file, variables as such.

        CompileError if an input that the operator changes is no variable.
        """
        reads = list(node.inputs)
        changed: list[Value] = []
        for position in operator.variables:
            value = inputs[position] if position < len(inputs) else None
            if value is not None and not value.is_variable:
                raise CompileError(f"its input {position} '{value.title}' must be a variable")
            if value is not None and value.name in [other.name for other in changed]:
                raise CompileError(f"changes the variable '{value.title}' twice")
            changed += [value] if value is not None else []
        for memory in operator.memories(node.attributes, tuple(inputs)):
            name = f"{self.prefix}node{node.index}_{memory.purpose}"
            if memory.initial is not None:
                self.file.initial[name] = np.array(memory.initial, order="C")
            variable = Value(name, memory.dtype, memory.shape, label=memory.purpose, is_variable=True)
            self.values[name] = variable
            reads.append(name)
            changed.append(variable)
        outputs = tuple(self.update(variable, node.index) for variable in changed)
        return replace(node, inputs=tuple(reads), outputs=(*node.outputs, *outputs))

    def with_graphs(self, node: Node, graphs: Sequence[Graph]) -> Node:
        """The node with the graphs that it runs; their variables become further inputs and outputs of node and graphs alike."""
        variables = {value.name: value for graph in graphs for value in graph.values if value.is_variable}
        for name, value in variables.items():
            self.values.setdefault(name, value)
        reads = tuple(self.current(name) for name in variables)
        outputs = tuple(self.update(value, node.index) for value in variables.values())
        closed = tuple(_closed(graph, variables) for graph in graphs)
        return replace(node, inputs=(*node.inputs, *reads), outputs=(*node.outputs, *outputs), graphs=closed)


def _closed(graph: Graph, variables: Mapping[str, Value]) -> Graph:
    """The graph with these variables as its last inputs, and their contents after a run as its last outputs."""
    if not variables:
        return graph
    held = {name: replace(value, is_variable=False, initial=None) for name, value in variables.items()}
    values = tuple({**held, **{value.name: held.get(value.name, value) for value in graph.values}}.values())
    after = dict(graph.updates)
    outputs = tuple(after.get(name, name) for name in variables)
    return replace(graph, values=values, inputs=(*graph.inputs, *variables), outputs=(*graph.outputs, *outputs), updates=())


def refuse_resource(*_: object) -> NoReturn:
    """The meaning of an operator that the reader resolves, and that no graph holds."""
    raise InternalError("a resource operator is left in a graph")
