"""Layers in parts: one call of a kernel becomes several, which the caller's function may run at once.

Enters: a kernel whose implementation has parts, the pointers that a call of it would have. Leaves: in the entry, the pointers in a frame on
its stack and a call of the caller's `parallel_for` with a body; the body, a local function of the frame and the number of a part, which
calls the kernel for the part's rows.
Invariant: a body writes nothing but what its kernel writes in those rows, and its own share of the scratch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llvmlite import ir

from aot.llvm.constants import offset_pointer
from aot.llvm.emission import local_attributes
from aot.llvm.types import I8, I32, POINTER, Builder, Callee, Value

if TYPE_CHECKING:
    from aot.lower.implementation import Implementation

_BODY = ir.FunctionType(ir.VoidType(), [POINTER, I32])
_PARALLEL_FOR = ir.FunctionType(ir.VoidType(), [POINTER, I32, POINTER, POINTER])


def runner_name(name: str) -> str:
    """The local function of a bundle that has parts run."""
    return f"{name}_parts"


def body_name(kernel: str) -> str:
    """The local function that makes a part of a kernel's rows."""
    return f"{kernel}_part"


def part_calls(module: ir.Module, name: str) -> dict[str, tuple[str, ...]]:
    """What the function that has parts run calls, though not by name: every body of the module."""
    found = tuple(function.name for function in module.functions if function.function_type == _BODY and function.blocks)
    return {runner_name(name): found} if found else {}


class Parallel:
    """What an entry needs to have parts run. Made in its first block: the frame is there once. pointers: most that a kernel takes."""

    def __init__(self, builder: Builder, prefix: str, pointers: int, pointer_nbytes: int, parallel_for: Value, pool: Value) -> None:
        self.builder, self.pointer_nbytes = builder, pointer_nbytes
        self.given = parallel_for, pool
        self.runner = _runner(builder.module, runner_name(prefix))
        with builder.goto_entry_block():
            self.frame = builder.alloca(ir.ArrayType(POINTER, pointers), name="frame")
        self.frame.align, self.frame.type = pointer_nbytes, POINTER  # llvmlite's alloca still has a typed pointer

    def call(self, kernel: ir.Function, one: Implementation, arguments: Sequence[Value]) -> None:
        """Have all parts run. arguments: of the kernel, but for its rows; the scratch is that of all parts."""
        for number, argument in enumerate(arguments):
            slot = offset_pointer(self.builder, self.frame, number * self.pointer_nbytes)
            self.builder.store(argument, slot, align=self.pointer_nbytes)
        body = _body(kernel, one, self.pointer_nbytes)
        self.builder.call(self.runner, [*self.given, I32(one.parts), body, self.frame])


def _body(kernel: ir.Function, one: Implementation, pointer_nbytes: int) -> ir.Function:
    """`void body(void *frame, uint32_t part)`: the rows are those of `part_rows`."""
    function = _local(kernel.module, body_name(kernel.name), _BODY)
    frame, part = function.args
    builder: Builder = ir.IRBuilder(function.append_basic_block("part"))
    arguments = [
        builder.load(offset_pointer(builder, frame, number * pointer_nbytes), align=pointer_nbytes, typ=POINTER)
        for number in range(len(kernel.args) - 2)
    ]
    if one.scratch_nbytes:
        share = builder.mul(part, I32(one.scratch_nbytes // one.parts))
        arguments[-1] = builder.gep(arguments[-1], [share], inbounds=True, source_etype=I8)
    each, more = divmod(-(-one.rows.count // one.rows.per_step), one.parts)

    def start(number: Value) -> Value:
        steps = builder.mul(number, I32(each))
        if more:
            longer = builder.select(builder.icmp_unsigned("<", number, I32(more)), number, I32(more))
            steps = builder.add(steps, longer)
        return builder.mul(steps, I32(one.rows.per_step))

    stop = start(builder.add(part, I32(1)))
    if one.rows.count % one.rows.per_step:
        stop = builder.select(builder.icmp_unsigned("<", stop, I32(one.rows.count)), stop, I32(one.rows.count))
    builder.call(kernel, [*arguments, start(part), stop])
    builder.ret_void()
    return function


def _runner(module: ir.Module, name: str) -> ir.Function:
    """`void parts(parallel_for, pool, parts, body, frame)`: by the caller's function, or one after the other where there is none."""
    if (found := module.globals.get(name)) is not None:
        return found
    function = _local(module, name, ir.FunctionType(ir.VoidType(), [POINTER, POINTER, I32, POINTER, POINTER]))
    parallel_for, pool, parts, body, frame = function.args
    builder: Builder = ir.IRBuilder(function.append_basic_block("entry"))
    given, alone, again, done = (builder.append_basic_block(each) for each in ("given", "alone", "again", "done"))
    builder.cbranch(builder.icmp_unsigned("!=", parallel_for, ir.Constant(POINTER, None)), given, alone)
    builder.position_at_end(given)
    builder.call(Callee(parallel_for, _PARALLEL_FOR), [pool, parts, body, frame])
    builder.branch(done)
    builder.position_at_end(alone)
    builder.branch(again)
    builder.position_at_end(again)
    part = builder.phi(I32)
    part.add_incoming(I32(0), alone)
    builder.call(Callee(body, _BODY), [frame, part])
    following = builder.add(part, I32(1))
    part.add_incoming(following, again)
    builder.cbranch(builder.icmp_unsigned("<", following, parts), again, done)
    builder.position_at_end(done)
    builder.ret_void()
    return function


def _local(module: ir.Module, name: str, type: ir.FunctionType) -> ir.Function:
    function = ir.Function(module, type, name)
    local_attributes(function)
    return function
