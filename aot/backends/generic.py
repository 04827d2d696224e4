"""The generic back end: plain loop nests for any target that LLVM knows. It also covers what other back ends do not claim.

Enters: any instruction but a Call. Leaves: an Implementation, or the sentence why not.
Invariant: `constants` holds every constant that the emitter will load, tables of indices included.
"""

from __future__ import annotations

from aot.graph.ir import DType
from aot.graph.primitive import Call, Control, Primitive, reads, writes
from aot.llvm.expressions import table_data, table_name, uniform
from aot.llvm.loops import emit_generic, row_axis, tables_of
from aot.lower.implementation import Backend, Implementation, Kernel, Rows
from aot.lower.inplace import elementwise_overwrites
from aot.lower.program import Buffer, Program
from aot.target import Target


def generic_constants(program: Program, instruction: Primitive) -> tuple[Buffer, ...]:
    """The constants that generic code loads: those with more than one value, and index tables."""
    constants = []
    for name in reads(instruction):
        owner = program[program.storage(name)]
        if owner.role == "constant" and uniform(owner.data) is None:
            own = program[name]
            data = owner.data if owner.data is None else owner.data.reshape(own.shape)
            constants.append(Buffer(name, own.dtype, own.shape, "constant", data=data, align=own.align))
    for table in tables_of(instruction):
        data = table_data(table)
        constants.append(Buffer(table_name(table), DType(data.dtype.name), data.shape, "constant", data=data))
    return tuple({constant.name: constant for constant in constants}.values())


def activations(program: Program, instruction: Primitive) -> tuple[str, ...]:
    """The buffers read that are not constants."""
    return tuple(name for name in reads(instruction) if program[program.storage(name)].role != "constant")


def claim(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Any Map, Reduce or Contract, on any target."""
    if isinstance(instruction, Call):
        return f"{instruction.kernel} is a library call"
    if isinstance(instruction, Control):
        return Implementation("control", instruction, reads(instruction), (), (), emit_generic)
    rows = row_axis(instruction.space)
    return Implementation(
        kernel=f"generic {type(instruction).__name__.lower()}",
        instruction=instruction,
        reads=activations(program, instruction),
        writes=writes(instruction),
        constants=generic_constants(program, instruction),
        emit=emit_generic,
        overwrites=elementwise_overwrites(program, instruction),
        rows=Rows(1 if rows is None else instruction.space[rows]),
    )


GENERIC = Kernel("generic", claim, "plain loops, any instruction")
BACKEND = Backend("generic", (), summary="plain loops for any LLVM target")
