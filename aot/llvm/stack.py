"""A bound on the stack that an entry needs.

Enters: the frame of each function and who calls whom. Leaves: the deepest path, in bytes.
Invariant: every call path is covered: calls in the IR, and those to routines that code generation puts in.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aot.errors import InternalError

if TYPE_CHECKING:
    from aot.target import Target


@dataclass(frozen=True)
class Depth:
    """The stack of the deepest path of calls from a function on. largest: the function with the largest frame there, and its bytes."""

    nbytes: int
    largest: tuple[str, int]


_NOTHING = Depth(0, ("", 0))


def _pushed_nbytes(target: Target) -> int:
    """What a call puts on the stack beside the frame that LLVM states: x86's return address, a Hexagon's link and frame pointer."""
    if target.triple.startswith(("x86_64", "i386", "i686")):
        return target.pointer_bits // 8
    return 8 if target.triple.startswith("hexagon") else 0


def deepest(symbol: str, calls: Mapping[str, Collection[str]], frames: Mapping[str, int], target: Target) -> Depth:
    """The largest sum of frames on a path of calls from `symbol` on. InternalError if a function can call itself."""
    pushed = _pushed_nbytes(target)
    done: dict[str, Depth] = {}

    def depth(name: str, path: tuple[str, ...]) -> Depth:
        if name in path:
            raise InternalError(f"{name} calls itself: {' -> '.join(path)}")
        if name not in done:
            called = [depth(each, (*path, name)) for each in sorted(calls.get(name, ()))]
            below = max(called, key=lambda each: each.nbytes, default=_NOTHING)
            own = frames.get(name, 0) + pushed
            done[name] = Depth(own + below.nbytes, max((name, own), below.largest, key=lambda each: each[1]))
        return done[name]

    return depth(symbol, ())
