"""fuse_activations and remove_clamps; the intervals that the latter relies on."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from aot.graph.interpreter import run_all
from aot.graph.ir import Graph
from aot.graph.passes.clamps import RELUS, fuse_activations, remove_clamps
from aot.graph.passes.ranges import ranges
from tests.graph.passing import Net, ops, stays, unchanged

HOSTS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "SUB", "MUL", "AVERAGE_POOL_2D", "MAX_POOL_2D")
SHAPE = (1, 4, 4, 2)


def host(net: Net, op: str, x: int, activation: str = "NONE") -> int:
    """A node of this operator that reads x, of SHAPE, and gives SHAPE."""
    fused = {"fused_activation_function": activation}
    window = {"stride_h": 1, "stride_w": 1, "padding": "SAME", **fused}
    if op == "CONV_2D":
        return net.conv(x, SHAPE, SHAPE, **window)
    if op == "DEPTHWISE_CONV_2D":
        quantised = net.dtype == "int8"
        weights = net.constant([[[[9, -7]] * 3] * 3], net.dtype, **({"scale": 0.01} if quantised else {}))
        bias = net.constant([100, -200], "int32" if quantised else "float32", **({"scale": 0.001} if quantised else {}))
        return net.op(op, [x, weights, bias], SHAPE, {**window, "depth_multiplier": 1})
    if op == "FULLY_CONNECTED":
        weights = net.constant([[9, -7], [-3, 5]], net.dtype, **({"scale": 0.05} if net.dtype == "int8" else {}))
        return net.op(op, [x, weights, -1], SHAPE, {**fused, "keep_num_dims": True})
    if op.endswith("POOL_2D"):
        return net.op(op, [x], SHAPE, {**window, "filter_height": 2, "filter_width": 3})
    return net.op(op, [x, x], SHAPE, fused)


def activation(graph: Graph) -> str:
    return graph.nodes[-1].attributes.activation  # type: ignore[union-attr]


@pytest.mark.parametrize("op", HOSTS)
@pytest.mark.parametrize("relu", RELUS)
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_a_relu_goes_into_its_producer(op: str, relu: str, dtype: str) -> None:
    net = Net(dtype)
    graph = net.graph(net.op(relu, [host(net, op, net.input(SHAPE))], SHAPE))
    after = unchanged(graph, fuse_activations)
    assert ops(after) == [op] and activation(after) == relu.lower()


@pytest.mark.parametrize(
    ("own", "relu", "together"),
    [
        ("RELU", "RELU6", "relu6"),
        ("RELU6", "RELU", "relu6"),
        ("RELU6", "RELU6", "relu6"),
        ("RELU_N1_TO_1", "RELU_N1_TO_1", "relu_n1_to_1"),
    ],
)
def test_two_activations_become_the_one_that_has_the_bounds_of_both(own: str, relu: str, together: str) -> None:
    net = Net()
    after = unchanged(net.graph(net.op(relu, [host(net, "ADD", net.input(SHAPE), own)], SHAPE)), fuse_activations)
    assert ops(after) == ["ADD"] and activation(after) == together


@pytest.mark.parametrize(("own", "relu"), [("RELU_N1_TO_1", "RELU"), ("RELU", "RELU_N1_TO_1"), ("RELU6", "RELU_N1_TO_1")])
def test_bounds_that_no_activation_has_stay_apart(own: str, relu: str) -> None:
    net = Net()
    stays(net.graph(net.op(relu, [host(net, "ADD", net.input(SHAPE), own)], SHAPE)), fuse_activations)


@pytest.mark.parametrize("reason", ["another reader", "model output", "another scale", "another zero point", "no host"])
def test_a_relu_stays(reason: str) -> None:
    net = Net()
    x = net.input(SHAPE)
    y = net.op("TRANSPOSE", [x, net.constant([0, 2, 1, 3])], SHAPE) if reason == "no host" else host(net, "ADD", x)
    fields = {"another scale": {"scale": 0.07}, "another zero point": {"zero_point": 3}}.get(reason, {})
    outputs = [net.op("RELU", [y], SHAPE, **fields)]
    if reason == "another reader":
        outputs.append(net.op("TRANSPOSE", [y, net.constant([0, 2, 1, 3])], SHAPE))
    if reason == "model output":
        outputs.append(y)
    stays(net.graph(*outputs), fuse_activations)


# remove_clamps


@pytest.mark.parametrize("op", HOSTS)
def test_relu_at_zero_point_minus_128_is_no_clamp(op: str) -> None:
    net = Net(zero_point=-128)
    after = unchanged(net.graph(host(net, op, net.input(SHAPE), "RELU")), remove_clamps)
    assert activation(after) == "none"


@pytest.mark.parametrize("op", HOSTS)
@pytest.mark.parametrize("fused", ["RELU", "RELU6", "RELU_N1_TO_1"])
def test_activations_that_cut_stay(op: str, fused: str) -> None:
    net = Net()
    stays(net.graph(host(net, op, net.input(SHAPE), fused)), remove_clamps)


def test_a_relu_whose_input_is_never_negative_goes() -> None:
    q = {"scale": 1 / 256, "zero_point": -128}
    for moved in (False, True):
        net = Net()
        y = net.op("LOGISTIC", [net.input(SHAPE)], SHAPE, **q)
        if moved:
            y = net.op("MAX_POOL_2D", [y], SHAPE, {"filter_height": 1, "filter_width": 1, "stride_h": 1, "stride_w": 1}, **q)
            y = net.op("CONCATENATION", [y, y], (1, 8, 4, 2), {"axis": 1}, **q)
        out = net.op("RELU6", [y], (1, 8, 4, 2) if moved else SHAPE, **q)
        after = unchanged(net.graph(out), remove_clamps)
        assert "RELU6" not in ops(after)


def test_relu_after_relu6_goes_and_relu6_after_relu_stays() -> None:
    for dtype, (first, second) in itertools.product(("int8", "float32"), (("RELU6", "RELU"), ("RELU", "RELU6"))):
        net = Net(dtype)
        graph = net.graph(net.op(second, [net.op(first, [net.input(SHAPE)], SHAPE)], SHAPE))
        assert ops(unchanged(graph, remove_clamps)) == ([first] if first == "RELU6" else [first, second])


def test_a_sum_that_stays_inside_needs_no_clamp() -> None:
    """x + x of 0 <= x <= 2.55 never reaches 6, as trying all pairs shows; with x up to 25.5 it does."""
    for scale, clamps in ((0.01, False), (0.1, True)):
        net = Net(scale=scale, zero_point=-128)
        graph = net.graph(net.op("ADD", [x := net.input(SHAPE), x], SHAPE, {"fused_activation_function": "RELU6"}, scale=0.1))
        assert activation(unchanged(graph, remove_clamps)) == ("relu6" if clamps else "none")


def test_a_relu_that_changes_the_quantisation_stays() -> None:
    net = Net(zero_point=-128)
    stays(net.graph(net.op("RELU", [net.input(SHAPE)], SHAPE, scale=0.2)), remove_clamps)


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_no_element_ever_leaves_its_interval(dtype: str) -> None:
    """Every operator whose results are tracked, on extreme and random inputs."""
    net = Net(dtype)
    x = net.input(SHAPE)
    quantised = dtype == "int8"
    ends = [host(net, op, x, act) for op, act in itertools.product(HOSTS, ("NONE", "RELU", "RELU6"))]
    ends += [net.op(relu, [x], SHAPE, scale=0.03, zero_point=9) for relu in RELUS]
    sigmoid = net.op("LOGISTIC", [x], SHAPE, **({"scale": 1 / 256, "zero_point": -128} if quantised else {}))
    tanh = net.op("TANH", [x], SHAPE, **({"scale": 1 / 128, "zero_point": 0} if quantised else {}))
    ends += [net.op("ADD", [sigmoid, tanh], SHAPE, {}), net.op("MUL", [sigmoid, tanh], SHAPE, {})]
    ends += [net.op("PAD", [ends[1], net.constant([[0, 0], [1, 1], [0, 0], [0, 0]])], (1, 6, 4, 2))]
    ends += [net.op("CONCATENATION", [ends[1], ends[2]], (1, 8, 4, 2), {"axis": 1})]
    ends += [net.op("PACK", ends[1:3], (2, *SHAPE), {"values_count": 2})]
    ends += [net.op("TRANSPOSE", [ends[1], net.constant([3, 0, 1, 2])], (2, 1, 4, 4))]
    if quantised:
        ends.append(net.op("QUANTIZE", [sigmoid], SHAPE))
    graph = net.graph(*ends)
    known = ranges(graph)
    rng = np.random.default_rng(3)
    low, high = (-128, 127) if quantised else (-50, 50)
    for data in (np.full(SHAPE, low), np.full(SHAPE, high), rng.integers(low, high + 1, SHAPE), np.zeros(SHAPE)):
        for name, array in run_all(graph, [data.astype(dtype)]).items():
            assert known[name][0] <= array.min() and array.max() <= known[name][1], (name, graph.producers.get(name))
    assert len({known[name] for name in graph.outputs}) > 3
