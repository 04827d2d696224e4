"""The numpy interpreter: what a graph means, from each operator's `compute`. Slow and exact; compiled code is compared with it.

Enters: a Graph and arrays for its inputs. Leaves: arrays of its outputs, or of every value.
Invariant: every array has the shape and dtype of its value; constants and inputs are never written.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.errors import CompileError, InternalError
from aot.graph.ir import Graph, Node, Value
from aot.graph.ops import OPERATORS

State = dict[str, np.ndarray]
"""What variables hold between runs, by name. One that is not in it holds its initial content."""


def run(graph: Graph, inputs: Sequence[np.ndarray], state: State | None = None) -> list[np.ndarray]:
    """The graph's outputs, in its order, for one array per input. `state` is brought up to date.

    CompileError for inputs that do not fit the graph.
    """
    arrays = run_all(graph, inputs, state)
    return [arrays[name] for name in graph.outputs]


def run_all(graph: Graph, inputs: Sequence[np.ndarray], state: State | None = None) -> dict[str, np.ndarray]:
    """Every value by its name: constants, inputs, what variables held before, what the nodes compute. `state` is brought up to date.

    CompileError for inputs that do not fit the graph, and for an operator that has no meaning here.
    """
    state = {} if state is None else state
    arrays = _start(graph, inputs, state)
    for node in graph.nodes:
        _step(graph, node, arrays)
    state.update({variable: arrays[name].reshape(graph[variable].shape) for variable, name in graph.updates})
    return arrays


def _start(graph: Graph, inputs: Sequence[np.ndarray], state: State) -> dict[str, np.ndarray]:
    if len(inputs) != len(graph.inputs):
        raise CompileError(f"the model has {len(graph.inputs)} inputs but {len(inputs)} arrays were given")
    arrays = {value.name: value.data for value in graph.values if value.data is not None}
    arrays |= {value.name: state.get(value.name, value.content) for value in graph.values if value.is_variable}
    for position, (name, array) in enumerate(zip(graph.inputs, inputs)):
        value = graph[name]
        if array.shape != value.shape or array.dtype != value.dtype.np:
            shape = "x".join(map(str, array.shape))
            raise CompileError(
                f"is {value.dtype}[{_dims(value)}] but the array given is {array.dtype}[{shape}]", where=f"input {position}"
            )
        arrays[name] = array
    return arrays


def _step(graph: Graph, node: Node, arrays: dict[str, np.ndarray]) -> None:
    site = graph.site(node)
    operator = OPERATORS.get(node.op)
    if operator is None:
        raise site.error("this operator is not supported")
    outputs = operator.compute(site, *(None if name is None else arrays[name] for name in node.inputs))
    for value, array in zip(site.outputs, outputs, strict=True):
        if array.shape != value.shape or array.dtype != value.dtype.np:
            raise InternalError(f"{site.where} computed {array.dtype}{array.shape} for {value}")
        arrays[value.name] = array


def _dims(value: Value) -> str:
    return "x".join(map(str, value.shape))
