"""fuse_pads: which paddings a convolution or a pool can take over, and which not."""

from __future__ import annotations

import pytest

from aot.graph.ir import Graph
from aot.graph.ops.conv import Conv2D
from aot.graph.ops.pool import Pool2D
from aot.graph.passes.padding import fuse_pads
from tests.graph.passing import Net, ops, stays, unchanged

Q = {"scale": 0.1, "zero_point": -5}
BORDERS = ((1, 1, 1, 1), (0, 1, 2, 0), (3, 0, 0, 0), (0, 0, 0, 4))


def pad(net: Net, x: int, shape, border=(1, 2, 1, 1), value: float | None = None, more=(0, 0), **fields) -> int:
    top, bottom, left, right = border
    amounts = net.constant([[0, 0], [top, bottom], [left, right], list(more)])
    out = (shape[0], shape[1] + top + bottom, shape[2] + left + right, shape[3] + sum(more))
    if value is None:
        return net.op("PAD", [x, amounts], out, **fields)
    return net.op("PADV2", [x, amounts, net.constant(value, net.dtype, **(Q if net.dtype == "int8" else {}))], out, **fields)


def attributes(graph: Graph) -> object:
    return graph.nodes[-1].attributes


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("value", [None, "zero"])
def test_into_a_convolution(dtype: str, border: tuple[int, int, int, int], value: str | None) -> None:
    net = Net(dtype)
    filled = pad(net, net.input((2, 5, 4, 3)), (2, 5, 4, 3), border, None if value is None else -5 if dtype == "int8" else 0.0)
    height, width = 5 + border[0] + border[1] - 2, 4 + border[2] + border[3] - 2
    y = net.conv(filled, (2, 0, 0, 3), (2, height, width, 4))
    after = unchanged(net.graph(y), fuse_pads)
    assert ops(after) == ["CONV_2D"] and after.nodes[-1].inputs[0] == after.inputs[0]
    found = attributes(after)
    assert isinstance(found, Conv2D) and found.padding == border


@pytest.mark.parametrize("border", BORDERS)
def test_into_a_depthwise_convolution_with_stride(border: tuple[int, int, int, int]) -> None:
    net = Net()
    filled = pad(net, net.input((1, 7, 6, 2)), (1, 7, 6, 2), border)
    weights = net.constant([[[[1, -2]] * 3] * 3], "int8", scale=0.01)
    out = (1, (7 + border[0] + border[1] - 3) // 2 + 1, (6 + border[2] + border[3] - 3) // 2 + 1, 2)
    options = {"stride_h": 2, "stride_w": 2, "padding": "VALID", "depth_multiplier": 1}
    y = net.op("DEPTHWISE_CONV_2D", [filled, weights, net.constant([10, -20], scale=0.001)], out, options)
    after = unchanged(net.graph(y), fuse_pads)
    assert after.nodes[-1].inputs[0] == after.inputs[0]


def test_two_pads_add_up() -> None:
    net = Net()
    x = pad(net, net.input((1, 4, 4, 2)), (1, 4, 4, 2), (1, 0, 0, 0))
    x = pad(net, x, (1, 5, 4, 2), (0, 1, 2, 0))
    after = unchanged(net.graph(net.conv(x, (1, 6, 6, 2), (1, 4, 4, 3))), fuse_pads)
    found = attributes(after)
    assert isinstance(found, Conv2D) and found.padding == (1, 1, 2, 0)


def test_every_reader_takes_it() -> None:
    net = Net()
    x = net.input((1, 4, 4, 2))
    filled = pad(net, x, (1, 4, 4, 2))
    ends = [net.conv(filled, (1, 7, 6, 2), (1, 5, 4, 3)) for _ in range(2)]
    after = unchanged(net.graph(*ends), fuse_pads)
    assert [node.inputs[0] for node in after.nodes if node.op == "CONV_2D"] == [after.inputs[0]] * 2


def pool(net: Net, op: str, x: int, out) -> int:
    return net.op(op, [x], out, {"filter_height": 3, "filter_width": 3, "stride_h": 2, "stride_w": 1, "padding": "VALID"})


def test_into_a_max_pool_if_the_border_never_wins() -> None:
    net = Net()
    filled = pad(net, net.input((1, 5, 4, 3)), (1, 5, 4, 3), (1, 1, 1, 1), -128)
    after = unchanged(net.graph(pool(net, "MAX_POOL_2D", filled, (1, 3, 4, 3))), fuse_pads)
    found = attributes(after)
    assert isinstance(found, Pool2D) and found.padding == (1, 1, 1, 1)


def test_a_border_wider_than_the_pool_stays_right() -> None:
    net = Net()
    filled = pad(net, net.input((1, 5, 4, 3)), (1, 5, 4, 3), (4, 0, 0, 5), -128)
    unchanged(net.graph(pool(net, "MAX_POOL_2D", filled, (1, 4, 7, 3))), fuse_pads)


def refused() -> dict[str, Graph]:
    """Each a PAD that must stay."""
    made: dict[str, Graph] = {}

    def graph(name: str, **fields) -> tuple[Net, int]:
        net = Net(fields.pop("dtype", "int8"))
        return net, pad(net, net.input((1, 4, 4, 2)), (1, 4, 4, 2), **fields)

    def conv(net: Net, x: int, channels: int = 2, padding: str = "VALID") -> int:
        out = (1, 5, 4, 3) if padding == "VALID" else (1, 7, 6, 3)
        return net.conv(x, (1, 0, 0, channels), out, padding=padding)

    net, x = graph("value", value=3)
    made["a border that is not the zero point"] = net.graph(conv(net, x))
    net, x = graph("channels", more=(0, 1))
    made["channels grow too"] = net.graph(conv(net, x, 3))
    net, x = graph("same")
    made["the convolution pads already, by SAME"] = net.graph(conv(net, x, padding="SAME"))
    net, x = graph("output")
    made["the padded value is a model output"] = net.graph(x, conv(net, x))
    net, x = graph("reader")
    made["something else reads the padded value"] = net.graph(net.op("RELU", [x], (1, 7, 6, 2)), conv(net, x))
    net, x = graph("quantisation", scale=0.2)
    made["the padded value has another scale"] = net.graph(conv(net, x))
    net, x = graph("average", value=-128)
    made["an average pool"] = net.graph(pool(net, "AVERAGE_POOL_2D", x, (1, 3, 4, 2)))
    net, x = graph("max", value=-127)
    made["a max pool whose border could win"] = net.graph(pool(net, "MAX_POOL_2D", x, (1, 3, 4, 2)))
    net, x = graph("max float", dtype="float32")
    made["a float max pool with zeros"] = net.graph(pool(net, "MAX_POOL_2D", x, (1, 3, 4, 2)))
    return made


@pytest.mark.parametrize("name", list(refused()))
def test_stays(name: str) -> None:
    stays(refused()[name], fuse_pads)
