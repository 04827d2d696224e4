"""A call of a bundle in an emulated core that can be interrupted between any two instructions.

Enters: a bundle, inputs, what all other memory holds. Leaves: outputs. Invariant: every region is alone on its pages between unmapped ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import numpy as np

from aot.bundle import Bundle, Entry
from aot.run import memory
from aot.run.emulate import _GRID
from aot.run.layout import Layout, lay_out
from aot.run.memory import CONTEXT, NO_FUNCTIONS, READ, ROWS, Call
from tests.hardening.core import Core, Registers

FILLS = (0x00, 0xFF, 0xAA, None)
"""What memory holds that nobody has written: this byte, or (None) random ones."""
READ_AT, CONTEXT_AT = 0x2001, 0x3000
"""Addresses where nothing is: of a function that must not be called, and of its context."""


class _Bytes:
    def __init__(self, fill: int) -> None:
        self.fill = fill

    def bytes(self, count: int) -> bytes:
        return bytes([self.fill]) * count


@contextmanager
def filled(fill: int | None) -> Iterator[None]:
    """While it holds, every run finds its outputs and workspaces full of `fill`."""
    if fill is None:
        yield
    else:
        with patch.object(np.random, "default_rng", lambda seed: _Bytes(fill)):
            yield


class Task:
    """The calls of a run, with memory of its own from `base` on. at_end: regions end where a page does; otherwise they begin there."""

    def __init__(
        self,
        bundle: Bundle,
        inputs: Sequence[np.ndarray],
        entry: Entry | None = None,
        *,
        base: int = _GRID.ram[0],
        fill: int | None = None,
        at_end: bool = True,
    ) -> None:
        self.bundle, self.entry, self.at_end = bundle, entry or bundle.main, at_end
        with filled(fill):
            self.regions, self.calls = memory.arguments(bundle, self.entry, inputs, 1)
        guard = 0x5A if fill is None else fill
        grid = replace(_GRID, ram=(base, _GRID.ram[1]))
        passed = max((call.arguments for call in self.calls), key=len)
        others = {READ: READ_AT, CONTEXT: CONTEXT_AT} if self.entry.paging else {}
        self.layout: Layout = lay_out(
            bundle, self.entry, self.regions, grid, at_end=at_end, guard=guard, passed=passed, others=others
        )
        self.placed = {placed.region.name: placed for placed in self.layout.arguments}
        self.known = {name: placed.address for name, placed in self.placed.items()} | others | NO_FUNCTIONS
        self.left = list(self.calls)
        self.registers: Registers | None = None

    @property
    def end(self) -> int:
        """The first address behind its memory."""
        return max(placed.end for placed in (self.layout.stack, *self.layout.arguments) if placed.start >= _GRID.ram[0])

    def map(self, core: Core, code: bool = True, memory: bool = True) -> None:
        """Give the core the code and its constants (code), and the memory behind the pointers."""
        if code:
            core.map(self.layout.code, executable=True)
            core.map(self.layout.rodata)
        core.map(self.layout.stack)
        for placed in self.layout.arguments if memory else ():
            if code or placed.start >= _GRID.ram[0]:
                core.map(placed)

    def go(self, core: Core, count: int = 0) -> None:
        """Go on for so many instructions (0: to the end), from where this task was interrupted; the core's registers are as it left them."""
        if self.registers is None:
            self.begin(core, self.left[0])
        else:
            core.restore(self.registers)
        core.go(count)
        if core.done:
            assert core["r0"] == 0, f"{self.left[0].symbol} returned {core['r0']:#x}"
            assert core["sp"] == self.layout.stack_pointer
            del self.left[0]
            self.registers = None
        else:
            self.registers = core.save()

    def run(self, core: Core) -> tuple[np.ndarray, ...]:
        """Run to the end, uninterrupted."""
        while self.left:
            self.go(core)
        return self.outputs(core)

    def begin(self, core: Core, call: Call, change: Callable[[list[int]], object] = lambda arguments: None) -> None:
        """Put the core at the beginning of a call. change: what becomes of its arguments."""
        values = [self._value(core, one, call) for one in call.arguments]
        change(values)
        core.begin(self.layout.image, call.symbol, values, self.layout.stack_pointer)

    def _value(self, core: Core, argument: str | int, call: Call) -> int:
        if not isinstance(argument, str):
            return argument
        if argument == ROWS and call.rows:
            self.placed[ROWS], address = self.placed[ROWS].with_rows(call.rows, self.at_end)
            core.engine.mem_write(self.placed[ROWS].start, self.placed[ROWS].image)
            return address
        return self.known[argument]

    def outputs(self, core: Core) -> tuple[np.ndarray, ...]:
        """The outputs, once all guards are found to be as they were. Those of a bundle with state end with its bytes."""
        for placed in (self.layout.code, self.layout.rodata, *self.placed.values()):
            placed.check(core.pages(placed))
        contents = {name: placed.content(core.pages(placed)) for name, placed in self.placed.items()}
        return memory.outputs(self.bundle, self.entry, contents)
