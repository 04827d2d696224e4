"""An emulated Cortex-M that tests can stop, look into and start again: what an RTOS, or an attacker, may do around a call.

Enters: a target, an object's image, memory. Leaves: a core whose registers can be read and written as a whole.
Invariant: nothing is mapped but the code, its constants and what the test maps.
"""

from __future__ import annotations

from collections.abc import Sequence

import unicorn
from unicorn import arm_const

from aot.run.image import Image
from aot.run.memory import Placed
from aot.target import Target

STOP, PAGE = 0x1000, 4096
Registers = tuple[int, ...]


class Core:
    """One engine. A call begins with `call`, and goes on with `go` until `done`."""

    def __init__(self, target: Target) -> None:
        # Not UC_MODE_MCLASS: with it Unicorn 2.1 takes every model for a Cortex-M33.
        self.engine = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB)
        model = str(target.run["unicorn"]["model"]).upper().replace("-", "_")
        self.engine.ctl_set_cpu_model(getattr(arm_const, f"UC_CPU_ARM_{model}"))
        self.engine.mem_map(STOP, PAGE, unicorn.UC_PROT_READ | unicorn.UC_PROT_EXEC)
        names = [*(f"r{number}" for number in range(13)), "sp", "lr", "pc", "cpsr"]
        if "fpu" in target.has:
            names += [*(f"d{number}" for number in range(16)), "fpscr"]
        self.numbers = {name: getattr(arm_const, f"UC_ARM_REG_{name.upper()}") for name in names}
        self.fresh = self["cpsr"]

    def map(self, placed: Placed, executable: bool = False) -> None:
        if placed.end == placed.start:
            return
        permissions = unicorn.UC_PROT_READ | (unicorn.UC_PROT_WRITE if placed.region.writable else 0)
        self.engine.mem_map(placed.start, placed.end - placed.start, permissions | (unicorn.UC_PROT_EXEC if executable else 0))
        self.engine.mem_write(placed.start, placed.image)

    def pages(self, placed: Placed) -> bytes:
        return bytes(self.engine.mem_read(placed.start, placed.end - placed.start)) if placed.end > placed.start else b""

    def __getitem__(self, name: str) -> int:
        return self.engine.reg_read(self.numbers[name])

    def __setitem__(self, name: str, value: int) -> None:
        self.engine.reg_write(self.numbers[name], value)

    def begin(self, image: Image, symbol: str, arguments: Sequence[int], stack: int) -> None:
        """Put the core at a function's first instruction. stack: the stack pointer; room for more than four arguments is from there on."""
        for number, value in enumerate(arguments[:4]):
            self[f"r{number}"] = value
        self.engine.mem_write(stack, b"".join(value.to_bytes(4, "little") for value in arguments[4:]))
        self["cpsr"] = self.fresh  # as a new thread's: without what an IT block leaves in the midst of it
        self["sp"], self["lr"], self["pc"] = stack, STOP | 1, image.by_name[symbol].address | 1

    @property
    def done(self) -> bool:
        return self["pc"] & ~1 == STOP

    def go(self, count: int = 0) -> None:
        """Execute so many instructions, or all that are left of the call."""
        self.engine.emu_start(self["pc"] | 1, STOP, count=count)

    def save(self) -> Registers:
        return tuple(self.engine.reg_read(number) for number in self.numbers.values())

    def restore(self, registers: Registers) -> None:
        for number, value in zip(self.numbers.values(), registers, strict=True):
            self.engine.reg_write(number, value)
