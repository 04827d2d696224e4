"""Reductions to a single row, divided: sums in a buffer of their own, and what is made of them.

Enters: a Program. Leaves: a Program.
Invariant: every result stays the same. A pool or mean over whole images, whose output has one row, needs its input as a whole; a sum that
goes on in the output can be made row by row, as the input's rows come.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from aot.graph.expr import Acc, Expr, Load, rewrite, walk
from aot.graph.primitive import Map, Reduce, identity
from aot.lower.program import Buffer, Program
from aot.lower.rows import instruction_rows

if TYPE_CHECKING:
    from aot.graph.primitive import Primitive


def accumulate(program: Program) -> Program:
    """The Program with each reduction of several rows to one in two: the accumulators, and the map of them."""
    names = {buffer.name for buffer in program.buffers}
    buffers = list(program.buffers)
    instructions: list[Primitive] = []
    for instruction in program.instructions:
        name = f"{instruction.out}.sums" if isinstance(instruction, Reduce) else ""
        if not isinstance(instruction, Reduce) or name in names or not divides(program, instruction):
            instructions.append(instruction)
            continue
        sums, result = _divided(instruction, name)
        buffers.append(sums)
        names.add(name)
        instructions += result
    return replace(program, buffers=tuple(buffers), instructions=tuple(instructions))


def divides(program: Program, instruction: Reduce) -> bool:
    """Whether it makes one row of several, out of more bytes than its accumulators take."""
    if instruction_rows(instruction) > 1 or instruction_rows(instruction, accumulates=True) < 2:
        return False
    accumulators = [node for node in walk(instruction.result) if isinstance(node, Acc)]
    if not accumulators or isinstance(instruction.result, Acc):
        return False
    count = prod(instruction.space)
    inputs = {node.buffer for node in walk(instruction.term) if isinstance(node, Load)}
    moving = {program.storage(name) for name in inputs if program[program.storage(name)].role != "constant"}
    return sum(program[name].nbytes for name in moving) > count * accumulators[0].dtype.nbytes


def _divided(instruction: Reduce, name: str) -> tuple[Buffer, tuple[Primitive, ...]]:
    dtype = next(node.dtype for node in walk(instruction.result) if isinstance(node, Acc))
    sums = Buffer(name, dtype, instruction.space, "temporary")
    held = Load(name, identity(len(instruction.space)), dtype)

    def loaded(expr: Expr) -> Expr | None:
        return held if isinstance(expr, Acc) else None

    first = replace(instruction, out=name, result=Acc(dtype), store=())
    last = Map(instruction.out, instruction.space, rewrite(instruction.result, loaded), instruction.store, instruction.nodes)
    return sums, (first, last)
