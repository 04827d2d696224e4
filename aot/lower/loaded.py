"""Loaded constants: those that are copied into a region once, before the first run, because kernels read them from there faster.

Enters: the Plans of all entries, a region. Leaves: `Loaded`.
Invariant: the copy begins behind what any of the Plans places in the region, and ends within its size; nothing else is stored there.

What pays is what an inference reads at least once: it is copied once, and read in every run. Those that are read most come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from aot.lower.traffic import constant_reads, turns_of

if TYPE_CHECKING:
    from aot.lower.plan import Plan
    from aot.lower.program import Buffer

LOADED_ALIGN = 8
"""Alignment in bytes of the copy, and of each constant in it: none asks for more."""


@dataclass(frozen=True)
class Loaded:
    """Constants that lie in a region from `offset` on, one behind the other."""

    region: str
    offset: int
    constants: tuple[Buffer, ...]

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each constant begins in the copy, and at last where the copy ends."""
        return (0, *accumulate(map(_room, self.constants)))

    @property
    def nbytes(self) -> int:
        return self.starts[-1]


def choose_loaded(plans: Sequence[Plan], region: str) -> Loaded:
    """The constants that are worth their place in what the plans leave of a region."""
    used = [each for plan in plans for each in plan.regions if each.name == region]
    offset = max((-(-each.nbytes // LOADED_ALIGN) * LOADED_ALIGN for each in used), default=0)
    left = min((each.size_nbytes for each in used), default=0) - offset
    heat: dict[bytes, float] = {}
    first: dict[bytes, Buffer] = {}
    for constant, reads in _constants(plans):
        key = _content(constant)
        heat[key] = max(heat.get(key, 0.0), reads)
        first.setdefault(key, constant)
    kept: list[Buffer] = []
    for key in sorted(heat, key=lambda each: -heat[each]):
        if heat[key] >= 1 and _room(first[key]) <= left:
            kept.append(first[key])
            left -= _room(first[key])
    return Loaded(region, offset, tuple(kept))


def _constants(plans: Sequence[Plan]) -> Iterable[tuple[Buffer, float]]:
    """Each layer's constants, and how often an inference reads each byte of them."""
    for plan in plans:
        program = plan.schedule.program
        turns = turns_of(program.instructions)
        for position, choice in enumerate(plan.schedule.choices):
            reads = turns[position] * constant_reads(program, choice.implementation)
            yield from ((constant, reads) for constant in choice.implementation.constants if constant.nbytes)


def _room(constant: Buffer) -> int:
    return -(-constant.nbytes // LOADED_ALIGN) * LOADED_ALIGN


def _content(constant: Buffer) -> bytes:
    assert constant.data is not None
    return constant.data.tobytes()
