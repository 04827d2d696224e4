"""Random graphs: every pass keeps the bytes; every plan passes the checker and computes the same in one memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aot.graph.evaluate import execute
from aot.graph.expr import Affine, fixed
from aot.graph.ir import Graph
from aot.graph.primitive import Call, Map, store_of
from aot.lower.build import build_program
from aot.lower.check import check_plan, written_bytes
from aot.lower.execute import execute_all, execute_program
from aot.lower.fuse import fuse
from aot.lower.indexing import rebase
from aot.lower.place import plan
from aot.lower.plan import Plan, Schedule, Step
from aot.lower.program import Program
from aot.lower.schedule import schedule
from tests.lower.random_graphs import graphs
from tests.lower.toy import TOYS, choices, random_inputs

pytestmark = pytest.mark.slow

MANY = settings(max_examples=200, deadline=None, derandomize=True)


def assert_same_outputs(a: Program, b: Program, what: str) -> None:
    inputs = random_inputs(a)
    one, other = execute_program(a, inputs), execute_program(b, inputs)
    assert list(one) == list(other)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=f"{what}: %{name}\n{a}\n{b}")


@MANY
@given(graphs())
def test_every_pass_keeps_the_bytes(graph: Graph) -> None:
    program = build_program(graph, TOYS)
    previous = [program]

    def compare(name: str, result: Program) -> None:
        assert_same_outputs(previous[-1], result, name)
        assert len(result.instructions) <= len(previous[-1].instructions)
        previous.append(result)

    fuse(program, compare)


@MANY
@given(graphs(), st.booleans())
def test_outputs_are_named_after_their_values_and_own_their_bytes(graph: Graph, fused: bool) -> None:
    program = build_program(graph, TOYS)
    program = fuse(program) if fused else program
    assert len(program.outputs) == len(graph.outputs)
    assert len(set(program.outputs)) == len(program.outputs)
    for name, value in zip(program.outputs, graph.outputs):
        assert program[name].role == "output"
        assert program[name].base is None
        assert name == value or name.startswith(f"{value}_output")


@MANY
@given(graphs(), st.booleans(), st.sampled_from(["caller", "workspace"]), st.booleans(), st.integers(0, 60))
def test_plans_pass_the_checker(graph: Graph, fused: bool, io, inplace: bool, scratch: int) -> None:
    program = build_program(graph, TOYS)
    program = fuse(program) if fused else program
    chosen = choices(program, dict.fromkeys(range(0, len(program.instructions), 2), scratch))
    ordered = schedule(program, chosen, io, inplace)
    result = plan(ordered, io, inplace)
    check_plan(result)
    assert result.workspace_nbytes >= result.lower_bound_nbytes
    in_file_order = Schedule(program, chosen, tuple(Step(position, 0, 1) for position in range(len(chosen))))
    file_plan = plan(in_file_order, io, inplace)
    check_plan(file_plan)
    slack = 4 * len(result.lifetimes)  # bounds are of bytes, the schedule's peak of bytes rounded up to 4
    assert result.lower_bound_nbytes <= file_plan.lower_bound_nbytes + slack
    reordered = replace(program, instructions=tuple(program.instructions[step.position] for step in ordered.steps))
    reordered.verify()
    assert_same_outputs(program, reordered, "schedule")


@MANY
@given(graphs(), st.sampled_from(["caller", "workspace"]))
def test_in_place_plans_compute_the_same_in_one_memory(graph: Graph, io) -> None:
    """Runs the plan on one byte array, element by element in place, and compares with separate buffers."""
    program = fuse(build_program(graph, TOYS))
    result = plan(schedule(program, choices(program), io), io)
    inputs = random_inputs(program)
    expected = execute_program(program, inputs)
    actual = run_in_one_memory(result, inputs)
    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name], array, err_msg=f"{name}\n{program}\n{result}")


def run_in_one_memory(result: Plan, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a plan, its storages being slices of one array. Elements are written in a scattered order, one at a time."""
    program = result.schedule.program
    memory = np.full(result.workspace_nbytes + 8, 0x5A, np.uint8)
    own = {b.name: np.full(b.nbytes, 0xA5, np.uint8) for b in program.buffers if b.base is None and b.data is None}
    arrays: dict[str, np.ndarray] = {}
    for buffer in program.buffers:
        root = program.storage(buffer.name)
        if program[root].data is not None:
            arrays[buffer.name] = program[root].data.reshape(buffer.shape)  # type: ignore[union-attr]
            continue
        offset = result.offset_of.get(root)
        raw = own[root] if offset is None else memory[offset : offset + buffer.nbytes]
        arrays[buffer.name] = raw.view(buffer.dtype.np).reshape(buffer.shape)
    for name, array in inputs.items():
        arrays[name][...] = array
    for step in result.schedule.steps:
        instruction = program.instructions[step.position]
        if result.takes_over and isinstance(instruction, Map) and program.storage(instruction.out) in dict(result.takes_over):
            _one_element_at_a_time(instruction, arrays)
        else:
            execute(instruction, arrays)
    return {name: arrays[name].copy() for name in program.outputs}


def _one_element_at_a_time(instruction: Map, arrays: dict[str, np.ndarray]) -> None:
    positions = list(np.ndindex(*instruction.space))
    np.random.default_rng(1).shuffle(positions)
    for position in positions:
        by = tuple(map(fixed, map(int, position)))
        value = rebase(instruction.value, by, (1,) * len(by))
        stores = tuple(fixed(_at(index, position)) for index in store_of(instruction))
        assert value is not None
        execute(replace(instruction, space=(1,) * len(by), value=value, store=stores), arrays)


def _at(index, position: tuple[int, ...]) -> int:
    if isinstance(index, Affine):
        return index.offset + sum(coefficient * int(position[axis]) for axis, coefficient in index.terms)
    return index.entries[int(position[index.axis])]


@MANY
@given(graphs())
def test_written_bytes_are_what_running_the_instruction_changes(graph: Graph) -> None:
    program = fuse(build_program(graph, TOYS))
    inputs = random_inputs(program)
    final = execute_all(program, inputs)
    for instruction in program.instructions:
        assert not isinstance(instruction, Call)
        storage = program.storage(instruction.out)
        changed = np.zeros(program[storage].nbytes, bool)
        for poison in (0x00, 0xFF):
            raw, arrays = np.full(program[storage].nbytes, poison, np.uint8), dict(final)
            for buffer in program.buffers:
                if program.storage(buffer.name) == storage:
                    arrays[buffer.name] = raw.view(buffer.dtype.np).reshape(buffer.shape)
            execute(instruction, arrays)
            changed |= raw != poison
        np.testing.assert_array_equal(written_bytes(program, instruction, storage), changed, err_msg=str(instruction))
