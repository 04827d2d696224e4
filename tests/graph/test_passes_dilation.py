"""fold_dilations: SPACE_TO_BATCH_ND, convolution, BATCH_TO_SPACE_ND as one convolution, and when they must stay three nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from aot.graph.ir import Graph
from aot.graph.ops.conv import Conv2D
from aot.graph.passes import run_passes
from aot.graph.passes.dilation import fold_dilations
from tests.graph.passing import Net, ops, stays, unchanged

Borders = Sequence[tuple[int, int]]
NONE = ((0, 0), (0, 0))


def space_to_batch(
    net: Net, x: int, shape: Sequence[int], block: Sequence[int], paddings: Borders, **fields
) -> tuple[int, list[int]]:
    sizes = [(size + sum(pad)) // step for size, pad, step in zip(shape[1:3], paddings, block)]
    out = [shape[0] * block[0] * block[1], *sizes, shape[3]]
    return net.op("SPACE_TO_BATCH_ND", [x, net.constant(block), net.constant(paddings)], out, **fields), out


def batch_to_space(net: Net, x: int, shape: Sequence[int], block: Sequence[int], crops: Borders, **fields) -> int:
    sizes = [size * step - sum(crop) for size, crop, step in zip(shape[1:3], crops, block)]
    out = [shape[0] // (block[0] * block[1]), *sizes, shape[3]]
    return net.op("BATCH_TO_SPACE_ND", [x, net.constant(block), net.constant(crops)], out, **fields)


def depthwise(net: Net, x: int, shape: Sequence[int], out: Sequence[int]) -> int:
    rng = np.random.default_rng(3)
    if net.dtype == "int8":
        weights = net.constant(rng.integers(-127, 128, (1, 3, 3, shape[3])), "int8", scale=0.01)
        bias = net.constant(rng.integers(-500, 500, shape[3]), scale=0.001)
    else:
        weights, bias = (
            net.constant(rng.normal(size=(1, 3, 3, shape[3])), "float32"),
            net.constant(rng.normal(size=shape[3]), "float32"),
        )
    options = {"stride_h": 1, "stride_w": 1, "padding": "VALID", "depth_multiplier": 1}
    return net.op("DEPTHWISE_CONV_2D", [x, weights, bias], out, options)


def dilated(
    shape: Sequence[int],
    block: Sequence[int],
    paddings: Borders,
    crops: Borders = NONE,
    kind: str = "CONV_2D",
    dtype: str = "int8",
    padded_fields: dict | None = None,
    out_fields: dict | None = None,
    back: Sequence[int] | None = None,
    read: str = "",
    **options,
) -> Graph:
    """Three nodes with a 3x3 kernel. `back`: another block on the way back. `read`: which value in between is an output, too."""
    net = Net(dtype)
    x = net.input(shape)
    spread, inner = space_to_batch(net, x, shape, block, paddings, **(padded_fields or {}))
    stride = options.get("stride_h", 1)
    same = options.get("padding") == "SAME"
    sizes = [
        (size if same else size - 2 * options.get(f"dilation_{axis}_factor", 1) + stride - 1) // stride
        for size, axis in zip(inner[1:3], "hw")
    ]
    channels = shape[3] if kind == "DEPTHWISE_CONV_2D" else 4
    out = [inner[0], *sizes, channels]
    y = depthwise(net, spread, inner, out) if kind == "DEPTHWISE_CONV_2D" else net.conv(spread, inner, out, **options)
    z = batch_to_space(net, y, out, back or block, crops, **(out_fields or {}))
    return net.graph(z, *({"spread": [spread], "sums": [y]}.get(read, [])))


CASES = (
    ((1, 8, 8, 3), (2, 2), NONE, NONE),
    ((2, 8, 6, 2), (2, 2), ((2, 2), (2, 2)), NONE),
    ((1, 7, 5, 2), (2, 2), ((2, 3), (2, 3)), ((0, 1), (0, 1))),
    ((1, 9, 10, 2), (3, 2), ((3, 3), (2, 2)), ((1, 2), (0, 1))),
    ((1, 3, 12, 2), (1, 4), ((1, 1), (4, 4)), NONE),
    ((1, 7, 8, 1), (2, 1), ((0, 1), (1, 1)), ((0, 1), (0, 0))),
    ((1, 8, 12, 2), (2, 4), ((2, 2), (4, 4)), ((2, 2), (4, 4))),
)


@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D"])
@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_folds(case: int, dtype: str, kind: str) -> None:
    shape, block, paddings, crops = CASES[case]
    graph = dilated(shape, block, paddings, crops, kind, dtype)
    after = unchanged(graph, fold_dilations)
    assert ops(after) == [kind] and after.nodes[0].inputs[0] == graph.inputs[0]
    attributes = after.nodes[0].attributes
    assert isinstance(attributes, Conv2D) and attributes.dilation == block
    wanted = tuple(pad - crop for pads, crops_ in zip(paddings, crops) for pad, crop in zip(pads, crops_))
    assert attributes.padding == wanted


def test_an_activation_behind_it_is_fused_then() -> None:
    net = Net()
    x = net.input((1, 8, 8, 3))
    spread, inner = space_to_batch(net, x, (1, 8, 8, 3), (2, 2), ((2, 2), (2, 2)))
    y = net.conv(spread, inner, (4, 4, 4, 4))
    z = batch_to_space(net, y, (4, 4, 4, 4), (2, 2), NONE)
    assert ops(run_passes(net.graph(net.op("RELU", [z], (1, 8, 8, 4))))) == ["CONV_2D"]


PADDED = ((2, 2), (2, 2))
STAYS = {
    "another block on the way back": dilated((4, 8, 8, 2), (2, 2), NONE, back=(4, 1)),
    "more is cropped than was padded": dilated((1, 8, 8, 2), (2, 2), NONE, ((1, 1), (0, 0))),
    "more is cropped than was padded on one side": dilated((1, 8, 8, 2), (2, 2), ((2, 2), (0, 2)), ((0, 0), (1, 1))),
    "the convolution pads": dilated((1, 8, 8, 2), (2, 2), NONE, padding="SAME"),
    "the convolution has a stride": dilated((1, 9, 9, 2), (1, 1), NONE, stride_h=2, stride_w=2),
    "the convolution is dilated": dilated((1, 12, 12, 2), (2, 2), NONE, dilation_h_factor=2, dilation_w_factor=2),
    "the padded value is an output": dilated((1, 8, 8, 2), (2, 2), PADDED, read="spread"),
    "the sums are an output": dilated((1, 8, 8, 2), (2, 2), PADDED, read="sums"),
    "the padded value has another scale": dilated((1, 8, 8, 2), (2, 2), PADDED, padded_fields={"scale": 0.2}),
    "nothing is left": dilated((1, 8, 8, 2), (2, 4), ((2, 2), (4, 4)), ((2, 2), (4, 4))),
    "the output has another zero point": dilated((1, 8, 8, 2), (2, 2), PADDED, out_fields={"zero_point": 9}),
}


def test_a_kernel_that_would_reach_too_far() -> None:
    """Read, but not computed: it would take 400 MB."""
    graph = dilated((1, 3, 1 << 25, 1), (1, 1 << 23), ((0, 0), (0, 0)))
    assert fold_dilations(graph) is graph


@pytest.mark.parametrize("name", STAYS)
def test_stays(name: str) -> None:
    stays(STAYS[name], fold_dilations)
