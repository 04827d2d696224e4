"""Moves: a tensor is copied to another place between the layer that makes it and those that read it.

Enters: a Plan. Leaves: a Plan of a Program with more instructions, or the same Plan.
Invariant: the workspace never grows, and results stay the same bytes.

Layers that lie on their input drift: each output starts below its input, by the rows that it must not yet overwrite. After some of them
the first lies far above the last, and the workspace is larger than any layer needs. Copying a tensor back up costs less than one
instruction for a byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aot.graph.expr import Load
from aot.graph.primitive import Call, Control, Map, identity, writes
from aot.lower.implementation import Choice, Implementation
from aot.lower.place import plan as place
from aot.lower.plan import Step
from aot.lower.segments import expected_instructions

if TYPE_CHECKING:
    from aot.graph.primitive import Primitive
    from aot.lower.lifetime import Io
    from aot.lower.plan import Plan, Schedule
    from aot.lower.program import Program

Kernel = Callable[["Program", Map, str], Implementation]
Again = Callable[["Program", "Primitive", Implementation], Implementation]
"""The implementation of an instruction that writes another buffer, in the same variant as before."""

MOST_MOVES = 4
MOST_TRIED = 24
_WORTH = 0.02
"""Of the workspace, at least, for a move."""
_LARGE = 0.1
"""Of the workspace, at least, is what is worth moving."""


@dataclass(frozen=True)
class Mover:
    """How to move: the kernel that copies, and how to ask again for the one that makes the tensor."""

    kernel: Kernel
    again: Again


def with_moves(plan: Plan, mover: Mover, io: Io, inplace: bool, most_instructions: float) -> Plan:
    """The plan with tensors moved, as long as that makes the workspace clearly smaller, in at most so many instructions."""
    if plan.schedule.window is not None:
        return plan  # pages are numbered by what they hold the constants of
    trying = replace(mover, again=_renamed)
    for _ in range(MOST_MOVES):
        best, which = plan.workspace_nbytes, ""
        for name in _movable(plan)[:MOST_TRIED]:
            if best * (1 - _WORTH) < plan.lower_bound_nbytes:
                break
            tried = moved(plan.schedule, name, trying)
            if expected_instructions(tried) <= most_instructions:
                found = place(tried, io, inplace, quick=True).workspace_nbytes
                best, which = (found, name) if found < best else (best, which)
        if not which or best > (1 - _WORTH) * plan.workspace_nbytes:
            break
        plan = place(moved(plan.schedule, which, mover), io, inplace)
    return plan


def _renamed(program: Program, instruction: Primitive, before: Implementation) -> Implementation:
    """All of an implementation that placement looks at, for the instruction that writes another buffer."""
    return replace(before, instruction=instruction, writes=writes(instruction))


def _movable(plan: Plan) -> list[str]:
    """Tensors in one piece that are whole before anything reads them, and that lie on others or others on them; the largest first."""
    program, steps = plan.schedule.program, plan.schedule.steps
    touched: dict[str, tuple[list[int], list[int]]] = {}
    for number, step in enumerate(steps):
        chosen = plan.schedule.implementation(step)
        for which, names in enumerate((chosen.writes, chosen.reads)):
            for name in names:
                touched.setdefault(program.storage(name), ([], []))[which].append(number)
    found: list[str] = []
    for name, (made, read) in touched.items():
        makers = {steps[number].position for number in made}
        whole = len(makers) == 1 and read and max(made) < min(read) and name not in plan.row_offsets
        if whole and program[name].role == "temporary" and program[name].nbytes > _LARGE * plan.workspace_nbytes:
            maker, *users = (plan.schedule.implementation(steps[number]) for number in (made[0], *read))
            simple = maker.writes == (name,) and not isinstance(maker.instruction, Call | Control)
            if simple and any(one.skew for one in (maker, *users)) and f"{name}.made" not in program.by_name:
                found.append(name)
    return sorted(found, key=lambda name: -program[name].nbytes)


def moved(schedule: Schedule, name: str, mover: Mover) -> Schedule:
    """The schedule in which a tensor is copied, right after it was made, to the place where it is read."""
    program = schedule.program
    (position,) = program.writers[name]
    instruction, old = program.instructions[position], program[name]
    assert not isinstance(instruction, Call | Control)
    made = replace(old, name=f"{name}.made", label="")
    other = replace(instruction, out=made.name)
    copy = Map(name, old.shape, Load(made.name, identity(len(old.shape)), old.dtype))
    instructions = (*program.instructions[:position], other, copy, *program.instructions[position + 1 :])
    changed = replace(program, buffers=(*program.buffers, made), instructions=instructions)
    maker = mover.again(changed, other, schedule.choices[position].implementation)
    choices = (
        *schedule.choices[:position],
        schedule.choices[position].instead(maker),
        Choice(mover.kernel(changed, copy, made.name)),
        *schedule.choices[position + 1 :],
    )
    return replace(schedule, program=changed, choices=choices, steps=_steps(schedule, position))


def _steps(schedule: Schedule, position: int) -> tuple[Step, ...]:
    """The steps, and the copy after the last one of the instruction at `position`."""
    last = max(number for number, step in enumerate(schedule.steps) if step.position == position)
    shifted = [replace(step, position=step.position + (step.position > position)) for step in schedule.steps]
    return (*shifted[: last + 1], Step(position + 1, 0, 1), *shifted[last + 1 :])
