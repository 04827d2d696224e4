"""Planning: kernels, the order of their steps, and a place for every byte, for all entries of a bundle.

Enters: Programs with what kernels offer for each instruction, a goal. Leaves: Plans, checked by replay.
Invariant: a limit on memory holds, or a CompileError says what the least is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from aot.backends.generic import GENERIC
from aot.backends.move import move
from aot.errors import CompileError
from aot.fitting import with_less_scratch
from aot.graph.primitive import Contract
from aot.lower.accumulate import accumulate
from aot.lower.check import check_plan
from aot.lower.division import SMALL_NBYTES, Wish, divide, least_peak, points
from aot.lower.implementation import Choice, Implementation
from aot.lower.memory import Held, crowd, memory_of
from aot.lower.moves import Mover, with_moves
from aot.lower.parts import split_fields
from aot.lower.place import plan as place
from aot.lower.plan import Window
from aot.lower.pushed import pulled, require_late_outputs
from aot.lower.regions import plan_in
from aot.lower.schedule import schedule
from aot.lower.segments import expected_instructions
from aot.lower.select import (
    Field,
    constants_limit,
    decide,
    field_of,
    promised_flash_nbytes,
    select,
    survey,
    without_larger_workspace,
    without_slower,
)
from aot.lower.tradeoff import Goal
from aot.paging import fit_window
from aot.pointers import workers

if TYPE_CHECKING:
    from aot.driver import Observer, Options
    from aot.graph.primitive import Primitive
    from aot.lower.implementation import Backend
    from aot.lower.plan import Plan
    from aot.lower.program import Program
    from aot.target import Target

_SLIGHT = 0.01
"""Of all instructions: what balanced code may take more for the sake of memory."""
_WORTH = 0.95
"""Of the peak, that is left where sums of whole images get an instruction of their own."""


def divides(options: Options) -> bool:
    """Whether layers may run by rows."""
    wanted = options.optimize in ("balanced", "ram") or limit_nbytes(options) is not None or options.stream_input
    return wanted and options.kernels != "library" and not options.expose and options.threads == 1


def require_threads(options: Options) -> None:
    """CompileError for what can't be combined with --threads."""
    if options.threads < 1:
        raise CompileError(f"--threads {options.threads} is not a number of threads")
    if options.threads > 1 and (taken := options.regions.keys() & {pointer.name for pointer in workers()}):
        raise CompileError(f"--region {min(taken)}: an entry has a parameter of this name", hint="give the region another name")
    for option, wanted in (("--stream-input", options.stream_input), ("--optimize ram", options.optimize == "ram")):
        if wanted and options.threads > 1:
            what = "makes a few rows of a layer after a few of another"
            raise CompileError(f"--threads divides the rows of one layer, and {option} {what}", hint="leave out one of the two")


def _is_slight(options: Options) -> bool:
    """Whether layers run by rows only where it costs next to nothing."""
    return options.optimize == "balanced" and limit_nbytes(options) is None and not options.stream_input


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
    peaks = []
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


@dataclass(frozen=True)
class Offers:
    """Programs, what kernels offer for each of their instructions (`usual`: what the options leave of it), what to choose for, and how
    tensors of each are moved."""

    programs: Sequence[Program]
    every: Sequence[tuple[Field, ...]]
    usual: Sequence[tuple[Field, ...]]
    goal: Goal
    movers: Sequence[Mover]


def offers(programs: Sequence[Program], backends: Sequence[Backend], target: Target, options: Options) -> Offers:
    """What there is to choose from for all entries."""
    every = [survey(program, chosen, GENERIC, target) for program, chosen in zip(programs, backends, strict=True)]
    if options.stream_input:
        every = [with_pulls(program, fields, target) for program, fields in zip(programs, every, strict=True)]
    if divides(options) and not _is_slight(options):
        found = [with_sums(*each, target, options) for each in zip(programs, every, backends, strict=True)]
        programs, every = [program for program, _ in found], [fields for _, fields in found]
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


def plan_program(program: Program, target: Target, backend: Backend, options: Options, observe: Observer) -> Plan:
    """Choose kernels without regard to flash, order the steps, place every byte; checked by replay."""
    return plan_choices(program, select(program, backend, GENERIC, target), options, observe)


def plan_choices(
    program: Program,
    choices: tuple[Choice, ...],
    options: Options,
    observe: Observer,
    offered: tuple[Field, ...] = (),
    mover: Mover | None = None,
) -> Plan:
    """Order the steps, divide layers into rows if that is wished for, place every byte; checked by replay."""
    plan = layer_by_layer(program, choices, options, observe)
    if options.regions:
        plan = _in_regions(plan, options, offered)
    elif (wish := wish_of(options)) is not None:
        whole = plan
        plan = divide(plan, wish, options.io, options.inplace, [field.candidates for field in offered])
        if mover is not None and not wish.holds(plan):
            before = plan if wish.max_rise is None else whole
            plan = with_moves(plan, mover, options.io, options.inplace, (1 + _SLIGHT) * expected_instructions(before.schedule))
    if not plan.excess_nbytes:
        check_plan(plan)
    observe("plan", plan)
    return plan


def _in_regions(whole: Plan, options: Options, offered: tuple[Field, ...]) -> Plan:
    """The plan that is wished for and fits its regions, or the one that misses least; layers run by rows where that is what it takes."""
    wishes = [Wish()] if options.optimize == "ram" else []
    tried = [whole]
    for wish in [*wishes, Wish(limit_nbytes(options))] if divides(options) else ():
        tried.append(divide(whole, wish, options.io, options.inplace, [field.candidates for field in offered]))
        if not tried[-1].excess_nbytes:
            break
    return min(reversed(tried), key=lambda each: each.excess_nbytes)


def layer_by_layer(program: Program, choices: tuple[Choice, ...], options: Options, observe: Observer) -> Plan:
    """The plan in which every layer runs whole, but for one that takes the rows of an input as they come."""
    scheduled = schedule(program, choices, io=options.io, inplace=options.inplace)
    scheduled = replace(scheduled, threads=options.threads)
    scheduled = pulled(scheduled) if options.stream_input else scheduled
    if options.page_weights_nbytes is not None:
        window = Window(options.page_weights_nbytes, is_thrifty=options.optimize == "ram")
        scheduled = replace(scheduled, window=window)
    observe("schedule", scheduled)
    made = plan_in(scheduled, options.io, options.inplace, options.regions)
    if fits_workspace(made, options) or not scheduled.window:
        return made
    thrifty = replace(scheduled, window=replace(scheduled.window, is_thrifty=True))
    return plan_in(thrifty, options.io, options.inplace, options.regions)


def tradeoffs(
    program: Program, choices: tuple[Choice, ...], options: Options, observe: Observer, offered: tuple[Field, ...] = ()
) -> tuple[Plan, ...]:
    """RAM against instructions: plans with falling workspaces and more instructions, checked by replay."""
    whole = layer_by_layer(program, choices, options, observe)
    if not divides(options):
        return (whole,)
    found = points(whole, options.io, options.inplace, [field.candidates for field in offered])
    for plan in found:
        if not plan.excess_nbytes:
            check_plan(plan)
    return found


def wish_of(options: Options) -> Wish | None:
    """What layers may run by rows for: the smallest workspace, or one that fits, or one that costs next to nothing."""
    if not divides(options):
        return None
    if options.max_workspace_nbytes is not None and options.optimize != "ram":
        return Wish(options.max_workspace_nbytes)
    return Wish(max_rise=_SLIGHT) if _is_slight(options) else Wish()


def limit_nbytes(options: Options) -> int | None:
    """The most that a workspace may have, all its regions together."""
    limits = [sum(options.regions.values())] if options.regions else []
    if options.max_workspace_nbytes is not None:
        limits.append(options.max_workspace_nbytes)
    return min(limits, default=None)


def offer(program: Program, fields: tuple[Field, ...], options: Options) -> tuple[Field, ...]:
    """What there is to choose from; for balanced code without what takes more memory, or is slower, than need be."""
    return without_slower(without_larger_workspace(program, fields)) if options.optimize in ("balanced", "ram") else fields


def plan_programs(offered: Offers, goal: Goal, options: Options, observe: Observer) -> tuple[list[Plan], int]:
    """A plan for each entry, with the kernels that are best for all together and let each workspace stay within --max-workspace; and
    the bytes of flash that their costs promise. CompileError if a workspace can't. For another goal than the options' own, where what
    is wanted does not fit, all that kernels offer is there to choose from."""
    fields = list(offered.usual if goal == offered.goal else offered.every)

    def planned(number: int, chosen: tuple[Choice, ...], options: Options) -> Plan:
        return plan_choices(offered.programs[number], chosen, options, observe, offered.every[number], offered.movers[number])

    while True:
        choices = decide(fields, goal)
        plans = [planned(number, chosen, options) for number, chosen in enumerate(choices)]
        narrowed = [
            field if fits_workspace(plan, options) else with_less_scratch(field, plan, limit_nbytes(options) or 0)
            for field, plan in zip(fields, plans, strict=True)
        ]
        if all(new is old for new, old in zip(narrowed, fields, strict=True)):
            break
        fields = narrowed
    for plan in plans:
        check_workspace(plan, options)
    if options.share_workspace and limit_nbytes(options) is None:
        plans = within_shared(plans, choices, options, planned)
    for plan in plans:
        require_late_outputs(plan, options.io)
    return plans, promised_flash_nbytes(choices)


def within_shared(
    plans: Sequence[Plan],
    choices: Sequence[tuple[Choice, ...]],
    options: Options,
    planned: Callable[[int, tuple[Choice, ...], Options], Plan],
) -> list[Plan]:
    """The plans of entries that share a workspace: none has to be smaller than the largest, if larger it is faster."""
    if not divides(options):
        return list(plans)
    limit = max(plan.workspace_nbytes for plan in plans)
    roomy = replace(options, optimize="balanced", max_workspace_nbytes=limit)
    found = []
    for number, (plan, chosen) in enumerate(zip(plans, choices, strict=True)):
        other = planned(number, chosen, roomy) if plan.workspace_nbytes < limit else plan
        found.append(other if other.workspace_nbytes <= limit else plan)
    return found


def fits_workspace(plan: Plan, options: Options) -> bool:
    limit = options.max_workspace_nbytes
    return not plan.excess_nbytes and (limit is None or plan.workspace_nbytes <= limit)


def check_workspace(plan: Plan, options: Options) -> None:
    """CompileError if the workspace is larger than --max-workspace or --region allow; names what sets the peak."""
    for region in plan.regions:
        if region.nbytes > region.size_nbytes:
            raise CompileError(
                f"not everything fits the regions: {region.name} has {region.size_nbytes} bytes, and would have to hold {region.nbytes}",
                hint=f"most is needed there by {_largest(crowd(plan, region))}",
            )
    if not fits_workspace(plan, options):
        peak = memory_of(plan, options.io, options.inplace).peak
        raise CompileError(
            f"the workspace would be {plan.workspace_nbytes} bytes, over --max-workspace {options.max_workspace_nbytes}"
            f" (with these kernels no plan can do with less than {plan.lower_bound_nbytes})",
            hint=f"most is needed by {_largest(peak.held) if peak is not None else 'nothing'}",
        )


def _largest(held: Sequence[Held]) -> str:
    """The first three, each by the first of its names."""
    return ", ".join(str(replace(one, label=one.label.split(";")[0])) for one in held[:3])
