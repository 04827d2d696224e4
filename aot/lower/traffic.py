"""Traffic: how many bytes one inference moves from and to each storage, and from each layer's constants.

Enters: a Schedule. Leaves: bytes.
Invariant: every figure follows from the instructions' index maps and from the turns of the loops around them; not from addresses, nor
from how layers are divided into rows, which moves the same bytes in another order.

They are made to be compared: a kernel that holds values in registers reads less, and all of them about as much less. One with scratch reads
its inputs once for each place of the window that it puts them in, and works from there.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import TYPE_CHECKING

from aot.graph.expr import Affine, loads
from aot.graph.primitive import Call, Contract, Control, Reduce, loads_of
from aot.lower.blocks import TURNS_CHECKED, ends
from aot.lower.plan import scratch_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aot.graph.expr import Load
    from aot.graph.primitive import Loop, Primitive
    from aot.lower.implementation import Implementation
    from aot.lower.plan import Schedule
    from aot.lower.program import Program


def traffic(schedule: Schedule) -> Mapping[str, int]:
    """Bytes that one inference moves, by storage; scratch by its name in a Plan. What the caller writes to inputs and reads of outputs
    counts, too."""
    program, moved = schedule.program, Counter[str]()
    for position, turns in turns_of(schedule.program.instructions).items():
        chosen = schedule.choices[position].implementation
        for name, nbytes in _layer(program, chosen, position).items():
            moved[name] += turns * nbytes
    for name in (*program.inputs, *program.outputs):
        moved[program.storage(name)] += program[name].nbytes
    return moved


def layer_traffic(schedule: Schedule) -> Mapping[int, int]:
    """Bytes that one inference moves in each layer, by position: from and to activations and scratch, constants apart."""
    program = schedule.program
    return {
        position: turns * sum(_layer(program, schedule.choices[position].implementation, position).values())
        for position, turns in turns_of(program.instructions).items()
    }


def constant_reads(program: Program, chosen: Implementation) -> float:
    """How often one turn of a layer reads each byte of its constants: of those that its index maps name, the one that is read most."""
    instruction = chosen.instruction
    if isinstance(instruction, Call | Control):
        return 1.0
    found: list[float] = []
    for load in loads_of(instruction):
        if program[program.storage(load.buffer)].role == "constant":
            found.append(_every(instruction, load) / max(program[load.buffer].size, 1))
    for lookup in instruction.lookups:
        if program[program.storage(lookup.buffer)].role == "constant":
            found.append(prod(instruction.space) / max(program[lookup.buffer].size, 1))
    return max(found, default=1.0)


def _layer(program: Program, chosen: Implementation, position: int) -> Counter[str]:
    """Bytes that one turn of a layer moves."""
    instruction, moved = chosen.instruction, Counter[str]()
    scratch = scratch_name(position)
    if isinstance(instruction, Call | Control):
        for name in (*chosen.reads, *chosen.writes):
            moved[program.storage(name)] += program[name].nbytes
        moved[scratch] += 2 * chosen.scratch_nbytes
        return moved
    for load in loads_of(instruction):
        storage, nbytes = program.storage(load.buffer), program[load.buffer].dtype.nbytes
        if program[storage].role == "constant":
            continue
        every = _every(instruction, load)
        if chosen.scratch_nbytes:
            moved[storage] += _once(instruction, load) * nbytes
            moved[scratch] += (_once(instruction, load) + every) * nbytes
        else:
            moved[storage] += every * nbytes
    if chosen.page:
        moved[chosen.page] += int(constant_reads(program, chosen) * program[chosen.page].nbytes)
    for lookup in instruction.lookups:
        if program[program.storage(lookup.buffer)].role != "constant":
            moved[program.storage(lookup.buffer)] += prod(instruction.space) * program[lookup.buffer].dtype.nbytes
    moved[program.storage(instruction.out)] += prod(instruction.space) * program[instruction.out].dtype.nbytes
    return moved


def _every(instruction: Loop, load: Load) -> int:
    """How often a load is evaluated."""
    inner = isinstance(instruction, Contract) and load in (instruction.left, instruction.right)
    inner |= isinstance(instruction, Reduce) and load in loads(instruction.term)
    return prod((*instruction.space, *(getattr(instruction, "window", ()) if inner else ())))


def _once(instruction: Loop, load: Load) -> int:
    """How often a load is evaluated where each place in its buffer that an output or a place of the window asks for is read once."""
    extents = (*instruction.space, *getattr(instruction, "window", ()))
    axes = {axis for index in load.index for axis in _axes(index)}
    return prod(extents[axis] for axis in axes if axis < len(extents))


def _axes(index: object) -> Sequence[int]:
    return [axis for axis, _ in index.terms] if isinstance(index, Affine) else [index.axis]  # type: ignore[attr-defined]


def turns_of(instructions: Sequence[Primitive]) -> dict[int, int]:
    """How often an inference runs each instruction; a loop that is left at some time counts as few turns."""
    found = dict.fromkeys(range(len(instructions)), 1)
    for start, (_, end) in ends(instructions).items():
        match instructions[start]:
            case Control("repeat", _, count):
                for position in range(start, end):
                    found[position] *= count or TURNS_CHECKED
            case _:
                pass
    return found
