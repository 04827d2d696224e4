"""Fusion: what it makes of small graphs, as text, and where it must leave things alone."""

from __future__ import annotations

import numpy as np
import pytest

from aot.graph.expr import Acc, Const, Expr, IndexMap, Load, Lookup, add, affine, axis, integer, loads
from aot.graph.ir import DType
from aot.graph.primitive import Contract, Map, Reduce, describe, identity
from aot.lower.draft import MAX_DEPTH, MAX_EXPRESSIONS, moderate
from aot.lower.execute import execute_program
from aot.lower.fuse import LOWER_PASSES, fuse
from aot.lower.program import Buffer, Program, Role
from tests.lower.toy import GraphBuilder, random_inputs


def fused(builder: GraphBuilder, *outputs: str) -> Program:
    """The fused program, after checking that it computes what the unfused one does."""
    program = builder.program(*outputs)
    result = fuse(program)
    inputs = random_inputs(program)
    before, after = execute_program(program, inputs), execute_program(result, inputs)
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name])
    return result


def lines(program: Program) -> list[str]:
    return [describe(instruction) for instruction in program.instructions]


def kinds(program: Program) -> list[str]:
    return [type(instruction).__name__ for instruction in program.instructions]


def test_every_pass_is_named_with_its_reason() -> None:
    names = [run.__name__ for run, _ in LOWER_PASSES]
    assert names[:4] == ["drop_dead_instructions", "forward_copies", "fuse_epilogues", "inline_maps"]
    assert all(reason for _, reason in LOWER_PASSES)


def test_the_observer_sees_each_pass() -> None:
    builder = GraphBuilder()
    seen: list[str] = []
    fuse(builder.program(builder.node("UNARY", builder.input(1, 2, 2, 1))), lambda name, program: seen.append(name))
    assert seen == [run.__name__ for run, _ in LOWER_PASSES]


def test_residual_block() -> None:
    """The addition and what follows join the contraction that runs last; the other one's result is read at the same element."""
    builder = GraphBuilder()
    x = builder.input(1, 4, 4, 2)
    branch, shortcut = builder.conv(builder.conv(x, 2), 2), builder.conv(x, 2)
    result = fused(builder, builder.node("UNARY", builder.node("ADD", branch, shortcut)))
    assert kinds(result) == ["Contract"] * 3
    assert result.instructions[2].nodes == (2, 3, 4)
    assert lines(result)[2] == (
        "%t5 = contract 1x4x4x2 conv over 1x1x2: "
        "sum(%t3_bias[i3]; (%t0[i0, i1 + i4, i2 + i5, i6] - 0) * (%t3_weights[i3, i4, i5, i6] - 0)) -> "
        "int8(add(mul(int32(int8(add(mul(int32(%t2[i0, i1, i2, i3]), 2), int32(int8(acc))))), 3), 1))"
    )


def test_concatenation_costs_nothing() -> None:
    """Producers store into their part; only a model input has to be copied."""
    builder = GraphBuilder()
    x = builder.input(1, 4, 4, 2)
    parts = builder.conv(x, 2), builder.node("UNARY", x), x
    result = fused(builder, builder.concat(3, *parts))
    assert [line.split(" over")[0].split(":")[0] for line in lines(result)] == [
        "%t3[i0, i1, i2, i3] = contract 1x4x4x2 conv",
        "%t3[i0, i1, i2, i3 + 2] = map 1x4x4x2",
        "%t3[i0, i1, i2, i3 + 4] = map 1x4x4x2",
    ]


def test_nested_concatenation() -> None:
    builder = GraphBuilder()
    x = builder.input(1, 2, 2, 2)
    inner = builder.concat(3, builder.conv(x, 2), builder.conv(x, 3))
    result = fused(builder, builder.concat(1, inner, builder.conv(x, 5)))
    assert kinds(result) == ["Contract"] * 3
    assert {instruction.out for instruction in result.instructions} == {"t5"}  # type: ignore[union-attr]


def test_an_activation_and_then_a_concatenation() -> None:
    builder = GraphBuilder()
    x = builder.input(1, 2, 2, 2)
    result = fused(
        builder, builder.concat(3, builder.node("UNARY", builder.conv(x, 2)), builder.node("UNARY", builder.depthwise(x, 2)))
    )
    assert kinds(result) == ["Contract"] * 2
    assert lines(result)[1].startswith("%t5[i0, i1, i2, 2*i3 + i4 + 2] = contract 1x2x2x2x2 depthwise")


def test_depthwise_epilogue_says_its_indices_in_five_axes() -> None:
    builder = GraphBuilder()
    x = builder.input(1, 4, 4, 2)
    result = fused(builder, builder.node("POSITION", builder.node("ADD", builder.depthwise(x, 2), builder.constant(1, 1, 1, 4))))
    (line,) = lines(result)
    assert line.endswith(
        "-> int8(add(int32(int8(add(mul(int32(int8(acc)), 2), int32(%t2[0, 0, 0, 2*i3 + i4])))), add(mul(i3, 2), i4)))"
    )


def test_padding_joins_the_convolution() -> None:
    builder = GraphBuilder()
    x = builder.node("UNARY", builder.input(1, 4, 4, 2))
    result = fused(builder, builder.conv(builder.pad(x, (0, 1, 2, 0), (0, 1, 0, 0), 3), 2, 3, 1, 0, 3))
    contract = result.instructions[1]
    assert isinstance(contract, Contract) and contract.geometry is not None
    assert contract.left == Load("t1", contract.left.index, DType.INT8, Const(3, DType.INT8))
    assert "%t1[i0, i1 + i4 + -1, i2 + i5 + -2, i6 else 3]" in lines(result)[1]
    assert (contract.geometry.input, contract.geometry.pad_top, contract.geometry.pad_left) == ((1, 4, 4, 2), 1, 2)


def test_padding_in_front_of_padding() -> None:
    builder = GraphBuilder()
    x = builder.input(1, 4, 4, 2)
    result = fused(builder, builder.conv(builder.pad(x, (0, 1, 1, 0), (0, 1, 1, 0), 3), 2, 3, 1, 1, 3))
    (contract,) = result.instructions
    assert isinstance(contract, Contract) and contract.geometry is not None
    assert (contract.geometry.pad_top, contract.geometry.pad_left) == (2, 2)


def test_global_sum_takes_in_what_it_reads_once_and_what_follows_through_a_view() -> None:
    builder = GraphBuilder()
    x = builder.node("UNARY", builder.input(1, 4, 4, 2))
    result = fused(builder, builder.node("UNARY", builder.view(builder.sum(x), 1, 2)))
    assert lines(result) == [
        "%t4[0, i3] = reduce 1x1x1x2 over 4x4: add(7; int32(int8(add(mul(int32(%t0[i0, i4, i5, i3]), 3), 1)))) -> "
        "int8(add(mul(int32(int8(acc)), 3), 1))"
    ]


def test_padding_with_a_number_joins_a_maximum_that_skips_nothing() -> None:
    builder = GraphBuilder()
    x = builder.input(1, 4, 4, 2)
    (pool,) = fused(builder, builder.pool(builder.pad(x, (0, 1, 1, 0), (0, 1, 1, 0), 3), 2)).instructions
    assert isinstance(pool, Reduce) and not pool.skip_fill


def test_chains_of_data_movement_become_one_index() -> None:
    builder = GraphBuilder()
    x = builder.transpose(builder.input(1, 4, 4, 2), 0, 2, 1, 3)
    x = builder.node("GATHER", x, shape=(1, 3, 4, 2), attributes=(1, (2, 0, 0)))
    x = builder.node("SLICE", x, shape=(1, 3, 2, 2), attributes=((0, 1), (2, -1), (1, 1), (0, 1)))
    (line,) = lines(fused(builder, builder.node("UNARY", x)))
    assert line == "%t4 = map 1x3x2x2: int8(add(mul(int32(%t0[i0, i2 + 1, table3[i1], i3]), 3), 1))"


def test_resizing_reads_a_plain_source_many_times() -> None:
    builder = GraphBuilder()
    twice = (0, 0, 1, 1)
    x = builder.node("GATHER", builder.input(1, 2, 2, 1), shape=(1, 4, 2, 1), attributes=(1, twice))
    assert len(fused(builder, builder.node("UNARY", x)).instructions) == 1


class TestMustNotFire:
    """Each leaves both instructions in place."""

    def test_a_result_that_two_read(self) -> None:
        builder = GraphBuilder()
        c = builder.conv(builder.input(1, 2, 2, 2), 2)
        assert len(fused(builder, builder.node("UNARY", c), builder.node("POSITION", c)).instructions) == 3

    def test_a_result_that_is_an_output(self) -> None:
        builder = GraphBuilder()
        c = builder.conv(builder.input(1, 2, 2, 2), 2)
        assert len(fused(builder, c, builder.node("UNARY", c)).instructions) == 2

    def test_a_computed_value_that_is_read_more_than_once(self) -> None:
        builder = GraphBuilder()
        x = builder.node("UNARY", builder.input(1, 2, 2, 1))
        assert len(fused(builder, builder.node("GATHER", x, shape=(1, 4, 2, 1), attributes=(1, (0, 0, 1, 1)))).instructions) == 2

    def test_a_computed_operand_of_a_contraction(self) -> None:
        builder = GraphBuilder()
        x = builder.node("UNARY", builder.input(1, 2, 2, 2))
        assert kinds(fused(builder, builder.conv(x, 2))) == ["Map", "Contract"]

    def test_padding_that_is_not_the_zero_point(self) -> None:
        builder = GraphBuilder()
        x = builder.pad(builder.input(1, 2, 2, 2), (0, 1, 1, 0), (0, 1, 1, 0), 5)
        assert kinds(fused(builder, builder.conv(x, 2, 3, 1, 0, 3))) == ["Map", "Contract"]

    def test_padding_with_two_numbers(self) -> None:
        builder = GraphBuilder()
        x = builder.pad(builder.input(1, 2, 2, 2), (0, 1, 1, 0), (0, 1, 1, 0), 5)
        assert kinds(fused(builder, builder.conv(x, 2, 3, 1, 1, 3))) == ["Map", "Contract"]

    def test_a_slice_in_front_of_padding(self) -> None:
        """What lies outside the slice lies inside its source."""
        builder = GraphBuilder()
        x = builder.node("SLICE", builder.input(1, 4, 4, 2), shape=(1, 2, 2, 2), attributes=((0, 1), (1, 1), (1, 1), (0, 1)))
        assert kinds(fused(builder, builder.conv(x, 2, 3, 1, 1, 3))) == ["Map", "Contract"]

    def test_padding_of_channels(self) -> None:
        builder = GraphBuilder()
        x = builder.pad(builder.input(1, 2, 2, 2), (0, 0, 0, 1), (0, 0, 0, 1), 3)
        assert kinds(fused(builder, builder.conv(x, 2, 1, 1, 0, 3))) == ["Map", "Contract"]

    def test_padding_with_a_number_in_front_of_skipped_padding(self) -> None:
        builder = GraphBuilder()
        x = builder.pad(builder.input(1, 3, 3, 2), (0, 1, 1, 0), (0, 1, 1, 0), 3)
        assert kinds(fused(builder, builder.pool(x, 3, 1, 1))) == ["Map", "Reduce"]

    def test_a_reduction_that_is_read_elsewhere_than_it_stores(self) -> None:
        builder = GraphBuilder()
        c = builder.conv(builder.input(1, 2, 3, 2), 2)
        assert kinds(fused(builder, builder.transpose(c, 0, 2, 1, 3))) == ["Contract", "Map"]

    def test_one_number_for_many_elements(self) -> None:
        builder = GraphBuilder()
        x = builder.input(1, 2, 2, 2)
        assert kinds(fused(builder, builder.node("ADD", x, builder.sum(x)))) == ["Reduce", "Map"]


def test_a_wider_result_is_not_written_earlier_than_it_was() -> None:
    """The group of a contraction and what widens its result runs where the wide result was made."""
    builder = GraphBuilder()
    x = builder.input(1, 4, 4, 2)
    narrow = builder.conv(builder.node("UNARY", x), 2)
    between = builder.conv(builder.node("UNARY", x), 2)
    wide = builder.node("WIDEN", narrow, dtype=DType.INT32)
    twice = [builder.node("NARROW", wide) for _ in range(2)]
    result = fused(builder, between, *twice)
    written = [instruction.out for instruction in result.instructions]  # type: ignore[union-attr]
    assert narrow not in written and written.index(wide) > written.index(between)


def test_running_late_must_not_keep_more_alive() -> None:
    """t2 (2 bytes) is not computed from t1 (32 bytes) only after t3 and t4, where the Map is that reads it."""
    builder = GraphBuilder()
    x = builder.input(1, 4, 4, 2)
    large = builder.conv(x, 2)
    small = builder.sum(large)
    between = builder.transpose(builder.sum(builder.conv(x, 2, 3)), 0, 2, 1, 3)
    read_twice = builder.node("UNARY", between)
    result = fused(builder, builder.node("ADD", small, between), read_twice)
    assert lines(result)[1].startswith("%t2 = reduce")


def test_running_late_is_fine_if_it_keeps_less_alive() -> None:
    """What t2 is computed from is an operand that lives on anyway."""
    builder = GraphBuilder()
    x = builder.input(1, 4, 4, 2)
    small = builder.node("UNARY", x)
    between = builder.pool(builder.node("POSITION", x), 3, 1, 1)
    last = builder.node("ADD", small, between)
    assert kinds(fused(builder, last, builder.node("UNARY", x)))[:2] == ["Map", "Reduce"]


def test_a_lookup_of_a_temporary_keeps_it() -> None:
    buffers = (
        Buffer("x", DType.INT32, (4,), "input"),
        Buffer("table", DType.INT32, (4,), "temporary"),
        Buffer("y", DType.INT32, (4,), "output"),
    )
    here = identity(1)
    squares = Map("table", (4,), add(Load("x", here, DType.INT32), integer(1)))
    looked_up = Lookup("table", Load("x", here, DType.INT32), DType.INT32)
    program = Program("p", buffers, (squares, Map("y", (4,), looked_up)), ("x",), ("y",))
    result = fuse(program)
    assert len(result.instructions) == 2
    out = execute_program(result, {"x": np.array([3, 1, 0, 2], np.int32)})
    np.testing.assert_array_equal(out["y"], [3, 2, 4, 1])


def test_state_is_left_alone() -> None:
    """Reading a variable may not move past its update."""
    shape, here = (4,), identity(1)
    buffers = tuple(
        Buffer(name, DType.INT32, shape, role)
        for name, role in (("x", "input"), ("s", "state"), ("old", "temporary"), ("y", "output"))
    )
    load = {name: Load(name, here, DType.INT32) for name in "xs"} | {"old": Load("old", here, DType.INT32)}
    instructions = (
        Map("old", shape, load["s"]),
        Map("s", shape, add(load["s"], load["x"])),
        Map("y", shape, add(load["old"], integer(1))),
    )
    program = Program("p", buffers, instructions, ("x",), ("y",))
    result, state = fuse(program), {"s": np.arange(4, dtype=np.int32)}
    out = execute_program(result, {"x": np.full(4, 10, np.int32)}, state)
    np.testing.assert_array_equal(out["y"], [1, 2, 3, 4])
    np.testing.assert_array_equal(state["s"], [10, 11, 12, 13])


def run_fused(program: Program, **inputs: list[int]) -> tuple[Program, dict[str, np.ndarray]]:
    """The fused program, and its outputs, which equal the unfused one's. Inputs are int32."""
    arrays = {name: np.array(values, np.int32) for name, values in inputs.items()}
    result = fuse(program)
    before, after = execute_program(program, arrays), execute_program(result, arrays)
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name], err_msg=str(result))
    return result, after


def int32(name: str, role: Role, *shape: int) -> Buffer:
    return Buffer(name, DType.INT32, shape, role)


def element(name: str, index: IndexMap | None = None, fill: int | None = None) -> Load:
    """An int32 element of a one-dimensional buffer."""
    return Load(name, (axis(0) if index is None else index,), DType.INT32, None if fill is None else Const(fill, DType.INT32))


def total(out: str, source: str) -> Reduce:
    """out[i] = the sum of source[i, :]."""
    term = Load(source, identity(2), DType.INT32)
    return Reduce(out, (2,), (3,), "add", integer(0), term, Acc(DType.INT32))


def test_an_epilogue_may_not_write_before_an_earlier_reader() -> None:
    """The old state is read between the reduction and the Map that stores the new one."""
    buffers = int32("x", "input", 2, 3), int32("s", "state", 2), int32("t", "temporary", 2), int32("y", "output", 2)
    new = Map("s", (2,), add(element("t"), integer(1)))
    program = Program("p", buffers, (total("t", "x"), Map("y", (2,), element("s")), new), ("x",), ("y",))
    state: dict[str, np.ndarray] = {"s": np.array([7, 8], np.int32)}
    out = execute_program(fuse(program), {"x": np.ones((2, 3), np.int32)}, state)
    np.testing.assert_array_equal(out["y"], [7, 8])
    np.testing.assert_array_equal(state["s"], [4, 4])


def test_an_epilogue_may_not_write_before_an_overlapping_writer() -> None:
    buffers = int32("x", "input", 2, 3), int32("t", "temporary", 2), int32("y", "output", 4)
    part = Map("y", (2,), add(element("t"), integer(1)), identity(1))
    program = Program("p", buffers, (total("t", "x"), Map("y", (4,), integer(9)), part), ("x",), ("y",))
    _, out = run_fused(program, x=[[1, 1, 1], [2, 2, 2]])  # type: ignore[list-item]
    np.testing.assert_array_equal(out["y"], [4, 7, 9, 9])


def windowed(term: Expr) -> Reduce:
    """y[i] = the sum over j of term, where loads outside are skipped."""
    return Reduce("y", (3,), (3,), "add", integer(0), term, Acc(DType.INT32), skip_fill=True)


def test_a_computed_term_keeps_its_own_padding() -> None:
    """Of a term's two loads one is skipped outside; the other, once inlined, has a fill that counts."""
    buffers = int32("a", "input", 3), int32("c", "input", 3), int32("b", "temporary", 9), int32("y", "output", 3)
    near = affine({0: 1, 1: 1}, -1)
    computed = Map("b", (9,), add(element("c", axis(0, 1, -1), 100), integer(1)))
    term = add(element("a", near, 0), element("b", affine({0: 3, 1: 1})))
    run_fused(Program("p", buffers, (computed, windowed(term)), ("a", "c"), ("y",)), a=[1, 2, 3], c=[10, 20, 30])


def test_the_weights_of_a_contraction_do_not_get_a_fill() -> None:
    buffers = int32("x", "input", 4), int32("w", "input", 2), int32("p", "temporary", 4), int32("y", "output", 1)
    padded = Map("p", (4,), element("w", axis(0, 1, -1), 6))
    product = Contract("y", (1,), (4,), element("x", axis(1)), element("p", axis(1)), 0, 0, integer(0), Acc(DType.INT32))
    result, out = run_fused(Program("p", buffers, (padded, product), ("x", "w"), ("y",)), x=[1, 2, 3, 4], w=[10, 20])
    assert kinds(result) == ["Map", "Contract"]
    assert out["y"][0] == 6 + 20 + 60 + 24


def test_the_weights_of_a_contraction_may_be_moved() -> None:
    buffers = int32("x", "input", 4), int32("w", "input", 4), int32("r", "temporary", 4), int32("y", "output", 1)
    reversed_ = Map("r", (4,), element("w", axis(0, -1, 3)))
    product = Contract("y", (1,), (4,), element("x", axis(1)), element("r", axis(1)), 0, 0, integer(0), Acc(DType.INT32))
    result, out = run_fused(Program("p", buffers, (reversed_, product), ("x", "w"), ("y",)), x=[1, 2, 3, 4], w=[10, 20, 30, 40])
    assert kinds(result) == ["Contract"]
    assert out["y"][0] == 40 + 60 + 60 + 40


def test_a_store_over_an_earlier_fill_stays_after_it() -> None:
    """Two writers of one buffer that overlap keep their order."""
    shape, here = (4,), identity(1)
    buffers = (
        Buffer("x", DType.INT32, (2,), "input"),
        Buffer("part", DType.INT32, (2,), "temporary"),
        Buffer("y", DType.INT32, shape, "output"),
    )
    x, part = Load("x", here, DType.INT32), Load("part", here, DType.INT32)
    instructions = (Map("part", (2,), add(x, integer(1))), Map("y", shape, integer(0)), Map("y", (2,), part, here))
    program = Program("p", buffers, instructions, ("x",), ("y",))
    out = execute_program(fuse(program), {"x": np.array([5, 6], np.int32)})
    np.testing.assert_array_equal(out["y"], [6, 7, 0, 0])


def test_unused_results_disappear_with_what_they_read() -> None:
    builder = GraphBuilder()
    x = builder.input(1, 2, 2, 1)
    builder.node("POSITION", builder.node("UNARY", x))
    result = fused(builder, builder.node("UNARY", x))
    assert [buffer.name for buffer in result.buffers] == ["t0", "t3"]


@pytest.mark.parametrize("length", [40, 400])
def test_long_chains_stop_growing(length: int) -> None:
    builder = GraphBuilder()
    x = builder.input(1, 1, 1, 2)
    for _ in range(length):
        x = builder.node("UNARY", x)
    result = fused(builder, x)
    assert len(result.instructions) < length / 10
    for instruction in result.instructions:
        assert isinstance(instruction, Map) and moderate(instruction.value)


def test_what_is_shared_is_counted_and_printed_once() -> None:
    """x + x, thirty times over: 2^30 leaves as a tree, 31 nodes as the DAG it is."""
    builder = GraphBuilder()
    x = builder.input(1, 1, 1, 2)
    for _ in range(30):
        x = builder.node("ADD", x, x)
    result = fused(builder, x)
    assert len(str(result)) < 20_000
    assert all(moderate(instruction.value) for instruction in result.instructions)  # type: ignore[union-attr]
    assert MAX_EXPRESSIONS > MAX_DEPTH


def test_a_load_of_another_type_through_a_view_is_kept() -> None:
    """A view may reinterpret bytes; fusion then may not substitute the expression."""
    buffers = (
        Buffer("x", DType.INT32, (2,), "input"),
        Buffer("t", DType.INT32, (2,), "temporary"),
        Buffer("bits", DType.FLOAT32, (2,), "temporary", base="t"),
        Buffer("y", DType.FLOAT32, (2,), "output"),
    )
    here = identity(1)
    first = Map("t", (2,), add(Load("x", here, DType.INT32), integer(1)))
    program = Program("p", buffers, (first, Map("y", (2,), Load("bits", here, DType.FLOAT32))), ("x",), ("y",))
    result = fuse(program)
    x = np.array([0x3F800000 - 1, 0x40000000 - 1], np.int32)
    np.testing.assert_array_equal(execute_program(result, {"x": x})["y"], np.array([1.0, 2.0], np.float32))


def test_loads_of_a_fused_program_name_buffers_that_exist() -> None:
    builder = GraphBuilder()
    x = builder.input(1, 4, 4, 2)
    result = fused(builder, builder.concat(3, builder.node("ADD", builder.conv(x, 2), builder.conv(x, 2)), x))
    for instruction in result.instructions:
        assert isinstance(instruction, Map | Contract)
        roots = (instruction.value,) if isinstance(instruction, Map) else (instruction.left, instruction.right, instruction.result)
        assert all(load.buffer in result.by_name for load in loads(*roots))
