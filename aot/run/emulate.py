# pyright: basic
"""Runs a bundle in Unicorn: a Cortex-M core, and no memory but what the entry may touch.

Enters: a bundle, an entry, inputs. Leaves: `RunResult`, or InternalError that names address, region and layer.
Invariant: each region is alone on its pages between unmapped ones. It ends where a page ends in the first run, and starts where one
starts in the second, so that an access outside in either direction faults.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from aot.bundle import Bundle, Entry
from aot.errors import CompileError, InternalError
from aot.run import memory
from aot.run.hooks import Watch, compiled_hooks
from aot.run.layout import NO_OTHERS, SAVED, Grid, Layout, check_return, check_stack, describe_layer, lay_out, owners_of
from aot.run.memory import CONTEXT, NO_FUNCTIONS, OBSERVER, ON_LAYER, READ, ROWS, Call, Placed
from aot.run.observer import OBSERVER as OBSERVER_VALUE
from aot.run.observer import Observer
from aot.run.reader import CONTEXT as CONTEXT_VALUE
from aot.run.reader import Reader
from aot.run.recorder import Recorder, compiled_recorder
from aot.run.result import RunResult
from aot.run.trace import Trace, Tracing
from aot.target import Target

# Everything below 0x40000000: beyond it a Cortex-M has peripherals, from which it executes nothing.
_GRID = Grid(code=(0x10_0000, 0x2000_0000), ram=(0x2000_0000, 0x4000_0000), page=4096, gap=64 * 1024)
_STOP = 0x1000
_READ_AT = _STOP + 0x10
_READS = {READ: _READ_AT | 1, CONTEXT: CONTEXT_VALUE}
_TELL_AT = _STOP + 0x20
_TOLD = {ON_LAYER: _TELL_AT | 1, OBSERVER: OBSERVER_VALUE}
_RETURN = b"\x70\x47"  # bx lr
_NEARLY_ZERO = (1 << 32) - 1000  # what the counter of cycles holds before a run
_CHECKED = 3_000_000  # instructions whose accesses' alignment is checked, which slows them down tenfold


def run(
    bundle: Bundle, entry: Entry, inputs: Sequence[np.ndarray], limit: int, tracing: Tracing = "none", push_rows: int = 1
) -> RunResult:
    """Run the entry twice, with regions at the ends and at the starts of pages, and with other garbage in outputs and workspace.

    A third run checks only the alignment of its accesses, which are hooked for that; its regions are aligned no better than the
    bundle asks for. tracing: what the first run records. push_rows: rows that are pushed at a time, where the entry takes them so.
    """
    unicorn = _unicorn()

    def machine(at_end: bool, seed: int, guard: int, astray: bool = False) -> _Machine:
        regions, calls = memory.arguments(bundle, entry, inputs, seed, push_rows)
        passed = max((call.arguments for call in calls), key=len)
        others: dict[str, int | str] = {**NO_OTHERS, **(_READS if entry.paging else {}), **(_TOLD if entry.tells else {})}
        layout = lay_out(bundle, entry, regions, _GRID, at_end=at_end, guard=guard, astray=astray, passed=passed, others=others)
        made = _Machine(unicorn, bundle.target, entry, layout, limit, calls, at_end)
        if entry.paging:
            made.read_pages(bundle)
        if entry.tells:
            made.hear()
        if entry.instrument is not None and entry.instrument.kind == "cycles":
            made.count_at(entry.instrument.counter)
        return made

    machines = (machine(True, 1, 0xA5), machine(False, 2, 0x3C))
    for each in machines:
        each.prepare()
    machines[0].record(tracing)
    for each in machines:
        each.call()
    if _allows_unaligned(bundle.target):
        machine(True, 1, 0xA5, astray=True).check_alignment()
    for each in machines:  # after both calls: a fault names the layer, a changed guard does not
        each.check()
    first, second = (memory.outputs(bundle, entry, each.contents()) for each in machines)
    memory.same_outputs(entry, first, second)
    stack = max(each.stack_peak() for each in machines)
    check_stack(entry, stack)
    read_nbytes = machines[0].reader.nbytes if machines[0].reader else None
    figures = machines[0].instructions, stack, machines[0].per_layer()
    told = tuple(machines[0].observer.told) if machines[0].observer else None
    cycles = memory.cycles_of(entry, machines[0].contents())
    return RunResult(first, *figures, "unicorn", trace=machines[0].trace(), read_nbytes=read_nbytes, cycles=cycles, told=told)


def _unicorn() -> ModuleType:
    try:
        import unicorn
    except ImportError as error:
        raise CompileError("Unicorn is not installed", hint="pip install unicorn, or use --on qemu") from error
    return unicorn


def _allows_unaligned(target: Target) -> bool:
    """Whether the emulated core itself lets unaligned accesses pass: every one but the Armv6-M ones."""
    return not str(target.run["unicorn"]["model"]).startswith("cortex-m0")


class _Machine:
    """One Unicorn engine, the memory of one run, and what was measured. at_end: rows lie at the end of their region."""

    def __init__(
        self,
        unicorn: ModuleType,
        target: Target,
        entry: Entry,
        layout: Layout,
        limit: int,
        calls: Sequence[Call],
        at_end: bool,
    ) -> None:
        from unicorn import arm_const

        self._unicorn, self._const, self._entry, self._layout, self._limit = unicorn, arm_const, entry, layout, limit
        self._calls, self._at_end = calls, at_end
        self._placed = {placed.region.name: placed for placed in layout.arguments}
        self._fault: tuple[int, int, int] | None = None
        self._recorder: Recorder | None = None
        self._tracing: Tracing = "none"
        self.reader: Reader | None = None
        self.observer: Observer | None = None
        self._fpu = "fpu" in target.has
        self._owners = owners_of(entry)
        self._watch = Watch(layout.image, self._owners, limit, "unaligned" in target.has)
        # Not UC_MODE_MCLASS: with it Unicorn 2.1 takes every model for a Cortex-M33.
        self._engine = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB)
        model = str(target.run["unicorn"]["model"])
        number = getattr(arm_const, f"UC_CPU_ARM_{model.upper().replace('-', '_')}", None)
        if number is None:
            raise CompileError(f"Unicorn has no CPU '{model}', which target '{target.name}' names")
        self._engine.ctl_set_cpu_model(number)
        for placed in layout.all:
            self._map(placed)
        self._engine.mem_map(_STOP, _GRID.page, unicorn.UC_PROT_READ | unicorn.UC_PROT_EXEC)
        state, library = self._watch.state, _library()
        state.stop = ctypes.cast(library.uc_emu_stop, ctypes.c_void_p).value
        state.read = ctypes.cast(library.uc_reg_read, ctypes.c_void_p).value
        state.write = ctypes.cast(library.uc_reg_write, ctypes.c_void_p).value
        state.pc_register, state.xpsr_register = arm_const.UC_ARM_REG_PC, arm_const.UC_ARM_REG_XPSR
        self._engine.hook_add(unicorn.UC_HOOK_MEM_INVALID, self._on_fault)
        self._add_hook(unicorn.UC_HOOK_BLOCK, compiled_hooks()["block"])

    def read_pages(self, bundle: Bundle) -> None:
        """Give the entry a function that reads weights: at once, or in the other one of two runs only by the next call."""
        engine = self._engine
        engine.mem_write(_READ_AT, _RETURN)
        reader = Reader(bundle, self._entry, self._placed, not self._at_end, engine.mem_write)

        def called(*_: Any) -> None:
            answer = reader.read(*(self._read(f"r{number}") for number in range(4)))
            for number, value in enumerate(
                (answer, 0x5EED0001, 0x5EED0002, 0x5EED0003)
            ):  # a function of the firmware keeps none of these
                self._write(f"r{number}", value)

        engine.hook_add(self._unicorn.UC_HOOK_CODE, called, begin=_READ_AT, end=_READ_AT)
        self.reader = reader

    def hear(self) -> None:
        """Give the entry a function that is told of its layers, and keeps no register that it need not."""
        self._engine.mem_write(_TELL_AT, _RETURN)
        observer = self.observer = Observer(self._entry)

        def called(*_: Any) -> None:
            layer, before = (ctypes.c_int32(self._read(name)).value for name in ("r1", "r2"))
            observer.tell(self._read("r0"), layer, before)
            for number in range(4):
                self._write(f"r{number}", 0x5EED0000 + number)

        self._engine.hook_add(self._unicorn.UC_HOOK_CODE, called, begin=_TELL_AT, end=_TELL_AT)

    def count_at(self, address: int) -> None:
        """A counter of instructions at this address, which goes past zero during the run; every block counts when it begins."""
        page = address & -_GRID.page

        def read(engine: Any, offset: int, nbytes: int, _: Any) -> int:
            if (page + offset, nbytes) != (address, 4):
                raise InternalError(f"the code reads {nbytes} bytes at {page + offset:#x}, beside the counter at {address:#x}")
            return (_NEARLY_ZERO + int(self._watch.counts.sum())) & 0xFFFFFFFF

        self._engine.mmio_map(page, _GRID.page, read, None, None, None)

    def record(self, tracing: Tracing) -> None:
        """Record the run."""
        if tracing == "none":
            return
        layout, kinds = self._layout, self._unicorn.UC_HOOK_MEM_READ
        constants = (layout.code, layout.rodata, *(one for one in layout.arguments if one.address < _GRID.code[1]))
        flash = min(one.start for one in constants), max(one.end for one in constants)
        self._recorder = Recorder(self._watch, layout.image, self._owners, flash)
        self._add_hook(self._unicorn.UC_HOOK_BLOCK, compiled_recorder()["record"], self._recorder.state)
        if tracing == "flash":
            self._add_hook(kinds, compiled_recorder()["read"], self._recorder.state)
        self._tracing = tracing

    def trace(self) -> Trace | None:
        return None if self._recorder is None else self._recorder.trace(self._tracing == "flash")

    def prepare(self) -> None:
        """Make the calls that come before a run: what they take is none of its figures."""
        self._make([each for each in self._calls if each.prepares])
        self._watch.counts[:] = 0
        self._engine.mem_write(self._layout.stack.start, self._layout.stack.image)

    def call(self) -> None:
        """Make the calls of a run; InternalError where one faults, fails or runs too long."""
        self._make([each for each in self._calls if not each.prepares])

    def _make(self, calls: Sequence[Call]) -> None:
        self._watch.state.left = self._limit
        for each in calls:
            problem = ""
            try:
                self._start(each)
            except self._unicorn.UcError as error:
                problem = self._explain(error)
            if problem:
                self._raise(problem, self._fault[1] if self._fault else None, self._read("pc"))
            if self._watch.state.left < 0:
                self._raise(f"still running after {self._limit} instructions", None, self._read("pc"))
            self._watch.check()
            saved = self._saved()
            check_return(each.symbol, self._read("r0"), saved, {name: self._read(name) for name in saved})

    def check_alignment(self) -> None:
        """Make the calls; InternalError where one of their first accesses is unaligned as the core does not allow."""
        kinds = self._unicorn.UC_HOOK_MEM_READ | self._unicorn.UC_HOOK_MEM_WRITE
        self._add_hook(kinds, compiled_hooks()["access"])
        state = self._watch.state
        state.left = min(_CHECKED, self._limit)
        with contextlib.suppress(self._unicorn.UcError):  # `call` reports what goes wrong without the hook
            for each in self._calls:
                if state.left >= 0 and not state.fault:
                    self._start(each)
        if state.fault:
            self._raise(f"an unaligned access of {state.fault_nbytes} bytes at {state.fault:#x}", state.fault, state.fault_pc)

    def _start(self, call: Call) -> None:
        """Run a function to its return, or until too many instructions have run."""
        function = self._layout.image.by_name.get(call.symbol)
        if function is None:
            raise InternalError(f"the object has no function {call.symbol}")
        words = [self._value(one, call) for one in call.arguments]
        self._set_registers(words[:4])
        self._engine.mem_write(self._layout.stack_pointer, b"".join(word.to_bytes(4, "little") for word in words[4:]))
        self._engine.emu_start(function.address | 1, _STOP)

    def _value(self, argument: str | int, call: Call) -> int:
        """What is passed for an argument; rows are put in their place."""
        if not isinstance(argument, str):
            return argument
        if (value := {**NO_FUNCTIONS, **_READS, **_TOLD}.get(argument)) is not None:
            return value
        if argument != ROWS:
            return self._placed[argument].address
        self._placed[ROWS], address = self._placed[ROWS].with_rows(call.rows, self._at_end)
        self._engine.mem_write(self._placed[ROWS].start, self._placed[ROWS].image)
        return address

    def check(self) -> None:
        """InternalError if the guard around a region is not as it must be."""
        for placed in (self._layout.code, self._layout.rodata, self._layout.stack, *self._placed.values()):
            placed.check(self._pages(placed))
        if self.reader:
            self.reader.check()
        if self.observer:
            self.observer.check()

    def contents(self) -> dict[str, bytes]:
        """What the regions behind the arguments hold now, by name."""
        return {placed.region.name: placed.content(self._pages(placed)) for placed in self._layout.arguments}

    @property
    def instructions(self) -> int:
        return int(self._watch.counts.sum())

    def per_layer(self) -> tuple[tuple[str, int], ...]:
        return tuple((name, int(count)) for name, count in zip(self._owners, self._watch.counts[1:], strict=True))

    def stack_peak(self) -> int:
        return self._layout.stack_peak(self._pages(self._layout.stack))

    def _pages(self, placed: Placed) -> bytes:
        return bytes(self._engine.mem_read(placed.start, placed.end - placed.start)) if placed.end > placed.start else b""

    def _map(self, placed: Placed) -> None:
        if placed.end == placed.start:
            return
        permissions = self._unicorn.UC_PROT_READ
        permissions |= self._unicorn.UC_PROT_WRITE if placed.region.writable else 0
        permissions |= self._unicorn.UC_PROT_EXEC if placed is self._layout.code else 0
        self._engine.mem_map(placed.start, placed.end - placed.start, permissions)
        self._engine.mem_write(placed.start, placed.image)

    def _add_hook(self, kind: int, function: int, user: ctypes.Structure | None = None) -> ctypes.c_size_t:
        """A compiled hook goes in through Unicorn's C interface: its Python one takes Python callables only."""
        added, everywhere = ctypes.c_size_t(), (ctypes.c_uint64(1), ctypes.c_uint64(0))
        pointer, given = ctypes.c_void_p(function), ctypes.byref(self._watch.state if user is None else user)
        if status := _library().uc_hook_add(self._engine._uch, ctypes.byref(added), kind, pointer, given, *everywhere):
            raise InternalError(f"Unicorn refused a hook: error {status}")
        return added

    def _on_fault(self, engine: Any, kind: int, address: int, nbytes: int, value: int, user: Any) -> bool:
        self._fault = (kind, address, nbytes)
        return False

    def _set_registers(self, arguments: Sequence[int]) -> None:
        for name, value in self._saved().items():
            self._write(name, value)
        for number, value in enumerate(arguments):
            self._write(f"r{number}", value)
        self._write("lr", _STOP | 1)

    def _saved(self) -> dict[str, int]:
        """What the registers that a function must preserve hold before the call."""
        floats = {f"d{number}": 0x3FF0_0000_0000_0000 + number for number in range(8, 16)} if self._fpu else {}
        return {**SAVED, **floats, "sp": self._layout.stack_pointer}

    def _explain(self, error: Any) -> str:
        """What the engine's error means. `_on_fault` has seen accesses to unmapped or protected memory."""
        if self._fault is None:
            if error.errno == self._unicorn.UC_ERR_INSN_INVALID:
                return "an instruction that the CPU does not have"
            if error.errno == self._unicorn.UC_ERR_EXCEPTION:
                return "an exception: an unaligned access, or an instruction that the CPU does not have"
            return f"the emulator stopped: {error}"
        kind, address, nbytes = self._fault
        names = {"READ": "reads", "WRITE": "writes", "FETCH": "jumps to"}
        verb = next((verb for name, verb in names.items() if kind in self._kinds(name)), "touches")
        return f"{verb} {address:#x}" if verb == "jumps to" else f"{verb} {nbytes} byte{'s' if nbytes > 1 else ''} at {address:#x}"

    def _kinds(self, name: str) -> tuple[int, int]:
        return getattr(self._unicorn, f"UC_MEM_{name}_UNMAPPED"), getattr(self._unicorn, f"UC_MEM_{name}_PROT")

    def _raise(self, problem: str, address: int | None, pc: int) -> None:
        """InternalError that says where: layer, program counter, and the region nearest to `address`."""
        near = f", {self._layout.nearest(address)}" if address is not None else ""
        current = self._watch.state.current
        layer: str = self._owners[current - 1] if current else self._entry.symbol
        raise InternalError(f"{describe_layer(self._entry, layer)}: {problem}{near}; {self._layout.describe_pc(pc, layer)}")

    def _read(self, name: str) -> int:
        return self._engine.reg_read(getattr(self._const, f"UC_ARM_REG_{name.upper()}"))

    def _write(self, name: str, value: int) -> None:
        self._engine.reg_write(getattr(self._const, f"UC_ARM_REG_{name.upper()}"), value)


def _library() -> ctypes.CDLL:
    """Unicorn's shared library, as its Python binding has loaded it."""
    from unicorn.unicorn_py3.unicorn import uclib

    return ctypes.CDLL(uclib._name)
