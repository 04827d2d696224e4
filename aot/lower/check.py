"""The checker of a Plan: replays the steps on a byte array whose bytes know their owner.

Enters: a Plan. Leaves: nothing, or an InternalError that names the step and the buffers.
Invariant: independent of the planner. It uses no lifetime and no scheduler's dependency, only the steps, what each implementation
reads and writes, the instructions' stores, and the offsets. A step counts as its whole instruction.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from aot.errors import InternalError
from aot.graph.expr import Affine, Load
from aot.graph.primitive import Call, Control, Map, store_of
from aot.lower.blocks import loops, trace
from aot.lower.plan import scratch_name

if TYPE_CHECKING:
    from aot.graph.expr import IndexMap
    from aot.graph.ir import Shape
    from aot.graph.primitive import Primitive
    from aot.lower.implementation import Implementation
    from aot.lower.plan import Plan, Step
    from aot.lower.program import Program

NOBODY, SCRATCH = -1, -2


def check_plan(plan: Plan) -> None:
    """Raise InternalError unless, in the order of the steps, every read finds the bytes that the right buffer wrote there."""
    replay = _Replay(plan)
    replay.check_addresses()
    for number, (position, counts) in enumerate(replay.trace):
        replay.run(number, plan.schedule.steps[position], counts)
        for name in replay.local.get(position, ()):
            replay.written.pop(name, None)
    replay.check_end()


class _Replay:
    """The workspace while the steps run. `owner`: whose byte each one is. `written`: which bytes each storage has got."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.program = plan, plan.schedule.program
        self.owner = np.full(plan.workspace_nbytes, NOBODY, np.int32)
        self.written: dict[str, np.ndarray] = {}
        self.tag: dict[str, int] = {}
        for buffer in self.program.buffers:
            if buffer.base is None and buffer.role not in ("constant", "state"):
                self.tag[buffer.name] = len(self.tag)
        for name in self.program.inputs:
            self.written[name] = np.ones(self.program[name].nbytes, bool)
            self.mark(name, self.written[name])
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

    def place(self, name: str) -> np.ndarray | None:
        """The owners of a storage's bytes, as a view of the workspace; None if it lies elsewhere."""
        offset = self.plan.offset_of.get(name)
        return None if offset is None else self.owner[offset : offset + self.program[name].nbytes]

    def mark(self, name: str, written: np.ndarray) -> None:
        """Make these bytes of a storage its own."""
        place = self.place(name)
        if place is not None:
            place[written] = self.tag[name]

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

    def run(self, number: int, step: Step, counts: tuple[int, ...]) -> None:
        """One step: reads find their bytes, writes touch only what is allowed, scratch is poisoned before and after.

        `counts`: the turns of each loop around it.
        """
        chosen = self.plan.schedule.implementation(step)
        where = f"step {number} ({chosen.kernel})"
        reads, writes = self.storages(chosen.reads), self.storages(chosen.writes)
        for name in reads:
            self.check_whole(name, f"{where} reads", read_bytes(self.program, chosen.instruction, name) if name in writes else None)
        self.check_apart(where, chosen, reads, writes)
        self.poison(step, chosen, where, (*reads, *writes))
        for name in writes:
            self.check_kept(name, f"{where} adds to")
            now = written_bytes(self.program, chosen.instruction, name, counts)
            self.mark(name, now)
            self.written[name] = self.written_to(name) | now
        for name in self.ends.get(number, ()):
            self.written.pop(name, None)

    def storages(self, names: tuple[str, ...]) -> tuple[str, ...]:
        found = dict.fromkeys(map(self.program.storage, names))
        return tuple(name for name in found if name in self.tag)

    def written_to(self, name: str) -> np.ndarray:
        """Which bytes of a storage have been written."""
        return self.written[name] if name in self.written else np.zeros(self.program[name].nbytes, bool)

    def check_whole(self, name: str, what: str, needed: np.ndarray | None = None) -> None:
        """Every byte of the storage (or of the `needed` ones) has been written, and what has been written is still its own."""
        missing = ~self.written_to(name) if needed is None else needed & ~self.written_to(name)
        if missing.any():
            raise InternalError(f"{what} %{name}, of which {int(missing.sum())} bytes are not written yet")
        self.check_kept(name, what)

    def check_kept(self, name: str, what: str) -> None:
        """Every byte of the storage that has been written is still its own."""
        place = self.place(name)
        if place is None:
            if self.program[name].role == "temporary":
                raise InternalError(f"{what} %{name}, which has no place in the workspace")
            return
        lost = self.written_to(name) & (place != self.tag[name])
        if lost.any():
            byte = int(np.argmax(lost))
            raise InternalError(f"{what} %{name}, but its byte {byte} belongs to {self.name_of(int(place[byte]))}")

    def name_of(self, tag: int) -> str:
        return next((f"%{name}" for name, number in self.tag.items() if number == tag), "scratch" if tag == SCRATCH else "nobody")

    def span(self, name: str, nbytes: int) -> range:
        offset = self.plan.offset_of.get(name)
        return range(0) if offset is None else range(offset, offset + nbytes)

    def check_apart(self, where: str, chosen: Implementation, reads: Iterable[str], writes: tuple[str, ...]) -> None:
        """What the step writes shares no byte with what else it touches, except where `overwrites` allows it, byte on byte."""
        allowed = {self.program.storage(name) for name in chosen.overwrites}
        spans = {name: self.span(name, self.program[name].nbytes) for name in dict.fromkeys((*reads, *writes))}
        for name in writes:
            for other, span in spans.items():
                if other == name or not _meet(spans[name], span):
                    continue
                in_place = name == writes[0] and other in allowed and other not in writes and spans[name] == span
                if not in_place:
                    raise InternalError(f"{where}: %{name} lies on %{other}, which the step still uses")

    def poison(self, step: Step, chosen: Implementation, where: str, names: Iterable[str]) -> None:
        """Scratch destroys what was there, and shares no byte with the step's buffers."""
        if not chosen.scratch_nbytes:
            return
        name = scratch_name(step.position)
        if name not in self.plan.offset_of:
            raise InternalError(f"{where}: its scratch has no place in the workspace")
        span = self.span(name, chosen.scratch_nbytes)
        if span.stop > self.plan.workspace_nbytes or span.start % chosen.scratch_align:
            raise InternalError(f"{where}: scratch of {chosen.scratch_nbytes} bytes, align {chosen.scratch_align}, at {span.start}")
        for other in names:
            if _meet(span, self.span(other, self.program[other].nbytes)):
                raise InternalError(f"{where}: its scratch lies on %{other}")
        self.owner[span.start : span.stop] = SCRATCH

    def check_end(self) -> None:
        """Every instruction ran, and every output is whole."""
        ran = {step.position for step in self.plan.schedule.steps}
        if ran != set(range(len(self.program.instructions))) or len(self.plan.schedule.choices) != len(self.program.instructions):
            raise InternalError(f"{len(ran)} of {len(self.program.instructions)} instructions are in the schedule")
        for name in self.program.outputs:
            if self.program.storage(name) in self.tag:
                self.check_whole(self.program.storage(name), "the caller reads")


def _meet(a: range, b: range) -> bool:
    return bool(a) and bool(b) and a.start < b.stop and b.start < a.stop


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
    found = []
    for index in store:
        if isinstance(index, Affine):
            found.append(sum((coefficient * grid[axis] for axis, coefficient in index.terms), np.int64(index.offset)))
        else:
            found.append(np.asarray(index.entries, np.int64)[grid[index.axis]])
    return tuple(np.broadcast_arrays(*found)) if found else ()
