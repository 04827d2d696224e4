"""Elementwise instructions whose operands lie otherwise than their results: parts of tensors, numbers for each channel, padded channels.

Enters: Maps. Leaves: `Implementation`s, or the sentence why not.
Invariant: along the last axis every operand goes on by an element, or stays, or is outside its buffer for whole runs of channels; an
element's operands are read before it is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.cmsis_nn.helium.elementwise import gains
from aot.backends.cmsis_nn.helium.vectors import LANES, Vectors, everywhere, refusal, run, widened
from aot.backends.generic import activations, generic_constants
from aot.graph.expr import Affine, Const, Expr, IndexMap, Load, Requantise, loads, rewrite, walk
from aot.graph.ir import Shape
from aot.graph.primitive import Map, Primitive, store_of
from aot.llvm.emission import KernelFunction
from aot.llvm.expressions import uniform
from aot.llvm.types import I32, Value
from aot.lower.implementation import Cost, Implementation
from aot.lower.indexing import linear
from aot.lower.inplace import elementwise_overwrites
from aot.lower.program import Program
from aot.target import Target

_MOST_RUNS = 4


def claim_rows(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Maps over rows of at least four channels, with something in them that LLVM makes no vectors of."""
    if "mve" not in target.has:
        return f"{target.name} has no Helium (MVE)"
    if not isinstance(instruction, Map) or not prod(instruction.space):
        return "not elementwise"
    if not gains(instruction.value):
        return "LLVM makes vectors of it"
    rows = _read(program, instruction)
    if isinstance(rows, str):
        return rows
    turns = sum(-(-len(part) // LANES) for part, _ in rows.runs)
    each = 6 + sum(3 if isinstance(expr, Requantise) else 1 for expr in walk(instruction.value))
    return Implementation(
        kernel="elementwise rows",
        instruction=instruction,
        reads=activations(program, instruction),
        writes=(instruction.out,),
        constants=generic_constants(program, instruction),
        emit=lambda function: _emit(function, rows),
        overwrites=elementwise_overwrites(program, instruction),
        style="ordered",
        notes=("four channels at a time",),
        cost=Cost(20 + prod(instruction.space[:-1]) * (10 + turns * each), 200 * len(rows.runs)),
    )


@dataclass(frozen=True)
class _Operand:
    """Where an operand's element of the first result lies, in elements; steps: from there along each axis of the space."""

    buffer: str
    first: int
    steps: tuple[int, ...]


@dataclass(frozen=True)
class _Rows:
    """runs: parts of the last axis, each with the expression that holds there."""

    instruction: Map
    out: _Operand
    operands: dict[Load, _Operand]
    runs: tuple[tuple[range, Expr], ...]


def _read(program: Program, instruction: Map) -> _Rows | str:
    space = instruction.space
    out = _operand(program, instruction.out, store_of(instruction), space)
    if not space or space[-1] < LANES or out is None or (out.steps[-1] != 1):
        return "its results are not rows of four or more"
    found: dict[Load, _Operand] = {}
    inside: dict[Load, range] = {}
    value = rewrite(instruction.value, lambda node: _number(program, node))
    for load in dict.fromkeys(loads(value)):
        operand = _operand(program, load.buffer, load.index, space)
        channels = _inside(program, load, space)
        if uniform(program[program.storage(load.buffer)].data) is not None:
            return "an operand is one number and another outside its buffer"
        if operand is None or operand.steps[-1] not in (0, 1) or channels is None:
            return "an operand is read in another order"
        found[load], inside[load] = operand, channels
    ends = sorted({0, space[-1], *(end for some in inside.values() if some for end in (some.start, some.stop))})
    if len(ends) > _MOST_RUNS + 1:
        return f"{len(ends) - 1} runs of channels (at most {_MOST_RUNS})"
    runs: list[tuple[range, Expr]] = []
    for start, stop in pairwise(ends):

        def filled(node: Expr, start: int = start) -> Expr | None:
            return node.fill if isinstance(node, Load) and start not in inside[node] else None

        runs.append((range(start, stop), rewrite(value, filled)))
    owners = {load: program[program.storage(load.buffer)] for load in found}
    numbers = {load: one.data for load, one in owners.items() if one.role == "constant" and one.data is not None}
    why = next((why for _, expr in runs if (why := refusal(expr, tuple(found), numbers))), "")
    return why or _Rows(instruction, out, found, tuple(runs))


def _number(program: Program, node: Expr) -> Const | None:
    """What a load of a constant whose elements are all the same is."""
    if not isinstance(node, Load) or program[program.storage(node.buffer)].role != "constant":
        return None
    single = uniform(program[program.storage(node.buffer)].data)
    return None if single is None or (node.fill is not None and node.fill.value != single) else Const(single, node.dtype)


def _operand(program: Program, buffer: str, index: tuple[IndexMap, ...], space: Shape) -> _Operand | None:
    position = linear(index, program[buffer].shape, space)
    if position is None:
        return None
    terms = dict(position.terms)
    return _Operand(buffer, position.offset, tuple(terms.get(axis, 0) if extent > 1 else 0 for axis, extent in enumerate(space)))


def _inside(program: Program, load: Load, space: Shape) -> range | None:
    """The part of the last axis where the operand is inside its buffer; None if that depends on other axes."""
    found, channel = range(space[-1]), len(space) - 1
    if load.fill is None:
        return found
    for index, size in zip(load.index, program[load.buffer].shape, strict=True):
        if not isinstance(index, Affine):
            return None
        low = index.offset + sum(min(0, step * (space[axis] - 1)) for axis, step in index.terms)
        high = index.offset + sum(max(0, step * (space[axis] - 1)) for axis, step in index.terms)
        if low >= 0 and high < size:
            continue
        if index.terms != ((channel, 1),):
            return None
        found = range(max(found.start, -index.offset), min(found.stop, size - index.offset))
    return found if found else range(0)


def _emit(function: KernelFunction, rows: _Rows) -> None:
    dsp = Dsp(function)
    operands = [rows.out, *rows.operands.values()]
    sizes = [function.buffer(one.buffer).dtype.nbytes for one in operands]
    starts = [dsp.at(function.pointer(one.buffer), one.first * size) for one, size in zip(operands, sizes, strict=True)]
    _nest(dsp, rows, operands, sizes, starts, _merged(rows.instruction.space[:-1], operands))


def _merged(space: Sequence[int], operands: Sequence[_Operand]) -> list[tuple[int, tuple[int, ...]]]:
    """(extent, steps of each operand) of the loops: axes that run on into each other are one."""
    found: list[tuple[int, tuple[int, ...]]] = []
    for axis, extent in enumerate(space):
        steps = tuple(one.steps[axis] for one in operands)
        if extent == 1:
            continue
        if found and found[-1][1] == tuple(extent * step for step in steps):
            found[-1] = (found[-1][0] * extent, steps)
        else:
            found.append((extent, steps))
    return found


def _nest(
    dsp: Dsp,
    rows: _Rows,
    operands: Sequence[_Operand],
    sizes: Sequence[int],
    at: Sequence[Value],
    loops: list[tuple[int, tuple[int, ...]]],
) -> None:
    """The loops, and inside them a row."""
    if not loops:
        for part, expr in rows.runs:
            _run(dsp, rows, operands, sizes, at, part, expr)
        return
    (extent, steps), inner = loops[0], loops[1:]
    with dsp.repeat(extent, list(at)) as carried:
        _nest(dsp, rows, operands, sizes, carried.values, inner)
        carried.next = tuple(dsp.at(pointer, step * size) for pointer, step, size in zip(carried.values, steps, sizes, strict=True))


def _run(
    dsp: Dsp, rows: _Rows, operands: Sequence[_Operand], sizes: Sequence[int], at: Sequence[Value], part: range, expr: Expr
) -> None:
    """Some channels of a row."""
    function, names = dsp.function, list(rows.operands)
    used = list(dict.fromkeys(loads(expr)))
    chosen = [0, *(1 + names.index(load) for load in used)]
    steps = [operands[number].steps[-1] * sizes[number] for number in chosen]
    pointers = [(dsp.at(at[number], part.start * step), step) for number, step in zip(chosen, steps, strict=True)]

    def four(out: Value, *here: Value) -> None:
        def load(which: Load | None, unsigned: bool) -> Value:
            assert which is not None
            address = here[used.index(which)]
            if rows.operands[which].steps[-1]:
                return widened(dsp, address, which.dtype.nbytes, unsigned)
            scalar = function.load_at(which.buffer, address)
            if scalar.type != I32:
                scalar = dsp.builder.zext(scalar, I32) if unsigned else dsp.builder.sext(scalar, I32)
            return everywhere(dsp, scalar)

        Vectors(dsp, load).store(expr, out)

    def one(out: Value, *here: Value) -> None:
        loaded = {load: function.load_at(load.buffer, address) for load, address in zip(used, here, strict=True)}
        function.store_at(rows.instruction.out, out, function.value(expr, {}, loaded=loaded))

    run(dsp, len(part), pointers, four, one, len(part) % LANES > 0)
