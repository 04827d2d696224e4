"""Control flow in a Program: straight-line blocks between its `Control` instructions, and what a run of its steps looks like.

Enters: Programs, or instructions in execution order. Leaves: ranges of positions, Programs of one block, traces.
Invariant: within a block every instruction runs as often as every other; what another block touches too is pinned (role `state`):
no pass may remove it, and no order of a block's instructions frees it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from aot.errors import InternalError
from aot.graph.primitive import Control, reads, writes
from aot.lower.build import without_unused

if TYPE_CHECKING:
    from aot.graph.primitive import Primitive
    from aot.lower.program import Program

TURNS_CHECKED = 2
"""Turns of a loop that a trace has: what one turn leaves must suit the next."""


def blocks(instructions: Sequence[Primitive]) -> tuple[range, ...]:
    """The straight-line blocks, in order; each Control stands between two, which may be empty."""
    found, start = [], 0
    for position, instruction in enumerate(instructions):
        if isinstance(instruction, Control):
            found.append(range(start, position))
            start = position + 1
    return (*found, range(start, len(instructions)))


def ends(instructions: Sequence[Primitive]) -> dict[int, tuple[int, int]]:
    """For each `repeat` and `if` its (`else`, `end`); where there is no else, both are the end. InternalError if they do not nest."""
    found: dict[int, tuple[int, int]] = {}
    opened: list[int] = []
    middle: dict[int, int] = {}
    for position, instruction in enumerate(instructions):
        match instruction:
            case Control("repeat" | "if"):
                opened.append(position)
            case Control("else"):
                if not opened or opened[-1] in middle or not _is(instructions[opened[-1]], "if"):
                    raise InternalError(f"an else at {position} without an if")
                middle[opened[-1]] = position
            case Control("end"):
                if not opened:
                    raise InternalError(f"an end at {position} ends nothing")
                start = opened.pop()
                found[start] = (middle.get(start, position), position)
            case Control("leave") if not any(_is(instructions[start], "repeat") for start in opened):
                raise InternalError(f"a leave at {position} outside every repeat")
    if opened:
        raise InternalError(f"{instructions[opened[-1]]} at {opened[-1]} has no end")
    return found


def _is(instruction: Primitive, kind: str) -> bool:
    return isinstance(instruction, Control) and instruction.kind == kind


def loops(instructions: Sequence[Primitive]) -> tuple[tuple[int, int], ...]:
    """(position of the `repeat`, position of its end), inner loops before those around them."""
    found = ends(instructions)
    return tuple((start, found[start][1]) for start in sorted(found, reverse=True) if _is(instructions[start], "repeat"))


def trace(instructions: Sequence[Primitive]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(position, turns of each repeat around it) in an order in which they may run: both branches, and two turns of each loop, each with its end."""
    pairs = ends(instructions)

    def walk(positions: range, counts: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
        position = positions.start
        while position < positions.stop:
            yield position, counts
            if _is(instructions[position], "repeat"):
                _, end = pairs[position]
                count = instructions[position].count  # type: ignore[union-attr]
                for _ in range(min(count or TURNS_CHECKED, TURNS_CHECKED)):
                    yield from walk(range(position + 1, end + 1), (*counts, count))
                position = end
            position += 1

    return walk(range(len(instructions)), ())


def part(program: Program, positions: range) -> Program:
    """The Program of one block's instructions, with what other instructions touch too pinned."""
    inner = program.instructions[positions.start : positions.stop]
    outer = (*program.instructions[: positions.start], *program.instructions[positions.stop :])
    shared = {program.storage(name) for instruction in outer for name in (*reads(instruction), *writes(instruction))}
    shared |= {program.storage(name) for name in program.outputs}
    buffers = tuple(
        replace(buffer, role="state") if buffer.name in shared and buffer.role in ("temporary", "output") else buffer
        for buffer in program.buffers
    )
    return replace(program, buffers=buffers, instructions=inner, outputs=())


def blockwise(run: Callable[[Program], Program]) -> Callable[[Program], Program]:
    """The pass `run`, applied to each block of a Program by itself."""

    @functools.wraps(run)
    def on_blocks(program: Program) -> Program:
        if not any(isinstance(instruction, Control) for instruction in program.instructions):
            return run(program)
        buffers = program.by_name
        instructions: list[Primitive] = []
        for positions in blocks(program.instructions):
            done = run(part(replace(program, buffers=tuple(buffers.values())), positions))
            buffers = {**{buffer.name: buffer for buffer in done.buffers}, **buffers}
            instructions += done.instructions
            instructions += program.instructions[positions.stop : positions.stop + 1]
        return without_unused(replace(program, buffers=tuple(buffers.values()), instructions=tuple(instructions)))

    return on_blocks
