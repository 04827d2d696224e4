"""The entry function: checks the caller's pointers, then calls each step's kernel with addresses that are constants plus a pointer.

Enters: an entry's source, its layout, the kernels' symbols. Leaves: the function
`int SYMBOL(inputs..., outputs..., void *workspace[, void *state][, const void *weights][, int (*read)(...), void *ctx]
[, void (*parallel_for)(...), void *pool][, void (*on_layer)(...), void *observer][, uint32_t *cycles])`.
Invariant: nothing is read or written before all checks have passed; after a kernel that failed nothing more is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from llvmlite import ir

from aot.errors import InternalError
from aot.graph.primitive import Control
from aot.llvm.constants import Pool, offset_pointer
from aot.llvm.emission import kernel_type
from aot.llvm.parallel import Parallel
from aot.llvm.runs import PAUSE, Numbers, Run, emit_run, find_run
from aot.llvm.telling import TOLD, Telling, clear_counters
from aot.llvm.types import I8, I32, POINTER, Builder, Callee, Value, known_integer
from aot.lower.blocks import blocks, ends
from aot.lower.implementation import request_of

if TYPE_CHECKING:
    from aot.instrument import Instrument
    from aot.llvm.layout import Layout, Place
    from aot.llvm.module import EntrySource
    from aot.lower.plan import Step
    from aot.lower.program import Buffer

_FIRST = I32(0)
NULL_POINTER, MISALIGNED_POINTER, CUSTOM_FAILED, WRONG_ROWS, READ_FAILED = -1, -2, -3, -4, -5
_READ = ir.FunctionType(I32, [POINTER, I32, I32, POINTER])
"""`int read(void *ctx, uint32_t offset, uint32_t size, void *dst)`: the caller's; other than 0 ends the run."""


def build_entry(
    module: ir.Module, source: EntrySource, layout: Layout, symbols: Mapping[int, str], pool: Pool, separate: bool
) -> None:
    """Define the entry of `source` in `module`. `symbols`: the kernel function of each position of the schedule."""
    wanted = parameters(source, layout, separate)
    entry = ir.Function(module, ir.FunctionType(I32, [POINTER] * len(wanted)), source.symbol)
    entry.attributes.add("nounwind")
    values = name_arguments(entry, wanted)
    builder = ir.IRBuilder(entry.append_basic_block("entry"))
    check_pointers(builder, layout.pointer_bits, [(values[name], *each) for name, each in wanted.items()])
    if source.instrument is not None and source.instrument.kind == "cycles":
        clear_counters(builder, values["/cycles"], len(symbols))
    arguments = Arguments(builder, layout, pool, values, source.instrument)
    _Flow(module, arguments, source, symbols).emit()
    builder.ret(I32(0))


def parameters(source: EntrySource, layout: Layout, separate: bool) -> dict[str, tuple[int, int]]:
    """Alignment and bytes behind each parameter of the entry, in order: its ports, then what else it is passed, whose names begin with
    `/`, which can't stand in a port's name."""
    ports = {port.name: (port.align, port.nbytes) for port in layout.parameters}
    return ports | {f"/{pointer.name}": (pointer.align, pointer.nbytes) for pointer in source.pointers(separate)}


def name_arguments(function: ir.Function, names: Iterable[str]) -> dict[str, Value]:
    """The function's arguments by the names of its parameters."""
    values = dict(zip(names, function.args, strict=True))
    for name, value in values.items():
        value.name = f"arg_{name.lstrip('/')}"
    return values


def check_pointers(builder: Builder, pointer_bits: int, wanted: Sequence[tuple[Value, int, int]]) -> None:
    """Return at once for a null pointer, then for a misaligned one. wanted: (pointer, alignment, bytes); one to no bytes may be anything."""
    wanted = [each for each in wanted if each[2]]
    integer = ir.IntType(pointer_bits)
    nulls = [builder.icmp_unsigned("==", argument, ir.Constant(POINTER, None)) for argument, _, _ in wanted]
    if nulls:
        return_if(builder, functools.reduce(builder.or_, nulls), NULL_POINTER)
    stray = [(builder.ptrtoint(argument, integer), align) for argument, align, _ in wanted if align > 1]
    if stray:
        bits = functools.reduce(builder.or_, [builder.and_(address, integer(align - 1)) for address, align in stray])
        return_if(builder, builder.icmp_unsigned("!=", bits, integer(0)), MISALIGNED_POINTER)


def memories(parameters: Mapping[str, Value]) -> dict[str, Value]:
    """What an entry is passed besides its ports, by the names of its pointers."""
    return {name[1:]: value for name, value in parameters.items() if name.startswith("/")}


def return_if(builder: Builder, condition: Value, code: int) -> None:
    with builder.if_then(condition, likely=False):
        builder.ret(I32(code))


class Arguments:
    """Addresses of buffers inside an entry."""

    def __init__(
        self,
        builder: Builder,
        layout: Layout,
        pool: Pool,
        parameters: Mapping[str, Value],
        instrument: Instrument | None = None,
    ) -> None:
        self.builder, self.layout, self.pool = builder, layout, pool
        self.pointers: dict[int | str, Value] = {number: parameters[port.name] for number, port in enumerate(layout.parameters)}
        self.pointers |= memories(parameters)
        self.turns: list[Value] = []
        self.numbers = Numbers(builder)
        self.parallel = self._parallel()
        layers = {position: layer for layer, position in enumerate(layout.plan.schedule.kernel_positions)}
        self.telling = None if instrument is None else Telling(builder, instrument, pool.name, layers, layout.pointer_bits)

    def _parallel(self) -> Parallel | None:
        """What has the parts of layers run, if there are any."""
        divided = [one for one in self.layout.implementations.values() if one.parts > 1]
        if not divided:
            return None
        pointers = max(len(kernel_type(one).args) - 2 for one in divided)
        given = self.pointers["parallel_for"], self.pointers["pool"]
        return Parallel(self.builder, self.pool.name, pointers, self.layout.pointer_bits // 8, *given)

    def call(self, kernel: ir.Function, steps: Sequence[Step], number: Value) -> None:
        """Call the kernel for one of these steps of its layer, and tell of it."""
        if self.telling is None:
            self._call(kernel, steps, number)
            return
        with self.telling.around(steps[0].position, self.pointers):
            self._call(kernel, steps, number)

    def _call(self, kernel: ir.Function, steps: Sequence[Step], number: Value) -> None:
        implementation = self.layout.implementations[steps[0].position]
        arguments = [self._address(places, number) for places in zip(*map(self.layout.arguments, steps), strict=True)]
        scratch = [arguments.pop()] if implementation.scratch_nbytes else []
        constants = [self._constant(constant, steps[0].position) for constant in implementation.constants]
        if implementation.parts > 1 and self.parallel is not None:
            self.parallel.call(kernel, implementation, [*arguments, *constants, *scratch])
            return
        rows = [self.numbers.at(values, number) for values in _rows(steps)]
        result = self.builder.call(kernel, [*arguments, *constants, *scratch, *rows])
        if result.type == I32:
            return_if(self.builder, self.builder.icmp_signed("!=", result, I32(0)), CUSTOM_FAILED)

    def ask(self, step: Step) -> None:
        """Ask the caller for the page that this step is for, or, with no bytes, for nothing but that the last one be there."""
        one = self.layout.implementations[step.position]
        request = request_of(one.instruction)
        assert request is not None
        offset = nbytes = 0
        target: Value = ir.Constant(POINTER, None)
        if request.position is not None:
            offset, nbytes = self.pool.page(self.layout.plan.schedule.choices[request.position].implementation)
            target = self._address(self.layout.arguments(step))
        result = self.builder.call(Callee(self.pointers["read"], _READ), [self.pointers["ctx"], I32(offset), I32(nbytes), target])
        return_if(self.builder, self.builder.icmp_signed("!=", result, I32(0)), READ_FAILED)

    def loop(self, run: Run, call: Callable[[int, Value], None], begin: Callable[[Value], Value] = lambda entry: entry) -> None:
        """Make a run's calls. begin: as for `emit_run`."""
        layers = [steps for position, steps in run.layers.items() if position != PAUSE]
        used = {place.port for steps in layers for step in steps for place in self.layout.arguments(step)}
        self.numbers = Numbers(self.builder)
        for steps in layers:
            places = zip(*map(self.layout.arguments, steps), strict=True)
            for values in (*map(_offsets, places), *_rows(steps)):
                self.numbers.add(values)
        used |= {"workspace", "weights", "read", "ctx", *TOLD} | ({self.pool.loaded.region} if self.pool.loaded else set())
        used |= {place.port for position in run.layers if position != PAUSE for place in self.layout.in_pages(position)}
        emit_run(self.numbers, run, self._constant, self.pointers, used, call, begin)

    def flag(self, name: str) -> Value:
        """A bool buffer of one element, as i1."""
        program = self.layout.program
        if (data := program[program.storage(name)].data) is not None:
            return ir.Constant(ir.IntType(1), int(bool(data.reshape(-1)[0])))
        held = self.builder.load(self._address([self.layout.place(name)]), align=1, typ=I8)
        return self.builder.icmp_unsigned("!=", held, I8(0))

    def _address(self, places: Sequence[Place], number: Value = _FIRST) -> Value:
        """Of one of the places, which are all behind the same pointer."""
        place = places[0]
        base = self.pointers[place.port]
        offset = self.numbers.at(_offsets(places), number)
        if (known := known_integer(offset)) is not None:
            address = offset_pointer(self.builder, base, known)
        else:
            address = self.builder.gep(base, [offset], source_etype=I8)
        for step, turn in zip(place.slide, self.turns):
            if step:
                address = self.builder.gep(address, [self.builder.mul(turn, I32(step))], inbounds=True, source_etype=I8)
        return address

    def _constant(self, constant: Buffer, position: int | None = None) -> Value:
        place = None if position is None else self.layout.in_page(position, constant)
        if place is not None:
            return offset_pointer(self.builder, self.pointers[place.port], place.offset)
        name, offset = self.pool.place(constant, self.pointers)
        if name == "weights" and name not in self.pointers:
            self.pointers[name] = self.pool.reserve(self.builder.module)
        return offset_pointer(self.builder, self.pointers[name], offset)


def _offsets(places: Sequence[Place]) -> list[int]:
    return [place.offset + place.start for place in places]


def _rows(steps: Sequence[Step]) -> tuple[list[int], list[int]]:
    return [step.y0 for step in steps], [step.y1 for step in steps]


class _Flow:
    """The steps of an entry in order: calls of kernels, and the branches that `Control` asks for."""

    def __init__(self, module: ir.Module, arguments: Arguments, source: EntrySource, symbols: Mapping[int, str]) -> None:
        self.module, self.arguments, self.symbols = module, arguments, symbols
        self.builder = arguments.builder
        self.steps, self.instructions = source.plan.schedule.steps, source.plan.schedule.instructions
        self.ends, self.runs = ends(self.instructions), self._find_runs()
        self.exits: list[ir.Block] = []

    def emit(self) -> None:
        self._run(range(len(self.steps)))

    def _run(self, numbers: range) -> None:
        number = numbers.start
        while number < numbers.stop:
            instruction = self.instructions[number]
            if (run := self.runs.get(number)) is not None:
                self.arguments.loop(run, lambda position, at, layers=run.layers: self._call(layers[position], at))
                number += len(run.steps)
                continue
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
                    self._call((self.steps[number],), _FIRST)
            number += 1

    def _call(self, steps: Sequence[Step], number: Value) -> None:
        if steps[0].position not in self.symbols:
            self.arguments.ask(steps[0])
            return
        self.arguments.call(self.module.globals[self.symbols[steps[0].position]], steps, number)

    def _find_runs(self) -> dict[int, Run]:
        """The runs that become loops, each by the number of its first step."""
        found: dict[int, Run] = {}
        for block in blocks(self.instructions):
            if (run := find_run(self.steps[block.start : block.stop])) is not None:
                found[block.start + self.steps[block.start : block.stop].index(run.steps[0])] = run
        return found

    def _repeat(self, number: int, count: int) -> None:
        builder, before = self.builder, self.builder.block
        head, after = builder.append_basic_block("turn"), builder.append_basic_block("left")
        builder.branch(head)
        builder.position_at_end(head)
        turn = builder.phi(I32)
        turn.add_incoming(I32(0), before)
        self.arguments.turns.append(turn)
        self.exits.append(after)
        self._part(range(number + 1, self.ends[number][1]))
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
                self._part(range(number + 1, middle))
            with otherwise:
                self._part(range(middle + 1, end))

    def _part(self, numbers: range) -> None:
        """Steps that may be left out: what follows them can't use the pointers that a loop of theirs had."""
        before = dict(self.arguments.pointers)
        self._run(numbers)
        self.arguments.pointers = before
