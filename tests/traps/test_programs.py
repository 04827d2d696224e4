"""Traps of data movement, planning, and whole models."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from aot.driver import Options, compile_model, resolve_target
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_model
from tests.builder import ModelBuilder
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs
from tests.traps.exact import DSP, HOST, exact


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_trap_5_every_permutation(rank):
    """Permutations of three axes, and that which moves the channels last to first, gave another order."""
    m = ModelBuilder()
    shape = (2, 3, 5, 4)[:rank]
    x, outputs = m.tensor("x", shape, "int8", scale=0.1, zero_point=0), []
    for axes in itertools.permutations(range(rank)):
        y = m.tensor("y", tuple(shape[axis] for axis in axes), "int8", scale=0.1, zero_point=0)
        m.operator("TRANSPOSE", [x, m.constant(np.array(axes, np.int32))], [y], {})
        outputs.append(y)
    exact(m.build([x], outputs), cpus=HOST)


def test_trap_31_branches_that_are_all_outputs():
    """A graph with two outputs crashed."""
    m = ModelBuilder()
    x, a, b, c = (m.tensor(name, (1, 3, 4), "int8", scale=0.1, zero_point=0) for name in "xabc")
    m.operator("RELU", [x], [a])
    m.operator("RELU6", [x], [b])
    m.operator("ADD", [a, b], [c], {})
    exact(m.build([x], [c, a, b]))


def test_trap_41_outputs_that_nobody_reads():
    """A tensor that no node reads had no lifetime, and no place."""
    m = ModelBuilder()
    x = m.tensor("x", (1, 6), "int8", scale=0.1, zero_point=0)
    parts = [m.tensor(f"part{number}", (1, 2), "int8", scale=0.1, zero_point=0) for number in range(3)]
    m.operator("SPLIT", [m.constant(np.array(1, np.int32)), x], parts, {"num_splits": 3})
    y, unused = (m.tensor(name, (1, 2), "int8", scale=0.1, zero_point=0) for name in ("y", "unused"))
    m.operator("RELU", [parts[1]], [y])
    m.operator("RELU6", [parts[2]], [unused])
    exact(m.build([x], [y]))


@pytest.mark.parametrize("condition", [False, True])
def test_trap_41_a_branch_without_nodes(condition):
    """A sub-graph that hands its input through has an output that no node writes."""
    m = ModelBuilder()
    c, x = m.tensor("c", (1,), "bool"), m.tensor("x", (1, 4), "float32")
    y = m.tensor("y", (1, 4), "float32")
    m.operator("IF", [c, x], [y], {"then_subgraph_index": 1, "else_subgraph_index": 2})
    m.end_subgraph([c, x], [y])
    through = m.tensor("through", (1, 4), "float32")
    m.end_subgraph([through], [through])
    before, after = m.tensor("before", (1, 4), "float32"), m.tensor("after", (1, 4), "float32")
    m.operator("ADD", [before, before], [after], {})
    inputs = [np.array([condition]), np.array([[1, -2, 3, 4]], np.float32)]
    exact(m.build([before], [after]), inputs, cpus=HOST, oracle=litert_runs)


@pytest.mark.parametrize("alone", [False, True])
def test_trap_42_outputs_that_are_constants(alone):
    """A model output that is a constant crashed, with and without other nodes."""
    m = ModelBuilder()
    x, y = (m.tensor(name, (1, 4), "float32") for name in "xy")
    number = m.constant(np.array([[1, 2, 3]], np.float32))
    if not alone:
        m.operator("RELU", [x], [y])
    model = m.build([x], [number] if alone else [y, number])
    exact(model, [np.array([[1, -2, 3, -4]], np.float32)], oracle=litert_runs)


def test_trap_43_constants_given_to_a_branch():
    """A constant that is an argument of a sub-graph was written to, or not copied."""
    m = ModelBuilder()
    c, y = m.tensor("c", (1,), "bool"), m.tensor("y", (1, 3), "float32")
    number = m.constant(np.array([[1, 2, 3]], np.float32))
    m.operator("IF", [c, number], [y], {"then_subgraph_index": 1, "else_subgraph_index": 2})
    m.end_subgraph([c], [y])
    for op in ("ADD", "MUL"):
        a, b = m.tensor("a", (1, 3), "float32"), m.tensor("b", (1, 3), "float32")
        m.operator(op, [a, a], [b], {})
        if op == "ADD":
            m.end_subgraph([a], [b])
    model = m.build([a], [b])  # type: ignore[reportPossiblyUnbound]
    exact(model, [np.array([True])], [np.array([False])], cpus=HOST, oracle=litert_runs)


def test_trap_46_scratch_beside_everything_that_is_alive():
    """At a fork, the scratch of one branch lay on the output of the other."""
    m, rng = ModelBuilder(), np.random.default_rng(6)
    quantised = {"scale": 0.1, "zero_point": -3}
    x = m.tensor("x", (1, 6, 6, 8), "int8", **quantised)
    ends = []
    for branch in range(3):
        w = m.tensor("w", (8, 3, 3, 8), "int8", scale=0.01, zero_point=0, data=rng.integers(-127, 128, (8, 3, 3, 8)))
        y = m.tensor(f"y{branch}", (1, 6, 6, 8), "int8", **quantised)
        m.operator("CONV_2D", [x, w, -1], [y], {"stride_h": 1, "stride_w": 1, "padding": "SAME"})
        ends.append(y)
    total = m.tensor("total", (1, 6, 6, 24), "int8", **quantised)
    m.operator("CONCATENATION", [*ends[1:], ends[0]], [total], {"axis": 3})
    sums = m.tensor("sums", (1, 6, 6, 8), "int8", **quantised)
    m.operator("ADD", [ends[0], ends[2]], [sums], {})
    exact(m.build([x], [total, sums]), cpus=DSP)


def test_trap_48_metadata_that_is_not_a_plan():
    """Metadata with an empty name was taken for a memory plan."""
    target, backend = resolve_target(Options())
    objects = []
    for name in (None, "", "OfflineMemoryAllocation"):
        m = ModelBuilder()
        x, y = (m.tensor(label, (1, 4), "int8", scale=0.1, zero_point=0) for label in "xy")
        m.operator("RELU", [x], [y])
        if name is not None:
            m.add_metadata(name, b"\1\0\0\0" * 5)
        model = read_model(m.build([x], [y]), "trap.tflite", OPERATORS)
        objects.append(compile_model(model, target, backend, Options(), lambda stage, result: None).object)
    assert objects[0] == objects[1] == objects[2]


def test_trap_49_nodes_that_read_the_same_tensor_twice():
    """Loops with buffers that lie on each other were merged as if they were apart."""
    m = ModelBuilder()
    x = first = m.tensor("x", (1, 3, 4), "int8", scale=0.1, zero_point=2)
    for number in range(4):
        y = m.tensor(f"y{number}", (1, 3, 4), "int8", scale=0.15, zero_point=-2)
        m.operator("ADD" if number % 2 else "MUL", [x, x], [y], {})
        x = y
    exact(m.build([first], [x]))


@pytest.mark.parametrize("begins", [(0, 2), (2, 0), (0, 3), (1, 0), (0, 0)])
def test_trap_51_slices_that_are_joined_again(begins):
    """Slices and a concatenation were removed, though the slices had another order, gaps or overlaps."""
    m = ModelBuilder()
    x, parts = m.tensor("x", (2, 5), "int8", scale=0.1, zero_point=0), []
    for begin in begins:
        part = m.tensor("part", (2, 2), "int8", scale=0.1, zero_point=0)
        m.operator("SLICE", [x, m.constant(np.array([0, begin], np.int32)), m.constant(np.array([2, 2], np.int32))], [part], {})
        parts.append(part)
    y = m.tensor("y", (2, 4), "int8", scale=0.1, zero_point=0)
    m.operator("CONCATENATION", parts, [y], {"axis": 1})
    exact(m.build([x], [y]), cpus=HOST)


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_trap_58_a_shrunk_axis_ignores_its_stride(stride):
    """A stride on an axis that is shrunk left nothing of it."""
    indices = [T((2,), "int32", data=np.array(numbers)) for numbers in ([1, 0], [2, 4], [stride, 1])]
    options = {"shrink_axis_mask": 1, "begin_mask": 0, "end_mask": 0, "ellipsis_mask": 0, "new_axis_mask": 0}
    exact(one_operator("STRIDED_SLICE", [T((3, 4), "int8", 0.1), *indices], [T((4,), "int8", 0.1)], options), cpus=HOST)
