"""Where each buffer of an entry lies: in the workspace or one of its regions, or behind one of the caller's pointers.

Enters: a plan and the entry's ports. Leaves: places, their alignment, and which pointers of a kernel can't meet.
Invariant: `distinct` is decided by the bytes that a step touches, not by names: what overlaps in memory never gets `noalias`.
The caller's buffers overlap neither each other nor the workspace (the header says so).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aot.errors import CompileError, InternalError
from aot.graph.primitive import loads_of
from aot.llvm.scattered import table_of_rows, with_tables
from aot.lower.implementation import Rows
from aot.lower.pages import page_layout
from aot.lower.plan import scratch_name
from aot.lower.rows import divided_alike, row_nbytes, step_rows

if TYPE_CHECKING:
    from aot.bundle import Port
    from aot.lower.implementation import Implementation
    from aot.lower.plan import Plan, Region, Step
    from aot.lower.program import Buffer
    from aot.lower.state import StateLayout

LIMIT = 1 << 31
"""Bytes of a tensor that 32-bit indices can't reach any more."""


@dataclass(frozen=True)
class Place:
    """Bytes [offset, offset + nbytes) behind an argument of the entry: number `port` of its ports, or a pointer of this name (the workspace,
    one of its regions, the state).

    A window moves by `slide[k]` bytes with each turn of the k-th loop around it; `offset` and `nbytes` are of what it is a part of,
    `start` is where in that it begins.
    """

    port: int | str
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
        self.parameters = tuple(port for port in self.ports if port.workspace_offset is None)
        self.port_of: dict[str, int] = {}
        for number, name in enumerate((*self.program.inputs, *self.program.outputs)):
            owner = self.program.storage(name)
            if owner in self.port_of and not io_in_workspace:
                raise InternalError(f"%{name} shares its bytes with another input or output")
            self.port_of[owner] = number
        self.touched: dict[tuple[str, Step], range] = {}
        self.steps: dict[int, list[Step]] = {}
        for step in plan.schedule.steps:
            self.steps.setdefault(step.position, []).append(step)
        self.implementations = {position: self._implementation(position) for position in self.steps}

    def _implementation(self, position: int) -> Implementation:
        """The implementation as it is emitted: with tables of scattered rows; undivided where all its rows are one call."""
        chosen = self.plan.schedule.choices[position].implementation
        if chosen.page:
            chosen = replace(chosen, reads=tuple(name for name in chosen.reads if name != chosen.page))
        if len(self.steps[position]) == 1 and chosen.parts == 1:
            chosen = replace(chosen, rows=Rows())
        return with_tables(chosen, {name: self._offsets(name) for name in self._tables(position, chosen)})

    def _tables(self, position: int, chosen: Implementation) -> frozenset[str]:
        """The buffers that it gets as tables: also those of which it may look at a first element that is not in the touched row."""
        needed = self.plan.tables(position)
        if beyond := needed - set(chosen.scatters):
            raise InternalError(f"{chosen.kernel} can't find scattered rows of {', '.join(sorted(beyond))}")
        filled = {load.buffer for load in loads_of(chosen.instruction) if load.fill is not None}
        return needed | {name for name in filled & set(chosen.scatters) if self._scattered(name)}

    def _scattered(self, name: str) -> bool:
        return self.program.storage(name) in self.plan.row_offsets

    def _is_table(self, name: str, position: int) -> bool:
        return any(constant.name == table_of_rows(name) for constant in self.implementations[position].constants)

    def located(self, offset: int, nbytes: int, *part: Any) -> Place:
        """Bytes of the workspace: behind which pointer they lie, and where."""
        region = self.plan.region_at(offset)
        return Place(region.name, offset - region.start, nbytes, *part)

    def _offsets(self, name: str) -> tuple[int, ...]:
        """Offset of each row of a scattered buffer, from the start of the region that it is in."""
        if not divided_alike(self.program, name):
            raise InternalError(f"%{name} has other rows than %{self.program.storage(name)}, which lies scattered")
        offsets, region = self.plan.row_offsets[self.program.storage(name)], self._region(name)
        return tuple(offset - region.start for offset in offsets)

    def _region(self, name: str) -> Region:
        """Where all rows of a scattered buffer lie."""
        return self.plan.region_at(max(self.plan.row_offsets[self.program.storage(name)]))

    def arguments(self, step: Step) -> tuple[Place, ...]:
        """What an implementation gets in a step for what it reads and writes, and as scratch."""
        chosen = self.implementations[step.position]
        places = [self.argument(name, step) for name in (*chosen.reads, *chosen.writes)]
        return (*places, self.scratch(step.position)) if chosen.scratch_nbytes else tuple(places)

    def argument(self, name: str, step: Step) -> Place:
        """What an implementation gets for a buffer in a step. Of a scattered one without a table: where it would begin if it
        lay around the one row that the step touches in one piece."""
        if not self._scattered(name):
            return self.place(name)
        if self._is_table(name, step.position):
            return Place(self._region(name).name, 0, self._region(name).nbytes)
        nbytes, rows = row_nbytes(self.program[name]), self._touched(name, step)
        row = rows.start if rows else 0
        return Place(self._region(name).name, self._offsets(name)[row] - row * nbytes, nbytes)

    def _touched(self, name: str, step: Step) -> range:
        if (found := self.touched.get((name, step))) is None:
            found = step_rows(self.program, self.plan.schedule.implementation(step), name, step.y0, step.y1)
            self.touched[name, step] = found
        return found

    def place(self, name: str) -> Place:
        """Where a buffer lies that is in one piece."""
        owner = self.program.storage(name)
        nbytes = self.program[owner].nbytes
        part = self.program[name].offset, self.program[name].slide
        if nbytes >= LIMIT:
            raise CompileError(f"%{owner} has {nbytes} bytes; code addresses fewer than {LIMIT} in one tensor")
        if owner in self.plan.offset_of:
            return self.located(self.plan.offset_of[owner], nbytes, *part)
        if owner in self.port_of and self.parameters:
            return Place(self.port_of[owner], 0, nbytes, *part)
        if owner in self.state:
            return Place("state", self.state[owner], nbytes, *part)
        raise InternalError(f"%{name} has no place in the plan")

    def in_page(self, position: int, constant: Buffer) -> Place | None:
        """Where in the workspace a constant lies that comes in a page; None for one that does not."""
        chosen = self.plan.schedule.choices[position].implementation
        offset = page_layout(chosen)[0].get(constant.name) if chosen.page else None
        return None if offset is None else self.located(self.plan.offset_of[chosen.page] + offset, constant.nbytes)

    def in_pages(self, position: int) -> tuple[Place, ...]:
        """Where the constants of an implementation lie that come in a page."""
        places = (self.in_page(position, constant) for constant in self.implementations[position].constants)
        return tuple(place for place in places if place is not None)

    def scratch(self, position: int) -> Place:
        """Where the scratch memory of the implementation at this position lies."""
        nbytes = self.plan.schedule.choices[position].implementation.scratch_nbytes
        return self.located(self.plan.offset_of[scratch_name(position)], nbytes)

    def align(self, name: str, position: int) -> int:
        """Known alignment in bytes of a buffer's first byte, or of all its rows if the implementation gets a table of them."""
        if self._scattered(name):
            between = () if self._is_table(name, position) else (row_nbytes(self.program[name]),)
            steps = (*self._offsets(name), *between)
            return min(self.plan.align, *(step & -step for step in steps if step), 1 << 30)
        place = self.place(name)
        base = self.ports[place.port].align if isinstance(place.port, int) else self.plan.align
        base = self.state_align if place.port == "state" else base
        return min(base, *(step & -step for step in (place.offset, place.start, *place.slide) if step), 1 << 30)

    def distinct(self, position: int) -> frozenset[str]:
        """Parameters of an implementation's function whose bytes none of its other pointers reaches in the same step."""
        implementation = self.implementations[position]
        names = (*implementation.reads, *implementation.writes)
        scratch = (self.scratch(position),) if implementation.scratch_nbytes else ()
        alone = set(names)
        for step in self.steps[position]:
            areas = [self._area(name, step) for name in names]
            for name, area in zip(names, areas):
                if sum(_meet(area, other) for other in (*areas, scratch)) > 1:
                    alone.discard(name)
        return frozenset(alone | {constant.name for constant in implementation.constants})

    def _area(self, name: str, step: Step) -> tuple[Place, ...]:
        """The bytes of a buffer that a step touches."""
        nbytes = row_nbytes(self.program[self.program.storage(name)])
        if self._scattered(name):
            region, offsets = self._region(name).name, self._offsets(name)
            return tuple(Place(region, offsets[row], nbytes) for row in self._touched(name, step))
        place, rows = self.place(name), self._touched(name, step)
        if len(self.steps[step.position]) == 1 or self.program[name].is_window:
            return (place,)
        return (replace(place, offset=place.offset + rows.start * nbytes, nbytes=len(rows) * nbytes),)


def _meet(some: Sequence[Place], others: Sequence[Place]) -> bool:
    return any(one.meets(other) for one in some for other in others)
