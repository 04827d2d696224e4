# pyright: basic
"""A report as one HTML file that needs nothing else: styles, script and pictures are in it.

Enters: a report (`content.report`). Leaves: the page's text.
Invariant: names from the model are text, never markup (Jinja escapes everything; in the script's data `<` and its kin are escaped, too);
a figure of NAME.json carries its path there in `data-path`; the same report gives the same bytes.
"""

from __future__ import annotations

import json
import re
from importlib.resources import files as files_of_package
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from aot.names import printable
from aot.report.pictures import graph_picture, memory_picture


def html(report: dict[str, Any]) -> str:
    """The page."""
    environment = Environment(
        loader=PackageLoader("aot"), trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined, autoescape=True
    )
    environment.filters.update(count=_count, plain=printable, prose=_prose)
    environment.globals.update(at=_at)  # pyright: ignore[reportArgumentType]  # jinja2 has it typed by what it begins with
    entries = [_entry(report, number) for number in range(len(report["entries"]))]
    return environment.get_template("report.html.j2").render(
        report=report,
        bundle=report["bundle"],
        entries=entries,
        flash=_flash(report),
        data=_script_data(entries),
        style=_part("report.css"),
        script=_part("report.js"),
    )


def _part(name: str) -> Markup:
    return Markup((files_of_package("aot") / "templates" / name).read_text("utf-8"))


def _at(content: Any, path: str) -> Any:
    """What `entries.0.layers.3.macs` names."""
    for key in path.split("."):
        content = content[int(key)] if isinstance(content, list) else content[key]
    return content


def _count(value: Any) -> str:
    """`12,345`; `1×49×10` of a shape; a dash where nothing is known."""
    if value is None:
        return "–"
    if isinstance(value, list):
        return "×".join(map(str, value)) or "scalar"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _prose(text: str) -> Markup:
    """A sentence in which what stands between backticks is code; everything in it is escaped."""
    parts = (escape(printable(part)) for part in text.split("`"))
    return Markup("").join(Markup("<code>{}</code>").format(part) if number % 2 else part for number, part in enumerate(parts))


def _entry(report: dict[str, Any], number: int) -> dict[str, Any]:
    """What the template shows of an entry: its description, what the report adds, pictures, lines of tables."""
    described, added = report["bundle"]["entries"][number], report["entries"][number]
    graphs = [(title, added["graphs"][key]) for title, key in (("As read", "model"), ("As compiled", "fused"))]
    return {
        "number": number,
        "path": f"entries.{number}",
        "described": described,
        "added": added,
        "macs": sum(layer["macs"] for layer in described["layers"]),
        "memory": memory_picture(described, added) if added["buffers"] else None,
        "buffers": _buffer_lines(described, added),
        "graphs": [(title, graph_picture(graph)) for title, graph in graphs if graph],
        "layers": [_layer_line(*pair) for pair in zip(described["layers"], added["layers"], strict=True)],
        "total": _total(added["layers"]),
        "findings": [one for one in report["findings"] if one["entry"] == number],
    }


def _layer_line(layer: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    """instructions: counted, or else expected (`is_estimate`)."""
    counted, estimate = added["instructions"], added["estimate"]
    instructions = counted if counted is not None else None if estimate is None else estimate["instructions"]
    per_mac = instructions / layer["macs"] if instructions is not None and layer["macs"] else None
    source = "counted" if counted is not None else "" if estimate is None else estimate["by"]
    return {"instructions": instructions, "source": source, "per_mac": per_mac}


def _total(layers: list[dict[str, Any]]) -> dict[str, Any]:
    """Sums over the layers, where all are known."""

    def whole(values: list[int | None]) -> int | None:
        return None if None in values else sum(value or 0 for value in values)

    counted = whole([layer["instructions"] for layer in layers])
    expected = whole([None if layer["estimate"] is None else layer["estimate"]["instructions"] for layer in layers])
    return {
        "instructions": expected if counted is None else counted,
        "is_counted": counted is not None,
        "cycles": whole([layer["modelled_cycles"] for layer in layers]),
        "moved": whole([layer["moved_bytes"] for layer in layers]),
    }


def _buffer_lines(described: dict[str, Any], added: dict[str, Any]) -> list[dict[str, Any]]:
    """A line for each storage: one that lies in rows has one, with the bytes of all and the offsets' range."""
    lines: dict[tuple[str, bool, str], dict[str, Any]] = {}
    for place, one in zip(described["buffers"], added["buffers"], strict=True):
        own = place["name"] if one["row"] is None else place["name"].rpartition("[")[0]
        line = lines.setdefault(
            (own, one["row"] is not None, place["region"] or ""),
            {
                "label": one["label"],
                "kind": one["kind"],
                "region": place["region"],
                "why": one["why"],
                "in_rows": one["row"] is not None,
                "bytes": 0,
                "low": place["offset"],
                "high": 0,
                "first": place["first_step"],
                "last": 0,
                "rows": 0,
                "made_by": one["made_by"],
                "read_by": one["read_by"],
            },
        )
        line["bytes"] += place["bytes"]
        line["rows"] += 1
        line["low"], line["high"] = min(line["low"], place["offset"]), max(line["high"], place["offset"] + place["bytes"])
        line["first"], line["last"] = min(line["first"], place["first_step"]), max(line["last"], place["last_step"])
    return list(lines.values())


def _flash(report: dict[str, Any]) -> dict[str, Any]:
    """Lines of the tables, each with its share of the largest; and what they add up to. families: functions of one kind together."""
    bundle, flash = report["bundle"], report["flash"]
    prefix = f"{bundle['name']}_"
    several = len(report["entries"]) > 1

    def layer(one: dict[str, Any]) -> tuple[str, str]:
        """(whose, kernel) of a layer's line."""
        entry = bundle["entries"][one["entry"]]
        whose = f"{entry['symbol']}: " if several else ""
        return f"{whose}layer {one['layer']}", entry["layers"][one["layer"]]["kernel"]

    code, families = [], dict[str, dict[str, Any]]()
    for one in flash["code"]:
        if one["layer"] is not None:
            whose, kernel = layer(one)
            title, family = f"{whose} {kernel}", f"{kernel}, a layer's own"
        elif one["kind"] == "shared":
            title = one["symbol"].removeprefix(prefix)
            family = f"{re.sub(r'_[0-9a-f]{12}$', '', title).replace('_', ' ')}, shared by layers"
        else:
            title = family = f"{one['symbol']}, which the firmware calls" if one["symbol"] else "literals and padding"
        code.append({**one, "title": title})
        found = families.setdefault(family, {"title": family, "functions": 0, "bytes": 0})
        found["functions"] += one["kind"] != "other"
        found["bytes"] += one["bytes"]
    constants = [{**one, "title": " ".join(layer(one))} for one in flash["constants"]]
    stored = bundle["weights_bytes"] + bundle.get("pages_bytes", 0)
    return {
        "total": bundle["code_bytes"] + stored,
        "code": _with_shares(code),
        "families": _with_shares(sorted(families.values(), key=lambda one: (-one["bytes"], one["title"]))),
        "constants": _with_shares(constants),
        "stored": stored,
    }


def _with_shares(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    largest = max([1, *(one["bytes"] for one in lines)])
    return [{**one, "share": one["bytes"] / largest} for one in lines]


def _script_data(entries: list[dict[str, Any]]) -> Markup:
    """What the script shows when something is pointed at, compact: strings by number."""
    strings: dict[str, int] = {}

    def number(text: str) -> int:
        return strings.setdefault(printable(text), len(strings))

    made = []
    for entry in entries:
        described, added = entry["described"], entry["added"]
        buffers = []
        for place, one in zip(described["buffers"], added["buffers"], strict=True):
            content = "" if one["dtype"] is None else f"{one['dtype']} {'x'.join(map(str, one['shape']))}"
            layers = f"made by {_layers(one['made_by'])}, read by {_layers(one['read_by'])}" if one["kind"] != "scratch" else ""
            fields = (one["label"], content, place["region"] or "", layers, one["why"])
            figures = (
                -1 if one["row"] is None else one["row"],
                place["bytes"],
                place["offset"],
                place["first_step"],
                place["last_step"],
            )
            buffers.append([*map(number, fields), *figures])
        places = entry["memory"]["places"] if entry["memory"] else []
        names = [f"layer {at} {layer['kernel']}" for at, layer in enumerate(described["layers"])]
        steps = [[-1 if step["layer"] is None else number(names[step["layer"]]), *step["rows"]] for step in added["steps"]]
        made.append({"buffers": buffers, "steps": steps, "needed": added["needed_bytes"], "x": [round(x, 1) for x in places]})
    text = json.dumps({"strings": list(strings), "entries": made}, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _layers(numbers: list[int]) -> str:
    """`layers 3, 4`, `nothing here` where only the caller does."""
    return f"layer{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}" if numbers else "the caller"
