"""The entry function: checks the caller's pointers, then calls each step's kernel with addresses that are constants plus a pointer.

Enters: an entry's source, its layout, the kernels' symbols. Leaves: the function
`int SYMBOL(inputs..., outputs..., void *workspace[, void *state][, const void *weights])`.
Invariant: nothing is read or written before all checks have passed; after a kernel that failed nothing more is.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from llvmlite import ir

from aot.errors import InternalError
from aot.graph.primitive import Control
from aot.llvm.constants import BLOCK_ALIGN, Pool, offset_pointer
from aot.llvm.types import I8, I32, POINTER, Builder, Value
from aot.lower.blocks import ends

if TYPE_CHECKING:
    from aot.llvm.layout import Layout, Place
    from aot.llvm.module import EntrySource
    from aot.lower.plan import Step

NULL_POINTER, MISALIGNED_POINTER, CUSTOM_FAILED = -1, -2, -3


def build_entry(
    module: ir.Module, source: EntrySource, layout: Layout, symbols: Mapping[int, str], pool: Pool, separate: bool
) -> None:
    """Define the entry of `source` in `module`. `symbols`: the kernel function of each position of the schedule."""
    names = parameter_names(source, layout, separate)
    entry = ir.Function(module, ir.FunctionType(I32, [POINTER] * len(names)), source.symbol)
    entry.attributes.add("nounwind")
    for argument, name in zip(entry.args, names):
        argument.name = f"arg_{name.lstrip('/')}"
    builder = ir.IRBuilder(entry.append_basic_block("entry"))
    _check(builder, entry, source, layout, separate)
    arguments = _Arguments(builder, layout, pool, dict(zip(names, entry.args)))
    _Flow(module, arguments, source, symbols).emit()
    builder.ret(I32(0))


def parameter_names(source: EntrySource, layout: Layout, separate: bool) -> list[str]:
    """The entry's parameters, in order. `/` can't stand in a port's name."""
    names = [port.name for port in layout.parameters]
    return names + ["/workspace"] * source.has_workspace + ["/state"] * source.has_state + ["/weights"] * separate


def _check(builder: Builder, entry: ir.Function, source: EntrySource, layout: Layout, separate: bool) -> None:
    """Return at once for a null pointer, then for a misaligned one. A pointer to no bytes may be anything."""
    wanted = [(argument, port.align, port.nbytes) for argument, port in zip(entry.args, layout.parameters)]
    rest = iter(entry.args[len(layout.parameters) :])
    if source.has_workspace:
        wanted.append((next(rest), source.plan.align, source.plan.workspace_nbytes))
    if source.has_state and source.state:
        wanted.append((next(rest), source.state.align, source.state.nbytes))
    if separate:
        wanted.append((next(rest), BLOCK_ALIGN, 1))
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

    def __init__(self, builder: Builder, layout: Layout, pool: Pool, parameters: Mapping[str, Value]) -> None:
        self.builder, self.layout, self.pool = builder, layout, pool
        self.ports = [parameters[port.name] for port in layout.parameters]
        self.regions = {"workspace": parameters.get("/workspace"), "state": parameters.get("/state")}
        self.weights = parameters.get("/weights")
        self.turns: list[Value] = []

    def call(self, kernel: ir.Function, step: Step) -> None:
        implementation = self.layout.implementations[step.position]
        names = (*implementation.reads, *implementation.writes)
        arguments = [self._address(self.layout.argument(name, step)) for name in names]
        for constant in implementation.constants:
            arguments.append(offset_pointer(self.builder, self._block(), self.pool.add(constant)))
        if implementation.scratch_nbytes:
            arguments.append(self._address(self.layout.scratch(step.position)))
        result = self.builder.call(kernel, [*arguments, I32(step.y0), I32(step.y1)])
        if result.type == I32:
            _return_if(self.builder, self.builder.icmp_signed("!=", result, I32(0)), CUSTOM_FAILED)

    def flag(self, name: str) -> Value:
        """A bool buffer of one element, as i1."""
        program = self.layout.program
        if (data := program[program.storage(name)].data) is not None:
            return ir.Constant(ir.IntType(1), int(bool(data.reshape(-1)[0])))
        held = self.builder.load(self._address(self.layout.place(name)), align=1, typ=I8)
        return self.builder.icmp_unsigned("!=", held, I8(0))

    def _address(self, place: Place) -> Value:
        base = self.ports[place.port] if isinstance(place.port, int) else self.regions[place.port]
        address = offset_pointer(self.builder, base, place.offset + place.start)
        for step, turn in zip(place.slide, self.turns):
            if step:
                address = self.builder.gep(address, [self.builder.mul(turn, I32(step))], inbounds=True, source_etype=I8)
        return address

    def _block(self) -> Value:
        return self.weights if self.weights is not None else self.pool.reserve(self.builder.module)


class _Flow:
    """The steps of an entry in order: calls of kernels, and the branches that `Control` asks for."""

    def __init__(self, module: ir.Module, arguments: _Arguments, source: EntrySource, symbols: Mapping[int, str]) -> None:
        self.module, self.arguments, self.symbols = module, arguments, symbols
        self.builder = arguments.builder
        self.steps, self.instructions = source.plan.schedule.steps, source.plan.schedule.instructions
        self.ends = ends(self.instructions)
        self.exits: list[ir.Block] = []

    def emit(self) -> None:
        self._run(range(len(self.steps)))

    def _run(self, numbers: range) -> None:
        number = numbers.start
        while number < numbers.stop:
            instruction = self.instructions[number]
            match instruction:
                case Control("repeat"):
                    self._repeat(number, instruction.count)
                    number = self.ends[number][1]
                case Control("if", condition):
                    self._branch(number, condition)
                    number = self.ends[number][1]
                case Control("leave", condition):
                    assert condition is not None
                    further = self.builder.append_basic_block("further")
                    self.builder.cbranch(self.arguments.flag(condition), further, self.exits[-1])
                    self.builder.position_at_end(further)
                case Control():
                    raise InternalError(f"a stray {instruction.kind}")
                case _:
                    step = self.steps[number]
                    self.arguments.call(self.module.globals[self.symbols[step.position]], step)
            number += 1

    def _repeat(self, number: int, count: int) -> None:
        builder, before = self.builder, self.builder.block
        head, after = builder.append_basic_block("turn"), builder.append_basic_block("left")
        builder.branch(head)
        builder.position_at_end(head)
        turn = builder.phi(I32)
        turn.add_incoming(I32(0), before)
        self.arguments.turns.append(turn)
        self.exits.append(after)
        self._run(range(number + 1, self.ends[number][1]))
        following = builder.add(turn, I32(1))
        turn.add_incoming(following, builder.block)
        if count:
            builder.cbranch(builder.icmp_unsigned("<", following, I32(count)), head, after)
        else:
            builder.branch(head)
        self.arguments.turns.pop()
        self.exits.pop()
        builder.position_at_end(after)

    def _branch(self, number: int, condition: str | None) -> None:
        assert condition is not None
        middle, end = self.ends[number]
        with self.builder.if_else(self.arguments.flag(condition)) as (then, otherwise):
            with then:
                self._run(range(number + 1, middle))
            with otherwise:
                self._run(range(middle + 1, end))
