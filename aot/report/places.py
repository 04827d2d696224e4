# pyright: basic
"""Where each buffer lies, and why there.

Enters: an entry with its Plan. Leaves: one dictionary for each storage of the Plan, in its order; `Names`, what people call things.
Invariant: each sentence is found again from the Plan (what is alive at the same steps, what shares bytes, what is free below); nothing is
remembered from planning.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from aot.lower.implementation import Rule, Skew
from aot.lower.pieces import pieces
from aot.lower.plan import PROGRESS, SCRATCH, Lifetime, Plan, row_name
from aot.lower.rows import row_count
from aot.lower.traffic import traffic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aot.bundle import Bundle, Entry
    from aot.lower.implementation import Implementation
    from aot.lower.lifetime import Io

Extent = tuple[int, int, int, int]
"""Bytes [low, high) of a buffer, needed from one step to another (inclusive)."""


class Names:
    """What the layers and buffers of an entry are called: layers by their place in `Entry.layers`."""

    def __init__(self, entry: Entry) -> None:
        self.entry, self.plan = entry, entry.plan
        self.positions = () if entry.plan is None else entry.plan.schedule.kernel_positions

    @cached_property
    def layer_at(self) -> Mapping[int, int]:
        """The layer of each position of the schedule."""
        return {position: layer for layer, position in enumerate(self.positions)}

    def implementation(self, layer: int) -> Implementation | None:
        return None if self.plan is None else self.plan.schedule.choices[self.positions[layer]].implementation

    def output(self, layer: int) -> str:
        """The label of what a layer makes; of labels that a converter joined the first."""
        one = self.implementation(layer)
        return "" if one is None or not one.writes else self.buffer(one.writes[0])

    def dtypes(self, layer: int) -> list[str]:
        """The element types that a layer reads and writes, each once."""
        one = self.implementation(layer)
        if one is None or self.plan is None:
            return []
        program = self.plan.schedule.program
        return sorted({str(program[name].dtype) for name in (*one.reads, *one.writes)})

    def buffer(self, name: str) -> str:
        """The label of a buffer or storage; its own name where the model has none."""
        if name.startswith(SCRATCH):
            return f"scratch of layer {self.layer_at[int(name.removeprefix(SCRATCH))]}"
        if name == PROGRESS or self.plan is None or name not in self.plan.schedule.program.by_name:
            return "progress of the run" if name == PROGRESS else name
        return self.plan.schedule.program[name].label.split(";")[0] or name


def places(bundle: Bundle, entry: Entry, names: Names) -> list[dict[str, Any]]:
    """Each storage of the Plan: what it is, which of its bytes are needed when, and why it lies where it does."""
    plan = entry.plan
    if plan is None:
        return []
    owners = {row_name(name, row): (name, row) for name, offsets in plan.rows for row in range(len(offsets))}
    parts = _extents(plan, "workspace" if bundle.io_in_workspace else "caller")
    extents = [parts.get(life.name, [(0, life.nbytes, life.first, life.last)]) for life in plan.lifetimes]
    moved = traffic(plan.schedule)
    sentences = _Sentences(plan, names, owners, extents)
    found = []
    for number, life in enumerate(plan.lifetimes):
        storage, row = owners.get(life.name, (life.name, None))
        found.append(
            {
                "name": life.name,
                "label": names.buffer(storage),
                "kind": _kind(plan, storage),
                "row": row,
                **_content(plan, storage),
                "made_by": _touching(plan, names, storage, "writes"),
                "read_by": _touching(plan, names, storage, "reads"),
                "moved_bytes": moved.get(storage, 0),
                "extents": [list(extent) for extent in extents[number]],
                "why": sentences.why(number, storage, moved.get(storage, 0)),
            }
        )
    return found


def _kind(plan: Plan, storage: str) -> str:
    """tensor, scratch or bookkeeping; input and output where those are in the workspace."""
    program = plan.schedule.program
    if storage not in program.by_name:
        return "scratch" if storage.startswith(SCRATCH) else "bookkeeping"
    role = program[storage].role
    return role if role in ("input", "output") else "tensor"


def _content(plan: Plan, storage: str) -> dict[str, Any]:
    program = plan.schedule.program
    if storage not in program.by_name:
        return {"dtype": None, "shape": None, "rows": None, "views": []}
    buffer = program[storage]
    views = sorted(
        {one.label.split(";")[0] or one.name for one in program.buffers if one.base and program.storage(one.name) == storage}
    )
    return {
        "dtype": str(buffer.dtype),
        "shape": list(buffer.shape),
        "rows": row_count(buffer),
        "views": [view for view in views if view != buffer.label.split(";")[0]],
    }


def _touching(plan: Plan, names: Names, storage: str, how: str) -> list[int]:
    """The layers that write or read a storage; of scratch the one whose it is."""
    if storage.startswith(SCRATCH):
        return [names.layer_at[int(storage.removeprefix(SCRATCH))]]
    program, choices = plan.schedule.program, plan.schedule.choices
    if storage not in program.by_name:
        return []
    return sorted(
        layer
        for position, layer in names.layer_at.items()
        if storage in map(program.storage, getattr(choices[position].implementation, how))
    )


def _extents(plan: Plan, io: Io) -> dict[str, list[Extent]]:
    """Where rows of a tensor come and go, the parts of it that are needed at the same steps."""
    if not plan.in_parts:
        return {}
    end = max(len(plan.schedule.steps) - 1, 0)
    found: dict[str, list[Extent]] = {}
    for piece in pieces(plan.schedule, io, plan.schedule.scattered)[0]:
        name = piece.storage if piece.row is None else row_name(piece.storage, piece.row)
        found[name] = [(part.low, part.high, part.first, min(part.last, end)) for part in piece.parts]
    return found


@dataclass(frozen=True)
class _Neighbours:
    """What is alive with a buffer, by number: wholly below, wholly above; and on bytes of its own what needs them for the last time in
    the step that writes them."""

    on: tuple[int, ...]
    below: tuple[int, ...]
    above: tuple[int, ...]


class _Sentences:
    """Why each buffer lies where it does."""

    def __init__(
        self, plan: Plan, names: Names, owners: Mapping[str, tuple[str, int]], extents: Sequence[Sequence[Extent]]
    ) -> None:
        self.plan, self.names, self.owners, self.extents = plan, names, owners, extents
        self.lives: Sequence[Lifetime] = plan.lifetimes
        self.start = [plan.offset_of[life.name] for life in self.lives]
        placed = [
            (number, self.start[number] + low, self.start[number] + high, first, last)
            for number, each in enumerate(extents)
            for low, high, first, last in each
        ]
        columns = np.array(placed, np.int64).reshape(-1, 5).T
        self.whose, self.low, self.high, self.first, self.last = columns
        self.takes_over = dict(plan.takes_over)

    def why(self, number: int, storage: str, moved_nbytes: int) -> str:
        """`in place over x: ...`, `at the lowest free offset: ...`."""
        around = self._around(number)
        texts = [self._shared(number, storage, around) or self._placed(number, around)]
        if storage.startswith(SCRATCH):
            texts.insert(0, "needed only while its layer computes")
        if self.plan.regions:
            region = self.plan.region_at(self.start[number]).name
            texts.append(
                f"in {region}: what is used most lies in the fastest memory, and {moved_nbytes} bytes a run are moved from and to it"
            )
        return "; ".join(texts)

    def _around(self, number: int) -> _Neighbours:
        life, low = self.lives[number], self.start[number]
        alive = (self.first <= life.last) & (self.last >= life.first) & (self.whose != number)
        region = self.plan.region_at(low)
        below = alive & (self.high <= low) & (self.low >= region.start)
        above = alive & (self.low >= low + life.nbytes) & (self.low < region.stop)
        on = np.zeros(len(alive), bool)
        for own_low, own_high, first, _ in self.extents[number]:
            on |= alive & (self.last == first) & (self.high > low + own_low) & (self.low < low + own_high)
        return _Neighbours(*(tuple(map(int, np.flatnonzero(each))) for each in (on, below, above)))

    def _shared(self, number: int, storage: str, around: _Neighbours) -> str:
        """Why it lies on another buffer's bytes, which that one needs for the last time; empty if it does not."""
        life = self.lives[number]
        if (old := self.takes_over.get(life.name)) is not None:
            return f"in place over {self._name(old)}: each element is read before the one that takes its place is written"
        schedule = self.plan.schedule
        for other in sorted(around.on, key=lambda one: (self.last[one], one)):
            step = schedule.steps[self.last[other]]
            rules: dict[str, Rule] = {
                schedule.program.storage(name): rule
                for name, rule in schedule.implementation(step).sharing(step.y1 - step.y0).items()
            }
            whose = int(self.whose[other])
            if (old := self._owner(whose)) in rules and old != storage:
                return f"over {self._title(whose)}: {_rule_text(rules[old], self.start[whose] - self.start[number])}"
        return ""

    def _placed(self, number: int, around: _Neighbours) -> str:
        start = self.plan.region_at(self.start[number]).start
        above = self._title(int(self.whose[min(around.above, key=lambda one: (self.low[one], one))])) if around.above else ""
        if self.start[number] == start:
            return f"at the lowest offset there is{f', with {above} above it' if above else ': nothing lies above it'}"
        below = self._title(int(self.whose[max(around.below, key=lambda one: (self.high[one], -one))])) if around.below else ""
        texts = " and ".join(f"{text} {where} it" for text, where in ((below, "below"), (above, "above")) if text)
        if self._has_room_below(number, start):
            return f"where the search for the smallest whole put it{f', with {texts}' if texts else ''}; lower bytes are free, too"
        return f"at the lowest free offset, with {texts}"

    def _has_room_below(self, number: int, start: int) -> bool:
        """Whether it would find room at a lower offset, with everything else where it is."""
        life, free = self.lives[number], start
        alive = (self.first <= life.last) & (self.last >= life.first) & (self.whose != number) & (self.high > start)
        for other in sorted(map(int, np.flatnonzero(alive)), key=lambda one: self.low[one]):
            free += -free % life.align
            if self.low[other] >= free + life.nbytes or free >= self.start[number]:
                break
            free = max(free, int(self.high[other]))
        return free + -free % life.align < self.start[number]

    def _owner(self, number: int) -> str:
        return self.owners.get(self.lives[number].name, (self.lives[number].name, 0))[0]

    def _title(self, number: int) -> str:
        return self._name(self.lives[number].name)

    def _name(self, name: str) -> str:
        """`the label`, or `row 3 of the label`."""
        storage, row = self.owners.get(name, (name, None))
        return self.names.buffer(storage) if row is None else f"row {row} of {self.names.buffer(storage)}"


def _rule_text(rule: Rule, below_nbytes: int) -> str:
    """Why an output may lie on an input that starts so many bytes above it."""
    if isinstance(rule, Skew):
        distance = (
            f"{abs(below_nbytes)} bytes {'below' if below_nbytes > 0 else 'above'} its start" if below_nbytes else "at its start"
        )
        return f"{distance} (skewed), so that each byte is written only after it was read for the last time"
    return {
        "element": "byte on byte, each element being read before the one that takes its place is written",
        "same": "byte on byte, as all of a channel is read before any of it is written",
        "forward": "pixels run upwards, and each block of them is read before it is written",
        "anywhere": "all that the step reads is copied away before its first store",
    }[rule]
