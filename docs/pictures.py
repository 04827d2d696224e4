"""The pictures of docs/how.md that show real plans and numbers: SVG, drawn of what compiling `bundles/digits/digits.tflite` decides.

Enters: the model. Leaves: the text of each file of `PICTURES`. Invariant: every rectangle is a piece of the plan that the
bundle's code follows, and every number one that a kernel was proven with; the same compiler draws the same bytes. Colours suit light and dark pages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

import aot
from aot.backends.layers.operands import Layer, read_layer, stage_of
from aot.backends.layers.requantise import Stage, thresholds_of
from aot.bundle import Bundle
from aot.driver import Options
from aot.lower.pieces import pieces
from aot.lower.plan import SCRATCH, Plan, row_name

MODEL = Path(__file__).resolve().parent.parent / "bundles" / "digits" / "digits.tflite"
CPU = "cortex-m4"
WIDTH, LEFT, TOP, PLOT = 560, 56, 40, 472
PER_BYTE = 0.26
COLOURS = ("#17a2a2", "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#8a8f94")
STYLE = """<style>
text { font: 15px system-ui, sans-serif; fill: #222 } .small { font-size: 13px } .title { font-weight: 600 }
.page { fill: #fafafa; stroke: #ccc } .line { stroke: #222; fill: none } .faint { stroke: #999; stroke-dasharray: 4 4; fill: none }
.piece { fill-opacity: .72; stroke: #fafafa; stroke-width: .7 } .dot { fill: #e15759 }
@media (prefers-color-scheme: dark) {
text { fill: #ddd } .page { fill: #1d2129; stroke: #444 } .line { stroke: #ddd } .faint { stroke: #777 } .piece { stroke: #1d2129 }
}
</style>"""


@dataclass(frozen=True)
class Block:
    """Bytes [low, high) of the workspace that hold a part of a storage from step `first` to step `last`, both included."""

    storage: str
    low: int
    high: int
    first: int
    last: int


@cache
def bundle(optimize: str) -> Bundle:
    return aot.compile(MODEL, CPU, options=Options(io="workspace", optimize=optimize))


def blocks(plan: Plan) -> tuple[Block, ...]:
    """What the workspace holds, and when."""
    found, _ = pieces(plan.schedule, "workspace", plan.schedule.scattered)
    placed, end = [], len(plan.schedule.steps) - 1  # outputs are needed after the last step, too
    for piece in found:
        offset = plan.offset_of[piece.storage if piece.row is None else row_name(piece.storage, piece.row)]
        placed += [
            Block(piece.storage, offset + part.low, offset + part.high, part.first, min(part.last, end)) for part in piece.parts
        ]
    return tuple(placed)


def names(plan: Plan, layers: tuple[str, ...]) -> dict[str, str]:
    """What each storage is called in the legend: the input, the operator that writes it, scratch, or the last layers'."""
    program = plan.schedule.program
    found = {program.storage(name): "the picture" for name in program.inputs}
    for position, operator in zip(plan.schedule.kernel_positions, layers, strict=True):
        for name in plan.schedule.choices[position].implementation.writes:
            found.setdefault(program.storage(name), operator)
    return found


def memory(optimize: str, title: str) -> str:
    """A map of the workspace: steps to the right, bytes upwards."""
    made = bundle(optimize)
    plan = made.main.plan
    assert plan is not None
    wide = [layer.operators[0] if len(layer.out_shape) == 4 else "the last layers" for layer in made.main.layers]
    labels = tuple(f"{number + 1} {name}" if name != "the last layers" else name for number, name in enumerate(wide))
    known = names(plan, labels)
    legend = list(dict.fromkeys([*known.values(), "scratch"]))
    colour = {label: COLOURS[number % len(COLOURS)] for number, label in enumerate(legend)}
    height, step = made.workspace_nbytes * PER_BYTE, PLOT / len(plan.schedule.steps)
    bottom = TOP + height
    parts = [_text(LEFT, 24, title, "title")]
    for each in sorted(blocks(plan), key=lambda one: (one.low - one.high, one.first, one.low)):
        label = "scratch" if each.storage.startswith(SCRATCH) else known[each.storage]
        x, y = LEFT + each.first * step, bottom - each.high * PER_BYTE
        size = f'width="{(each.last - each.first + 1) * step:.1f}" height="{(each.high - each.low) * PER_BYTE:.1f}"'
        parts.append(f'<rect class="piece" x="{x:.1f}" y="{y:.1f}" {size} fill="{colour[label]}"/>')
    parts.append(f'<path class="line" d="M{LEFT} {TOP - 6}V{bottom:.1f}H{LEFT + PLOT}"/>')
    parts.append(f'<path class="faint" d="M{LEFT} {TOP}H{LEFT + PLOT}"/>')
    parts += [_text(LEFT - 6, TOP + 5, f"{made.workspace_nbytes:,}", "small", "end"), _text(LEFT - 6, bottom, "0", "small", "end")]
    parts.append(_text(LEFT + PLOT, bottom + 20, f"{len(plan.schedule.steps)} steps", "small", "end"))
    x, y = LEFT, bottom + 40
    for label in legend:
        if x + 30 + 8 * len(label) > WIDTH:
            x, y = LEFT, y + 24
        parts.append(f'<rect class="piece" x="{x}" y="{y - 11:.1f}" width="14" height="14" fill="{colour[label]}"/>')
        parts.append(_text(x + 20, y + 1, label, "small"))
        x += 44 + 8 * len(label)
    return _svg(y + 20, parts)


FIRST, LAST = 20, 26
"""The outputs that are drawn, above the layer's zero point."""
RISE = 30


def staircase() -> str:
    """Outputs of a channel of the first layer over its accumulators: the thresholds fix the function."""
    stage = first_channel()
    levels = stage.zero_point + np.arange(FIRST, LAST + 1)
    starts = [int(one) for one in thresholds_of(stage, levels)[0]]
    scale, bottom = PLOT / (starts[-1] - starts[0]), TOP + RISE * len(levels)
    parts, path = [_text(LEFT, 24, "Requantisation of one channel", "title")], f"M{LEFT} {bottom}"
    for number, (level, start) in enumerate(zip(levels, starts, strict=True)):
        x, y = LEFT + (start - starts[0]) * scale, bottom - (number + 1) * RISE
        path += f"H{x:.1f}V{y}"
        parts.append(f'<path class="faint" d="M{x:.1f} {y}V{bottom}"/><circle class="dot" cx="{x:.1f}" cy="{y}" r="4"/>')
        parts.append(_text(x, bottom + 20, str(start), "small", "middle"))
        parts.append(_text(LEFT - 10, y + 5, str(level), "small", "end"))
    parts.append(f'<path class="line" stroke-width="2" d="{path}h14"/>')
    parts.append(_text(LEFT, bottom + 44, "up: int8 output; to the right: int32 accumulator, with its thresholds", "small"))
    return _svg(bottom + 62, parts)


def first_channel() -> Stage:
    """What channel 0 of the first layer computes of its sum."""
    plan = bundle("speed").main.plan
    assert plan is not None
    layer = read_layer(plan.schedule.program, plan.schedule.instructions[0], bundle("speed").target, "conv")
    assert isinstance(layer, Layer)
    return stage_of(layer, [0])


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{text}</text>'


def _svg(height: float, parts: list[str]) -> str:
    size = f'viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}"'
    page = f'<rect class="page" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1:.0f}" rx="8"/>'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', STYLE, page, *parts, "</svg>"]) + "\n"


PICTURES: Mapping[str, Callable[[], str]] = {
    "pictures/layers.svg": lambda: memory("speed", "Each layer whole"),
    "pictures/rows.svg": lambda: memory("ram", "Layers by rows"),
    "pictures/requantise.svg": staircase,
}
"""By their name in docs/."""
