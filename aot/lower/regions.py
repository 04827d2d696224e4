"""Regions: a workspace in several memories, of which those that are named first are faster.

Enters: a Schedule, and the regions' sizes. Leaves: a Plan whose every piece lies in one region.
Invariant: what lies in a region is placed by the same searches as a workspace of its own. The plan has an excess only where storages find no
region that has room for them; searches are limited by a count of tries, never by time.

The hottest storages come first: those of which an inference moves most bytes for each that they hold. A storage that lies scattered is in
one region with all its rows: a kernel finds them from one pointer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from aot.lower.pages import without_pages
from aot.lower.piles import Pile, Placed, pile_of
from aot.lower.place import paged, plan, round_up
from aot.lower.plan import Plan, Region
from aot.lower.traffic import traffic

if TYPE_CHECKING:
    from aot.lower.lifetime import Io
    from aot.lower.plan import Schedule

MAX_TRIED = 64
"""Storages behind the first that does not fit a region that are tried there all the same."""

Assignment = dict[str, str]
"""The region of each storage."""


def plan_in(schedule: Schedule, io: Io, inplace: bool, sizes: Mapping[str, int], align: int = 4) -> Plan:
    """Offsets for a schedule: in a workspace, or where there are regions (`sizes` in bytes, the fastest first) in these."""
    if not sizes:
        return plan(schedule, io, inplace, align)
    if schedule.window is not None:
        schedule = paged(without_pages(schedule), io, inplace, align)
    pile = pile_of(schedule, io, inplace, align)
    hottest = by_heat(schedule, pile.held)
    fastest, largest = list(sizes), sorted(sizes, key=lambda name: -sizes[name])
    bulky = sorted(hottest, key=lambda name: -pile.held[name])
    ways = ((hottest, fastest), (hottest[::-1], fastest[::-1]), (bulky, largest), (bulky, largest[::-1]))
    hopeless = pile.least_nbytes(pile.held) > sum(sizes.values())
    found: list[Plan] = []
    for order, regions in ways[:1] if hopeless else ways:
        found.append(_planned(pile, _assigned(pile, order, sizes, regions), sizes))
        if not found[-1].excess_nbytes:
            break
    return min(found, key=lambda each: each.excess_nbytes)


def by_heat(schedule: Schedule, held: Mapping[str, int]) -> list[str]:
    """Storages, those first of which an inference moves most bytes for each that they hold."""
    moved = traffic(schedule)
    return sorted(held, key=lambda name: -moved.get(name, 0) / max(held[name], 1))


def _assigned(pile: Pile, order: Sequence[str], sizes: Mapping[str, int], regions: Sequence[str]) -> Assignment:
    """Storages in this order into regions in that. What is left over goes into the largest."""
    found, left = Assignment(), list(order)
    for region in regions:
        inside = frozenset(_fitting(pile, left, sizes[region]))
        found |= dict.fromkeys(inside, region)
        left = [name for name in left if name not in inside]
    return found | dict.fromkeys(left, max(reversed(list(sizes)), key=lambda name: sizes[name]))


def _fitting(pile: Pile, order: Sequence[str], size_nbytes: int) -> list[str]:
    """As many of these storages as fit: from the first on as many as can be, then single ones of the next."""

    def fit(names: Sequence[str]) -> bool:
        return pile.least_nbytes(names) <= size_nbytes and pile.place(names, size_nbytes).nbytes <= size_nbytes

    if fit(order):
        return list(order)
    low, high = 0, len(order)  # the first `low` fit, the first `high` do not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fit(order[:middle]) else (low, middle)
    inside, tried = list(order[:low]), 0
    for name in order[low + 1 :]:
        if tried < MAX_TRIED and pile.least_nbytes([*inside, name]) <= size_nbytes:
            inside += [name] if fit([*inside, name]) else []
            tried += 1
    return inside


def _planned(pile: Pile, assignment: Assignment, sizes: Mapping[str, int]) -> Plan:
    """The plan with each storage in its region."""
    placed = [pile.place([name for name in pile.held if assignment[name] == region]) for region in sizes]
    starts = [0, *accumulate(each.nbytes for each in placed)]
    regions = tuple(
        Region(name, nbytes, start, each.nbytes) for (name, nbytes), start, each in zip(sizes.items(), starts, placed, strict=False)
    )
    together = Placed(
        {name: start + offset for start, each in zip(starts, placed, strict=False) for name, offset in each.offsets.items()},
        starts[-1],
        {new: old for each in placed for new, old in each.takes_over.items()},
    )
    bound = round_up(pile.least_nbytes(pile.held), pile.align)
    made = replace(pile.plan(together, bound, f"{len(sizes)} regions"), regions=regions)
    starts_of = {name: made.region_at(max(offsets)).start for name, offsets in made.rows}
    rows = tuple((name, tuple(max(offset, starts_of[name]) for offset in offsets)) for name, offsets in made.rows)
    return replace(made, rows=rows)  # rows that nothing touches, which have no place, are in the same region
