"""Segments: which layers run whole, which row by row, and which of these together.

Enters: `Layers` in an order. Leaves: `Segments`, with the bytes alive at the worst step and the instructions that division costs.
Invariant: segments cover the layers in order; searches are limited by a count of steps, never by time, so that the same Program always
gets the same segments.

The peak of a division is the largest of its segments' peaks, so the least peak is a shortest-path problem whose lengths are joined by
`max`; among divisions with no larger peak the one with fewest instructions is another.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, prod
from typing import TYPE_CHECKING

from aot.graph.primitive import Call, Control
from aot.lower.plan import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from aot.lower.implementation import Implementation
    from aot.lower.plan import Schedule
    from aot.lower.streaming import Layers, Walk

MAX_STEPS = 8_000_000
"""Steps looked at, over all segments that are tried."""
FEW_STEPS = 1_000_000
"""The same where memory is not all that matters."""
_STEP_INSTRUCTIONS = 40
"""For a step beyond a layer's first, of generic code: the setting up of its loops."""
_UNKNOWN_STEP_INSTRUCTIONS = 300
"""The same where a kernel does not say."""
_CALL = 25
"""For a step: finding out what comes next, and calling it."""
_ELEMENT_INSTRUCTIONS = 6
_NEAR = 0.75
"""Of a peak: where rows have to be placed around whole tensors, the more so if layers need as much."""


@dataclass(frozen=True)
class Segment:
    """Layers [first, end). walk: their steps, row by row; None for a single layer that runs whole. instructions: more than whole."""

    first: int
    end: int
    peak_nbytes: int
    instructions: int = 0
    walk: Walk | None = None


@dataclass(frozen=True)
class Segments:
    """A division of all layers."""

    parts: tuple[Segment, ...]

    @property
    def peak_nbytes(self) -> int:
        return max((part.peak_nbytes for part in self.parts), default=0)

    @property
    def instructions(self) -> int:
        """What division is expected to cost."""
        return sum(part.instructions for part in self.parts)

    def __str__(self) -> str:
        texts: list[str] = []
        for part in self.parts:
            span = f"{part.first}..{part.end - 1}" if part.end - part.first > 1 else str(part.first)
            texts.append(span if part.walk is None else f"[{span} in {len(part.walk.steps)} steps]")
        return " ".join(texts)


class Divisions:
    """All segments that are good for something: that need less memory than one of their layers does when it runs whole."""

    def __init__(self, layers: Layers, most_steps: int = MAX_STEPS) -> None:
        self.layers, self.count, self.most_steps = layers, len(layers.layers), most_steps
        self.ending: list[list[Segment]] = [[] for _ in range(self.count + 1)]
        whole = [Segment(n, n + 1, layers.whole_peak(n)) for n in range(self.count)]
        for one in whole:
            self.ending[one.end].append(one)
        self.left = most_steps
        for first in range(self.count):
            limit = 0
            for end in range(first + 1, self.count + 1):
                if end - first > 1 and not layers.layers[end - 2].splits:
                    break
                limit = max(limit, whole[end - 1].peak_nbytes - 1)
                if self.left > 0:
                    self._add(first, end, limit)

    def _add(self, first: int, end: int, limit: int) -> None:
        if end - first == 1 and not self.layers.layers[first].splits:
            return
        walk, tried = self.layers.walk(first, end, limit)
        self.left -= tried
        if walk is not None:
            chosen = [layer.implementation for layer in self.layers.layers[first:end] if layer.splits]
            extra = sum(row_instructions(one) - instructions(one) for one in chosen)
            self.ending[end].append(Segment(first, end, walk.peak_nbytes, extra, walk))

    @cached_property
    def least_peak(self) -> int:
        """The smallest peak of all divisions."""
        best = [0] * (self.count + 1)
        for end in range(1, self.count + 1):
            best[end] = min(max(best[one.first], one.peak_nbytes) for one in self.ending[end])
        return best[-1]

    @cached_property
    def least(self) -> Segments:
        """The division with the least peak that takes fewest instructions."""
        found = self.cheapest(self.least_peak)
        assert found is not None
        return found

    @cached_property
    def peaks(self) -> tuple[int, ...]:
        """Peaks that a division can have, from the least on."""
        every = {one.peak_nbytes for ending in self.ending for one in ending}
        return tuple(sorted(peak for peak in every if peak >= self.least_peak))

    def cheapest(self, peak_nbytes: int) -> Segments | None:
        """The division with fewest instructions (then fewest layers run by rows) whose peak is at most this."""
        return self._best(peak_nbytes, lambda one: (one.instructions, 0 if one.walk is None else one.end - one.first + 1))

    def roomiest(self, peak_nbytes: int) -> Segments | None:
        """The division whose peak is at most this, with the fewest layers near it: it is easier to place."""
        near = _NEAR * peak_nbytes
        return self._best(peak_nbytes, lambda one: (max(int(one.peak_nbytes - near), 0) * (one.end - one.first), one.instructions))

    def _best(self, peak_nbytes: int, cost: Callable[[Segment], tuple[int, int]]) -> Segments | None:
        """The division whose costs have the least sum, of those whose peak is at most this."""
        costs: list[tuple[float, int]] = [(0, 0), *[(inf, 0)] * self.count]
        last: list[Segment | None] = [None] * (self.count + 1)
        for end in range(1, self.count + 1):
            for one in self.ending[end]:
                before, own = costs[one.first], cost(one)
                found = before[0] + own[0], before[1] + own[1]
                if one.peak_nbytes <= peak_nbytes and found < costs[end]:
                    costs[end], last[end] = found, one
        parts: list[Segment] = []
        while (end := parts[-1].first if parts else self.count) and (part := last[end]) is not None:
            parts.append(part)
        if end:
            return None
        return Segments(tuple(reversed(parts)))


def row_instructions(one: Implementation) -> int:
    """What an implementation is expected to take when it runs by rows."""
    steps = -(-one.rows.count // one.rows.per_step)
    each = _STEP_INSTRUCTIONS if one.cost is None else one.cost.step_instructions
    each = _UNKNOWN_STEP_INSTRUCTIONS if each is None else each
    return instructions(one) + (steps - 1) * (each + _CALL)


def instructions(one: Implementation) -> int:
    """What an implementation is expected to take, run whole."""
    if one.cost is not None:
        return one.cost.instructions
    if isinstance(one.instruction, Call | Control):
        return 0
    return _ELEMENT_INSTRUCTIONS * prod((*one.instruction.space, *getattr(one.instruction, "window", ())))


def expected_instructions(schedule: Schedule) -> int:
    """What all layers are expected to take, those with several steps by rows."""
    steps = Counter(step.position for step in schedule.steps)
    every = enumerate(choice.implementation for choice in schedule.choices)
    return sum((row_instructions if steps[position] > 1 else instructions)(one) for position, one in every)


def scheduled(schedule: Schedule, layers: Layers, segments: Segments) -> Schedule:
    """The schedule with its layers divided as the segments say."""
    steps: list[Step] = []
    by_rows: set[int] = set()
    for part in segments.parts:
        if part.walk is None:
            position, count = layers.order[part.first], layers.layers[part.first].implementation.rows.count
            old = [step for step in schedule.steps if step.position == position]
            steps += old if len(old) > 1 else [Step(position, 0, count)]
            continue
        by_rows.update(range(part.first, part.end))
        for number, at in part.walk.steps:
            touches = layers.layers[number].steps[at]
            steps.append(Step(layers.order[number], touches.y0, touches.y1))
    scattered = frozenset(one.name for number, one in enumerate(layers.storages) if _scatters(layers, number, by_rows))
    return replace(schedule, steps=tuple(steps), scattered=scattered)


def _scatters(layers: Layers, number: int, by_rows: Collection[int]) -> bool:
    """Whether every layer that touches a storage runs by rows and can take its rows one by one."""
    touchers = (*layers.storages[number].readers, *layers.storages[number].writers)
    return all(at in by_rows for at in touchers) and layers.may_scatter(number, touchers)
