"""Depthwise convolutions on Cortex-M3: channel by channel, row by row, some columns at a time, straight from the image.

Enters: contractions. Leaves: `Implementation`s, or the sentence why not.
Invariant: every output element is computed once; only pixels of the image are read: a tap outside it counts with the zero point.

Each byte of a row is loaded once for all columns that it reaches, while a row's weights (at most five at a time) stay in registers. For
3x3, stride 1 and six columns, a row takes 3 LDRSB for weights, 8 for pixels and 18 MLA. Two products a multiplication would need a
plane of pixel pairs for each channel, and splits: about as many instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from aot.backends.cmsis_nn.dsp.ending import Place, constant_count, constants_of_form, word32
from aot.backends.cmsis_nn.shared import Body, Frame, digest, emit_body
from aot.backends.cmsis_nn.swar.m3.packing import solved
from aot.backends.cmsis_nn.swar.m3.refusal import refusal
from aot.backends.layers.fused import operands_of, skews
from aot.backends.layers.operands import Layer, read_layer
from aot.backends.layers.requantise import Form
from aot.backends.layers.skews import channel_by_channel
from aot.graph.ir import DType
from aot.graph.primitive import Geometry, Primitive
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I8, I32, Value
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.inplace import elementwise_overwrites
from aot.lower.program import Buffer, Program
from aot.target import Target

_REGISTERS = 9  # for sums and weights
_MOST_WEIGHTS = 5  # of a kernel row that stay in registers
_STRAIGHT_TAPS = 25  # kernels of which code stands unrolled, where all rows exist


def claim_depthwise(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Depthwise convolutions of any multiplier, kernel, stride, dilation and padding."""
    layer = refusal(target) or read_layer(program, instruction, target, "depthwise")
    return layer if isinstance(layer, str) else _implementation(program, layer)


def claim_single_channel(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Convolutions of one input channel: depthwise ones, with the output channels as multiplier."""
    layer = refusal(target) or read_layer(program, instruction, target, "conv")
    if isinstance(layer, str):
        return layer
    if layer.geometry.input[3] != 1:
        return f"{layer.geometry.input[3]} input channels, not one"
    geometry = replace(layer.geometry, kind="depthwise", multiplier=layer.geometry.output[3])
    return _implementation(program, replace(layer, geometry=geometry, weights=layer.weights[..., 0]))


def _implementation(program: Program, layer: Layer) -> Implementation:
    plan, instruction = _plan(layer), layer.instruction
    table = Buffer(f"{instruction.out}.packed", DType.INT32, plan.table.shape, "constant", data=plan.table, align=4)
    reads, constants = operands_of(program, instruction, layer.split.rest)
    return Implementation(
        kernel=f"depthwise {layer.geometry.kernel[0]}x{layer.geometry.kernel[1]}",
        instruction=instruction,
        reads=reads,
        writes=(instruction.out,),
        constants=(table, *constants),
        emit=lambda function: _emit(function, plan, table.name),
        overwrites=elementwise_overwrites(program, instruction),
        skew=skews(program, layer, channel_by_channel(layer, 1, rereads=True)),
        rows=Rows(layer.geometry.output[1], 1, images=layer.geometry.output[0]),
        style="ordered",
        notes=(str(plan.form), f"columns at a time: {', '.join(str(size) for size in dict.fromkeys(plan.sizes))}"),
        cost=plan.cost,
        variant="straight from the image",
    )


@dataclass(frozen=True)
class _Plan:
    """All decisions for one layer. sizes: of the blocks of columns of a row. table: for each channel its bias, requantisation
    constants and weights."""

    layer: Layer
    form: Form
    sizes: tuple[int, ...]
    table: np.ndarray

    @property
    def code(self) -> tuple[object, ...] | None:
        """All that the code depends on; None where something is fused behind, which is code of its own."""
        layer = self.layer
        if layer.split.rest is not None:
            return None
        return layer.geometry, layer.out, layer.instruction.left_zero_point, Place.of(self.form, 0, 1).code

    @property
    def weights_at(self) -> int:
        """Byte of a channel's part of the table at which its weights begin."""
        return 4 * (1 + constant_count(self.form))

    @property
    def channel_nbytes(self) -> int:
        return 4 * len(self.table) // len(self.layer.bias)

    @property
    def segments(self) -> list[range]:
        """The taps of a kernel row, as many at a time as stay in registers."""
        width = self.layer.geometry.kernel[1]
        return [range(first, min(first + _MOST_WEIGHTS, width)) for first in range(0, width, _MOST_WEIGHTS)]

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """First column and size of each block."""
        return [(sum(self.sizes[:number]), size) for number, size in enumerate(self.sizes)]

    def is_inside(self, first: int, size: int) -> bool:
        """Whether all taps of a block's columns lie in the image, as to its columns."""
        g = self.layer.geometry
        left = first * g.stride[1] - g.pad_left
        right = (first + size - 1) * g.stride[1] - g.pad_left + (g.kernel[1] - 1) * g.dilation[1]
        return left >= 0 and right < g.input[2]

    @property
    def cost(self) -> Cost:
        g = self.layer.geometry
        images, height, _, channels = g.output
        row = 4.0 * (len(self.sizes) > 1) * len(self.sizes)
        looped = 0.5 if g.kernel[0] * g.kernel[1] <= _STRAIGHT_TAPS else 3.5
        for size in self.sizes:
            loads = len({x * g.stride[1] + tap * g.dilation[1] for x in range(size) for tap in range(g.kernel[1])})
            row += g.kernel[0] * (g.kernel[1] * (1 + size) + loads + looped) + 5 * size + 10
        each = height * row + self._partial_rows * (30 + 6 * g.kernel[1])
        return Cost(round(images * channels * each), 60, self._shared_code)

    @property
    def _partial_rows(self) -> int:
        """Output rows of which some kernel rows lie outside the image."""
        g = self.layer.geometry
        tops = [y * g.stride[0] - g.pad_top for y in range(g.output[1])]
        return sum(top < 0 or top + (g.kernel[0] - 1) * g.dilation[0] >= g.input[1] for top in tops)

    @property
    def _shared_code(self) -> tuple[tuple[str, int], ...]:
        """Code that layers have in common."""
        g = self.layer.geometry
        kinds = {(True, size) if self.is_inside(first, size) else (False, first, size) for first, size in self.blocks}
        straight = g.kernel[0] * g.kernel[1] <= _STRAIGHT_TAPS
        rows = [g.kernel[0]] * (straight and self._partial_rows < g.output[1]) + [1] * (not straight or self._partial_rows > 0)
        nbytes = 60 + 200 * (self._partial_rows > 0)
        for *_, size in kinds:
            loads = (size - 1) * g.stride[1] + g.kernel[1]
            nbytes += sum(4 * count * (g.kernel[1] * (1 + size) + loads) + 17 * size + 60 for count in rows)
        name = self.layer.instruction.out if self.code is None else f"depthwise_{digest(self.code)}"
        return ((name, nbytes),)


def _plan(layer: Layer) -> _Plan:
    g, count = layer.geometry, len(layer.bias)
    form, matters = solved(layer)
    most = _REGISTERS - min(g.kernel[1], _MOST_WEIGHTS)
    turns = -(-g.output[2] // most)
    size, more = divmod(g.output[2], turns)
    sizes = (size + 1,) * more + (size,) * (turns - more)
    bias = np.where(matters, layer.folded_bias + form.delta, 0)
    weights = layer.weights.reshape(count, -1) * matters[:, None]
    raw = bytearray()
    for n in range(count):
        words = [int(bias[n]), *constants_of_form(form, n)]
        raw += np.array([word32(word) for word in words], "<i4").tobytes() + weights[n].astype(np.int8).tobytes()
        raw += bytes(-len(raw) % 4)
    return _Plan(layer, form, sizes, np.frombuffer(bytes(raw), "<i4"))


def _emit(function: KernelFunction, plan: _Plan, table: str) -> None:
    emit_body(function, plan.layer, table, lambda frame: _Emitter(frame, plan).emit(), "depthwise", plan.code)


@dataclass(frozen=True)
class _Channel:
    """Where a channel's table and image begin, and its iteration axes (without rows and columns)."""

    table: Value
    source: Value
    axes: dict[int, Value]


class _Emitter(Body[_Plan]):
    """Emits one layer's body."""

    def __init__(self, frame: Frame, plan: _Plan) -> None:
        super().__init__(frame, plan)
        self.place = Place.of(plan.form, 0, 1)

    @property
    def _geometry(self) -> Geometry:
        return self.plan.layer.geometry

    def emit(self) -> None:
        layer, dsp, nbytes = self.plan.layer, self.dsp, self.output.nbytes
        target = dsp.at(self.frame.target, layer.out.offset * nbytes)
        self.each_image(dsp.at(target, dsp.builder.mul(self.frame.y0, I32(layer.out.row * nbytes))), self._image)

    def _image(self, source: Value, out: Value, number: Value) -> None:
        """Loop over input channels and the outputs of each."""
        plan, dsp, builder, nbytes = self.plan, self.dsp, self.dsp.builder, self.output.nbytes
        depth, each = self._geometry.input[3], self._geometry.multiplier
        with dsp.repeat(depth, [self.frame.table, source, out]) as channels:
            channel = builder.sub(I32(depth), channels.index) if depth > 1 else I32(0)
            table, here, there = channels.values
            with dsp.repeat(each, [table, there]) as many:
                copy = builder.sub(I32(each), many.index) if each > 1 else I32(0)
                self._rows(_Channel(many.values[0], here, {0: number, **self._channel_axes(channel, copy)}), many.values[1])
                many.next = (dsp.at(many.values[0], plan.channel_nbytes), dsp.at(many.values[1], nbytes))
            channels.next = (many.results[0], dsp.at(here, 1), many.results[1])

    def _channel_axes(self, channel: Value, copy: Value) -> dict[int, Value]:
        """The instruction's axes of input channel and its outputs; only the latter where it is a convolution of one channel."""
        return {3: channel, 4: copy} if len(self.plan.layer.instruction.space) == 5 else {3: copy}

    def _rows(self, channel: _Channel, out: Value) -> None:
        dsp, builder = self.dsp, self.dsp.builder
        with dsp.repeat(builder.sub(self.frame.y1, self.frame.y0), [self.frame.y0, out]) as carried:
            y, here = carried.values
            self._row(channel, y, here)
            carried.next = (builder.add(y, I32(1)), dsp.at(here, self.plan.layer.out.row * self.output.nbytes))

    def _row(self, channel: _Channel, y: Value, out: Value) -> None:
        """One output row: the kernel rows outside the image first, which make the sums' start, then the others."""
        g, dsp, builder = self._geometry, self.dsp, self.dsp.builder
        top = self._top(y)
        source = dsp.at(channel.source, builder.mul(top, I32(g.input[2] * g.input[3])))
        bias = dsp.word(channel.table)
        span = (g.kernel[0] - 1) * g.dilation[0]
        tops = [row * g.stride[0] - g.pad_top for row in range(g.output[1])]
        whole = [top >= 0 and top + span < g.input[1] for top in tops]
        straight = g.kernel[0] * g.kernel[1] <= _STRAIGHT_TAPS
        if all(whole):
            self._columns(channel, y, out, source, bias, 0, g.kernel[0], straight)
        elif not any(whole) or not straight:
            self._partly(channel, y, out, source, top, bias)
        else:
            with builder.if_else(builder.icmp_unsigned("<", top, I32(g.input[1] - span))) as (then, otherwise):
                with then:
                    self._columns(channel, y, out, source, bias, 0, g.kernel[0], True)
                with otherwise:
                    self._partly(channel, y, out, source, top, bias)

    def _top(self, y: Value) -> Value:
        g, builder = self._geometry, self.dsp.builder
        scaled = y if g.stride[0] == 1 else builder.mul(y, I32(g.stride[0]))
        return builder.sub(scaled, I32(g.pad_top)) if g.pad_top else scaled

    def _partly(self, channel: _Channel, y: Value, out: Value, source: Value, top: Value, bias: Value) -> None:
        """A row of which only some kernel rows [first, last) lie in the image."""
        g, builder, dsp = self._geometry, self.dsp.builder, self.dsp
        gap = g.dilation[0]

        def limited(value: Value) -> Value:
            """At least 0, at most the kernel's rows."""
            positive = builder.select(builder.icmp_signed(">", value, I32(0)), value, I32(0))
            return builder.select(builder.icmp_signed("<", positive, I32(g.kernel[0])), positive, I32(g.kernel[0]))

        def rows_before(row: Value) -> Value:
            """Kernel rows that lie before an image row."""
            distance = builder.add(builder.sub(row, top), I32(gap - 1))
            above = builder.select(builder.icmp_signed(">", distance, I32(0)), distance, I32(0))
            return limited(above if gap == 1 else builder.udiv(above, I32(gap)))

        first, last = rows_before(I32(0)), rows_before(I32(g.input[1]))
        weights = dsp.at(channel.table, self.plan.weights_at)
        for begin, end in ((I32(0), first), (last, I32(g.kernel[0]))):
            bias = self._outside(weights, begin, end, bias)
        inner = dsp.at(source, builder.mul(first, I32(gap * g.input[2] * g.input[3])))
        self._columns(channel, y, out, inner, bias, first, builder.sub(last, first), False)

    def _outside(self, weights: Value, begin: Value, end: Value, bias: Value) -> Value:
        """The bias with the zero point for every tap of kernel rows [begin, end)."""
        g, dsp, builder = self._geometry, self.dsp, self.dsp.builder
        width, before = g.kernel[1], builder.block
        with builder.if_then(builder.icmp_signed("<", begin, end)):
            start = dsp.at(weights, builder.mul(begin, I32(width)))
            with dsp.repeat(builder.mul(builder.sub(end, begin), I32(width)), [start, bias]) as carried:
                here, total = carried.values
                zero_point = I32(self.plan.layer.instruction.left_zero_point)
                carried.next = (dsp.at(here, 1), builder.add(total, builder.mul(dsp.byte(here), zero_point)))
            inside = builder.block
        phi = builder.phi(I32)
        phi.add_incoming(bias, before)
        phi.add_incoming(carried.results[1], inside)
        return phi

    def _columns(
        self,
        channel: _Channel,
        y: Value,
        out: Value,
        source: Value,
        bias: Value,
        first: int | Value,
        rows: int | Value,
        straight: bool,
    ) -> None:
        """All columns of a row. `source`: the image row under kernel row `first`, at the column of the first output's first tap but for
        the padding; `rows` kernel rows from there on."""
        g, dsp, builder = self._geometry, self.dsp, self.dsp.builder
        weights = dsp.at(channel.table, self.plan.weights_at)
        if not isinstance(first, int):
            weights = dsp.at(weights, builder.mul(first, I32(g.kernel[1])))
        pixel, column = self.plan.layer.out.pixel * self.output.nbytes, g.stride[1] * g.input[3]

        def alike(block: tuple[int, int]) -> tuple[bool, object]:
            """Neighbouring blocks of one kind are a loop; one at the border is alone."""
            inside = self.plan.is_inside(*block)
            return (inside, block[1] if inside else block)

        for (inside, _), run in groupby(self.plan.blocks, alike):
            blocks = list(run)
            start, size = blocks[0]
            begin = [dsp.at(source, start * column - g.pad_left * g.input[3]), dsp.at(out, start * pixel)]
            # A loop even where it has one turn: LLVM would mix the instructions of neighbouring blocks, and spill.
            turns = len(blocks) if len(self.plan.blocks) == 1 else I32(len(blocks))
            with dsp.repeat(turns, [*begin, I32(start)]) as carried:
                here, there, x = carried.values
                missing = None if inside else start
                sums = self._sums(here, weights, [bias] * size, rows, straight, missing)
                self._finish(channel, sums, there, y, x)
                carried.next = (dsp.at(here, size * column), dsp.at(there, size * pixel), builder.add(x, I32(size)))

    def _sums(
        self, source: Value, weights: Value, sums: list[Value], rows: int | Value, straight: bool, missing: int | None
    ) -> list[Value]:
        """The sums of a block over `rows` kernel rows. missing: None where all columns exist, else the block's first column."""
        g, dsp = self._geometry, self.dsp
        row_nbytes = g.dilation[0] * g.input[2] * g.input[3]
        if straight:
            for row in range(g.kernel[0]):
                sums = self._kernel_row(dsp.at(source, row * row_nbytes), weights, row * g.kernel[1], sums, missing)
            return sums
        if not isinstance(rows, int):
            return self._some_rows(source, weights, sums, rows, missing)
        with dsp.repeat(rows, [source, weights, *sums]) as carried:
            here, there, *values = carried.values
            values = self._kernel_row(here, there, 0, values, missing)
            carried.next = (dsp.at(here, row_nbytes), dsp.at(there, g.kernel[1]), *values)
        return list(carried.results[2:])

    def _some_rows(self, source: Value, weights: Value, sums: list[Value], rows: Value, missing: int | None) -> list[Value]:
        """As many rows as there are; maybe none."""
        g, dsp, builder = self._geometry, self.dsp, self.dsp.builder
        row_nbytes, before = g.dilation[0] * g.input[2] * g.input[3], builder.block
        with builder.if_then(builder.icmp_signed(">", rows, I32(0))):
            with dsp.repeat(rows, [source, weights, *sums]) as carried:
                here, there, *values = carried.values
                values = self._kernel_row(here, there, 0, values, missing)
                carried.next = (dsp.at(here, row_nbytes), dsp.at(there, g.kernel[1]), *values)
            inside = builder.block
        merged: list[Value] = []
        for start, result in zip(sums, carried.results[2:], strict=True):
            phi = builder.phi(I32)
            phi.add_incoming(start, before)
            phi.add_incoming(result, inside)
            merged.append(phi)
        return merged

    def _kernel_row(self, source: Value, weights: Value, at: int, sums: Sequence[Value], missing: int | None) -> list[Value]:
        """Add one kernel row: byte by byte, each to all sums that it belongs to."""
        g, builder = self._geometry, self.dsp.builder
        found = list(sums)
        for segment in self.plan.segments:
            factors = {tap: self._byte(weights, at + tap) for tap in segment}
            uses: dict[int, list[tuple[int, int]]] = {}
            for x in range(len(sums)):
                for tap in segment:
                    uses.setdefault(x * g.stride[1] + tap * g.dilation[1], []).append((x, tap))
            for position in sorted(uses):
                exists = missing is None or 0 <= missing * g.stride[1] - g.pad_left + position < g.input[2]
                value = self._byte(source, position * g.input[3]) if exists else I32(self.plan.layer.instruction.left_zero_point)
                for x, tap in uses[position]:
                    found[x] = builder.add(found[x], builder.mul(value, factors[tap]))
        return found

    def _byte(self, pointer: Value, offset: int) -> Value:
        """LDRSB that keeps its place (volatile): LLVM would gather the loads of a border block and spill what it can't hold."""
        dsp = self.dsp
        return dsp.builder.sext(dsp.volatile_load(dsp.at(pointer, offset), I8, 1), I32)

    def _finish(self, channel: _Channel, sums: Sequence[Value], out: Value, y: Value, x: Value) -> None:
        """Requantise and store."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        words = dsp.words(channel.table, 4, constant_count(plan.form))
        for number, acc in enumerate(sums):
            value = self.place.requantise(dsp, acc, False, words)
            address = dsp.at(out, number * plan.layer.out.pixel * self.output.nbytes)
            axes = {} if self.output.rest is None else {**channel.axes, 1: y, 2: builder.add(x, I32(number))}
            self.output.store([(address, value, axes)])
