"""Layers run by rows, on random graphs: every plan passes the checker, computes the same in one memory, and needs no more than layer by
layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aot.errors import InternalError
from aot.graph.evaluate import execute
from aot.graph.ir import Graph
from aot.lower.build import build_program
from aot.lower.check import check_plan
from aot.lower.execute import execute_program
from aot.lower.fuse import fuse
from aot.lower.implementation import Choice, Rows
from aot.lower.place import plan
from aot.lower.plan import Plan, Schedule, scratch_name
from aot.lower.program import Program
from aot.lower.rows import instruction_rows, row_count, row_nbytes, step_rows
from aot.lower.schedule import schedule
from aot.lower.segments import Divisions, scheduled
from aot.lower.streaming import Layers
from tests.lower.random_graphs import graphs
from tests.lower.toy import TOYS, choices, random_inputs

pytestmark = pytest.mark.slow

MANY = settings(max_examples=150, deadline=None, derandomize=True)


def divided_choices(program: Program, per_step: int, scratch: int, scatters: bool) -> tuple[Choice, ...]:
    """Implementations that can run by rows. What is computed here reads all it needs before it writes: it may lie anywhere."""
    found = []
    for position, choice in enumerate(choices(program, dict.fromkeys(range(0, len(program.instructions), 2), scratch))):
        one = choice.implementation
        rows = instruction_rows(one.instruction)  # type: ignore[arg-type]
        names = (*one.reads, *one.writes) if scatters else ()
        overlap = tuple((name, "anywhere" if position % 3 else "forward") for name in one.reads)
        found.append(Choice(replace(one, rows=Rows(rows, per_step), scatters=names, overlap=overlap)))
    return tuple(found)


@MANY
@given(graphs(), st.sampled_from(["caller", "workspace"]), st.integers(1, 2), st.sampled_from([0, 12]), st.booleans())
def test_division_keeps_the_bytes(graph: Graph, io, per_step: int, scratch: int, scatters: bool) -> None:
    program = fuse(build_program(graph, TOYS))
    inputs = random_inputs(program)
    expected = execute_program(program, inputs)
    whole = schedule(program, divided_choices(program, per_step, scratch, scatters), io)
    layers = Layers(program, [choice.implementation for choice in whole.choices], [step.position for step in whole.steps], io)
    divisions = Divisions(layers)
    layerwise = max((layers.whole_peak(number) for number in range(len(layers.layers))), default=0)
    assert divisions.least_peak <= layerwise
    for peak in divisions.peaks[:3]:
        segments = divisions.cheapest(peak)
        assert segments is not None
        assert segments.peak_nbytes <= peak
        result = plan(scheduled(whole, layers, segments), io)
        check_plan(result)
        assert result.workspace_nbytes >= result.lower_bound_nbytes
        actual = run_in_one_memory(result, inputs)
        for name, array in expected.items():
            np.testing.assert_array_equal(actual[name], array, err_msg=f"{name}\n{program}\n{result}")


def run_in_one_memory(result: Plan, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a plan, its steps working on one array of bytes; what a step does not touch is random to it."""
    program, random = result.schedule.program, np.random.default_rng(1)
    memory = random.integers(0, 256, result.workspace_nbytes + 8, np.uint8)
    own = {b.name: np.full(b.nbytes, 0xA5, np.uint8) for b in program.buffers if b.base is None and b.data is None}

    def rows_at(storage: str) -> list[np.ndarray]:
        """The bytes of each row of a storage, where they lie."""
        buffer = program[storage]
        size = row_nbytes(buffer)
        if storage in result.row_offsets:
            return [memory[offset : offset + size] for offset in result.row_offsets[storage]]
        offset = result.offset_of.get(storage)
        raw = own[storage] if offset is None else memory[offset : offset + buffer.nbytes]
        return [raw[row * size : (row + 1) * size] for row in range(row_count(buffer))]

    def gathered(storage: str, rows: range) -> np.ndarray:
        places = rows_at(storage)
        raw = random.integers(0, 256, program[storage].nbytes, np.uint8)
        for row in rows:
            raw[row * len(places[row]) : (row + 1) * len(places[row])] = places[row]
        return raw

    for name, array in inputs.items():
        for place, row in zip(rows_at(program.storage(name)), np.split(array.reshape(-1).view(np.uint8), row_count(program[name]))):
            place[:] = row
    for step in result.schedule.steps:
        chosen = result.schedule.implementation(step)
        touches = {
            storage: step_rows(program, chosen, storage, step.y0, step.y1)
            for storage in dict.fromkeys(map(program.storage, (*chosen.reads, *chosen.writes)))
        }
        raw = {storage: gathered(storage, rows) for storage, rows in touches.items()}
        arrays = {}
        for buffer in program.buffers:
            root = program.storage(buffer.name)
            if (data := program[root].data) is not None:
                arrays[buffer.name] = data.reshape(buffer.shape)
            elif root in raw:
                arrays[buffer.name] = raw[root].view(buffer.dtype.np).reshape(buffer.shape)
        execute(chosen.instruction, arrays)
        if chosen.scratch_nbytes:
            offset = result.offset_of[scratch_name(step.position)]
            memory[offset : offset + chosen.scratch_nbytes] = random.integers(0, 256, chosen.scratch_nbytes, np.uint8)
        for storage in map(program.storage, chosen.writes):
            places = rows_at(storage)
            for row in touches[storage]:
                places[row][:] = raw[storage][row * len(places[row]) : (row + 1) * len(places[row])]
    found = {}
    for name in program.outputs:
        storage = program.storage(name)
        raw_output = np.concatenate(rows_at(storage)) if program[storage].nbytes else own[storage]
        found[name] = raw_output.view(program[name].dtype.np).reshape(program[name].shape).copy()
    return found


def test_checker_notices_what_rows_lose() -> None:
    """A row moved onto one that is still needed, a row skipped, scratch on a row."""
    result = divided_plan()
    name, offsets = result.rows[0]
    check_plan(result)
    with pytest.raises(InternalError, match=r"belongs to|lies on"):
        check_plan(replace(result, rows=((name, (offsets[1], *offsets[1:])), *result.rows[1:])))
    steps = result.schedule.steps
    with pytest.raises(InternalError, match=r"after|not written yet"):
        check_plan(replace(result, schedule=replace(result.schedule, steps=(*steps[:2], *steps[3:]))))
    where = next(number for number, (owner, _) in enumerate(result.offsets) if owner.startswith("scratch."))
    moved = (result.offsets[where][0], offsets[0])
    with pytest.raises(InternalError, match=r"belongs to|lies on"):
        check_plan(replace(result, offsets=(*result.offsets[:where], moved, *result.offsets[where + 1 :])))


def divided_plan() -> Plan:
    """Three convolutions in a chain, run by rows together."""
    from tests.lower.toy import GraphBuilder

    builder = GraphBuilder()
    value = builder.input(1, 8, 4, 4)
    for _ in range(3):
        value = builder.conv(value, 4, 3, 1, 1, 3)
    program = fuse(build_program(builder.graph(value), TOYS))
    whole = schedule(program, divided_choices(program, 1, 12, True), "caller")
    layers = Layers(program, [choice.implementation for choice in whole.choices], [step.position for step in whole.steps], "caller")
    divisions = Divisions(layers)
    segments = divisions.cheapest(divisions.least_peak)
    assert segments is not None
    divided: Schedule = scheduled(whole, layers, segments)
    assert divided.scattered
    return plan(divided, "caller")
