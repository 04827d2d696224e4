"""Elementwise instructions on bytes and int16, four at a time: sums and products of tensors, tables.

Enters: Maps. Leaves: `Implementation`s, or the sentence why not.
Invariant: an element's operands are read before it is stored, so that each of them may be overwritten in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.cmsis_nn.helium.vectors import LANES, Vectors, refusal, run, widened
from aot.backends.generic import activations, generic_constants
from aot.graph.expr import Binary, Expr, Load, Lookup, Requantise, walk
from aot.graph.ir import DType
from aot.graph.primitive import Map, Primitive, store_of
from aot.llvm.emission import KernelFunction
from aot.llvm.types import Value
from aot.lower.implementation import Cost, Implementation
from aot.lower.indexing import linear
from aot.lower.inplace import elementwise_overwrites, stored_element_loads
from aot.lower.program import Program
from aot.target import Target


def claim_elementwise(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Maps over whole tensors of bytes or int16 with a requantisation, or tables that LLVM's vectoriser does not see as such."""
    if "mve" not in target.has:
        return f"{target.name} has no Helium (MVE)"
    if not isinstance(instruction, Map) or not prod(instruction.space):
        return "not elementwise"
    out = program[instruction.out]
    beside = stored_element_loads(program, instruction)
    why = refusal(instruction.value, beside)
    if why:
        return why
    if prod(instruction.space) != out.size or not _in_order(program, instruction):
        return "it does not write all of its output in order"
    if any(program[program.storage(load.buffer)].role == "constant" for load in beside):
        return "an operand is a constant"
    if not gains(instruction.value):
        return "LLVM makes vectors of sixteen of it"
    names = activations(program, instruction)
    turns = -(-out.size // LANES)
    each = 6 + sum(
        3 if isinstance(expr, Requantise) else isinstance(expr, Binary | Lookup | Load) for expr in walk(instruction.value)
    )
    return Implementation(
        kernel="elementwise",
        instruction=instruction,
        reads=names,
        writes=(instruction.out,),
        constants=generic_constants(program, instruction),
        emit=lambda function: _emit(function, instruction, beside, out.size),
        overwrites=elementwise_overwrites(program, instruction),
        style="ordered",
        notes=("four elements at a time",),
        cost=Cost(20 + turns * each, 150),
    )


def _in_order(program: Program, instruction: Map) -> bool:
    """Whether the elements are stored in the order of the iteration space, the first at the buffer's start."""
    axes = tuple(axis for axis, extent in enumerate(instruction.space) if extent > 1)
    position = linear(store_of(instruction), program[instruction.out].shape, instruction.space)
    if position is None or position.offset:
        return False
    steps = {axis: prod(instruction.space[axis + 1 :]) for axis in axes}
    return {axis: step for axis, step in position.terms if instruction.space[axis] > 1} == steps


def gains(value: Expr) -> bool:
    """Whether there is something in it that LLVM computes lane by lane: products of 32 bits, roundings, and tables but those of bytes by
    bytes."""
    for expr in walk(value):
        match expr:
            case Requantise() | Binary("mul" | "shl" | "shr" | "ushr"):
                return True
            case Lookup(_, index) if expr.dtype not in (DType.INT8, DType.UINT8) or isinstance(index, Binary):
                return True
            case _:
                pass
    return False


def _emit(function: KernelFunction, instruction: Map, beside: Sequence[Load], count: int) -> None:
    dsp = Dsp(function)
    names = list(dict.fromkeys(load.buffer for load in beside))

    def four(out: Value, *pointers: Value) -> None:
        def load(which: Load | None, unsigned: bool) -> Value:
            assert which is not None
            return widened(dsp, pointers[names.index(which.buffer)], which.dtype.nbytes, unsigned)

        Vectors(dsp, load).store(instruction.value, out)

    def one(out: Value, *pointers: Value) -> None:
        loaded = {load: function.load_at(load.buffer, pointers[names.index(load.buffer)]) for load in beside}
        function.store_at(instruction.out, out, function.value(instruction.value, {}, loaded=loaded))

    pointers = [(function.pointer(name), function.buffer(name).dtype.nbytes) for name in (instruction.out, *names)]
    run(dsp, count, pointers, four, one, count % LANES > 0)
