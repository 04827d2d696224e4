"""Scheduling: the best order on small graphs, never worse than file order, dependencies kept, in place counted."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aot.graph.expr import Load, add, fixed
from aot.graph.ir import DType
from aot.graph.primitive import Map, identity
from aot.lower import schedule as scheduling
from aot.lower.check import check_plan
from aot.lower.fuse import fuse
from aot.lower.inplace import possible_takeovers
from aot.lower.lifetime import largest_live_nbytes, lifetimes, merged
from aot.lower.place import plan
from aot.lower.plan import Schedule, Step
from aot.lower.program import Buffer, Program
from aot.lower.schedule import dependencies, schedule
from tests.lower.toy import GraphBuilder, choices


def synthetic(sizes: list[int], edges: list[tuple[int, ...]]) -> Program:
    """Instruction k writes buffer bk of `sizes[k]` bytes (multiples of 4) and reads `edges[k]`; what nothing reads is an output."""
    read = {one for before in edges for one in before}
    names = [f"b{number}" for number in range(len(sizes))]
    buffers = [Buffer("x", DType.INT8, (4,), "input")]
    instructions = []
    for number, (name, size, before) in enumerate(zip(names, sizes, edges)):
        buffers.append(Buffer(name, DType.INT8, (size,), "temporary" if number in read else "output"))
        value = Load("x", (identity(1)[0],), DType.INT8)
        for one in before:
            value = add(value, Load(names[one], (fixed(0),), DType.INT8))
        instructions.append(Map(name, (size,), value))
    outputs = tuple(name for number, name in enumerate(names) if number not in read)
    return Program("p", tuple(buffers), tuple(instructions), ("x",), outputs)


def peak(
    program: Program, order: tuple[int, ...], io: str = "caller", inplace: bool = True, scratch: dict[int, int] | None = None
) -> int:
    """Bytes alive at the worst step, from lifetimes: independent of the scheduler's own accounting."""
    ordered = Schedule(program, choices(program), tuple(Step(position, 0, 1) for position in order))
    lives = lifetimes(ordered, io)  # type: ignore[arg-type]
    return largest_live_nbytes(merged(lives, possible_takeovers(ordered, lives, io) if inplace else {}))  # type: ignore[arg-type]


def order_of(result: Schedule) -> tuple[int, ...]:
    return tuple(step.position for step in result.steps)


def valid(program: Program, order: tuple[int, ...]) -> bool:
    done: set[int] = set()
    before = dependencies(program)
    for position in order:
        if not set(before[position]) <= done:
            return False
        done.add(position)
    return len(done) == len(program.instructions)


@st.composite
def programs(draw, most: int = 5) -> Program:
    count = draw(st.integers(1, most))
    sizes = [4 * draw(st.integers(1, 30)) for _ in range(count)]
    edges = [tuple(sorted(draw(st.sets(st.integers(0, number - 1), max_size=3)))) if number else () for number in range(count)]
    return synthetic(sizes, edges)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(programs(), st.sampled_from(["caller", "workspace"]), st.booleans())
def test_small_graphs_get_the_best_order(program: Program, io, inplace: bool) -> None:
    found = order_of(schedule(program, choices(program), io, inplace))
    every = [order for order in permutations(range(len(program.instructions))) if valid(program, order)]
    assert valid(program, found)
    assert peak(program, found, io, inplace) == min(peak(program, order, io, inplace) for order in every)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(programs(25), st.sampled_from(["caller", "workspace"]), st.integers(0, 200))
def test_never_worse_than_file_order(program: Program, io, budget: int) -> None:
    """Whatever the search finds within its budget, and with the beam alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduling, "MAX_STATES", budget)
        found = order_of(schedule(program, choices(program), io))
    assert valid(program, found)
    assert peak(program, found, io) <= peak(program, tuple(range(len(found))), io)


def test_the_beam_finds_better_orders_when_the_exact_search_is_out_of_budget() -> None:
    """Six heads, each large inside and small at the end: file order makes all the large ones first."""
    sizes = [4] + [400] * 6 + [4] * 6
    edges = [()] + [(0,)] * 6 + [(number,) for number in range(1, 7)]
    program = synthetic(sizes, edges)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduling, "MAX_STATES", 200)
        patch.setattr(scheduling, "BEAM", 4)
        found = order_of(schedule(program, choices(program)))
    assert peak(program, tuple(range(13))) >= 2400
    assert peak(program, found) <= 420


def test_ties_go_to_file_order() -> None:
    program = synthetic([8, 8, 8, 8], [(), (), (0, 1), (0, 1, 2)])
    assert order_of(schedule(program, choices(program))) == (0, 1, 2, 3)
    assert peak(program, (1, 0, 2, 3)) == peak(program, (0, 1, 2, 3))


def test_the_same_program_always_gets_the_same_order() -> None:
    program = synthetic([40, 80, 4, 4, 120, 4], [(), (), (0,), (1,), (2,), (3, 4)])
    assert len({order_of(schedule(program, choices(program))) for _ in range(5)}) == 1


def test_scratch_counts() -> None:
    """A step with much scratch runs while little else is alive, though file order has it after a large result."""
    program = synthetic([100, 4, 4], [(), (), (0, 1)])
    assert order_of(schedule(program, choices(program, {1: 200}))) == (1, 0, 2)


def test_in_place_counts() -> None:
    """A chain of element-by-element steps needs one buffer in place, so that the other branch had better wait."""
    builder = GraphBuilder()
    x = builder.input(1, 4, 4, 4)
    a = builder.conv(x, 4)
    b = builder.conv(x, 1)
    c = builder.node("POSITION", builder.pool(builder.node("UNARY", a), 3, 1, 1))
    program = builder.program(builder.node("ADD", c, b))
    found = schedule(program, choices(program))
    assert peak(program, order_of(found)) <= peak(program, order_of(schedule(program, choices(program), inplace=False)))


def test_writers_of_different_parts_are_free_and_overlapping_ones_are_not() -> None:
    builder = GraphBuilder()
    x = builder.input(1, 2, 2, 2)
    program = fuse(builder.program(builder.concat(3, builder.conv(x, 2), builder.conv(x, 2))))
    assert dependencies(program) == ((), ())
    here = identity(1)
    value = Load("x", here, DType.INT8)
    buffers = (Buffer("x", DType.INT8, (4,), "input"), Buffer("y", DType.INT8, (4,), "output"))
    overlapping = Program("p", buffers, (Map("y", (4,), value), Map("y", (2,), value, here)), ("x",), ("y",))
    assert dependencies(overlapping) == ((), (0,))


def test_a_writer_follows_earlier_readers() -> None:
    here = identity(1)
    buffers = tuple(Buffer(name, DType.INT8, (4,), role) for name, role in (("x", "input"), ("s", "state"), ("y", "output")))  # type: ignore[arg-type]
    update = (Map("y", (4,), Load("s", here, DType.INT8)), Map("s", (4,), Load("x", here, DType.INT8)))
    assert dependencies(Program("p", buffers, update, ("x",), ("y",))) == ((), (0,))


def test_views_are_one_storage_for_dependencies() -> None:
    builder = GraphBuilder()
    x = builder.node("UNARY", builder.input(1, 2, 3, 1))
    program = builder.program(builder.node("UNARY", builder.view(x, 6)))
    assert dependencies(program) == ((), (0,))


def test_one_step_an_instruction_over_all_its_rows() -> None:
    builder = GraphBuilder()
    program = builder.program(builder.node("UNARY", builder.node("UNARY", builder.input(1, 2, 3, 1))))
    assert schedule(program, choices(program)).steps == (Step(0, 0, 1), Step(1, 0, 1))


def test_an_empty_program() -> None:
    program = Program("p", (Buffer("x", DType.INT8, (4,), "input"),), (), ("x",), ())
    assert schedule(program, ()).steps == ()


def test_a_wide_graph_is_bounded() -> None:
    """Two hundred independent branches: 2^200 states, an answer all the same."""
    count = 200
    rng = np.random.default_rng(0)
    sizes = [int(4 * size) for size in rng.integers(1, 100, 2 * count)]
    edges: list[tuple[int, ...]] = [()] * count + [(number,) for number in range(count)]
    program = synthetic([*sizes, 4], [*edges, tuple(range(count, 2 * count))])
    ordered = schedule(program, choices(program))
    assert valid(program, order_of(ordered))
    assert peak(program, order_of(ordered)) < peak(program, tuple(range(2 * count + 1)))
    check_plan(plan(ordered))
