"""Variables renewed in place: a new content is computed in the variable's own memory, without a copy in the workspace.

Enters: a Program whose last instructions copy new contents to `state` buffers. Leaves: the same Program with fewer such copies.
Invariant: whatever reads the old content has run before the first write of the new one, or reads each element before it is overwritten.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aot.graph.expr import Load
from aot.graph.primitive import Control, Map, loads_of, reads, store_of
from aot.lower.blocks import ends
from aot.lower.build import without_unused
from aot.lower.draft import disjoint, looks_up, reads_at_position, writes_at_position
from aot.lower.indexing import linear

if TYPE_CHECKING:
    from aot.graph.expr import Affine
    from aot.graph.ir import Shape
    from aot.graph.primitive import Primitive
    from aot.lower.program import Program


def update_in_place(program: Program) -> Program:
    """b = f(...); state[i] = b[i]  ->  b = f(...), where b is a view of state.

    Only where nothing reads the old content after b begins to be written, except the instruction that begins it, if it is a Map that
    only looks ahead: with each element it reads that element, or ones that it writes later.
    """
    for copy in program.instructions:
        if isinstance(copy, Map) and isinstance(copy.value, Load) and program[copy.out].role == "state":
            source = program.storage(copy.value.buffer)
            ordered = _shift_first(program, copy.out, source)
            if _may_share(ordered, copy, copy.value, source):
                program = _shared(ordered, copy, source)
    return program


def _shift_first(program: Program, state: str, source: str) -> Program:
    """The Program with the one instruction that reads the old content run before all others that write the new one, if it can be.

    It can, where it writes a part of the new content itself, from the old content alone, and other writers write other parts.
    """
    written, read = program.writers.get(source, ()), program.readers.get(state, ())
    if len(read) != 1 or read[0] not in written or read[0] == written[0]:
        return program
    shift, first = program.instructions[read[0]], written[0]
    moving = {program.storage(name) for name in reads(shift) if program[program.storage(name)].role != "constant"}
    others = [program.instructions[position] for position in written if position != read[0]]
    between = program.instructions[first : read[0]]
    if (
        moving != {state}
        or any(isinstance(each, Control) for each in between)
        or not all(disjoint(shift, each, program) for each in others)
    ):
        return program
    order = [*program.instructions[:first], shift, *between, *program.instructions[read[0] + 1 :]]
    return replace(program, instructions=tuple(order))


def _may_share(program: Program, copy: Map, value: Load, source: str) -> bool:
    state, position = copy.out, next(number for number, each in enumerate(program.instructions) if each is copy)
    whole = program[source].role == "temporary" and program[source].nbytes == program[state].nbytes
    if not whole or not reads_at_position(value, copy.space, program) or not writes_at_position(copy, program):
        return False
    written, read = program.writers.get(source, ()), program.readers.get(state, ())
    if program.writers[state] != (position,) or not written or max(*written, *program.readers[source]) > position:
        return False
    first = written[0]
    if any(reader > first for reader in read) or _inside_control(program, first):
        return False
    return first not in read or _looks_ahead(program, first, state)


def _inside_control(program: Program, position: int) -> bool:
    return any(start < position < end for start, (_, end) in ends(program.instructions).items())


def _looks_ahead(program: Program, position: int, state: str) -> bool:
    """Whether an instruction that writes the state's bytes in ascending order reads each of them before it is overwritten."""
    instruction = program.instructions[position]
    if not isinstance(instruction, Map) or looks_up(instruction, state, program):
        return False
    stored = linear(store_of(instruction), program[instruction.out].shape, instruction.space)
    if stored is None or not _ascends(stored, instruction.space):
        return False
    for load in loads_of(instruction):
        if program.storage(load.buffer) == state:
            read = linear(load.index, program[load.buffer].shape, instruction.space)
            same_width = program[load.buffer].dtype.nbytes == program[instruction.out].dtype.nbytes
            if load.fill is not None or not same_width or read is None or read.terms != stored.terms or read.offset < stored.offset:
                return False
    return True


def _ascends(position: Affine, space: Shape) -> bool:
    """Whether the position grows with every step through the space in row-major order."""
    slopes, reach = dict(position.terms), 0
    for number in reversed(range(len(space))):
        if space[number] > 1:
            if slopes.get(number, 0) <= reach:
                return False
            reach += slopes[number] * (space[number] - 1)
    return True


def _shared(program: Program, copy: Map, source: str) -> Program:
    """The Program without the copy, its source being a view of the state; what copied the state to itself is gone too."""
    buffers = tuple(
        replace(buffer, base=copy.out) if buffer.name == source or buffer.base == source else buffer for buffer in program.buffers
    )
    left = tuple(instruction for instruction in program.instructions if instruction is not copy)
    shared = replace(program, buffers=buffers, instructions=left)
    return without_unused(replace(shared, instructions=tuple(each for each in left if not _is_idle(each, copy.out, shared))))


def _is_idle(instruction: Primitive, state: str, program: Program) -> bool:
    """Whether an instruction copies the state to itself."""
    if not isinstance(instruction, Map) or not isinstance(instruction.value, Load) or program.storage(instruction.out) != state:
        return False
    value = instruction.value
    same = program.storage(value.buffer) == state and value.dtype is program[instruction.out].dtype
    whole = not program[value.buffer].is_window and not program[instruction.out].is_window
    return same and whole and reads_at_position(value, instruction.space, program) and writes_at_position(instruction, program)
