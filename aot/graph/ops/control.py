"""IF, WHILE, STABLEHLO_COMPOSITE: operators that run sub-graphs, which the reader has put into `node.graphs`.

Enters: sites of these operators. Leaves: shapes, arrays, primitives between `Control` marks.
Invariant: a sub-graph takes and gives values of exactly the dtypes and shapes that the node does; shapes never change in a loop.
Source: TFLite Micro, if.cc and while.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.graph.ir import DType, Graph, Shape, Site, Value
from aot.graph.operator import Lowering, Operator
from aot.graph.primitive import MAX_TURNS, Control
from aot.graph.shapes import can_be_compiled
from aot.graph.support import ANY, alone


@dataclass(frozen=True)
class Subgraphs:
    """Numbers of the sub-graphs in the file: IF's branches, WHILE's condition and body, a composite's decomposition."""

    numbers: tuple[int, ...]
    name: str = ""


def _numbers(attributes: Subgraphs) -> tuple[int, ...]:
    return attributes.numbers


def _read_if(options: Any) -> Subgraphs:
    return Subgraphs((0, 0) if options is None else (options.ThenSubgraphIndex(), options.ElseSubgraphIndex()))


def _read_while(options: Any) -> Subgraphs:
    return Subgraphs((0, 0) if options is None else (options.CondSubgraphIndex(), options.BodySubgraphIndex()))


def _read_composite(options: Any) -> Subgraphs:
    if options is None:
        return Subgraphs((0,))
    return Subgraphs((options.DecompositionSubgraphIndex(),), (options.Name() or b"").decode("utf-8", "replace"))


def _require(site: Site, what: str, inner: Sequence[Value], outer: Sequence[Value | None]) -> None:
    """CompileError unless the values of a sub-graph are what the node's are, in number, dtype and shape."""
    if len(inner) != len(outer):
        raise site.error(f"its {what} are {len(inner)} in the sub-graph, {len(outer)} in the node")
    for position, (value, other) in enumerate(zip(inner, outer)):
        if other is None or (value.dtype, value.shape) != (other.dtype, other.shape):
            have = "missing" if other is None else f"{other.dtype}{list(other.shape)}"
            raise site.error(
                f"{what[:-1]} {position} of its sub-graph is {value.dtype}{list(value.shape)}, that of the node {have}"
            )


def _values(graph: Graph, names: Sequence[str]) -> tuple[Value, ...]:
    return tuple(graph[name] for name in names)


def _shapes(values: Sequence[Value]) -> tuple[Shape, ...]:
    return tuple(value.shape for value in values)


def _require_condition(site: Site, value: Value) -> None:
    if value.dtype is not DType.BOOL or value.size != 1:
        raise site.error(f"its condition is {value.dtype}{list(value.shape)}, not one bool")


def _infer_if(site: Site) -> tuple[Shape, ...]:
    first, second = site.node.graphs
    _require_condition(site, site.input(0))
    for graph in (first, second):
        _require(site, "inputs", _values(graph, graph.inputs), site.inputs[1:])
    _require(site, "outputs", _values(first, first.outputs), _values(second, second.outputs))
    return _shapes(_values(first, first.outputs))


def _infer_while(site: Site) -> tuple[Shape, ...]:
    condition, body = site.node.graphs
    for graph in (condition, body):
        _require(site, "inputs", _values(graph, graph.inputs), site.inputs)
    _require(site, "outputs", _values(body, body.outputs), _values(body, body.inputs))
    if not condition.outputs:
        raise site.error("its condition has no output")
    _require_condition(site, condition[condition.outputs[0]])
    if (
        len(condition.outputs) > 1
        and condition.outputs[1:] != condition.inputs[len(condition.inputs) - len(condition.outputs) + 1 :]
    ):
        raise site.error("its condition has more than one output, or changes a variable")
    return _shapes(_values(body, body.outputs))


def _infer_composite(site: Site) -> tuple[Shape, ...]:
    (graph,) = site.node.graphs
    _require(site, "inputs", _values(graph, graph.inputs), site.inputs)
    return _shapes(_values(graph, graph.outputs))


def _check(site: Site) -> None:
    """The dtypes of the outputs, and that all can be compiled; the rest is checked with the shapes."""
    for value in (*site.inputs, *site.outputs):
        if value is not None and not can_be_compiled(value.dtype):
            raise site.error(f"'{value.title}' is {value.dtype}, which can't be compiled")
    graph = site.node.graphs[-1]
    _require(site, "outputs", _values(graph, graph.outputs), site.outputs)


def _run(graph: Graph, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    from aot.graph.interpreter import run  # it needs the table of operators, of which this file is a part

    return run(graph, inputs)


def _compute_if(site: Site, condition: np.ndarray, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
    first, second = site.node.graphs
    return tuple(_run(first if condition.reshape(-1)[0] else second, inputs))


def _compute_while(site: Site, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
    condition, body = site.node.graphs
    carried = list(inputs)
    for _ in range(MAX_TURNS):
        if not _run(condition, carried)[0].reshape(-1)[0]:
            return tuple(carried)
        carried = _run(body, carried)
    raise site.error(f"the loop still runs after {MAX_TURNS} turns")


def _compute_composite(site: Site, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(_run(site.node.graphs[0], inputs))


def _lower_if(site: Site, lowering: Lowering) -> None:
    names = [value.name for value in site.inputs[1:] if value is not None]
    lowering.append(Control("if", site.input(0).name))
    for graph, mark in zip(site.node.graphs, (Control("else"), Control("end"))):
        for out, name in zip(site.outputs, lowering.inline(graph, names)):
            lowering.copy(out, name)
        lowering.append(mark)


def _lower_while(site: Site, lowering: Lowering) -> None:
    """The outputs hold what the loop carries; what the body hands on unchanged is read where it came from."""
    condition, body = site.node.graphs
    inputs = [value for value in site.inputs if value is not None]
    for value, out in zip(inputs, site.outputs):
        lowering.copy(out, value.name)
    changed = [name != after for name, after in zip(body.inputs, body.outputs)]
    carried = [out.name if moves else value.name for value, out, moves in zip(inputs, site.outputs, changed)]
    lowering.append(Control("repeat"))
    lowering.append(Control("leave", lowering.inline(condition, carried)[0]))
    results = lowering.inline(body, carried)
    moved = [(out, name) for out, name, moves in zip(site.outputs, results, changed) if moves]
    held = [lowering.temporary("held", out.dtype, out.shape) for out, _ in moved]
    for (out, name), temporary in zip(moved, held):
        lowering.copy(Value(temporary, out.dtype, out.shape), name)
    for (out, _), temporary in zip(moved, held):
        lowering.copy(out, temporary)
    lowering.append(Control("end"))


def _lower_composite(site: Site, lowering: Lowering) -> None:
    names = [value.name for value in site.inputs if value is not None]
    for out, name in zip(site.outputs, lowering.inline(site.node.graphs[0], names)):
        lowering.copy(out, name)


OPERATORS = (
    Operator("IF", "IfOptions", _read_if, _infer_if, _check, _compute_if, _lower_if, subgraphs=_numbers).supports(
        *ANY,
        notes="Values may have any of these types; the branches decide about more. Shapes are those of the node.",
    ),
    Operator(
        "WHILE", "WhileOptions", _read_while, _infer_while, _check, _compute_while, _lower_while, subgraphs=_numbers, folds=False
    ).supports(
        *ANY,
        notes="Values may have any of these types; condition and body decide about more. Shapes never change in a loop.",
    ),
    Operator(
        "STABLEHLO_COMPOSITE",
        "StableHLOCompositeOptions",
        _read_composite,
        _infer_composite,
        _check,
        _compute_composite,
        _lower_composite,
        subgraphs=_numbers,
    ).supports(
        alone("bool, int4, int8, uint8, int16, uint16, int32, uint32, int64, uint64, float16, float32, float64"),
        notes="The decomposition is run, whatever the name.",
    ),
)
