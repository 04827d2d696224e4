"""Offers: what there is to choose from for each entry of a bundle.

Enters: Programs, back ends, options. Leaves: `Offers`: Programs, with sums of whole images divided off where that lowers the peak, and
the fields of their instructions.
Invariant: where sums are divided off, the Programs without are there, too, if they can be: what that is worth only placement tells.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from aot.backends.generic import GENERIC
from aot.backends.move import move
from aot.errors import CompileError
from aot.graph.primitive import Contract
from aot.lower.accumulate import accumulate
from aot.lower.division import SMALL_NBYTES, least_peak
from aot.lower.implementation import Choice, Implementation
from aot.lower.moves import Mover
from aot.lower.parts import split_fields
from aot.lower.place import plan as place
from aot.lower.schedule import schedule
from aot.lower.select import Field, constants_limit, field_of, survey, without_larger_workspace, without_slower
from aot.lower.tradeoff import Goal
from aot.paging import fit_window

if TYPE_CHECKING:
    from aot.driver import Options
    from aot.graph.primitive import Primitive
    from aot.lower.implementation import Backend
    from aot.lower.program import Program
    from aot.target import Target

_WORTH = 0.95
"""Of the peak, that is left where sums of whole images get an instruction of their own."""


def divides(options: Options) -> bool:
    """Whether layers may run by rows."""
    whole = options.expose or options.instrument == "dump"
    wanted = options.optimize in ("balanced", "ram") or limit_nbytes(options) is not None or options.stream_input
    return wanted and options.kernels != "library" and not whole and options.threads == 1


def is_slight(options: Options) -> bool:
    """Whether layers run by rows only where it costs next to nothing."""
    return options.optimize == "balanced" and limit_nbytes(options) is None and not options.stream_input


def limit_nbytes(options: Options) -> int | None:
    """The most that a workspace may have, all its regions together."""
    limits = [sum(options.regions.values())] if options.regions else []
    if options.max_workspace_nbytes is not None:
        limits.append(options.max_workspace_nbytes)
    return min(limits, default=None)


@dataclass(frozen=True)
class Offers:
    """Programs, what kernels offer for each of their instructions (`usual`: what the options leave of it), what to choose for, and how
    tensors of each are moved. with_sums: the entries whose Programs have sums of whole images of their own; plain: the offers where none
    has, if they are known."""

    programs: Sequence[Program]
    every: Sequence[tuple[Field, ...]]
    usual: Sequence[tuple[Field, ...]]
    goal: Goal
    movers: Sequence[Mover]
    with_sums: frozenset[int] = frozenset()
    plain: Offers | None = None

    def fields(self, goal: Goal) -> Sequence[tuple[Field, ...]]:
        """For another goal than the options' own, where what is wanted does not fit, all that kernels offer."""
        return self.usual if goal == self.goal else self.every

    def without_sums(self, numbers: Collection[int]) -> Offers:
        """With the plain Programs of these entries."""
        plain = self.plain
        assert plain is not None
        mine, others = (zip(each.programs, each.every, each.usual, strict=True) for each in (self, plain))
        taken = [other if number in numbers else one for number, (one, other) in enumerate(zip(mine, others, strict=True))]
        programs, every, usual = zip(*taken, strict=True)
        return replace(self, programs=programs, every=every, usual=usual, with_sums=self.with_sums - frozenset(numbers))


def offers(programs: Sequence[Program], backends: Sequence[Backend], target: Target, options: Options) -> Offers:
    """What there is to choose from for all entries."""
    every = [survey(program, chosen, GENERIC, target) for program, chosen in zip(programs, backends, strict=True)]
    if options.stream_input:
        every = [with_pulls(program, fields, target) for program, fields in zip(programs, every, strict=True)]
    if not divides(options) or is_slight(options):
        return _offers(programs, every, backends, target, options)
    found = [with_sums(*each, target, options) for each in zip(programs, every, backends, strict=True)]
    with_own = frozenset(number for number, (program, _) in enumerate(found) if program is not programs[number])
    divided = _offers([program for program, _ in found], [fields for _, fields in found], backends, target, options)
    if not with_own:
        return divided
    try:
        plain = _offers(programs, every, backends, target, options)
    except CompileError:  # a layer that fits no window of weights but by rows
        return divided
    return replace(divided, with_sums=with_own, plain=plain)


def _offers(
    programs: Sequence[Program], every: Sequence[tuple[Field, ...]], backends: Sequence[Backend], target: Target, options: Options
) -> Offers:
    """What there is to choose from, of what kernels offer for these Programs."""
    if (window := options.page_weights_nbytes) is not None:
        found = [fit_window(*each, target, window) for each in zip(programs, every, backends, strict=True)]
        programs, every = [program for program, _ in found], [fields for _, fields in found]
    every = [split_fields(program, found, options.threads) for program, found in zip(programs, every, strict=True)]
    usual = [offer(program, found, options) for program, found in zip(programs, every, strict=True)]
    limit = constants_limit(programs, target) if options.optimize in ("balanced", "ram") else None
    movers = [Mover(move, partial(_again, backend, target)) for backend in backends]
    return Offers(programs, every, usual, Goal(options.optimize, max_constants_nbytes=limit), movers)


def _again(backend: Backend, target: Target, program: Program, instruction: Primitive, before: Implementation) -> Implementation:
    """The implementation of an instruction, in the variant that it had as another one."""
    candidates = field_of(program, instruction, backend, GENERIC, target).candidates
    known = [(one.kernel, one.variant, one.scratch_nbytes, one.constants_nbytes) for one in candidates]
    return candidates[known.index((before.kernel, before.variant, before.scratch_nbytes, before.constants_nbytes))]


def offer(program: Program, fields: tuple[Field, ...], options: Options) -> tuple[Field, ...]:
    """What there is to choose from; for balanced code without what takes more memory, or is slower, than need be."""
    return without_slower(without_larger_workspace(program, fields)) if options.optimize in ("balanced", "ram") else fields


def with_sums(
    program: Program, fields: tuple[Field, ...], backend: Backend, target: Target, options: Options
) -> tuple[Program, tuple[Field, ...]]:
    """The Program and its fields, with sums of whole images divided from what is made of them, if that lowers the peak."""
    divided, found = _surveyed(accumulate(program), program, fields, backend, target)
    whole = _left_whole(program, divided, found)
    if whole:
        divided, found = _surveyed(accumulate(program, whole), program, fields, backend, target)
    if divided is program:
        return program, fields
    peaks: list[int] = []
    for each, offered in ((program, fields), (divided, found)):
        ordered = schedule(each, tuple(map(_with_rows, offered)), options.io, options.inplace)
        if not peaks and place(ordered, options.io, options.inplace).workspace_nbytes < SMALL_NBYTES:
            return program, fields  # nothing will run by rows
        peaks.append(least_peak(ordered, options.io, options.inplace))
    return (divided, found) if peaks[1] < _WORTH * peaks[0] else (program, fields)


def _surveyed(
    divided: Program, program: Program, fields: tuple[Field, ...], backend: Backend, target: Target
) -> tuple[Program, tuple[Field, ...]]:
    """A Program, and the fields of its instructions: those known already of instructions of another."""
    known = {id(instruction): field for instruction, field in zip(program.instructions, fields, strict=True)}
    new = replace(divided, instructions=tuple(one for one in divided.instructions if id(one) not in known))
    known |= {id(one): field for one, field in zip(new.instructions, survey(new, backend, GENERIC, target), strict=True)}
    return divided, tuple(known[id(one)] for one in divided.instructions)


def _with_rows(field: Field) -> Choice:
    """The first candidate that has rows; the first of all where none has."""
    return Choice(next((one for one in field.candidates if one.rows.count > 1), field.candidates[0]))


def _left_whole(program: Program, divided: Program, fields: tuple[Field, ...]) -> frozenset[str]:
    """The accumulators of contractions whose kernels make them of the whole input anyway."""
    known = {id(instruction) for instruction in program.instructions}
    return frozenset(
        one.out
        for one, field in zip(divided.instructions, fields, strict=True)
        if isinstance(one, Contract) and id(one) not in known and not field.candidates[0].rows.accumulates
    )


def with_pulls(program: Program, fields: tuple[Field, ...], target: Target) -> tuple[Field, ...]:
    """The fields, but for the instruction that takes a pushed input's rows only what makes one row in a step."""
    found = list(fields)
    for position in {at for buffer in program.buffers if buffer.pushed for at in program.readers[buffer.name]}:
        candidates = tuple(one for one in fields[position].candidates if one.rows.count > 1 and one.rows.per_step == 1)
        if not candidates:
            answer = GENERIC.claim(program, program.instructions[position], target)
            assert isinstance(answer, Implementation)
            candidates = (answer,)
        found[position] = replace(fields[position], candidates=candidates)
    return tuple(found)
