"""eliminate_identities, eliminate_transposes, merge_reshapes: each rule fires, keeps off, and changes no result."""

from __future__ import annotations

import itertools

import pytest

from aot.graph.passes.constants import remove_dead_nodes
from aot.graph.passes.movement import eliminate_identities, eliminate_transposes, merge_reshapes
from tests.graph.passing import Net, ops, stays, unchanged


def identities(net: Net, x: int) -> dict[str, int]:
    """Nodes that return x, of shape 1x2x3."""
    q = {"scale": 0.1, "zero_point": -5}
    return {
        "RESHAPE": net.op("RESHAPE", [x, net.constant([1, 2, 3])], (1, 2, 3)),
        "TRANSPOSE": net.op("TRANSPOSE", [x, net.constant([0, 1, 2])], (1, 2, 3)),
        "PAD": net.op("PAD", [x, net.constant([[0, 0]] * 3)], (1, 2, 3)),
        "PADV2": net.op("PADV2", [x, net.constant([[0, 0]] * 3), net.constant(7, "int8", **q)], (1, 2, 3)),
        "QUANTIZE": net.op("QUANTIZE", [x], (1, 2, 3)),
        "CONCATENATION": net.op("CONCATENATION", [x], (1, 2, 3), {"axis": 1}),
        "SLICE": net.op("SLICE", [x, net.constant([0, 0, 0]), net.constant([-1, 2, 3])], (1, 2, 3)),
        "STRIDED_SLICE": net.op("STRIDED_SLICE", [x, *map(net.constant, ([0, 0, 0], [1, 2, 3], [1, 1, 1]))], (1, 2, 3), {}),
        "SQUEEZE": net.op("SQUEEZE", [net.op("EXPAND_DIMS", [x, net.constant(0)], (1, 1, 2, 3))], (1, 2, 3), {"squeeze_dims": [0]}),
    }


NAMES = tuple(identities(Net(), 0))


@pytest.mark.parametrize("name", NAMES)
def test_an_identity_goes(name: str) -> None:
    net = Net()
    x = net.op("RELU", [net.input((1, 2, 3))], (1, 2, 3))
    y = net.op("RELU6", [identities(net, x)[name]], (1, 2, 3))
    after = unchanged(net.graph(y), lambda graph: eliminate_identities(merge_reshapes(remove_dead_nodes(graph))))
    assert name not in ops(after) and "RELU6" in ops(after)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_output_takes_the_place_of_what_an_identity_reads(name: str) -> None:
    net = Net()
    x = net.op("RELU", [net.input((1, 2, 3))], (1, 2, 3))
    y = identities(net, x)[name]
    graph = net.graph(y, net.op("RELU6", [x], (1, 2, 3)))
    after = unchanged(graph, lambda graph: eliminate_identities(merge_reshapes(remove_dead_nodes(graph))))
    assert after.producers[graph.outputs[0]].op == "RELU"
    assert after.producers[graph.outputs[1]].inputs == (graph.outputs[0],)


@pytest.mark.parametrize("source", ["input", "constant", "output"])
def test_an_identity_stays_if_a_model_output_would_be_something_else(source: str) -> None:
    net = Net()
    x = net.input((1, 2, 3))
    if source == "constant":
        y = net.op(
            "TRANSPOSE",
            [net.constant([[[1, 2, 3], [4, 5, 6]]], "int8", scale=0.1, zero_point=-5), net.constant([0, 1, 2])],
            (1, 2, 3),
        )
        stays(net.graph(y), eliminate_identities)
    elif source == "input":
        stays(net.graph(net.op("TRANSPOSE", [x, net.constant([0, 1, 2])], (1, 2, 3))), eliminate_identities)
    else:
        middle = net.op("RELU", [x], (1, 2, 3))
        stays(net.graph(middle, net.op("TRANSPOSE", [middle, net.constant([0, 1, 2])], (1, 2, 3))), eliminate_identities)


NOT_IDENTITIES = {
    "RESHAPE": lambda net, x: net.op("RESHAPE", [x, net.constant([4])], (4,)),
    "TRANSPOSE": lambda net, x: net.op("TRANSPOSE", [x, net.constant([1, 0])], (2, 2)),
    "PAD": lambda net, x: net.op("PAD", [x, net.constant([[0, 0], [1, 0]])], (2, 3)),
    "QUANTIZE": lambda net, x: net.op("QUANTIZE", [x], (2, 2), zero_point=-6),
    "CONCATENATION": lambda net, x: net.op("CONCATENATION", [x, x], (4, 2), {"axis": 0}),
    "STRIDED_SLICE": lambda net, x: net.op("STRIDED_SLICE", [x, *map(net.constant, ([1, 0], [-3, 2], [-1, 1]))], (2, 2), {}),
    "another scale": lambda net, x: net.op("TRANSPOSE", [x, net.constant([0, 1])], (2, 2), scale=0.2),
}


@pytest.mark.parametrize("name", NOT_IDENTITIES)
def test_what_is_no_identity_stays(name: str) -> None:
    net = Net()
    x = net.op("RELU", [net.input((2, 2))], (2, 2))
    stays(net.graph(NOT_IDENTITIES[name](net, x)), eliminate_identities)


def test_a_variable_is_not_passed_on() -> None:
    """It may change between the two readings."""
    net = Net()
    x = net.input((2,))
    state = net.m.tensor("state", (2,), "int8", scale=0.1, zero_point=-5, variable=True)
    copied = net.op("CONCATENATION", [state], (2,), {"axis": 0})
    stays(net.graph(net.op("ADD", [x, copied], (2,), {})), eliminate_identities)


# Transposes


def test_every_pair_of_transposes_becomes_one_or_none() -> None:
    for first, second in itertools.product(itertools.permutations(range(3)), repeat=2):
        net = Net()
        shape = (2, 3, 4)
        inner_shape = [shape[k] for k in first]
        inner = net.op("TRANSPOSE", [net.op("RELU", [net.input(shape)], shape), net.constant(list(first))], inner_shape)
        out = net.op("TRANSPOSE", [inner, net.constant(list(second))], [inner_shape[k] for k in second])
        y = net.op("RELU6", [out], [inner_shape[k] for k in second])
        after = unchanged(net.graph(y), lambda graph: eliminate_identities(merge_reshapes(eliminate_transposes(graph))))
        cancels = [first[k] for k in second] == [0, 1, 2]
        assert ops(after) == (["RELU", "RELU6"] if cancels else ["RELU", "TRANSPOSE", "RELU6"])


def test_a_transpose_that_others_read_is_not_merged() -> None:
    net = Net()
    inner = net.op("TRANSPOSE", [net.input((2, 3, 4)), net.constant([1, 2, 0])], (3, 4, 2))
    outer = net.op("TRANSPOSE", [inner, net.constant([1, 0, 2])], (4, 3, 2))
    stays(net.graph(net.op("RELU", [inner], (3, 4, 2)), outer), eliminate_transposes)


def test_a_pair_that_cancels_goes_although_others_read_its_middle() -> None:
    net = Net()
    x = net.input((2, 3))
    inner = net.op("TRANSPOSE", [x, net.constant([1, 0])], (3, 2))
    outer = net.op("TRANSPOSE", [inner, net.constant([1, 0])], (2, 3))
    after = unchanged(net.graph(inner, net.op("RELU", [outer], (2, 3))), eliminate_transposes)
    assert ops(after) == ["TRANSPOSE", "RELU"] and after.nodes[1].inputs == after.inputs


@pytest.mark.parametrize("perm", list(itertools.permutations(range(4))))
def test_moving_axes_of_size_one_is_a_reshape(perm: tuple[int, ...]) -> None:
    shape = (1, 3, 1, 5)
    net = Net()
    y = net.op("TRANSPOSE", [net.input(shape), net.constant(list(perm))], [shape[k] for k in perm])
    after = unchanged(net.graph(y), eliminate_transposes)
    assert ops(after) == ["RESHAPE" if perm.index(1) < perm.index(3) else "TRANSPOSE"]


# Reshapes


def test_chains_of_views_become_one() -> None:
    net = Net()
    x = net.op("EXPAND_DIMS", [net.op("RELU", [net.input((2, 6))], (2, 6)), net.constant(0)], (1, 2, 6))
    x = net.op("RESHAPE", [x, net.constant([3, 1, -1])], (3, 1, 4))
    x = net.op("SQUEEZE", [x], (3, 4), {})
    after = unchanged(net.graph(net.op("RELU6", [x], (3, 4))), merge_reshapes)
    assert after[after.nodes[-1].inputs[0] or ""].shape == (3, 4)
    assert ops(after) == ["RELU", "RESHAPE", "RELU6"]


def test_a_view_that_others_read_stays_beside_the_merged_one() -> None:
    net = Net()
    x = net.op("RELU", [net.input((2, 6))], (2, 6))
    middle = net.op("RESHAPE", [x], (12,), {"new_shape": [12]})
    after = unchanged(net.graph(middle, net.op("RESHAPE", [middle], (3, 4), {"new_shape": [3, 4]})), merge_reshapes)
    assert [node.inputs for node in after.nodes[1:]] == [after.nodes[0].outputs] * 2


def test_a_single_view_stays() -> None:
    net = Net()
    stays(net.graph(net.op("RESHAPE", [net.input((2, 6))], (12,), {"new_shape": [12]})), merge_reshapes)


def test_a_reshape_before_a_dense_layer_stays() -> None:
    net = Net("float32")
    flat = net.op("RESHAPE", [net.input((1, 2, 2, 3))], (1, 12), {"new_shape": [1, 12]})
    weights = net.constant([[1.0] * 12] * 2, "float32")
    stays(net.graph(net.op("FULLY_CONNECTED", [flat, weights, -1], (1, 2), {})), merge_reshapes)
