"""The caller's function that reads weights, for bundles whose weights come in pages.

Enters: a bundle, an entry, a way to write memory. Leaves: `Reader`, whose `read` does what the header asks of the firmware's function.
Invariant: what an entry asks for lies inside the workspace and inside the file; and a run reads what the bundle states, no more, no less.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aot.bundle import Bundle, Entry
from aot.errors import InternalError
from aot.run.memory import Placed, region_name

C_READ = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)
CONTEXT = 0xC0DE
"""What is passed as the context: nothing is there."""


class Reader:
    """Reads pages for one run. late: bytes are not there before the next call, as with a transfer in the background; until then garbage
    is. write(address, bytes): puts bytes into memory."""

    def __init__(
        self, bundle: Bundle, entry: Entry, placed: Mapping[str, Placed], late: bool, write: Callable[[int, bytes], object]
    ) -> None:
        assert bundle.pages is not None
        self.file, self.entry, self.late, self.write = bundle.pages, entry, late, write
        self.workspaces = [placed[region_name(pointer)] for pointer in entry.workspaces]
        self.pending: tuple[int, bytes] | None = None
        self.calls = self.nbytes = 0
        self.garbage = np.random.default_rng(7)
        self.raised: BaseException | None = None

    def read(self, context: int, offset: int, nbytes: int, address: int) -> int:
        """The function itself; 0. InternalError for what no entry may ask for."""
        if self.pending is not None:
            self.write(*self.pending)
        self.pending = None
        self.calls += 1
        self.nbytes += nbytes
        if context != CONTEXT:
            raise InternalError(f"{self.entry.symbol} passes {context:#x} as the context of read")
        if not nbytes:
            return 0
        spans = [(one.address, one.address + one.region.nbytes) for one in self.workspaces]
        if (
            not any(first <= address and address + nbytes <= end for first, end in spans)
            or offset + nbytes > len(self.file)
            or (address | offset | nbytes) % 4
        ):
            raise InternalError(
                f"{self.entry.symbol} asks for {nbytes} bytes at {offset} to {address:#x}: not what may be read, or where to"
            )
        page = self.file[offset : offset + nbytes]
        self.pending = (address, page) if self.late else None
        self.write(address, self.garbage.bytes(nbytes) if self.late else page)
        return 0

    def check(self) -> None:
        """InternalError if the run has read something else than the bundle states, or did not wait for what it asked for."""
        check_reads(self.entry, self.calls, self.nbytes)
        if self.pending is not None:
            raise InternalError(f"{self.entry.symbol} returned before what it had asked for was there")

    def c_function(self) -> Any:
        """`read` as a C function, which is there as long as the result. What it raises is kept in `raised`: it can't cross C frames."""

        def called(*arguments: int | None) -> int:
            try:
                context, offset, nbytes, address = (one or 0 for one in arguments)
                return self.read(context, offset, nbytes, address)
            except BaseException as error:
                self.raised = error
                return 1

        return C_READ(called)


def check_reads(entry: Entry, calls: int, nbytes: int) -> None:
    """InternalError if a run has read something else than the bundle states."""
    paging = entry.paging
    assert paging is not None
    if (calls, nbytes) != (paging.calls, paging.read_nbytes):
        stated = f"not {paging.read_nbytes} in {paging.calls}"
        raise InternalError(f"{entry.symbol} read {nbytes} bytes in {calls} calls, {stated}")
