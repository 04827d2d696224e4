"""Layers in parts: which are divided and how, what their output may lie on, and what the checker finds in a plan that was broken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aot.errors import InternalError
from aot.graph.expr import axis
from aot.lower import parts
from aot.lower.check import check_plan
from aot.lower.implementation import Choice, Implementation, Rows, Skew
from aot.lower.parts import part_rows, split, why_whole
from aot.lower.place import plan
from aot.lower.plan import Plan
from aot.lower.program import Program
from aot.lower.rows import instruction_rows
from aot.lower.schedule import schedule
from tests.lower.toy import GraphBuilder, dummy


@pytest.mark.parametrize("count", range(1, 12))
@pytest.mark.parametrize("per_step", [1, 2, 3])
def test_rows_of_parts(count: int, per_step: int) -> None:
    """All rows, each once, in whole steps; no part has more than one step more than another."""
    steps = -(-count // per_step)
    for number in range(1, steps + 1):
        found = part_rows(Rows(count, per_step), number)
        assert [row for part in found for row in part] == list(range(count)) and len(found) == number
        sizes = [-(-len(part) // per_step) for part in found]
        assert all(part.start % per_step == 0 for part in found) and max(sizes) - min(sizes) <= 1


def with_rows(program: Program, position: int = -1, **changes) -> Implementation:
    """A dummy for an instruction, which makes its rows one by one."""
    instruction = program.instructions[position]
    return replace(dummy(program, instruction), **{"rows": Rows(instruction_rows(instruction)), **changes})  # type: ignore[arg-type]


def conv(rows: int = 64, channels: int = 16) -> Program:
    """t2 = conv t1, t1 = conv t0."""
    builder = GraphBuilder()
    return builder.program(builder.conv(builder.conv(builder.input(1, rows, 8, channels), channels), channels))


def test_what_is_divided() -> None:
    one = split(conv(), with_rows(conv(), scratch_nbytes=10, overlap=(("t1", "same"),), skew=(("t1", Skew(8)),)), 3)
    assert (one.parts, one.scratch_nbytes, one.overlap, one.skew) == (3, 36, (), ())
    assert split(conv(), with_rows(conv()), 1000).parts == 64
    assert split(conv(), with_rows(conv(), rows=Rows(64, 30)), 4).parts == 3


def test_what_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    program = conv()
    assert why_whole(program, with_rows(program)) == ""
    assert why_whole(program, dummy(program, program.instructions[0])) == "its kernel makes all of it at once"
    assert why_whole(program, with_rows(program, rows=Rows(64, 64))) == "its kernel makes all of it at once"
    assert why_whole(program, with_rows(program, rows=Rows(64, accumulates=True))) == "its rows add up"
    assert why_whole(program, with_rows(program, rows=Rows(64, images=2))) == "its kernel counts rows of several images"
    assert why_whole(conv(4), with_rows(conv(4))) == "8192 operations are too few"
    monkeypatch.setattr(parts, "LEAST_WORK", 8192)
    assert why_whole(conv(4), with_rows(conv(4))) == ""
    assert split(conv(4), with_rows(conv(4), rows=Rows(64, images=2)), 4).parts == 1


def test_a_layer_that_stores_to_its_place_in_a_concatenation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside another one in each row it may be divided; where its rows are columns there, it may not."""
    monkeypatch.setattr(parts, "LEAST_WORK", 1)
    builder = GraphBuilder()
    program = builder.program(builder.concat(2, *(builder.node("UNARY", builder.input(1, 8, 4, 4)) for _ in range(2))))
    assert why_whole(program, with_rows(program)) == ""
    turned = replace(program.instructions[-1], store=tuple(axis(number) for number in (0, 2, 1, 3)))
    out = replace(program[turned.out], shape=(1, 4, 8, 4))
    program = replace(program, buffers=(*(each for each in program.buffers if each.name != out.name), out), instructions=(turned,))
    assert why_whole(program, with_rows(program)) == "its rows share bytes"


def planned(program: Program, threads: int = 4, scratch: int = 0) -> Plan:
    made = [split(program, with_rows(program, at, scratch_nbytes=scratch), threads) for at in range(len(program.instructions))]
    result = plan(replace(schedule(program, tuple(map(Choice, made))), threads=threads))
    check_plan(result)
    return result


def elementwise(*shapes: tuple[int, ...]) -> Plan:
    """t1 = conv t0, and for each shape a view, and a node that may lie in its place."""
    builder = GraphBuilder()
    x = builder.conv(builder.input(1, 64, 8, 16), 16)
    for shape in shapes:
        x = builder.node("UNARY", builder.view(x, *shape))
    return planned(builder.program(builder.conv(builder.view(x, 1, 64, 8, 16), 16)))


def test_rows_in_the_place_of_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LEAST_WORK", 1)
    result = elementwise((1, 64, 8, 16), (1, 64, 8, 16))
    assert len(result.takes_over) == 2 and all(choice.implementation.parts == 4 for choice in result.schedule.choices)


def test_not_in_the_place_of_other_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which rows of the storage a view's are is not known: the planner leaves it, and the checker would."""
    monkeypatch.setattr(parts, "LEAST_WORK", 1)
    result = elementwise((1, 32, 16, 16))
    (life,) = [life for life in result.lifetimes if life.name == result.schedule.choices[1].implementation.writes[0]]
    assert not result.takes_over
    old = result.schedule.program.storage(result.schedule.choices[1].implementation.reads[0])
    allowed = replace(result.schedule.choices[1].implementation, overwrites=result.schedule.choices[1].implementation.reads)
    choices = (result.schedule.choices[0], Choice(allowed), *result.schedule.choices[2:])
    broken = moved(replace(result, schedule=replace(result.schedule, choices=choices)), life.name, result.offset_of[old])
    with pytest.raises(InternalError, match=rf"step 1 \(dummy\): part 0 writes to %{life.name} where part 1 uses %{old}"):
        check_plan(broken)


def moved(result: Plan, name: str, offset: int) -> Plan:
    return replace(result, offsets=tuple((each, offset if each == name else at) for each, at in result.offsets))


def changed(result: Plan, position: int, **changes) -> Plan:
    """The plan with another implementation at a position."""
    choices = list(result.schedule.choices)
    choices[position] = Choice(replace(choices[position].implementation, **changes))
    return replace(result, schedule=replace(result.schedule, choices=tuple(choices)))


def three() -> Program:
    builder = GraphBuilder()
    x = builder.input(1, 64, 8, 16)
    for _ in range(3):
        x = builder.conv(x, 16)
    return builder.program(x)


def test_an_output_that_drifts_onto_what_another_part_reads() -> None:
    """As a whole the layer may lie a row below its input; in parts the second one's first row lies on the first one's last."""
    result = planned(three())
    skewed = changed(moved(result, "t2", result.offset_of["t1"]), 1, skew=(("t1", Skew(0)),))
    check_plan(changed(skewed, 1, parts=1))
    below = changed(moved(result, "t1", 128), 1, skew=(("t1", Skew(128)),))
    below = moved(replace(below, workspace_nbytes=max(result.workspace_nbytes, 8320)), "t2", 0)
    check_plan(changed(below, 1, parts=1))
    with pytest.raises(InternalError, match=r"step 1 \(dummy\): part 1 writes to %t2 where part 0 uses %t1"):
        check_plan(below)


def test_scratch_that_does_not_divide() -> None:
    result = planned(three(), scratch=16)
    with pytest.raises(InternalError, match="scratch of 60 bytes does not divide by 4 parts"):
        check_plan(changed(result, 1, scratch_nbytes=60))


def test_rows_that_parts_can_not_make() -> None:
    result = planned(three())
    for rows, words in (
        (Rows(60), "can't be made in parts"),
        (Rows(2), "its parts make rows"),
        (Rows(64, accumulates=True), "can't"),
    ):
        with pytest.raises(InternalError, match=words):
            check_plan(changed(result, 1, rows=rows))
