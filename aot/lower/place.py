"""Placement: an offset in the workspace for every storage.

Enters: a Schedule (`plan`) or bare lifetimes (`place`). Leaves: a Plan, or offsets.
Invariant: two storages alive at the same step share no byte, unless one continues the other's; the total is never above
greedy-by-size's. Searches are limited by a count of nodes, never by time, so that the same lifetimes always get the same offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aot.graph.primitive import Control
from aot.lower.arrange import MAX_TRIES, arrange, needed_nbytes
from aot.lower.inplace import needed_takeovers, possible_takeovers
from aot.lower.lifetime import largest_live_nbytes, lifetimes, live_nbytes, merged, owner
from aot.lower.pages import with_pages, without_pages
from aot.lower.pieces import pieces
from aot.lower.plan import Lifetime, Plan, row_name
from aot.lower.rows import row_count
from aot.lower.search import place_exactly

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aot.lower.lifetime import Io
    from aot.lower.pieces import Piece
    from aot.lower.plan import Schedule

MAX_PAIRS = 4_000_000
"""Pairs of storages compared, over all heuristics: enough for all of them up to some 400 storages."""


def plan(schedule: Schedule, io: Io = "caller", inplace: bool = True, align: int = 4, quick: bool = False) -> Plan:
    """Offsets for a schedule. `align`: bytes, of the workspace and of everything in it (elements of 8 bytes raise it to 8). quick: rows
    are placed only in the orders that are good more often than not.

    Tries no in-place at all, all that implementations allow, and only what lowers the peak; keeps the smallest, in that order.
    `lower_bound_nbytes` is the largest sum of live bytes with every permitted in-place.
    """
    if schedule.window is not None:
        schedule = paged(without_pages(schedule), io, inplace, align)
    by_rows = plan_rows(schedule, io, inplace, align, quick) if schedule.by_rows or (inplace and skews(schedule)) else None
    if schedule.by_rows and by_rows is not None:
        return by_rows
    lives = lifetimes(schedule, io, align)
    align = max((life.align for life in lives), default=align)
    possible = possible_takeovers(schedule, lives, io) if inplace else {}
    best, takes_over = place_lives(lives, possible, align)
    offsets = tuple((life.name, best.offsets[life.name]) for life in lives)
    bound = largest_live_nbytes(merged(lives, possible))
    whole = Plan(schedule, lives, offsets, best.nbytes, bound, tuple(takes_over.items()), best.method, align)
    return whole if by_rows is None or whole.workspace_nbytes <= by_rows.workspace_nbytes else by_rows


def paged(schedule: Schedule, io: Io, inplace: bool, align: int) -> Schedule:
    """The schedule with pages for its constants."""
    if schedule.window is None or not schedule.window.is_thrifty:
        return with_pages(schedule)
    late = with_pages(schedule, [0] * len(schedule.steps))
    if late.by_rows or (inplace and skews(late)):
        found, shares = pieces(late, io, late.scattered, align)
        needed = needed_nbytes(found, shares if inplace else ())
    else:
        lives = lifetimes(late, io, align)
        needed = live_nbytes(merged(lives, possible_takeovers(late, lives, io) if inplace else {}))
    own = [nbytes for step, nbytes in zip(late.steps, needed) if step.position < len(schedule.choices)]
    peak = max(needed, default=0)
    return with_pages(schedule, [peak - nbytes for nbytes in own] + [peak] * (len(schedule.steps) - len(own)))


def skews(schedule: Schedule) -> bool:
    """Whether some layer's output may lie on its input, but not at the same place; in straight-line code."""
    every = [choice.implementation for choice in schedule.choices]
    return any(one.skew for one in every) and not any(isinstance(one.instruction, Control) for one in every)


def place_lives(
    lives: tuple[Lifetime, ...], possible: Mapping[str, str], align: int, enough_nbytes: int = 0
) -> tuple[Placement, Mapping[str, str]]:
    """Offsets for each of these lifetimes, and which of the `possible` pairs that takes. enough_nbytes: as for `place`."""
    placed: list[tuple[Placement, Mapping[str, str]]] = [(_place_merged(lives, {}, align, enough_nbytes), {})]
    if possible and placed[0][0].nbytes > enough_nbytes:
        everything = _place_merged(lives, possible, align, enough_nbytes)
        needed = needed_takeovers(lives, possible, everything.nbytes)
        placed += [(_place_merged(lives, needed, align, enough_nbytes), needed), (everything, possible)]
    best, takes_over = min(placed, key=lambda entry: entry[0].nbytes)
    offsets = {life.name: best.offsets[owner(life.name, takes_over)] for life in lives}
    return replace(best, offsets=offsets), takes_over


def plan_rows(schedule: Schedule, io: Io, inplace: bool, align: int, quick: bool = False) -> Plan:
    """Offsets for a schedule in which layers run by rows: tensors in one piece, rows of scattered ones, scratch."""
    found, shares = pieces(schedule, io, schedule.scattered, align)
    align = max((piece.align for piece in found), default=align)
    arranged = arrange(found, shares if inplace else (), align, 0 if quick and schedule.by_rows else MAX_TRIES)
    bound = round_up(arranged.bound_nbytes, align)
    method = ("row by row" if schedule.by_rows else "skewed") + (", optimal" if arranged.nbytes <= bound else "")
    made = Plan(schedule, (), (), arranged.nbytes, bound, (), method, align, in_parts=True)
    return plan_pieces(schedule, found, arranged.offsets, made)


def plan_pieces(schedule: Schedule, found: Sequence[Piece], places: Sequence[int], made: Plan) -> Plan:
    """The plan with these offsets of pieces."""
    end = len(schedule.steps) - 1
    rows = dict[str, list[int]]()
    lives: list[Lifetime] = []
    offsets: list[tuple[str, int]] = []
    for piece, offset in zip(found, places, strict=True):
        name = piece.storage if piece.row is None else row_name(piece.storage, piece.row)
        first, last = min(part.first for part in piece.parts), max(part.last for part in piece.parts)
        lives.append(Lifetime(name, piece.nbytes, min(first, end), min(last, end), piece.align))
        offsets.append((name, offset))
        if piece.row is not None:
            rows.setdefault(piece.storage, [0] * row_count(schedule.program[piece.storage]))[piece.row] = offset
    scattered = tuple((name, tuple(each)) for name, each in rows.items())
    return replace(made, lifetimes=tuple(lives), offsets=tuple(offsets), rows=scattered)


@dataclass(frozen=True)
class Placement:
    """Offset of each lifetime by name, the bytes they need together (rounded up to the alignment), and how they were found."""

    offsets: Mapping[str, int]
    nbytes: int
    method: str


def _place_merged(lives: tuple[Lifetime, ...], takes_over: Mapping[str, str], align: int, enough_nbytes: int) -> Placement:
    return place(merged(lives, takes_over), align, enough_nbytes)


def place(lives: tuple[Lifetime, ...], align: int = 4, enough_nbytes: int = 0) -> Placement:
    """The best of greedy-by-size, other orders with first fit and best fit, and an exact search if they miss the lower bound; or the first
    that needs no more than `enough_nbytes`."""
    least = min((life.align for life in lives), default=align)
    bound = round_up(largest_live_nbytes(tuple(_rounded(life, least) for life in lives)), align)
    best: Placement | None = None
    for name, order, fit in _HEURISTICS:
        if best is not None and (best.nbytes <= max(bound, enough_nbytes) or len(lives) ** 2 * len(_HEURISTICS) > MAX_PAIRS):
            break
        offsets = _in_order(sorted(lives, key=order), fit)
        found = Placement(offsets, _total(lives, offsets, align), name)
        best = found if best is None or found.nbytes < best.nbytes else best
    assert best is not None
    if bound < best.nbytes <= enough_nbytes:
        return best
    if best.nbytes > bound:
        offsets, finished = place_exactly(lives, align, best.nbytes)
        if offsets is not None:
            best = Placement(offsets, _total(lives, offsets, align), "exact search")
        return Placement(best.offsets, best.nbytes, f"{best.method}, optimal" if finished else best.method)
    return Placement(best.offsets, best.nbytes, f"{best.method}, optimal")


def round_up(nbytes: int, align: int) -> int:
    return -(-nbytes // align) * align


def _rounded(life: Lifetime, align: int) -> Lifetime:
    return Lifetime(life.name, round_up(life.nbytes, align), life.first, life.last, life.align)


def _total(lives: tuple[Lifetime, ...], offsets: Mapping[str, int], align: int) -> int:
    return round_up(max((offsets[life.name] + life.nbytes for life in lives), default=0), align)


_Gaps = list[tuple[int, int]]
_Fit = Callable[[_Gaps, int], int]


def _first_fit(gaps: _Gaps, nbytes: int) -> int:
    """The lowest gap that is large enough; the last one has no end."""
    return next(start for start, end in gaps if end - start >= nbytes)


def _best_fit(gaps: _Gaps, nbytes: int) -> int:
    """The tightest gap that is large enough, the lowest of those."""
    return min((end - start, start) for start, end in gaps if end - start >= nbytes)[1]


def _in_order(lives: list[Lifetime], fit: _Fit) -> dict[str, int]:
    """Offsets, each lifetime in turn going into a gap between those already placed that live at the same time."""
    offsets: dict[str, int] = {}
    alive: dict[int, list[Lifetime]] = {}
    starting: dict[int, list[Lifetime]] = {}
    for life in lives:
        later = (other for step in range(life.first + 1, life.last + 1) for other in starting.get(step, ()))
        others = (*alive.get(life.first, ()), *later)
        taken = sorted((offsets[other.name], offsets[other.name] + other.nbytes) for other in others if other.nbytes)
        offsets[life.name] = fit(_gaps(taken, life.align), life.nbytes) if life.nbytes else 0
        starting.setdefault(life.first, []).append(life)
        for step in range(life.first, life.last + 1):
            alive.setdefault(step, []).append(life)
    return offsets


def _gaps(taken: list[tuple[int, int]], align: int) -> _Gaps:
    """The free stretches between the taken ones, from an aligned start."""
    free = 0
    gaps: list[tuple[int, int]] = []
    for start, end in taken:
        if start > free:
            gaps.append((free, start))
        free = max(free, round_up(end, align))
    return [*gaps, (free, 1 << 62)]


def _length(life: Lifetime) -> int:
    return life.last - life.first + 1


_HEURISTICS: tuple[tuple[str, Callable[[Lifetime], tuple[int | str, ...]], _Fit], ...] = (
    ("greedy by size", lambda life: (-life.nbytes, life.first, life.name), _first_fit),
    ("best fit by size", lambda life: (-life.nbytes, life.first, life.name), _best_fit),
    ("first fit by duration", lambda life: (-_length(life), -life.nbytes, life.first, life.name), _first_fit),
    ("first fit by area", lambda life: (-_length(life) * life.nbytes, life.first, life.name), _first_fit),
    ("best fit by area", lambda life: (-_length(life) * life.nbytes, life.first, life.name), _best_fit),
    ("first fit by start", lambda life: (life.first, -life.nbytes, life.name), _first_fit),
    ("best fit by start", lambda life: (life.first, -life.nbytes, life.name), _best_fit),
    ("first fit by end", lambda life: (-life.last, -life.nbytes, life.name), _first_fit),
)
