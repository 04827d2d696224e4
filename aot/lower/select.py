"""Selection: which kernel computes each instruction, and in which of its variants.

Enters: a Program, a back end's kernels in order of preference, the generic kernel. Leaves: one `Choice` an instruction.
Invariant: an implementation names every buffer with changing content that its instruction reads or writes; planning relies on it.

`survey` asks the kernels; `decide` chooses among what they offer, for all entries of a bundle at once. Where the first kernel that claims
says what it costs, all that do so are compared; else it is taken as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aot.errors import CompileError, InternalError
from aot.graph.primitive import Call, Contract, describe, reads, writes
from aot.lower.implementation import Choice, Implementation, kind_of
from aot.lower.tradeoff import Figures, Goal, choose, total

if TYPE_CHECKING:
    from aot.graph.primitive import Primitive
    from aot.lower.implementation import Backend, Kernel
    from aot.lower.program import Program
    from aot.target import Target

_MORE_CONSTANTS = 1.4
_MORE_ON_SMALL_CORES = 2.2  # without a long multiplication: two weights take a word of their own
"""Weights and tables for the int8 weights, at most, unless `speed` or `size` is asked for."""
_CLEARLY_SMALLER = 0.9
"""Of a faster variant's constants: less of a saving is taken for padding and headers, not for another packing of the weights."""


@dataclass(frozen=True, eq=False)
class Field:
    """What there is to choose from for an instruction: one implementation, or several that all have costs, the preferred one first.
    excluded: those that a limit on memory rules out."""

    candidates: tuple[Implementation, ...]
    declined: tuple[tuple[str, str], ...] = ()
    excluded: tuple[tuple[Implementation, str], ...] = ()

    @property
    def least_scratch_nbytes(self) -> int:
        return min(one.scratch_nbytes for one in self.candidates)

    def within(self, scratch_nbytes: int, why: str) -> Field:
        """Without the candidates that need more scratch; but never without any."""
        limit = max(scratch_nbytes, self.least_scratch_nbytes)
        kept = tuple(one for one in self.candidates if one.scratch_nbytes <= limit)
        out = tuple((one, why) for one in self.candidates if one.scratch_nbytes > limit)
        return replace(self, candidates=kept, excluded=(*self.excluded, *out))


def select(program: Program, backend: Backend, generic: Kernel, target: Target, goal: Goal | None = None) -> tuple[Choice, ...]:
    """For each instruction the implementation to take, with the sentences of the kernels that declined.

    CompileError if even the generic kernel declines.
    """
    (choices,) = decide([survey(program, backend, generic, target)], goal or Goal())
    return choices


def survey(program: Program, backend: Backend, generic: Kernel, target: Target) -> tuple[Field, ...]:
    """What the kernels offer for each instruction. CompileError if even the generic kernel declines."""
    return tuple(field_of(program, instruction, backend, generic, target) for instruction in program.instructions)


def field_of(program: Program, instruction: Primitive, backend: Backend, generic: Kernel, target: Target) -> Field:
    """What the kernels offer for an instruction."""
    kind = kind_of(instruction)
    own = [kernel for kernel in backend.kernels if kernel.name != generic.name]
    kernels = [kernel for kernel in own if not kernel.kinds or kind in kernel.kinds]
    declined = [(backend.name, f"no kernel of its own for a {kind}")] if own and not kernels else []
    offered: list[Implementation] = []
    for kernel in kernels:
        answer = kernel.claim(program, instruction, target)
        if isinstance(answer, str):
            declined.append((kernel.name, answer))
            continue
        offered += [answer] if isinstance(answer, Implementation) else answer
        if offered[0].cost is None:
            break
    answer = "" if offered else generic.claim(program, instruction, target)
    if isinstance(answer, Implementation):
        offered = [answer]
    if not offered:
        nodes = ", ".join(map(str, instruction.nodes))
        raise CompileError(f"no kernel for target {target.name}: {answer}", where=f"node {nodes}" if nodes else "")
    candidates = (offered[0], *(one for one in offered[1:] if offered[0].cost and one.cost))
    for one in candidates:
        _check(program, instruction, one)
    return Field(candidates, tuple(declined))


def without_larger_workspace(program: Program, fields: Sequence[Field]) -> tuple[Field, ...]:
    """Without the candidates whose scratch, with what their instruction reads and writes, takes more memory than the preferred ones
    need for some instruction."""
    own = [_touched_nbytes(program, field.candidates[0]) for field in fields]
    peak = max((nbytes + field.candidates[0].scratch_nbytes for nbytes, field in zip(own, fields, strict=True)), default=0)
    return tuple(field.within(peak - nbytes, "it would need more memory") for nbytes, field in zip(own, fields, strict=True))


def without_slower(fields: Sequence[Field]) -> tuple[Field, ...]:
    """Without the candidates that are slower than the preferred one, unless they have clearly smaller constants (balanced code does not
    become slower for the sake of its code alone), and without frugal ones."""
    return tuple(replace(field, **_slower_apart(field)) for field in fields)


def _slower_apart(field: Field) -> dict[str, Any]:
    first = field.candidates[0]
    slower = {id(one) for one in field.candidates if one.is_frugal or _is_slower(one, first)}
    if len(slower) == len(field.candidates):  # a limit left frugal ones alone
        return {}
    kept = tuple(one for one in field.candidates if id(one) not in slower)
    out = tuple((one, "slower, for the sake of less code") for one in field.candidates if id(one) in slower)
    return {"candidates": kept, "excluded": (*field.excluded, *out)}


def _is_slower(one: Implementation, first: Implementation) -> bool:
    """Whether it is slower for the sake of less code."""
    if one.cost is None or first.cost is None or one.cost.instructions <= first.cost.instructions:
        return False
    return one.constants_nbytes >= _CLEARLY_SMALLER * first.constants_nbytes


def _touched_nbytes(program: Program, one: Implementation) -> int:
    storages = {program.storage(name) for name in (*one.reads, *one.writes)}
    return sum(program[name].nbytes for name in storages)


def weights_nbytes(program: Program) -> int:
    """Bytes of the weights of all contractions, as the model has them, and of what calls read."""
    storages = {program.storage(one.right.buffer) for one in program.instructions if isinstance(one, Contract)}
    storages |= {program.storage(name) for one in program.instructions if isinstance(one, Call) for name in one.ins}
    return sum(program[name].nbytes for name in storages if program[name].role == "constant")


def constants_limit(programs: Sequence[Program], target: Target) -> int:
    """Bytes of weights and tables that balanced code may have."""
    more = _MORE_CONSTANTS if "long_multiply" in target.has else _MORE_ON_SMALL_CORES
    return int(more * sum(map(weights_nbytes, programs)))


def decide(fields: Sequence[Sequence[Field]], goal: Goal) -> tuple[tuple[Choice, ...], ...]:
    """The choices for each entry, from what its kernels offer: best for all entries together."""
    every = [field for entry in fields for field in entry]
    least = sum(min(one.constants_nbytes for one in field.candidates) for field in every)
    if goal.max_constants_nbytes is not None:
        goal = replace(goal, max_constants_nbytes=max(goal.max_constants_nbytes, least))
    picks = choose([[_figures(one) for one in field.candidates] for field in every], goal)
    choices = iter([_choice(field, pick) for field, pick in zip(every, picks, strict=True)])
    return tuple(tuple(next(choices) for _ in entry) for entry in fields)


def promised_flash_nbytes(entries: Sequence[Sequence[Choice]]) -> int:
    """What the choices for all entries take of flash, as far as their kernels say."""
    chosen = [[_figures(choice.implementation)] for entry in entries for choice in entry]
    return total(chosen, (0,) * len(chosen)).flash_nbytes


def _figures(one: Implementation) -> Figures:
    if one.cost is None:
        return Figures(0, 0, one.constants_nbytes)
    return Figures(one.cost.instructions, one.cost.code_nbytes, one.constants_nbytes, one.cost.shared)


def _choice(field: Field, pick: int) -> Choice:
    chosen = field.candidates[pick]
    if len(field.candidates) + len(field.excluded) == 1:
        return Choice(chosen, field.declined)
    others = [(one, "" if one is chosen else _why_not(one, chosen)) for one in field.candidates]
    return Choice(chosen, field.declined, (*others, *field.excluded))


def _why_not(one: Implementation, chosen: Implementation) -> str:
    """Why a variant was not taken, seen from the one that was."""
    assert one.cost and chosen.cost
    saved = chosen.cost.instructions - one.cost.instructions
    return f"its flash is not worth, or has no room for, the {saved} instructions it saves" if saved > 0 else "not faster"


def _check(program: Program, instruction: Primitive, chosen: Implementation) -> None:
    """InternalError if the implementation hides an access from the planner, or would overwrite what it does not read."""
    touched = {program.storage(name) for name in (*reads(instruction), *writes(instruction))}
    moving = {name for name in touched if program[name].role != "constant"}
    named = {program.storage(name) for name in (*chosen.reads, *chosen.writes)}
    if not moving <= named:
        raise InternalError(f"kernel {chosen.kernel} does not name {sorted(moving - named)} of: {describe(instruction)}")
    if not {program.storage(name) for name in writes(instruction)} <= {program.storage(name) for name in chosen.writes}:
        raise InternalError(f"kernel {chosen.kernel} does not name what it writes: {describe(instruction)}")
    if not set(chosen.overwrites) <= set(chosen.reads):
        raise InternalError(f"kernel {chosen.kernel} overwrites what it does not read: {describe(instruction)}")
