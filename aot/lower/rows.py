"""Rows: which rows of its buffers an instruction touches while it makes some of its output rows.

Enters: a Program's instructions. Leaves: ranges of row numbers.
Invariant: the answer follows from the index maps alone, never from what a kernel says; it may be too large, never too small.

A buffer's rows are equal, consecutive parts of its bytes: one for each position of its first axis of more than one position (the last
axis does not count). An instruction's rows are those of its space, or, where a reduction or contraction accumulates in its output, of its window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aot.graph.expr import Acc, Affine
from aot.graph.primitive import Call, Contract, Control, Reduce, loads_of, store_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aot.graph.expr import IndexMap
    from aot.graph.primitive import Loop, Primitive
    from aot.lower.implementation import Implementation
    from aot.lower.program import Buffer, Program


def row_axis(shape: Sequence[int]) -> int | None:
    """The axis that rows count: the first with more than one position, but for the last axis (or none at all)."""
    return next((number for number, extent in enumerate(shape[:-1]) if extent != 1), None)


def row_count(buffer: Buffer) -> int:
    """Rows that a buffer is made of."""
    axis = row_axis(buffer.shape)
    return 1 if axis is None else max(buffer.shape[axis], 1)


def row_nbytes(buffer: Buffer) -> int:
    return buffer.nbytes // row_count(buffer)


def touched(program: Program, instruction: Primitive, name: str, y0: int, y1: int, accumulates: bool = False) -> range:
    """The rows of the storage of `name` that rows [y0, y1) of an instruction read or write through any of its views.

    All of them where a view is divided otherwise, or where an index is not known.
    """
    storage = program.storage(name)
    whole = range(row_count(program[storage]))
    if isinstance(instruction, Call | Control) or len(whole) == 1:
        return whole
    axis = instruction_axis(instruction, accumulates)
    accesses = [(load.buffer, load.index) for load in loads_of(instruction) if program.storage(load.buffer) == storage]
    if program.storage(instruction.out) == storage:
        accesses.append((instruction.out, store_of(instruction)))
    looked_up = any(program.storage(one.buffer) == storage for one in instruction.lookups)
    if axis is None or looked_up or any(not divided_alike(program, view) for view, _ in accesses):
        return whole
    extents = (*instruction.space, *getattr(instruction, "window", ()))
    spans = [_span(program[view], index, extents, axis, range(y0, y1)) for view, index in accesses]
    spans = [span for span in spans if span]
    if not spans:
        return range(0)
    start, stop = max(min(span.start for span in spans), 0), min(max(span.stop for span in spans), whole.stop)
    return range(start, stop) if start < stop else range(0)


def step_rows(program: Program, chosen: Implementation, name: str, y0: int, y1: int) -> range:
    """The rows of the storage of `name` that a step touches: all of them where it is the only step of its implementation."""
    if (y0, y1) == (0, chosen.rows.count):
        return range(row_count(program[program.storage(name)]))
    return touched(program, chosen.instruction, name, y0, y1, chosen.rows.accumulates)


def instruction_rows(instruction: Loop, accumulates: bool = False) -> int:
    """Rows that an instruction can be divided in."""
    axis = instruction_axis(instruction, accumulates)
    return 1 if axis is None else (*instruction.space, *getattr(instruction, "window", ()))[axis]


def instruction_axis(instruction: Loop, accumulates: bool) -> int | None:
    """The axis, of space and window together, that an instruction's rows count."""
    if not accumulates:
        return row_axis(instruction.space)
    assert isinstance(instruction, Reduce | Contract)
    inner = next((number for number, extent in enumerate(instruction.window) if extent != 1), None)
    return None if inner is None else len(instruction.space) + inner


def adds_up_rows(program: Program, instruction: Loop) -> bool:
    """Whether it leaves nothing but sums in its output, of one row, and could add the rows of what it reads one by one."""
    if not isinstance(instruction, Reduce | Contract) or instruction.result != Acc(program[instruction.out].dtype):
        return False
    if instruction_rows(instruction) > 1:
        return False
    if isinstance(instruction, Reduce):
        return True
    name, count = program.storage(instruction.left.buffer), instruction_rows(instruction, accumulates=True)
    rows = range(row_count(program[name]))
    return count == len(rows) and all(touched(program, instruction, name, y, y + 1, True) == range(y, y + 1) for y in rows)


def divided_alike(program: Program, view: str) -> bool:
    """Whether the rows of a view are those of its storage."""
    return not program[view].is_window and row_count(program[view]) == row_count(program[program.storage(view)])


def _span(buffer: Buffer, index: Sequence[IndexMap], extents: Sequence[int], axis: int, rows: range) -> range:
    """The rows (not clipped) that an index reaches while the axis runs over `rows`."""
    number = row_axis(buffer.shape)
    assert number is not None
    position = index[number]
    if not isinstance(position, Affine):
        entries = position.entries[rows.start : rows.stop] if position.axis == axis else position.entries[: extents[position.axis]]
        return range(min(entries), max(entries) + 1) if entries else range(0)
    low = high = position.offset
    for at, coefficient in position.terms:
        first, last = (rows.start, rows.stop - 1) if at == axis else (0, extents[at] - 1)
        ends = sorted((coefficient * first, coefficient * last))
        low, high = low + ends[0], high + ends[1]
    return range(low, high + 1)
