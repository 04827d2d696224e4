"""Runs one implementation's function on an emulated core, with guard bytes around every buffer.

Enters: a Program, an Implementation, a target, input arrays. Leaves: `Outcome`: the output and what it cost.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from aot.llvm import elf
from aot.llvm.emission import KernelFunction, parameter_names
from aot.llvm.llvm import Compiler
from aot.llvm.scattered import with_tables
from aot.lower.implementation import Implementation
from aot.lower.program import Program
from aot.lower.rows import row_count
from aot.run.hooks import decode
from aot.run.image import ObjectFile
from aot.target import Target

_CODE, _RODATA, _DATA, _STACK = 0x10000, 0x80000, 0x20000000, 0x30000000
_DATA_NBYTES, _STACK_NBYTES, _GUARD, _PAGE = 0x400000, 0x10000, 64, 0x1000
_STOP = 0x8000
_TOP = _STACK + _STACK_NBYTES - 64
_FILL = b"\xa5"
_MOST_RECENT = 16
_IT_BITS = 0x0600FC00  # of XPSR


@dataclass(frozen=True)
class Outcome:
    """The output buffer's array; instructions executed; bytes of code; bytes of stack touched below the arguments."""

    out: np.ndarray
    instructions: int
    code_nbytes: int
    stack_nbytes: int


class Core:
    """A core with one kernel's code, and `data_nbytes` of memory: pages. instructions: executed so far."""

    def __init__(self, code: bytes, target: Target, data_nbytes: int = _DATA_NBYTES) -> None:
        import unicorn
        from unicorn import arm_const as arm

        self.image = ObjectFile(code).link(_CODE, _RODATA)
        self.entry = next(one for one in self.image.functions if one.name == "kernel").address
        self.machine = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)
        self.machine.ctl_set_cpu_model(getattr(arm, "UC_CPU_ARM_" + target.name.upper().replace("-", "_")))
        for address, nbytes in ((0, 0x100000), (_DATA, data_nbytes), (_STACK, _STACK_NBYTES)):
            self.machine.mem_map(address, nbytes)
        self.machine.mem_write(_CODE, self.image.code)
        self.machine.mem_write(_RODATA, self.image.rodata)
        self.machine.mem_write(_STACK, bytes([0xC3]) * _STACK_NBYTES)
        self.instructions = 0
        self._lengths: dict[tuple[int, int], int] = {}
        self.machine.hook_add(unicorn.UC_HOOK_BLOCK, self._block)

    def call(self, arguments: Sequence[int]) -> None:
        """Call the kernel."""
        from unicorn import arm_const as arm

        registers = (arm.UC_ARM_REG_R0, arm.UC_ARM_REG_R1, arm.UC_ARM_REG_R2, arm.UC_ARM_REG_R3)
        for register, value in zip(registers, arguments):
            self.machine.reg_write(register, value & 0xFFFFFFFF)
        self.machine.mem_write(_TOP, b"".join((value & 0xFFFFFFFF).to_bytes(4, "little") for value in arguments[4:]))
        self.machine.reg_write(arm.UC_ARM_REG_SP, _TOP)
        self.machine.reg_write(arm.UC_ARM_REG_LR, _STOP | 1)
        self.machine.emu_start(self.entry | 1, _STOP, count=500_000_000)
        assert self.machine.reg_read(arm.UC_ARM_REG_PC) & ~1 == _STOP

    def _block(self, _uc, address: int, nbytes: int, _user) -> None:
        if _CODE <= address < _CODE + self.code_nbytes:
            self.instructions += self._length(address, nbytes)

    def _length(self, address: int, nbytes: int) -> int:
        """Instructions of a block."""
        if (address, nbytes) not in self._lengths:
            code, at, found = self.image.code, address - _CODE, 0
            end = at + nbytes
            while at < end:
                at += 4 if (code[at + 1] >> 3) in (0b11101, 0b11110, 0b11111) else 2
                found += 1
            self._lengths[address, nbytes] = found
        return self._lengths[address, nbytes]

    @property
    def code_nbytes(self) -> int:
        return len(self.image.code)

    @property
    def stack_nbytes(self) -> int:
        """Bytes of stack touched below the arguments."""
        stack = bytes(self.machine.mem_read(_STACK, _TOP - _STACK))
        return len(stack.lstrip(b"\xc3"))

    def watch_alignment(self) -> list[str]:
        """The accesses of several words at addresses that are no multiples of 4, as the machine comes to them."""
        import unicorn
        from unicorn import arm_const as arm

        refused: list[str] = []
        _, several = decode(self.image)

        def access(_uc, _kind, address: int, nbytes: int, _value, _user) -> None:
            flags = self.machine.reg_read(arm.UC_ARM_REG_XPSR)
            if flags & _IT_BITS:  # Unicorn 2.1 would skip instructions behind the IT block
                self.machine.reg_write(arm.UC_ARM_REG_XPSR, flags & ~_IT_BITS)
            if address % 4 and several[(self.machine.reg_read(arm.UC_ARM_REG_PC) - _CODE) // 2]:
                refused.append(f"{nbytes} bytes at {address:#x}")

        self.machine.hook_add(unicorn.UC_HOOK_MEM_READ | unicorn.UC_HOOK_MEM_WRITE, access)
        return refused


_recent: OrderedDict[tuple[object, ...], tuple[tuple[object, ...], bytes]] = OrderedDict()
"""Code that was assembled last, and what for: the same objects, so that none has another's identity."""


def assemble(program: Program, implementation: Implementation, target: Target, align: int = 4, **known: Any) -> bytes:
    """Object code of the implementation's function alone, `kernel`; assembled once where the same is asked for again and again. known:
    more of what `KernelFunction` is told."""
    objects = program, implementation, target
    key = (*map(id, objects), align, repr(known))
    if key not in _recent:
        _recent[key] = objects, _assembled(program, implementation, target, align, known)
    _recent.move_to_end(key)
    while len(_recent) > _MOST_RECENT:
        _recent.popitem(last=False)
    return _recent[key][1]


def _assembled(program: Program, implementation: Implementation, target: Target, align: int, known: Mapping[str, Any]) -> bytes:
    module = ir.Module("test")
    alignment = {name: _align(program, name, align) for name in (*implementation.reads, *implementation.writes)}
    function = KernelFunction(module, "kernel", implementation, program, target, **{"alignment": alignment, **known})
    implementation.emit(function)
    function.finish()
    compiler = Compiler(target)
    bitcode = compiler.parse(str(module))
    if implementation.style == "generic":
        bitcode = compiler.optimise(bitcode)
    return elf.finish(compiler.emit(bitcode, ordered=implementation.style == "ordered").object, bare_metal=True)


def _align(program: Program, name: str, align: int) -> int:
    return max(align, min(4, program[name].dtype.nbytes))


def run(
    program: Program,
    implementation: Implementation,
    target: Target,
    inputs: Mapping[str, np.ndarray],
    rows: list[tuple[int, int]] | None = None,
    background: int = 0,
    in_place: str = "",
    align: int = 4,
    scattered: Sequence[str] = (),
    seed: int = 0,
) -> Outcome:
    """Execute it for these row ranges (default: all at once). AssertionError if a guard byte changed, or an input.

    scattered: buffers whose rows lie anywhere, each between guards, in an order that follows from the seed.

    in_place: the read whose bytes are also the output's. align: of activations in bytes; below 4 (slow), AssertionError also for an
    unaligned access that the core refuses.
    """
    places = _Places(program, implementation, inputs, background, in_place, align, scattered, seed)
    if scattered:
        implementation = with_tables(implementation, {name: places.offsets(name) for name in scattered})
    places.constants(implementation)
    memory, addresses = places.pages(), places.addresses
    core = Core(assemble(program, implementation, target, align), target, len(memory))
    core.machine.mem_write(_DATA, bytes(memory))
    refused = core.watch_alignment() if align < 4 else []
    for y0, y1 in rows or [(0, implementation.rows.count)]:
        names = (*parameter_names(implementation), *(["scratch."] if implementation.scratch_nbytes else []))
        arguments = [_DATA + (0 if name in scattered else addresses[name][0][0]) for name in names]
        core.call([*arguments, y0, y1])
    assert not refused, f"unaligned: {refused[0]}"
    after = bytearray(core.machine.mem_read(_DATA, len(memory)))
    out_bytes = b"".join(bytes(after[at : at + nbytes]) for at, nbytes in addresses[implementation.writes[0]])
    out = np.frombuffer(out_bytes, program[implementation.writes[0]].dtype.np).reshape(program[implementation.writes[0]].shape)
    for name in (implementation.writes[0], "scratch."):
        for at, nbytes in addresses.get(name, ()):
            memory[at : at + nbytes] = after[at : at + nbytes]
    changed = np.flatnonzero(np.frombuffer(bytes(memory), np.uint8) != np.frombuffer(bytes(after), np.uint8))
    assert not changed.size, f"bytes outside outputs and scratch changed: {_near(addresses, int(changed[0]))}"
    return Outcome(out, core.instructions, core.code_nbytes, core.stack_nbytes)


class _Places:
    """Where everything lies: each piece (a buffer; a row of a scattered one) between guard bytes."""

    def __init__(
        self,
        program: Program,
        implementation: Implementation,
        inputs: Mapping[str, np.ndarray],
        background: int,
        in_place: str,
        align: int,
        scattered: Sequence[str],
        seed: int,
    ) -> None:
        self.memory = bytearray()
        self.addresses: dict[str, list[tuple[int, int]]] = {}
        pieces = []
        for name in dict.fromkeys((*implementation.reads, *implementation.writes)):
            if name in inputs:
                content = np.ascontiguousarray(inputs[name])
            elif not in_place:
                content = np.full(program[name].shape, background, program[name].dtype.np)
            else:
                continue
            rows = content.reshape(row_count(program[name]) if name in scattered else 1, -1)
            self.addresses[name] = [(0, 0)] * len(rows)
            pieces += [(name, number, row.tobytes()) for number, row in enumerate(rows)]
        for at in np.random.default_rng(seed).permutation(len(pieces)) if scattered else range(len(pieces)):
            name, number, content = pieces[at]
            self.addresses[name][number] = self._place(content, _align(program, name, align))
        if in_place:
            self.addresses[implementation.writes[0]] = self.addresses[in_place]
        if implementation.scratch_nbytes:
            self.addresses["scratch."] = [self._place(bytes([0x5A]) * implementation.scratch_nbytes, implementation.scratch_align)]

    def constants(self, implementation: Implementation) -> None:
        """Place the constants."""
        for buffer in implementation.constants:
            self.addresses[buffer.name] = [self._place(np.ascontiguousarray(buffer.data).tobytes(), max(4, buffer.align))]

    def pages(self) -> bytearray:
        """The memory when all is placed. What a kernel touches further behind than the last page is not there: the machine says so."""
        return self.memory + _FILL * (-(len(self.memory) + _GUARD) % _PAGE + _GUARD)

    def offsets(self, name: str) -> list[int]:
        return [at for at, _ in self.addresses[name]]

    def _place(self, content: bytes, align: int) -> tuple[int, int]:
        at = -(-(len(self.memory) + _GUARD) // (2 * align)) * 2 * align + align  # no better aligned than promised
        self.memory += _FILL * (at - len(self.memory)) + content
        return at, len(content)


def _near(addresses: dict[str, list[tuple[int, int]]], position: int) -> str:
    pieces = [(name, place) for name, places in addresses.items() for place in places]
    name, (at, nbytes) = min(pieces, key=lambda piece: min(abs(position - piece[1][0]), abs(position - sum(piece[1]))))
    return f"at {position - at} of {name} ({nbytes} bytes)"
