"""Calls the entries of one object time after time in the same memory, as firmware does: on this machine, or on an emulated Cortex-M.

Enters: a bundle. Leaves: outputs; AssertionError where a byte around a block of memory changed. `aot/run` gives each run a fresh memory;
here one workspace and each model's state last.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from aot.bundle import Bundle, Entry
from aot.run import host
from aot.run.emulate import _unicorn
from aot.run.image import linked

GUARD = 0xA5
_AROUND = 64


class HostMemory:
    """This process."""

    def __init__(self, bundle: Bundle) -> None:
        self.engine = host._load(bundle.object, {})
        self.blocks: list[np.ndarray] = []

    def block(self, nbytes: int, align: int) -> int:
        raw = np.full(nbytes + 2 * _AROUND + align, GUARD, np.uint8)
        self.blocks.append(raw)
        return -(-(raw.ctypes.data + _AROUND) // align) * align

    def read(self, address: int, nbytes: int) -> bytes:
        return ctypes.string_at(address, nbytes)

    def write(self, address: int, content: bytes) -> None:
        ctypes.memmove(address, content, len(content))

    def call(self, symbol: str, arguments: Sequence[int]) -> int:
        function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * len(arguments))
        return function(self.engine.get_function_address(symbol))(*arguments)


class BoardMemory:
    """A Cortex-M in Unicorn: code and constants that can't be written, one RAM, the stack alone."""

    CODE, RODATA, RAM, STACK, STOP = 0x10_0000, 0x100_0000, 0x2000_0000, 0x3000_0000, 0x1000
    RAM_NBYTES, STACK_NBYTES = 1 << 20, 1 << 14

    def __init__(self, bundle: Bundle) -> None:
        unicorn = _unicorn()
        from unicorn import arm_const

        self.const = arm_const
        self.image = linked(bundle.object, self.CODE, self.RODATA)
        self.engine = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB)
        model = str(bundle.target.run["unicorn"]["model"]).upper().replace("-", "_")
        self.engine.ctl_set_cpu_model(getattr(arm_const, f"UC_CPU_ARM_{model}"))
        for address, content, rights in (
            (self.CODE, self.image.code, unicorn.UC_PROT_READ | unicorn.UC_PROT_EXEC),
            (self.RODATA, self.image.rodata, unicorn.UC_PROT_READ),
            (self.RAM, bytes([GUARD]) * self.RAM_NBYTES, unicorn.UC_PROT_READ | unicorn.UC_PROT_WRITE),
            (self.STACK, bytes(self.STACK_NBYTES), unicorn.UC_PROT_READ | unicorn.UC_PROT_WRITE),
            (self.STOP, bytes(4), unicorn.UC_PROT_READ | unicorn.UC_PROT_EXEC),
        ):
            self.engine.mem_map(address, -(-len(content) // 4096) * 4096 or 4096, rights)
            self.engine.mem_write(address, content)
        self.free = self.RAM

    def block(self, nbytes: int, align: int) -> int:
        address = -(-(self.free + _AROUND) // align) * align
        self.free = address + nbytes + _AROUND
        assert self.free <= self.RAM + self.RAM_NBYTES
        return address

    def read(self, address: int, nbytes: int) -> bytes:
        return bytes(self.engine.mem_read(address, nbytes))

    def write(self, address: int, content: bytes) -> None:
        self.engine.mem_write(address, content)

    def call(self, symbol: str, arguments: Sequence[int]) -> int:
        top = self.STACK + self.STACK_NBYTES - 64
        self.write(top, b"".join(each.to_bytes(4, "little") for each in arguments[4:]))
        for number, each in enumerate(arguments[:4]):
            self.engine.reg_write(getattr(self.const, f"UC_ARM_REG_R{number}"), each)
        self.engine.reg_write(self.const.UC_ARM_REG_SP, top)
        self.engine.reg_write(self.const.UC_ARM_REG_LR, self.STOP | 1)
        self.engine.emu_start(self.image.by_name[symbol].address | 1, self.STOP)
        return self.engine.reg_read(self.const.UC_ARM_REG_R0)


class Caller:
    """The firmware: one workspace (or one of each region) for all models, and a state, inputs and outputs for each."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.memory = HostMemory(bundle) if bundle.target.is_host else BoardMemory(bundle)
        self.sizes: dict[int, int] = {}
        self.spaces = {each.name: self._block(each.nbytes, each.align) for each in bundle.shared}
        self.weights = [] if bundle.weights is None else [self._block(len(bundle.weights), bundle.weights_align)]
        if bundle.weights is not None:
            self.memory.write(self.weights[0], bundle.weights)
        self.states = {each.name: self._block(each.init.state_nbytes, each.init.state_align) for each in bundle.parts if each.init}
        self.ports = {
            entry.symbol: [self._block(port.nbytes, port.align) for port in (*entry.inputs, *entry.outputs)]
            for entry in bundle.entries
            if not bundle.io_in_workspace
        }

    def init(self, model: Bundle) -> None:
        assert model.init
        assert self.memory.call(model.init.symbol, [self.states[model.name], *self.weights]) == 0

    def poison(self, rng: np.random.Generator) -> None:
        """Garbage in the whole workspace, but for what NAME_load has left there."""
        loaded = self.bundle.load.loaded if self.bundle.load else None
        for each in self.bundle.shared:
            free = loaded.offset if loaded and loaded.region == each.name else each.nbytes
            self.memory.write(self.spaces[each.name], rng.bytes(free))

    def load(self) -> None:
        assert self.bundle.load
        assert self.memory.call(self.bundle.load.symbol, [self.spaces[self.bundle.load.loaded.region], *self.weights]) == 0

    def run(self, entry: Entry, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        if self.bundle.io_in_workspace:
            places = [self.spaces[port.pointer] + (port.workspace_offset or 0) for port in (*entry.inputs, *entry.outputs)]
            given = []
        else:
            places = given = self.ports[entry.symbol]
        for place, array in zip(places, inputs):
            self.memory.write(place, array.tobytes())
        state = [self.states[self.bundle.model_of(entry).name]] if entry.state_nbytes else []
        assert self.memory.call(entry.symbol, [*given, *self.spaces.values(), *state, *self.weights]) == 0
        outputs = zip(entry.outputs, places[len(entry.inputs) :], strict=True)
        return [np.frombuffer(self.memory.read(at, port.nbytes), port.dtype.np).reshape(port.shape) for port, at in outputs]

    def check(self) -> None:
        """No byte around a block has changed."""
        for address, nbytes in self.sizes.items():
            around = self.memory.read(address - _AROUND, _AROUND) + self.memory.read(address + nbytes, _AROUND)
            assert set(around) == {GUARD}

    def _block(self, nbytes: int, align: int) -> int:
        address = self.memory.block(nbytes, align)
        self.sizes[address] = nbytes
        return address
