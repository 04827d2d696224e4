"""Runs a bundle in Unicorn with a memory that forgets: before each step, every byte of the workspace that holds nothing which is still
needed becomes garbage; after it, everything that is needed and that the step does not write must be as it was.

Enters: a bundle whose entry has a plan, inputs. Leaves: the outputs; AssertionError at the first step that changed what it may not.
What is needed follows from the plan's steps and addresses alone, row by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.bundle import Bundle
from aot.lower.implementation import request_of
from aot.lower.lifetime import in_workspace
from aot.lower.plan import PROGRESS, PROGRESS_NBYTES, Plan, scratch_name
from aot.lower.rows import row_count, row_nbytes, step_rows
from aot.run import initial_state, memory
from aot.run.emulate import _GRID, _READ_AT, _READS, _Machine, _unicorn
from aot.run.layout import NO_OTHERS, lay_out

_NEVER = 1 << 30


@dataclass
class _Row:
    """A row's bytes in the workspace; first and last step that touches it (-1: there from the start), and the last that writes it."""

    storage: str
    number: int
    offset: int
    nbytes: int
    first: int = _NEVER
    last: int = -1
    written: int = -1


def run_poisoned(
    bundle: Bundle, inputs: Sequence[np.ndarray], expected: Mapping[str, np.ndarray] | None = None
) -> tuple[np.ndarray, ...]:
    """The outputs; a model with state begins from its initial one. expected: what each buffer holds in the end, by name; the first row that
    differs is then named."""
    entry, unicorn = bundle.main, _unicorn()
    assert entry.plan is not None
    if memory.takes_state(entry):
        inputs = [*inputs, np.frombuffer(initial_state(bundle), np.uint8)]
    regions, calls = memory.arguments(bundle, entry, inputs, 3)
    others = _READS if entry.paging else NO_OTHERS
    layout = lay_out(
        bundle,
        entry,
        regions,
        _GRID,
        at_end=True,
        guard=0xA5,
        passed=max((call.arguments for call in calls), key=len),
        others=others,
    )
    machine = _Machine(unicorn, bundle.target, entry, layout, 1_000_000_000, calls, at_end=True)
    (workspace,) = (placed for placed in layout.arguments if placed.region.name == "the workspace")
    symbols = dict(zip(entry.plan.schedule.kernel_positions, (layer.symbol for layer in entry.layers), strict=True))
    watch = _Watch(machine._engine, entry.plan, workspace.address, bundle.io_in_workspace, expected)
    for position, symbol in symbols.items():
        address = layout.image.by_name[symbol].address & ~1
        machine._engine.hook_add(unicorn.UC_HOOK_CODE, lambda *_, at=position: watch.step(at), None, address, address)
    if entry.paging:
        machine._engine.hook_add(unicorn.UC_HOOK_CODE, lambda *_: watch.ask(), None, _READ_AT, _READ_AT)
        machine.read_pages(bundle)
    machine.call()
    watch.check()
    assert watch.number == len(entry.plan.schedule.steps)
    machine.check()
    return memory.outputs(bundle, entry, machine.contents())[: len(entry.outputs)]


class _Watch:
    """The workspace between two steps."""

    def __init__(
        self, engine: Any, plan: Plan, address: int, io_in_workspace: bool, expected: Mapping[str, np.ndarray] | None
    ) -> None:
        self.engine, self.plan, self.address, self.expected = engine, plan, address, expected or {}
        self.random = np.random.default_rng(4)
        self.rows = _rows(plan, "workspace" if io_in_workspace else "caller")
        self.number = 0
        self.kept = b""

    def ask(self) -> None:
        """The entry asks for a page."""
        step = self.plan.schedule.steps[self.number]
        assert request_of(self.plan.schedule.implementation(step).instruction) is not None
        self.step(step.position)

    def step(self, position: int) -> None:
        """A kernel begins."""
        self.check()
        assert self.plan.schedule.steps[self.number].position == position
        now = self._read()
        poisoned = bytearray(self.random.bytes(len(now)))
        for row in self.rows:
            if row.first < self.number <= row.last:
                poisoned[row.offset : row.offset + row.nbytes] = now[row.offset : row.offset + row.nbytes]
        self.kept = bytes(poisoned)
        self.engine.mem_write(self.address, self.kept)
        self.number += 1

    def check(self) -> None:
        """What is needed and was not written is as before; what was written for the last time is as expected."""
        if not self.number:
            return
        now, number = self._read(), self.number - 1
        step = self.plan.schedule.steps[number]
        chosen, program = self.plan.schedule.implementation(step), self.plan.schedule.program
        own = {(PROGRESS, 0)} | {
            (program.storage(name), row) for name in chosen.writes for row in step_rows(program, chosen, name, step.y0, step.y1)
        }
        for row in self.rows:
            place = slice(row.offset, row.offset + row.nbytes)
            if row.first < number < row.last and (row.storage, row.number) not in own:
                assert now[place] == self.kept[place], f"{self._where(number)} changed row {row.number} of %{row.storage}"
            if row.written == number < row.last and row.storage in self.expected:
                want = self.expected[row.storage].tobytes()[row.number * row.nbytes :][: row.nbytes]
                assert now[place] == want, f"{self._where(number)} made another row {row.number} of %{row.storage}"

    def _where(self, number: int) -> str:
        step = self.plan.schedule.steps[number]
        return f"step {number} ({self.plan.schedule.implementation(step).kernel}, rows {step.y0}..{step.y1})"

    def _read(self) -> bytes:
        return bytes(self.engine.mem_read(self.address, self.plan.workspace_nbytes))


def _rows(plan: Plan, io: Any) -> list[_Row]:
    """Every row of the workspace, and when it is needed."""
    program = plan.schedule.program
    found: dict[tuple[str, int], _Row] = {}
    for buffer in program.buffers:
        if buffer.base is None and in_workspace(buffer, io):
            nbytes = row_nbytes(buffer)
            offset = plan.offset_of.get(buffer.name, 0)
            offsets = plan.row_offsets.get(buffer.name, tuple(offset + row * nbytes for row in range(row_count(buffer))))
            for row, start in enumerate(offsets):
                found[buffer.name, row] = _Row(buffer.name, row, start, nbytes)
                if buffer.role == "input":
                    found[buffer.name, row].first = -1
    if PROGRESS in plan.offset_of:
        found[PROGRESS, 0] = _Row(PROGRESS, 0, plan.offset_of[PROGRESS], PROGRESS_NBYTES, -1, _NEVER)
    for number, step in enumerate(plan.schedule.steps):
        chosen = plan.schedule.implementation(step)
        for name in (*chosen.reads, *chosen.writes):
            for number_of_row in step_rows(program, chosen, name, step.y0, step.y1):
                row = found.get((program.storage(name), number_of_row))
                if row is not None:
                    row.first, row.last = min(row.first, number), number
                    row.written = number if name in chosen.writes else row.written
        assert not chosen.scratch_nbytes or scratch_name(step.position) in plan.offset_of
    for name in map(program.storage, program.outputs):
        for row in found.values():
            if row.storage == name:
                row.last = _NEVER
    return list(found.values())
