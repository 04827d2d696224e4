"""Which numbers a value can hold: the smallest and largest element, whatever the model's inputs are.

Enters: a graph. Leaves: an interval for each value, in quantised units for integers. Exact bounds are not promised, safe ones are:
no element ever lies outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from aot.graph.arithmetic import float_range
from aot.graph.ir import DType, Graph, Site, Value
from aot.graph.ops import OPERATORS
from aot.graph.ops.activation import clamps_input
from aot.graph.ops.checks import output_range
from aot.graph.ops.joining import is_rescaled
from aot.graph.ops.movement import pad_value, real_zero

Interval = tuple[float, float]

UNARY = ("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "LOGISTIC", "TANH", "QUANTIZE")
BINARY = ("ADD", "SUB", "MUL")
MOVING = (
    "RESHAPE",
    "SQUEEZE",
    "EXPAND_DIMS",
    "TRANSPOSE",
    "RESIZE_NEAREST_NEIGHBOR",
    "STRIDED_SLICE",
    "SLICE",
    "SPLIT_V",
    "UNPACK",
    "GATHER",
    "GATHER_ND",
    "BATCH_TO_SPACE_ND",
    "SPACE_TO_DEPTH",
    "DEPTH_TO_SPACE",
    "BROADCAST_TO",
    "TILE",
    "REVERSE_V2",
    "MIRROR_PAD",
)
"""Every element of the output is one of input 0."""
BYTES = (DType.INT8, DType.UINT8)
QUANTISED = (*BYTES, DType.INT16)


def ranges(graph: Graph) -> Mapping[str, Interval]:
    """An interval for every value of the graph."""
    found = {value.name: _of_value(value) for value in graph.values}
    for node in graph.nodes:
        site = graph.site(node)
        inputs = [(-math.inf, math.inf) if name is None else found[name] for name in node.inputs]
        for value in site.outputs:
            found[value.name] = _meet(_of_value(value), _of_output(site, inputs))
    return found


def _of_value(value: Value) -> Interval:
    """What its data, or its type alone, allows."""
    if value.data is not None and value.size and value.dtype.np.kind in "iuf":
        low, high = float(value.data.min()), float(value.data.max())
        return (-math.inf, math.inf) if math.isnan(low) or math.isnan(high) else (low, high)
    return _of_type(value)


def _of_type(value: Value) -> Interval:
    return value.dtype.limits if value.dtype.is_integer else (-math.inf, math.inf)


def _of_output(site: Site, inputs: Sequence[Interval]) -> Interval:
    op = site.node.op
    if op in MOVING:
        return inputs[0]
    if op == "SPLIT":
        return inputs[1]
    if op in ("CONCATENATION", "PACK") and not any(is_rescaled(site, value) for value in site.inputs if value is not None):
        return _union(*inputs)
    if op == "DYNAMIC_UPDATE_SLICE":
        return _union(inputs[0], inputs[1])
    if op in ("PAD", "PADV2", "SPACE_TO_BATCH_ND"):
        value = float(real_zero(site) if op == "SPACE_TO_BATCH_ND" else pad_value(site))
        return _union(inputs[0], (value, value))
    if op in ("MAX_POOL_2D", "AVERAGE_POOL_2D") and (op == "MAX_POOL_2D" or site.output.dtype.is_integer):
        return _clamped(inputs[0], activation_bounds(site))
    if op in UNARY + BINARY and all(value is not None and value.dtype in BYTES for value in (*site.inputs, *site.outputs)):
        return _by_trial(site, inputs)
    return activation_bounds(site)


def activation_bounds(site: Site) -> Interval:
    """The interval of a node's fused activation, or of a RELU; everything without one."""
    named = site.node.op.lower() if site.node.op.startswith("RELU") else "none"
    activation = str(getattr(site.node.attributes, "activation", named))
    if activation == "none":  # nor need the output be quantised then
        return _of_type(site.output)
    if site.output.dtype in QUANTISED:
        return output_range(site, activation, site.input(0) if clamps_input(site) else site.output)
    return float_range(activation) or (-math.inf, math.inf)


def _by_trial(site: Site, inputs: Sequence[Interval]) -> Interval:
    """The operator's result for every combination of its inputs' values: at most 256 x 256."""
    result = all_results(site, inputs)
    return float(result.min()), float(result.max())


def all_results(site: Site, inputs: Sequence[Interval]) -> np.ndarray:
    """An elementwise operator's output for every value in the intervals of one or two 8-bit inputs."""
    arrays: list[np.ndarray] = []
    for position, (value, (low, high)) in enumerate(zip(site.inputs, inputs, strict=True)):
        assert value is not None
        shape = [1] * len(inputs)
        shape[position] = -1
        arrays.append(np.arange(int(low), int(high) + 1).astype(value.dtype.np).reshape(shape))
    return OPERATORS[site.node.op].compute(site, *arrays)[0]


def without_activation(site: Site) -> Site:
    """The same node with no fused activation."""
    return replace(site, node=replace(site.node, attributes=replace(site.node.attributes, activation="none")))  # type: ignore[type-var]


def _clamped(interval: Interval, bounds: Interval) -> Interval:
    """Where `clamp(x, *bounds)` lies for x in the interval."""
    clamp: Callable[[float], float] = lambda x: min(max(x, bounds[0]), bounds[1])  # noqa: E731
    return clamp(interval[0]), clamp(interval[1])


def _union(*intervals: Interval) -> Interval:
    if any(math.isnan(low) for low, _ in intervals):
        return -math.inf, math.inf
    return min(low for low, _ in intervals), max(high for _, high in intervals)


def _meet(a: Interval, b: Interval) -> Interval:
    return max(a[0], b[0]), min(a[1], b[1])
