"""Exact placement by branch and bound.

Enters: lifetimes and a total to beat. Leaves: offsets with a smaller total, and whether the answer is proved.
Invariant: what it returns is a valid placement; it stops after a fixed number of nodes, so that it is deterministic and bounded.

Take an optimal placement and push the storages down, the lowest first, each onto the highest end of those below it that live at the
same
time: it stays optimal, and it is what placing in order of offset on top of everything placed so far yields. So it is enough to
search orders with non-decreasing offsets, on a skyline without holes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aot.lower.plan import Lifetime

MAX_VISITS = 500_000
"""Unplaced storages looked at, over all nodes of a search."""
MAX_STORAGES = 150


def place_exactly(lives: tuple[Lifetime, ...], align: int, total_nbytes: int) -> tuple[dict[str, int] | None, bool]:
    """(offsets with a total below `total_nbytes` or None, whether no smaller total exists than the one now known)."""
    blocks = sorted((life for life in lives if life.nbytes), key=lambda life: (-life.nbytes, life.first, life.last, life.name))
    if len(blocks) > MAX_STORAGES:
        return None, False
    search = _Search(blocks, align, total_nbytes)
    search.descend([0] * len(search.cliques), 0, -1)
    finished = search.visits <= MAX_VISITS
    if search.best is None:
        return None, finished
    offsets = {life.name: 0 for life in lives}
    offsets.update((block.name, offset) for block, offset in zip(blocks, search.best, strict=True))
    return offsets, finished


@dataclass
class _Search:
    """Depth-first over orders. `cliques`: maximal sets of blocks alive together; a skyline has a height for each."""

    blocks: list[Lifetime]
    align: int
    total: int
    best: list[int] | None = None
    visits: int = 0
    cliques: list[frozenset[int]] = field(init=False)
    member: list[tuple[int, ...]] = field(init=False)
    left: list[int] = field(init=False)
    offsets: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.cliques = _maximal_sets(self.blocks)
        numbers = range(len(self.blocks))
        self.member = [tuple(c for c, clique in enumerate(self.cliques) if block in clique) for block in numbers]
        self.left = [sum(self.blocks[block].nbytes for block in clique) for clique in self.cliques]
        self.offsets = [-1] * len(self.blocks)

    def descend(self, skyline: list[int], floor: int, last: int) -> None:
        """Place one more block, at `floor` (where block `last` is) or above; `self.left` is what each clique still has to take."""
        self.visits += len(self.blocks)
        if -1 not in self.offsets:
            self.record(max(skyline))
            return
        for offset, _, block in self.candidates(skyline, floor, last):
            if self.visits > MAX_VISITS or not self.hopeful(skyline, offset):
                return
            self.offsets[block] = offset
            self.descend(self.placed(skyline, block, offset), offset, block)
            self.offsets[block] = -1
            for clique in self.member[block]:
                self.left[clique] += self.blocks[block].nbytes

    def placed(self, skyline: list[int], block: int, offset: int) -> list[int]:
        """The skyline with the block on it."""
        raised = list(skyline)
        for clique in self.member[block]:
            raised[clique] = offset + self.blocks[block].nbytes
            self.left[clique] -= self.blocks[block].nbytes
        return raised

    def candidates(self, skyline: list[int], floor: int, last: int) -> list[tuple[int, int, int]]:
        """(offset, -bytes, block) of each block that may come next. Of equal offsets, lower numbers come first."""
        found: list[tuple[int, int, int]] = []
        for block, offset in enumerate(self.offsets):
            if offset < 0:
                life = self.blocks[block]
                top = max(skyline[clique] for clique in self.member[block])
                at = -(-top // life.align) * life.align
                if (at, block) > (floor, last):
                    found.append((at, -life.nbytes, block))
        return sorted(found)

    def hopeful(self, skyline: list[int], floor: int) -> bool:
        """Whether what is left can still fit under the best total, if nothing more is placed below `floor`."""
        limit = self.total - self.align
        return all(not left or max(height, floor) + left <= limit for height, left in zip(skyline, self.left, strict=True))

    def record(self, top: int) -> None:
        total = -(-top // self.align) * self.align
        if total < self.total:
            self.total, self.best = total, list(self.offsets)


def _maximal_sets(blocks: list[Lifetime]) -> list[frozenset[int]]:
    """The sets of blocks alive at one step, without those contained in another."""
    steps = sorted({block.first for block in blocks})
    sets = [frozenset(number for number, block in enumerate(blocks) if block.first <= step <= block.last) for step in steps]
    distinct = list(dict.fromkeys(sets))
    return [one for one in distinct if not any(one < other for other in distinct)]
