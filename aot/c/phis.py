"""Phis as variables: which share one, and what a value is called behind the loop that made it.

Enters: a function's shape and uses. Leaves: classes of phis, and the phi that holds a value after its loop.
Invariant: phis of one class are never alive with different values at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llvmlite import ir

from aot.c.shape import Loop, Shape

Value = Any
Instructions = ir.instructions


class Phis:
    """The phis of a function."""

    def __init__(self, shape: Shape, uses: Mapping[Value, Sequence[tuple[Any, Any]]]) -> None:
        self.shape, self.uses = shape, uses
        self.leaders: dict[Value, Value] = {}
        for loop in shape.loops.values():
            if loop.counted is not None and not self._leaves_well(loop):
                loop.counted = None
        counted = sorted((loop for loop in shape.loops.values() if loop.counted), key=lambda loop: loop.depth)
        for loop in counted:
            self._join_exit(loop)
        for loop in counted:
            self._join_outer(loop)

    def leader(self, phi: Value) -> Value:
        """The phi that stands for a class."""
        while phi in self.leaders:
            phi = self.leaders[phi]
        return phi

    def _join(self, a: Value, b: Value) -> None:
        first, second = self.leader(a), self.leader(b)
        if first is not second:
            self.leaders[second] = first

    def phis(self, block: Any) -> list[Value]:
        return [each for each in block.instructions if isinstance(each, Instructions.PhiInstr)]

    def incoming(self, phi: Value, block: Any) -> Value:
        return next(value for value, where in phi.incomings if where is block)

    def after(self, value: Value, block: Any) -> Value:
        """What holds a value in a block: behind a counted loop, the phi that it became at the end of the last turn."""
        loops = [loop for loop in self.shape.loops_of(value.parent) if block not in loop.blocks and loop.counted]
        for loop in reversed(loops):
            for phi in self.phis(loop.header):
                if self.incoming(phi, loop.latches[0]) is value:
                    return phi
        return value

    def _leaves_well(self, loop: Loop) -> bool:
        """Whether no phi of the loop's header is needed behind it but by way of `after`: `for` has changed them by then."""
        assert loop.counted is not None
        carried = [self.incoming(phi, loop.latches[0]) for phi in self.phis(loop.header)]
        for phi in self.phis(loop.header):
            outside = any(block not in loop.blocks for _, block in self.uses.get(phi, ()))
            if outside and not any(phi is each for each in carried):
                return False
        return not any(block not in loop.blocks for _, block in self.uses.get(loop.counted.following, ()))

    def _join_exit(self, loop: Loop) -> None:
        """Phis behind a loop that may have no turn are what its own would be."""
        counted = loop.counted
        if counted is None or counted.guard is None:
            return
        latch = loop.latches[0]
        for phi in self.phis(counted.exit):
            if {block for _, block in phi.incomings} != {counted.guard, latch}:
                continue
            pair = self.incoming(phi, counted.guard), self.incoming(phi, latch)
            for own in self.phis(loop.header):
                if (
                    own is not counted.index
                    and _same(self.incoming(own, counted.guard), pair[0])
                    and self.incoming(own, latch) is pair[1]
                ):
                    self._join(own, phi)
                    break

    def _join_outer(self, loop: Loop) -> None:
        """A value that an outer loop carries, and hands to an inner one only."""
        assert loop.counted is not None
        parent = loop.parent
        if parent is None or parent.counted is None:
            return
        latch = loop.latches[0]
        for phi in self.phis(loop.header):
            start = next(value for value, block in phi.incomings if block is not latch)
            if start not in self.phis(parent.header) or start is parent.counted.index or phi is loop.counted.index:
                continue
            if all(
                isinstance(user, Instructions.PhiInstr) and self.leader(user) is self.leader(phi) for user, _ in self.uses[start]
            ):
                self._join(start, phi)

    def wraps(self, leader: Value) -> bool:
        """Whether what a class is set to are sums that may wrap."""
        return any(
            getattr(value, "opname", "") in ("add", "sub", "mul") and "nsw" not in value.flags
            for phi in self.members(leader)
            for value, _ in phi.incomings
            if not isinstance(value, ir.Constant | ir.Argument | ir.GlobalVariable)
        )

    def accumulates(self, leader: Value) -> bool:
        """Whether a loop carries it."""
        return any(phi.parent in self.shape.loops for phi in self.members(leader)) and not isinstance(leader.type, ir.PointerType)

    def members(self, leader: Value) -> list[Value]:
        found = [phi for block in self.shape.order for phi in self.phis(block)]
        return [phi for phi in found if self.leader(phi) is leader]


def _same(a: Value, b: Value) -> bool:
    return a is b or (isinstance(a, ir.Constant) and isinstance(b, ir.Constant) and a.type == b.type and a.constant == b.constant)
