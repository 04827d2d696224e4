"""What convolutions and dense layers cost: instructions and code of a block of pixels times all channels, from what is emitted.

Enters: a packing and how pixels are gathered. Leaves: `Expense`s, of which kernels make their `Cost`s.
Invariant: only choosing among variants depends on these numbers; tests hold them to what an emulator counts.

The emitted instructions are counted as the emitters' loops are written; small constants (calls, loop heads) are what LLVM makes of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from aot.backends.cmsis_nn.dsp.gather import Patches
from aot.backends.cmsis_nn.dsp.packing import Packed
from aot.backends.layers.operands import Layer
from aot.backends.layers.requantise import Form
from aot.graph.expr import walk

_NBYTES = 3.9  # of an instruction, on average
_REST = 1.6  # instructions for a node of a fused expression


@dataclass(frozen=True)
class Expense:
    """Instructions executed, and bytes of code."""

    instructions: float
    code_nbytes: float


def requantised(form: Form) -> int:
    """Instructions from an accumulator to an int8, its store not counted."""
    if form.kind == "sums":
        return 0
    if form.kind == "exact":
        steps = 14
    else:
        steps = {"saturate": 2, "long": 5}.get(form.kind, 4) + (0 if form.uniform else 1)
    return steps + (0 if form.clamp is None else 4)


def fused(layer: Layer) -> float:
    """Instructions for each output of what is fused behind a layer."""
    rest = layer.split.rest
    return 0 if rest is None else 2 + _REST * sum(1 for _ in walk(rest))


def core(layer: Layer, packed: Packed, pixels: int, stride: int, unroll: int, direct: bool = False) -> Expense:
    """All channels of `pixels` pixels (see `product.Core`)."""
    tile = packed.tile
    pairs, turns = tile.pairs, tile.words // unroll
    is_long = turns > 1 or (tile.share_code and unroll == tile.unroll)
    tight = packed.way == "coupled" and pixels > 1 and pixels * pairs * (1 + packed.is_long) >= 4
    loads = pairs if tight or (packed.way != "wide" and pairs == 1 and pixels > 2) else packed.word_nbytes / 8
    expanded = {"interleaved": pairs, "coupled": 2 * pairs, "wide": 0}[packed.way]
    slots = pixels // 2 + (pixels % 2) * (1 if stride > 1 else 1.5 if direct else 0.5)
    body = unroll * (2 * pixels * pairs + expanded + loads + slots)
    each = 2 * (requantised(packed.form) + 1 + fused(layer)) + (0 if not packed.interleaved else 5 if packed.long_places[0] else 1)
    finish = pairs * (packed.constant_count + pixels * each)
    head = pairs + 2 * pairs * (pixels - 1) + (8 if is_long else 4)
    busy = (24 + 4 * turns if is_long else 0) if pixels * pairs > 2 else 0  # registers on the stack
    group = head + finish + busy + turns * (body + (5 if is_long else 0))
    return Expense(packed.groups * group + (24 if is_long else 18), _NBYTES * (head + finish + body + 10))


def gathered(layer: Layer, patches: Patches, pixels: int) -> Expense:
    """`pixels` pixels into their slots."""
    runs, again = _gathered_runs(layer, patches, pixels), 2 * len(patches.again)
    return Expense(runs.instructions + again * pixels, runs.code_nbytes + _NBYTES * again * (pixels if patches.contiguous else 1))


def _gathered_runs(layer: Layer, patches: Patches, pixels: int) -> Expense:
    count, length = patches.runs
    g = layer.geometry
    if patches.contiguous and patches.element == 2:
        words = -(-length // 2)
        steps = words * pixels * (1 if patches.aligned else 1.5)
        turns = length / 8 if length * pixels > 24 else 0
        return Expense(steps + 4 * turns + 4, _NBYTES * min(steps, 4 * pixels + 12))
    if patches.contiguous:
        quads, rest = divmod(length, 4)
        pair = (1 if patches.aligned and length >= 8 else 2) + 4 + 2
        single = pair / 2 + 1.5
        steps = quads * (pixels // 2 * pair + pixels % 2 * single) + rest * 2.5 * pixels
        turns = length / 8 if length * pixels > 24 else 0
        return Expense(steps + 4 * turns + 4, _NBYTES * min(steps, 8 * pixels + 12))
    if patches.element == 2:
        words = -(-length // 2)
        run = words * (1 if patches.aligned else 1.5) + (4 * words / 8 if length > 24 else 0) + 2
    else:
        quads, rest = divmod(length, 4)
        load = 0.5 if patches.aligned and length >= 8 else 1
        run = quads * (load + 4) + rest * 2.5 + (4 * length / 16 if length > 24 else 0) + 2
    window = g.kernel[0] * (count * run + 6) + 16
    outside = _leaving_share(layer)
    units = patches.pixel_nbytes // (patches.element if patches.pixel_nbytes % 4 else 4)
    copied = g.kernel[0] * (g.kernel[1] * (10 + (5 * units if units > 1 else 0)) + 6) + 10
    return Expense(pixels * (window + outside * copied), _NBYTES * (min(run, 60) + 20 + (35 if outside else 0)))


def _leaving_share(layer: Layer) -> float:
    """The share of windows that leave the image."""
    g = layer.geometry
    inside = 1.0
    for axis, pad in ((0, g.pad_top), (1, g.pad_left)):
        span, size = (g.kernel[axis] - 1) * g.dilation[axis] + 1, g.output[axis + 1]
        starts = [number * g.stride[axis] - pad for number in range(size)]
        inside *= sum(0 <= start <= g.input[axis + 1] - span for start in starts) / size
    return 1 - inside
