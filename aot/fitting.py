"""Fitting a bundle into the memory that there is: try, measure, choose smaller kernels, try again.

Enters: a function that makes the bundle for a goal, and limits. Leaves: the bundle that is best within them, or a CompileError with
the best that can be had. Invariant: limits hold for what was measured, not for what kernels promise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from aot.errors import CompileError
from aot.llvm.module import EmittedObject, EntrySource
from aot.lower.loaded import Loaded
from aot.lower.plan import SCRATCH, Plan
from aot.lower.select import Field
from aot.lower.tradeoff import Goal

_ATTEMPTS = 4  # after the first


@dataclass(frozen=True)
class Attempt:
    """A bundle's entries and object, and what its kernels promised to take of flash (less than there is: not all code is theirs); loaded:
    the constants that are copied into a region."""

    sources: Sequence[EntrySource]
    emitted: EmittedObject
    promised_nbytes: int
    loaded: Loaded | None = None

    @property
    def flash_nbytes(self) -> int:
        return self.emitted.code_nbytes + self.emitted.weights_nbytes


def fit(attempt: Callable[[Goal], Attempt], goal: Goal, max_flash_nbytes: int | None, advice: str = "") -> Attempt:
    """The best attempt that takes no more flash. CompileError if not even the smallest does. advice: what else may take less."""
    made = attempt(goal)
    if max_flash_nbytes is None:
        return made
    tried = [made]
    while made.flash_nbytes > max_flash_nbytes and len(tried) <= _ATTEMPTS:
        allowed = made.promised_nbytes - (made.flash_nbytes - max_flash_nbytes)
        made = attempt(replace(goal, max_flash_nbytes=max(allowed, 0)))
        tried.append(made)
    if made.flash_nbytes > max_flash_nbytes:
        made = attempt(Goal("size"))
        tried.append(made)
    if made.flash_nbytes <= max_flash_nbytes:
        return made
    least = min(one.flash_nbytes for one in tried)
    raise CompileError(
        f"code, weights and tables would take {least} bytes, over --max-flash {max_flash_nbytes}",
        hint=f"{least} is the least that was found for this CPU and workspace{advice and '; '}{advice}",
    )


def with_less_scratch(fields: tuple[Field, ...], plan: Plan, max_workspace_nbytes: int) -> tuple[Field, ...]:
    """What is left to choose from where a plan's workspace is too large: kernels whose scratch fits beside what is alive; if that rules
    out none, those with the least scratch; `fields` themselves if there is nothing left to leave out."""
    why = f"its scratch does not fit --max-workspace {max_workspace_nbytes}"
    alive = _alive_nbytes(plan)
    narrowed = tuple(field.within(max_workspace_nbytes - alive[number], why) for number, field in enumerate(fields))
    if _count(narrowed) == _count(fields):
        narrowed = tuple(field.within(0, why) for field in fields)
    return narrowed if _count(narrowed) < _count(fields) else fields


def _count(fields: tuple[Field, ...]) -> int:
    return sum(len(field.candidates) for field in fields)


def _alive_nbytes(plan: Plan) -> list[int]:
    """Bytes alive while each instruction runs, without its own scratch."""
    alive = [0] * len(plan.schedule.choices)
    for number, step in enumerate(plan.schedule.steps):
        here = [life for life in plan.lifetimes if life.first <= number <= life.last and not life.name.startswith(SCRATCH)]
        replaced = {old for new, old in plan.takes_over if any(life.name == new for life in here)}
        alive[step.position] = sum(life.nbytes for life in here if life.name not in replaced)
    return alive
