"""RAM against instructions: which workspaces a model can run in, and what each costs.

Enters: a model file and Options. Leaves: a `Curve` for each entry.
Invariant: every figure is a Plan's own, and what an option takes is what compiling with it takes (where no limit is set on flash).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from aot.describe import describe_layer
from aot.driver import Options, lower_model, resolve_target
from aot.errors import CompileError
from aot.graph import tflite
from aot.graph.ops import OPERATORS
from aot.lower.memory import memory_of
from aot.lower.segments import expected_instructions
from aot.lower.select import decide, promised_flash_nbytes
from aot.models import names_of
from aot.offers import Offers, offers
from aot.planning import layer_by_layer, plan_programs, tradeoffs

if TYPE_CHECKING:
    from aot.bundle import Layer
    from aot.driver import Observer
    from aot.graph.ir import Node
    from aot.lower.memory import Memory
    from aot.lower.plan import Plan


@dataclass(frozen=True)
class Point:
    """A way to run an entry: its memory, the layer that sets the peak, the instructions that its kernels expect, and the share by which
    these are above balanced code's that runs layer by layer; bytes of flash more than that, as far as kernels say. taken_by: the options
    that take it."""

    memory: Memory
    peak_layer: Layer | None
    instructions: int
    rise: float
    flash_nbytes: int
    taken_by: tuple[str, ...]


@dataclass(frozen=True)
class Curve:
    """Points of an entry, with falling workspaces; and why options that were given take none."""

    symbol: str
    points: tuple[Point, ...]
    refusals: tuple[str, ...] = ()


def curves(path: str | Path, options: Options, observe: Observer) -> tuple[Curve, ...]:
    """What RAM costs each entry. observe: sees the stages of `--optimize ram`."""
    target, backend = resolve_target(options)
    model = tflite.read_file(path, OPERATORS, options.custom)
    lowered = lower_model(names_of([model], options.name)[0], model, model.graphs, target, backend, options, observe)

    def offered(wanted: Options) -> Offers:
        return offers(lowered.programs, lowered.backends, target, wanted)

    balanced = replace(options, optimize="balanced", max_workspace_nbytes=None, max_flash_nbytes=None, share_workspace=False)
    plain, ram = offered(balanced), offered(replace(balanced, optimize="ram"))
    first = [layer_by_layer(*each, balanced, _silent) for each in zip(plain.programs, decide(plain.usual, plain.goal), strict=True)]
    every = [
        tradeoffs(program, choices, replace(balanced, optimize="ram"), observe, fields)
        for program, choices, fields in zip(ram.programs, decide(ram.usual, ram.goal), ram.every, strict=True)
    ]
    taken: list[dict[str, Plan]] = [{} for _ in first]
    refusals: list[str] = []
    for text, wanted in _wanted(options, balanced):
        parts = {"balanced": plain, "ram": ram}.get(text) or offered(wanted)
        try:
            plans, _ = plan_programs(parts, parts.goal, wanted, _silent)
        except CompileError as error:
            refusals.append(f"{text}: {error}")
            continue
        for mine, plan in zip(taken, plans, strict=True):
            mine[text] = plan
    return tuple(
        Curve(symbol, _points(graph.nodes, whole, plans, mine, options), tuple(refusals))
        for (symbol, graph), whole, plans, mine in zip(lowered.entries, first, every, taken, strict=True)
    )


def _silent(stage: str, result: object) -> None:
    """An observer that looks away."""


def _wanted(options: Options, balanced: Options) -> Iterable[tuple[str, Options]]:
    """The choices to mark: balanced, ram, another goal if it was given, a limit if it was given."""
    for optimize in dict.fromkeys(("balanced", "ram", options.optimize)):
        yield optimize, replace(balanced, optimize=optimize)
    if options.max_workspace_nbytes is not None:
        yield f"--max-workspace {options.max_workspace_nbytes}", replace(options, max_flash_nbytes=None)


def _points(
    nodes: tuple[Node, ...], first: Plan, every: tuple[Plan, ...], taken: dict[str, Plan], options: Options
) -> tuple[Point, ...]:
    """The plans that none is better than, the first one, and those that are taken."""
    known: dict[tuple[int, ...], Plan] = {}
    for plan in (first, *taken.values(), *every):
        known.setdefault(_figures(plan), plan)
    takers = {text: _figures(plan) for text, plan in taken.items()}
    found: list[Point] = []
    for figures, plan in sorted(known.items(), key=lambda one: (-one[0][0], -one[0][1])):
        texts = tuple(text for text, has in takers.items() if has == figures)
        better = any(all(a <= b for a, b in zip(other, figures, strict=True)) for other in known if other != figures)
        if better and not texts and plan is not first:
            continue
        memory = memory_of(plan, options.io, options.inplace)
        rise = figures[1] / max(_figures(first)[1], 1) - 1
        flash_nbytes = promised_flash_nbytes([plan.schedule.choices]) - promised_flash_nbytes([first.schedule.choices])
        found.append(Point(memory, _peak_layer(nodes, plan, memory), figures[1], rise, flash_nbytes, texts))
    return tuple(found)


def _figures(plan: Plan) -> tuple[int, ...]:
    """Bytes of the workspace, instructions as they are expected, bytes that no region has room for."""
    return plan.workspace_nbytes, expected_instructions(plan.schedule), plan.excess_nbytes


def _peak_layer(nodes: tuple[Node, ...], plan: Plan, memory: Memory) -> Layer | None:
    if memory.peak is None:
        return None
    schedule = plan.schedule
    return describe_layer(nodes, schedule.program, schedule.choices[schedule.kernel_positions[memory.peak.layer]])
