"""Pushed inputs: an image whose rows the caller hands over one after the other, and which is nowhere stored as a whole.

Enters: a Program with one input. Leaves: the Program in which an instruction of its own, the *pull*, copies each row from where the caller
has it; a Schedule in which the pull runs row by row.
Invariant: the pull alone reads the caller's memory, each row once, in order; so a row may be gone as soon as its step has run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aot.errors import CompileError
from aot.graph.expr import Load
from aot.graph.primitive import Control, Map, identity, loads_of, reads
from aot.lower.plan import Schedule, Step
from aot.lower.rows import instruction_rows, row_count, touched

if TYPE_CHECKING:
    from aot.graph.ir import Shape
    from aot.lower.lifetime import Io
    from aot.lower.plan import Plan
    from aot.lower.program import Buffer, Program


def push_input(program: Program) -> Program:
    """The Program with its input pushed. CompileError where the input has no rows, is not the only one, or what the Program does can't
    be left between two rows."""
    image = _as_image(program)
    _require_rows(image)
    pushed = _pushed(image)
    return pushed if image is program else _of_shape(pushed, program[program.inputs[0]].shape)


def _pushed(program: Program) -> Program:
    (name,) = program.inputs
    image = program[name]
    if _pulls(program, name):
        arriving = replace(image, pushed=True)
        return replace(program, buffers=tuple(arriving if buffer is image else buffer for buffer in program.buffers))
    arriving = replace(image, name=f"{name}.rows", pushed=True)
    inside = replace(image, role="temporary", label="")
    buffers = [arriving, *(inside if buffer is image else buffer for buffer in program.buffers)]
    pull = Map(name, image.shape, Load(arriving.name, identity(len(image.shape)), image.dtype))
    return replace(program, buffers=tuple(buffers), instructions=(pull, *program.instructions), inputs=(arriving.name,))


def _as_image(program: Program) -> Program:
    """The Program in which an input of one row has the rows of the image that it is read as, where all agree on that."""
    if len(program.inputs) != 1 or program[program.inputs[0]].base is not None:
        return program
    flat = program[program.inputs[0]]
    read = {name for instruction in program.instructions for name in reads(instruction)}
    shapes = {buffer.shape for buffer in program.buffers if buffer.name in read and flat.name in (buffer.name, buffer.base)}
    if row_count(flat) > 1 or len(shapes) != 1:
        return program
    image = replace(flat, shape=shapes.pop())
    return replace(program, buffers=tuple(image if buffer is flat else buffer for buffer in program.buffers))


def _of_shape(program: Program, shape: Shape) -> Program:
    """The Program whose pushed input has this shape for the caller, whatever rows it comes in."""
    image = program[program.inputs[0]]
    port = replace(image, name=f"{image.name}.port", shape=shape, base=image.name, pushed=False)
    return replace(program, buffers=(*program.buffers, port), inputs=(port.name,))


def _require_rows(program: Program) -> None:
    what = "--stream-input takes an image row by row: "
    if len(program.inputs) != 1:
        raise CompileError(f"{what}the model has {len(program.inputs)} inputs, not one")
    image = program[program.inputs[0]]
    if len(image.shape) < 3 or image.shape[0] != 1 or row_count(image) < 2:
        raise CompileError(f"{what}the input '{image.label or image.name}' has shape {list(image.shape)}, not [1, rows, ...]")
    if any(buffer.role == "state" for buffer in program.buffers):
        raise CompileError(f"{what}the model keeps variables from one run to the next, which can't be combined yet")
    if any(isinstance(one, Control) for one in program.instructions):
        raise CompileError(f"{what}the model has loops or branches (WHILE, IF), which can't be combined yet")
    if program.storage(program.inputs[0]) in map(program.storage, program.outputs):
        raise CompileError(f"{what}it is an output of the model, too")


def _pulls(program: Program, name: str) -> bool:
    """Whether the only instruction that reads the input is a Map that makes each row of it by itself, in order; and reads nothing in the
    place of what lies outside: that would be the image's first element, which may be gone."""
    readers = program.readers.get(name, ())
    one = program.instructions[readers[0]] if len(readers) == 1 else None
    if not isinstance(one, Map) or any(load.fill is not None for load in loads_of(one) if load.buffer == name):
        return False
    count = row_count(program[name])
    return instruction_rows(one) == count and all(touched(program, one, name, y, y + 1) == range(y, y + 1) for y in range(count))


def pulled(schedule: Schedule) -> Schedule:
    """The schedule with every step of the pull for one row."""
    steps: list[Step] = []
    for step in schedule.steps:
        single = is_pull(schedule, step)
        steps += [Step(step.position, y, y + 1) for y in range(step.y0, step.y1)] if single else [step]
    return replace(schedule, steps=tuple(steps))


def is_pull(schedule: Schedule, step: Step) -> bool:
    """Whether a step takes over a row of the input from the caller."""
    return any(is_pushed(schedule.program, name) for name in schedule.implementation(step).reads)


def is_pushed(program: Program, name: str) -> bool:
    return program[program.storage(name)].pushed


def pushed_buffer(program: Program) -> Buffer | None:
    """The input that is pushed, if there is one."""
    return next((buffer for buffer in program.buffers if buffer.pushed), None)


def require_late_outputs(plan: Plan, io: Io) -> None:
    """CompileError if something is made of an output that is the caller's while rows still come: the caller passes it at the end."""
    program, steps = plan.schedule.program, plan.schedule.steps
    outputs = {program.storage(name) for name in program.outputs}
    pulls = [number for number, step in enumerate(steps) if is_pull(plan.schedule, step)]
    for step in steps[: pulls[-1] if pulls else 0]:
        made = outputs.intersection(map(program.storage, plan.schedule.implementation(step).writes))
        if io == "caller" and made:
            label = program[min(made)].label or min(made)
            raise CompileError(
                f"--stream-input: the output '{label}' is made while rows of the input still come, before the caller passes it",
                hint="--io workspace keeps it in the workspace",
            )
