"""The checker: it accepts what the planner makes, and names the step and the buffers of a plan that was broken on purpose."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aot.errors import InternalError
from aot.graph.expr import Load, axis
from aot.graph.ir import DType
from aot.graph.primitive import Control, Map, identity
from aot.lower.check import check_plan
from aot.lower.fuse import fuse
from aot.lower.implementation import Choice, Implementation, Skew
from aot.lower.place import plan
from aot.lower.plan import Lifetime, Plan, Schedule, Step
from aot.lower.program import Buffer, Program
from aot.lower.schedule import schedule
from tests.lower.toy import GraphBuilder, choices, dummy


def residual(scratch: dict[int, int] | None = None, io="caller") -> Plan:
    """t1 = conv t0; t2 = conv t1; t3 = pool t2; t4 = t3 + t1; t5 = sum t4. No fusion."""
    builder = GraphBuilder()
    x = builder.conv(builder.input(1, 4, 4, 4), 4)
    branch = builder.pool(builder.conv(x, 4), 3, 1, 1)
    program = builder.program(builder.sum(builder.node("ADD", branch, x)))
    result = plan(schedule(program, choices(program, scratch), io), io)
    check_plan(result)
    return result


def moved(result: Plan, **offsets: int) -> Plan:
    """The plan with some storages elsewhere (`scratch_0` is scratch.0)."""
    places = {name.replace("_", "."): offset for name, offset in offsets.items()}
    return replace(result, offsets=tuple((name, places.get(name, offset)) for name, offset in result.offsets))


def test_the_planners_plan_passes() -> None:
    result = residual()
    assert result.workspace_nbytes == 192


def test_a_live_buffer_that_is_overwritten() -> None:
    result = residual()
    with pytest.raises(InternalError, match=r"step 3 \(dummy\) reads %t1, but its byte 0 belongs to %t3"):
        check_plan(moved(result, t3=result.offset_of["t1"]))


def test_an_output_on_an_operand_of_its_step() -> None:
    result = residual()
    with pytest.raises(InternalError, match=r"step 1 \(dummy\): %t2 lies on %t1"):
        check_plan(moved(result, t2=result.offset_of["t1"]))


def test_a_partial_overlap_in_place() -> None:
    """Taking over an operand's bytes is only allowed byte on byte."""
    result = residual()
    t3 = result.offset_of["t3"]
    other = t3 + 4 if t3 + 4 + 64 <= result.workspace_nbytes else t3 - 4
    with pytest.raises(InternalError, match=r"step 3 \(dummy\): %t4 lies on %t(1|3)"):
        check_plan(moved(result, t4=other))


def test_in_place_that_no_implementation_allows() -> None:
    result = residual()
    inside = moved(result, t4=result.offset_of["t1"])
    check_plan(inside)
    kept = (replace(choice.implementation, overwrites=()) for choice in inside.schedule.choices)
    forbidden = tuple(map(Choice, kept))
    with pytest.raises(InternalError, match=r"step 3 \(dummy\): %t4 lies on %t1"):
        check_plan(replace(inside, schedule=replace(inside.schedule, choices=forbidden)))


def skewed(skew: Skew | None, **offsets: int) -> Plan:
    """t1 = conv t0; t2 = conv t1, which may lie on t1 as `skew` says."""
    builder = GraphBuilder()
    x = builder.conv(builder.input(1, 4, 4, 4), 4)
    program = builder.program(builder.sum(builder.conv(x, 4)))
    first = plan(schedule(program, choices(program)))
    chosen = list(first.schedule.choices)
    chosen[1] = Choice(replace(chosen[1].implementation, skew=() if skew is None else (("t1", skew),)))
    return moved(plan(replace(first.schedule, choices=tuple(chosen))), **offsets)


def test_an_output_below_its_input() -> None:
    """As far as the implementation allows, in its units, and not where nothing is allowed."""
    least = skewed(Skew(16, 8))
    check_plan(least)
    assert least.workspace_nbytes == 80 and least.offset_of["t1"] - least.offset_of["t2"] == 16
    check_plan(skewed(Skew(16), t1=16, t2=0))
    for skew, t1 in ((Skew(16, 8), 8), (Skew(16, 8), 20), (Skew(20), 16), (None, 16)):
        with pytest.raises(InternalError, match=r"step 1 \(dummy\): %t2 lies on %t1"):
            check_plan(replace(skewed(skew, t1=t1, t2=0), workspace_nbytes=192))


def test_scratch_on_an_operand() -> None:
    result = residual({1: 16})
    with pytest.raises(InternalError, match=r"step 1 \(dummy\): its scratch lies on %t1"):
        check_plan(moved(result, scratch_1=result.offset_of["t1"]))


def test_scratch_on_a_bystander() -> None:
    result = residual({2: 16})
    with pytest.raises(InternalError, match=r"step 3 \(dummy\) reads %t1, but its byte 0 belongs to scratch"):
        check_plan(moved(result, scratch_2=result.offset_of["t1"]))


def test_scratch_without_a_place() -> None:
    result = residual({1: 16})
    without = replace(
        result,
        offsets=tuple(entry for entry in result.offsets if entry[0] != "scratch.1"),
        lifetimes=tuple(life for life in result.lifetimes if life.name != "scratch.1"),
    )
    with pytest.raises(InternalError, match="its scratch has no place"):
        check_plan(without)


def test_scratch_that_is_larger_than_planned() -> None:
    """The replay takes the size from the implementation, not from the plan."""
    result = residual({1: 16})
    larger = result.schedule.choices[1]
    larger = replace(larger, implementation=replace(larger.implementation, scratch_nbytes=4096))
    broken = (*result.schedule.choices[:1], larger, *result.schedule.choices[2:])
    with pytest.raises(InternalError, match="scratch of 4096 bytes"):
        check_plan(replace(result, schedule=replace(result.schedule, choices=broken)))


def test_a_storage_without_a_place() -> None:
    result = residual()
    without = replace(
        result,
        offsets=tuple(entry for entry in result.offsets if entry[0] != "t2"),
        lifetimes=tuple(life for life in result.lifetimes if life.name != "t2"),
    )
    with pytest.raises(InternalError, match="%t2, which has no place in the workspace"):
        check_plan(without)


@pytest.mark.parametrize("offset", [-4, 2, 1 << 20])
def test_addresses_outside_or_misaligned(offset: int) -> None:
    with pytest.raises(InternalError, match=rf"%t1 \(64 bytes, align 4\) at {offset}"):
        check_plan(moved(residual(), t1=offset))


def test_a_lifetime_of_another_size() -> None:
    result = residual()
    smaller = tuple(Lifetime(life.name, 4, life.first, life.last) if life.name == "t1" else life for life in result.lifetimes)
    with pytest.raises(InternalError, match="%t1 has 64 bytes, its place 4"):
        check_plan(replace(result, lifetimes=smaller))


def test_a_workspace_that_is_not_a_multiple_of_its_alignment() -> None:
    result = residual()
    with pytest.raises(InternalError, match="workspace of 193 bytes"):
        check_plan(replace(result, workspace_nbytes=193))


def test_steps_out_of_order() -> None:
    result = residual()
    steps = tuple(Step(position, 0, 1) for position in (0, 2, 1, 3, 4))
    with pytest.raises(InternalError, match=r"step 1 \(dummy\) reads %t2, of which 64 bytes are not written yet"):
        check_plan(replace(result, schedule=replace(result.schedule, steps=steps)))


def test_a_step_that_is_missing() -> None:
    result = residual()
    with pytest.raises(InternalError, match="4 of 5 instructions"):
        check_plan(replace(result, schedule=replace(result.schedule, steps=result.schedule.steps[:4])))


def test_an_output_that_is_destroyed_after_its_step() -> None:
    builder = GraphBuilder()
    x = builder.input(1, 4, 4, 4)
    early = builder.sum(x)
    program = builder.program(early, builder.sum(builder.conv(x, 4)))
    result = plan(schedule(program, choices(program), "workspace"), "workspace")
    check_plan(result)
    with pytest.raises(InternalError, match="the caller reads %t1, but its byte 0 belongs to"):
        check_plan(moved(result, t1=result.offset_of["t2"]))


def test_an_input_that_is_destroyed_before_its_reader() -> None:
    result = residual(io="workspace")
    builder = GraphBuilder()
    x, late = builder.input(1, 4, 4, 4), builder.input(1, 4, 4, 4)
    program = builder.program(builder.node("ADD", builder.conv(builder.conv(x, 4), 4), late))
    result = plan(schedule(program, choices(program), "workspace"), "workspace")
    check_plan(result)
    with pytest.raises(InternalError, match=r"reads %t1, but its byte 0 belongs to %t2"):
        check_plan(moved(result, t1=result.offset_of["t2"]))


def test_a_part_of_a_concatenation_that_is_destroyed_between_its_writers() -> None:
    """The first part is in t4 when t2 is written over it; the second part does not repair it."""
    builder = GraphBuilder()
    x = builder.input(1, 4, 4, 2)
    first = builder.conv(x, 2)
    second = builder.conv(builder.conv(x, 1), 2)
    program = fuse(builder.program(builder.sum(builder.concat(3, first, second))))
    assert [instruction.out for instruction in program.instructions] == ["t4", "t2", "t4", "t5"]  # type: ignore[union-attr]
    result = plan(Schedule(program, choices(program), tuple(Step(position, 0, 1) for position in range(4))))
    check_plan(result)
    with pytest.raises(InternalError, match=r"step 2 \(dummy\): %t4 lies on %t2"):
        check_plan(moved(result, t2=result.offset_of["t4"]))
    apart = moved(result, t2=result.offset_of["t4"])
    unseen = replace(apart.schedule.choices[2].implementation, reads=())
    blind = replace(apart.schedule, choices=(*apart.schedule.choices[:2], Choice(unseen), apart.schedule.choices[3]))
    with pytest.raises(InternalError, match=r"step 2 \(dummy\) adds to %t4, but its byte 0 belongs to %t2"):
        check_plan(replace(apart, schedule=blind))


def looped(held: bool) -> Plan:
    """a = f(x); repeat 3: b = g(a); c = h(b); end; y = k(c). `held`: what the loop reads is alive through all of it."""
    shape = (64,)

    def move(out: str, source: str) -> Map:
        return Map(out, shape, Load(source, identity(1), DType.INT8))

    buffers = tuple(
        Buffer(name, DType.INT8, shape, role)  # type: ignore[arg-type]
        for name, role in (("x", "input"), ("a", "temporary"), ("b", "temporary"), ("c", "temporary"), ("y", "output"))
    )
    instructions = (move("a", "x"), Control("repeat", None, 3), move("b", "a"), move("c", "b"), Control("end"), move("y", "c"))
    program = Program("loop", buffers, instructions, ("x",), ("y",))
    program.verify()
    chosen = tuple(
        Choice(
            Implementation("dummy", each, (), (), (), lambda function: None) if isinstance(each, Control) else dummy(program, each)
        )
        for each in instructions
    )
    result = plan(Schedule(program, chosen, tuple(Step(position, 0, 1) for position in range(len(chosen)))))
    return result if held else moved(result, c=result.offset_of["a"])


def test_a_loop_whose_second_turn_finds_its_bytes() -> None:
    result = looped(held=True)
    check_plan(result)
    lives = {life.name: (life.first, life.last) for life in result.lifetimes}
    assert lives["a"][1] >= 4 and lives["c"][0] <= 1, "what goes into or out of a loop lives through all of it"


def test_a_loop_whose_second_turn_would_find_overwritten_bytes() -> None:
    """c on a is right for one turn: a is not read after c is written. The next turn reads a again."""
    with pytest.raises(InternalError, match=r"step \d+ \(dummy\) reads %a, but its byte 0 belongs to %c"):
        check_plan(looped(held=False))


def test_a_loop_with_scratch_on_what_the_next_turn_reads() -> None:
    result = looped(held=True)
    chosen = list(result.schedule.choices)
    chosen[3] = Choice(replace(chosen[3].implementation, scratch_nbytes=8))
    lives = (*result.lifetimes, Lifetime("scratch.3", 8, 3, 3))
    offsets = (*result.offsets, ("scratch.3", result.offset_of["a"]))
    schedule_ = replace(result.schedule, choices=tuple(chosen))
    with pytest.raises(InternalError, match=r"reads %a, but its byte 0 belongs to scratch"):
        check_plan(replace(result, schedule=schedule_, lifetimes=lives, offsets=offsets))


def copying(start: int) -> Plan:
    """t1[0:4] = t0; t1[4:8] = t1[start:start + 4]: the second copy reads the storage that it adds to."""
    whole, half = axis(0), axis(0, 1, 4)
    buffers = (Buffer("t0", DType.INT8, (4,), "input"), Buffer("t1", DType.INT8, (8,), "output"))
    first = Map("t1", (4,), Load("t0", (whole,), DType.INT8), (whole,))
    second = Map("t1", (4,), Load("t1", (axis(0, 1, start),), DType.INT8), (half,))
    program = Program("p", buffers, (first, second), ("t0",), ("t1",))
    return plan(schedule(program, choices(program), "workspace"), "workspace")


def test_a_copy_within_a_storage_reads_what_was_written() -> None:
    check_plan(copying(0))


def test_a_copy_within_a_storage_reads_what_was_not_written() -> None:
    with pytest.raises(InternalError, match=r"step 1 \(dummy\) reads %t1, of which 1 bytes are not written yet"):
        check_plan(copying(1))
