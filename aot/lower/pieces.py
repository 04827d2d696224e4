"""Pieces: what is placed when layers run row by row, and from which step to which each part of it is needed.

Enters: a Schedule whose steps may be of rows, and the storages that are to lie scattered. Leaves: `Piece`s, and which of them may share
bytes in a step (`Share`).
Invariant: everything follows from the steps and from what their instructions touch; nothing from how the steps were found.

A piece has one offset: a tensor in one piece, whose rows come and go; a row of a scattered tensor; the scratch of an implementation, which
is needed during each of its steps, and not between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aot.lower.implementation import Skew
from aot.lower.lifetime import alignment, in_workspace
from aot.lower.plan import PROGRESS, PROGRESS_NBYTES, scratch_name
from aot.lower.rows import row_count, row_nbytes, step_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from aot.lower.implementation import Rule
    from aot.lower.lifetime import Io
    from aot.lower.plan import Schedule, Step
    from aot.lower.program import Program


@dataclass(frozen=True)
class Part:
    """Bytes [low, high) of a piece, needed from step `first` to step `last`, both included."""

    low: int
    high: int
    first: int
    last: int


@dataclass(frozen=True)
class Piece:
    """What gets one offset. row: of a scattered storage (None: the storage as a whole, or scratch)."""

    storage: str
    row: int | None
    nbytes: int
    align: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Share:
    """Bytes of `old` from `old_low` on, which step `step` is the last to need, may be those of `new` from `new_low` on, which it writes,
    as `rule` says. Pieces by number."""

    old: int
    old_low: int
    old_nbytes: int
    new: int
    new_low: int
    new_nbytes: int
    step: int
    rule: Rule

    @property
    def most_nbytes(self) -> int:
        """Bytes that the two have in common at most."""
        if isinstance(self.rule, Skew):
            return self.old_nbytes + self.new_nbytes - self.rule.span_nbytes(self.old_nbytes, self.new_nbytes)
        return min(self.old_nbytes, self.new_nbytes)


class RowUse:
    """First and last step that need each row of each storage in the workspace. Outputs are needed after the last step, too."""

    def __init__(self, schedule: Schedule, io: Io) -> None:
        self.schedule, self.program = schedule, schedule.program
        self.io: Io = io
        self.spans: dict[str, list[tuple[int, int]]] = {}
        end = len(schedule.steps)
        if io == "workspace":
            for name in (name for name in map(self.program.storage, self.program.inputs) if not self.program[name].pushed):
                self.spans[name] = [(0, 0)] * row_count(self.program[name])
        for number, step in enumerate(schedule.steps):
            for name, rows in self.touched(step).items():
                spans = self.spans.setdefault(name, [(-1, -1)] * row_count(self.program[name]))
                for row in rows:
                    first = spans[row][0]
                    spans[row] = (number if first < 0 else first, number)
        if io == "workspace":
            for name in map(self.program.storage, self.program.outputs):
                self.spans[name] = [(end if first < 0 else first, end) for first, _ in self.spans.get(name, [(end, end)])]

    def touched(self, step: Step) -> Mapping[str, range]:
        """The rows of each storage in the workspace that a step touches."""
        chosen = self.schedule.implementation(step)
        found: dict[str, range] = {}
        for name in dict.fromkeys(map(self.program.storage, (*chosen.reads, *chosen.writes))):
            if in_workspace(self.program[name], self.io):
                found[name] = step_rows(self.program, chosen, name, step.y0, step.y1)
        return found


def pieces(schedule: Schedule, io: Io, scattered: Collection[str], align: int = 4) -> tuple[tuple[Piece, ...], tuple[Share, ...]]:
    """All pieces, and the shares that implementations allow."""
    use, program = RowUse(schedule, io), schedule.program
    found: list[Piece] = []
    number: dict[tuple[str, int | None], int] = {}
    for name, spans in use.spans.items():
        buffer = program[name]
        least, nbytes = alignment(buffer, align), row_nbytes(buffer)
        if name in scattered:
            for row, (first, last) in enumerate(spans):
                if first >= 0:
                    number[name, row] = len(found)
                    found.append(Piece(name, row, nbytes, least, (Part(0, nbytes, first, last),)))
        else:
            number[name, None] = len(found)
            found.append(Piece(name, None, buffer.nbytes, least, _runs(spans, nbytes)))
    found += _scratch(schedule, align)
    if any(buffer.pushed for buffer in program.buffers):
        parts = (Part(0, PROGRESS_NBYTES, 0, len(schedule.steps)),)
        found.append(Piece(PROGRESS, None, PROGRESS_NBYTES, max(align, PROGRESS_NBYTES), parts))
    return tuple(found), tuple(_shares(schedule, use, number))


def _runs(spans: list[tuple[int, int]], nbytes: int) -> tuple[Part, ...]:
    """Neighbouring rows with the same span as one part; rows that nothing touches are none."""
    parts: list[Part] = []
    for row, (first, last) in enumerate(spans):
        if first < 0:
            continue
        if parts and parts[-1].high == row * nbytes and (parts[-1].first, parts[-1].last) == (first, last):
            parts[-1] = Part(parts[-1].low, (row + 1) * nbytes, first, last)
        else:
            parts.append(Part(row * nbytes, (row + 1) * nbytes, first, last))
    return tuple(parts)


def _scratch(schedule: Schedule, align: int) -> list[Piece]:
    spans: dict[int, list[Part]] = {}
    for number, step in enumerate(schedule.steps):
        chosen = schedule.implementation(step)
        if not chosen.scratch_nbytes:
            continue
        parts = spans.setdefault(step.position, [])
        if parts and parts[-1].last == number - 1:
            parts[-1] = Part(0, chosen.scratch_nbytes, parts[-1].first, number)
        else:
            parts.append(Part(0, chosen.scratch_nbytes, number, number))
    found: list[Piece] = []
    for position, parts in spans.items():
        chosen = schedule.choices[position].implementation
        least = max(align, chosen.scratch_align)
        found.append(Piece(scratch_name(position), None, chosen.scratch_nbytes, least, tuple(parts)))
    return found


def _shares(schedule: Schedule, use: RowUse, number: Mapping[tuple[str, int | None], int]) -> list[Share]:
    """What each step's output may share with rows that the step is the last to read."""
    found: list[Share] = []
    for at, step in enumerate(schedule.steps):
        chosen = schedule.implementation(step)
        rows = use.touched(step)
        written = {schedule.program.storage(name) for name in chosen.writes}
        if len(written) != 1 or not written <= rows.keys():
            continue
        (out,) = written
        whole = (step.y0, step.y1) == (0, chosen.rows.count)
        for read, rule in chosen.sharing(step.y1 - step.y0).items():
            name = schedule.program.storage(read)
            if name == out or name not in rows:
                continue
            inputs = [row for row in rows[name] if use.spans[name][row][1] == at]
            outputs = [row for row in rows[out] if use.spans[out][row][0] == at]
            joined = whole and rule != "anywhere"
            if joined and (len(inputs) < len(use.spans[name]) or len(outputs) < len(use.spans[out])):
                continue
            for row, old in _extents(schedule.program, number, name, inputs, joined):
                for other, new in _extents(schedule.program, number, out, outputs, joined):
                    if rule != "element" or row == other:
                        found.append(Share(*old, *new, at, rule))
    return found


def _extents(
    program: Program, number: Mapping[tuple[str, int | None], int], name: str, rows: list[int], joined: bool
) -> list[tuple[int, tuple[int, int, int]]]:
    """Each of these rows, or 0 for the storage as a whole: (piece, first byte in it, bytes)."""
    nbytes = row_nbytes(program[name])
    if joined:
        return [(0, (number[name, None], 0, program[name].nbytes))] if (name, None) in number else []
    if (name, None) in number:
        return [(row, (number[name, None], row * nbytes, nbytes)) for row in rows]
    return [(row, (number[name, row], 0, nbytes)) for row in rows]
