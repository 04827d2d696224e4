"""Arranging pieces: one offset for each, where parts that are needed at the same step share no byte.

Enters: pieces and shares. Leaves: offsets, and the bytes that they need together.
Invariant: deterministic; searches are limited by a count of tries, never by time.

Two pieces collide at some distances of their offsets: each pair of their parts that are needed at once forbids an open interval. Pieces
are placed one after the other, each at the lowest offset that no placed piece forbids, in several orders; then the best order is
disturbed at random.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aot.lower.implementation import Skew

if TYPE_CHECKING:
    from aot.lower.pieces import Part, Piece, Share

MAX_TRIES = 240
MAX_WORK = 12_000_000
"""Pairs of pieces looked at, over all tries."""

Interval = tuple[int, int]
Collisions = Sequence[Mapping[int, list[Interval]]]
"""For each piece, and each other that it may meet, the open intervals of (its offset - the other's) at which they collide."""


@dataclass(frozen=True)
class Arrangement:
    """Offset of each piece, in their order; the bytes that they need together; the largest sum of bytes that any step needs."""

    offsets: tuple[int, ...]
    nbytes: int
    bound_nbytes: int


def arrange(
    pieces: Sequence[Piece],
    shares: Sequence[Share],
    align: int,
    most_tries: int = MAX_TRIES,
    forbidden: Collisions | None = None,
    enough_nbytes: int = 0,
) -> Arrangement:
    """Offsets for pieces, as small together as the tries find: the fixed orders, and random ones up to so many in all; or the first that need
    no more than `enough_nbytes`. forbidden: their collisions, if they are known."""
    bound = least_nbytes(pieces, shares)
    if not pieces:
        return Arrangement((), 0, 0)
    forbidden = collisions(pieces, shares) if forbidden is None else forbidden
    work = sum(map(len, forbidden)) + len(pieces)
    tries = max(len(_ORDERS), min(most_tries, MAX_WORK // work))
    choose = random.Random(1)
    best: tuple[int, list[int], list[int]] | None = None
    for number in range(tries):
        order = _order(pieces, number, best[1] if best else [], choose)
        offsets = _place(pieces, forbidden, order, best[0] if best else None)
        if offsets is None:
            continue
        total = max(offset + piece.nbytes for offset, piece in zip(offsets, pieces, strict=True))
        if best is None or total <= best[0]:
            best = total, order, offsets
        if best[0] <= max(bound, enough_nbytes):
            break
    assert best is not None
    return Arrangement(tuple(best[2]), -(-best[0] // align) * align, bound)


def _order(pieces: Sequence[Piece], number: int, best: list[int], choose: random.Random) -> list[int]:
    """The order of a try: one of the fixed ones, then the best so far with some pieces moved elsewhere."""
    if number < len(_ORDERS):
        return sorted(range(len(pieces)), key=lambda at: (_ORDERS[number](pieces[at]), at))
    order = list(best)
    for _ in range(choose.choice((1, 1, 2, 3)) * (1 + len(pieces) // 100)):
        order.insert(choose.randrange(len(order)), order.pop(choose.randrange(len(order))))
    return order


def _first(piece: Piece) -> int:
    return min((part.first for part in piece.parts), default=0)


def _last(piece: Piece) -> int:
    return max((part.last for part in piece.parts), default=0)


_ORDERS: tuple[Callable[[Piece], Any], ...] = (
    lambda piece: (-piece.nbytes, _first(piece)),
    lambda piece: (_first(piece), -piece.nbytes),
    lambda piece: -piece.nbytes * (_last(piece) - _first(piece) + 1),
    lambda piece: (piece.row is not None, _first(piece), -piece.nbytes),
    lambda piece: (-_last(piece), -piece.nbytes),
    lambda piece: (piece.row is not None, -piece.nbytes, _first(piece)),
    lambda piece: (piece.row is not None, -_last(piece)),
    lambda piece: (piece.row is not None, -piece.nbytes * (_last(piece) - _first(piece) + 1)),
)


def _place(pieces: Sequence[Piece], forbidden: Collisions, order: list[int], limit: int | None) -> list[int] | None:
    """The lowest offsets in this order; None once they need more than `limit`."""
    offsets = [-1] * len(pieces)
    for at in order:
        taken = [
            (offsets[other] + low, offsets[other] + high)
            for other, intervals in forbidden[at].items()
            if offsets[other] >= 0
            for low, high in intervals
        ]
        offset = _settle(sorted(taken), pieces[at].align)
        if limit is not None and offset + pieces[at].nbytes > limit:
            return None
        offsets[at] = offset
    return offsets


def _settle(taken: list[Interval], align: int) -> int:
    """The lowest aligned offset from 0 on that no open interval contains; they are sorted by their start."""
    offset = 0
    for low, high in taken:
        if low < offset < high:
            offset = -(-high // align) * align
    return offset


def collisions(pieces: Sequence[Piece], shares: Sequence[Share]) -> list[dict[int, list[Interval]]]:
    """For each piece, and each other that it may meet, the open intervals of (its offset - the other's) at which they collide."""
    owners = np.array([at for at, piece in enumerate(pieces) for _ in piece.parts], np.int64)
    parts = [part for piece in pieces for part in piece.parts]
    first, last = (np.array([getattr(part, name) for part in parts], np.int64) for name in ("first", "last"))
    allowed = _allowed(shares)
    found: list[dict[int, list[Interval]]] = [{} for _ in pieces]
    for number, part in enumerate(parts):
        others = np.nonzero((first[:number] <= part.last) & (last[:number] >= part.first) & (owners[:number] != owners[number]))[0]
        mine = int(owners[number])
        for other in others.tolist():
            theirs, that = int(owners[other]), parts[other]
            whole = (that.low - part.high, that.high - part.low)
            for low, high in _without(whole, allowed, (mine, part), (theirs, that)):
                found[mine].setdefault(theirs, []).append((low, high))
                found[theirs].setdefault(mine, []).append((-high, -low))
    return [{other: _joined(intervals) for other, intervals in each.items()} for each in found]


_Allowed = dict[tuple[int, int], list["Share"]]
_Owned = tuple[int, "Part"]


def _allowed(shares: Sequence[Share]) -> _Allowed:
    found: _Allowed = {}
    for share in shares:
        found.setdefault((share.old, share.new), []).append(share)
    return found


def _without(interval: Interval, allowed: _Allowed, one: _Owned, other: _Owned) -> list[Interval]:
    """What is left of a forbidden interval of (offset of `one` - offset of `other`) where the two may share bytes."""
    for flipped, (number, old), (against, new) in ((False, one, other), (True, other, one)):
        if old.last != new.first:
            continue
        for share in allowed.get((number, against), ()):
            inside = share.old_low <= old.low and old.high <= share.old_low + share.old_nbytes
            inside &= share.new_low <= new.low and new.high <= share.new_low + share.new_nbytes
            if share.step == old.last and inside:
                low, high = (-interval[1], -interval[0]) if flipped else interval
                kept = _cut(low, high, share)
                return [(-b, -a) for a, b in kept] if flipped else kept
    return [interval]


def _cut(low: int, high: int, share: Share) -> list[Interval]:
    """What stays forbidden of (old's offset - new's)."""
    equal = share.new_low - share.old_low
    match share.rule:
        case Skew() as skew:
            at = max(skew.first_nbytes, low - low % skew.unit_nbytes)
            starts = [low, *range(at, high, skew.unit_nbytes)] if skew.unit_nbytes > 1 else [low, at]
            ends = starts[1:] if skew.unit_nbytes == 1 else [*starts[1:], high]
            return [(a, min(b, high)) for a, b in zip(starts, ends) if a < min(b, high)]
        case "anywhere":
            return []
        case "forward":
            high = min(high, equal - min(0, share.old_nbytes - share.new_nbytes))
            return [(low, high)] if low < high else []
        case _ if share.old_nbytes == share.new_nbytes and low < equal < high:
            return [(low, equal), (equal, high)]
        case _:
            pass
    return [(low, high)]


def _joined(intervals: list[Interval]) -> list[Interval]:
    """Open intervals without overlaps. Two that only touch leave the point between them free."""
    joined: list[Interval] = []
    for low, high in sorted(intervals):
        if joined and low < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return joined


def least_nbytes(pieces: Sequence[Piece], shares: Sequence[Share]) -> int:
    """The largest sum of bytes that a step needs, with what its output may share taken off."""
    return max(needed_nbytes(pieces, shares), default=0)


def needed_nbytes(pieces: Sequence[Piece], shares: Sequence[Share]) -> list[int]:
    """Bytes that each step needs, with what its output may share taken off."""
    steps = max((part.last for piece in pieces for part in piece.parts), default=-1) + 1
    change = [0] * (steps + 1)
    for piece in pieces:
        for part in piece.parts:
            change[part.first] += part.high - part.low
            change[part.last + 1] -= part.high - part.low
    at_step: dict[int, list[Share]] = {}
    for share in shares:
        at_step.setdefault(share.step, []).append(share)
    return [total - _most_shared(at_step.get(step, ())) for step, total in enumerate(itertools.accumulate(change[:-1]))]


def _most_shared(shares: Sequence[Share]) -> int:
    """At most so many bytes are shared in a step."""
    new = {(share.new, share.new_low): share.new_nbytes for share in shares}
    old = {(share.old, share.old_low): share.old_nbytes for share in shares}
    return min(sum(new.values()), sum(old.values()), sum(share.most_nbytes for share in shares))
