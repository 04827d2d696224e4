"""Division: how much memory a Program is run in, by rows or layer by layer.

Enters: the plan of a Program that runs layer by layer, and other implementations that its kernels offer. Leaves: the best Plan.
Invariant: never a larger workspace than layer by layer. What counts is the placement, not the bound: several divisions are placed.

Row streaming costs some instructions a step and saves most of the memory; how much of which is worth it is the `Wish`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from aot.graph.primitive import Control
from aot.lower.lean import Variants, divided_instructions, flash_nbytes
from aot.lower.pages import fits_window, without_pages
from aot.lower.regions import plan_in
from aot.lower.segments import FEW_STEPS, MAX_STEPS, Divisions, Segments, expected_instructions, scheduled
from aot.lower.streaming import Layers

if TYPE_CHECKING:
    from aot.lower.implementation import Implementation
    from aot.lower.lifetime import Io
    from aot.lower.plan import Plan, Schedule
    from aot.lower.program import Program

MOST_PLACED = 6
"""Divisions that are placed, to see which needs least."""
MOST_POINTS = 32
"""Divisions that are placed to see what RAM costs."""
SMALL_NBYTES = 512
"""A workspace below that is not worth dividing."""
_MORE_FLASH = 0.02
"""Of all flash: what plans may take more for which instructions may rise by little only."""


@dataclass(frozen=True)
class Wish:
    """What is wanted: the smallest workspace that is worth its instructions, of which there may be at most that share more than layer by
    layer (`max_rise`); or, with `limit_nbytes`, the fewest instructions in a workspace of at most so many bytes, and in the regions, if that
    is where it lies."""

    limit_nbytes: int | None = None
    max_rise: float | None = None

    def holds(self, plan: Plan) -> bool:
        """Whether nothing more is wanted than this plan has."""
        return self.limit_nbytes is not None and plan.workspace_nbytes <= self.limit_nbytes and not plan.excess_nbytes


@dataclass(frozen=True)
class Way:
    """One way to divide: layers with their variants, and segments."""

    layers: Layers
    segments: Segments

    @property
    def peak_nbytes(self) -> int:
        return self.segments.peak_nbytes

    @property
    def instructions(self) -> int:
        """What all layers are expected to take."""
        return divided_instructions(self.layers, self.segments)


class Ways:
    """How the layers of a plan may be divided: with the variants that they have, or from the leanest ones on."""

    def __init__(
        self, whole: Plan, io: Io, inplace: bool, others: Sequence[Sequence[Implementation]], most_steps: int = MAX_STEPS
    ) -> None:
        self.schedule, self.inplace = without_pages(whole.schedule), inplace
        self.sizes = {region.name: region.size_nbytes for region in whole.regions}
        self.io: Io = io
        chosen = Divisions(layers_of(self.schedule, io, inplace), most_steps)
        self.variants = Variants(chosen.layers, others)
        apart = Divisions(chosen.layers.without_skews(), most_steps)
        starts = {id(each): each for each in (chosen, apart, *self.variants.leaner(chosen))}.values()
        self.found = [Way(*self.variants.cheaper(each.layers, segments)) for each in starts for segments in _divisions(each)]

    def worth(self, way: Way, nbytes: int) -> float:
        return self.variants.worth(way.layers, way.segments, nbytes)

    def candidates(self, wish: Wish) -> list[Way]:
        """Those that fulfil the wish as far as can be known before they are placed, the most promising first."""
        if wish.limit_nbytes is None:
            most = inf if wish.max_rise is None else (1 + wish.max_rise) * self.variants.total
            allowed = [way for way in self.found if way.instructions <= most and self._fits_flash(way, wish)]
            return sorted(allowed, key=lambda way: self.worth(way, way.peak_nbytes))
        fitting = [way for way in self.found if way.peak_nbytes <= wish.limit_nbytes]
        return sorted(fitting, key=lambda way: way.instructions) or sorted(self.found, key=lambda way: way.peak_nbytes)

    def _fits_flash(self, way: Way, wish: Wish) -> bool:
        return wish.max_rise is None or flash_nbytes(way.layers) <= (1 + _MORE_FLASH) * self.variants.flash_nbytes

    def placed(self, way: Way) -> Plan | None:
        """None where the pages of layers that run together do not fit into the window."""
        changed = scheduled(_with_choices(self.schedule, way.layers), way.layers, way.segments)
        return plan_in(changed, self.io, self.inplace, self.sizes) if fits_window(changed) else None


def divide(whole: Plan, wish: Wish, io: Io, inplace: bool, others: Sequence[Sequence[Implementation]] = ()) -> Plan:
    """The plan that is wished for. others: for each instruction, implementations that may take the chosen one's place."""
    if not _can_divide(whole) or wish.holds(whole):
        return whole
    ways = Ways(whole, io, inplace, others, MAX_STEPS if wish.max_rise is None else FEW_STEPS)
    best, least, tried = whole, float(whole.workspace_nbytes), 0
    for way in ways.candidates(wish):
        if tried == MOST_PLACED:
            break
        if wish.limit_nbytes is None and way.peak_nbytes >= best.workspace_nbytes:
            continue
        tried += 1
        placed = ways.placed(way)
        if placed is None:
            continue
        if wish.holds(placed):
            return placed
        worth = placed.workspace_nbytes if wish.limit_nbytes is not None else ways.worth(way, placed.workspace_nbytes)
        smaller = placed.workspace_nbytes < whole.workspace_nbytes or placed.excess_nbytes < whole.excess_nbytes
        if smaller and (placed.excess_nbytes, worth) < (best.excess_nbytes, least):
            best, least = placed, worth
    return best if wish.limit_nbytes is None else _within(ways, wish) or best


def _within(ways: Ways, wish: Wish) -> Plan | None:
    """A plan within a limit, where none of the fastest divisions is: of those that take more instructions the first, found by bisection, as
    the memory that they need falls; where none of these is, one of the smallest."""
    slower, found = ways.candidates(wish)[MOST_PLACED:], None
    while slower:
        middle = len(slower) // 2
        placed = ways.placed(slower[middle])
        if placed is not None and wish.holds(placed):
            found, slower = placed, slower[:middle]
        else:
            slower = slower[middle + 1 :]
    if found is not None:
        return found
    smallest = (ways.placed(way) for way in ways.candidates(Wish())[:MOST_PLACED])
    return next((placed for placed in smallest if placed is not None and wish.holds(placed)), None)


def points(whole: Plan, io: Io, inplace: bool, others: Sequence[Sequence[Implementation]] = ()) -> tuple[Plan, ...]:
    """RAM against instructions: plans from `whole` on with falling workspaces, of which none takes fewer instructions than one before."""
    if not _can_divide(whole):
        return (whole,)
    ways = Ways(whole, io, inplace, others)
    lowest = sorted(ways.found, key=lambda way: (way.peak_nbytes, way.instructions))
    useful = [way for at, way in enumerate(lowest) if all(way.instructions < before.instructions for before in lowest[:at])]
    every = (whole, *(placed for way in useful[:MOST_POINTS] if (placed := ways.placed(way)) is not None))
    kept: list[Plan] = []
    for each in sorted(every, key=lambda one: (expected_instructions(one.schedule), one.workspace_nbytes)):
        if not kept or each.workspace_nbytes < kept[-1].workspace_nbytes or each.excess_nbytes < kept[-1].excess_nbytes:
            kept.append(each)
    return tuple(kept)


def _with_choices(schedule: Schedule, layers: Layers) -> Schedule:
    """The schedule with the implementations of these layers."""
    choices = list(schedule.choices)
    for number, position in enumerate(layers.order):
        choices[position] = choices[position].instead(layers.layers[number].implementation)
    return replace(schedule, choices=tuple(choices))


def layers_of(schedule: Schedule, io: Io, inplace: bool) -> Layers:
    """The layers of a schedule, in the order in which they begin."""
    order = list(dict.fromkeys(step.position for step in schedule.steps))
    chosen = [choice.implementation for choice in schedule.choices]
    return Layers(schedule.program, chosen, order, io, inplace, schedule.window and schedule.window.nbytes)


def _can_divide(whole: Plan) -> bool:
    """Whether there is anything to divide: straight-line code whose buffers lie where the plan says."""
    program = whole.schedule.program
    if whole.workspace_nbytes < SMALL_NBYTES or _has_control(program):
        return False
    return not any(buffer.is_window for buffer in program.buffers)


def _has_control(program: Program) -> bool:
    return any(isinstance(one, Control) for one in program.instructions)


def _divisions(divisions: Divisions) -> list[Segments]:
    """The divisions worth looking at, with rising peaks and falling instructions."""
    found: list[Segments] = []
    for peak in divisions.peaks:
        each = divisions.cheapest(peak)
        if each is not None and (not found or each.instructions < found[-1].instructions):
            found.append(each)
    roomy = divisions.roomiest(divisions.least_peak)
    return [*found, roomy] if roomy is not None else found


def least_peak(schedule: Schedule, io: Io, inplace: bool) -> int:
    """The smallest peak that any division of a layer-by-layer schedule has, in bytes alive."""
    layers = layers_of(schedule, io, inplace)
    if _has_control(schedule.program):
        return max(map(layers.whole_peak, range(len(layers.layers))), default=0)
    return Divisions(layers).least_peak
