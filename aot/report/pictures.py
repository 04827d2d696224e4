# pyright: basic
"""Pictures as geometry: what the template draws as SVG.

Enters: an entry of a report. Leaves: dictionaries of coordinates, in pixels, and texts.
Invariant: each bar covers the bytes and steps of one of the report's extents; nothing here is a figure of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from aot.report.layout import lay_out

_LEFT, _TOP, _RIGHT = 64.0, 8.0, 12.0
_WIDTH = 1040.0
"""Of the plot, without what is left of it."""
_MAP_HEIGHT, _LEAST_MAP_HEIGHT, _CURVE_HEIGHT, _AXIS = 320.0, 72.0, 150.0, 34.0
_COLOURS = 8
_CHAR = 6.8
"""Mean width of a character of the labels."""
_NODE_HEIGHT, _RANK = 40.0, 66.0


def memory_picture(described: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    """The memory map of each region over the steps, and below it the bytes that each step needs."""
    places = _places(added)
    regions = described["regions"] or [{"name": None, "workspace_bytes": described["workspace_bytes"]}]
    largest = max([1, *(region["workspace_bytes"] for region in regions)])
    colours = _colours(added["buffers"])
    top, maps = _TOP, []
    names = {region["name"] for region in regions}
    for region in regions:
        if not region["workspace_bytes"]:
            continue
        height = max(_MAP_HEIGHT * region["workspace_bytes"] / largest, _LEAST_MAP_HEIGHT)
        mine = [
            number
            for number, one in enumerate(described["buffers"])
            if one["region"] == region["name"] or (region["name"] is None and one["region"] not in names)
        ]
        unit = height / region["workspace_bytes"]
        bars = [
            bar
            for number in mine
            for bar in _bars(number, described["buffers"][number], added["buffers"][number], places, unit, top + height, colours)
        ]
        maps.append(
            {
                "name": region["name"],
                "top": top,
                "height": height,
                "bars": bars,
                "ticks": _ticks(region["workspace_bytes"], top + height, unit),
            }
        )
        top += height + 24
    return {
        "maps": maps,
        "left": _LEFT,
        "right": _LEFT + _WIDTH,
        "width": _LEFT + _WIDTH + _RIGHT,
        "height": top + _AXIS - 18,
        "axis": _axis(added, places),
        "axis_y": top - 16,
        "curve": _curve(described, added, places),
        "places": places,
    }


def _places(added: dict[str, Any]) -> list[float]:
    """Where each step begins, and where the last one ends. Steps of layers that run together by rows are narrower: all of them get the width of
    two steps for each layer."""
    widths = [1.0] * len(added["steps"])
    for one in added["stretches"]:
        count = one["last_step"] - one["first_step"] + 1
        each = min(1.0, 2 * (one["last_layer"] - one["first_layer"] + 1) / count)
        widths[one["first_step"] : one["last_step"] + 1] = [each] * count
    scale = _WIDTH / max(sum(widths), 1.0)
    return [_LEFT + scale * at for at in accumulate(widths, initial=0.0)]


def _colours(buffers: Sequence[dict[str, Any]]) -> dict[str, str]:
    """A class for each label: tensors take turns with the colours, scratch has its own."""
    found: dict[str, str] = {}
    for one in buffers:
        if one["kind"] in ("scratch", "bookkeeping"):
            found.setdefault(one["label"], "scratch")
        else:
            found.setdefault(one["label"], f"c{sum(other != 'scratch' for other in found.values()) % _COLOURS}")
    return found


def _bars(
    number: int,
    place: dict[str, Any],
    one: dict[str, Any],
    places: Sequence[float],
    unit: float,
    bottom: float,
    colours: dict[str, str],
) -> list[dict[str, Any]]:
    """A bar for each extent of a buffer."""
    made = []
    for low, high, first, last in one["extents"]:
        width, height = places[last + 1] - places[first], (high - low) * unit
        letters = int((width - 8) / _CHAR)
        label = one["label"] if one["row"] is None else f"{one['label']} [{one['row']}]"
        made.append(
            {
                "number": number,
                "x": places[first],
                "y": bottom - (place["offset"] + high) * unit,
                "width": width,
                "height": height,
                "colour": colours[one["label"]],
                "text": _fitting(label, letters) if height >= 13 else "",
            }
        )
    return made


def _fitting(label: str, letters: int) -> str:
    """The end of a label, which tells more than its beginning; empty where there is no room."""
    if len(label) <= letters:
        return label
    return f"…{label[1 - letters :]}" if letters >= 6 else ""


def _ticks(nbytes: int, bottom: float, unit: float) -> list[dict[str, Any]]:
    """Round numbers of bytes, from three to seven of them."""
    rough = max(nbytes / 5, 1)
    base = 10 ** math.floor(math.log10(rough))
    step = int(next((base * factor for factor in (1, 2, 5, 10) if base * factor >= rough), rough))
    return [{"y": bottom - at * unit, "bytes": at} for at in range(0, nbytes + 1, step)]


def _axis(added: dict[str, Any], places: Sequence[float]) -> list[dict[str, Any]]:
    """Layers below the map, where there is room for their numbers."""
    made, free = [], 0.0
    for one in added["stretches"]:
        x = places[one["first_step"]]
        width = places[one["last_step"] + 1] - x
        same = one["first_layer"] == one["last_layer"]
        text = f"{one['first_layer']}" if same else f"{one['first_layer']}–{one['last_layer']} by rows"
        room = len(text) * _CHAR
        centre = x + width / 2
        shown = centre - room / 2 >= free and room <= max(width, 14.0)
        if shown:
            free = centre + room / 2 + 3
        made.append({"x": x, "width": width, "centre": centre, "text": text if shown else ""})
    return made


def _curve(described: dict[str, Any], added: dict[str, Any], places: Sequence[float]) -> dict[str, Any]:
    """Bytes needed at each step as an outline, and the two lines above it."""
    needed, workspace = added["needed_bytes"], max(described["workspace_bytes"], 1)
    unit, bottom = _CURVE_HEIGHT / workspace, _TOP + 14 + _CURVE_HEIGHT
    points = [(_LEFT, bottom)]
    for step, nbytes in enumerate(needed):
        y = bottom - nbytes * unit
        points += [(places[step], y), (places[step + 1], y)]
    points.append((places[-1], bottom))
    peak = max(range(len(needed)), key=lambda step: (needed[step], -step)) if needed else 0
    return {
        "points": " ".join(f"{x:.1f},{y:.1f}" for x, y in points),
        "bottom": bottom,
        "top": _TOP + 14,
        "height": bottom + _AXIS,
        "workspace_y": bottom - described["workspace_bytes"] * unit,
        "bound_y": bottom - described["lower_bound_bytes"] * unit,
        "peak_x": (places[peak] + places[min(peak + 1, len(places) - 1)]) / 2,
        "peak_y": bottom - (needed[peak] if needed else 0) * unit,
        "peak_step": peak,
        "ticks": _ticks(described["workspace_bytes"], bottom, unit) if described["workspace_bytes"] else [],
    }


def graph_picture(graph: dict[str, Any]) -> dict[str, Any]:
    """Boxes and lines of a graph."""
    texts = [(_cut(_title(node)), _cut(node["detail"])) for node in graph["nodes"]]
    widths = [max(84.0, _CHAR * max(len(title) * 1.06, len(detail)) + 18) for title, detail in texts]
    layout = lay_out(widths, [(start, end) for start, end in graph["edges"]])
    boxes = [
        {
            "node": node,
            "x": layout.centres[number] - widths[number] / 2 + 8,
            "y": layout.ranks[number] * _RANK + 8,
            "width": widths[number],
            "centre": layout.centres[number] + 8,
            "title": title,
            "detail": detail,
            "about": _about(node),
        }
        for number, (node, (title, detail)) in enumerate(zip(graph["nodes"], texts, strict=True))
    ]
    return {
        "boxes": boxes,
        "lines": [_line(points) for points in layout.edges],
        "width": layout.width + 16,
        "height": max(layout.depth - 1, 0) * _RANK + _NODE_HEIGHT + 16,
        "node_height": _NODE_HEIGHT,
    }


def _title(node: dict[str, Any]) -> str:
    match node["kind"]:
        case "node":
            return f"{node['node']} {node['title']}"
        case "layer":
            return f"{node['layer']} {node['title']}"
        case _:
            pass
    return node["title"]


def _about(node: dict[str, Any]) -> str:
    """What is said of a node that is pointed at."""
    match node["kind"]:
        case "node":
            where = ", ".join(map(str, node["layers"]))
            layers = (
                f"computed by layer{'s' if len(node['layers']) > 1 else ''} {where}"
                if where
                else "no code: folded, merged or a view"
            )
            inner = f"; runs graphs of {node['inner_nodes']} nodes" if node["inner_nodes"] else ""
            return f"node {node['node']} {node['title']}: {node['label']}, {node['detail']}; {layers}{inner}"
        case "layer":
            nodes = ", ".join(map(str, node["model_nodes"]))
            what = (
                f"computes node{'s' if len(node['model_nodes']) > 1 else ''} {nodes} ({node['label']})"
                if nodes
                else "computes no node of the model"
            )
            return f"layer {node['layer']} {node['title']}: {what}; {node['detail']}"
        case _:
            pass
    return f"{node['kind']} {node['title']}: {node['detail']}"


def _cut(text: str) -> str:
    return text if len(text) <= 26 else f"{text[:12]}…{text[-13:]}"


def _line(points: Sequence[tuple[float, int]]) -> str:
    """A path from the lower edge of a box through the places between to the upper edge of another."""
    (x, rank), rest = points[0], points[1:]
    y = rank * _RANK + 8 + _NODE_HEIGHT
    path = [f"M{x + 8:.1f} {y:.1f}"]
    for number, (to_x, to_rank) in enumerate(rest):
        top = to_rank * _RANK + 8
        bend = (_RANK - _NODE_HEIGHT) / 2
        path.append(f"C{x + 8:.1f} {y + bend:.1f} {to_x + 8:.1f} {top - bend:.1f} {to_x + 8:.1f} {top:.1f}")
        x, y = to_x, top
        if number < len(rest) - 1:
            y = top + _NODE_HEIGHT
            path.append(f"V{y:.1f}")
    return "".join(path)
