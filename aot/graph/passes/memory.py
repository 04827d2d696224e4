"""The pass that lets a sliding window of past inputs live in the state itself, instead of being put together in every run.

Enters: a graph. Leaves: a graph whose variables may be wider, with the same outputs in every run.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aot.graph.ir import DType, Graph, Node, Value
from aot.graph.ops import OPERATORS
from aot.graph.ops.joining import Concatenation
from aot.graph.passes.rewrite import fresh, rebuild, same_type

PARTS = ("STRIDED_SLICE", "SLICE", "SPLIT", "SPLIT_V", "RESHAPE")
"""Operators that only take parts of a value, or name it anew; the position of what they read: SPLIT's is 1, else 0."""


def widen_variables(graph: Graph) -> Graph:
    """c = CONCATENATION(v, x), v := the end of c  ->  c = CONCATENATION(the end of w, x), w := c.

    If: nothing else reads the variable v, and what is assigned to it are the last elements of c along the axis, as many as v has. The
    new variable w then holds what c held; it is renewed by a shift in place, and whatever reads c reads the state itself.
    """
    for variable, value in graph.updates:
        widened = _widened(graph, graph[variable], value)
        graph = graph if widened is None else widened
    return graph


def _widened(graph: Graph, variable: Value, assigned: str) -> Graph | None:
    readers = graph.readers.get(variable.name, ())
    if len(readers) != 1 or variable.name in graph.results:
        return None
    join = readers[0]
    if join.op != "CONCATENATION" or join.inputs[0] != variable.name or join.inputs.count(variable.name) != 1:
        return None
    whole = graph[join.outputs[0]]
    assert isinstance(join.attributes, Concatenation)
    number = join.attributes.axis % len(whole.shape)
    before = whole.shape[number] - variable.shape[number]
    if (
        join.attributes.activation != "none"
        or not same_type(variable, whole)
        or not _is_end(graph, whole, assigned, number, before)
    ):
        return None
    padding = np.zeros((*whole.shape[:number], before, *whole.shape[number + 1 :]), whole.dtype.np)
    wide = replace(
        whole,
        name=fresh(graph, f"{variable.name}_wide"),
        label=variable.label,
        is_variable=True,
        initial=np.concatenate([padding, variable.content], number),
    )
    begins = [before if axis == number else 0 for axis in range(len(whole.shape))]
    begin = _constant(graph, f"{variable.name}_begin", begins)
    size = _constant(graph, f"{variable.name}_size", variable.shape)
    old = replace(variable, name=fresh(graph, f"{variable.name}_old"), is_variable=False, initial=None)
    part = Node("SLICE", (wide.name, begin.name, size.name), (old.name,), None, join.index)
    joined = replace(join, inputs=(old.name, *join.inputs[1:]))
    nodes = [new for node in graph.nodes for new in ((part, joined) if node is join else (node,))]
    updates = tuple((wide.name, whole.name) if name == variable.name else (name, value) for name, value in graph.updates)
    return rebuild(replace(graph, updates=updates), nodes, (wide, begin, size, old))


def _constant(graph: Graph, name: str, numbers: object) -> Value:
    data = np.array(numbers, np.int32)
    return Value(fresh(graph, name), DType.INT32, data.shape, None, data)


def _is_end(graph: Graph, whole: Value, name: str, number: int, before: int) -> bool:
    """Whether a value is made of the elements of `whole` from position `before` of an axis on, in order."""
    positions = np.arange(whole.size, dtype=np.int64).reshape(whole.shape)
    end = np.take(positions, range(before, whole.shape[number]), number)
    found = _positions(graph, whole.name, positions, name)
    return found is not None and found.size == end.size and bool((found.reshape(-1) == end.reshape(-1)).all())


def _positions(graph: Graph, whole: str, positions: np.ndarray, name: str) -> np.ndarray | None:
    """Which elements of `whole` a value is made of; None if it is not made by taking parts alone."""
    if name == whole:
        return positions
    node = graph.producers.get(name)
    if node is None or node.op not in PARTS:
        return None
    moved = 1 if node.op == "SPLIT" else 0
    source = node.inputs[moved]
    inner = None if source is None else _positions(graph, whole, positions, source)
    arrays = [None if each is None else graph[each].data for each in node.inputs]
    if inner is None or any(
        array is None and each is not None for k, (array, each) in enumerate(zip(arrays, node.inputs)) if k != moved
    ):
        return None
    arrays[moved] = inner
    return OPERATORS[node.op].compute(graph.site(node), *arrays)[node.outputs.index(name)]
