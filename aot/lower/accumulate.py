"""Reductions to a single row, divided: sums in a buffer of their own, and what is made of them.

Enters: a Program. Leaves: a Program.
Invariant: every result stays the same. A pool or mean over whole images, or a dense layer, whose output has one row, needs its input as
a whole; a sum that goes on in the output can be made row by row, as the input's rows come.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from aot.graph.expr import Acc, Expr, Load, affine, axis, fixed, loads, rewrite, walk
from aot.graph.primitive import Contract, Geometry, Map, Reduce, identity
from aot.lower.build import without_unused
from aot.lower.indexing import delinearise, linear, strides
from aot.lower.program import Buffer, Program
from aot.lower.rows import instruction_rows, row_axis

if TYPE_CHECKING:
    from collections.abc import Collection

    from aot.graph.primitive import Primitive


def accumulate(program: Program, but_for: Collection[str] = ()) -> Program:
    """The Program with each reduction of several rows to one in two: the accumulators, and the map of them. but_for: accumulators that
    need not be."""
    names = {buffer.name for buffer in program.buffers}
    buffers = list(program.buffers)
    instructions: list[Primitive] = []
    for instruction in program.instructions:
        found = _by_rows(program, instruction)
        name = "" if found is None else found.out if _leaves_sums(found) else f"{found.out}.sums"
        if found is None or name in but_for:
            instructions.append(instruction)
        elif _leaves_sums(found):
            instructions.append(found)
        elif name in names:
            instructions.append(instruction)
        else:
            sums, result = _divided(found, name)
            buffers.append(sums)
            names.add(name)
            instructions += result
    if all(new is old for new, old in zip(instructions, program.instructions, strict=False)):
        return program
    return without_unused(replace(program, buffers=tuple(buffers), instructions=tuple(instructions)))


def _by_rows(program: Program, instruction: Primitive) -> Reduce | Contract | None:
    """An instruction that makes one row of several, out of more bytes than its accumulators take, as it can be divided; None if it is
    none, or needs no division."""
    found = over_rows(program, instruction) if isinstance(instruction, Contract) else instruction
    if not isinstance(found, Reduce | Contract):
        return None
    if instruction_rows(found) > 1 or instruction_rows(found, accumulates=True) < 2:
        return None
    accumulators = [node for node in walk(found.result) if isinstance(node, Acc)]
    if not accumulators or (found is instruction and _leaves_sums(found)):
        return None
    inputs = {load.buffer for load in ((found.left,) if isinstance(found, Contract) else loads(found.term))}
    moving = {program.storage(name) for name in inputs if program[program.storage(name)].role != "constant"}
    nbytes = sum(program[name].nbytes for name in moving)
    return found if nbytes > prod(found.space) * accumulators[0].dtype.nbytes else None


def _leaves_sums(instruction: Reduce | Contract) -> bool:
    return isinstance(instruction.result, Acc)


def over_rows(program: Program, layer: Contract) -> Contract | None:
    """A dense layer on one row of numbers (or a convolution whose window is the image) as the same sums over the rows that these numbers
    lie in; None where they are not all that is there, in order."""
    image, rank, extents = program[program.storage(layer.left.buffer)], len(layer.space), (*layer.space, *layer.window)
    first, channels = row_axis(image.shape), [number for number, extent in enumerate(layer.space) if extent > 1]
    exact = layer.initial.dtype.is_integer and layer.geometry is not None and layer.geometry.groups == 1
    if not exact or first is None or len(channels) > 1 or image.is_window or image.role == "constant":
        return None
    depth = prod(layer.window)
    inner = {rank + number: step for number, step in enumerate(strides(layer.window)) if layer.window[number] > 1}
    whole = linear(layer.left.index, program[layer.left.buffer].shape, extents)
    weights = linear(layer.right.index, program[layer.right.buffer].shape, extents)
    own = dict.fromkeys(channels, depth)
    if image.size != depth or whole != affine(inner) or weights != affine({**own, **inner}):
        return None
    window = image.shape[first:]
    axes = tuple(axis(rank + number) for number in range(len(window)))
    position = affine({**own, **{rank + number: step for number, step in enumerate(strides(window))}})
    right = delinearise(position, program[layer.right.buffer].shape, (*layer.space, *window))
    if right is None:
        return None
    return replace(
        layer,
        window=window,
        left=Load(image.name, (*[fixed(0)] * first, *axes), layer.left.dtype),
        right=replace(layer.right, index=right),
        geometry=Geometry("dense", (1, 1, 1, depth), (1, 1, 1, prod(layer.space))),
    )


def _divided(instruction: Reduce | Contract, name: str) -> tuple[Buffer, tuple[Primitive, ...]]:
    dtype = next(node.dtype for node in walk(instruction.result) if isinstance(node, Acc))
    sums = Buffer(name, dtype, instruction.space, "temporary")
    held = Load(name, identity(len(instruction.space)), dtype)

    def loaded(expr: Expr) -> Expr | None:
        return held if isinstance(expr, Acc) else None

    first = replace(instruction, out=name, result=Acc(dtype), store=())
    last = Map(instruction.out, instruction.space, rewrite(instruction.result, loaded), instruction.store, instruction.nodes)
    return sums, (first, last)
