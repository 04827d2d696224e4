"""Regions: no plan exceeds one, the hottest storages lie in the first, and the checker finds what is in the wrong one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aot.errors import InternalError
from aot.graph.ir import Graph
from aot.graph.primitive import reads
from aot.lower.build import build_program
from aot.lower.check import check_plan
from aot.lower.execute import execute_program
from aot.lower.fuse import fuse
from aot.lower.implementation import Choice
from aot.lower.loaded import choose_loaded
from aot.lower.place import plan
from aot.lower.plan import Plan, Region, Schedule
from aot.lower.regions import by_heat, plan_in
from aot.lower.schedule import schedule
from aot.lower.segments import Divisions, scheduled
from aot.lower.streaming import Layers
from aot.lower.traffic import constant_reads, traffic, turns_of
from tests.lower.random_graphs import graphs
from tests.lower.test_streaming import divided_choices, run_in_one_memory
from tests.lower.toy import TOYS, GraphBuilder, choices, random_inputs

MANY = settings(max_examples=100, deadline=None, derandomize=True)


def chain(scratch: dict[int, int] | None = None) -> Schedule:
    """t1 = conv t0 to 16 channels; t2 = conv t1 to 2; t3 = conv t2 to 4: all 8 x 8, 3 x 3, not fused."""
    builder = GraphBuilder()
    x = builder.input(1, 8, 8, 2)
    for channels in (16, 2, 4):
        x = builder.conv(x, channels, 3, 1, 1)
    program = builder.program(x)
    return schedule(program, choices(program, scratch), "workspace")


def by_rows(graph: Graph, io, scratch: int, number: int) -> Schedule | None:
    """A division of a graph's layers in rows that lie scattered, of those that there are from the least on the one of this number."""
    program = fuse(build_program(graph, TOYS))
    whole = schedule(program, divided_choices(program, 1, scratch, True), io)
    layers = Layers(program, [choice.implementation for choice in whole.choices], [step.position for step in whole.steps], io)
    divisions = Divisions(layers)
    peaks = divisions.peaks
    segments = divisions.cheapest(peaks[number % len(peaks)]) if peaks else None
    return None if segments is None else scheduled(whole, layers, segments)


def check_inside(result: Plan) -> None:
    """Every storage is whole in one region, none of which is exceeded."""
    sizes = {name: life.nbytes for life in result.lifetimes for name in [life.name]}
    for name, offset in result.offsets:
        region = result.region_at(offset)
        assert not sizes[name] or region.start <= offset <= region.stop - sizes[name]
    for _, offsets in result.rows:
        assert len({result.region_at(offset).name for offset in offsets}) == 1
    assert all(region.nbytes <= region.size_nbytes for region in result.regions)


@pytest.mark.slow
@MANY
@given(graphs(), st.sampled_from(["caller", "workspace"]), st.sampled_from([0, 12]), st.integers(1, 12), st.integers(1, 12))
def test_no_region_is_exceeded(graph: Graph, io, scratch: int, fast: int, slow: int) -> None:
    """Layer by layer: sizes in eighths of what one memory needs. What is placed is correct; what is not says that it does not fit."""
    program = fuse(build_program(graph, TOYS))
    ordered = schedule(program, choices(program, dict.fromkeys(range(0, len(program.instructions), 2), scratch)), io)
    needed = plan(ordered, io).workspace_nbytes
    sizes = {"fast": 1 + needed * fast // 8, "slow": 1 + needed * slow // 8}
    result = plan_in(ordered, io, True, sizes)
    if result.excess_nbytes:
        with pytest.raises(InternalError, match=r"and .* are placed in it"):
            check_plan(result)
        assert max(fast, slow) <= 8  # one memory of that size would have held everything
        return
    check_plan(result)
    check_inside(result)


@pytest.mark.slow
@MANY
@given(graphs(), st.sampled_from(["caller", "workspace"]), st.sampled_from([0, 12]), st.integers(0, 3), st.integers(2, 14))
def test_rows_lie_in_regions(graph: Graph, io, scratch: int, number: int, fast: int) -> None:
    """By rows, scattered: the plan is replayed, and what it computes in that memory is right."""
    ordered = by_rows(graph, io, scratch, number)
    if ordered is None:
        return
    needed = plan(ordered, io).workspace_nbytes
    result = plan_in(ordered, io, True, {"fast": 1 + needed * fast // 16, "middle": 1 + needed // 3, "slow": needed + 64})
    assert not result.excess_nbytes
    check_plan(result)
    check_inside(result)
    inputs = random_inputs(ordered.program)
    actual = run_in_one_memory(result, inputs)
    for name, array in execute_program(ordered.program, inputs).items():
        np.testing.assert_array_equal(actual[name], array)


def test_traffic_follows_from_index_maps() -> None:
    """A convolution without scratch reads its input for each output channel and place of the window; with scratch once for each place."""
    ordered = chain()
    moved = traffic(ordered)
    assert moved["t1"] == 64 * 16 + 64 * 9 * 16 * 2  # written once; read for two output channels
    assert moved["t0"] == 128 + 64 * 9 * 2 * 16  # the caller writes it
    assert moved["t3"] == 256 + 256  # the caller reads it
    moved = traffic(chain({0: 64}))
    assert moved["t0"] == 128 + 64 * 9 * 2
    assert moved["scratch.0"] == 64 * 9 * 2 + 64 * 9 * 2 * 16
    chosen = ordered.choices[0].implementation
    assert constant_reads(ordered.program, chosen) == 64  # each weight for each pixel
    assert set(turns_of(ordered.program.instructions).values()) == {1}


def test_the_hottest_lie_fast() -> None:
    """t0 moves 145 bytes for each that it holds, t2 37, t1 19, t3 2."""
    ordered = chain()
    held = {name: ordered.program[name].nbytes for name in ("t0", "t1", "t2", "t3")}
    assert by_heat(ordered, held) == ["t0", "t2", "t1", "t3"]
    result = plan_in(ordered, "workspace", False, {"fast": 128, "slow": 4096})
    where = {name: result.region_at(offset).name for name, offset in result.offsets}
    assert where == {"t0": "fast", "t1": "slow", "t2": "fast", "t3": "slow"}  # t0 is gone when t2 comes, t2 lives when t3 comes
    result = plan_in(ordered, "workspace", False, {"fast": 1024 + 128, "slow": 4096})
    assert {result.region_at(offset).name for _, offset in result.offsets} == {"fast"}


def test_the_coldest_give_way_where_the_rest_would_not_fit() -> None:
    """The hottest first would leave no room for t1."""
    result = plan_in(chain(), "workspace", False, {"fast": 1024, "slow": 256})
    assert not result.excess_nbytes
    check_plan(result)
    assert result.region_at(result.offset_of["t1"]).name == "fast"


def test_what_fits_nowhere_is_an_excess() -> None:
    result = plan_in(chain(), "workspace", True, {"fast": 512, "slow": 512})
    assert result.excess_nbytes == 1024 - 512  # t1, which one of them would have to hold
    with pytest.raises(InternalError, match="region slow has 512 bytes, and 1024"):
        check_plan(result)


def moved(result: Plan, name: str, offset: int) -> Plan:
    return replace(result, offsets=tuple((each, offset if each == name else at) for each, at in result.offsets))


def test_the_checker_finds_what_is_in_the_wrong_region() -> None:
    result = plan_in(chain(), "workspace", False, {"fast": 128, "slow": 4096})
    check_plan(result)
    fast, slow = result.regions
    assert (fast.name, fast.start, fast.stop) == ("fast", 0, 128) and slow.start == 128
    with pytest.raises(InternalError, match=r"t0 at 64\.\.192 is not in one region"):
        check_plan(moved(result, "t0", 64))
    with pytest.raises(InternalError, match=r"%t1 lies on %t0, which the step still uses"):
        check_plan(moved(result, "t0", result.offset_of["t1"]))
    with pytest.raises(InternalError, match="region fast has 64 bytes, and 128 are placed in it"):
        check_plan(replace(result, regions=(replace(fast, size_nbytes=64), slow)))
    with pytest.raises(InternalError, match="region slow begins at 64"):
        check_plan(replace(result, regions=(fast, replace(slow, start=64))))
    with pytest.raises(InternalError, match="regions of 128 bytes"):
        check_plan(replace(result, regions=(fast,)))


def test_the_checker_finds_a_row_in_another_region() -> None:
    """Rows of one tensor are found from one pointer."""
    builder = GraphBuilder()
    x = builder.conv(builder.input(1, 16, 8, 4), 8, 3, 1, 1)
    for _ in range(2):
        x = builder.conv(x, 8, 3, 1, 1)
    divided = (by_rows(builder.graph(builder.sum(x)), "workspace", 0, number) for number in range(8))
    ordered = next(each for each in divided if each is not None and each.scattered)
    result = plan_in(ordered, "workspace", True, {"fast": 1 << 14, "slow": 1 << 14})
    check_plan(result)
    (name, offsets), *_ = result.rows
    spare = Region("slow", 1 << 14, result.workspace_nbytes, 1024)
    wider = replace(result, workspace_nbytes=spare.stop, regions=(result.regions[0], spare))
    check_plan(wider)
    stray = replace(wider, rows=((name, (*offsets[:-1], spare.start)), *result.rows[1:]))
    with pytest.raises(InternalError, match=f"%{name} at .* is not in one region"):
        check_plan(stray)


def test_constants_that_are_read_most_are_loaded() -> None:
    """A convolution's weights are read once for each pixel, those of a dense layer once; and a region takes what is left room for, behind
    what is planned in it."""
    builder = GraphBuilder()
    x = builder.conv(builder.pool(builder.conv(builder.input(1, 8, 8, 2), 16, 3, 1, 1), 8, 8), 12)
    program = builder.program(x)
    found = []
    for choice in choices(program):
        used = [program[name] for name in reads(choice.implementation.instruction) if program[name].role == "constant"]
        found.append(Choice(replace(choice.implementation, constants=tuple(used))))
    ordered = schedule(program, tuple(found), "workspace")
    result = plan_in(ordered, "workspace", False, {"fast": 128, "slow": 1 << 14})
    everything = choose_loaded([result], "slow")
    assert everything.offset >= result.regions[1].nbytes and everything.offset % 8 == 0
    assert [constant.nbytes for constant in everything.constants] == [16 * 9 * 2, 16 * 4, 12 * 16, 12 * 4]
    assert (everything.starts, everything.nbytes) == ((0, 288, 352, 544, 592), 592)
    nothing = choose_loaded([replace(result, regions=(replace(result.regions[0], size_nbytes=128), result.regions[1]))], "fast")
    assert (nothing.constants, nothing.nbytes) == ((), 0)
    for room, kept in ((591, [288, 64, 192]), (543, [288, 64, 48]), (47, [])):
        narrow = replace(result.regions[1], size_nbytes=everything.offset + room)
        some = choose_loaded([replace(result, regions=(result.regions[0], narrow))], "slow")
        assert [constant.nbytes for constant in some.constants] == kept
