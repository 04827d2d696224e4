"""What a run of a bundle reports.

Enters: nothing. Leaves: `RunResult`. Invariant: a figure that a runner can't measure is None, never an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aot.run.trace import Trace


@dataclass(frozen=True)
class RunResult:
    """One call of an entry.

    outputs: in the entry's order, shaped. instructions: executed, from the entry's first to its return (None on the host; on QEMU's
    boards to within 4). stack_nbytes: peak below the caller's frame. where: the runner's name.
    per_layer: (symbol, instructions) of each layer, what it calls included, then of the entry itself (Unicorn; QEMU's boards where it
    traces; its processes).
    state: what the state holds after the run; give it to the next one. None where the entry has none.
    read_nbytes: bytes of weights that the run read, where they come in pages.
    cycles: what the entry says that each layer took (`--instrument cycles`). Unicorn's counter counts instructions; QEMU's boards read zeros.
    told: (layer, before) for each call of the function that is told of layers, in order (on the host and in Unicorn).
    trace: each instruction's executions, where that was asked for (Unicorn only).
    """

    outputs: tuple[np.ndarray, ...]
    instructions: int | None
    stack_nbytes: int | None
    per_layer: tuple[tuple[str, int], ...] | None
    where: str
    state: bytes | None = None
    trace: Trace | None = None
    read_nbytes: int | None = None
    cycles: tuple[int, ...] | None = None
    told: tuple[tuple[int, bool], ...] | None = None
