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


def run(graph: Graph, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The graph's outputs, in its order, for one array per input. CompileError for inputs that do not fit the graph."""
    arrays = run_all(graph, inputs)
    return [arrays[name] for name in graph.outputs]


def run_all(graph: Graph, inputs: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Every value by its name: constants, inputs, what the nodes compute. Variables start at real 0.

    CompileError for inputs that do not fit the graph, and for an operator that has no meaning here.
    """
    arrays = _start(graph, inputs)
    for node in graph.nodes:
        _step(graph, node, arrays)
    return arrays


def _start(graph: Graph, inputs: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    if len(inputs) != len(graph.inputs):
        raise CompileError(f"the model has {len(graph.inputs)} inputs but {len(inputs)} arrays were given")
    arrays = {value.name: value.data for value in graph.values if value.data is not None}
    arrays |= {value.name: _initial(value) for value in graph.values if value.is_variable and value.data is None}
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


def _initial(value: Value) -> np.ndarray:
    zero = value.quantisation.zero_point if value.quantisation and value.quantisation.zero_points else 0
    return np.full(value.shape, zero, value.dtype.np)


def _dims(value: Value) -> str:
    return "x".join(map(str, value.shape))
