"""Planning: kernels, the order of their steps, and a place for every byte, for all entries of a bundle.

Enters: Programs with what kernels offer for each instruction, a goal. Leaves: Plans, checked by replay.
Invariant: a limit on memory holds, or a CompileError says what the least is. Where layers may run by rows for the sake of memory, the
workspace is never larger than layer by layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aot.backends.generic import GENERIC
from aot.errors import CompileError
from aot.fitting import with_less_scratch
from aot.lower.check import check_plan
from aot.lower.division import Wish, divide, points
from aot.lower.implementation import Choice
from aot.lower.memory import Held, crowd, memory_of
from aot.lower.moves import Mover, with_moves
from aot.lower.plan import Window
from aot.lower.pushed import pulled, require_late_outputs
from aot.lower.regions import plan_in
from aot.lower.schedule import schedule
from aot.lower.segments import expected_instructions
from aot.lower.select import Field, decide, promised_flash_nbytes, select
from aot.lower.tradeoff import Goal
from aot.offers import Offers, divides, is_slight, limit_nbytes
from aot.pointers import workers

if TYPE_CHECKING:
    from aot.driver import Observer, Options
    from aot.lower.implementation import Backend
    from aot.lower.plan import Plan
    from aot.lower.program import Program
    from aot.target import Target

_SLIGHT = 0.01
"""Of all instructions: what balanced code may take more for the sake of memory."""


MOST_THREADS = 1024
"""More parts than that no machine runs at once; the header states the number as uint32."""


@dataclass(frozen=True)
class Planned:
    """What was chosen of some offers for a goal, and the plan of each entry."""

    offered: Offers
    choices: Sequence[tuple[Choice, ...]]
    plans: Sequence[Plan]


def require_threads(options: Options) -> None:
    """CompileError for what can't be combined with --threads."""
    if not 1 <= options.threads <= MOST_THREADS:
        raise CompileError(f"--threads {options.threads} is not a number of threads", hint=f"1 to {MOST_THREADS}")
    if options.threads > 1 and (taken := options.regions.keys() & {pointer.name for pointer in workers()}):
        raise CompileError(f"--region {min(taken)}: an entry has a parameter of this name", hint="give the region another name")
    for option, wanted in (("--stream-input", options.stream_input), ("--optimize ram", options.optimize == "ram")):
        if wanted and options.threads > 1:
            what = "makes a few rows of a layer after a few of another"
            raise CompileError(f"--threads divides the rows of one layer, and {option} {what}", hint="leave out one of the two")


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
    return Wish(max_rise=_SLIGHT) if is_slight(options) else Wish()


def plan_programs(offered: Offers, goal: Goal, options: Options, observe: Observer) -> tuple[list[Plan], int]:
    """A plan for each entry, with the kernels that are best for all together and let each workspace stay within --max-workspace; and
    the bytes of flash that their costs promise. CompileError if a workspace can't."""
    made = _planned(offered, goal, options, observe)
    while better := _better_plain(made, goal, options):
        made = _planned(made.offered.without_sums(better), goal, options, observe)
    if made.offered.with_sums and not _all_fit(made, options):
        other = _planned(made.offered.without_sums(made.offered.with_sums), goal, options, observe)
        made = other if _all_fit(other, options) else made
    for plan in made.plans:
        check_workspace(plan, options)
    plans = list(made.plans)
    if options.share_workspace and limit_nbytes(options) is None:
        plans = within_shared(made, options, observe)
    for plan in plans:
        require_late_outputs(plan, options.io)
    return plans, promised_flash_nbytes(made.choices)


def _planned(offered: Offers, goal: Goal, options: Options, observe: Observer) -> Planned:
    """The plans of these Programs, as many within --max-workspace as can be."""
    fields = list(offered.fields(goal))
    while True:
        choices = decide(fields, goal)
        plans = [_entry(offered, number, chosen, options, observe) for number, chosen in enumerate(choices)]
        narrowed = [
            field if fits_workspace(plan, options) else with_less_scratch(field, plan, limit_nbytes(options) or 0)
            for field, plan in zip(fields, plans, strict=True)
        ]
        if all(new is old for new, old in zip(narrowed, fields, strict=True)):
            return Planned(offered, choices, plans)
        fields = narrowed


def _entry(offered: Offers, number: int, chosen: tuple[Choice, ...], options: Options, observe: Observer) -> Plan:
    return plan_choices(offered.programs[number], chosen, options, observe, offered.every[number], offered.movers[number])


def _all_fit(made: Planned, options: Options) -> bool:
    return all(fits_workspace(plan, options) for plan in made.plans)


def _better_plain(made: Planned, goal: Goal, options: Options) -> frozenset[int]:
    """The entries that need no sums of their own: layer by layer, they take no more memory without; or fit, if no more is wanted."""
    offered = made.offered
    if not offered.with_sums:
        return frozenset()
    plain = offered.without_sums(offered.with_sums)
    choices, fits_is_enough = decide(plain.fields(goal), goal), options.optimize != "ram" and limit_nbytes(options) is not None
    better = set[int]()
    for number in offered.with_sums:
        plan, whole = made.plans[number], layer_by_layer(plain.programs[number], choices[number], options, _silent)
        no_larger = (whole.excess_nbytes, whole.workspace_nbytes) <= (plan.excess_nbytes, plan.workspace_nbytes)
        if no_larger or (fits_is_enough and fits_workspace(whole, options)):
            better.add(number)
    return frozenset(better)


def _silent(stage: str, result: object) -> None:
    """An observer that looks away."""


def within_shared(made: Planned, options: Options, observe: Observer) -> list[Plan]:
    """The plans of entries that share a workspace: none has to be smaller than the largest, if larger it is faster."""
    if not divides(options):
        return list(made.plans)
    limit = max(plan.workspace_nbytes for plan in made.plans)
    roomy = replace(options, optimize="balanced", max_workspace_nbytes=limit)
    found: list[Plan] = []
    for number, (plan, chosen) in enumerate(zip(made.plans, made.choices, strict=True)):
        other = _entry(made.offered, number, chosen, roomy, observe) if plan.workspace_nbytes < limit else plan
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
