"""The functions of an entry whose input is pushed: NAME_begin, NAME_push_rows, NAME_end, and the steps that all three run.

Enters: an entry's source, its layout, the kernels' symbols. Leaves: the functions
`int NAME_begin(void *workspace[, const void *weights])`, `int NAME_push_rows(void *workspace, const T *rows, uint32_t n[, const void *weights])`,
`int NAME_end(void *workspace, outputs...[, const void *weights])`.
Invariant: nothing is read or written before all checks have passed; a row of the caller's is read by the call that passes it, and not later.

All steps are one loop over a table, which stops where a row is missing: before the step that takes it, and behind the last such step (the
pause), until NAME_end. A word in the workspace holds the number of the entry at which it stopped; so it says how many rows have come, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir

from aot.llvm.constants import offset_pointer
from aot.llvm.entry import WRONG_ROWS, Arguments, check_pointers, memories, name_arguments, parameters, return_if
from aot.llvm.runs import PAUSE, Run, load, smallest
from aot.llvm.telling import clear_counters
from aot.llvm.types import I8, I32, POINTER, Builder, Value
from aot.lower.plan import PROGRESS, PROGRESS_NBYTES, Step
from aot.lower.pushed import is_pull, pushed_buffer
from aot.lower.rows import row_count, row_nbytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aot.llvm.constants import Pool
    from aot.llvm.layout import Layout
    from aot.llvm.module import EntrySource


def stream_functions(prefix: str) -> tuple[str, str, str]:
    """The names of the three functions."""
    return f"{prefix}_begin", f"{prefix}_push_rows", f"{prefix}_end"


def steps_function(prefix: str) -> str:
    """The name of the local function that runs the steps."""
    return f"{prefix}_steps"


def build_stream(
    module: ir.Module, source: EntrySource, layout: Layout, symbols: Mapping[int, str], pool: Pool, separate: bool
) -> None:
    """Define the functions of `source` in `module`. `symbols`: the kernel function of each position of the schedule."""
    stream = _Stream(module, source, layout, symbols, pool, separate)
    stream.begin()
    stream.push_rows()
    stream.end()


class _Stream:
    """One such entry."""

    def __init__(
        self, module: ir.Module, source: EntrySource, layout: Layout, symbols: Mapping[int, str], pool: Pool, separate: bool
    ) -> None:
        schedule = source.plan.schedule
        image = pushed_buffer(schedule.program)
        assert image is not None
        self.module, self.source, self.layout, self.pool, self.symbols = module, source, layout, pool, symbols
        self.known = parameters(source, layout, separate)
        self.workspaces = [f"/{pointer.name}" for pointer in source.workspaces]
        self.rest = [name for name in self.known if name.startswith("/") and name not in self.workspaces]
        self.separate = separate
        self.rows, self.row_nbytes = row_count(image), row_nbytes(image)
        pulls = [number for number, step in enumerate(schedule.steps) if is_pull(schedule, step)]
        self.pull, self.paused = schedule.steps[pulls[0]].position, pulls[-1] + 1
        pause = Step(PAUSE, self.rows, self.rows + 1)
        self.run = Run((*schedule.steps[: self.paused], pause, *schedule.steps[self.paused :]))
        self.dtype = smallest(self.run.table)
        self.table = 0
        self.steps = self._steps()

    def _steps(self) -> ir.Function:
        """The local function that runs steps from where the last call stopped, until the pull of row number `until`."""
        names = list(self.known)
        type = ir.FunctionType(I32, [POINTER] * len(names) + [I32])
        function = ir.Function(self.module, type, steps_function(self.source.prefix))
        builder: Builder = ir.IRBuilder(function.append_basic_block("entry"))
        until = function.args[-1]
        arguments = Arguments(builder, self.layout, self.pool, dict(zip(names, function.args)), self.source.instrument)
        pointers = arguments.pointers

        def begin(first: Value) -> Value:
            slot = self._progress(builder, pointers)
            number = load_word(builder, slot)
            store_word(builder, len(self.run.steps), slot)  # where a function that fails leaves it: behind the end
            return self._entry(builder, first, number)

        def call(position: int, number: Value) -> None:
            if position in (PAUSE, self.pull):
                further = builder.append_basic_block("further")
                row = I32(self.rows) if position == PAUSE else number
                builder.cbranch(builder.icmp_unsigned("<", row, until), further, arguments.numbers.done)
                builder.position_at_end(further)
            if position != PAUSE and position not in self.symbols:
                arguments.ask(self.run.layers[position][0])
            elif position != PAUSE:
                arguments.call(self.module.globals[self.symbols[position]], self.run.layers[position], number)

        arguments.loop(self.run, call, begin)
        numbers = arguments.numbers
        first = numbers.append(self.run.table)
        self.table = self.pool.add(numbers.table()) + first
        integer = ir.IntType(self.layout.pointer_bits)
        ends = [builder.ptrtoint(each, integer) for each in (numbers.cursor, offset_pointer(builder, numbers.start, first))]
        reached = builder.udiv(builder.sub(*ends), integer(self._entry_nbytes))
        store_word(builder, reached if integer == I32 else builder.trunc(reached, I32), self._progress(builder, pointers))
        builder.ret(I32(0))
        return function

    @property
    def _entry_nbytes(self) -> int:
        return 2 * self.dtype.nbytes

    def _entry(self, builder: Builder, first: Value, number: Value) -> Value:
        """The address of an entry of the table."""
        return builder.gep(first, [builder.mul(number, I32(self._entry_nbytes))], source_etype=I8)

    def _progress(self, builder: Builder, pointers: Mapping[Any, Value]) -> Value:
        """The word that says how far a run has come."""
        place = self.layout.located(self.source.plan.offset_of[PROGRESS], PROGRESS_NBYTES)
        return offset_pointer(builder, pointers[place.port], place.offset)

    def _define(self, number: int, names: Sequence[str]) -> tuple[Builder, dict[str, Value]]:
        """One of the three functions, its pointers checked. names: its parameters; `n` is a number."""
        types = [I32 if name == "n" else POINTER for name in names]
        function = ir.Function(self.module, ir.FunctionType(I32, types), stream_functions(self.source.prefix)[number])
        function.attributes.add("nounwind")
        values = name_arguments(function, names)
        known = self.known | {"/rows": self.known[self.layout.parameters[0].name]}
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        check_pointers(builder, self.layout.pointer_bits, [(values[name], *known[name]) for name in names if name != "n"])
        return builder, values

    def _run(self, builder: Builder, values: Mapping[str, Value], until: Value, rows: Value | None = None) -> None:
        """Run steps until the pull of row number `until`, and return what they return."""
        null = ir.Constant(POINTER, None)
        image, *outputs = self.layout.parameters
        given = {image.name: null if rows is None else rows, **{port.name: values.get(port.name, null) for port in outputs}}
        builder.ret(builder.call(self.steps, [given[name] if name in given else values[name] for name in self.known] + [until]))

    def begin(self) -> None:
        builder, values = self._define(0, [*self.workspaces, *self.rest])
        store_word(builder, 0, self._progress(builder, memories(values)))
        if self.source.instrument is not None and self.source.instrument.kind == "cycles":
            clear_counters(builder, values["/cycles"], len(self.symbols))
        self._run(builder, values, I32(0))

    def push_rows(self) -> None:
        builder, values = self._define(1, [*self.workspaces, "/rows", "n", *self.rest])
        number = load_word(builder, self._progress(builder, memories(values)))
        return_if(builder, builder.icmp_unsigned(">", number, I32(self.paused)), WRONG_ROWS)
        block = values["/weights"] if self.separate else self.pool.reserve(self.module)
        entry = self._entry(builder, offset_pointer(builder, block, self.table), number)
        layer, row = (load(builder, offset_pointer(builder, entry, at * self.dtype.nbytes), self.dtype) for at in range(2))
        order = list(self.run.layers)
        is_pull, is_pause = (builder.icmp_unsigned("==", layer, I32(order.index(which))) for which in (self.pull, PAUSE))
        come = builder.select(is_pause, I32(self.rows), row)
        free = builder.sub(I32(self.rows), come)
        fits = builder.icmp_unsigned("<=", values["n"], free)
        waits = builder.or_(is_pull, is_pause)
        return_if(builder, builder.not_(builder.and_(fits, waits)), WRONG_ROWS)
        before = builder.mul(come, I32(-self.row_nbytes))
        first = builder.gep(values["/rows"], [before], source_etype=I8)
        self._run(builder, values, builder.add(come, values["n"]), first)

    def end(self) -> None:
        outputs = [port.name for port in self.layout.parameters[1:]]
        builder, values = self._define(2, [*self.workspaces, *outputs, *self.rest])
        number = load_word(builder, self._progress(builder, memories(values)))
        return_if(builder, builder.icmp_unsigned("!=", number, I32(self.paused)), WRONG_ROWS)
        self._run(builder, values, I32(self.rows + 1))


def load_word(builder: Builder, slot: Value) -> Value:
    return builder.load(slot, align=PROGRESS_NBYTES, typ=I32)


def store_word(builder: Builder, value: Value | int, slot: Value) -> None:
    builder.store(I32(value) if isinstance(value, int) else value, slot, align=PROGRESS_NBYTES)
