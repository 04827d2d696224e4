"""Parts: layers whose output rows several workers make at once.

Enters: what kernels offer for an instruction, and the number of threads. Leaves: the same implementations, those of layers that are worth
it in parts; or the sentence why not.
Invariant: no part touches a byte that another part writes, whichever of them run at once and in whatever order. So each has scratch of its
own, and the output may lie on an input only where each part's rows lie on what that part alone reads.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

from aot.graph.primitive import Call, Control
from aot.lower.rows import instruction_rows, row_nbytes, touched

if TYPE_CHECKING:
    from aot.graph.primitive import Primitive
    from aot.lower.implementation import Implementation, Rows
    from aot.lower.program import Program
    from aot.lower.select import Field

LEAST_WORK = 1 << 15
"""Multiply-accumulates (or elements, where none are multiplied) from which on a layer is worth handing out."""


def part_rows(rows: Rows, parts: int) -> tuple[range, ...]:
    """The rows of each part: steps of `per_step` rows, the first parts one more of them than the others where they do not come out even."""
    each, more = divmod(-(-rows.count // rows.per_step), parts)
    starts = [rows.per_step * (each * part + min(part, more)) for part in range(parts + 1)]
    return tuple(range(start, min(stop, rows.count)) for start, stop in pairwise(starts))


def split_fields(program: Program, fields: tuple[Field, ...], threads: int) -> tuple[Field, ...]:
    """What is offered for each instruction, in as many parts as there are threads where that is sound and worth it."""
    return tuple(
        replace(field, candidates=tuple(split(program, one, threads) for one in field.candidates)) if threads > 1 else field
        for field in fields
    )


def split(program: Program, one: Implementation, threads: int) -> Implementation:
    """The implementation in parts, or itself."""
    if why_whole(program, one):
        return one
    parts = min(threads, -(-one.rows.count // one.rows.per_step))
    rows = part_rows(one.rows, parts)
    return replace(
        one,
        parts=parts,
        scratch_nbytes=parts * -(-one.scratch_nbytes // one.scratch_align) * one.scratch_align,
        overwrites=tuple(name for name in one.overwrites if _reads_apart(program, one, name, rows)),
        overlap=(),
        skew=(),
    )


def why_whole(program: Program, one: Implementation) -> str:
    """Why an implementation can't be, or is not, divided; empty if it may be."""
    instruction, rows = one.instruction, one.rows
    if isinstance(instruction, Call | Control):
        return "a call"
    if (found := work(instruction)) < LEAST_WORK:
        return f"{found} operations are too few"
    if rows.accumulates or rows.images > 1:
        return "its rows add up" if rows.accumulates else "its kernel counts rows of several images"
    if rows.count <= rows.per_step or instruction_rows(instruction) != rows.count:
        return "its kernel makes all of it at once"
    single = part_rows(rows, -(-rows.count // rows.per_step))
    for name in dict.fromkeys(map(program.storage, one.writes)):
        if any(a.stop > b.start for a, b in pairwise(_spans(program, one, name, single))):
            return "its rows share bytes"
    return ""


def work(instruction: Primitive) -> int:
    """Multiply-accumulates, borders counted as full; of what does not multiply the elements that it goes over."""
    return 0 if isinstance(instruction, Call | Control) else prod((*instruction.space, *getattr(instruction, "window", ())))


def _spans(program: Program, one: Implementation, name: str, rows: tuple[range, ...]) -> list[range]:
    """The rows of a storage that each part touches."""
    return [touched(program, one.instruction, name, part.start, part.stop) for part in rows]


def _reads_apart(program: Program, one: Implementation, name: str, rows: tuple[range, ...]) -> bool:
    """Whether each part reads of a buffer just the bytes that it writes of the output, if that lies in its place."""
    storage, out = program.storage(name), program.storage(one.writes[0])
    places = [
        [
            (span.start * row_nbytes(program[each]), span.stop * row_nbytes(program[each]))
            for span in _spans(program, one, each, rows)
        ]
        for each in (storage, out)
    ]
    return places[0] == places[1]
