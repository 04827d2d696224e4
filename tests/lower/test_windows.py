"""Windows that slide through a node's loop, and variables that the loop renews: built, fused, planned, checked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot.errors import InternalError
from aot.graph.expr import Load, add, axis
from aot.graph.ir import Graph, Site
from aot.graph.operator import Lowering, Operator, load
from aot.graph.primitive import Control, Map
from aot.lower.build import build_program
from aot.lower.check import check_plan
from aot.lower.execute import execute_program
from aot.lower.fuse import fuse
from aot.lower.lifetime import Io
from aot.lower.place import plan
from aot.lower.plan import Plan
from aot.lower.program import Program
from aot.lower.schedule import schedule
from tests.lower.toy import GraphBuilder, choices, made_up, narrow, wide

ROWS, WIDTH = 5, 3


def lower_scan(site: Site, lowering: Lowering) -> None:
    """Running sums: inputs (rows, width) and the sum before; outputs the sum at each row, and the last one."""
    x, before, out, after = site.input(0), site.input(1), *site.outputs
    rows, width = x.shape
    now, then = (lowering.window(name, value, (width,), 0, (width,)) for name, value in (("x", x), ("out", out)))
    lowering.copy(after, before.name)
    lowering.append(Control("repeat", count=rows))
    lowering.append(Map(then.name, (width,), narrow(add(wide(load(now)), wide(load(after))))))
    lowering.copy(after, then.name)
    lowering.append(Control("end"))


SCAN = {"SCAN": Operator("SCAN", None, lambda options: None, lambda site: (), lambda site: None, lambda *arrays: (), lower_scan)}


def scan(constant: bool = False) -> Graph:
    builder = GraphBuilder()
    x = builder.constant(ROWS, WIDTH) if constant else builder.input(ROWS, WIDTH)
    state = builder.value((WIDTH,))
    builder.values[-1] = replace(builder.values[-1], is_variable=True)
    out = builder.node("SCAN", x, state)
    after = builder.value((WIDTH,))
    builder.nodes[-1] = replace(builder.nodes[-1], outputs=(out, after))
    return replace(builder.graph(out), updates=((state, after),))


def run(program: Program, x: np.ndarray, times: int = 3) -> list[np.ndarray]:
    state: dict[str, np.ndarray] = {}
    return [execute_program(program, dict.fromkeys(program.inputs, x), state)[program.outputs[0]] for _ in range(times)]


def sums(x: np.ndarray, times: int = 3) -> np.ndarray:
    return np.cumsum(np.concatenate([x] * times).astype(np.int64), 0).astype(np.int8).reshape(times, ROWS, WIDTH)


@pytest.mark.parametrize("constant", [False, True])
def test_each_turn_sees_its_part(constant: bool) -> None:
    x, program = made_up((ROWS, WIDTH)), build_program(scan(constant), SCAN)
    for stage in (program, fuse(program)):
        assert (np.stack(run(stage, x)) == sums(x)).all()


def test_a_window_on_a_constant_is_one_on_a_copy() -> None:
    program = build_program(scan(constant=True), SCAN)
    assert program["t2_x"].base == "t0_copy" and program["t0_copy"].role == "temporary"


def test_the_state_is_renewed_in_place_and_not_copied_to_itself() -> None:
    program = fuse(build_program(scan(), SCAN))
    assert program["t3"].base == "t1" and program["t1"].role == "state"
    assert [type(instruction).__name__ for instruction in program.instructions] == ["Control", "Map", "Map", "Control"]


def planned(io: Io = "caller") -> Plan:
    program = fuse(build_program(scan(), SCAN))
    return plan(schedule(program, choices(program), io), io)


@pytest.mark.parametrize("io", ["caller", "workspace"])
def test_what_the_caller_gives_and_takes_lasts_from_turn_to_turn(io: Io) -> None:
    """Although nothing outside the loop touches it."""
    check_plan(planned(io))


def test_a_loop_that_leaves_a_part_of_the_output_out() -> None:
    result = planned()
    slow = replace(result.schedule.program["t2_out"], slide=(0,))
    buffers = tuple(slow if buffer.name == slow.name else buffer for buffer in result.schedule.program.buffers)
    broken = replace(result, schedule=replace(result.schedule, program=replace(result.schedule.program, buffers=buffers)))
    with pytest.raises(InternalError, match=r"reads %t2, of which 12 bytes are not written yet"):
        check_plan(broken)


def lower_through(site: Site, lowering: Lowering) -> None:
    """Each row by way of a temporary, in a loop that is all there is."""
    x, out = site.input(0), site.outputs[0]
    rows, width = x.shape
    now, then = (lowering.window(name, value, (width,), 0, (width,)) for name, value in (("x", x), ("out", out)))
    held = lowering.temporary("held", x.dtype, (width,))
    lowering.append(Control("repeat", count=rows))
    lowering.append(Map(held, (width,), narrow(add(wide(load(now)), wide(load(now))))))
    lowering.append(Map(then.name, (width,), Load(held, (axis(0),), x.dtype)))
    lowering.append(Control("end"))


def test_what_the_caller_sees_lives_through_a_loop_that_is_first_and_last() -> None:
    """An input in the workspace is read again in the next turn, and what a turn leaves in an output must stay."""
    through = {"THROUGH": replace(SCAN["SCAN"], name="THROUGH", lower=lower_through)}
    builder = GraphBuilder()
    graph = builder.graph(builder.node("THROUGH", builder.input(ROWS, WIDTH)))
    program = build_program(graph, through)
    check_plan(plan(schedule(program, choices(program), "workspace"), "workspace"))
