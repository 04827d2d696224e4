"""Plans whose layers run in steps of rows, in a random order, on buffers whose rows lie anywhere in the workspace.

Enters: a Program and a seed. Leaves: a Plan. Each row has bytes of its own from the first step that writes it to the last that reads it;
rows of all layers lie between each other, often without a gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aot.backends.generic import BACKEND, GENERIC
from aot.lower.check import check_plan
from aot.lower.implementation import Backend, Choice
from aot.lower.lifetime import Io, in_workspace
from aot.lower.place import plan as place
from aot.lower.plan import Plan, Schedule, Step, scratch_name
from aot.lower.program import Program
from aot.lower.rows import divided_alike, row_count, row_nbytes, step_rows
from aot.lower.schedule import schedule
from aot.lower.segments import Divisions, scheduled
from aot.lower.select import select
from aot.lower.streaming import Layers
from aot.target import Target


def scattered_plan(
    program: Program, target: Target, seed: int, io: Io = "caller", backend: Backend = BACKEND, most: int = 1
) -> Plan:
    """most: rows in a step, in units of what its kernel makes at once."""
    random = np.random.default_rng(seed)
    choices = select(program, backend, GENERIC, target)
    steps = interleaved(program, choices, random, most)
    return _Placing(program, choices, steps, io, random).plan()


def interleaved(program: Program, choices: Sequence[Choice], random: np.random.Generator, most: int) -> tuple[Step, ...]:
    """All rows of all layers, each step somewhere behind those that wrote what it reads."""
    waiting = [_pieces(position, choice, random, most) for position, choice in enumerate(choices)]
    unwritten: dict[tuple[str, int], int] = {}
    for step in (step for steps in waiting for step in steps):
        for row in touched_rows(program, choices, step, "writes"):
            unwritten[row] = unwritten.get(row, 0) + 1
    done: list[Step] = []
    while any(waiting):
        heads = [steps[0] for steps in waiting if steps]
        ready = [step for step in heads if not any(unwritten.get(row) for row in touched_rows(program, choices, step, "reads"))]
        step = ready[int(random.integers(len(ready)))]
        waiting[step.position].pop(0)
        for row in touched_rows(program, choices, step, "writes"):
            unwritten[row] -= 1
        done.append(step)
    return tuple(done)


def _pieces(position: int, choice: Choice, random: np.random.Generator, most: int) -> list[Step]:
    rows = choice.implementation.rows
    step = rows.per_step * int(random.integers(1, most + 1))
    return [Step(position, y, min(y + step, rows.count)) for y in range(0, rows.count, step)] or [Step(position, 0, rows.count)]


def touched_rows(program: Program, choices: Sequence[Choice], step: Step, what: str) -> list[tuple[str, int]]:
    """Rows, by storage and number, that a step reads or writes."""
    chosen = choices[step.position].implementation
    found = []
    for name in getattr(chosen, what):
        if not (what == "reads" and name in chosen.writes):
            rows = step_rows(program, chosen, name, step.y0, step.y1)
            found += [(program.storage(name), row) for row in rows]
    return found


@dataclass
class _Placing:
    """Finds a place for each row of what can lie scattered, and for everything else."""

    program: Program
    choices: tuple[Choice, ...]
    steps: tuple[Step, ...]
    io: Io
    random: np.random.Generator

    def plan(self) -> Plan:
        pieces = self._lifetimes()
        placed: dict[tuple[str, int], tuple[int, int]] = {}
        nbytes = 0
        for key in [list(pieces)[at] for at in self.random.permutation(len(pieces))]:
            size, align, first, last = pieces[key]
            taken = [placed[other] for other in placed if pieces[other][2] <= last and first <= pieces[other][3]]
            at = -(-int(self.random.integers(0, 40)) // align) * align
            while any(at < end and start < at + size for start, end in taken):
                at += align
            placed[key] = at, at + size
            nbytes = max(nbytes, at + size)
        scattered = self._scattered()
        rows = tuple((name, tuple(placed[name, row][0] for row in range(row_count(self.program[name])))) for name in scattered)
        offsets = tuple((name, at) for (name, row), (at, _) in placed.items() if row == -1)
        return Plan(Schedule(self.program, self.choices, self.steps), (), offsets, -(-nbytes // 8) * 8, 0, align=8, rows=rows)

    def _lifetimes(self) -> Mapping[tuple[str, int], tuple[int, int, int, int]]:
        """For each row, or whole storage (-1): bytes, alignment, first and last step."""
        found: dict[tuple[str, int], tuple[int, int, int, int]] = {}
        scattered, end = self._scattered(), len(self.steps) - 1
        outputs = set(map(self.program.storage, self.program.outputs))
        if self.io == "workspace":
            for name in map(self.program.storage, self.program.inputs):
                found[name, -1] = self.program[name].nbytes, 8, 0, end if name in outputs else 0
        for number, step in enumerate(self.steps):
            chosen = self.choices[step.position].implementation
            for name, row in (*touched_rows(self.program, self.choices, step, "reads"), *self._written(step)):
                buffer = self.program[name]
                if in_workspace(buffer, self.io):
                    key = (name, row) if name in scattered else (name, -1)
                    size = row_nbytes(buffer) if name in scattered else buffer.nbytes
                    first = found[key][2] if key in found else number
                    align = 4 if name not in scattered or self.random.random() < 0.5 else buffer.dtype.nbytes
                    found[key] = (size, max(align, buffer.dtype.nbytes), first, end if name in outputs else number)
            if chosen.scratch_nbytes:
                key = scratch_name(step.position), -1
                found[key] = chosen.scratch_nbytes, 8, found[key][2] if key in found else number, number
        for name in scattered:  # rows that nothing touches have an address nevertheless
            for row in range(row_count(self.program[name])):
                found.setdefault((name, row), (row_nbytes(self.program[name]), 8, 0, 0))
        return found

    def _written(self, step: Step) -> list[tuple[str, int]]:
        return touched_rows(self.program, self.choices, step, "writes")

    def _scattered(self) -> tuple[str, ...]:
        """The temporaries of several rows that every kernel can take so."""
        whole = set()
        for step in self.steps:
            chosen = self.choices[step.position].implementation
            for name in (*chosen.reads, *chosen.writes):
                rows = step_rows(self.program, chosen, name, step.y0, step.y1)
                if not divided_alike(self.program, name) or (len(rows) > 1 and name not in chosen.scatters):
                    whole.add(self.program.storage(name))
        names = [buffer.name for buffer in self.program.buffers if buffer.role == "temporary" and buffer.base is None]
        return tuple(name for name in names if name not in whole and row_count(self.program[name]) > 1)


def streamed_plan(program: Program, target: Target, io: Io = "caller", backend: Backend = BACKEND) -> Plan:
    """The plan with the least peak that streaming finds, checked."""
    whole = schedule(program, select(program, backend, GENERIC, target), io)
    layers = Layers(program, [choice.implementation for choice in whole.choices], [step.position for step in whole.steps], io)
    divisions = Divisions(layers)
    segments = divisions.cheapest(divisions.least_peak)
    assert segments is not None
    found = place(scheduled(whole, layers, segments), io)
    check_plan(found)
    return found
