"""Leaner variants: implementations that need less memory at once, or fewer instructions, where layers run by rows.

Enters: `Layers` with the implementations that selection chose for whole layers, and what else their kernels offer. Leaves: `Layers`.
Invariant: the least peak never rises; searches are limited by counts.

Selection looks at layers that run whole. By rows another variant may be better: one row at a time instead of two needs fewer rows at
once; a tiling that divides a row leaves no single pixels. First the layers of the segment that sets the peak are made leaner, as long as
that is worth it: a share of the costs counts as much as three times that share of memory (`INSTRUCTIONS_COUNT`). Then every layer takes the
cheapest variant that keeps to the peak. Costs are
instructions and bytes of flash, a byte being worth as large a share of all instructions as it is of all bytes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aot.lower.segments import Divisions, Segment, instructions, row_instructions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aot.lower.implementation import Implementation
    from aot.lower.segments import Segments
    from aot.lower.streaming import Layers

_ROUNDS = 8
_FAR = 0.8  # of a least peak, that is clearly less
_MORE_CONSTANTS = 0.05  # of all, for a layer
INSTRUCTIONS_COUNT = 3
"""A share of all instructions is worth as much as three times that share of memory."""


class Variants:
    """What else may compute each layer. offered: by position in the Program."""

    def __init__(self, layers: Layers, offered: Sequence[Sequence[Implementation]]) -> None:
        self.offered = offered
        self.chosen = chosen = [layer.implementation for layer in layers.layers]
        self.total = max(sum(map(instructions, chosen)), 1)
        self.constants_nbytes = sum(one.constants_nbytes for one in chosen)
        self.flash_nbytes = flash_nbytes(layers)
        self.price = self.total / max(self.flash_nbytes, 1)

    def of(self, layers: Layers, number: int) -> list[Implementation]:
        """Others than the one that a layer has, if costs are known, with not clearly more constants."""
        now = layers.layers[number].implementation
        offered = self.offered[layers.order[number]] if self.offered and now.cost is not None else ()
        allowed = [one for one in offered if one.cost is not None and not one.is_frugal]
        limit = now.constants_nbytes + _MORE_CONSTANTS * self.constants_nbytes
        return [one for one in allowed if one is not now and one.constants_nbytes <= limit]

    def cost(self, layers: Layers, number: int, one: Implementation, part: Segment) -> float:
        """What one costs more than what a layer has: instructions, whole or by rows, and flash. Less flash than selection found best is
        worth nothing."""
        count, now = instructions if part.walk is None else row_instructions, layers.layers[number].implementation
        others = _shared(layer.implementation for at, layer in enumerate(layers.layers) if at != number)
        more_nbytes = _alone_nbytes(one, others) - _alone_nbytes(now, others)
        return count(one) - count(now) + self.price * (more_nbytes if one is self.chosen[number] else max(more_nbytes, 0))

    def leaner(self, divisions: Divisions) -> tuple[Divisions, ...]:
        """The divisions with variants that lower the least peak as far as that is worth it: from those that layers have, or from the
        leanest of all; and these themselves, where they need clearly less."""
        leanest = divisions.layers
        for number in range(len(leanest.layers)):
            now = leanest.layers[number].implementation
            best = min((now, *self.of(leanest, number)), key=lambda one: _leanness(one, now))
            leanest = leanest if best is now else leanest.with_implementation(number, best)
        starts = [divisions] if leanest is divisions.layers else [divisions, Divisions(leanest, divisions.most_steps)]
        best = min(map(self._climbed, starts), key=lambda climbed: climbed[0])[1]
        return (best, starts[-1]) if starts[-1].least_peak < _FAR * best.least_peak else (best,)

    def _climbed(self, divisions: Divisions) -> tuple[float, Divisions]:
        """The divisions after one variant after the other has lowered the least peak, and what that is worth."""
        for _ in range(_ROUNDS):
            better = self._lowered(divisions.layers, max(divisions.least.parts, key=lambda part: part.peak_nbytes))
            if better is None:
                break
            divisions = Divisions(better, divisions.most_steps)
        used, segments = self.cheaper(divisions.layers, divisions.least)
        return self.worth(used, segments, segments.peak_nbytes), divisions

    def worth(self, layers: Layers, segments: Segments, nbytes: int) -> float:
        """What orders ways to run the layers in so many bytes: memory, times the instructions that it takes as often as they count."""
        return nbytes * (divided_instructions(layers, segments) / self.total) ** INSTRUCTIONS_COUNT

    def _lowered(self, layers: Layers, worst: Segment) -> Layers | None:
        """With one layer of a segment replaced such that its peak falls most for what it costs; None if nothing is worth it."""
        best: tuple[float, Layers] | None = None
        for number in range(worst.first, worst.end):
            for one in self.of(layers, number):
                tried = layers.with_implementation(number, one)
                found = _again(tried, worst, worst.peak_nbytes - 1)
                if found is None:
                    continue
                gain = (worst.peak_nbytes - found.peak_nbytes) / worst.peak_nbytes
                gain -= INSTRUCTIONS_COUNT * max(self.cost(layers, number, one, worst), 0) / self.total
                if gain > 0 and (best is None or gain > best[0]):
                    best = gain, tried
        return None if best is None else best[1]

    def cheaper(self, layers: Layers, segments: Segments) -> tuple[Layers, Segments]:
        """The layers, and segments, with the cheapest variants that keep to the segments' peak."""
        peak, parts = segments.peak_nbytes, list[Segment]()
        for part in segments.parts:
            for number in range(part.first, part.end):
                offered = self.of(layers, number)
                for cost, at in sorted((self.cost(layers, number, one, part), at) for at, one in enumerate(offered)):
                    if cost >= 0:
                        break
                    tried = layers.with_implementation(number, offered[at])
                    if (found := _again(tried, part, peak)) is not None:
                        layers, part = tried, found
                        break
            parts.append(part)
        return layers, replace(segments, parts=tuple(parts))


def divided_instructions(layers: Layers, segments: Segments) -> int:
    """What the layers are expected to take, divided in these segments."""
    return sum(
        (instructions if part.walk is None else row_instructions)(layers.layers[number].implementation)
        for part in segments.parts
        for number in range(part.first, part.end)
    )


def _leanness(one: Implementation, now: Implementation) -> tuple[bool, bool, int, int, int]:
    """What orders variants by the memory that they need at once: whether there are rows, and these may lie scattered; rows and scratch of
    a step."""
    return (
        one.rows.count == 1,
        not one.scatters,
        one.rows.per_step,
        one.scratch_nbytes,
        row_instructions(one) if one is not now else 0,
    )


def flash_nbytes(layers: Layers) -> int:
    """Constants and code of all layers; code that they share counts once."""
    chosen = [layer.implementation for layer in layers.layers]
    own = sum(_alone_nbytes(one, _shared([one])) for one in chosen)
    return own + sum(_shared(chosen).values())


def _shared(chosen: Iterable[Implementation]) -> dict[str, int]:
    """Bytes of the code that implementations share, by its name."""
    return {name: nbytes for one in chosen if one.cost is not None for name, nbytes in one.cost.shared}


def _alone_nbytes(one: Implementation, others: Mapping[str, int]) -> int:
    """Constants and code of an implementation, but for the code that is there anyway."""
    if one.cost is None:
        return one.constants_nbytes
    return one.constants_nbytes + one.cost.code_nbytes + sum(nbytes for name, nbytes in one.cost.shared if name not in others)


def _again(layers: Layers, part: Segment, limit: int) -> Segment | None:
    """A segment with other implementations, if its peak is at most `limit`."""
    if part.walk is None:
        peak = layers.whole_peak(part.first)
        return replace(part, peak_nbytes=peak) if peak <= limit else None
    walk, _ = layers.walk(part.first, part.end, limit)
    return None if walk is None else replace(part, peak_nbytes=walk.peak_nbytes, walk=walk)
