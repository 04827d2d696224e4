"""Dense layers on an image that never lies in memory at once: the sums stay, and take in the image's rows one by one.

Enters: contractions of all rows of an image that leave their sums. Leaves: `Implementation`s, or the sentence why not.
Invariant: before a row is added, the output holds the biases and the products of all rows above it, modulo 2^32.

Each row is a dense layer of its own, with weights of its own, which `product.py` multiplies; its sums go to scratch, and from there to the
output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from aot.backends.cmsis_nn.dsp.convolution import doubled
from aot.backends.cmsis_nn.dsp.costs import core
from aot.backends.cmsis_nn.dsp.gather import Patches, Pixels, gather_run
from aot.backends.cmsis_nn.dsp.packing import Packed, pack, paired, solution
from aot.backends.cmsis_nn.dsp.product import Core, Placement
from aot.backends.cmsis_nn.dsp.tiling import STRAIGHT, block_choices, direct_tiles, equal_turns
from aot.backends.cmsis_nn.shared import Frame, digest, emit_body
from aot.backends.layers.operands import Layer, read_layer
from aot.graph.ir import DType
from aot.graph.primitive import Geometry, Primitive
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, Value
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.program import Buffer, Program
from aot.lower.rows import adds_up_rows, instruction_rows
from aot.target import Target

_SHORT = 8  # words a turn, of code that layers of all sizes share
_AT_ONCE = 4  # sums that are added in a turn
_ADDED = 3.6  # instructions for each of them
_GATHERED = 1.15  # instructions for an input that is expanded


def claim_dense_rows(program: Program, instruction: Primitive, target: Target) -> tuple[Implementation, ...] | str:
    """Sums of a dense layer over the rows of an image."""
    layer = read_layer(program, instruction, target, "dense", "dsp", sums=True, nine_bits=True)
    if isinstance(layer, str):
        return layer
    if not layer.is_sums or not adds_up_rows(program, layer.instruction):
        return "not the sums of an image's rows"
    rows = instruction_rows(layer.instruction, accumulates=True)
    if rows < 2:
        return "an image of one row"
    return tuple(_implementation(program, plan) for plan in _plans(layer, rows))


@dataclass(frozen=True)
class _Plan:
    """All decisions for one layer. layer: that of a row; table: biases, then the packed weights of each row (`packed`: the first's)."""

    layer: Layer
    rows: int
    patches: Patches
    packed: Packed
    table: np.ndarray
    direct: bool

    @property
    def channels(self) -> int:
        return len(self.layer.bias)

    @property
    def core(self) -> Core:
        return Core(self.packed, 1, 1, self.packed.tile.unroll, direct=self.direct)

    @property
    def slots_nbytes(self) -> int:
        return 0 if self.direct else 4 * self.packed.tile.words

    @property
    def code(self) -> tuple[object, ...]:
        """All that the code depends on."""
        return self.channels, self.patches, self.packed.tile, self.packed.groups, self.packed.code, self.direct

    @property
    def cost(self) -> Cost:
        product = core(self.layer, self.packed, 1, 1, self.packed.tile.unroll, self.direct)
        depth, again = self.layer.geometry.input[3], len(self.patches.again)
        gather = 0 if self.direct else _GATHERED * depth + 2 * again + 10
        row = product.instructions + gather + _ADDED * self.channels + 14
        step = self.channels * 4
        return Cost(
            int(self.rows * row + 3 * self.channels + 30),
            0,
            (
                (f"body {digest(self.code)}", 200 if self.direct else 300 + 8 * again),
                (self.core.name(step), int(product.code_nbytes)),
            ),
            step_instructions=20,
        )


def _plans(layer: Layer, rows: int) -> Iterable[_Plan]:
    """Where rows are read as they lie; and with them expanded to scratch, in much code or in code that layers share."""
    count, depth = len(layer.bias), prod(layer.instruction.window) // rows
    row_of_all = replace(
        layer,
        geometry=Geometry("dense", (1, 1, 1, depth), (1, 1, 1, count)),
        weights=layer.weights.reshape(count * rows, 1, 1, depth),
        bias=np.zeros(count * rows, np.int64),
    )
    split, again = doubled(row_of_all)
    weights = split.weights.reshape(count, rows, -1)
    each = [replace(row_of_all, weights=weights[:, number], bias=np.zeros(count, np.int64)) for number in range(rows)]
    patches = Patches.of(each[0], again=again)
    solved = replace(solution(each[0]), interleaved=all(solution(one).interleaved for one in each))
    words = len(patches.order) // 2
    pairs = max(pairs for pixels, pairs in block_choices(words, len(paired(count))) if pixels == 1)
    tiles = [(tile, True) for tile in direct_tiles(words, len(paired(count)))] if depth % 4 == 0 and not again else []
    tiles += [(equal_turns(words, 1, pairs, most, False, shared), False) for most, shared in ((STRAIGHT, False), (_SHORT, True))]
    for tile, direct in dict.fromkeys(tiles):
        packed = [pack(one, patches.order, tile, solved) for one in each]
        table = np.concatenate([layer.bias.astype(np.int32), *(one.data for one in packed)])
        yield _Plan(each[0], rows, patches, packed[0], table, direct)


def _implementation(program: Program, plan: _Plan) -> Implementation:
    layer, tile = plan.layer, plan.packed.tile
    instruction = layer.instruction
    table = Buffer(f"{instruction.out}.rows", DType.INT32, plan.table.shape, "constant", data=plan.table, align=4)
    return Implementation(
        kernel="dense rows",
        instruction=instruction,
        reads=(instruction.left.buffer,),
        writes=(instruction.out,),
        constants=(table,),
        emit=lambda function: _emit(function, plan, table.name),
        scratch_nbytes=plan.slots_nbytes + 4 * plan.channels,
        scatters=(instruction.left.buffer,),
        rows=Rows(plan.rows, 1, accumulates=True),
        style="ordered",
        cost=plan.cost,
        notes=(f"{2 * tile.pairs} channels at a time",),
        variant=tile.variant + (", not gathered" if plan.direct else ""),
    )


def _emit(function: KernelFunction, plan: _Plan, table: str) -> None:
    align = function.align_of(plan.layer.instruction.left.buffer)
    plan = replace(plan, patches=Patches.of(plan.layer, align, plan.patches.again))
    emit_body(function, plan.layer, table, lambda frame: _Emitter(frame, plan).emit(), "dense_rows", plan.code)


class _Emitter:
    """Emits the body."""

    def __init__(self, frame: Frame, plan: _Plan) -> None:
        self.frame, self.plan, self.dsp = frame, plan, frame.dsp

    def emit(self) -> None:
        dsp, builder, frame, plan = self.dsp, self.dsp.builder, self.frame, self.plan
        with builder.if_then(builder.icmp_unsigned("==", frame.y0, I32(0))):
            self._each([frame.table, frame.target], lambda words: words[0])
        weights, nbytes = dsp.at(frame.table, 4 * plan.channels), 4 * len(plan.packed.data)
        start = dsp.at(weights, builder.mul(frame.y0, I32(nbytes)))
        with dsp.repeat(builder.sub(frame.y1, frame.y0), [frame.y0, start]) as carried:
            number, here = carried.values
            self._row(frame.image.row(dsp, number), here)
            carried.next = (builder.add(number, I32(1)), dsp.at(here, nbytes))

    def _row(self, row: Value, weights: Value) -> None:
        """Add a row's products."""
        dsp, plan = self.dsp, self.plan
        slots, stage = row, dsp.at(self.frame.scratch, plan.slots_nbytes)
        if not plan.direct:
            slots = self.frame.scratch
            gather_run(dsp, row, slots, plan.layer.geometry.input[3], Pixels(1, 0, 1, plan.patches.aligned))
            plan.patches.repeat_inputs(dsp, slots, 1, 1)
        plan.core.call(dsp, Placement(weights, slots, stage, 4 * plan.channels))
        self._each([stage, self.frame.target], lambda words: dsp.builder.add(*words))

    def _each(self, pointers: list[Value], made: Callable[[list[Value]], Value]) -> None:
        """The words of the output, each of those at the same place behind these pointers, of which the last is the output's."""
        dsp, count = self.dsp, self.plan.channels
        for width, turns in ((_AT_ONCE, count // _AT_ONCE), (1, count % _AT_ONCE)):
            if not turns:
                continue
            with dsp.repeat(turns, pointers) as carried:
                *_, out = carried.values
                for at in range(0, 4 * width, 4):
                    dsp.store_word(made([dsp.word(pointer, at) for pointer in carried.values]), out, at)
                carried.next = tuple(dsp.at(pointer, 4 * width) for pointer in carried.values)
            pointers = list(carried.results)
