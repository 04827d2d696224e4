"""Rows that an instruction touches: what lies in others does not matter to its results."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from aot.graph.evaluate import execute
from aot.graph.ir import Graph
from aot.graph.primitive import Call, Control, reads
from aot.lower.build import build_program
from aot.lower.execute import execute_all
from aot.lower.fuse import fuse
from aot.lower.program import Program
from aot.lower.rows import instruction_rows, row_axis, row_count, touched
from tests.lower.random_graphs import graphs
from tests.lower.toy import TOYS, GraphBuilder, random_inputs


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True)
@given(graphs())
def test_untouched_rows_do_not_matter(graph: Graph) -> None:
    for program in (build_program(graph, TOYS), fuse(build_program(graph, TOYS))):
        values = execute_all(program, random_inputs(program))
        for position in range(len(program.instructions)):
            check_instruction(program, position, values)


def check_instruction(program: Program, position: int, values: dict[str, np.ndarray]) -> None:
    """Each row of the result stays the same while all rows that it should not depend on change."""
    instruction = program.instructions[position]
    if isinstance(instruction, Call | Control) or instruction.store or instruction.space != program[instruction.out].shape:
        return
    axis = row_axis(instruction.space)
    for y in range(instruction_rows(instruction)):
        changed = dict(values)
        for name in reads(instruction):
            if program[program.storage(name)].role != "constant":
                rows = touched(program, instruction, name, y, y + 1)
                changed[name] = others_flipped(values[name], rows, row_count(program[program.storage(name)]))
        result = np.array(values[instruction.out])
        changed[instruction.out] = np.zeros_like(result)
        execute(instruction, changed)
        index = (slice(None),) * (axis or 0) + (y if axis is not None else slice(None),)
        np.testing.assert_array_equal(changed[instruction.out][index], result[index])
        divided = row_count(program[program.storage(instruction.out)]) == instruction_rows(instruction) > 1
        whole = range(row_count(program[program.storage(instruction.out)]))
        assert touched(program, instruction, instruction.out, y, y + 1) == (range(y, y + 1) if divided else whole)


def others_flipped(array: np.ndarray, rows: range, count: int) -> np.ndarray:
    """The array with every bit of all rows but these flipped."""
    parts = np.array(array).reshape(count, -1)
    others = [row for row in range(count) if row not in rows]
    parts[others] = ~parts[others]
    return parts.reshape(array.shape)


def test_rows_of_fill_touch_none() -> None:
    """However far they lie before the first row, or behind the last."""
    builder = GraphBuilder()
    program = builder.program(builder.pad(builder.input(1, 4, 2, 1), (0, 3, 0, 0), (0, 3, 0, 0)))
    touches = [touched(program, program.instructions[0], "t0", y, y + 1) for y in range(10)]
    assert touches == [*[range(0)] * 3, *(range(y, y + 1) for y in range(4)), *[range(0)] * 3]
