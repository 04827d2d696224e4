"""Shapes: every value of a graph gets the shape that its inputs imply.

Enters: a graph whose declared shapes may be wrong or unknown, and the shapes that the user fixes. Leaves: the same graph with
settled shapes, each node checked by its operator. Invariant: `infer` of each node then gives exactly the shapes of its outputs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from aot.errors import CompileError, InternalError
from aot.graph.ir import DType, Graph, Shape, Site, Value
from aot.graph.operator import Operator, may_fold
from aot.names import suggestion

MAX_RANK = 8
MAX_TENSOR_NBYTES = 1 << 30
MAX_FOLDED_ELEMENTS = 1024
SHAPE_DTYPES = (DType.INT32, DType.INT64)
SHAPE_READERS = ("SHAPE", "RANK")
"""Operators whose result depends on their input's shape alone, so that it is known before any data is."""


def fix_shapes(graph: Graph, shapes: Mapping[str, Shape], operators: Mapping[str, Operator]) -> Graph:
    """The graph with these shapes for its inputs (by label or name) and everything else inferred from them.

    CompileError for an unknown input, a shape of another rank, or an operator that the new shapes do not fit.
    """
    if not shapes:
        return graph
    fixed = {_input_named(graph, name).name: shape for name, shape in shapes.items()}
    for name, shape in fixed.items():
        _require_usable(graph[name], shape)
    values = tuple(replace(value, shape=fixed[value.name]) if value.name in fixed else value for value in graph.values)
    return settle_shapes(replace(graph, values=values), operators, frozenset(graph.producers))


def settle_shapes(graph: Graph, operators: Mapping[str, Operator], dynamic: Collection[str] = ()) -> Graph:
    """The graph with inferred shapes, each node checked. A declared shape may differ only for the names in `dynamic`."""
    values = {value.name: value if value.name in graph.producers else _plain(value) for value in graph.values}
    known = {value.name: value.data for value in graph.values if value.data is not None}
    for node in graph.nodes:
        operator = operators[node.op]
        inputs = tuple(None if name is None else _with_data(values[name], known.get(name)) for name in node.inputs)
        site = Site(node, inputs, tuple(values[name] for name in node.outputs))
        site = replace(site, outputs=_settle_outputs(site, operator.infer(site), dynamic))
        site = _typed(site, operator)
        operator.check(site)
        values.update((value.name, value) for value in site.outputs)
        known.update(_folded(site, operator) if may_fold(node, operators) else {})
    for variable, name in graph.updates:
        if values[variable].shape != values[name].shape:
            what = f"is assigned {_text(values[name].shape)}, but it is {_text(values[variable].shape)}"
            raise CompileError(f"the variable '{values[variable].title}' {what}")
    return replace(graph, values=tuple(values[value.name] for value in graph.values))


def _typed(site: Site, operator: Operator) -> Site:
    """The site with the output's type that TFLite gives it, whatever the file says."""
    if len(site.outputs) == 1 and operator.dtype(site) is not site.output.dtype:
        site = replace(site, outputs=(replace(site.output, dtype=operator.dtype(site)),))
    return replace(site, outputs=tuple(map(_plain, site.outputs)))


def _plain(value: Value) -> Value:
    """A float is not quantised, whatever the file says."""
    return replace(value, quantisation=None) if value.dtype.is_float and value.quantisation else value


def _settle_outputs(site: Site, shapes: tuple[Shape, ...], dynamic: Collection[str]) -> tuple[Value, ...]:
    if len(shapes) != len(site.outputs):
        raise site.error(f"has {len(site.outputs)} outputs, not {len(shapes)}")
    return tuple(_settle(site, value, shape, value.name in dynamic) for value, shape in zip(site.outputs, shapes, strict=True))


def _settle(site: Site, value: Value, shape: Shape, dynamic: bool) -> Value:
    if shape == value.shape:
        return value
    if not dynamic:
        raise site.error(f"the file says its output is {_text(value.shape)}, its inputs give {_text(shape)}")
    try:
        require_sane(value.dtype, shape)
    except CompileError as error:
        raise site.error(f"its output {error.what}", error.hint) from None
    return replace(value, shape=shape)


def require_sane(dtype: DType, shape: Shape) -> None:
    """CompileError for a tensor with more dimensions or bytes than this compiler is for."""
    if len(shape) > MAX_RANK:
        raise CompileError(f"has {len(shape)} dimensions, more than {MAX_RANK}")
    nbytes = math.prod(max(dim, 1) for dim in shape) * (dtype.nbytes if has_elements(dtype) else 8)
    if nbytes > MAX_TENSOR_NBYTES:
        raise CompileError(f"would have more than {MAX_TENSOR_NBYTES} bytes: {_text(shape)} of {dtype}")


def has_elements(dtype: DType) -> bool:
    """Whether numpy has a type for its elements."""
    return dtype not in (DType.STRING, DType.RESOURCE, DType.VARIANT, DType.BFLOAT16)


def can_be_compiled(dtype: DType) -> bool:
    """Whether compiled code can hold its elements."""
    return has_elements(dtype) and dtype not in (DType.COMPLEX64, DType.COMPLEX128)


def _with_data(value: Value, data: np.ndarray | None) -> Value:
    return value if data is value.data else replace(value, data=data)


def _folded(site: Site, operator: Operator) -> dict[str, np.ndarray]:
    """The outputs of a node as far as they are known here: a few integers computed from known ones (shape arithmetic)."""
    small = all(value.size <= MAX_FOLDED_ELEMENTS and value.dtype in SHAPE_DTYPES for value in site.outputs)
    arrays = [_known_array(site, value) for value in site.inputs]
    if not small or any(array is None and value is not None for array, value in zip(arrays, site.inputs, strict=True)):
        return {}
    results = operator.compute(site, *arrays)
    for value, array in zip(site.outputs, results, strict=True):
        if array.shape != value.shape:
            raise InternalError(f"{site.where}: computes shape {array.shape}, infers {value.shape}")
    return {value.name: array for value, array in zip(site.outputs, results, strict=True)}


def _known_array(site: Site, value: Value | None) -> np.ndarray | None:
    if value is None or value.data is not None or site.node.op not in SHAPE_READERS or not has_elements(value.dtype):
        return None if value is None else value.data
    return np.broadcast_to(np.zeros((), value.dtype.np), value.shape)


def _input_named(graph: Graph, name: str) -> Value:
    inputs = [graph[known] for known in graph.inputs]
    for value in inputs:
        if name in (value.label, value.name):
            return value
    valid = [value.label or value.name for value in inputs]
    raise CompileError(f"the model has no input '{name}'", hint=suggestion(name, valid, "inputs: ", "`aot inspect`"))


def _require_usable(value: Value, shape: Shape) -> None:
    where = f"input '{value.title}'"
    if len(shape) != len(value.shape):
        raise CompileError(
            f"shape {_text(shape)} has {len(shape)} dimensions, the model's {_text(value.shape)} has {len(value.shape)}",
            where=where,
        )
    if any(dim < 1 for dim in shape):
        raise CompileError(f"shape {_text(shape)} has a dimension below 1", where=where)
    try:
        require_sane(value.dtype, shape)
    except CompileError as error:
        raise CompileError(error.what, where=where) from None


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape)) if shape else "a scalar"
