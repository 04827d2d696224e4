"""Where each buffer of an entry lies: in the workspace, or behind one of the caller's pointers.

Enters: a plan and the entry's ports. Leaves: places, their alignment, and which pointers of a kernel can't meet.
Invariant: `distinct` is decided by the bytes of the plan, not by names: what overlaps in memory never gets `noalias`.
The caller's buffers overlap neither each other nor the workspace (the header says so).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from aot.errors import CompileError, InternalError
from aot.lower.plan import scratch_name

if TYPE_CHECKING:
    from aot.bundle import Port
    from aot.lower.plan import Plan
    from aot.lower.state import StateLayout

LIMIT = 1 << 31
"""Bytes of a tensor that 32-bit indices can't reach any more."""


@dataclass(frozen=True)
class Place:
    """Bytes [offset, offset + nbytes) behind an argument of the entry: number `port` of its ports, the workspace, or the state.

    A window moves by `slide[k]` bytes with each turn of the k-th loop around it; `offset` and `nbytes` are of what it is a part of,
    `start` is where in that it begins.
    """

    port: int | Literal["workspace", "state"]
    offset: int
    nbytes: int
    start: int = 0
    slide: tuple[int, ...] = ()

    def meets(self, other: Place) -> bool:
        """Whether two places share a byte."""
        apart = self.offset + self.nbytes <= other.offset or other.offset + other.nbytes <= self.offset
        return self.port == other.port and not apart and self.nbytes > 0 and other.nbytes > 0


class Layout:
    """The places of one entry."""

    def __init__(
        self,
        plan: Plan,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        io_in_workspace: bool,
        pointer_bits: int,
        state: StateLayout | None = None,
    ) -> None:
        self.plan, self.program, self.pointer_bits = plan, plan.schedule.program, pointer_bits
        self.state: Mapping[str, int] = state.offsets if state else {}
        self.state_align = state.align if state else 1
        self.ports = (*inputs, *outputs)
        self.parameters = () if io_in_workspace else self.ports
        self.port_of: dict[str, int] = {}
        for number, name in enumerate((*self.program.inputs, *self.program.outputs)):
            owner = self.program.storage(name)
            if owner in self.port_of and not io_in_workspace:
                raise InternalError(f"%{name} shares its bytes with another input or output")
            self.port_of[owner] = number

    def place(self, name: str) -> Place:
        """Where a buffer lies."""
        owner = self.program.storage(name)
        nbytes = self.program[owner].nbytes
        part = self.program[name].offset, self.program[name].slide
        if nbytes >= LIMIT:
            raise CompileError(f"%{owner} has {nbytes} bytes; code addresses fewer than {LIMIT} in one tensor")
        if owner in self.plan.offset_of:
            return Place("workspace", self.plan.offset_of[owner], nbytes, *part)
        if owner in self.port_of and self.parameters:
            return Place(self.port_of[owner], 0, nbytes, *part)
        if owner in self.state:
            return Place("state", self.state[owner], nbytes, *part)
        raise InternalError(f"%{name} has no place in the plan")

    def scratch(self, position: int) -> Place:
        """Where the scratch memory of the implementation at this position lies."""
        nbytes = self.plan.schedule.choices[position].implementation.scratch_nbytes
        return Place("workspace", self.plan.offset_of[scratch_name(position)], nbytes)

    def align(self, name: str) -> int:
        """Known alignment in bytes of a buffer's first byte."""
        place = self.place(name)
        base = self.ports[place.port].align if isinstance(place.port, int) else self.plan.align
        base = self.state_align if place.port == "state" else base
        return min(base, *(step & -step for step in (place.offset, place.start, *place.slide) if step), 1 << 30)

    def distinct(self, position: int) -> frozenset[str]:
        """Parameters of an implementation's function whose bytes none of its other pointers reaches."""
        implementation = self.plan.schedule.choices[position].implementation
        names = (*implementation.reads, *implementation.writes)
        places = [self.place(name) for name in names]
        others = places + ([self.scratch(position)] if implementation.scratch_nbytes else [])
        alone = {name for name, place in zip(names, places) if sum(place.meets(other) for other in others) <= 1}
        return frozenset(alone | {constant.name for constant in implementation.constants})
