"""QEMU's log of every instruction that it executes, counted layer by layer as it comes.

Enters: what QEMU writes. Leaves: instructions of each owner. Invariant: nothing of the log is kept, as it has some 60 bytes an instruction.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence

import numpy as np

from aot.run.image import Image
from aot.run.trace import entered_owners

_ADDRESS = re.compile(rb"^Trace [^\n]*\[[0-9a-f]+/([0-9a-f]+)/[^\n]*\n", re.MULTILINE)


def one_by_one(program: str) -> tuple[str, ...]:
    """The arguments by which this QEMU translates one instruction at a time, so that each is a line of the log."""
    said = subprocess.run([program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout
    found = re.search(r"version (\d+)\.(\d+)", said)
    number = 100 * int(found[1]) + int(found[2]) if found else 0
    return ("-accel", "tcg,one-insn-per-tb=on") if number >= 801 else ("-singlestep",)


class ExecutionLog:
    """Counts of one run, for the owners named: a routine that several layers call is counted for the one that called it."""

    def __init__(self, image: Image, owners: Sequence[str]) -> None:
        self._image, self._owners = image, tuple(owners)
        self._enter = entered_owners(image, owners, (len(image.code) + 1) // 2)
        self._counts = np.zeros(len(owners) + 1, np.int64)
        self._rest, self._before, self._current = b"", -1, 0

    @property
    def flags(self) -> tuple[str, ...]:
        """What makes QEMU write the log (to standard error), and of the entry's code alone."""
        first = self._image.code_address
        return ("-d", "exec,nochain", "-dfilter", f"{first:#x}..{first + len(self._image.code) - 1:#x}")

    def take(self, content: bytes) -> bytes:
        """Count the next part of the log; returns lines that are none of it."""
        content = self._rest + content
        end = content.rfind(b"\n") + 1
        self._rest, content = content[end:], content[:end]
        self._count(np.array([int(address, 16) for address in _ADDRESS.findall(content)], np.int64))
        return _ADDRESS.sub(b"", content)

    def per_layer(self) -> tuple[tuple[str, int], ...]:
        return tuple((name, int(count)) for name, count in zip(self._owners, self._counts[1:], strict=True))

    def _count(self, addresses: np.ndarray) -> None:
        """An instruction that QEMU is interrupted before is logged twice in a row."""
        addresses = addresses[np.diff(addresses, prepend=self._before) != 0]
        if not len(addresses):
            return
        self._before = int(addresses[-1])
        entered = self._enter[(addresses - self._image.code_address) // 2].astype(np.int64)
        entered[0] = entered[0] or self._current
        known = np.maximum.accumulate(np.where(entered > 0, np.arange(len(entered)), 0))
        owners = entered[known]
        self._current = int(owners[-1])
        self._counts += np.bincount(owners, minlength=len(self._counts))
