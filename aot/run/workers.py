"""The caller's function that runs the parts of a layer, for bundles that run in process.

Enters: a bundle's bodies, through `parallel_for` as the header asks for it. Leaves: each part run once: one after the other in an order
drawn at random, or all at once on threads of their own.
Invariant: what is raised meanwhile is kept in `raised`: it can't cross C frames.
"""

from __future__ import annotations

import ctypes
from threading import Thread
from typing import Any

import numpy as np

from aot.errors import InternalError

POOL = 0xB0015
"""What is passed as the pool: nothing is there."""
C_BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32)
C_PARALLEL_FOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p)


class Workers:
    """Runs the parts of one run. threads: at once. most: parts that the bundle states. parts: how many have been run."""

    def __init__(self, most: int, threads: bool) -> None:
        self.most, self.threads, self.parts = most, threads, 0
        self.order = np.random.default_rng(11)
        self.raised: BaseException | None = None
        self.function = C_PARALLEL_FOR(self._called)

    @property
    def address(self) -> int:
        """Of `parallel_for` as a C function, which is there as long as this object."""
        return ctypes.cast(self.function, ctypes.c_void_p).value or 0

    def run(self, pool: int, parts: int, body: Any, argument: int) -> None:
        """The function itself. InternalError for what no entry may ask for."""
        if pool != POOL or not 1 < parts <= self.most:
            raise InternalError(f"parallel_for is called for {parts} parts, of at most {self.most}, with pool {pool:#x}")
        self.parts += parts
        order = map(int, self.order.permutation(parts))
        if not self.threads:
            for part in order:
                body(argument, part)
            return
        started = [Thread(target=body, args=(argument, part)) for part in order]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()

    def _called(self, pool: int | None, parts: int, body: int | None, argument: int | None) -> None:
        try:
            self.run(pool or 0, parts, C_BODY(body or 0), argument or 0)
        except BaseException as error:
            self.raised = self.raised or error
