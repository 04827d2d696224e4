"""Memory of a Plan, for people: how near it is to its lower bound, which step sets the peak with what, which layers run by rows.

Enters: a Plan. Leaves: `Memory`.
Invariant: everything follows from the Plan's steps. Layers are numbered in the order in which they begin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aot.lower.arrange import needed_nbytes
from aot.lower.lifetime import live_nbytes, merged
from aot.lower.pieces import pieces
from aot.lower.plan import SCRATCH, row_name
from aot.lower.rows import row_count, row_nbytes

if TYPE_CHECKING:
    from aot.lower.lifetime import Io
    from aot.lower.plan import Plan, Region, Schedule
    from aot.lower.program import Program


@dataclass(frozen=True)
class Held:
    """Bytes of a storage that a step needs, and how many of its rows these are. Of scratch, `label` is "scratch"."""

    name: str
    label: str
    nbytes: int
    rows: int = 1
    of_rows: int = 1

    def __str__(self) -> str:
        return f"{self.label} {self.nbytes}" + (f" ({self.rows} of {self.of_rows} rows)" if self.rows < self.of_rows else "")


@dataclass(frozen=True)
class Peak:
    """The first step that needs most bytes: rows [y0, y1) of a layer (None: all of it). held: what it needs, the largest first;
    shared_nbytes: of these, bytes that its output may share with rows that it reads for the last time."""

    layer: int
    rows: tuple[int, int] | None
    nbytes: int
    shared_nbytes: int
    held: tuple[Held, ...]

    @property
    def rows_text(self) -> str:
        """`, row 4`; empty if the layer runs whole."""
        if self.rows is None:
            return ""
        first, last = self.rows[0], self.rows[1] - 1
        return f", row {first}" if first == last else f", rows {first}..{last}"


@dataclass(frozen=True)
class Stretch:
    """Layers [first, end) that run whole, one after the other, or together by rows in so many steps."""

    first: int
    end: int
    steps: int
    by_rows: bool

    def __str__(self) -> str:
        span = str(self.first) if self.end == self.first + 1 else f"{self.first}..{self.end - 1}"
        return f"[{span} by rows in {self.steps} steps]" if self.by_rows else span


@dataclass(frozen=True)
class Memory:
    """Bytes of the workspace, fewer than which no placement of its steps has; layers_by_rows: how many run in several steps.

    regions: where it lies, if that is not one memory, with what is used of each. needed: bytes that each step needs."""

    workspace_nbytes: int
    lower_bound_nbytes: int
    peak: Peak | None
    stretches: tuple[Stretch, ...]
    layers_by_rows: int
    steps: int
    regions: tuple[Region, ...] = ()
    needed: tuple[int, ...] = ()

    @property
    def gap(self) -> float:
        """The share by which the workspace is above its lower bound."""
        return self.workspace_nbytes / self.lower_bound_nbytes - 1 if self.lower_bound_nbytes else 0.0

    @property
    def gap_text(self) -> str:
        """`2.1 % above the lower bound of 3804`; for regions that of one memory."""
        gap = "at" if self.workspace_nbytes == self.lower_bound_nbytes else f"{self.gap:.1%}".replace("%", " % above")
        return f"{gap} the lower bound of {self.lower_bound_nbytes}{' in one memory' if self.regions else ''}"

    @property
    def regions_text(self) -> str:
        """`fast 14080 of 16384 bytes, slow 55296 of 65536`."""
        texts = [f"{region.name} {region.nbytes} of {region.size_nbytes}" for region in self.regions]
        return ", ".join([f"{text} bytes" for text in texts[:1]] + texts[1:])

    @property
    def segments(self) -> str:
        """Which layers run whole and which by rows: `0 [1..4 by rows in 30 steps] 5..7`."""
        return " ".join(map(str, self.stretches))


_HeldAt = Callable[[int], list[Held]]


def memory_of(plan: Plan, io: Io, inplace: bool = True) -> Memory:
    """What there is to say about a Plan's workspace. inplace: whether outputs may lie over inputs."""
    schedule = plan.schedule
    several = [count for count in Counter(step.position for step in schedule.kernel_steps).values() if count > 1]
    needed, held = _in_parts(schedule, io, inplace) if plan.in_parts else _whole(plan)
    return Memory(
        plan.workspace_nbytes,
        plan.lower_bound_nbytes,
        _peak(schedule, needed, held),
        stretches(schedule),
        len(several),
        sum(several),
        plan.regions,
        tuple(needed[: len(schedule.steps)]),
    )


def crowd(plan: Plan, region: Region) -> tuple[Held, ...]:
    """What a region holds while it holds most, the largest first."""
    lives = [life for life in plan.lifetimes if region.start <= plan.offset_of[life.name] < region.stop]
    needed = live_nbytes(tuple(lives))
    if not needed:
        return ()
    worst = needed.index(max(needed))
    owners = {row_name(name, row): name for name, offsets in plan.rows for row in range(len(offsets))}
    nbytes: Counter[str] = Counter()
    for life in lives:
        if life.first <= worst <= life.last:
            nbytes[owners.get(life.name, life.name)] += life.nbytes
    return tuple(_held(plan.schedule.program, name, count) for name, count in nbytes.most_common())


def stretches(schedule: Schedule) -> tuple[Stretch, ...]:
    """The layers in stretches: neighbours that run whole, and those whose steps lie between each other's."""
    spans: dict[int, list[int]] = {}
    for number, step in enumerate(schedule.kernel_steps):
        spans.setdefault(step.position, []).append(number)
    found: list[Stretch] = []
    end = -1
    for layer, steps in enumerate(spans.values()):
        by_rows, count = len(steps) > 1, len(steps)
        last = found[-1] if found else None
        if last and (steps[0] < end or not (by_rows or last.by_rows)):
            found[-1] = Stretch(last.first, layer + 1, last.steps + count, last.by_rows)
        else:
            found.append(Stretch(layer, layer + 1, count, by_rows))
        end = max(end, steps[-1])
    return tuple(found)


def _peak(schedule: Schedule, needed: list[int], held: _HeldAt) -> Peak | None:
    """What sets the peak: None where nothing is needed."""
    if not any(needed) or not schedule.kernel_steps:
        return None
    computing = [n for n, step in enumerate(schedule.steps) if schedule.implementation(step).computes]
    worst = max(computing, key=lambda step: (needed[step] if step < len(needed) else 0, -step))
    step, everything = schedule.steps[worst], held(worst)
    count = schedule.implementation(step).rows.count
    rows = None if (step.y0, step.y1) == (0, count) else (step.y0, step.y1)
    shared = sum(one.nbytes for one in everything) - needed[worst]
    ordered = tuple(sorted(everything, key=lambda one: (-one.nbytes, one.name)))
    return Peak(schedule.kernel_positions.index(step.position), rows, needed[worst], shared, ordered)


def _whole(plan: Plan) -> tuple[list[int], _HeldAt]:
    """Bytes that each step needs, layer by layer, and what needs them."""
    program = plan.schedule.program
    needed = live_nbytes(merged(plan.lifetimes, dict(plan.takes_over)))

    def held(step: int) -> list[Held]:
        here = [life for life in plan.lifetimes if life.first <= step <= life.last and life.nbytes]
        return [_held(program, life.name, life.nbytes) for life in here]

    return needed, held


def _in_parts(schedule: Schedule, io: Io, inplace: bool) -> tuple[list[int], _HeldAt]:
    """Bytes that each step needs, with what its output may share taken off, and what needs them."""
    program = schedule.program
    found, shares = pieces(schedule, io, schedule.scattered)

    def held(step: int) -> list[Held]:
        nbytes: Counter[str] = Counter()
        for piece in found:
            nbytes[piece.storage] += sum(part.high - part.low for part in piece.parts if part.first <= step <= part.last)
        return [_held(program, name, count) for name, count in nbytes.items() if count]

    return needed_nbytes(found, shares if inplace else ()), held


def _held(program: Program, name: str, nbytes: int) -> Held:
    if name not in program.by_name:
        return Held(name, _label(program, name), nbytes)
    buffer = program[name]
    return Held(name, _label(program, name), nbytes, nbytes // row_nbytes(buffer), row_count(buffer))


def _label(program: Program, name: str) -> str:
    """What a report calls a storage: scratch and a run's progress are none of the Program's."""
    if name not in program.by_name:
        return "scratch" if name.startswith(SCRATCH) else name
    return program[name].label or name
