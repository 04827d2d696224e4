"""The pass that lets convolutions and pools do their own padding.

Enters: a graph. Leaves: a graph in which PAD nodes that only add a border to a window's input are attributes of its reader.
"""

from __future__ import annotations

from dataclasses import replace

from aot.graph.arithmetic import FLOAT32_LOWEST
from aot.graph.ir import Graph, Node, Site
from aot.graph.ops.conv import Conv2D
from aot.graph.ops.movement import pad_value, paddings
from aot.graph.ops.pool import Pool2D
from aot.graph.passes.rewrite import Edit, producer, rewrite, same_type

Border = tuple[int, int, int, int]
"""Elements at top, bottom, left, right."""


def fuse_pads(graph: Graph) -> Graph:
    """CONV_2D(PAD(x)) -> CONV_2D(x) with explicit padding; the same for DEPTHWISE_CONV_2D and MAX_POOL_2D."""
    return rewrite(graph, _fuse_pad)


def _fuse_pad(graph: Graph, node: Node) -> Edit | None:
    """window(PAD(x), padding=VALID or explicit) -> window(x, padding=explicit).

    If: only height and width grow; x and the padded value have the same type; the border holds what the window's own padding
    means (real 0 for convolutions, nothing above the smallest value for MAX_POOL_2D; AVERAGE_POOL_2D counts no padding, so never);
    every reader of the padded value takes it so, and it is no model output.
    """
    pad = producer(graph, node.inputs[0] if node.inputs else None, "PAD", "PADV2")
    if pad is None or pad.outputs[0] in graph.results:
        return None
    site = graph.site(pad)
    border = _border(site)
    if border is None or not same_type(site.input(0), site.output) or site.input(0).is_variable:
        return None
    readers = graph.readers[pad.outputs[0]]
    if not all(_takes(graph, reader, site) for reader in readers):
        return None
    return Edit((_with_border(node, site.input(0).name, border),))


def _border(site: Site) -> Border | None:
    """What a PAD adds, if it pads height and width of NHWC alone."""
    amounts = paddings(site)
    if len(amounts) != 4 or any(amounts[0]) or any(amounts[3]):
        return None
    return (*amounts[1], *amounts[2])


def _takes(graph: Graph, reader: Node, pad: Site) -> bool:
    """Whether a reader's own padding can stand for this one."""
    value, padded = pad_value(pad), pad.output
    if reader.inputs.count(padded.name) != 1 or reader.inputs[0] != padded.name:
        return False
    if not isinstance(reader.attributes, Conv2D | Pool2D) or reader.attributes.padding == "same":
        return False
    if reader.op in ("CONV_2D", "DEPTHWISE_CONV_2D"):
        zero = padded.quantisation.zero_point if padded.dtype.is_integer and padded.quantisation else 0
        return value == zero
    if reader.op == "MAX_POOL_2D":
        return value <= (padded.dtype.limits[0] if padded.dtype.is_integer else FLOAT32_LOWEST)
    return False


def _with_border(node: Node, source: str, border: Border) -> Node:
    attributes = node.attributes
    assert isinstance(attributes, Conv2D | Pool2D)
    own = (0, 0, 0, 0) if isinstance(attributes.padding, str) else attributes.padding
    total = (own[0] + border[0], own[1] + border[1], own[2] + border[2], own[3] + border[3])
    return replace(node, inputs=(source, *node.inputs[1:]), attributes=replace(attributes, padding=total))
