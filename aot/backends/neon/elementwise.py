"""Elementwise instructions on bytes, sixteen at a time: sums and products of tensors, and tables of whatever one byte becomes.

Enters: Maps. Leaves: `Implementation`s, or the sentence why not.
Invariant: an element's operands are read before it is stored, so that each of them may be overwritten in place.

* one operand (AArch64): the expression is computed for all 256 bytes at compile time; TBL and TBX look them up, 64 at a time
* two operands: one product each and a shift, where the expression is that (`affine.py`)
* else: the expression as it is written, in vectors of int32 (`vectors.py`)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from aot.backends.generic import activations, constant_of, generic_constants
from aot.backends.neon.affine import affine_of, results
from aot.backends.neon.memory import repeat
from aot.backends.neon.simd import BYTES16, Simd, splat
from aot.backends.neon.vectors import LANES, Vectors, refusal
from aot.graph.expr import Binary, Expr, Load, Lookup, Requantise, loads, walk
from aot.graph.ir import DType
from aot.graph.primitive import Map, Primitive, reads, store_of
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I8, I32, Value
from aot.lower.implementation import Cost, Implementation
from aot.lower.indexing import linear
from aot.lower.inplace import elementwise_overwrites, stored_element_loads
from aot.lower.program import Buffer, Program
from aot.target import Target

_BYTES = (DType.INT8, DType.UINT8)
_LEAST = 64  # elements for which a table is loaded
_PART = 64  # bytes that TBL looks up at once

Sixteen = Callable[[Simd, dict[str, Value], Sequence[Value]], Value]
"""Sixteen results, from pointers to operands and the vectors of tables."""


def claim_elementwise(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Maps of one or two bytes each over whole tensors."""
    if "neon" not in target.has:
        return f"{target.name} has no Advanced SIMD (NEON)"
    if not isinstance(instruction, Map) or not prod(instruction.space):
        return "not elementwise"
    out, value = program[instruction.out], instruction.value
    if out.dtype not in _BYTES or any(expr.dtype.is_float for expr in walk(value)):
        return "not of bytes and integers"
    if prod(instruction.space) != out.size or not _in_order(program, instruction):
        return "it does not write all of its output in order"
    beside = tuple(load for load in stored_element_loads(program, instruction) if load.dtype in _BYTES)
    if not beside or set(loads(value)) != set(beside):
        return "it reads other elements than bytes beside those that it stores"
    if any(program[program.storage(load.buffer)].role == "constant" for load in beside):
        return "an operand is a constant"
    form = affine_of(value, (beside[0], beside[1])) if len(beside) == 2 else None
    if form is None and not any(isinstance(expr, Requantise | Lookup) or _is_scaled(expr) for expr in walk(value)):
        return "LLVM makes vectors of sixteen of it"
    if target.pointer_bits == 64 and len(beside) == 1:
        return _table(program, instruction, beside[0]) if out.size >= _LEAST else "too few elements for a table"
    why = refusal(value, beside)
    if form is None and why:
        return why

    def sixteen(simd: Simd, pointers: dict[str, Value], _: Sequence[Value]) -> Value:
        loaded = {load: simd.load(pointers[load.buffer], BYTES16) for load in beside}
        if form is not None:
            return form.emit(simd, [(loaded[load], load.dtype is DType.UINT8) for load in beside])
        return Vectors(simd, lambda which: loaded[_known(which)]).bytes(value)

    note = "as it is written" if form is None else "one product for each operand and a shift"
    each = 100 if form is None else 34
    return _implementation(program, instruction, beside, (), sixteen, each, note)


def _is_scaled(expr: Expr) -> bool:
    """Whether it is a shift of a product of more than 16 bits."""
    return isinstance(expr, Binary) and expr.op == "shr" and expr.dtype is DType.INT32


def _known(load: Load | None) -> Load:
    assert load is not None
    return load


def _in_order(program: Program, instruction: Map) -> bool:
    """Whether the elements are stored in the order of the iteration space, the first at the buffer's start."""
    position = linear(store_of(instruction), program[instruction.out].shape, instruction.space)
    if position is None or position.offset:
        return False
    steps = {axis: prod(instruction.space[axis + 1 :]) for axis, extent in enumerate(instruction.space) if extent > 1}
    return {axis: step for axis, step in position.terms if instruction.space[axis] > 1} == steps


def _table(program: Program, instruction: Map, operand: Load) -> Implementation | str:
    """The Map of one operand as a table of bytes."""
    constants = [constant_of(program, name) for name in reads(instruction) if name != operand.buffer]
    arrays = {one.name: one.data for one in constants if one.data is not None}
    data = results(instruction.value, operand, arrays)
    table = Buffer(f"{instruction.out}.packed", DType.UINT8, data.shape, "constant", data=data, align=8)

    def sixteen(simd: Simd, pointers: dict[str, Value], vectors: Sequence[Value]) -> Value:
        indices, found = simd.load(pointers[operand.buffer], BYTES16), None
        for number in range(0, 16, 4):
            indices = simd.builder.sub(indices, splat(_PART, BYTES16)) if number else indices
            part = vectors[number : number + 4]
            found = simd.table(part, indices) if found is None else simd.table_into(found, part, indices)
        assert found is not None
        return found

    return _implementation(program, instruction, (operand,), (table,), sixteen, 13, "a table of all bytes")


def _implementation(
    program: Program,
    instruction: Map,
    beside: Sequence[Load],
    tables: tuple[Buffer, ...],
    sixteen: Sixteen,
    each: int,
    note: str,
) -> Implementation:
    """each: instructions for sixteen elements."""
    count = program[instruction.out].size
    return Implementation(
        kernel="elementwise",
        instruction=instruction,
        reads=activations(program, instruction),
        writes=(instruction.out,),
        constants=tables or generic_constants(program, instruction),
        emit=lambda function: _emit(function, instruction, beside, tables, sixteen, count),
        overwrites=elementwise_overwrites(program, instruction),
        style="ordered",
        notes=(f"sixteen elements at a time: {note}",),
        cost=Cost(20 + count // LANES * each + count % LANES * (8 if tables else 20)),
    )


def _emit(
    function: KernelFunction,
    instruction: Map,
    beside: Sequence[Load],
    tables: Sequence[Buffer],
    sixteen: Sixteen,
    count: int,
) -> None:
    simd = Simd(function)
    names = list(dict.fromkeys((instruction.out, *(load.buffer for load in beside))))
    pointers = [function.pointer(name) for name in names]
    vectors = [simd.load(function.pointer(table.name), BYTES16, at, 8) for table in tables for at in range(0, table.nbytes, 16)]
    turns, left = divmod(count, LANES)
    if turns:
        with repeat(function, turns, pointers) as carried:
            here = dict(zip(names, carried.values, strict=True))
            simd.store(sixteen(simd, here, vectors), here[instruction.out])
            carried.next = tuple(simd.at(pointer, LANES) for pointer in carried.values)
        pointers = list(carried.results)
    if left:
        with repeat(function, left, pointers) as carried:
            here = dict(zip(names, carried.values, strict=True))
            loaded = {load: function.load_at(load.buffer, here[load.buffer]) for load in beside}
            value = _single(function, instruction.value, tables, loaded)
            function.store_at(instruction.out, here[instruction.out], value)
            carried.next = tuple(simd.at(pointer, 1) for pointer in carried.values)


def _single(function: KernelFunction, value: Expr, tables: Sequence[Buffer], loaded: dict[Load, Value]) -> Value:
    """One element."""
    if not tables:
        return function.value(value, {}, loaded=loaded)
    (index,) = loaded.values()
    address = function.builder.gep(function.pointer(tables[0].name), [function.builder.zext(index, I32)], source_etype=I8)
    return function.builder.load(address, align=1, typ=I8)
