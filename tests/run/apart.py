"""Runs a bundle in process with workers that find races: parts of a layer that touch what another part writes.

Enters: a bundle whose layers are in parts, inputs. Leaves: the outputs; AssertionError at the first layer whose parts race.
Each part runs once from memory as it was before the layer, and once after all the others have run. It must change bytes that no other part
changes, and to the same values both times: then it reads nothing that another part writes. What is kept are the changes of the
first runs, so that the outputs are right only if no part needs what another has left.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np

from aot.bundle import Bundle
from aot.run import host, memory
from aot.run.memory import PARALLEL_FOR, POOL
from aot.run.workers import C_BODY, C_PARALLEL_FOR

Body = Callable[[int, int], None]


class Apart:
    """`parallel_for` for parts that may touch only `memories`, of which it keeps copies. calls: how often it was called."""

    def __init__(self, memories: Sequence[np.ndarray]) -> None:
        self.memories, self.calls = memories, 0
        self.raised: BaseException | None = None

    def run(self, parts: int, body: Body, argument: int) -> None:
        """Run the parts of a layer. AssertionError if they race."""
        self.calls += 1
        before = self._held()
        alone = [self._after(before, body, argument, [part]) for part in range(parts)]
        changed = [held != before for held in alone]
        for part in range(parts):
            others = [other for other in range(parts) if other != part]
            for other in others:
                both = np.flatnonzero(changed[part] & changed[other])
                assert not both.size, f"parts {part} and {other} of layer {self.calls} write the same {both.size} bytes"
            theirs = self._after(before, body, argument, others)
            late = self._after(theirs, body, argument, [part])
            wrong = np.flatnonzero(changed[part] & (late != alone[part]))
            assert not wrong.size, f"part {part} of layer {self.calls} reads what another part writes"
        merged = before.copy()
        for held, where in zip(alone, changed, strict=True):
            merged[where] = held[where]
        self._put(merged)

    def _after(self, start: np.ndarray, body: Body, argument: int, parts: Sequence[int]) -> np.ndarray:
        self._put(start)
        for part in parts:
            body(argument, part)
        return self._held()

    def _held(self) -> np.ndarray:
        return np.concatenate([one.reshape(-1) for one in self.memories])

    def _put(self, content: np.ndarray) -> None:
        start = 0
        for one in self.memories:
            one[:] = content[start : start + one.size]
            start += one.size

    def function(self) -> ctypes._FuncPointer:
        """As a C function, which is there as long as the result. What is raised in it is kept in `raised`."""

        def called(_: int | None, parts: int, body: int | None, argument: int | None) -> None:
            try:
                self.run(parts, C_BODY(body or 0), argument or 0)
            except BaseException as error:
                self.raised = self.raised or error

        return C_PARALLEL_FOR(called)


def run_apart(bundle: Bundle, inputs: Sequence[np.ndarray]) -> tuple[tuple[np.ndarray, ...], int]:
    """The outputs, and how many layers ran in parts."""
    entry = bundle.main
    regions, calls = memory.arguments(bundle, entry, inputs, 5)
    engine = host._load(bundle.object, {})
    blocks = [np.empty(region.nbytes + 2 * host._GUARD_NBYTES + 2 * region.align, np.uint8) for region in regions]
    placed = {region.name: host._placed(region, block, 1) for region, block in zip(regions, blocks, strict=True)}
    for one in placed.values():
        ctypes.memmove(one.start, one.image, one.end - one.start)
    held = [
        np.ctypeslib.as_array((ctypes.c_uint8 * one.region.nbytes).from_address(one.address))
        for one in placed.values()
        if one.region.writable
    ]
    apart = Apart(held)
    function = apart.function()
    others = {PARALLEL_FOR: ctypes.cast(function, ctypes.c_void_p).value or 0, POOL: 0}
    for call in calls:
        assert host._call(engine, call, placed, others, at_end=True) == 0
    if apart.raised is not None:
        raise apart.raised
    pages = {name: ctypes.string_at(one.start, one.end - one.start) for name, one in placed.items()}
    for name, one in placed.items():
        one.check(pages[name])
    contents = {name: one.content(pages[name]) for name, one in placed.items()}
    return memory.outputs(bundle, entry, contents)[: len(entry.outputs)], apart.calls
