"""What the commands print for people: tables of sizes, layers and explanations.

Enters: bundles and results. Leaves: text on standard output. Invariant: every figure printed is one of the Bundle's or RunResult's own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from aot.bundle import Bundle, Entry, Layer
from aot.graph.ir import Node
from aot.lower.memory import Memory, Peak
from aot.lower.plan import Region
from aot.memory import Curve
from aot.names import printable


def console() -> Console:
    """Standard output; no wrapping of cells where it is no terminal."""
    made = Console(highlight=False)
    return made if made.is_terminal or "COLUMNS" in os.environ else Console(highlight=False, width=200)


def plain(text: object) -> Text:
    """Untrusted text as it is: no markup, no control characters."""
    return Text(printable(text))


def say(text: str) -> None:
    """A line of untrusted text, however long."""
    console().print(plain(text), soft_wrap=True)


def counted(number: int, noun: str) -> str:
    """`1 operator`, `2 operators`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """A table; columns whose name ends in `bytes`, or that count something, are set to the right."""
    made = Table(title=title, title_justify="left")
    for column in columns:
        made.add_column(column, justify="right" if column in _NUMBERS or column.endswith("bytes") else "left", overflow="fold")
    for row in rows:
        made.add_row(*map(plain, row))
    return made


_NAMED = 5
"""Tensors of a peak that are named."""
_NUMBERS = ("gap", "node", "MACs", "instructions", "per MAC", "count", "cycles", "cycles/MAC", "share")


def print_bundle(bundle: Bundle, paths: Sequence[Path]) -> None:
    """Sizes, interface and files of a bundle."""
    out = console()
    rows = [
        *([] if bundle.is_c else [("code", bundle.code_nbytes)]),
        ("weights and tables" + (" (separate)" if bundle.weights is not None else ""), bundle.weights_nbytes),
        *([("weights, in a file that nothing has to address", len(bundle.pages))] if bundle.pages is not None else []),
    ]
    if bundle.models:
        what = "workspace, which the models share" if bundle.shares_workspace else "workspaces of all models together"
        rows.append((what, bundle.workspace_nbytes))
    if bundle.load is not None:
        rows.append((f"weights that {bundle.load.symbol} copies into {bundle.load.loaded.region}", bundle.load.loaded.nbytes))
    for model in bundle.parts:
        if model.init is not None:
            whose = f"{model.name}: " if bundle.models else ""
            rows.append((f"{whose}state, kept between runs: one for each instance", model.state_nbytes))
    for entry in bundle.entries:
        rows += [
            (f"{entry.symbol}: workspace (lower bound {entry.lower_bound_nbytes})", entry.workspace_nbytes),
            *(
                (f"{entry.symbol}: of it in {region.name}, which has {region.size_nbytes}", region.nbytes)
                for region in entry.regions
            ),
            *([] if entry.stack_nbytes is None else [(f"{entry.symbol}: stack, at most", entry.stack_nbytes)]),
        ]
        if entry.paging:
            rows.append((f"{entry.symbol}: weights, read through the caller's function in each run", entry.paging.read_nbytes))
        if not bundle.io_in_workspace:
            inputs = sum(port.nbytes for port in entry.inputs) if entry.stream is None else entry.stream.row_nbytes
            what = "inputs" if entry.stream is None else "a row of the input"
            rows.append((f"{entry.symbol}: {what} and outputs, the caller's", inputs + sum(port.nbytes for port in entry.outputs)))
    out.print(table(f"{bundle.name} for {bundle.target.name}, back end {bundle.backend}", ("what", "bytes"), rows))
    for entry in bundle.entries:
        if entry.memory is not None and entry.memory.peak is not None:
            say(f"{entry.symbol}: workspace {memory_text(entry.memory, entry.layers)}")
            say(f"{entry.symbol}: layers {entry.memory.segments}")
        if entry.threads > 1:
            divided = sum(layer.parts > 1 for layer in entry.layers)
            say(f"{entry.symbol}: {divided} of {len(entry.layers)} layers in up to {entry.threads} parts, for parallel_for to run")
    for function in bundle.functions:
        say(f"the firmware provides int {function}(const aot_custom_call *call)")
    if (notes := bundle.library_notes) is not None and bundle.library:
        say(f"to be linked with {notes.name} {notes.versions}, for {', '.join(bundle.library)}")
    for path in paths:
        say(f"wrote {path}")


def memory_text(memory: Memory, layers: Sequence[Layer]) -> str:
    """How near a workspace is to its lower bound, and what sets its peak."""
    return f"{memory.gap_text}; the peak: {peak_text(memory.peak, layers[memory.peak.layer])}" if memory.peak else memory.gap_text


def print_curve(curve: Curve) -> None:
    """RAM against instructions: a line for each point."""
    names = [f"{region.name} bytes" for region in curve.points[0].memory.regions] if curve.points else []
    columns = (
        "workspace bytes",
        *names,
        "lower bound bytes",
        "gap",
        "instructions",
        "flash bytes",
        "layers by rows",
        "taken by",
        "the peak",
    )
    rows = [
        (
            point.memory.workspace_nbytes,
            *map(_region_text, point.memory.regions),
            point.memory.lower_bound_nbytes,
            f"{point.memory.gap:.1%}",
            f"{point.rise:+.1%}",
            f"{point.flash_nbytes:+d}",
            f"{point.memory.layers_by_rows} in {point.memory.steps} steps" if point.memory.layers_by_rows else "none",
            ", ".join(point.taken_by),
            peak_text(point.memory.peak, point.peak_layer) if point.memory.peak and point.peak_layer else "",
        )
        for point in curve.points
    ]
    console().print(table(f"{curve.symbol}: RAM against instructions, as kernels expect them", columns, rows))
    for refusal in curve.refusals:
        say(refusal)


def _region_text(region: Region) -> str:
    """The bytes that are used of a region, and that it is too small where it is."""
    return f"{region.nbytes}{' (too many)' if region.nbytes > region.size_nbytes else ''}"


def peak_text(peak: Peak, layer: Layer) -> str:
    """`layer 2 (CONV_2D, node 3), row 4: image 960 (3 of 25 rows), scratch 512`: the largest first, few by name."""
    nodes = f"node{'s' if len(layer.nodes) > 1 else ''} {', '.join(map(str, layer.nodes))}"
    held = [str(replace(one, label=short(one.label))) for one in peak.held]
    rest = sum(one.nbytes for one in peak.held[_NAMED:])
    others = [f"{counted(len(held) - _NAMED, 'other')} {rest}"] if len(held) > _NAMED else []
    return f"layer {peak.layer} ({'+'.join(layer.operators)}, {nodes}){peak.rows_text}: {', '.join(held[:_NAMED] + others)}"


def short(label: str) -> str:
    """The first of the names that a converter has strung together."""
    first, *others = label.split(";")
    return f"{first};..." if others else first


def print_explanation(bundle: Bundle) -> None:
    """One row for each node of the model: its kernel, or why it has none of its own."""
    for entry in bundle.entries:
        rows = [explain(node, entry) for node in entry.nodes]
        console().print(table(f"{entry.symbol}: which kernel computes which node", ("node", "operator", "kernel", "why"), rows))

        if rows := [row for layer in entry.layers for row in _variants(layer)]:
            columns = ("node", "symbol", "variant", "instructions", "code bytes", "constant bytes", "scratch bytes", "why not")
            title = f"{entry.symbol}: variants, --optimize {bundle.optimize}; instructions and code as kernels expect them"
            console().print(table(title, columns, rows))


def _variants(layer: Layer) -> list[tuple[object, ...]]:
    """One row for each variant of a layer: what its kernel expects it to take, and whether it was chosen."""
    return [
        (
            ", ".join(map(str, layer.nodes)),
            layer.symbol,
            f"{one.kernel} {one.variant}".rstrip(),
            one.instructions,
            one.code_nbytes,
            one.constant_nbytes,
            one.scratch_nbytes,
            one.why_not or "chosen",
        )
        for one in layer.variants
    ]


def explain(node: Node, entry: Entry) -> tuple[object, str, str, str]:
    """(node number, operator, kernel, reason) of one node."""
    layers = [layer for layer in entry.layers if node.index in layer.nodes]
    if not layers:
        return (
            node.index,
            node.op,
            "-",
            "no code: folded at compile time, merged into its neighbours, or only a view of the same bytes",
        )
    kernels = " + ".join(dict.fromkeys(layer.kernel for layer in layers))
    return node.index, node.op, kernels, "; ".join(filter(None, dict.fromkeys(_why(layer, node) for layer in layers)))


def _why(layer: Layer, node: Node) -> str:
    fused = [str(index) for index in layer.nodes if index != node.index]
    declined = (
        [f"{kernel}: {reason}" for kernel, reason in dict.fromkeys(layer.declined)] if layer.kernel.startswith("generic") else []
    )
    together = [f"in one loop with node{'s' if len(fused) > 1 else ''} {', '.join(fused)}"] if fused else []
    divided = [f"in {layer.parts} parts"] if layer.parts > 1 else [f"in one part: {layer.why_whole}"] if layer.why_whole else []
    return "; ".join([*declined, *together, *layer.notes, *divided])
