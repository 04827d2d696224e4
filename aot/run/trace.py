"""How often each instruction of a run was executed, for each layer, and how control came to it and left it.

Enters: counters that a recorder has filled (`recorder.py`). Leaves: `Trace`, which the cycle model reads (`aot/profile`).
Invariant: control comes to a halfword by a jump as often as it leaves others by one, but for the call and the return of the entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from aot.run.image import Image

LINE_NBYTES = 8
"""What a flash memory gives at once, in the trace's counts of its reads."""

Tracing = Literal["none", "code", "flash"]
"""What a run records: nothing, each instruction, or also its reads of the flash memory's data, which takes ten times as long."""


@dataclass(frozen=True, eq=False)
class Trace:
    """Counters of one run. A row for each owner (the layers' functions, then the entry), a column for each halfword of the code.

    A routine that several layers call is counted for the one that called it. executed: how often the halfword was. entered: how often
    control came there by a jump. left: how often control left by a jump from the instruction that ends before this halfword.
    flash_lines: for each owner, how often it read data from another line of the flash memory than before (None: not recorded).
    """

    image: Image
    owners: tuple[str, ...]
    executed: np.ndarray
    entered: np.ndarray
    left: np.ndarray
    flash_lines: np.ndarray | None


def entered_owners(image: Image, owners: Sequence[str], count: int) -> np.ndarray:
    """For each halfword of the code: 1 + the owner in whose function it lies, 0 for a routine that any of them may call."""
    enter = np.zeros(count, np.uint32)
    for number, name in enumerate(owners, 1):
        if symbol := image.by_name.get(name):
            first = (symbol.address - image.code_address) // 2
            enter[first : first + (symbol.nbytes + 1) // 2] = number
    return enter
