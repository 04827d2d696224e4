"""The cycle model: what a recorded run would take on a core, function by function.

Enters: a `Trace`, a core, the flash memory's wait states. Leaves: cycles of each owner.
Invariant: each instruction is paid for as often as it was executed; straight-line code is followed with its counts, from where control
came in by a jump to where it left, so that what a core remembers of the instructions before is what it was.

Wait states: code and constants lie in a flash memory that gives `LINE_NBYTES` at a time and keeps the last line, without a cache or
prefetching: each other line of code, and each other line of constants, costs the wait states once more.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from aot.errors import InternalError
from aot.profile.cores import Core
from aot.profile.instruction import Instruction, Kind
from aot.profile.thumb import decode
from aot.run.hooks import decode as boundaries
from aot.run.trace import LINE_NBYTES, Trace


def modelled_cycles(trace: Trace, core: Core, wait_states: int = 0) -> tuple[tuple[str, int], ...]:
    """(owner, cycles) of each. InternalError if the counts are no run's."""
    starts, _ = boundaries(trace.image)
    halves = np.frombuffer(trace.image.code + bytes(-len(trace.image.code) % 2) + bytes(2), "<u2").astype(int).tolist()
    positions = np.flatnonzero(starts)
    found: list[tuple[str, int]] = []
    for number, owner in enumerate(trace.owners):
        walk = _Walk(core, trace.image.code_address // 2, wait_states)
        executed, entered, left = (counts[number].tolist() for counts in (trace.executed, trace.entered, trace.left))
        for position in positions[trace.executed[number][positions] > 0].tolist():
            instruction = decode(halves[position], halves[position + 1])
            walk.instruction(position, instruction, executed[position], entered[position], left[position + instruction.halves])
        cycles = walk.cycles
        if wait_states:
            if trace.flash_lines is None:
                raise InternalError("the run's reads of the flash memory were not recorded")
            cycles += int(trace.flash_lines[number]) * wait_states
        found.append((owner, round(cycles)))
    return tuple(found)


class _Walk:
    """Follows the code of one owner, address by address. `states`: how often the core is in which state, where the last instruction ended."""

    def __init__(self, core: Core, base: int, wait_states: int) -> None:
        self._core, self._base, self._wait_states = core, base, wait_states
        self._states: dict[Hashable, float] = {}
        self._end = -1
        self.cycles = 0.0

    def instruction(self, position: int, instruction: Instruction, executed: int, entered: int, left: int) -> None:
        """Pay for an instruction: executed so often, of that entered by a jump, and left by one."""
        came = executed - entered
        if came and position != self._end:
            raise InternalError("the trace says that control came from where there is no instruction")
        states = {state: count for state, count in self._states.items() if count} if came else {}
        states[self._core.fresh] = states.get(self._core.fresh, 0) + entered
        after: dict[Hashable, float] = {}
        for state, count in states.items():
            cycles, then = self._core.step(state, instruction)
            self.cycles += cycles * count
            after[then] = after.get(then, 0) + count
        self.cycles += left * self._core.jump(instruction) if left else 0
        if instruction.kind is Kind.BRANCH and instruction.conditional:
            self.cycles += min(left, executed - left) * self._core.mispredicted
        self.cycles += self._fetches(position, instruction.halves, came, entered) * self._wait_states
        stays = (executed - left) / executed
        self._states = {state: count * stays for state, count in after.items()}
        self._end = position + instruction.halves

    def _fetches(self, position: int, halves: int, came: int, entered: int) -> int:
        """Lines of the flash memory that are fetched for it."""
        lines = LINE_NBYTES // 2
        first, last = (self._base + position) // lines, (self._base + position + halves - 1) // lines
        before = (self._base + position - 1) // lines
        return came * (last - before) + entered * (last - first + 1)
