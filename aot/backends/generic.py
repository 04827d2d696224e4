"""The generic back end: plain loop nests for any target that LLVM knows. It also covers what other back ends do not claim.

Enters: any instruction but a Call of a library. Leaves: an Implementation, or the sentence why not.
Invariant: `constants` holds every constant that the emitter will load, tables of indices included.
"""

from __future__ import annotations

from aot.graph.ir import DType
from aot.graph.primitive import Call, Control, Loop, Primitive, reads, writes
from aot.llvm.calls import arguments_of, call_constants, emit_call
from aot.llvm.expressions import table_data, table_name, uniform
from aot.llvm.loops import emit_generic, tables_of
from aot.lower.draft import looks_up
from aot.lower.implementation import Backend, Implementation, Kernel, Rows
from aot.lower.inplace import elementwise_overwrites
from aot.lower.program import Buffer, Program
from aot.lower.rows import adds_up_rows, divided_alike, instruction_rows
from aot.target import Target


def generic_constants(program: Program, instruction: Primitive) -> tuple[Buffer, ...]:
    """The constants that generic code loads: those with more than one value, and index tables."""
    constants: list[Buffer] = []
    for name in reads(instruction):
        if _is_constant(program, name) and uniform(program[program.storage(name)].data) is None:
            constants.append(constant_of(program, name))
    for table in tables_of(instruction):
        data = table_data(table)
        constants.append(Buffer(table_name(table), DType(data.dtype.name), data.shape, "constant", data=data))
    return tuple({constant.name: constant for constant in constants}.values())


def _is_constant(program: Program, name: str) -> bool:
    return program[program.storage(name)].role == "constant"


def constant_of(program: Program, name: str) -> Buffer:
    """A constant with the shape that it has under this name."""
    own, data = program[name], program[program.storage(name)].data
    return Buffer(name, own.dtype, own.shape, "constant", data=data if data is None else data.reshape(own.shape), align=own.align)


def activations(program: Program, instruction: Primitive) -> tuple[str, ...]:
    """The buffers read that are not constants."""
    return tuple(name for name in reads(instruction) if not _is_constant(program, name))


def claim(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Any Map, Reduce or Contract, and calls of the firmware's functions, on any target."""
    if isinstance(instruction, Call):
        return _claim_call(program, instruction)
    if isinstance(instruction, Control):
        return Implementation("control", instruction, reads(instruction), (), (), emit_generic)
    return Implementation(
        kernel=f"generic {type(instruction).__name__.lower()}",
        instruction=instruction,
        reads=activations(program, instruction),
        writes=writes(instruction),
        constants=generic_constants(program, instruction),
        emit=emit_generic,
        overwrites=elementwise_overwrites(program, instruction),
        rows=_rows(program, instruction),
        scatters=_scatters(program, instruction),
    )


def _scatters(program: Program, instruction: Loop) -> tuple[str, ...]:
    """The buffers whose rows are loaded and stored one by one, and are those of their storage."""
    names = (*activations(program, instruction), *writes(instruction))
    return tuple(
        name for name in names if divided_alike(program, name) and not looks_up(instruction, program.storage(name), program)
    )


def _rows(program: Program, instruction: Loop) -> Rows:
    """Those of the space; of the window where there are none and the sum so far can stand in the output."""
    if not adds_up_rows(program, instruction):
        return Rows(instruction_rows(instruction))
    return Rows(instruction_rows(instruction, accumulates=True), accumulates=True)


def _claim_call(program: Program, call: Call) -> Implementation | str:
    """The firmware's function. It gets whole buffers, and may write its outputs in any order while it reads."""
    arguments = arguments_of(call)
    if arguments is None:
        return f"{call.kernel} is a library call"
    constants = [constant_of(program, name) for name in reads(call) if _is_constant(program, name)]
    return Implementation(
        kernel=f"firmware {call.kernel}",
        instruction=call,
        reads=activations(program, call),
        writes=writes(call),
        constants=(*constants, *call_constants(arguments)),
        emit=emit_call,
        notes=(f"custom operator {arguments.operator}",),
    )


GENERIC = Kernel("generic", claim, "plain loops, any instruction")
BACKEND = Backend("generic", (), summary="plain loops for any LLVM target", portable=True)
