"""Piles: the storages of a schedule, any part of which can be placed by itself.

Enters: a Schedule. Leaves: a `Pile`: what some storages need at least, and a placement of them.
Invariant: a part is placed as `place.py` places a whole schedule; whether layers run by rows makes no difference to who asks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from aot.lower.arrange import MAX_TRIES, arrange, collisions, least_nbytes, needed_nbytes
from aot.lower.inplace import possible_takeovers
from aot.lower.lifetime import largest_live_nbytes, lifetimes, merged
from aot.lower.pieces import pieces
from aot.lower.place import place_lives, plan_pieces, skews
from aot.lower.plan import Plan, row_name

if TYPE_CHECKING:
    from aot.lower.lifetime import Io
    from aot.lower.pieces import Piece, Share
    from aot.lower.plan import Lifetime, Schedule


FIT_TRIES = 20
"""Orders of pieces that are tried where the question is only whether they fit."""


@dataclass(frozen=True)
class Placed:
    """Offset of each piece by its name in a Plan, the bytes that they need together, and which storages continue which."""

    offsets: Mapping[str, int]
    nbytes: int
    takes_over: Mapping[str, str] = field(default_factory=dict[str, str])


class Pile(Protocol):
    """All storages of a schedule. held: the most bytes of each that any step needs. align: bytes, of all places."""

    @property
    def held(self) -> Mapping[str, int]: ...

    @property
    def align(self) -> int: ...

    def least_nbytes(self, names: Collection[str]) -> int:
        """Bytes that no placement of these storages needs fewer than."""
        ...

    def place(self, names: Collection[str], enough_nbytes: int = 0) -> Placed:
        """A placement of these storages: a good one, or the first that needs no more than `enough_nbytes`."""
        ...

    def plan(self, placed: Placed, bound_nbytes: int, method: str) -> Plan:
        """The plan with all storages placed."""
        ...


def pile_of(schedule: Schedule, io: Io, inplace: bool, align: int = 4) -> Pile:
    """In pieces where rows lie by themselves, or an output may lie on its input."""
    in_pieces = schedule.by_rows or (inplace and skews(schedule))
    return _Rows(schedule, io, inplace, align) if in_pieces else _Whole(schedule, io, inplace, align)


class _Whole:
    """Layer by layer: a piece for each storage."""

    def __init__(self, schedule: Schedule, io: Io, inplace: bool, align: int) -> None:
        self.schedule, self.lives = schedule, lifetimes(schedule, io, align)
        self.align = max((life.align for life in self.lives), default=align)
        self.possible = possible_takeovers(schedule, self.lives, io) if inplace else {}
        self.held = {life.name: life.nbytes for life in self.lives}

    def least_nbytes(self, names: Collection[str]) -> int:
        return largest_live_nbytes(merged(*self._of(names)))

    def place(self, names: Collection[str], enough_nbytes: int = 0) -> Placed:
        found, takes_over = place_lives(*self._of(names), self.align, enough_nbytes)
        return Placed(found.offsets, found.nbytes, takes_over)

    def plan(self, placed: Placed, bound_nbytes: int, method: str) -> Plan:
        offsets = tuple((life.name, placed.offsets[life.name]) for life in self.lives)
        takes_over = tuple(placed.takes_over.items())
        return Plan(self.schedule, self.lives, offsets, placed.nbytes, bound_nbytes, takes_over, method, self.align)

    def _of(self, names: Collection[str]) -> tuple[tuple[Lifetime, ...], dict[str, str]]:
        """The lifetimes of these storages, and which of them may continue which."""
        inside = frozenset(names)
        lives = tuple(life for life in self.lives if life.name in inside)
        return lives, {new: old for new, old in self.possible.items() if new in inside and old in inside}


class _Rows:
    """In pieces: a storage that lies scattered has one for each row; outputs may lie on what their step reads last."""

    def __init__(self, schedule: Schedule, io: Io, inplace: bool, align: int) -> None:
        self.schedule = schedule
        self.pieces, shares = pieces(schedule, io, schedule.scattered, align)
        self.shares = shares if inplace else ()
        self.align = max((piece.align for piece in self.pieces), default=align)
        self.collisions = collisions(self.pieces, self.shares)
        of: dict[str, list[Piece]] = {}
        for piece in self.pieces:
            of.setdefault(piece.storage, []).append(piece)
        self.held = {name: max(needed_nbytes(each, ()), default=0) for name, each in of.items()}

    def least_nbytes(self, names: Collection[str]) -> int:
        _, found, shares = self._of(names)
        return least_nbytes(found, shares)

    def place(self, names: Collection[str], enough_nbytes: int = 0) -> Placed:
        new, found, shares = self._of(names)
        apart = [{new[other]: each for other, each in self.collisions[at].items() if other in new} for at in new]
        arranged = arrange(found, shares, self.align, FIT_TRIES if enough_nbytes else MAX_TRIES, apart, enough_nbytes)
        offsets = {_name(piece): offset for piece, offset in zip(found, arranged.offsets, strict=True)}
        return Placed(offsets, arranged.nbytes)

    def plan(self, placed: Placed, bound_nbytes: int, method: str) -> Plan:
        made = Plan(self.schedule, (), (), placed.nbytes, bound_nbytes, (), method, self.align, in_parts=True)
        return plan_pieces(self.schedule, self.pieces, [placed.offsets[_name(piece)] for piece in self.pieces], made)

    def _of(self, names: Collection[str]) -> tuple[dict[int, int], list[Piece], list[Share]]:
        """The pieces of these storages, what they may share, and the number of each piece here by its number of all."""
        inside = frozenset(names)
        kept = [at for at, piece in enumerate(self.pieces) if piece.storage in inside]
        new = {at: number for number, at in enumerate(kept)}
        shares = [
            replace(share, old=new[share.old], new=new[share.new]) for share in self.shares if share.old in new and share.new in new
        ]
        return new, [self.pieces[at] for at in kept], shares


def _name(piece: Piece) -> str:
    return piece.storage if piece.row is None else row_name(piece.storage, piece.row)
