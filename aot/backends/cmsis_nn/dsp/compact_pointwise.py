"""1x1 convolutions in few bytes: one code for layers of all sizes, six bytes a channel beside its weights.

Enters: a convolution's layer. Leaves: `Implementation`s, or the sentence why not.
Invariant: every output element is computed from inputs alone: the last block may compute pixels again, to the same bytes.

Blocks of four pixels are gathered and multiplied as in `convolution.py`; sizes come from the table. The last block ends with the last
pixel, and begins where it must: there is no code for fewer pixels than four.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from aot.backends.cmsis_nn.dsp.compact import Compact, Numbers, layer_numbers, rounding, words_of
from aot.backends.cmsis_nn.dsp.costs import requantised
from aot.backends.cmsis_nn.dsp.gather import Patches
from aot.backends.cmsis_nn.dsp.packing import Packed, Tile, pack_compact
from aot.backends.cmsis_nn.dsp.product import Core, Placement
from aot.backends.cmsis_nn.shared import Frame, digest, emit_body
from aot.backends.layers.operands import Layer, stage_of
from aot.graph.ir import DType
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, Value
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.program import Buffer

_PIXELS = 4
_UNROLL = 8  # words a turn, unless a slot has less
_BODY_NBYTES = 260
_CORE_NBYTES, _WORD_NBYTES = 340, 47


@dataclass(frozen=True)
class _Plan:
    """All decisions for one layer. table: numbers, then the packed weights."""

    layer: Layer
    packed: Packed
    numbers: Numbers
    table: np.ndarray

    @property
    def code(self) -> tuple[object, ...]:
        """All that the code depends on."""
        return "pointwise", self.packed.code, self.packed.tile.unroll

    @property
    def rows_per_step(self) -> int:
        """As many as have a block's pixels; all, if there are a few left over."""
        _, height, width, _ = self.layer.geometry.output
        rows = -(-_PIXELS // width)
        return rows if height % rows == 0 else height

    @property
    def core(self) -> Core:
        return Core(self.packed, _PIXELS, _PIXELS, self.packed.tile.unroll)

    @property
    def cost(self) -> Cost:
        _, height, width, _ = self.layer.geometry.output
        tile, unroll = self.packed.tile, self.packed.tile.unroll
        gather = self.layer.geometry.input[3] // 4 * 20 + 24
        finish = _PIXELS * (2 * (requantised(self.packed.form) + 1) + 3)
        group = 44 + finish + tile.turns * (14 * unroll + 6)  # registers on the stack, too
        blocks = -(-height * width // _PIXELS)
        code = (
            (f"body {digest(self.code)}", _BODY_NBYTES),
            (f"core {digest((self.packed.code, unroll))}", _CORE_NBYTES + _WORD_NBYTES * unroll),
        )
        return Cost(blocks * (gather + 46 + self.packed.groups * group) + 40, 0, code)


def compact_pointwise(layer: Layer, reads: tuple[str, ...]) -> tuple[Implementation, ...]:
    """The layer with one code for all sizes, and where its slots are shorter than a turn also with shorter ones; nothing where it
    can't have it."""
    plans = [_plan(layer, unroll) for unroll in sorted({_UNROLL, min(_UNROLL, layer.geometry.input[3] // 2)})]
    return tuple(_implementation(plan, reads) for plan in plans if plan is not None)


def _implementation(plan: _Plan, reads: tuple[str, ...]) -> Implementation:
    layer, tile = plan.layer, plan.packed.tile
    table = Buffer(f"{layer.instruction.out}.packed", DType.INT32, plan.table.shape, "constant", data=plan.table, align=4)
    return Implementation(
        kernel="conv 1x1",
        instruction=layer.instruction,
        reads=reads,
        writes=(layer.instruction.out,),
        constants=(table,),
        emit=lambda function: _emit(function, plan, table.name),
        scratch_nbytes=4 * tile.pixels * tile.words,
        rows=Rows(layer.geometry.output[1], plan.rows_per_step, images=layer.geometry.output[0]),
        style="ordered",
        cost=plan.cost,
        is_frugal=True,
        notes=(str(plan.packed.form), "one code for all sizes"),
        variant=f"{tile.pixels} x {2 * tile.pairs}, {tile.unroll} words a turn, one code for all sizes",
    )


def _plan(layer: Layer, unroll: int) -> _Plan | None:
    """For turns of `unroll` words."""
    g, out, patches = layer.geometry, layer.out, Patches.of(layer)
    if layer.dtype is not DType.INT8 or layer.is_sums or layer.split.rest is not None:
        return None
    if g.kind != "conv" or not patches.contiguous or g.input[0] != 1 or g.input[3] % 4:
        return None
    if prod(g.output[1:3]) < _PIXELS or (g.output[1] > 1 and out.row != g.output[2] * out.pixel):
        return None
    words = g.input[3] // 2
    packed = pack_compact(layer, patches.order, Tile(_PIXELS, 1, unroll, -(-words // unroll), True))
    if packed is None or packed.compact is None:
        return None
    numbers = _numbers(layer, packed, packed.compact)
    data = words_of(numbers.data)
    return _Plan(layer, packed, numbers, np.concatenate([data, packed.data])) if numbers.fit else None


def _numbers(layer: Layer, packed: Packed, found: Compact) -> Numbers:
    g = layer.geometry
    return Numbers(
        **layer_numbers(stage_of(layer, range(len(layer.bias))), found),
        offset=layer.out.offset,
        pixel=layer.out.pixel,
        width=g.output[2],
        depth=g.input[3],
        groups=packed.groups,
        turns=packed.tile.turns,
        centre=-layer.instruction.left_zero_point,
    )


def _emit(function: KernelFunction, plan: _Plan, table: str) -> None:
    emit_body(function, plan.layer, table, lambda frame: _Emitter(frame, plan).emit(), "pointwise", plan.code)


class _Emitter:
    """Emits the body."""

    def __init__(self, frame: Frame, plan: _Plan) -> None:
        self.frame, self.plan, self.dsp = frame, plan, frame.dsp

    def _read(self, name: str) -> Value:
        return self.plan.numbers.read(self.dsp, self.frame.table, name)

    def emit(self) -> None:
        dsp, builder, frame = self.dsp, self.dsp.builder, self.frame
        width = self._read("width")
        first = builder.mul(frame.y0, width)
        behind = builder.mul(frame.y1, width)
        last = builder.sub(behind, I32(_PIXELS))
        blocks = builder.lshr(builder.add(builder.sub(behind, first), I32(_PIXELS - 1)), I32(2))
        with dsp.repeat(blocks, [first]) as carried:
            (pixel,) = carried.values
            is_whole = builder.icmp_signed("<", pixel, last)
            self._block(builder.select(is_whole, pixel, last))
            carried.next = (builder.add(pixel, I32(_PIXELS)),)

    def _block(self, pixel: Value) -> None:
        """Four pixels from this one on."""
        dsp, builder, frame = self.dsp, self.dsp.builder, self.frame
        depth, step = self._read("depth"), self._read("pixel")
        self._gather(dsp.at(frame.source, builder.mul(pixel, depth)), depth)
        out = dsp.at(frame.target, builder.add(builder.mul(pixel, step), self._read("offset")))
        weights = dsp.at(frame.table, self.plan.numbers.nbytes)
        numbers = {name: self._read(name) for name in ("turns", "groups", "right")}
        offset = rounding(dsp, self._read("odd"), numbers["right"])
        self.plan.core.call(dsp, Placement(weights, frame.scratch, out, step, rounding=offset, **numbers))

    def _gather(self, source: Value, depth: Value) -> None:
        """Four pixels less their zero point into the slots, four channels at a time."""
        dsp, builder, centre = self.dsp, self.dsp.builder, self._read("centre")
        centres = dsp.pack(centre, centre)
        distances = [I32(0), depth, builder.shl(depth, I32(1)), builder.mul(depth, I32(3))]
        with dsp.repeat(builder.lshr(depth, I32(2)), [source, self.frame.scratch]) as carried:
            here, slot = carried.values
            for first in range(0, _PIXELS, 2):
                both = [dsp.any_word(dsp.at(here, distance)) for distance in distances[first : first + 2]]
                for place, expand in ((first, dsp.sxtab16), (_PIXELS + first, dsp.sxtab16_odd)):
                    dsp.store_pair(expand(centres, both[0]), expand(centres, both[1]), slot, 4 * place)
            carried.next = (dsp.at(here, 4), dsp.at(slot, 8 * _PIXELS))
