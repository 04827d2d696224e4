"""Run a Program in numpy: the meaning of every stage of lowering.

Enters: a Program and its input arrays. Leaves: its output arrays.
Invariant: buffers that share storage share memory, and memory that nothing has written holds 0xA5 bytes, so that a wrong view,
order or missing write shows in the result.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from aot.errors import CompileError, InternalError
from aot.graph.evaluate import execute
from aot.graph.primitive import MAX_TURNS, Control
from aot.lower.blocks import ends

if TYPE_CHECKING:
    from aot.lower.program import Buffer, Program


After = Callable[[int, Mapping[str, np.ndarray]], None]


def _nobody(position: int, arrays: Mapping[str, np.ndarray]) -> None:
    """Nobody looks on."""


def execute_program(
    program: Program, inputs: Mapping[str, np.ndarray], state: dict[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """The outputs by name. `inputs`: an array of the buffer's shape and dtype for each input.

    `state`: arrays of the program's state buffers, updated in place (absent ones start with their initial content and are added).
    """
    arrays = execute_all(program, inputs, state)
    return {name: arrays[name].copy() for name in program.outputs}


def execute_all(
    program: Program,
    inputs: Mapping[str, np.ndarray],
    state: dict[str, np.ndarray] | None = None,
    after: After = _nobody,
) -> dict[str, np.ndarray]:
    """Every buffer's array as the last instruction leaves it, views included. after: sees them after each instruction, with its position."""
    state = {} if state is None else state
    arrays = {buffer.name: _storage(buffer, inputs, state) for buffer in program.buffers if buffer.base is None}
    for buffer in program.buffers:
        if buffer.base is not None and not buffer.is_window:
            raw = arrays[program.storage(buffer.name)].reshape(-1)
            arrays[buffer.name] = raw.view(buffer.dtype.np).reshape(buffer.shape)
    _Run(program, arrays, after).run(range(len(program.instructions)), ())
    return arrays


class _Run:
    """The instructions, with what `Control` says about them."""

    def __init__(self, program: Program, arrays: dict[str, np.ndarray], after: After) -> None:
        self.program, self.arrays, self.after = program, arrays, after
        self.ends = ends(program.instructions)
        self.windows = [buffer for buffer in program.buffers if buffer.is_window]

    def run(self, positions: range, turns: tuple[int, ...]) -> bool:
        """Run these; False once the innermost loop has been left."""
        position, stop = positions.start, positions.stop
        self.move(turns)
        while position < stop:
            instruction = self.program.instructions[position]
            if not isinstance(instruction, Control):
                execute(instruction, self.arrays)
                self.after(position, self.arrays)
            elif instruction.kind == "leave" and not self.holds(instruction):
                return False
            elif instruction.kind in ("repeat", "if"):
                if instruction.kind == "repeat":
                    self.repeat(position, instruction.count, turns)
                elif not self.branch(position, instruction, turns):
                    return False
                position = self.ends[position][1]
            position += 1
        return True

    def holds(self, instruction: Control) -> bool:
        assert instruction.condition is not None
        return bool(self.arrays[instruction.condition].reshape(-1)[0])

    def branch(self, position: int, instruction: Control, turns: tuple[int, ...]) -> bool:
        middle, end = self.ends[position]
        return self.run(range(position + 1, middle) if self.holds(instruction) else range(middle + 1, end), turns)

    def repeat(self, position: int, count: int, turns: tuple[int, ...]) -> None:
        for turn in range(count) if count else itertools.count():
            if turn == MAX_TURNS:
                raise CompileError(f"a loop still runs after {MAX_TURNS} turns")
            if not self.run(range(position + 1, self.ends[position][1]), (*turns, turn)):
                break
        self.move(turns)

    def move(self, turns: tuple[int, ...]) -> None:
        """Put the windows to where they are in these turns of the loops."""
        for buffer in self.windows:
            if len(buffer.slide) <= len(turns):
                start = buffer.offset + sum(step * turn for step, turn in zip(buffer.slide, turns))
                raw = self.arrays[self.program.storage(buffer.name)].reshape(-1).view(np.uint8)[start : start + buffer.nbytes]
                if raw.size == buffer.nbytes:  # else it belongs to another loop, which has fewer turns
                    self.arrays[buffer.name] = raw.view(buffer.dtype.np).reshape(buffer.shape)


def _storage(buffer: Buffer, inputs: Mapping[str, np.ndarray], state: dict[str, np.ndarray]) -> np.ndarray:
    if buffer.data is not None:
        return buffer.data
    if buffer.role == "state":
        content = np.zeros(buffer.shape, buffer.dtype.np) if buffer.initial is None else buffer.initial.copy()
        return state.setdefault(buffer.name, content)
    if buffer.role == "input":
        array = np.asarray(inputs[buffer.name], order="C")
        if array.shape != buffer.shape or array.dtype != buffer.dtype.np:
            raise InternalError(f"input %{buffer.name}: {array.dtype}{list(array.shape)} for {buffer}")
        return array
    return np.full(buffer.nbytes, 0xA5, np.uint8).view(buffer.dtype.np).reshape(buffer.shape)
