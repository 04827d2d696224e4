"""fold_constants, remove_dead_nodes, common_subexpressions; the pipeline as a whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot.errors import InternalError
from aot.graph.ir import Graph, Node
from aot.graph.ops import OPERATORS
from aot.graph.passes import PASSES, run_passes, verify
from aot.graph.passes.constants import common_subexpressions, fold_constants, remove_dead_nodes
from aot.graph.passes.rewrite import Edit, rewrite
from tests.graph.passing import Net, ops, stays, unchanged


def shape_chain() -> Graph:
    net = Net()
    x = net.input((2, 3, 4))
    shape = net.op("SHAPE", [x], (3,), {"out_type": 2}, dtype="int32")
    batch = net.op("STRIDED_SLICE", [shape, *map(net.constant, ([0], [1], [1]))], (), {"shrink_axis_mask": 1}, dtype="int32")
    target = net.op("PACK", [batch, net.constant(-1)], (2,), {"values_count": 2}, dtype="int32")
    return net.graph(net.op("RESHAPE", [x, target], (2, 12)))


def test_a_shape_chain_folds() -> None:
    after = unchanged(shape_chain(), fold_constants)
    assert ops(after) == ["RESHAPE"]
    assert after[str(after.nodes[0].inputs[1])].data.tolist() == [2, -1]


def test_arithmetic_on_constants_folds() -> None:
    net = Net()
    x = net.input((1, 4))
    a, b = (net.constant([[1, 2, 3, 4]], "int8", scale=0.1, zero_point=-5) for _ in range(2))
    total = net.op("ADD", [a, b], (1, 4), {})
    after = unchanged(net.graph(net.op("MUL", [x, total], (1, 4), {})), fold_constants)
    assert ops(after) == ["MUL"]


def test_a_constant_model_output_folds() -> None:
    net = Net("float32")
    net.input((2,))
    half = net.m.constant(np.arange(3, dtype=np.float16))
    after = unchanged(net.graph(net.op("DEQUANTIZE", [half], (3,))), fold_constants)
    assert after.nodes == () and after[after.outputs[0]].is_constant


def test_split_of_a_constant_folds_every_part() -> None:
    net = Net()
    parts = [net.tensor((2,)), net.tensor((2,))]
    net.m.operator(
        "SPLIT", [net.constant(0), net.constant([1, 2, 3, 4], "int8", scale=0.1, zero_point=-5)], parts, {"num_splits": 2}
    )
    after = unchanged(net.graph(net.op("SUB", parts, (2,), {})), fold_constants)
    assert after.nodes == ()


def test_folding_never_blows_up_the_read_only_data() -> None:
    """A resize of a small constant to 100 kB stays; to 10 kB it folds."""
    for side, folds in ((320, False), (100, True)):
        net = Net()
        small = net.constant(np.arange(4).reshape(1, 2, 2, 1), "int8", scale=0.1, zero_point=-5)
        out = net.op("RESIZE_NEAREST_NEIGHBOR", [small, net.constant([side, side])], (1, side, side, 1), {})
        assert (ops(unchanged(net.graph(out), fold_constants)) == []) is folds


def test_a_chain_of_growing_constants_stops() -> None:
    """Each step is no more than four times the one before, but all of them together are."""
    net = Net()
    x, side = net.constant(np.zeros((1, 128, 128, 1)), "int8", scale=0.1, zero_point=-5), 128
    for _ in range(4):
        side *= 2
        x = net.op("RESIZE_NEAREST_NEIGHBOR", [x, net.constant([side, side])], (1, side, side, 1), {})
    assert len(unchanged(net.graph(x), fold_constants).nodes) == 3


def test_inputs_do_not_fold() -> None:
    net = Net()
    stays(net.graph(net.op("RELU", [net.input((2,))], (2,))), fold_constants)


def test_dead_nodes_go() -> None:
    net = Net()
    x = net.input((2,))
    out = net.op("RELU", [x], (2,))
    net.op("TRANSPOSE", [net.op("RELU6", [x], (2,)), net.constant([0])], (2,))
    after = unchanged(net.graph(out), remove_dead_nodes)
    assert ops(after) == ["RELU"] and len(after.values) == 2


def test_live_nodes_stay() -> None:
    stays(shape_chain(), remove_dead_nodes)


def remembering(read: bool) -> Graph:
    """out = RELU(x), or RELU(x + state) where `read`; after each run state := x + state."""
    net = Net()
    x = net.input((2,))
    state = net.m.tensor("state", (2,), "int8", scale=0.1, zero_point=-5, variable=True)
    total = net.op("ADD", [x, state], (2,), {})
    graph = net.graph(net.op("RELU", [total if read else x], (2,)), total)
    return replace(graph, outputs=graph.outputs[:1], updates=((f"t{state}", f"t{total}"),))


def test_what_a_later_run_needs_stays() -> None:
    stays(remembering(read=True), remove_dead_nodes)
    stays(remembering(read=True), common_subexpressions)


def test_a_variable_that_no_output_ever_depends_on_goes() -> None:
    after = unchanged(remembering(read=False), remove_dead_nodes)
    assert ops(after) == ["RELU"] and not after.updates


def test_equal_nodes_become_one() -> None:
    net = Net()
    x = net.input((2, 3))
    left, right = (net.op("TRANSPOSE", [x, net.constant([1, 0])], (3, 2)) for _ in range(2))
    after = unchanged(net.graph(net.op("ADD", [left, right], (3, 2), {})), common_subexpressions)
    assert ops(after) == ["TRANSPOSE", "ADD"]
    assert after.nodes[1].inputs == after.nodes[0].outputs * 2


def test_chains_of_equal_nodes_become_one() -> None:
    net = Net()
    x = net.input((2, 3))
    ends = [net.op("RELU6", [net.op("RELU", [x], (2, 3))], (2, 3)) for _ in range(3)]
    total = net.op("ADD", [net.op("ADD", ends[:2], (2, 3), {}), ends[2]], (2, 3), {})
    assert ops(unchanged(net.graph(total), common_subexpressions)) == ["RELU", "RELU6", "ADD", "ADD"]


def test_equal_constants_become_one() -> None:
    net = Net()
    x = net.input((1, 4))
    for _ in range(2):
        x = net.op("ADD", [x, net.constant([[1, 2, 3, 4]], "int8", scale=0.1, zero_point=-5)], (1, 4), {})
    after = unchanged(net.graph(x), common_subexpressions)
    assert sum(value.is_constant for value in after.values) == 1


@pytest.mark.parametrize("difference", ["attributes", "output scale", "input", "model output", "constant scale"])
def test_different_nodes_stay_apart(difference: str) -> None:
    net = Net()
    x = net.input((2,))
    y = net.input((2,)) if difference == "input" else x
    options = {"fused_activation_function": "RELU"} if difference == "attributes" else {}
    scale = 0.2 if difference == "output scale" else 0.1
    constants = [net.constant([1, 2], "int8", scale=s) for s in (0.1, 0.2 if difference == "constant scale" else 0.1)]
    left = net.op("ADD", [x, constants[0]], (2,), {})
    right = net.op("ADD", [y, constants[1]], (2,), options, scale=scale)
    outputs = [net.op("MUL", [left, right], (2,), {}), *([right] if difference == "model output" else [])]
    assert ops(unchanged(net.graph(*outputs), common_subexpressions)) == ["ADD", "ADD", "MUL"]


# The pipeline


def test_the_pipeline_keeps_results_and_reports_its_passes() -> None:
    net = Net()
    x = net.input((1, 4, 4, 2))
    padded = net.op("PAD", [x, net.constant([[0, 0], [1, 1], [1, 1], [0, 0]])], (1, 6, 6, 2))
    y = net.conv(padded, (1, 6, 6, 2), (1, 4, 4, 3))
    y = net.op("RELU6", [net.op("RELU", [y], (1, 4, 4, 3))], (1, 4, 4, 3))
    y = net.op("TRANSPOSE", [y, net.constant([0, 3, 1, 2])], (1, 3, 4, 4))
    y = net.op("TRANSPOSE", [y, net.constant([0, 2, 3, 1])], (1, 4, 4, 3))
    y = net.op("RESHAPE", [net.op("RESHAPE", [y], (4, 12))], (48,))
    seen: list[str] = []
    after = unchanged(net.graph(y), lambda graph: run_passes(graph, OPERATORS, lambda name, _: seen.append(name)))
    assert ops(after) == ["CONV_2D", "RESHAPE"]
    assert seen == [function.__name__ for function, _ in PASSES]


def test_every_pass_says_why_it_stands_there() -> None:
    assert all(reason for _, reason in PASSES)
    assert all((function.__doc__ or "").count("->") >= 1 or "become" in (function.__doc__ or "") for function, _ in PASSES)


def test_a_pass_that_breaks_a_shape_is_found() -> None:
    net = Net()
    graph = net.graph(net.op("RELU", [net.input((2,))], (2,)))
    wrong = replace(graph, values=tuple(replace(v, shape=(3,)) if v.name in graph.outputs else v for v in graph.values))
    with pytest.raises(InternalError, match=r"has the shapes \(\(3,\),\), not \(\(2,\),\)"):
        verify(wrong, OPERATORS)


def test_a_pass_that_makes_a_node_its_operator_refuses_is_found() -> None:
    net = Net()
    graph = net.graph(net.op("RELU", [net.input((2,))], (2,)))
    wrong = replace(graph, nodes=(replace(graph.nodes[0], inputs=graph.nodes[0].inputs * 2),))
    with pytest.raises(InternalError, match="a pass made a node that its operator refuses: node 0 RELU 'v2': has 2 inputs"):
        verify(wrong, OPERATORS)


def test_rules_that_undo_each_other_are_found() -> None:
    def flip(graph: Graph, node: Node) -> Edit:
        return Edit((replace(node, op="RELU6" if node.op == "RELU" else "RELU"),))

    net = Net()
    graph = net.graph(net.op("RELU", [net.input((2,))], (2,)))
    with pytest.raises(InternalError, match="rules undo each other"):
        rewrite(graph, flip)
