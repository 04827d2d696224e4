"""Passes over operators that compute nothing: identities, transposes, reshapes.

Enters: a graph. Leaves: a graph that moves less, with the same outputs bit for bit.
"""

from __future__ import annotations

import numpy as np

from aot.graph.ir import DType, Graph, Node, Shape, Site, Value
from aot.graph.ops.movement import paddings, permutation
from aot.graph.ops.slicing import strided_ranges
from aot.graph.ops.views import Reshape
from aot.graph.passes.rewrite import Edit, bypass, fresh, is_only_reader, producer, rewrite

VIEWS = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")


def eliminate_identities(graph: Graph) -> Graph:
    """y = op(x) -> x, where op changes neither bytes nor shape."""
    return rewrite(graph, _identity)


def _identity(graph: Graph, node: Node) -> Edit | None:
    """y = RESHAPE(x) to x's own shape, TRANSPOSE in order, PAD or MIRROR_PAD by 0, a slice of everything, TILE or BROADCAST_TO that
    repeats nothing, CONCATENATION of one value, QUANTIZE to the same parameters -> x."""
    return bypass(graph, node, graph.site(node).input(0).name) if _moves_nothing(graph.site(node)) else None


def _moves_nothing(site: Site) -> bool:
    """Whether the output's elements are input 0's in their order, if both have the same shape and type."""
    match site.node.op:
        case "RESHAPE" | "SQUEEZE" | "EXPAND_DIMS" | "SLICE" | "QUANTIZE" | "TILE" | "BROADCAST_TO" | "MIRROR_PAD":
            return True
        case "CONCATENATION":
            return len(site.inputs) == 1
        case "TRANSPOSE":
            axes = permutation(site)
            return axes == tuple(sorted(axes))
        case "PAD" | "PADV2":
            return not any(map(any, paddings(site)))
        case "STRIDED_SLICE":
            return all(part is not None and (part.start, part.step) == (0, 1) for part in strided_ranges(site))
        case _:
            pass
    return False


def eliminate_transposes(graph: Graph) -> Graph:
    """Transposes that only move axes of size 1 become reshapes; two in a row become one or none."""
    return rewrite(graph, _merge_transposes, _transpose_to_reshape)


def _transpose_to_reshape(graph: Graph, node: Node) -> Edit | None:
    """TRANSPOSE(x) -> RESHAPE(x), if the axes longer than 1 stay in their order."""
    if node.op != "TRANSPOSE":
        return None
    site = graph.site(node)
    long = [number for number in permutation(site) if site.input(0).shape[number] != 1]
    if long != sorted(long) or site.input(0).is_variable:
        return None
    return Edit((_reshape(node, site.input(0).name, site.output.shape),))


def _merge_transposes(graph: Graph, node: Node) -> Edit | None:
    """TRANSPOSE(TRANSPOSE(x, p), q) -> TRANSPOSE(x, p[q]), if nothing else reads the inner one or the two cancel."""
    inner = producer(graph, node.inputs[0], "TRANSPOSE") if node.op == "TRANSPOSE" else None
    if inner is None:
        return None
    first, second = permutation(graph.site(inner)), permutation(graph.site(node))
    axes = tuple(first[number] for number in second)
    source = graph.site(inner).input(0)
    cancels = axes == tuple(range(len(axes)))
    if source.is_variable or not (cancels or is_only_reader(graph, node, inner.outputs[0])):
        return None
    if cancels:
        edit = bypass(graph, node, source.name)
        if edit is not None:
            return edit
    name = fresh(graph, f"{node.outputs[0]}_permutation")
    entries = Value(name, DType.INT32, (len(axes),), data=np.array(axes, np.int32))
    return Edit((Node("TRANSPOSE", (source.name, name), node.outputs, node.attributes, node.index),), values=(entries,))


def merge_reshapes(graph: Graph) -> Graph:
    """Views of views become one view; every view becomes a RESHAPE with its shape as attribute.

    A RESHAPE in front of FULLY_CONNECTED stays: it costs nothing, and kernels want rows of one axis.
    """
    return rewrite(graph, _merge_views)


def _merge_views(graph: Graph, node: Node) -> Edit | None:
    """RESHAPE(RESHAPE(x)) -> RESHAPE(x); SQUEEZE(x), EXPAND_DIMS(x), RESHAPE(x, shape) -> RESHAPE(x).

    The bytes are the same all along. x is not a variable, whose content may change between the two.
    """
    if node.op not in VIEWS:
        return None
    site = graph.site(node)
    source = site.input(0)
    inner = producer(graph, source.name, *VIEWS)
    if inner is not None and inner.inputs[0] is not None and not graph[inner.inputs[0]].is_variable:
        source = graph[inner.inputs[0]]
    merged = _reshape(node, source.name, site.output.shape)
    return None if merged == node else Edit((merged,))


def _reshape(node: Node, source: str, shape: Shape) -> Node:
    return Node("RESHAPE", (source,), node.outputs, Reshape(shape), node.index)
