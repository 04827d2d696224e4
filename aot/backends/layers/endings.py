"""Endings that kernels do not know: a contraction whose sums become something else than int8 leaves them, and a Map goes on.

Enters: a Program of groups. Leaves: the same Program, in which convolutions and dense layers of int8 whose result does not begin with a
requantisation to int8 (an LSTM's gates and an SVDF's features in int16, hybrid layers' floats, uint8 that is rounded once) are two
instructions: sums in int32, and what becomes of them.
Invariant: every element is computed from the same sum by the same expression.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from aot.backends.layers.operands import split_result
from aot.graph.expr import Acc, Expr, Load, loads, rewrite
from aot.graph.ir import DType
from aot.graph.primitive import Contract, Map, Primitive, identity, store_of
from aot.lower.program import Buffer, Program

_SUM = Acc(DType.INT32)


def separate_endings(program: Program) -> Program:
    """out[at(i)] = f(contract(i)) -> sums[i] = contract(i); out[at(i)] = f(sums[i])."""
    buffers: list[Buffer] = []
    instructions: list[Primitive] = []
    for instruction in program.instructions:
        if not isinstance(instruction, Contract) or not _is_separable(program, instruction):
            instructions.append(instruction)
            continue
        name = _free(f"{instruction.out}_sums", {*program.by_name, *(buffer.name for buffer in buffers)})
        space = instruction.space
        buffers.append(Buffer(name, DType.INT32, space, "temporary"))
        instructions.append(replace(instruction, out=name, result=_SUM, store=()))
        result = _with_sums(instruction.result, Load(name, identity(len(space)), DType.INT32))
        instructions.append(Map(instruction.out, space, result, store_of(instruction), instruction.nodes))
    return replace(program, buffers=(*program.buffers, *buffers), instructions=tuple(instructions)) if buffers else program


def _is_separable(program: Program, layer: Contract) -> bool:
    """Whether nothing but its ending keeps a kernel from a layer."""
    geometry = layer.geometry
    if geometry is None or geometry.kind == "depthwise" or geometry.groups != 1 or prod(geometry.output) == 1:
        return False
    types = (layer.left.dtype, layer.right.dtype, layer.initial.dtype)
    constants = {load.buffer for load in loads(layer.right, layer.initial)}
    return (
        types in ((DType.INT8, DType.INT8, DType.INT32), (DType.INT8, DType.INT16, DType.INT32))
        and layer.right_zero_point == 0
        and all(program[program.storage(name)].role == "constant" for name in constants)
        and program[program.storage(layer.left.buffer)].role != "constant"
        and layer.result != _SUM
        and ((found := split_result(layer.result)) is None or found.dtype is not DType.INT8)
    )


def _with_sums(result: Expr, sums: Load) -> Expr:
    return rewrite(result, lambda node: sums if node == _SUM else None)


def _free(name: str, taken: set[str]) -> str:
    """`name`, or with the first number after it that no buffer has."""
    found, count = name, 1
    while found in taken:
        found, count = f"{name}{count}", count + 1
    return found
