"""The pass that makes one dilated convolution of the three nodes that older converters write for it.

Enters: a graph. Leaves: a graph in which SPACE_TO_BATCH_ND, a convolution and BATCH_TO_SPACE_ND are one convolution.
"""

from __future__ import annotations

from dataclasses import replace

from aot.graph.ir import Graph, Node, Shape, Site
from aot.graph.ops.blocks import block_shape, borders
from aot.graph.ops.conv import Conv2D
from aot.graph.ops.windows import MAX_SPAN
from aot.graph.passes.rewrite import Edit, is_only_reader, producer, rewrite, same_type

Border = tuple[int, int, int, int]
"""Elements at top, bottom, left, right."""


def fold_dilations(graph: Graph) -> Graph:
    """BATCH_TO_SPACE_ND(CONV_2D(SPACE_TO_BATCH_ND(x))) -> CONV_2D(x), dilated; the same for DEPTHWISE_CONV_2D."""
    return rewrite(graph, _fold)


def _fold(graph: Graph, node: Node) -> Edit | None:
    """BATCH_TO_SPACE_ND(conv(SPACE_TO_BATCH_ND(x, block, paddings)), block, crops) -> conv(x, dilation=block, padding=paddings - crops)

    If: both blocks are the same and the values have 4 dimensions; the convolution has stride and dilation 1, pads nothing itself, and
    nothing else reads its output; no crop is more than the padding on its side (it would cut what the convolution computes); the
    types do not change on the way, so that the padding is the convolution's own zero; something is left to compute, by a kernel that
    the operator takes.
    Then output row i * block + b is the sum over taps t of padded row (i + t) * block + b: the dilated convolution's.
    """
    conv = producer(graph, node.inputs[0], "CONV_2D", "DEPTHWISE_CONV_2D") if node.op == "BATCH_TO_SPACE_ND" else None
    before = None if conv is None else producer(graph, conv.inputs[0], "SPACE_TO_BATCH_ND")
    if conv is None or before is None or not is_only_reader(graph, conv, before.outputs[0]) or not _is_plain(conv):
        return None
    if not is_only_reader(graph, node, conv.outputs[0]) or len(graph[conv.outputs[0]].shape) != 4:
        return None
    first, last = graph.site(before), graph.site(node)
    if first.input(0).is_variable or block_shape(first) != block_shape(last):
        return None
    if not same_type(first.input(0), first.output) or not same_type(last.input(0), last.output):
        return None
    padding = _padding(first, last)
    if 0 in last.output.shape or _span(graph.site(conv), block_shape(first)) > MAX_SPAN:
        return None
    return None if padding is None else Edit((_dilated(conv, first, node, padding),))


def _is_plain(conv: Node) -> bool:
    """Whether a convolution moves by 1, and neither dilates nor pads."""
    a = conv.attributes
    return isinstance(a, Conv2D) and a.stride == a.dilation == (1, 1) and a.padding in ("valid", (0, 0, 0, 0))


def _span(conv: Site, block: Shape) -> int:
    """The longest reach of the dilated kernel, in elements."""
    return max((size - 1) * step + 1 for size, step in zip(conv.input(1).shape[1:3], block))


def _padding(first: Site, last: Site) -> Border | None:
    """Paddings without crops, None if a crop is the larger one."""
    (top, bottom), (left, right) = (
        (padding[0] - crop[0], padding[1] - crop[1]) for padding, crop in zip(borders(first), borders(last), strict=True)
    )
    return None if min(top, bottom, left, right) < 0 else (top, bottom, left, right)


def _dilated(conv: Node, first: Site, last: Node, padding: Border) -> Node:
    height, width = block_shape(first)
    assert isinstance(conv.attributes, Conv2D)
    attributes = replace(conv.attributes, dilation=(height, width), padding=padding)
    return replace(conv, inputs=(first.input(0).name, *conv.inputs[1:]), outputs=last.outputs, attributes=attributes)
