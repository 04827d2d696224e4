"""Control flow in a Program: straight-line blocks between its `Control` instructions, and what a run of its steps looks like.

Enters: Programs, or instructions in execution order. Leaves: ranges of positions, Programs of one block, traces.
Invariant: within a block every instruction runs as often as every other; what another block touches too is pinned (role `state`):
no pass may remove it, and no order of a block's instructions frees it.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from aot.errors import InternalError
from aot.graph.primitive import Control, describe, reads, writes
from aot.lower.build import without_unused

if TYPE_CHECKING:
    from aot.graph.primitive import Primitive
    from aot.lower.program import Program

TURNS_CHECKED = 2
"""Turns of a loop that a trace has: what one turn leaves must suit the next."""


def blocks(instructions: Sequence[Primitive]) -> tuple[range, ...]:
    """The straight-line blocks, in order; each Control stands between two, which may be empty."""
    start = 0
    found: list[range] = []
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
            case _:
                pass
    if opened:
        raise InternalError(f"{describe(instructions[opened[-1]])} at {opened[-1]} has no end")
    return found


def _is(instruction: Primitive, kind: str) -> bool:
    return isinstance(instruction, Control) and instruction.kind == kind


def loops(instructions: Sequence[Primitive]) -> tuple[tuple[int, int], ...]:
    """(position of the `repeat`, position of its end), inner loops before those around them."""
    found = ends(instructions)
    return tuple((start, found[start][1]) for start in sorted(found, reverse=True) if _is(instructions[start], "repeat"))


def trace(instructions: Sequence[Primitive]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(position, turns of each repeat around it) in an order in which they may run.

    Both branches run, and two turns of each loop, each with its end.
    """
    pairs = ends(instructions)

    def walk(positions: range, counts: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
        position = positions.start
        while position < positions.stop:
            yield position, counts
            match instructions[position]:
                case Control("repeat", _, count):
                    _, end = pairs[position]
                    for _ in range(min(count or TURNS_CHECKED, TURNS_CHECKED)):
                        yield from walk(range(position + 1, end + 1), (*counts, count))
                    position = end
                case _:
                    pass
            position += 1

    return walk(range(len(instructions)), ())


def parts(program: Program) -> tuple[Program, ...]:
    """A Program for each block: its instructions and the buffers that they name. What other instructions touch too is pinned."""
    found = [program.instructions[positions.start : positions.stop] for positions in blocks(program.instructions)]
    named = [dict.fromkeys(_named(instructions)) for instructions in found]
    touching = Counter(storage for names in named for storage in dict.fromkeys(map(program.storage, names)))
    pinned = {storage for storage, count in touching.items() if count > 1}
    marks = (instruction for instruction in program.instructions if isinstance(instruction, Control))
    pinned.update(map(program.storage, (*program.outputs, *_named(marks))))
    order = {buffer.name: number for number, buffer in enumerate(program.buffers)}
    return tuple(_part(program, instructions, names, pinned, order) for instructions, names in zip(found, named))


def _named(instructions: Iterable[Primitive]) -> list[str]:
    return [name for instruction in instructions for name in (*reads(instruction), *writes(instruction))]


def _part(
    program: Program, instructions: tuple[Primitive, ...], names: Iterable[str], pinned: Collection[str], order: Mapping[str, int]
) -> Program:
    kept = sorted(dict.fromkeys((*names, *map(program.storage, names))), key=lambda name: order[name])
    buffers = (program[name] for name in kept)
    buffers = tuple(
        replace(buffer, role="state") if buffer.name in pinned and buffer.role in ("temporary", "output") else buffer
        for buffer in buffers
    )
    known = frozenset(kept)
    inputs = tuple(name for name in program.inputs if name in known)
    return replace(program, buffers=buffers, instructions=instructions, inputs=inputs, outputs=())


def blockwise(run: Callable[[Program], Program]) -> Callable[[Program], Program]:
    """The pass `run`, which makes no buffers, applied to each block of a Program by itself."""

    @functools.wraps(run)
    def on_blocks(program: Program) -> Program:
        if not any(isinstance(instruction, Control) for instruction in program.instructions):
            return run(program)
        instructions: list[Primitive] = []
        for positions, inner in zip(blocks(program.instructions), parts(program)):
            instructions += run(inner).instructions
            instructions += program.instructions[positions.stop : positions.stop + 1]
        return without_unused(replace(program, instructions=tuple(instructions)))

    return on_blocks
