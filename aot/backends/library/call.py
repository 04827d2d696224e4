# pyright: basic
"""Calls of a library's functions: their arguments as data, and the kernel that fills the structs and calls.

Enters: a `Draft` (function, arguments, scratch) for a node. Leaves: a `Call` primitive with a `LibraryCall`, and its Implementation.
Invariant: structs are laid out as on a 32-bit core: every field has 4 bytes. Those of numbers alone are constants (`Words`, all of a
call's in one block); those with pointers are filled on the stack (`Record`), for 32-bit targets only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from llvmlite import ir

from aot.backends.generic import activations, constant_of
from aot.errors import InternalError
from aot.graph.ir import DType
from aot.graph.ir import Value as SiteValue
from aot.graph.operator import Lowering
from aot.graph.primitive import Call, Primitive, reads, writes
from aot.llvm.constants import offset_pointer
from aot.llvm.types import I8, I32, POINTER, Value
from aot.lower.implementation import Implementation
from aot.lower.program import Program
from aot.target import Target

if TYPE_CHECKING:
    from aot.llvm.emission import KernelFunction


@dataclass(frozen=True)
class Data:
    """A pointer to a buffer, `offset` bytes into it."""

    name: str
    offset: int = 0


@dataclass(frozen=True, eq=False)
class Constant:
    """A pointer to data made for the call (weights in another order, a table); it becomes a `Data`."""

    purpose: str
    values: np.ndarray


@dataclass(frozen=True)
class Words:
    """A pointer to int32 constants: a struct of numbers, or an array."""

    values: tuple[int, ...]


@dataclass(frozen=True)
class Scratch:
    """The pointer to the call's scratch memory, `offset` bytes into it."""

    offset: int = 0


@dataclass(frozen=True)
class Record:
    """A pointer to a struct on the stack, of numbers and pointers (None: null)."""

    fields: tuple[int | Data | Constant | Words | Scratch | None, ...]


Argument = int | Data | Constant | Words | Scratch | Record | None


@dataclass(frozen=True)
class Draft:
    """A call as a row of the table describes it.

    reads, writes: values of the node, by name. checked: whether the function returns a status (else nothing).
    copies: (output, buffer) pairs that come first. repeats: the arguments of further calls of the function, for what it takes one at a
    time. overwrites: of `reads`, those that the output may lie on. scratch_align: 4 or 8 bytes.
    """

    function: str
    arguments: tuple[Argument, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    scratch_nbytes: int = 0
    checked: bool = True
    copies: tuple[tuple[SiteValue, str], ...] = ()
    macs: int = 0
    repeats: tuple[tuple[Argument, ...], ...] = ()
    overwrites: tuple[str, ...] = ()
    scratch_align: int = 4


@dataclass(frozen=True)
class LibraryCall:
    """The attributes of a `Call` primitive of a library. block: the constant that holds its `Words`. macs: multiply-accumulates."""

    arguments: tuple[Argument, ...]
    block: str
    checked: bool
    macs: int = 0
    repeats: tuple[tuple[Argument, ...], ...] = ()
    overwrites: tuple[str, ...] = ()
    scratch_align: int = 4

    @property
    def runs(self) -> tuple[tuple[Argument, ...], ...]:
        """The arguments of each call, in order."""
        return (self.arguments, *self.repeats)


def append_call(draft: Draft, lowering: Lowering) -> None:
    """Append the call to a node's primitives, with the constants that it needs."""
    made: dict[Constant, str] = {}

    def settled(argument: Argument) -> Argument:
        if isinstance(argument, Constant):
            if argument not in made:
                made[argument] = lowering.constant(argument.purpose, argument.values)
            return Data(made[argument])
        return replace(argument, fields=tuple(map(settled, argument.fields))) if isinstance(argument, Record) else argument

    for out, source in draft.copies:
        lowering.copy(out, source)
    arguments, *repeats = (tuple(map(settled, each)) for each in (draft.arguments, *draft.repeats))
    words = [word for run in dict.fromkeys(_words((*arguments, *chain(*repeats)))) for word in run.values]
    block = lowering.constant("arguments", np.array(words, np.int64).astype(np.int32)) if words else ""
    read: list[str] = [*draft.reads, *made.values(), *([block] if block else [])]
    attributes = LibraryCall(arguments, block, draft.checked, draft.macs, tuple(repeats), draft.overwrites, draft.scratch_align)
    lowering.append(Call(draft.function, draft.writes, tuple(dict.fromkeys(read)), attributes, draft.scratch_nbytes))


def _words(arguments: Sequence[Argument]) -> Iterator[Words]:
    for argument in arguments:
        if isinstance(argument, Words):
            yield argument
        elif isinstance(argument, Record):
            yield from _words(argument.fields)


def library_call(instruction: Primitive) -> LibraryCall | None:
    """What is known of a call of the library; None for any other instruction."""
    return instruction.attributes if isinstance(instruction, Call) and isinstance(instruction.attributes, LibraryCall) else None


def claim_call(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """A call of the library. It gets whole buffers; no output may share memory with an input, unless the call says so."""
    found = library_call(instruction)
    if found is None or not isinstance(instruction, Call):
        return "no call of the library"
    return Implementation(
        kernel=f"library {instruction.kernel}",
        instruction=instruction,
        reads=activations(program, instruction),
        writes=writes(instruction),
        constants=tuple(
            constant_of(program, name) for name in reads(instruction) if program[program.storage(name)].role == "constant"
        ),
        emit=emit_library_call,
        scratch_nbytes=instruction.scratch_nbytes,
        scratch_align=found.scratch_align,
        overwrites=_overwrites(program, instruction, found),
    )


def _overwrites(program: Program, instruction: Call, found: LibraryCall) -> tuple[str, ...]:
    """What the output may take over: nothing that is a constant, or that is written in parts."""
    own = program.storage(instruction.outs[0])
    return tuple(
        name
        for name in found.overwrites
        if program[program.storage(name)].role != "constant"
        and program.storage(name) != own
        and program[program.storage(name)].nbytes == program[own].nbytes
        and len(program.writers[own]) == 1
    )


def emit_library_call(function: KernelFunction) -> None:
    """Fill the structs, call the function, return its status (0 where it has none); of several calls, that of the first that fails."""
    instruction = function.implementation.instruction
    found = library_call(instruction)
    if found is None or not isinstance(instruction, Call):
        raise InternalError(f"{function.implementation.kernel} calls no library")
    arguments = _Arguments(function, found)
    builder, last = function.builder, len(found.repeats)
    for number, run in enumerate(found.runs):
        values = [arguments.value(argument) for argument in run]
        called = _declared(function.module, instruction.kernel, values, found.checked)
        # where an int32 travels in a register of 64 bits, some ABIs want it extended (RISC-V)
        extended = {index: ("signext",) for index, value in enumerate(values) if value.type == I32}
        result = builder.call(called, values, arg_attrs=extended)
        if number == last or not found.checked:
            continue
        with builder.if_then(builder.icmp_signed("!=", result, I32(0)), likely=False):
            builder.ret(result)
    builder.ret(result if found.checked else I32(0))


def _declared(module: ir.Module, name: str, values: Sequence[Value], checked: bool) -> ir.Function:
    """The library's function, declared on first use."""
    if name not in module.globals:
        type = ir.FunctionType(I32 if checked else ir.VoidType(), [value.type for value in values])
        ir.Function(module, type, name).attributes.add("nounwind")
    return module.globals[name]


class _Arguments:
    """Arguments as LLVM values."""

    def __init__(self, function: KernelFunction, call: LibraryCall) -> None:
        self.function, self.builder, self.block = function, function.builder, call.block
        self.offsets: dict[Words, int] = {}
        total = 0
        for run in dict.fromkeys(_words(tuple(chain(*call.runs)))):
            self.offsets[run] = 4 * total
            total += len(run.values)

    def value(self, argument: Argument) -> Value:
        match argument:
            case None:
                return ir.Constant(POINTER, None)
            case int():
                return I32(argument)
            case Data(name, offset):
                return offset_pointer(self.builder, self.function.pointer(name), offset)
            case Words():
                return offset_pointer(self.builder, self.function.pointer(self.block), self.offsets[argument])
            case Scratch(offset):
                if self.function.scratch is None:
                    raise InternalError(f"{self.function.implementation.kernel} has no scratch")
                return offset_pointer(self.builder, self.function.scratch, offset)
            case Record(fields):
                return self.record([self.value(field) for field in fields])
            case _:
                pass
        raise InternalError(f"{argument} has not been settled")

    def record(self, fields: Sequence[Value]) -> Value:
        """A struct on the stack."""
        start = self.builder.alloca(ir.ArrayType(I8, 4 * len(fields)))
        start.align, start.type = 4, POINTER  # llvmlite's alloca still has a typed pointer
        for number, field in enumerate(fields):
            self.builder.store(field, offset_pointer(self.builder, start, 4 * number), align=4)
        return start


def int32(values: np.ndarray) -> tuple[int, ...]:
    """An array of int32 numbers as words."""
    flat = [int(value) for value in values.reshape(-1)]
    if any(not DType.INT32.limits[0] <= value <= DType.INT32.limits[1] for value in flat):
        raise InternalError("a number of a library call is no int32")
    return tuple(flat)
