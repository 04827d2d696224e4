"""Lifetimes: from which step to which step each storage of the workspace is needed.

Enters: a Schedule. Leaves: `Use` (what a step touches) and `Lifetime` of each storage, scratch included.
Invariant: everything follows from the steps and from what their implementations say they read and write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from aot.lower.blocks import loops
from aot.lower.plan import Lifetime, scratch_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aot.lower.implementation import Implementation
    from aot.lower.plan import Schedule
    from aot.lower.program import Buffer, Program

Io = Literal["caller", "workspace"]
"""caller: inputs and outputs are the caller's memory. workspace: they lie in the workspace; inputs may be overwritten once read."""


@dataclass(frozen=True)
class Use:
    """What an implementation touches in the workspace, as storages, and which of those its first output may take over."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    overwrites: tuple[str, ...]

    @property
    def touched(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.reads, *self.writes)))


def in_workspace(buffer: Buffer, io: Io) -> bool:
    """Whether a storage is placed in the workspace (constants, state, a pushed input and, with io `caller`, inputs and outputs are not)."""
    return not buffer.pushed and buffer.role in (("temporary", "input", "output") if io == "workspace" else ("temporary",))


def use_of(program: Program, implementation: Implementation, io: Io) -> Use:
    """The workspace storages that an implementation reads, writes, and may overwrite."""

    def storages(names: tuple[str, ...]) -> tuple[str, ...]:
        found = dict.fromkeys(map(program.storage, names))
        return tuple(name for name in found if in_workspace(program[name], io))

    return Use(storages(implementation.reads), storages(implementation.writes), storages(implementation.overwrites))


def alignment(buffer: Buffer, least: int) -> int:
    """Bytes: the buffer's own alignment, its element's, or `least`, whichever is largest."""
    return max(least, buffer.align, buffer.dtype.nbytes)


def lifetimes(schedule: Schedule, io: Io, align: int = 4) -> tuple[Lifetime, ...]:
    """The lifetime of every storage in the workspace, in order of first use.

    With io `workspace`, inputs live from step 0 to their last reader, outputs from their first writer to the last step.
    Scratch lives during its implementation's steps only.
    """
    program, spans = schedule.program, dict[str, tuple[int, int]]()
    end = max(len(schedule.steps) - 1, 0)
    if io == "workspace":
        spans = {program.storage(name): (0, 0) for name in program.inputs if not program[program.storage(name)].pushed}
    for number, step in enumerate(schedule.steps):
        for name in use_of(program, schedule.implementation(step), io).touched:
            spans[name] = (spans.get(name, (number, number))[0], number)
    if io == "workspace":
        for name in map(program.storage, program.outputs):
            spans[name] = (spans.get(name, (end, end))[0], end)
    callers = {program.storage(name) for name in (*program.inputs, *program.outputs) if io == "workspace"}
    spans = _through_loops(spans, schedule, callers)
    named = [
        Lifetime(name, program[name].nbytes, first, last, alignment(program[name], align)) for name, (first, last) in spans.items()
    ]
    return tuple(sorted((*named, *_scratch(schedule, align)), key=lambda life: (life.first, life.last, life.name)))


def _through_loops(spans: dict[str, tuple[int, int]], schedule: Schedule, callers: set[str]) -> dict[str, tuple[int, int]]:
    """The spans with those that reach into or out of a loop lasting through all of it: the next turn finds what the last one left.

    callers: storages that are alive before the first step, or after the last.
    """
    touched: dict[str, list[int]] = {}
    found = loops(schedule.instructions)
    if not found:
        return spans
    for number, step in enumerate(schedule.steps):
        chosen = schedule.implementation(step)
        for name in dict.fromkeys(map(schedule.program.storage, (*chosen.reads, *chosen.writes))):
            touched.setdefault(name, []).append(number)
    longer: dict[str, tuple[int, int]] = {}
    for name, (first, last) in spans.items():
        for start, end in found:
            inside = any(start <= number <= end for number in touched.get(name, ()))
            if inside and (first < start or last > end or name in callers):
                first, last = min(first, start), max(last, end)
        longer[name] = (first, last)
    return longer


def _scratch(schedule: Schedule, align: int) -> tuple[Lifetime, ...]:
    spans: dict[int, tuple[int, int]] = {}
    for number, step in enumerate(schedule.steps):
        if schedule.implementation(step).scratch_nbytes:
            spans[step.position] = (spans.get(step.position, (number, number))[0], number)
    found: list[Lifetime] = []
    for position, (first, last) in spans.items():
        chosen = schedule.choices[position].implementation
        found.append(Lifetime(scratch_name(position), chosen.scratch_nbytes, first, last, max(align, chosen.scratch_align)))
    return tuple(found)


def merged(lives: tuple[Lifetime, ...], takes_over: Mapping[str, str]) -> tuple[Lifetime, ...]:
    """The lifetimes with each chain of storages that continue each other's bytes as one, named after the first of them."""
    by_name = {life.name: life for life in lives}
    groups: dict[str, Lifetime] = {}
    for life in lives:
        name = owner(life.name, takes_over)
        group = groups.get(name, by_name[name])
        groups[name] = Lifetime(
            name,
            max(group.nbytes, life.nbytes),
            min(group.first, life.first),
            max(group.last, life.last),
            max(group.align, life.align),
        )
    return tuple(groups.values())


def owner(name: str, takes_over: Mapping[str, str]) -> str:
    """The first storage of the chain that `name` continues."""
    while name in takes_over:
        name = takes_over[name]
    return name


def largest_live_nbytes(lives: tuple[Lifetime, ...]) -> int:
    """The largest sum of bytes alive at one step: no placement of these lifetimes needs less."""
    return max(live_nbytes(lives), default=0)


def live_nbytes(lives: tuple[Lifetime, ...]) -> list[int]:
    """Bytes alive at each step."""
    change = [0] * (max((life.last for life in lives), default=-1) + 2)
    for life in lives:
        change[life.first] += life.nbytes
        change[life.last + 1] -= life.nbytes
    total = 0
    totals: list[int] = []
    for delta in change[:-1]:
        total += delta
        totals.append(total)
    return totals
