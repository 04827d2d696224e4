# pyright: basic
"""A report as a dictionary: what `aot report --json` prints, and what the page and the terminal show.

Enters: a Bundle, and a Profile where its layers were counted. Leaves: a dictionary that is JSON (`schema.json`).
Invariant: `bundle` in it is NAME.json itself; what is beside it has the same order: entries as entries, layers as layers, buffers as buffers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aot.artefacts import describe_with_files
from aot.lower.implementation import Implementation
from aot.lower.segments import instructions
from aot.lower.traffic import layer_traffic
from aot.report.findings import findings
from aot.report.flash import flash, function_sizes
from aot.report.graphs import fused_graph, model_graph
from aot.report.places import Names, places

if TYPE_CHECKING:
    from aot.bundle import Bundle, Entry, Layer
    from aot.profile import Profile

SCHEMA = "urn:aot:report:1"
"""Of the dictionary: another number for what readers of this one would misread."""


def report(bundle: Bundle, profile: Profile | None = None) -> dict[str, Any]:
    """The report of a bundle. profile: of one of its models, whose main entry was counted."""
    described = describe_with_files(bundle)
    measured = _measured(profile)
    entries = [_entry(bundle, entry, measured) for entry in bundle.entries]
    made = {
        "schema": SCHEMA,
        "bundle": described,
        "flash": flash(bundle),
        "measured": None if profile is None else _profile(profile),
        "entries": entries,
    }
    return {**made, "findings": findings(bundle, made)}


def _profile(profile: Profile) -> dict[str, Any]:
    """What was counted as a whole, and how."""
    return {
        "entry": profile.bundle.main.symbol,
        "on": profile.result.where,
        "cycle_model": profile.model,
        "wait_states": profile.wait_states,
        "instructions": profile.instructions,
        "modelled_cycles": profile.cycles,
    }


def _measured(profile: Profile | None) -> dict[str, tuple[int | None, int | None]]:
    """(instructions, modelled cycles) by symbol."""
    return {} if profile is None else {row.symbol: (row.instructions, row.cycles) for row in profile.rows}


def _entry(bundle: Bundle, entry: Entry, measured: dict[str, tuple[int | None, int | None]]) -> dict[str, Any]:
    names = Names(entry)
    return {
        "symbol": entry.symbol,
        "layers": _layers(bundle, entry, names, measured),
        "steps": _steps(entry),
        "stretches": _stretches(entry),
        "needed_bytes": _needed(entry),
        "buffers": places(bundle, entry, names),
        "graphs": {"model": model_graph(entry), "fused": fused_graph(entry, names)},
    }


def _steps(entry: Entry) -> list[dict[str, Any]]:
    """Each step: the layer it belongs to (None: control flow, or a request for a page), and which of its rows it makes."""
    if entry.plan is None:
        return []
    schedule = entry.plan.schedule
    layer_of = {position: layer for layer, position in enumerate(schedule.kernel_positions)}
    return [{"layer": layer_of.get(step.position), "rows": [step.y0, step.y1]} for step in schedule.steps]


def _stretches(entry: Entry) -> list[dict[str, Any]]:
    """The layers that run whole, one by one, and those that run together by rows, with their steps (inclusive)."""
    if entry.plan is None or entry.memory is None:
        return []
    schedule = entry.plan.schedule
    steps = [number for number, step in enumerate(schedule.steps) if schedule.implementation(step).computes]
    found, begin = [], 0
    for each in entry.memory.stretches:
        spans = (
            [(each.first, each.end - 1, each.steps)]
            if each.by_rows
            else [(layer, layer, 1) for layer in range(each.first, each.end)]
        )
        for first, last, count in spans:
            ends = {"first_step": steps[begin], "last_step": steps[begin + count - 1]}
            found.append({"first_layer": first, "last_layer": last, "by_rows": each.by_rows, **ends})
            begin += count
    return found


def _needed(entry: Entry) -> list[int]:
    """Bytes of the workspace that each step needs."""
    if entry.plan is None or entry.memory is None:
        return []
    needed = list(entry.memory.needed)
    return needed + [0] * (len(entry.plan.schedule.steps) - len(needed))


def _layers(bundle: Bundle, entry: Entry, names: Names, measured: dict[str, tuple[int | None, int | None]]) -> list[dict[str, Any]]:
    sizes = function_sizes(bundle)
    chosen = () if entry.plan is None else [entry.plan.schedule.choices[at].implementation for at in names.positions]
    moved = {} if entry.plan is None else layer_traffic(entry.plan.schedule)
    found = []
    for number, layer in enumerate(entry.layers):
        implementation = chosen[number] if chosen else None
        counted, cycles = measured.get(layer.symbol, (None, None))
        found.append(
            {
                "symbol": layer.symbol,
                "label": names.output(number),
                "dtypes": names.dtypes(number),
                "estimate": _estimate(layer, implementation),
                "instructions": counted,
                "modelled_cycles": cycles,
                "moved_bytes": moved[names.positions[number]] if moved else None,
                "code_bytes": sizes.get(layer.symbol),
            }
        )
    return found


def _estimate(layer: Layer, chosen: Implementation | None) -> dict[str, Any] | None:
    """Instructions that an inference is expected to take: as its kernel says, or from the number of its elements alone."""
    taken = [one.instructions for one in layer.variants if not one.why_not]
    if taken:
        return {"instructions": taken[0], "by": "kernel"}
    if chosen is None:
        return None
    return {"instructions": instructions(chosen), "by": "elements" if chosen.cost is None else "kernel"}
