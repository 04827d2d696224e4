"""In place: what may be overwritten, and what the plan makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aot.graph.expr import Const, Load, Lookup, Table, add, axis, cast, integer
from aot.graph.ir import DType
from aot.graph.primitive import Call, Map, Reduce, identity
from aot.lower.check import check_plan
from aot.lower.fuse import fuse
from aot.lower.inplace import elementwise_overwrites
from aot.lower.place import plan
from aot.lower.plan import Plan
from aot.lower.program import Buffer, Program
from aot.lower.schedule import schedule
from tests.lower.toy import GraphBuilder, choices

INT8, INT32 = DType.INT8, DType.INT32


def overwrites(instruction, *buffers: Buffer) -> tuple[str, ...]:
    """Of a program with this one instruction, its operands being inputs."""
    return elementwise_overwrites(Program("p", buffers, (instruction,), (), ()), instruction)


def int8(name: str, *shape: int) -> Buffer:
    return Buffer(name, INT8, shape, "temporary")


def test_elementwise_operands_may_be_overwritten() -> None:
    here = identity(2)
    both = Map("y", (2, 3), add(Load("a", here, INT8), Load("b", here, INT8)))
    assert overwrites(both, int8("a", 2, 3), int8("b", 2, 3), int8("y", 2, 3)) == ("a", "b")


def test_an_operand_read_twice_at_the_same_element() -> None:
    here = identity(2)
    double = Map("y", (2, 3), add(Load("a", here, INT8), Load("a", here, INT8)))
    assert overwrites(double, int8("a", 2, 3), int8("y", 2, 3)) == ("a",)


def test_an_operand_read_at_another_element_too() -> None:
    plus_transposed = Map("y", (2, 2), add(Load("a", identity(2), INT8), Load("a", (axis(1), axis(0)), INT8)))
    assert overwrites(plus_transposed, int8("a", 2, 2), int8("y", 2, 2)) == ()


def test_broadcast_and_smaller_operands_are_kept() -> None:
    sum_ = Map("y", (2, 3), add(Load("a", identity(2), INT8), Load("b", (axis(1),), INT8)))
    assert overwrites(sum_, int8("a", 2, 3), int8("b", 3), int8("y", 2, 3)) == ("a",)


def test_other_element_sizes_are_kept() -> None:
    widened = Map("y", (2, 3), cast(Load("a", identity(2), INT8), INT32))
    assert overwrites(widened, int8("a", 2, 3), Buffer("y", INT32, (2, 3), "temporary")) == ()


def test_as_many_bytes_in_other_elements_are_kept() -> None:
    packed = Map("y", (2,), cast(Load("a", (axis(0),), INT8), INT32))
    assert overwrites(packed, int8("a", 8), Buffer("y", INT32, (2,), "temporary")) == ()


def test_a_load_with_a_fill_is_kept() -> None:
    shifted = Map("y", (4,), Load("a", (axis(0),), INT8, Const(0, INT8)))
    assert overwrites(shifted, int8("a", 4), int8("y", 4)) == ()


def test_a_table_index_is_kept() -> None:
    permuted = Map("y", (4,), Load("a", (Table(0, (3, 1, 0, 2)),), INT8))
    assert overwrites(permuted, int8("a", 4), int8("y", 4)) == ()


def test_a_lookup_is_kept() -> None:
    looked_up = Map("y", (4,), add(Lookup("a", Load("i", identity(1), INT32), INT8), Load("a", identity(1), INT8)))
    assert overwrites(looked_up, int8("a", 4), Buffer("i", INT32, (4,), "temporary"), int8("y", 4)) == ()


def test_through_a_view_of_another_shape() -> None:
    view = Buffer("v", INT8, (6,), "temporary", base="a")
    flat = Map("y", (6,), Load("v", identity(1), INT8))
    assert overwrites(flat, int8("a", 2, 3), view, int8("y", 6)) == ("v",)


def test_a_part_of_a_concatenation_is_kept() -> None:
    """Another writer fills the rest of the output, perhaps before."""
    here = identity(1)
    parts = (Map("y", (4,), Load("a", here, INT8), here), Map("y", (4,), Load("a", here, INT8), (axis(0, 1, 4),)))
    program = Program("p", (int8("a", 4), int8("y", 8)), parts, (), ())
    assert [elementwise_overwrites(program, part) for part in parts] == [(), ()]
    shifted = Program(
        "p", (int8("a", 8), int8("y", 8)), (Map("y", (4,), Load("a", (axis(0, 1, 4),), INT8), (axis(0, 1, 4),)),), (), ()
    )
    assert elementwise_overwrites(shifted, shifted.instructions[0]) == ()


def test_reductions_only_in_their_result() -> None:
    here = (axis(0),)
    residual = Reduce("y", (4,), (3,), "add", integer(0, INT8), Load("a", (axis(0), axis(1)), INT8), Load("b", here, INT8))
    buffers = int8("a", 4, 3), int8("b", 4), int8("y", 4)
    assert overwrites(residual, *buffers) == ("b",)
    assert overwrites(replace(residual, initial=Load("b", here, INT8)), *buffers) == ()
    assert overwrites(replace(residual, term=Load("b", here, INT8)), *buffers) == ()


def test_contraction_keeps_what_it_contracts() -> None:
    builder = GraphBuilder()
    x = builder.node("UNARY", builder.input(1, 3, 3, 2))
    program = fuse(builder.program(builder.node("ADD", builder.conv(x, 2), x)))
    assert elementwise_overwrites(program, program.instructions[-1]) == ()


def test_constants_and_calls() -> None:
    constant = Buffer("a", INT8, (4,), "constant")
    assert overwrites(Map("y", (4,), Load("a", identity(1), INT8)), constant, int8("y", 4)) == ()
    assert overwrites(Call("k", ("y",), ("a",)), int8("a", 4), int8("y", 4)) == ()


def planned(builder: GraphBuilder, *outputs: str, io="caller", inplace: bool = True, fused: bool = True) -> Plan:
    program = builder.program(*outputs)
    program = fuse(program) if fused else program
    result = plan(schedule(program, choices(program), io, inplace), io, inplace)
    check_plan(result)
    return result


def test_a_residual_block_needs_two_buffers_not_three() -> None:
    """The fused addition takes over the shortcut's bytes."""
    builder = GraphBuilder()
    x = builder.conv(builder.input(1, 8, 8, 4), 4)
    branch = builder.conv(builder.conv(x, 4, 3, 1, 1), 4, 3, 1, 1)
    out = builder.sum(builder.node("ADD", branch, x))
    result = planned(builder, out)
    assert (result.workspace_nbytes, result.takes_over) == (512, (("t4", "t1"),))
    assert planned(builder, out, inplace=False).workspace_nbytes == 768


def test_x_plus_x_in_place() -> None:
    builder = GraphBuilder()
    x = builder.conv(builder.input(1, 8, 8, 4), 4)
    result = planned(builder, builder.sum(builder.node("ADD", x, x)), fused=False)
    assert result.takes_over == (("t2", "t1"),)
    assert result.workspace_nbytes == 256


def test_an_operand_that_is_still_needed_is_kept() -> None:
    builder = GraphBuilder()
    x = builder.conv(builder.input(1, 8, 8, 4), 4)
    doubled = builder.node("ADD", x, x)
    result = planned(builder, builder.sum(doubled), builder.sum(x), fused=False)
    assert result.workspace_nbytes in (256, 512)
    for new, old in result.takes_over:
        lives = {life.name: life for life in result.lifetimes}
        assert lives[old].last == lives[new].first


def test_views_are_taken_over_by_their_storage() -> None:
    builder = GraphBuilder()
    x = builder.conv(builder.input(1, 8, 8, 4), 4)
    flat = builder.view(builder.node("UNARY", builder.view(x, 1, 256)), 1, 8, 8, 4)
    result = planned(builder, builder.sum(flat), fused=False)
    assert result.takes_over == (("t3", "t1"),)
    assert result.workspace_nbytes == 256


@pytest.mark.parametrize("io", ["caller", "workspace"])
def test_the_callers_input_is_never_overwritten(io) -> None:
    builder = GraphBuilder()
    x = builder.input(1, 8, 8, 4)
    result = planned(builder, builder.sum(builder.node("UNARY", builder.node("POSITION", x))), io=io, fused=False)
    takes_over = dict(result.takes_over)
    assert ("t0" in takes_over.values()) == (io == "workspace")
    assert ("t0" in result.offset_of) == (io == "workspace")


def test_an_output_that_is_read_again_is_never_overwritten() -> None:
    builder = GraphBuilder()
    x = builder.node("UNARY", builder.conv(builder.input(1, 8, 8, 4), 4))
    result = planned(builder, x, builder.node("UNARY", x), io="workspace", fused=False)
    assert "t2" not in dict(result.takes_over).values()


def test_only_what_lowers_the_peak_is_in_place() -> None:
    """Elementwise steps after the peak have room: their operands are left apart."""
    builder = GraphBuilder()
    x = builder.input(1, 8, 8, 4)
    peak = builder.conv(builder.conv(x, 16), 16)
    small = builder.conv(peak, 1)
    result = planned(builder, builder.sum(builder.node("UNARY", builder.node("POSITION", small))), fused=False)
    assert result.workspace_nbytes == 2 * 8 * 8 * 16
    assert result.takes_over == ()
