"""In place: which outputs may continue the bytes of an input that nothing needs any more.

Enters: an instruction (for kernels), or a Schedule with its lifetimes (for planning). Leaves: buffer names, or pairs of storages.
Invariant: a storage is taken over only by an implementation that allows it, in the step of its last use, by an output of the same
bytes that this step writes first, alone and whole.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from aot.graph.expr import Expr, Load, loads
from aot.graph.primitive import Call, Contract, Control, Map, Primitive, Reduce, reads, store_of
from aot.lower.draft import looks_up
from aot.lower.indexing import linear
from aot.lower.lifetime import use_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aot.graph.expr import Affine
    from aot.lower.lifetime import Io
    from aot.lower.plan import Lifetime, Schedule
    from aot.lower.program import Program


def elementwise_overwrites(program: Program, instruction: Primitive) -> tuple[str, ...]:
    """The buffers read whose bytes the instruction's output may take over, element i being read before element i is written.

    Such a buffer has the output's size and element size, every load of it names the very element that is stored (no fill, through
    whichever view), no lookup reads it, and in a reduction only the result does. For kernels that read all operands of an element
    before they write it, in any order of elements. Constants and model inputs are left to the planner.
    """
    if isinstance(instruction, Call | Control) or 0 in instruction.space:
        return ()
    storage = program.storage(instruction.out)
    stored = linear(store_of(instruction), program[instruction.out].shape, instruction.space)
    if stored is None or len(program.writers[storage]) != 1 or prod(instruction.space) != program[instruction.out].size:
        return ()
    return tuple(name for name in reads(instruction) if _same_elements(program, instruction, name, stored))


def stored_element_loads(program: Program, instruction: Map | Reduce | Contract) -> tuple[Load, ...]:
    """The loads of an instruction's late expressions that name the very element that is stored, in another buffer of equal elements."""
    stored = linear(store_of(instruction), program[instruction.out].shape, instruction.space)
    if stored is None:
        return ()
    return tuple(load for load in loads(*_roots(instruction)[1]) if _reads_element(program, load, instruction, stored))


def _same_elements(program: Program, instruction: Map | Reduce | Contract, name: str, stored: Affine) -> bool:
    """Whether the instruction reads the storage of `name` only at the element that it writes."""
    storage, out = program.storage(name), program[instruction.out]
    if program[storage].role == "constant" or storage == program.storage(out.name) or program[storage].nbytes != out.nbytes:
        return False
    early, late = _roots(instruction)
    if looks_up(instruction, storage, program) or any(program.storage(load.buffer) == storage for load in loads(*early)):
        return False
    found = [load for load in loads(*late) if program.storage(load.buffer) == storage]
    return all(_reads_element(program, load, instruction, stored) for load in found)


def _roots(instruction: Map | Reduce | Contract) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The expressions evaluated before other elements may have been written, and those evaluated just before the store."""
    match instruction:
        case Map():
            return (), (instruction.value,)
        case Reduce():
            return (instruction.initial, instruction.term), (instruction.result,)
        case Contract():
            return (instruction.left, instruction.right, instruction.initial), (instruction.result,)


def _reads_element(program: Program, load: Load, instruction: Map | Reduce | Contract, stored: Affine) -> bool:
    buffer, out = program[load.buffer], program[instruction.out]
    if load.fill is not None or buffer.dtype.nbytes != out.dtype.nbytes:
        return False
    return linear(load.index, buffer.shape, instruction.space) == stored


def possible_takeovers(schedule: Schedule, lives: tuple[Lifetime, ...], io: Io) -> dict[str, str]:
    """For each storage that may continue another one's bytes, that other one. No storage is continued by two."""
    by_name, program = {life.name: life for life in lives}, schedule.program
    steps_of = [0] * len(schedule.choices)
    for step in schedule.steps:
        steps_of[step.position] += 1
    found: dict[str, str] = {}
    for number, step in enumerate(schedule.steps):
        chosen = schedule.implementation(step)
        use = use_of(program, chosen, io)
        if steps_of[step.position] != 1 or len(use.writes) != 1 or len(chosen.writes) != 1:
            continue
        out = by_name[use.writes[0]]
        for name in use.overwrites:
            dies = program[name].role != "output" and by_name[name].last == number
            if dies and out.first == number and out.nbytes == by_name[name].nbytes and name not in found.values():
                found[out.name] = name
                break
    return found


def needed_takeovers(lives: tuple[Lifetime, ...], takes_over: Mapping[str, str], limit_nbytes: int) -> dict[str, str]:
    """Those without which more than `limit_nbytes` would be alive at their step: the others gain nothing."""
    by_name = {life.name: life for life in lives}
    alive: dict[int, int] = {}
    for new in takes_over:
        step = by_name[new].first
        alive[step] = sum(life.nbytes for life in lives if life.first <= step <= life.last)
    return {new: old for new, old in takes_over.items() if alive[by_name[new].first] > limit_nbytes}
