"""Passes over activations that are clamps: into the node before them, or away.

Enters: a graph. Leaves: a graph with fewer RELU nodes and fused activations, with the same outputs bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from aot.graph.arithmetic import float_range
from aot.graph.ir import DType, Graph, Node, Site
from aot.graph.ops.checks import output_range
from aot.graph.passes.ranges import BINARY, BYTES, Interval, activation_bounds, all_results, ranges, without_activation
from aot.graph.passes.rewrite import Edit, bypass, is_only_reader, producer, rewrite, same_type

RELUS = ("RELU", "RELU6", "RELU_N1_TO_1")
HOSTS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "SUB", "MUL", "AVERAGE_POOL_2D", "MAX_POOL_2D")
"""Operators with a fused activation."""


def fuse_activations(graph: Graph) -> Graph:
    """RELU(CONV_2D(x)) -> CONV_2D(x, activation=relu), and the like."""
    return rewrite(graph, _fuse_activation)


def _fuse_activation(graph: Graph, node: Node) -> Edit | None:
    """RELU(y = op(x)) -> op(x, activation), if nothing else reads y, y and the result have the same type and quantisation (the
    RELU is then a pure clamp), and one activation's bounds are those of op's own and the RELU's together."""
    host = producer(graph, node.inputs[0], *HOSTS) if node.op in RELUS else None
    if host is None or not is_only_reader(graph, node, host.outputs[0]):
        return None
    site = graph.site(host)
    if not same_type(site.output, graph[node.outputs[0]]):
        return None
    own, other = str(getattr(host.attributes, "activation", "none")), node.op.lower()
    both = _meet(_bounds(site, own), _bounds(site, other))
    for activation in (own, other):
        if _bounds(site, activation) == both:
            fused = replace(host, outputs=node.outputs, attributes=replace(host.attributes, activation=activation))  # type: ignore[type-var]
            return Edit((fused,), drop=(host,))
    return None


def _bounds(site: Site, activation: str) -> Interval:
    """What an activation clamps this site's output to."""
    if site.output.dtype is DType.INT8:
        return output_range(site, activation, site.output)
    low, high = float_range(activation) or (0.0, 0.0)
    return low, high


def _meet(a: Interval, b: Interval) -> Interval:
    return max(a[0], b[0]), min(a[1], b[1])


def remove_clamps(graph: Graph) -> Graph:
    """Activations whose bounds no element can leave -> none."""
    known = ranges(graph)
    return rewrite(
        graph, lambda graph, node: _remove_relu(graph, node, known), lambda graph, node: _remove_fused(graph, node, known)
    )


def _remove_relu(graph: Graph, node: Node, known: Mapping[str, Interval]) -> Edit | None:
    """RELU(x) -> x, if x lies within its bounds and has the result's type and quantisation."""
    if node.op not in RELUS or node.inputs[0] is None or not same_type(graph[node.inputs[0]], graph[node.outputs[0]]):
        return None
    if not _inside(known[node.inputs[0]], activation_bounds(graph.site(node))):
        return None
    return bypass(graph, node, node.inputs[0])


def _remove_fused(graph: Graph, node: Node, known: Mapping[str, Interval]) -> Edit | None:
    """op(x, activation) -> op(x), if the result of op alone lies within the activation's bounds."""
    if node.op not in HOSTS or getattr(node.attributes, "activation", "none") == "none":
        return None
    site = graph.site(node)
    inputs = [known[name] for name in node.inputs if name is not None]
    if not _inside(_before_activation(site, inputs), activation_bounds(site)):
        return None
    return Edit((without_activation(site).node,))


def _before_activation(site: Site, inputs: list[Interval]) -> Interval:
    """Where the result of op alone lies."""
    plain = without_activation(site)
    if site.node.op == "MAX_POOL_2D" or (site.node.op == "AVERAGE_POOL_2D" and site.output.dtype is DType.INT8):
        return inputs[0]
    if site.node.op in BINARY and site.output.dtype in BYTES:
        results = all_results(plain, inputs)
        return float(results.min()), float(results.max())
    return activation_bounds(plain)


def _inside(interval: Interval, bounds: Interval) -> bool:
    return bounds[0] <= interval[0] and interval[1] <= bounds[1]
