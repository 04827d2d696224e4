"""A bound on the stack that an entry needs.

Enters: the frame of each function and who calls whom. Leaves: bytes.
Invariant: every call path is covered: calls in the IR, and those to routines that code generation puts in.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from aot.errors import InternalError

if TYPE_CHECKING:
    from aot.target import Target


def deepest(symbol: str, calls: Mapping[str, Collection[str]], frames: Mapping[str, int], target: Target) -> int:
    """The largest sum of frames on a path of calls from `symbol` on, in bytes. InternalError if a function can call itself."""
    pushed = target.pointer_bits // 8 if target.triple.startswith(("x86_64", "i386", "i686")) else 0
    done: dict[str, int] = {}

    def depth(name: str, path: tuple[str, ...]) -> int:
        if name in path:
            raise InternalError(f"{name} calls itself: {' -> '.join(path)}")
        if name not in done:
            below = max((depth(each, (*path, name)) for each in sorted(calls.get(name, ()))), default=0)
            done[name] = frames.get(name, 0) + pushed + below
        return done[name]

    return depth(symbol, ())
