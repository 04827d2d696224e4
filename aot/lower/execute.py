"""Run a Program in numpy: the meaning of every stage of lowering.

Enters: a Program and its input arrays. Leaves: its output arrays.
Invariant: buffers that share storage share memory, and memory that nothing has written holds 0xA5 bytes, so that a wrong view,
order or missing write shows in the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from aot.errors import InternalError
from aot.graph.evaluate import execute

if TYPE_CHECKING:
    from aot.lower.program import Buffer, Program


def execute_program(
    program: Program, inputs: Mapping[str, np.ndarray], state: dict[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """The outputs by name. `inputs`: an array of the buffer's shape and dtype for each input.

    `state`: arrays of the program's state buffers, updated in place (absent ones start as zeros and are added).
    """
    arrays = execute_all(program, inputs, state)
    return {name: arrays[name].copy() for name in program.outputs}


def execute_all(
    program: Program, inputs: Mapping[str, np.ndarray], state: dict[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """Every buffer's array as the last instruction leaves it, views included."""
    state = {} if state is None else state
    arrays = {buffer.name: _storage(buffer, inputs, state) for buffer in program.buffers if buffer.base is None}
    for buffer in program.buffers:
        if buffer.base is not None:
            raw = arrays[program.storage(buffer.name)].reshape(-1)
            arrays[buffer.name] = raw.view(buffer.dtype.np).reshape(buffer.shape)
    for instruction in program.instructions:
        execute(instruction, arrays)
    return arrays


def _storage(buffer: Buffer, inputs: Mapping[str, np.ndarray], state: dict[str, np.ndarray]) -> np.ndarray:
    if buffer.data is not None:
        return buffer.data
    if buffer.role == "state":
        return state.setdefault(buffer.name, np.zeros(buffer.shape, buffer.dtype.np))
    if buffer.role == "input":
        array = np.asarray(inputs[buffer.name], order="C")
        if array.shape != buffer.shape or array.dtype != buffer.dtype.np:
            raise InternalError(f"input %{buffer.name}: {array.dtype}{list(array.shape)} for {buffer}")
        return array
    return np.full(buffer.nbytes, 0xA5, np.uint8).view(buffer.dtype.np).reshape(buffer.shape)
