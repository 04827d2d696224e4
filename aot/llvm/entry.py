"""The entry function: checks the caller's pointers, then calls each step's kernel with addresses that are constants plus a pointer.

Enters: an entry's source, its layout, the kernels' symbols. Leaves: the function
`int SYMBOL(inputs..., outputs..., void *workspace[, const void *weights])`.
Invariant: nothing is read or written before all checks have passed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from llvmlite import ir

from aot.llvm.constants import BLOCK_ALIGN, Pool, offset_pointer
from aot.llvm.types import I32, POINTER, Builder, Value

if TYPE_CHECKING:
    from aot.llvm.layout import Layout, Place
    from aot.llvm.module import EntrySource
    from aot.lower.plan import Step

NULL_POINTER, MISALIGNED_POINTER = -1, -2


def build_entry(
    module: ir.Module, source: EntrySource, layout: Layout, symbols: Mapping[int, str], pool: Pool, separate: bool
) -> None:
    """Define the entry of `source` in `module`. `symbols`: the kernel function of each position of the schedule."""
    names = [port.name for port in layout.parameters] + ["workspace"] + ["weights"] * separate
    entry = ir.Function(module, ir.FunctionType(I32, [POINTER] * len(names)), source.symbol)
    entry.attributes.add("nounwind")
    for argument, name in zip(entry.args, names):
        argument.name = f"arg_{name}"
    builder = ir.IRBuilder(entry.append_basic_block("entry"))
    _check(builder, entry, source, layout, separate)
    arguments = _Arguments(builder, entry, layout, pool, separate)
    for step in source.plan.schedule.steps:
        arguments.call(module.globals[symbols[step.position]], step)
    builder.ret(I32(0))


def _check(builder: Builder, entry: ir.Function, source: EntrySource, layout: Layout, separate: bool) -> None:
    """Return at once for a null pointer, then for a misaligned one. A pointer to no bytes may be anything."""
    wanted = [(argument, port.align, port.nbytes) for argument, port in zip(entry.args, layout.parameters)]
    wanted.append((entry.args[len(layout.parameters)], source.plan.align, source.plan.workspace_nbytes))
    if separate:
        wanted.append((entry.args[-1], BLOCK_ALIGN, 1))
    wanted = [each for each in wanted if each[2]]
    integer = ir.IntType(layout.pointer_bits)
    nulls = [builder.icmp_unsigned("==", argument, ir.Constant(POINTER, None)) for argument, _, _ in wanted]
    if nulls:
        _return_if(builder, functools.reduce(builder.or_, nulls), NULL_POINTER)
    stray = [(builder.ptrtoint(argument, integer), align) for argument, align, _ in wanted if align > 1]
    if stray:
        bits = functools.reduce(builder.or_, [builder.and_(address, integer(align - 1)) for address, align in stray])
        _return_if(builder, builder.icmp_unsigned("!=", bits, integer(0)), MISALIGNED_POINTER)


def _return_if(builder: Builder, condition: Value, code: int) -> None:
    with builder.if_then(condition, likely=False):
        builder.ret(I32(code))


class _Arguments:
    """Addresses of buffers inside an entry."""

    def __init__(self, builder: Builder, entry: ir.Function, layout: Layout, pool: Pool, separate: bool) -> None:
        self.builder, self.layout, self.pool = builder, layout, pool
        self.ports = entry.args[: len(layout.parameters)]
        self.workspace = entry.args[len(layout.parameters)]
        self.weights = entry.args[-1] if separate else None

    def call(self, kernel: ir.Function, step: Step) -> None:
        implementation = self.layout.plan.schedule.implementation(step)
        arguments = [self._address(self.layout.place(name)) for name in (*implementation.reads, *implementation.writes)]
        for constant in implementation.constants:
            arguments.append(offset_pointer(self.builder, self._block(), self.pool.add(constant)))
        if implementation.scratch_nbytes:
            arguments.append(self._address(self.layout.scratch(step.position)))
        self.builder.call(kernel, [*arguments, I32(step.y0), I32(step.y1)])

    def _address(self, place: Place) -> Value:
        base = self.workspace if place.port is None else self.ports[place.port]
        return offset_pointer(self.builder, base, place.offset)

    def _block(self) -> Value:
        return self.weights if self.weights is not None else self.pool.reserve(self.builder.module)
