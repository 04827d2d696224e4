"""The checker of a Plan: replays the steps on a byte array whose bytes know their owner.

Enters: a Plan. Leaves: nothing, or an InternalError that names the step and the buffers.
Invariant: independent of the planner. It uses no lifetime and no scheduler's dependency, only the steps, what each implementation
reads and writes, the instructions' stores, and the offsets. A step of rows reads and writes the rows that its instruction's index
maps name.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from aot.errors import InternalError
from aot.graph.expr import Affine, Load
from aot.graph.primitive import Call, Control, Map, store_of
from aot.lower.blocks import loops, trace
from aot.lower.implementation import Skew, request_of
from aot.lower.parts import part_rows
from aot.lower.plan import PROGRESS, PROGRESS_NBYTES, scratch_name
from aot.lower.rows import row_count, row_nbytes, step_rows, touched

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aot.graph.expr import IndexMap
    from aot.graph.ir import Shape
    from aot.graph.primitive import Primitive
    from aot.lower.implementation import Implementation, Rule
    from aot.lower.plan import Plan, Step
    from aot.lower.program import Program

NOBODY, SCRATCH = -1, -2


def check_plan(plan: Plan) -> None:
    """Raise InternalError unless, in the order of the steps, every read finds the bytes that the right buffer wrote there."""
    replay = _Replay(plan)
    replay.check_addresses()
    replay.check_regions()
    for number, (position, counts) in enumerate(replay.trace):
        replay.run(number, plan.schedule.steps[position], counts)
        for name in replay.local.get(position, ()):
            replay.written.pop(name, None)
    replay.check_end()
    replay.check_arrival()


class _Replay:
    """The workspace while the steps run. `owner`: whose byte each one is. `written`: which bytes each storage has got."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.program = plan, plan.schedule.program
        self.owner = np.full(plan.workspace_nbytes, NOBODY, np.int32)
        self.written: dict[str, np.ndarray] = {}
        self.tag: dict[str, int] = {}
        tags = 0
        for buffer in self.program.buffers:
            if buffer.base is None and buffer.role not in ("constant", "state"):
                self.tag[buffer.name] = tags
                tags += row_count(buffer)
        for name in map(self.program.storage, self.program.inputs):
            self.written[name] = np.ones(self.program[name].nbytes, bool)
            self.mark(name, range(self.program[name].nbytes), self.written[name])
        self.arriving: list[str] = []
        self.trace = tuple(trace(plan.schedule.instructions))
        self.local = self._local()
        self.ends = self._ends()

    def _ends(self) -> dict[int, list[str]]:
        """For each step the storages that no later step names, and that are no outputs: what was written to them is forgotten then."""
        last: dict[str, int] = {}
        for number, (position, _) in enumerate(self.trace):
            chosen = self.plan.schedule.implementation(self.plan.schedule.steps[position])
            last.update((name, number) for name in self.storages((*chosen.reads, *chosen.writes)))
        kept = {self.program.storage(name) for name in self.program.outputs}
        ends: dict[int, list[str]] = {}
        for name, number in last.items():
            if name not in kept:
                ends.setdefault(number, []).append(name)
        return ends

    def _local(self) -> dict[int, list[str]]:
        """For the position of each loop's end the storages that nothing outside the loop touches, nor the caller: each turn writes
        them anew."""
        callers = set(map(self.program.storage, (*self.program.inputs, *self.program.outputs)))
        touched: dict[str, list[int]] = {}
        for position, step in enumerate(self.plan.schedule.steps):
            chosen = self.plan.schedule.implementation(step)
            for name in self.storages((*chosen.reads, *chosen.writes)):
                touched.setdefault(name, []).append(position)
        return {
            end: [
                name for name, positions in touched.items() if start < positions[0] and positions[-1] < end and name not in callers
            ]
            for start, end in loops(self.plan.schedule.instructions)
        }

    def owners(self, name: str, span: range) -> np.ndarray | None:
        """Whose each of these bytes of a storage is; None if it lies elsewhere than in the workspace. A view, but of scattered rows a copy."""
        where = self.where(name, span)
        return None if where is None else self.owner[where]

    def where(self, name: str, span: range) -> slice | np.ndarray | None:
        """Where in the workspace these bytes of a storage lie."""
        if (rows := self.plan.row_offsets.get(name)) is not None:
            size = self.program[name].nbytes // max(len(rows), 1)
            bytes_ = np.arange(span.start, span.stop)
            return np.array(rows)[bytes_ // size] + bytes_ % size
        offset = self.plan.offset_of.get(name)
        return None if offset is None else slice(offset + span.start, offset + span.stop)

    def tags(self, name: str, span: range) -> np.ndarray | int:
        """What marks these bytes of a storage as its own: where layers run by rows, each row has a mark."""
        if not self.plan.schedule.by_rows or row_count(self.program[name]) == 1:
            return self.tag[name]
        return self.tag[name] + np.arange(span.start, span.stop) // row_nbytes(self.program[name])

    def mark(self, name: str, span: range, written: np.ndarray) -> None:
        """Make those of these bytes of a storage that are written its own."""
        where = self.where(name, span)
        if where is not None:
            self.owner[where] = np.where(written, self.tags(name, span), self.owner[where])

    def check_addresses(self) -> None:
        """Every storage that must be in the workspace is, aligned and inside."""
        for life in self.plan.lifetimes:
            offset = self.plan.offset_of[life.name]
            if offset < 0 or offset % life.align or offset + life.nbytes > self.plan.workspace_nbytes:
                raise InternalError(
                    f"%{life.name} ({life.nbytes} bytes, align {life.align}) at {offset} of {self.plan.workspace_nbytes}"
                )
            if life.name in self.tag and life.nbytes != self.program[life.name].nbytes:
                raise InternalError(f"%{life.name} has {self.program[life.name].nbytes} bytes, its place {life.nbytes}")
        if self.plan.workspace_nbytes % self.plan.align or any(self.plan.align % life.align for life in self.plan.lifetimes):
            raise InternalError(f"workspace of {self.plan.workspace_nbytes} bytes, align {self.plan.align}")

    def check_regions(self) -> None:
        """Regions share no byte and are none too large; each storage, with all rows that lie scattered, and each scratch is inside one."""
        regions, free = self.plan.regions, 0
        for region in regions:
            if region.start != free or region.nbytes < 0 or region.start % self.plan.align:
                raise InternalError(f"region {region.name} begins at {region.start}, the one before ends at {free}")
            if region.nbytes > region.size_nbytes:
                raise InternalError(f"region {region.name} has {region.size_nbytes} bytes, and {region.nbytes} are placed in it")
            free = region.stop
        if regions and free != self.plan.workspace_nbytes:
            raise InternalError(f"regions of {free} bytes, workspace of {self.plan.workspace_nbytes}")
        places = {name: self.hull(name, range(self.program[name].nbytes)) for name in self.tag}
        for position, choice in enumerate(self.plan.schedule.choices):
            if (start := self.plan.offset_of.get(scratch_name(position))) is not None:
                places[scratch_name(position)] = range(start, start + choice.implementation.scratch_nbytes)
        if (start := self.plan.offset_of.get(PROGRESS)) is not None:
            places[PROGRESS] = range(start, start + PROGRESS_NBYTES)
        for name, place in places.items():
            inside = any(region.start <= place.start and place.stop <= region.stop for region in regions)
            if regions and place and not inside:
                raise InternalError(f"%{name} at {place.start}..{place.stop} is not in one region")

    def run(self, number: int, step: Step, counts: tuple[int, ...]) -> None:
        """One step: reads find their bytes, writes touch only what is allowed, scratch is poisoned before and after.

        `counts`: the turns of each loop around it.
        """
        chosen = self.plan.schedule.implementation(step)
        where = f"step {number} ({chosen.kernel})"
        if request_of(chosen.instruction) is not None:
            self.ask(chosen, where)
            return
        if self.plan.schedule.window is not None and chosen.constants and not chosen.page:
            raise InternalError(f"{where}: its constants are in no page")
        reads, writes = self.storages(chosen.reads), self.storages(chosen.writes)
        rows = {name: self.bytes_of(step, name) for name in dict.fromkeys((*reads, *writes))}
        for name in reads:
            needed = read_bytes(self.program, chosen.instruction, name) if name in writes else None
            self.check_whole(name, rows[name], f"{where} reads", needed)
        self.check_apart(where, step, rows, writes)
        if chosen.parts > 1:
            self.check_parts(step, chosen, where)
        self.poison(step, chosen, where, rows)
        for name in writes:
            self.check_kept(name, rows[name], f"{where} adds to")
            span = rows[name]
            now = written_bytes(self.program, chosen.instruction, name, counts)[span.start : span.stop]
            self.mark(name, span, now)
            self.written[name] = self.written_to(name)
            self.written[name][span.start : span.stop] |= now
        for name in self.ends.get(number, ()):
            self.written.pop(name, None)

    def ask(self, chosen: Implementation, where: str) -> None:
        """A request: the page that was asked for last has come; the bytes of the new one are its own, but not written yet."""
        for name in self.arriving:
            self.written[name] = np.ones(self.program[name].nbytes, bool)
        self.arriving = list(chosen.writes)
        for name in chosen.writes:
            span = range(self.program[name].nbytes)
            self.mark(name, span, np.ones(len(span), bool))
        held = {*self.plan.schedule.pages.values()} & {*self.written, *self.arriving}
        window = self.plan.schedule.window.nbytes if self.plan.schedule.window else 0
        if (nbytes := sum(self.program[name].nbytes for name in held)) > window:
            raise InternalError(f"{where}: {nbytes} bytes of pages at once, more than the window of {window}")

    def bytes_of(self, step: Step, name: str) -> range:
        """The bytes of a storage that a step touches: all of them, or those of some rows."""
        buffer = self.program[name]
        rows = step_rows(self.program, self.plan.schedule.implementation(step), name, step.y0, step.y1)
        return range(rows.start * row_nbytes(buffer), rows.stop * row_nbytes(buffer))

    def storages(self, names: tuple[str, ...]) -> tuple[str, ...]:
        found = dict.fromkeys(map(self.program.storage, names))
        return tuple(name for name in found if name in self.tag)

    def written_to(self, name: str) -> np.ndarray:
        """Which bytes of a storage have been written."""
        return self.written[name] if name in self.written else np.zeros(self.program[name].nbytes, bool)

    def check_whole(self, name: str, span: range, what: str, needed: np.ndarray | None = None) -> None:
        """All these bytes of the storage (or the `needed` ones of them) have been written, and what has been written is still its own."""
        missing = ~self.written_to(name)[span.start : span.stop]
        if needed is not None:
            missing &= needed[span.start : span.stop]
        if missing.any():
            raise InternalError(f"{what} %{name}, of which {int(missing.sum())} bytes are not written yet")
        self.check_kept(name, span, what)

    def check_kept(self, name: str, span: range, what: str) -> None:
        """Each of these bytes of the storage that has been written is still its own."""
        owners = self.owners(name, span)
        if owners is None:
            if self.program[name].role == "temporary":
                raise InternalError(f"{what} %{name}, which has no place in the workspace")
            return
        lost = self.written_to(name)[span.start : span.stop] & (owners != self.tags(name, span))
        if lost.any():
            byte = int(np.argmax(lost))
            raise InternalError(f"{what} %{name}, but its byte {span.start + byte} belongs to {self.name_of(int(owners[byte]))}")

    def name_of(self, tag: int) -> str:
        if tag in (SCRATCH, NOBODY):
            return "scratch" if tag == SCRATCH else "nobody"
        name, first = max(((name, first) for name, first in self.tag.items() if first <= tag), key=lambda entry: entry[1])
        return f"row {tag - first} of %{name}" if tag > first else f"%{name}"

    def check_apart(self, where: str, step: Step, rows: Mapping[str, range], writes: tuple[str, ...]) -> None:
        """What the step writes shares no byte with what else it touches, except as the implementation allows."""
        chosen = self.plan.schedule.implementation(step)
        rules: dict[str, Rule] = {self.program.storage(name): rule for name, rule in chosen.sharing(step.y1 - step.y0).items()}
        for name in writes:
            for other in rows:
                if other == name or not _meet(self.hull(name, rows[name]), self.hull(other, rows[other])):
                    continue
                out, old = self.extents(step, name, rows[name]), self.extents(step, other, rows[other])
                rule = rules.get(other) if name == writes[0] and other not in writes else None
                if isinstance(rule, Skew) and {name, other} & self.plan.row_offsets.keys():
                    rule = None
                first, second = (self.first_row(name, rows[name]), self.first_row(other, rows[other]))
                for at, new in enumerate(out, first):
                    for row, before in enumerate(old, second):
                        allowed = _may_lie(rule, new, before) and (rule != "element" or at == row)
                        if _meet(new, before) and not allowed:
                            raise InternalError(f"{where}: %{name} lies on %{other}, which the step still uses")

    def check_parts(self, step: Step, chosen: Implementation, where: str) -> None:
        """The parts of a step make all of its rows; and what one writes no other touches, whichever of them run at once."""
        parts, rows = part_rows(chosen.rows, chosen.parts), chosen.rows
        if [part.start for part in parts] + [rows.count] != [0] + [part.stop for part in parts] or not all(parts):
            raise InternalError(f"{where}: its parts make rows {', '.join(map(str, parts))} of {rows.count}")
        if (step.y0, step.y1) != (0, rows.count) or rows.accumulates or any(part.start % rows.per_step for part in parts):
            raise InternalError(f"{where}: rows {step.y0}..{step.y1} can't be made in parts")
        if chosen.scratch_nbytes % (chosen.parts * chosen.scratch_align):
            raise InternalError(f"{where}: scratch of {chosen.scratch_nbytes} bytes does not divide by {chosen.parts} parts")
        written = [self.areas(chosen, chosen.writes, part) for part in parts]
        touches = [self.areas(chosen, (*chosen.reads, *chosen.writes), part) for part in parts]
        for one, other in itertools.permutations(range(len(parts)), 2):
            for name, (memory, place) in written[one].items():
                for another, (elsewhere, its_place) in touches[other].items():
                    if memory == elsewhere and _meet(place, its_place):
                        raise InternalError(f"{where}: part {one} writes to %{name} where part {other} uses %{another}")

    def areas(self, chosen: Implementation, names: tuple[str, ...], part: range) -> dict[str, tuple[str, range]]:
        """Of each storage but constants what a part of a step touches: behind which pointer, and where."""
        found: dict[str, tuple[str, range]] = {}
        for name in dict.fromkeys(map(self.program.storage, names)):
            if self.program[name].role != "constant":
                rows, nbytes = (
                    touched(self.program, chosen.instruction, name, part.start, part.stop),
                    row_nbytes(self.program[name]),
                )
                span = range(rows.start * nbytes, rows.stop * nbytes)
                placed = self.where(name, span) is not None
                found[name] = ("", self.hull(name, span)) if placed else (name, span)
        return found

    def first_row(self, name: str, span: range) -> int:
        return span.start // max(row_nbytes(self.program[name]), 1)

    def hull(self, name: str, span: range) -> range:
        """From the first to the last byte of the workspace that these bytes of a storage take."""
        where = self.where(name, span)
        if where is None or not span:
            return range(0)
        if isinstance(where, slice):
            return range(where.start, where.stop)
        return range(int(where.min()), int(where.max()) + 1)

    def extents(self, step: Step, name: str, span: range) -> list[range]:
        """What of a storage a step takes for one run of pixels: the whole of it, or its rows one by one."""
        chosen, buffer = self.plan.schedule.implementation(step), self.program[name]
        if (step.y0, step.y1) == (0, chosen.rows.count) and name not in self.plan.row_offsets:
            return [self.hull(name, span)]
        size = row_nbytes(buffer)
        return [self.hull(name, range(start, start + size)) for start in range(span.start, span.stop, size)]

    def poison(self, step: Step, chosen: Implementation, where: str, rows: Mapping[str, range]) -> None:
        """Scratch destroys what was there, and shares no byte with what the step touches of its buffers."""
        if not chosen.scratch_nbytes:
            return
        offset = self.plan.offset_of.get(scratch_name(step.position))
        if offset is None:
            raise InternalError(f"{where}: its scratch has no place in the workspace")
        span = range(offset, offset + chosen.scratch_nbytes)
        if span.stop > self.plan.workspace_nbytes or span.start % chosen.scratch_align:
            raise InternalError(f"{where}: scratch of {chosen.scratch_nbytes} bytes, align {chosen.scratch_align}, at {span.start}")
        for other, touched_bytes in rows.items():
            if any(_meet(span, extent) for extent in self.extents(step, other, touched_bytes)):
                raise InternalError(f"{where}: its scratch lies on %{other}")
        self.owner[span.start : span.stop] = SCRATCH

    def check_arrival(self) -> None:
        """The rows of a pushed input are read one by one, each once; and nothing was stored where the run's progress is kept."""
        for name in (buffer.name for buffer in self.program.buffers if buffer.pushed):
            read: list[range] = []
            for step in self.plan.schedule.steps:
                chosen = self.plan.schedule.implementation(step)
                if name in self.storages(chosen.reads):
                    read.append(step_rows(self.program, chosen, name, step.y0, step.y1))
            if read != [range(row, row + 1) for row in range(row_count(self.program[name]))]:
                raise InternalError(f"the rows of %{name} are not read one by one, each once, in order")
            offset = self.plan.offset_of[PROGRESS]
            if (self.owner[offset : offset + PROGRESS_NBYTES] != NOBODY).any():
                raise InternalError("something lies where the progress of the run is kept")

    def check_end(self) -> None:
        """Every instruction ran, all of its rows in order, and every output is whole."""
        ran: dict[int, int] = {}
        for step in self.plan.schedule.steps:
            if step.y0 != ran.get(step.position, 0):
                raise InternalError(f"rows {step.y0}..{step.y1} of instruction {step.position} after {ran.get(step.position, 0)}")
            ran[step.position] = step.y1
        complete = [
            position for position, rows in ran.items() if rows == self.plan.schedule.choices[position].implementation.rows.count
        ]
        count = len(self.program.instructions)
        if len(complete) != count or len(self.plan.schedule.choices) != count:
            raise InternalError(f"{len(complete)} of {count} instructions are in the schedule")
        for name in self.program.outputs:
            if self.program.storage(name) in self.tag:
                owner = self.program.storage(name)
                self.check_whole(owner, range(self.program[owner].nbytes), "the caller reads")


def _meet(a: range, b: range) -> bool:
    return bool(a) and bool(b) and a.start < b.stop and b.start < a.stop


def _may_lie(rule: Rule | None, new: range, old: range) -> bool:
    """Whether a step may write bytes `new` where it reads bytes `old`."""
    if isinstance(rule, Skew):
        return rule.allows(old.start - new.start)
    if rule == "anywhere":
        return True
    if rule == "forward":
        return new.start <= old.start + min(0, len(old) - len(new))
    return rule in ("same", "element") and new == old


def written_bytes(program: Program, instruction: Primitive, storage: str, counts: tuple[int, ...] = ()) -> np.ndarray:
    """Which bytes of a storage an instruction writes; through a window, in all turns of the loops around it together."""
    found = np.zeros(program[storage].nbytes, bool)
    if isinstance(instruction, Call | Control):
        found[:] = True
        return found
    out = program[instruction.out]
    if program.storage(out.name) != storage:
        return found
    elements = np.zeros(out.shape, bool)
    if not instruction.store and instruction.space == out.shape:
        elements[...] = True
    elif 0 not in instruction.space:
        elements[_indices(store_of(instruction), instruction.space)] = True
    through = np.repeat(elements.reshape(-1), out.dtype.nbytes)
    if not out.is_window:
        return through
    for turns in itertools.product(*(range(count) for count, step in zip(counts, out.slide) if step)):
        start = out.offset + sum(step * turn for step, turn in zip(filter(None, out.slide), turns))
        found[start : start + through.size] |= through
    return found


def read_bytes(program: Program, instruction: Primitive, storage: str) -> np.ndarray | None:
    """Which bytes of a storage a Map reads, where it is a plain copy; None for anything else, which needs the whole storage."""
    if not isinstance(instruction, Map) or not isinstance(instruction.value, Load) or 0 in instruction.space:
        return None
    load = instruction.value
    if load.buffer != storage or load.fill is not None:
        return None
    elements = np.zeros(program[storage].shape, bool)
    elements[_indices(load.index, instruction.space)] = True
    return np.repeat(elements.reshape(-1), program[storage].dtype.nbytes)


def _indices(store: tuple[IndexMap, ...], space: Shape) -> tuple[np.ndarray, ...]:
    """For each dimension of the buffer, the positions that are stored to (or read), over the space."""
    grid = np.ogrid[tuple(slice(size) for size in space)]
    found: list[np.ndarray | np.int64] = []
    for index in store:
        if isinstance(index, Affine):
            found.append(sum((coefficient * grid[axis] for axis, coefficient in index.terms), np.int64(index.offset)))
        else:
            found.append(np.asarray(index.entries, np.int64)[grid[index.axis]])
    return tuple(np.broadcast_arrays(*found)) if found else ()
