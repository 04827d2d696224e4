"""What sets a plan's peak, which layers run by rows, and the plans that trade RAM for instructions."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aot.graph.ir import Graph
from aot.lower.build import build_program
from aot.lower.check import check_plan
from aot.lower.division import Wish, divide, points
from aot.lower.fuse import fuse
from aot.lower.lifetime import Io
from aot.lower.memory import Stretch, memory_of, stretches
from aot.lower.place import plan, round_up
from aot.lower.plan import Plan, Schedule, Step
from aot.lower.schedule import schedule
from aot.lower.segments import expected_instructions
from tests.lower.random_graphs import graphs
from tests.lower.test_streaming import divided_choices
from tests.lower.toy import TOYS, GraphBuilder


def whole_plan(graph: Graph, io: Io = "caller", scratch: int = 12) -> Plan:
    program = fuse(build_program(graph, TOYS))
    return plan(schedule(program, divided_choices(program, 1, scratch, True), io), io)


def chain(size: int, depth: int) -> Graph:
    """Convolutions of three rows, 4 channels, on `size` x `size`."""
    builder = GraphBuilder()
    value = builder.input(1, size, size, 4)
    for _ in range(depth):
        value = builder.conv(value, 4, 3, 1, 1, 3)
    return builder.graph(value)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(graphs(), st.sampled_from(["caller", "workspace"]), st.sampled_from([0, 700]))
def test_points(graph: Graph, io, scratch: int) -> None:
    whole = whole_plan(graph, io, scratch)
    found = points(whole, io, True)
    for one in found:
        check_plan(one)
        memory = memory_of(one, io)
        assert memory.workspace_nbytes >= memory.lower_bound_nbytes and memory.gap >= 0
        assert [stretch.end for stretch in memory.stretches[:-1]] == [stretch.first for stretch in memory.stretches[1:]]
        assert memory.layers_by_rows <= sum(stretch.end - stretch.first for stretch in memory.stretches if stretch.by_rows)
        assert memory.peak is not None or not one.lifetimes
        if memory.peak is not None:
            held = sum(each.nbytes for each in memory.peak.held)
            assert held - memory.peak.shared_nbytes == memory.peak.nbytes <= memory.workspace_nbytes
            assert one is whole or round_up(memory.peak.nbytes, one.align) <= memory.lower_bound_nbytes
    for before, after in itertools.pairwise(found):
        assert after.workspace_nbytes < before.workspace_nbytes
        assert expected_instructions(after.schedule) >= expected_instructions(before.schedule)
    assert found[-1].workspace_nbytes <= divide(whole, Wish(), io, True).workspace_nbytes


def test_a_chain_of_convolutions() -> None:
    whole = whole_plan(chain(16, 3))
    found = points(whole, "caller", True)
    assert found[0] is whole and len(found) > 1
    first, least = memory_of(whole, "caller"), memory_of(found[-1], "caller")
    assert first.segments == "0..2" and first.steps == first.layers_by_rows == 0
    assert first.peak is not None and first.peak.rows is None and first.peak.layer == 1
    assert [each.nbytes for each in first.peak.held] == [1024, 1024]
    assert least.segments == "[0..2 by rows in 48 steps]" and (least.layers_by_rows, least.steps) == (3, 48)
    assert least.peak is not None and least.peak.rows is not None
    texts = {str(each) for each in least.peak.held if each.label != "scratch"}
    assert texts and all(text.endswith("of 16 rows)") for text in texts)


def test_stretches_follow_from_the_steps() -> None:
    """Layers whose steps lie between each other's run together; one whose steps follow each other is alone."""
    choices = whole_plan(chain(4, 5)).schedule.choices
    order = [(0, 0), (0, 1), (1, 0), (2, 0), (1, 1), (2, 1), (3, 0), (4, 0)]
    steps = tuple(Step(position, y, y + 1) for position, y in order)
    made = Schedule(whole_plan(chain(4, 5)).schedule.program, choices, steps)
    assert stretches(made) == (Stretch(0, 1, 2, True), Stretch(1, 3, 4, True), Stretch(3, 5, 2, False))
    assert " ".join(map(str, stretches(made))) == "[0 by rows in 2 steps] [1..2 by rows in 4 steps] 3..4"
