"""Fully connected layers on Cortex-M3, row by row: eight channels at a time, then all outputs of the row.

Enters: contractions. Leaves: `Implementation`s, or the sentence why not.
Invariant: every output element is computed once; all inputs of a row are read before its outputs are stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from aot.backends.cmsis_nn.dsp.ending import Place, constant_count, constants_of_form, word32
from aot.backends.cmsis_nn.shared import Body, digest, emit_body
from aot.backends.cmsis_nn.swar import lanes
from aot.backends.cmsis_nn.swar.m3.packing import solved
from aot.backends.cmsis_nn.swar.m3.quads import MOST, OFFSET, Quads, group_lengths
from aot.backends.cmsis_nn.swar.m3.refusal import refusal
from aot.backends.layers.fused import operands_of
from aot.backends.layers.operands import Layer, read_layer
from aot.backends.layers.requantise import Form
from aot.graph.ir import DType
from aot.graph.primitive import Primitive
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I8, I32, Value
from aot.lower.implementation import Cost, Implementation
from aot.lower.inplace import elementwise_overwrites
from aot.lower.program import Buffer, Program
from aot.target import Target


def claim_dense(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Fully connected layers on any number of rows, one by one."""
    layer = refusal(target) or read_layer(program, instruction, target, "dense", sums=True)
    if isinstance(layer, str):
        return layer
    return _implementation(program, layer)


def claim_single_pixel(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Convolutions whose window is the whole image: fully connected layers, a row for each image."""
    layer = refusal(target) or read_layer(program, instruction, target, "conv")
    if isinstance(layer, str):
        return layer
    g = layer.geometry
    dilated = any(gap > 1 and size > 1 for gap, size in zip(g.dilation, g.kernel))
    moved = g.output[1:3] != (1, 1) or g.kernel != g.input[1:3] or g.pad_top > 0 or g.pad_left > 0
    if dilated or moved or layer.rest_axes & layer.pixel_axes:
        return "its window is not the whole image"
    return _implementation(program, layer)


def _implementation(program: Program, layer: Layer) -> Implementation | str:
    if prod(layer.geometry.output) == 1:
        return "a single output: generic code needs as few instructions, and no scratch"
    plan = _plan(layer)
    table = Buffer(f"{layer.instruction.out}.packed", DType.INT32, plan.table.shape, "constant", data=plan.table, align=4)
    reads, constants = operands_of(program, layer.instruction, layer.split.rest)
    return Implementation(
        kernel="dense" if layer.geometry.kind == "dense" else f"conv {layer.geometry.kernel[0]}x{layer.geometry.kernel[1]}",
        instruction=layer.instruction,
        reads=reads,
        writes=(layer.instruction.out,),
        constants=(table, *constants),
        emit=lambda function: _emit(function, plan, table.name),
        scratch_nbytes=plan.work_at + plan.work_nbytes,
        overwrites=elementwise_overwrites(program, layer.instruction),
        style="ordered",
        notes=(
            str(plan.form),
            "four channels' weights in a word",
            f"{plan.depth / len(plan.lengths):.1f} products are summed in lanes before a split",
        ),
        cost=plan.cost,
        variant="four channels a word",
    )


@dataclass(frozen=True)
class _Plan:
    """All decisions for one layer. lengths: of the groups. table: for each block what its lanes start from and its weights; then the
    requantisation constants of each channel; then the lengths, in bytes.

    Scratch: the groups' starts and jumps; accumulators of all blocks and behind them the sums of the groups of the block at hand."""

    layer: Layer
    form: Form
    lengths: tuple[int, ...]
    table: np.ndarray

    @property
    def depth(self) -> int:
        return prod(self.layer.weights.shape[1:])

    @property
    def rows(self) -> tuple[int, int]:
        """How many there are, and the distance of their outputs in elements."""
        g, out = self.layer.geometry, self.layer.out
        return (g.output[2], out.pixel) if g.kind == "dense" else (g.output[0], out.image)

    @property
    def channels(self) -> int:
        return len(self.layer.bias)

    @property
    def blocks(self) -> tuple[int, int]:
        """Blocks of two words, and of one (the last, if four channels are enough for it)."""
        return _blocks(self.channels)

    @property
    def constants_at(self) -> int:
        """Byte of the table at which the requantisation constants begin."""
        two, one = self.blocks
        return (8 * two + 4 * one) * (4 + self.depth)

    @property
    def lengths_at(self) -> int:
        return self.constants_at + 4 * constant_count(self.form) * self.channels

    @property
    def work_at(self) -> int:
        return 8 * len(self.lengths)

    @property
    def work_nbytes(self) -> int:
        two, one = self.blocks
        return 4 * (8 * two + 4 * one) + (16 if two else 8) * len(self.lengths)

    @property
    def cost(self) -> Cost:
        """Counted on the code: see `Quads` for what a k and a group take."""
        two, one = self.blocks
        groups, rows = len(self.lengths), self.rows[0]
        block = two * (10 * self.depth + 16 * groups + 40) + one * (6 * self.depth + 16 * groups + 40)
        return Cost(rows * (block + 5 * self.depth + 14 * groups + 9 * self.channels + 40), 60, self._shared_code)

    @property
    def _shared_code(self) -> tuple[tuple[str, int], ...]:
        """Code that layers have in common."""
        blocks = [quads for quads, count in zip((Quads(2), Quads(1)), self.blocks) if count]
        name = self.layer.instruction.out if self.code is None else f"dense_{digest(self.code)}"
        return (*((quads.purpose, len(quads.code())) for quads in blocks), (name, 180 + 40 * len(blocks)))

    @property
    def code(self) -> tuple[object, ...] | None:
        """All that the code depends on; None where something is fused behind, which is code of its own."""
        layer = self.layer
        if layer.split.rest is not None:
            return None
        return layer.geometry, layer.out, len(self.lengths), Place.of(self.form, 0, 1).code


def _blocks(channels: int) -> tuple[int, int]:
    two, left = divmod(channels, 8)
    return (two, 1) if 1 <= left <= 4 else (two + (left > 0), 0)


def _plan(layer: Layer) -> _Plan:
    count = len(layer.bias)
    form, matters = solved(layer)
    bias = np.where(matters, layer.folded_bias + form.delta, 0)
    weights = layer.weights.reshape(count, -1) * matters[:, None]
    lengths = group_lengths(weights)
    two, one = _blocks(count)
    raw, first = bytearray(), 0
    for words in [2] * two + [1] * one:
        quads = Quads(words)
        last = min(first + quads.channels, count)
        begin = [word32(word) for word in quads.starts(bias[first:last].tolist(), len(lengths))]
        raw += np.array(begin, "<i4").tobytes() + quads.weights(weights[first:last])
        first = last
    constants = [word for n in range(count) for word in constants_of_form(form, n)]
    raw += np.array([word32(word) for word in constants], "<i4").tobytes() + bytes(lengths)
    raw += bytes(-len(raw) % 4)
    return _Plan(layer, form, lengths, np.frombuffer(bytes(raw), "<i4"))


def _emit(function: KernelFunction, plan: _Plan, table: str) -> None:
    emit_body(function, plan.layer, table, lambda frame: _Emitter(frame, plan).emit(), "dense", plan.code)


class _Emitter(Body[_Plan]):
    """Emits one layer's body."""

    def emit(self) -> None:
        plan, dsp = self.plan, self.dsp
        layer, nbytes = plan.layer, self.output.nbytes
        rows, step = plan.rows
        with dsp.repeat(rows, [self.frame.source, dsp.at(self.frame.target, layer.out.offset * nbytes)]) as carried:
            source, out = carried.values
            number = I32(0) if rows == 1 else dsp.builder.sub(I32(rows), carried.index)
            self._groups(source)
            self._blocks(source)
            self._outputs(out, number)
            carried.next = (dsp.at(source, plan.depth), dsp.at(out, step * nbytes))

    def _groups(self, source: Value) -> None:
        """Start and jump of each group."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        count, unit = len(plan.lengths), Quads(2).unit
        begin = [dsp.at(self.frame.table, plan.lengths_at), self.frame.scratch, source]
        with dsp.repeat(count, begin) as groups:
            lengths, place, here = groups.values
            length = builder.zext(builder.load(lengths, align=1, typ=I8), I32)
            with dsp.repeat(length, [here, I32(0)]) as inputs:
                at, total = inputs.values
                inputs.next = (dsp.at(at, 1), builder.add(total, dsp.byte(at)))
            here, total = inputs.results
            start = builder.sub(I32(lanes.BIAS), builder.mul(total, I32(OFFSET)))
            is_last = builder.zext(builder.icmp_signed("==", groups.index if count > 1 else I32(1), I32(1)), I32)
            jump = builder.add(builder.mul(builder.sub(I32(MOST), length), I32(unit)), is_last)
            dsp.store_pair(start, jump, place)
            groups.next = (dsp.at(lengths, 1), dsp.at(place, 8), here)

    def _blocks(self, source: Value) -> None:
        """The accumulators of all channels."""
        plan, dsp = self.plan, self.dsp
        place = [self.frame.table, dsp.at(self.frame.scratch, plan.work_at)]
        for quads, count in zip((Quads(2), Quads(1)), plan.blocks, strict=True):
            if not count:
                continue
            with dsp.repeat(count, place) as carried:
                table, work = carried.values
                weights = dsp.at(table, 4 * quads.channels)
                quads.call(dsp, weights, source, work, table, self.frame.scratch)
                carried.next = (dsp.at(weights, quads.channels * plan.depth), dsp.at(work, 4 * quads.channels))
            place = list(carried.results)

    def _outputs(self, out: Value, row: Value) -> None:
        """Requantise and store, channel by channel."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        count, space = constant_count(plan.form), plan.layer.instruction.space
        place = Place.of(plan.form, 0, 1)
        begin = [dsp.at(self.frame.table, plan.constants_at), dsp.at(self.frame.scratch, plan.work_at), out]
        with dsp.repeat(plan.channels, begin) as carried:
            constants, accs, here = carried.values
            value = place.requantise(dsp, dsp.word(accs), False, dsp.words(constants, 0, count))
            axes = {}
            if self.output.rest is not None:
                channel = builder.sub(I32(plan.channels), carried.index) if plan.channels > 1 else I32(0)
                axes = {**self.output.row_axes(row), len(space) - 1: channel}
            self.output.store([(here, value, axes)])
            carried.next = (dsp.at(constants, 4 * count), dsp.at(accs, 4), dsp.at(here, self.output.nbytes))
