"""Schedule and Plan: the order of steps, and where each byte lies.

Enters: a Program with its chosen implementations. Leaves: `Step`, `Schedule`, `Plan`.
Invariant: everything about lifetimes follows from the steps; two storages alive at once never share a byte, except where an
implementation allows its output to take over an input (`overwrites`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from aot.lower.implementation import Choice, Implementation
from aot.lower.rows import step_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aot.graph.primitive import Primitive
    from aot.lower.program import Program


SCRATCH = "scratch."


@dataclass(frozen=True)
class Step:
    """Rows [y0, y1) of the implementation at `position` of the schedule's choices."""

    position: int
    y0: int
    y1: int


@dataclass(frozen=True)
class Window:
    """Memory for pages of constants: at most so many bytes at once. is_thrifty: a page is asked for while the layer before it runs only
    where that takes no more workspace than there is anyway."""

    nbytes: int
    is_thrifty: bool = False


@dataclass(frozen=True)
class Schedule:
    """A Program, one choice for each instruction, and the steps in execution order. Layer by layer is one step an instruction.

    scattered: storages whose rows get an address each, when layers run by rows. window: where constants come in pages, what these may
    take (`pages.py`). threads: for how many the layers are divided (`parts.py`).
    """

    program: Program
    choices: tuple[Choice, ...]
    steps: tuple[Step, ...]
    scattered: frozenset[str] = frozenset()
    window: Window | None = None
    threads: int = 1

    @property
    def by_rows(self) -> bool:
        """Whether some layer runs in several steps."""
        return len(self.steps) > len(self.choices)

    def implementation(self, step: Step) -> Implementation:
        return self.choices[step.position].implementation

    @property
    def instructions(self) -> tuple[Primitive, ...]:
        """The instruction of each step."""
        return tuple(self.implementation(step).instruction for step in self.steps)

    @property
    def kernel_steps(self) -> tuple[Step, ...]:
        """The steps that compute something: all but control flow and requests for pages."""
        return tuple(step for step in self.steps if self.implementation(step).computes)

    @property
    def pages(self) -> Mapping[int, str]:
        """The buffer with the constants of each implementation that finds them in a page, by position."""
        return {number: choice.implementation.page for number, choice in enumerate(self.choices) if choice.implementation.page}

    @property
    def kernel_positions(self) -> tuple[int, ...]:
        """The choices that compute something, in the order in which they begin."""
        return tuple(dict.fromkeys(step.position for step in self.kernel_steps))

    def __str__(self) -> str:
        lines = [f"schedule {self.program.name}"]
        for step in self.steps:
            chosen = self.implementation(step)
            scratch = f" scratch {chosen.scratch_nbytes}" if chosen.scratch_nbytes else ""
            reads, writes = ", ".join(chosen.reads), ", ".join(chosen.writes)
            parts = f" in {chosen.parts} parts" if chosen.parts > 1 else ""
            lines.append(f"  {chosen.kernel} rows {step.y0}..{step.y1}{parts} ({reads}) -> ({writes}){scratch}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Lifetime:
    """A storage in the workspace: bytes, alignment, and the first and last step (inclusive) that touch it."""

    name: str
    nbytes: int
    first: int
    last: int
    align: int = 4


@dataclass(frozen=True)
class Region:
    """A memory of the caller's of at most `size_nbytes` bytes. A plan uses `nbytes` of them; their offsets are those from `start` on."""

    name: str
    size_nbytes: int
    start: int = 0
    nbytes: int = 0

    @property
    def stop(self) -> int:
        return self.start + self.nbytes


@dataclass(frozen=True)
class Plan:
    """Offsets in the workspace, in bytes. `takes_over` maps a storage to the one whose bytes it continues (in place).

    rows: the storages that lie scattered, row by row, and the offset of each row; they have no other offset. in_parts: outputs lie on
    what their step reads last as far as implementations allow (`overlap`, `skew`), not just in its place. regions: where the workspace is in
    several memories, these, one after the other: an offset says which it is in, and where.
    """

    schedule: Schedule
    lifetimes: tuple[Lifetime, ...]
    offsets: tuple[tuple[str, int], ...]
    workspace_nbytes: int
    lower_bound_nbytes: int
    takes_over: tuple[tuple[str, str], ...] = ()
    method: str = ""
    align: int = 4
    rows: tuple[tuple[str, tuple[int, ...]], ...] = ()
    in_parts: bool = False
    regions: tuple[Region, ...] = ()

    def region_at(self, offset: int) -> Region:
        """The region that an offset is in; where there are none, the workspace as one."""
        found = [region for region in self.regions if region.start <= offset]
        return found[-1] if found else Region("workspace", self.workspace_nbytes, 0, self.workspace_nbytes)

    @property
    def excess_nbytes(self) -> int:
        """Bytes by which regions would have to be larger than they are."""
        return sum(max(region.nbytes - region.size_nbytes, 0) for region in self.regions)

    @cached_property
    def row_offsets(self) -> Mapping[str, tuple[int, ...]]:
        """Offset of each row of the storages that lie scattered."""
        return dict(self.rows)

    def tables(self, position: int) -> frozenset[str]:
        """The buffers that the implementation at this position gets as tables of row addresses: those that lie scattered, and of which
        some step touches several rows. (Of the others it gets where their first row would be, if all were where the touched one is.)"""
        program = self.schedule.program
        chosen = self.schedule.choices[position].implementation
        steps = [step for step in self.schedule.steps if step.position == position]
        return frozenset(
            name
            for name in (*chosen.reads, *chosen.writes)
            if program.storage(name) in self.row_offsets
            and any(len(step_rows(program, chosen, name, step.y0, step.y1)) > 1 for step in steps)
        )

    @cached_property
    def offset_of(self) -> Mapping[str, int]:
        """Offset of each storage in the workspace (scratch is named `scratch.POSITION`)."""
        return dict(self.offsets)

    def __str__(self) -> str:
        lines = [
            f"plan {self.schedule.program.name}: {self.workspace_nbytes} bytes, lower bound {self.lower_bound_nbytes}, {self.method}"
        ]
        lines += [f"  region {each.name}: {each.nbytes} of {each.size_nbytes} bytes, from {each.start} on" for each in self.regions]
        for life in self.lifetimes:
            lines.append(f"  {self.offset_of[life.name]:8d} {life.nbytes:8d} steps {life.first}..{life.last} %{life.name}")
        return "\n".join(lines)


PROGRESS = "input.progress"
"""Name of the word that says how far a run has come whose input is pushed: it lies in the workspace from the first step to the last."""
PROGRESS_NBYTES = 4


def row_name(storage: str, row: int) -> str:
    """Name of a row of a storage that lies scattered."""
    return f"{storage}[{row}]"


def scratch_name(position: int) -> str:
    """Name of the scratch storage of the implementation at this position."""
    return f"{SCRATCH}{position}"
