"""Runs a bundle in Unicorn: a Cortex-M core, and no memory but what the entry may touch.

Enters: a bundle, an entry, inputs. Leaves: `RunResult`, or InternalError that names address, region and layer.
Invariant: each region is alone on its pages between unmapped ones. It ends where a page ends in the first run, and starts where one
starts in the second, so that an access outside in either direction faults.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from aot.bundle import Bundle, Entry
from aot.errors import CompileError, InternalError
from aot.run import memory
from aot.run.hooks import Hooks, State, Watch
from aot.run.image import Image, ObjectFile
from aot.run.memory import Placed, Region
from aot.run.result import RunResult

_PAGE = 4096
_GAP = 64 * 1024
_STOP, _CODE, _RODATA, _RAM, _END = 0x1000, 0x10_0000, 0x800_0000, 0x2000_0000, 0x4000_0000
_STACK_MARGIN = 16 * 1024
_SAVED = 0x5AFE0000  # + register number: what a callee-saved register holds before the call
_SAVED_REGISTERS = ("r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11")


def run(bundle: Bundle, entry: Entry, inputs: Sequence[np.ndarray], limit: int) -> RunResult:
    """Run the entry twice, with regions at the ends and at the starts of pages, and with other garbage in outputs and workspace."""
    unicorn = _unicorn()
    hooks = Hooks()
    passes = [_run_once(unicorn, hooks, bundle, entry, inputs, limit, at_end) for at_end in (True, False)]
    memory.same_outputs(entry, passes[0].outputs, passes[1].outputs)
    stack = max(one.stack_nbytes or 0 for one in passes)
    if entry.stack_nbytes and stack > entry.stack_nbytes:
        raise InternalError(f"{entry.symbol} used {stack} bytes of stack, more than the {entry.stack_nbytes} that the bundle states")
    return RunResult(passes[0].outputs, passes[0].instructions, stack, passes[0].per_layer, "unicorn")


def _unicorn() -> ModuleType:
    try:
        import unicorn
    except ImportError as error:
        raise CompileError("the emulator Unicorn is not installed", hint="pip install aot-bundle[emulate], or use --on qemu") from error
    return unicorn


def _run_once(
    unicorn: ModuleType, hooks: Hooks, bundle: Bundle, entry: Entry, inputs: Sequence[np.ndarray], limit: int, at_end: bool
) -> RunResult:
    seed, guard = (1, 0xA5) if at_end else (2, 0x3C)
    layout = _layout(bundle, entry, memory.arguments(bundle, entry, inputs, seed), at_end, guard)
    machine = _Machine(unicorn, bundle, entry, layout)
    machine.call(hooks, limit, check_alignment=not at_end)
    machine.check()
    contents = [placed.content(machine.pages(placed)) for placed in layout.arguments]
    return RunResult(
        memory.outputs(bundle, entry, contents), machine.instructions, machine.stack_peak(), machine.per_layer(), "unicorn"
    )


@dataclass(frozen=True)
class _Layout:
    """Everything that is mapped. `stack_pointer` at the call: stack arguments lie from there to the end of the stack's region."""

    image: Image
    code: Placed
    rodata: Placed
    stack: Placed
    stack_pointer: int
    arguments: tuple[Placed, ...]

    @property
    def all(self) -> tuple[Placed, ...]:
        return (self.code, self.rodata, self.stack, *self.arguments)


def _layout(bundle: Bundle, entry: Entry, arguments: tuple[Region, ...], at_end: bool, guard: int) -> _Layout:
    """Addresses for code, read-only data, stack and the regions behind the arguments."""
    unlinked = ObjectFile(bundle.object)

    def alone(name: str, base: int, nbytes: int) -> Placed:
        region = Region(name, unlinked.align, False, bytes(nbytes))
        return memory.place([region], base, page=_PAGE, gap=_GAP, at_end=at_end, guard=guard)[0]

    code, rodata = alone("the code", _CODE, unlinked.code_nbytes), alone("the object's read-only data", _RODATA, unlinked.rodata_nbytes)
    image = unlinked.link(code.address, rodata.address)
    code = Placed(Region(code.region.name, code.region.align, False, image.code), code.address, code.start, code.end, guard)
    rodata = Placed(Region(rodata.region.name, rodata.region.align, False, image.rodata), rodata.address, rodata.start, rodata.end, guard)
    placed = memory.place(arguments, _RAM, page=_PAGE, gap=_GAP, at_end=at_end, guard=guard)
    pushed = b"".join(one.address.to_bytes(4, "little") for one in placed[4:])
    pushed += bytes(-len(pushed) % 8)
    free = -(-(entry.stack_nbytes + _STACK_MARGIN) // 8) * 8
    stack_region = Region("the stack", 8, True, bytes([guard]) * free + pushed)
    stack = memory.place([stack_region], placed[-1].end, page=_PAGE, gap=_GAP, at_end=at_end, guard=guard)[0]
    if stack.end + _GAP > _END:
        raise CompileError("the emulator has no room: inputs, outputs, workspace and stack need more than 500 MB")
    return _Layout(image, code, rodata, stack, stack.address + free, placed)


class _Machine:
    """One Unicorn engine, the memory of one run, and what was measured."""

    def __init__(self, unicorn: ModuleType, bundle: Bundle, entry: Entry, layout: _Layout) -> None:
        self._unicorn, self._entry, self._layout = unicorn, entry, layout
        from unicorn import arm_const

        self._const = arm_const
        self._fault: tuple[int, int, int] | None = None
        self._engine = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB)
        model = str(bundle.target.run["unicorn"]["model"])
        self._engine.ctl_set_cpu_model(getattr(arm_const, f"UC_CPU_ARM_{model.upper().replace('-', '_')}"))
        self._unaligned = "unaligned" in bundle.target.has
        self._fpu = "fpu" in bundle.target.has
        for placed in layout.all:
            self._map(placed)
        self._engine.mem_map(_STOP, _PAGE, unicorn.UC_PROT_READ | unicorn.UC_PROT_EXEC)
        self._owners = tuple(dict.fromkeys((*(layer.symbol for layer in entry.layers), entry.symbol)))
        self._watch: Watch | None = None

    def call(self, hooks: Hooks, limit: int, check_alignment: bool) -> None:
        """Call the entry; InternalError where it faults, runs too long, or breaks the procedure call standard."""
        watch = self._watch = Watch(self._layout.image, self._owners, limit, self._unaligned)
        self._add_hooks(hooks, watch, check_alignment)
        self._set_registers()
        entry = self._layout.image.by_name.get(self._entry.symbol)
        if entry is None:
            raise InternalError(f"the object has no function {self._entry.symbol}")
        problem = ""
        try:
            self._engine.emu_start(entry.address | 1, _STOP)
        except self._unicorn.UcError as error:
            problem = self._explain(error)
        if watch.state.fault:
            problem = f"an unaligned access of {watch.state.fault_nbytes} bytes at {watch.state.fault:#x}, which the CPU refuses"
            self._raise(problem, watch.state.fault, watch.state.fault_pc)
        if problem:
            self._raise(problem, self._fault[1] if self._fault else None, self._read("pc"))
        if watch.state.left < 0:
            self._raise(f"still running after {limit} instructions", None, self._read("pc"))
        watch.check()

    def check(self) -> None:
        """InternalError if registers, stack pointer, return code or the guard around a region are not as they must be."""
        for name, value in self._saved().items():
            if (now := self._read(name)) != value:
                raise InternalError(f"{self._entry.symbol} did not preserve {name}: {value:#x} became {now:#x}")
        if (now := self._read("sp")) != self._layout.stack_pointer:
            raise InternalError(f"{self._entry.symbol} returned with a stack pointer {now - self._layout.stack_pointer} bytes off")
        if code := ctypes.c_int32(self._read("r0")).value:
            raise InternalError(f"{self._entry.symbol} returned {code}")
        for placed in self._layout.all:
            placed.check(self.pages(placed))

    def pages(self, placed: Placed) -> bytes:
        """Contents of a region's pages now."""
        return bytes(self._engine.mem_read(placed.start, placed.end - placed.start)) if placed.end > placed.start else b""

    @property
    def instructions(self) -> int:
        return int(self._counts.sum())

    def per_layer(self) -> tuple[tuple[str, int], ...]:
        return tuple((name, int(count)) for name, count in zip(self._owners, self._counts[1:], strict=True))

    def stack_peak(self) -> int:
        """Bytes from the caller's stack pointer down to the lowest byte that is not the paint any more."""
        stack = self._layout.stack
        free = np.frombuffer(self.pages(stack), np.uint8)[stack.address - stack.start : self._layout.stack_pointer - stack.start]
        touched = np.flatnonzero(free != stack.guard)
        return len(free) - int(touched[0]) if touched.size else 0

    @property
    def _counts(self) -> np.ndarray:
        if self._watch is None:
            raise InternalError("nothing has been run")
        return self._watch.counts

    def _map(self, placed: Placed) -> None:
        if placed.end == placed.start:
            return
        permissions = self._unicorn.UC_PROT_READ | (self._unicorn.UC_PROT_WRITE if placed.region.writable else 0)
        if placed is self._layout.code:
            permissions |= self._unicorn.UC_PROT_EXEC
        self._engine.mem_map(placed.start, placed.end - placed.start, permissions)
        self._engine.mem_write(placed.start, placed.image)

    def _add_hooks(self, hooks: Hooks, watch: Watch, check_alignment: bool) -> None:
        """The compiled hooks go in through Unicorn's C interface: its Python one takes Python callables only."""
        library, handle = _library(), self._engine._uch
        watch.state.stop = ctypes.cast(library.uc_emu_stop, ctypes.c_void_p).value
        watch.state.read = ctypes.cast(library.uc_reg_read, ctypes.c_void_p).value
        watch.state.pc_register = self._const.UC_ARM_REG_PC
        wanted = [(self._unicorn.UC_HOOK_BLOCK, hooks.block)]
        if check_alignment:
            wanted.append((self._unicorn.UC_HOOK_MEM_READ | self._unicorn.UC_HOOK_MEM_WRITE, hooks.access))
        for kind, function in wanted:
            added = ctypes.c_size_t()
            every = (ctypes.c_uint64(1), ctypes.c_uint64(0))
            status = library.uc_hook_add(
                handle, ctypes.byref(added), kind, ctypes.c_void_p(function), ctypes.byref(watch.state), *every
            )
            if status:
                raise InternalError(f"Unicorn refused a hook: error {status}")
        self._engine.hook_add(self._unicorn.UC_HOOK_MEM_INVALID, self._on_fault)

    def _on_fault(self, engine: Any, kind: int, address: int, nbytes: int, value: int, user: Any) -> bool:
        self._fault = (kind, address, nbytes)
        return False

    def _set_registers(self) -> None:
        for name, value in self._saved().items():
            self._write(name, value)
        for number, placed in enumerate(self._layout.arguments[:4]):
            self._write(f"r{number}", placed.address)
        self._write("sp", self._layout.stack_pointer)
        self._write("lr", _STOP | 1)

    def _saved(self) -> dict[str, int]:
        """What callee-saved registers hold around the call (AAPCS32 section 6.1)."""
        saved = {name: _SAVED + int(name[1:]) for name in _SAVED_REGISTERS}
        if self._fpu:
            saved.update({f"d{number}": 0x3FF0_0000_0000_0000 + number for number in range(8, 16)})
        return saved

    def _explain(self, error: Any) -> str:
        """What the engine's error means. `_on_fault` has seen accesses to unmapped or protected memory."""
        if self._fault is None:
            invalid = error.errno in (self._unicorn.UC_ERR_INSN_INVALID, self._unicorn.UC_ERR_EXCEPTION)
            return "an instruction that the CPU does not have, or an exception" if invalid else f"the emulator stopped: {error}"
        kind, address, nbytes = self._fault
        names = {"READ": "reads", "WRITE": "writes", "FETCH": "jumps to"}
        verb = next((verb for name, verb in names.items() if kind in self._kinds(name)), "touches")
        return f"{verb} {address:#x}" if verb == "jumps to" else f"{verb} {nbytes} bytes at {address:#x}"

    def _kinds(self, name: str) -> tuple[int, int]:
        return getattr(self._unicorn, f"UC_MEM_{name}_UNMAPPED"), getattr(self._unicorn, f"UC_MEM_{name}_PROT")

    def _raise(self, problem: str, address: int | None, pc: int) -> None:
        """InternalError that says where: layer, program counter, and the region nearest to `address`."""
        near = f", {self._nearest(address)}" if address is not None else ""
        current = self._watch.state.current if self._watch else 0
        owner = self._owners[current - 1] if current else self._entry.symbol
        kernel = next((f" ({layer.kernel})" for layer in self._entry.layers if layer.symbol == owner), "")
        function = self._layout.image.function_at(pc)
        within = f" in {function}" if function not in ("", owner) else ""
        raise InternalError(f"{owner}{kernel}: {problem}{near}; program counter {pc - self._layout.code.address:#x} of the code{within}")

    def _nearest(self, address: int) -> str:
        """The region nearest to `address`, and where it lies relative to it."""

        def away(placed: Placed) -> int:
            return max(placed.address - address, address - (placed.address + placed.region.nbytes - 1), 0)

        placed = min(self._layout.all, key=away)
        nbytes = placed.region.nbytes
        readonly = "" if placed.region.writable else "read-only "
        return f"{memory.distance(address - placed.address, nbytes)} of {placed.region.name} ({readonly}{nbytes} bytes)"

    def _read(self, name: str) -> int:
        return self._engine.reg_read(getattr(self._const, f"UC_ARM_REG_{name.upper()}"))

    def _write(self, name: str, value: int) -> None:
        self._engine.reg_write(getattr(self._const, f"UC_ARM_REG_{name.upper()}"), value)


def _library() -> ctypes.CDLL:
    """Unicorn's shared library, as its Python binding has loaded it."""
    from unicorn.unicorn_py3.unicorn import uclib

    return ctypes.CDLL(uclib._name)
