# pyright: basic
"""A report for the terminal: the same figures as the page's.

Enters: a report (`aot.report.report`). Leaves: text on standard output.
Invariant: everything printed is in the report.
"""

from __future__ import annotations

from typing import Any

from rich.style import Style
from rich.text import Text

from aot.commands.tables import console, counted, plain, say, table

_WIDTH = 40
"""Characters of the longest bar."""
_ROWS = 48
"""Lines of a RAM curve at most: of more steps each line stands for several, with what the one takes that needs most."""


def print_report(report: dict[str, Any]) -> None:
    """All of it."""
    bundle = report["bundle"]
    out = console()
    out.print(
        table(f"{bundle['name']} for {bundle['target']['name']}, back end {bundle['backend']}", ("what", "bytes"), _summary(bundle))
    )
    for number, (described, added) in enumerate(zip(bundle["entries"], report["entries"], strict=True)):
        symbol = described["symbol"]
        out.print(table(f"{symbol}: layers", _LAYER_COLUMNS, _layers(described, added)))
        if added["buffers"]:
            out.print(table(f"{symbol}: memory", _BUFFER_COLUMNS, _buffers(described, added)))
        if added["needed_bytes"]:
            _print_curve(described, added)
        for one in report["findings"]:
            if one["entry"] == number:
                _print_finding(one)
    out.print(table("flash", ("what", "bytes", "share"), _flash(report)))


def _summary(bundle: dict[str, Any]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = [("workspace", bundle["workspace_bytes"])]
    if bundle["emit"] != "c":
        rows.append(("code", bundle["code_bytes"]))
    rows.append(("weights and tables", bundle["weights_bytes"]))
    rows += [("weights in pages", bundle["pages_bytes"])] if "pages_bytes" in bundle else []
    rows += [("state", bundle["state_bytes"])] if bundle["state_bytes"] else []
    for entry in bundle["entries"]:
        rows.append((f"{entry['symbol']}: stack, at most", "-" if entry["stack_bytes"] is None else entry["stack_bytes"]))
        for role in ("inputs", "outputs"):
            rows += [
                (f"{entry['symbol']}: {role[:-1]} {port['name']}, {port['dtype']} {_dims(port['shape'])}", port["bytes"])
                for port in entry[role]
            ]
    return rows


_LAYER_COLUMNS = (
    "layer",
    "kernel",
    "operators",
    "output",
    "MACs",
    "instructions",
    "per MAC",
    "moved bytes",
    "constant bytes",
    "code bytes",
    "scratch bytes",
)
_BUFFER_COLUMNS = ("buffer", "kind", "bytes", "offset", "steps", "why it lies there")


def _layers(described: dict[str, Any], added: dict[str, Any]) -> list[tuple[object, ...]]:
    """A line for each layer; instructions that are not counted are marked: ~ expected by the kernel, ~~ guessed from elements."""
    rows = []
    for number, (layer, more) in enumerate(zip(described["layers"], added["layers"], strict=True)):
        estimate = more["estimate"]
        mark = "" if estimate is None else "~" if estimate["by"] == "kernel" else "~~"
        instructions = more["instructions"] if estimate is None or more["instructions"] is not None else estimate["instructions"]
        cells = (
            "-" if instructions is None else f"{mark}{instructions}" if more["instructions"] is None else instructions,
            f"{instructions / layer['macs']:.2f}" if instructions and layer["macs"] else "-",
        )
        moved, code = ("-" if more[key] is None else more[key] for key in ("moved_bytes", "code_bytes"))
        rows.append(
            (
                number,
                layer["kernel"],
                "+".join(layer["operators"]) or "-",
                _dims(layer["output_shape"]),
                layer["macs"],
                *cells,
                moved,
                layer["constant_bytes"],
                code,
                layer["scratch_bytes"],
            )
        )
    return rows


def _buffers(described: dict[str, Any], added: dict[str, Any]) -> list[tuple[object, ...]]:
    """A line for each storage; rows that lie each at an offset of its own are told by the first of them, and how many there are."""
    rows, counts = [], dict[str, int]()
    for place, one in zip(described["buffers"], added["buffers"], strict=True):
        storage = place["name"] if one["row"] is None else place["name"].rpartition("[")[0]
        counts[storage] = counts.get(storage, 0) + 1
        if one["row"] is not None and counts[storage] > 1:
            continue
        region = f"{place['region']} " if place["region"] else ""
        label = one["label"] if one["row"] is None else f"{one['label']}, row {one['row']} of {one['rows']}"
        steps = f"{place['first_step']}..{place['last_step']}"
        rows.append((label, one["kind"], place["bytes"], f"{region}{place['offset']}", steps, one["why"]))
    return rows


def _print_curve(described: dict[str, Any], added: dict[str, Any]) -> None:
    """Bytes that steps need, as bars; the peak is marked."""
    needed, steps, whole = added["needed_bytes"], added["steps"], max(described["workspace_bytes"], 1)
    peak = needed.index(max(needed))
    each = -(-len(needed) // _ROWS)
    say(f"{described['symbol']}: bytes needed, of a workspace of {whole}; lower bound {described['lower_bound_bytes']}")
    out = console()
    for first in range(0, len(needed), each):
        numbers = range(first, min(first + each, len(needed)))
        most = max(numbers, key=lambda step: (needed[step], -step))
        layer = "-" if steps[most]["layer"] is None else steps[most]["layer"]
        bar = "█" * round(_WIDTH * needed[most] / whole)
        text = Text(f"  step {most:5d}  layer {layer!s:>4}  {needed[most]:9d}  ")
        text.append(bar, Style(color="blue"))
        out.print(text + Text("  peak" if most == peak else "", "bold"))


def _print_finding(one: dict[str, Any]) -> None:
    out = console()
    out.print(
        Text(f"{one['weight']}: ", "bold yellow" if one["weight"] == "warning" else "bold") + plain(one["title"]), soft_wrap=True
    )
    say(f"  {one['text']}")
    say(f"  What to do: {one['advice']}")


def _flash(report: dict[str, Any]) -> list[tuple[object, ...]]:
    """Constants by layer, then functions, the largest first; those of less than a hundredth of all together."""
    bundle, flash = report["bundle"], report["flash"]
    whole = max(bundle["code_bytes"] + bundle["weights_bytes"] + bundle.get("pages_bytes", 0), 1)
    lines = []
    for one in flash["constants"]:
        layer = bundle["entries"][one["entry"]]["layers"][one["layer"]]
        lines.append((f"{one['kind']} of layer {one['layer']}, {layer['kernel']}", one["bytes"]))
    if flash["shared_constants_bytes"]:
        lines.append(("equal constants, which are stored once", -flash["shared_constants_bytes"]))
    if flash["other_constants_bytes"]:
        lines.append(("the entries' own tables, alignment", flash["other_constants_bytes"]))
    lines += [(f"code of {one['symbol']}" if one["symbol"] else "literals and padding", one["bytes"]) for one in flash["code"]]
    large = [line for line in lines if abs(line[1]) * 100 >= whole]
    small = [nbytes for _, nbytes in lines if abs(nbytes) * 100 < whole]
    rest = [(f"{counted(len(small), 'other')}", sum(small))] if small else []
    return [(what, nbytes, f"{100 * nbytes / whole:.1f} %") for what, nbytes in (*large, *rest)]


def _dims(shape: list[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
