"""Graph -> Program: views, copies, outputs that are inputs, constants or each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot.errors import CompileError, InternalError
from aot.graph.primitive import Map
from aot.lower.build import build_program
from aot.lower.execute import execute_program
from aot.lower.program import Program
from tests.lower.toy import TOYS, GraphBuilder, made_up, random_inputs


def run(program: Program) -> list[np.ndarray]:
    return list(execute_program(program, random_inputs(program)).values())


def test_a_node_becomes_an_instruction_with_its_index() -> None:
    builder = GraphBuilder()
    x = builder.input(1, 2, 2, 1)
    program = builder.program(builder.node("UNARY", builder.node("UNARY", x)))
    assert [instruction.nodes for instruction in program.instructions] == [(0,), (1,)]
    assert [program[name].role for name in ("t0", "t1", "t2")] == ["input", "temporary", "output"]


def test_constants_of_lowering_are_named_after_the_output() -> None:
    builder = GraphBuilder()
    program = builder.program(builder.conv(builder.input(1, 2, 2, 3), 4))
    assert [buffer.name for buffer in program.buffers if buffer.role == "constant"] == ["t1_weights", "t1_bias"]


def test_constants_that_nothing_reads_are_dropped() -> None:
    builder = GraphBuilder()
    x, shape = builder.input(1, 2, 2, 1), builder.constant(4)
    program = builder.program(builder.node("UNARY", builder.node("VIEW", x, shape, shape=(4,))))
    assert shape not in program.by_name


def test_a_reshape_of_a_temporary_is_a_view() -> None:
    builder = GraphBuilder()
    x = builder.node("UNARY", builder.input(1, 2, 3, 1))
    program = builder.program(builder.node("UNARY", builder.view(x, 1, 6)))
    assert program["t2"].base == "t1"
    assert len(program.instructions) == 2


def test_a_chain_of_reshapes_shares_one_storage() -> None:
    builder = GraphBuilder()
    x = builder.node("UNARY", builder.input(1, 2, 3, 1))
    program = builder.program(builder.node("UNARY", builder.view(builder.view(x, 6), 3, 2)))
    assert program["t3"].base == "t1"


def test_an_output_that_is_a_reshape_is_the_storage() -> None:
    builder = GraphBuilder()
    x = builder.node("UNARY", builder.input(1, 2, 3, 1))
    program = builder.program(builder.view(builder.view(x, 6), 3, 2))
    assert len(program.instructions) == 1
    assert program["t3"].role == "output" and program["t3"].base is None
    assert program["t1"].base == "t3"
    (out,) = run(program)
    expected = (random_inputs(program)["t0"].astype(np.int32) * 3 + 1).astype(np.int8).reshape(3, 2)
    np.testing.assert_array_equal(out, expected)


def test_a_reshape_from_input_to_output_is_a_copy() -> None:
    builder = GraphBuilder()
    program = builder.program(builder.view(builder.input(2, 3), 6))
    (copy,) = program.instructions
    assert isinstance(copy, Map) and copy.out == "t1" and copy.nodes == (0,)
    np.testing.assert_array_equal(run(program)[0], random_inputs(program)["t0"].reshape(6))


def test_a_reshape_of_a_constant_is_a_constant() -> None:
    builder = GraphBuilder()
    x = builder.input(6)
    program = builder.program(builder.node("ADD", x, builder.view(builder.constant(2, 3), 6)))
    assert program["t2"].role == "constant" and "t1" not in program.by_name


def test_an_output_that_is_an_input_is_copied() -> None:
    builder = GraphBuilder()
    x = builder.input(2, 3)
    program = builder.program(x)
    assert program.outputs == ("t0_output",)
    assert program["t0_output"].role == "output"
    np.testing.assert_array_equal(run(program)[0], random_inputs(program)["t0"])


@pytest.mark.parametrize("with_other_node", [False, True])
def test_an_output_that_is_a_constant_is_copied(with_other_node: bool) -> None:
    builder = GraphBuilder()
    x, constant = builder.input(2, 3), builder.constant(2, 3)
    others = [builder.node("ADD", x, constant)] if with_other_node else []
    program = builder.program(*others, constant)
    assert program.outputs[-1] == "t1_output"
    np.testing.assert_array_equal(run(program)[-1], made_up((2, 3)))


def test_an_output_that_is_a_reshaped_constant_is_copied() -> None:
    builder = GraphBuilder()
    builder.input(1)
    program = builder.program(builder.view(builder.constant(2, 3), 6))
    np.testing.assert_array_equal(run(program)[0], made_up((2, 3)).reshape(6))


def test_two_outputs_that_are_the_same_value_are_two_buffers() -> None:
    builder = GraphBuilder()
    x = builder.node("UNARY", builder.input(2, 3))
    program = builder.program(x, x, x)
    assert program.outputs == ("t1", "t1_output", "t1_output1")
    first, *others = run(program)
    for other in others:
        np.testing.assert_array_equal(first, other)


def test_two_outputs_that_are_reshapes_of_one_value() -> None:
    builder = GraphBuilder()
    x = builder.node("UNARY", builder.input(2, 3))
    program = builder.program(builder.view(x, 6), builder.view(x, 3, 2), x)
    assert [program[name].base for name in program.outputs] == [None, None, None]
    a, b, c = run(program)
    np.testing.assert_array_equal(a.reshape(-1), b.reshape(-1))
    np.testing.assert_array_equal(a.reshape(-1), c.reshape(-1))


def test_an_output_may_be_read_by_later_nodes() -> None:
    builder = GraphBuilder()
    x = builder.node("UNARY", builder.input(2, 3))
    program = builder.program(x, builder.node("UNARY", x))
    assert len(run(program)) == 2
    assert program["t1"].role == "output"


def test_an_unused_output_of_a_node_has_a_buffer() -> None:
    builder = GraphBuilder()
    builder.node("UNARY", builder.input(2, 3))
    program = builder.program(builder.node("UNARY", "t0"))
    assert program["t1"].role == "temporary"


def test_zero_sized_values() -> None:
    builder = GraphBuilder()
    x = builder.input(0, 3)
    program = builder.program(builder.node("UNARY", builder.view(builder.node("UNARY", x), 3, 0)))
    assert run(program)[0].shape == (3, 0)


def test_a_variable_is_state() -> None:
    builder = GraphBuilder()
    x, variable = builder.input(2, 3), builder.value((2, 3))
    builder.values[1] = replace(builder.values[1], is_variable=True)
    program = builder.program(builder.node("ADD", x, variable))
    assert program[variable].role == "state"


def test_an_operator_without_a_table_entry_is_the_users_error() -> None:
    builder = GraphBuilder()
    out = builder.node("MYSTERY", builder.input(2, 3))
    with pytest.raises(CompileError, match=r"node 0 MYSTERY 't1': this operator is not supported"):
        build_program(builder.graph(out), TOYS)


def test_a_lowering_that_forgets_its_output_is_our_error() -> None:
    builder = GraphBuilder()
    out = builder.node("VIEW", builder.input(2, 3), shape=(7,))
    with pytest.raises(InternalError, match="nothing writes %t1"):
        build_program(builder.graph(out), TOYS)
