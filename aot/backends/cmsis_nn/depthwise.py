"""Depthwise convolutions: channel by channel, strip by strip; the columns of a strip are gathered once, then multiplied.

Enters: contractions. Leaves: `Implementation`s, or the sentence why not.
Invariant: every output element is computed once, from inputs read before it is stored.

3 rows, stride 1 (`Paired`): two output rows at a time from four input rows, two columns at a time. With columns P01 = (r0, r1), P23 = (r2, r3)
and weights W01 = (w0, w1), W12 = (w1, w2), the upper row is SMLAD(P01, W01) + SMLABT(P23, W12), the lower one SMLATB(P01, W01) +
SMLAD(P23, W12): six multiplications for an output instead of nine. Any other kernel (`Single`): one output row at a time, SMLAD on pairs of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from aot.backends.cmsis_nn.columns import Columns
from aot.backends.cmsis_nn.convolution import needed_rows
from aot.backends.cmsis_nn.dsp import Dsp
from aot.backends.cmsis_nn.ending import Output, Place, constant_count, constants_of_form, stage_of
from aot.backends.cmsis_nn.fused import operands_of
from aot.backends.cmsis_nn.operands import Layer, read_layer
from aot.backends.cmsis_nn.requantise import Form, solve
from aot.backends.cmsis_nn.shared import Frame, emit_body
from aot.graph.ir import DType
from aot.graph.primitive import Primitive
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, Value
from aot.lower.implementation import Implementation, Rows
from aot.lower.inplace import elementwise_overwrites
from aot.lower.program import Buffer, Program
from aot.target import Target

_STRAIGHT_TAPS = 24  # SMLAD for each output that are emitted without a loop
_MOST_ROWS = 64


def claim_depthwise(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Depthwise convolutions of any multiplier, kernel, stride, dilation and padding."""
    layer = read_layer(program, instruction, target, "depthwise")
    if isinstance(layer, str):
        return layer
    if layer.geometry.kernel[0] > _MOST_ROWS:
        return f"a kernel of {layer.geometry.kernel[0]} rows (at most {_MOST_ROWS})"
    plan = _plan(layer)
    table = Buffer(f"{instruction.out}.packed", DType.INT32, plan.table.shape, "constant", data=plan.table, align=4)
    reads, constants = operands_of(program, layer.instruction, layer.split.rest)
    kernel = f"depthwise {layer.geometry.kernel[0]}x{layer.geometry.kernel[1]}"
    return Implementation(
        kernel=kernel,
        instruction=instruction,
        reads=reads,
        writes=(layer.instruction.out,),
        constants=(table, *constants),
        emit=lambda function: _emit(function, plan, table.name),
        scratch_nbytes=plan.columns.nbytes + (0 if plan.is_paired else 4 * plan.weight_words),
        overwrites=elementwise_overwrites(program, instruction),
        rows=Rows(layer.geometry.output[1], 2 if plan.is_paired else 1, lambda y0, y1: needed_rows(layer, y0, y1)),
        style="ordered",
        notes=(str(plan.form), "two rows at a time" if plan.is_paired else "one row at a time"),
    )


@dataclass(frozen=True)
class _Plan:
    """All decisions for one layer. A channel's table: bias, requantisation constants, packed weights.

    Packed weights, for each kernel column: paired, one word (w0, w1, w1, w2), whose even and odd bytes are W01 and W12; single, a word for
    every four rows (w0, w2, w1, w3), whose even and odd bytes are two words of weights.
    """

    layer: Layer
    is_paired: bool
    columns: Columns
    form: Form
    table: np.ndarray

    @property
    def code(self) -> tuple | None:
        """All that the code depends on; None where something is fused behind, which is code of its own."""
        layer = self.layer
        if layer.split.rest is not None:
            return None
        return layer.geometry, layer.out, self.is_paired, self.columns, Place.of(self.form, 0, 1).code

    @property
    def constants(self) -> int:
        """Words of bias and constants."""
        return 1 + constant_count(self.form)

    @property
    def packed_words(self) -> int:
        """Words of a channel's packed weights."""
        g = self.layer.geometry
        return g.kernel[1] * (1 if self.is_paired else -(-g.kernel[0] // 4))

    @property
    def weight_words(self) -> int:
        """Words of a channel's weights when unpacked."""
        return 2 * self.packed_words

    @property
    def column_weights(self) -> int:
        """Unpacked words of a kernel column."""
        return self.weight_words // self.layer.geometry.kernel[1]

    @property
    def channel_nbytes(self) -> int:
        return 4 * (self.constants + self.packed_words)


def _plan(layer: Layer) -> _Plan:
    g = layer.geometry
    paired = g.kernel[0] == 3 and g.kernel[1] <= 3 and g.stride[0] == 1 and g.dilation[0] == 1 and g.output[1] > 1
    columns = Columns(g, layer.instruction.left_zero_point, 4 if paired else g.kernel[0], 2 if paired else 1)
    count = len(layer.bias)
    form = solve(stage_of(layer, range(count)), (np.zeros(count, np.int64), np.full(count, 8)))
    bias = (layer.folded_bias + form.delta)[:, None]
    constants = np.array([constants_of_form(form, n) for n in range(count)], np.int64)
    stream = np.concatenate([bias, constants, _packed(layer.weights, paired)], 1)
    table = (stream & 0xFFFFFFFF).astype(np.uint32).view(np.int32).reshape(-1)
    return _Plan(layer, paired, columns, form, table)


def _packed(weights: np.ndarray, paired: bool) -> np.ndarray:
    """(channels, words) from (channels, KH, KW)."""
    if paired:
        quads = weights[:, [0, 1, 1, 2], :]
    else:
        padded = np.pad(weights, ((0, 0), (0, -weights.shape[1] % 4), (0, 0)))
        quads = padded.reshape(len(padded), -1, 4, weights.shape[2])[:, :, [0, 2, 1, 3], :]
    by_column = np.moveaxis(quads, -1, 1).reshape(len(weights), -1, 4)
    return (by_column & 0xFF) @ (1 << np.array([0, 8, 16, 24]))


def _emit(function: KernelFunction, plan: _Plan, table: str) -> None:
    instruction = plan.layer.instruction
    names = (instruction.left.buffer, instruction.out, table)
    emit_body(function, names, lambda frame: _Emitter(frame, plan).emit(), "depthwise", plan.code)


@dataclass
class _Emitter:
    """Emits one layer's body."""

    frame: Frame
    plan: _Plan
    dsp: Dsp = field(init=False)
    output: Output = field(init=False)
    place: Place = field(init=False)
    local: Value = field(init=False)  # bias and constants of the channel at hand; paired: its weights too

    def __post_init__(self) -> None:
        self.dsp = self.frame.dsp
        self.output = Output(self.dsp, self.plan.layer)
        self.place = Place.of(self.plan.form, 0, 1)
        self.local = self.dsp.stack(self._weights_at + (self.plan.weight_words if self.plan.is_paired else 0))

    @property
    def _weights_at(self) -> int:
        """Word of `local` at which weights begin: even, for LDRD."""
        return self.plan.constants + self.plan.constants % 2

    @property
    def _wants_axes(self) -> bool:
        return self.output.rest is not None

    def emit(self) -> None:
        plan, dsp = self.plan, self.dsp
        layer = plan.layer
        images, height, width, depth = layer.geometry.input
        plan.columns.pad(dsp, self.frame.scratch)
        target = dsp.at(self.frame.target, layer.out.offset * self.output.nbytes)
        first = dsp.at(target, dsp.builder.mul(self.frame.y0, I32(layer.out.row * self.output.nbytes)))
        with dsp.repeat(images, [self.frame.source, first]) as carried:
            number = I32(0) if images == 1 else dsp.builder.sub(I32(images), carried.index)
            self._image(*carried.values, number)
            forward = (height * width * depth, layer.out.image * self.output.nbytes)
            carried.next = tuple(dsp.at(pointer, nbytes) for pointer, nbytes in zip(carried.values, forward))

    def _image(self, source: Value, out: Value, number: Value) -> None:
        """Loop over input channels."""
        plan, dsp = self.plan, self.dsp
        depth, each = plan.layer.geometry.input[3], plan.layer.geometry.multiplier
        table = self.frame.table
        with dsp.repeat(depth, [source, table, out]) as carried:
            channel = dsp.builder.sub(I32(depth), carried.index) if depth > 1 else I32(0)
            axes = {0: number, 3: channel}
            if each == 1:
                self._unpack(carried.values[1])
            self._channel(*carried.values, axes)
            forward = (1, each * plan.channel_nbytes, each * self.output.nbytes)
            carried.next = tuple(dsp.at(pointer, nbytes) for pointer, nbytes in zip(carried.values, forward))

    def _channel(self, source: Value, table: Value, out: Value, axes: dict[int, Value]) -> None:
        """Loop over the strips of an input channel."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        step, y0, y1 = plan.columns.step, self.frame.y0, self.frame.y1
        strips = builder.sub(y1, y0)
        if step == 2:
            strips = builder.lshr(builder.add(strips, I32(1)), I32(1))
        with dsp.repeat(strips, [y0, out]) as carried:
            y, here = carried.values
            plan.columns.gather(dsp, source, plan.columns.top(dsp, y), self.frame.scratch)
            each = plan.layer.geometry.multiplier
            if each == 1:
                self._strip(here, y, axes)
            else:
                with dsp.repeat(each, [table, here]) as many:
                    self._unpack(many.values[0])
                    self._strip(many.values[1], y, {**axes, 4: builder.sub(I32(each), many.index)})
                    many.next = (dsp.at(many.values[0], plan.channel_nbytes), dsp.at(many.values[1], self.output.nbytes))
            forward = dsp.at(here, step * plan.layer.out.row * self.output.nbytes)
            carried.next = (builder.add(y, I32(step)), forward)

    def _unpack(self, table: Value) -> None:
        """Bring a channel's table near: bias and constants to the stack, weights unpacked to the stack or to scratch."""
        plan, dsp = self.plan, self.dsp
        for number, word in enumerate(dsp.words(table, 0, plan.constants)):
            dsp.store_word(word, self.local, 4 * number)
        packed = dsp.at(table, 4 * plan.constants)
        if plan.is_paired:
            self._unpack_words(packed, dsp.at(self.local, 4 * self._weights_at), plan.packed_words)
            return
        into = dsp.at(self.frame.scratch, plan.columns.nbytes)
        straight = plan.packed_words if plan.packed_words <= 6 else 1
        with dsp.repeat(plan.packed_words // straight, [packed, into]) as carried:
            self._unpack_words(*carried.values, straight)
            carried.next = (dsp.at(carried.values[0], 4 * straight), dsp.at(carried.values[1], 8 * straight))

    def _unpack_words(self, packed: Value, into: Value, count: int) -> None:
        dsp = self.dsp
        for number in range(count):
            word = dsp.word(packed, 4 * number)
            dsp.store_pair(dsp.sxtb16(word), dsp.sxtb16_odd(word), into, 8 * number)

    def _strip(self, out: Value, y: Value, axes: dict[int, Value]) -> None:
        """The output row or rows of the gathered strip."""
        builder, height = self.dsp.builder, self.plan.layer.geometry.output[1]
        if not self.plan.is_paired:
            self._row(out, y, axes, 1)
        elif height % 2 == 0:
            self._row(out, y, axes, 2)
        else:
            both = builder.icmp_signed("<", builder.add(y, I32(1)), self.frame.y1)
            with builder.if_else(both) as (then, otherwise):
                with then:
                    self._row(out, y, axes, 2)
                with otherwise:
                    self._row(out, y, axes, 1)

    def _row(self, out: Value, y: Value, axes: dict[int, Value], rows: int) -> None:
        """`rows` output rows, some columns at a time."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        g, pixel = plan.layer.geometry, plan.layer.out.pixel * self.output.nbytes
        width, at_once = g.output[2], self._at_once(rows)
        column_nbytes = 4 * plan.columns.words * g.stride[1]
        weights = self._weights() if plan.is_paired else []
        start = [self.frame.scratch, out] + ([I32(0)] if self._wants_axes else [])
        for count, turns in ((at_once, width // at_once), (1, width % at_once)):
            if not turns:
                continue
            with dsp.repeat(turns, start) as carried:
                columns, here, *x = carried.values
                sums = self._pairs(columns, weights, count, rows) if plan.is_paired else self._singles(columns, count)
                self._finish(sums, here, y, x[0] if x else None, axes, rows)
                forward = [builder.add(x[0], I32(count))] if x else []
                carried.next = (dsp.at(columns, count * column_nbytes), dsp.at(here, count * pixel), *forward)
            start = list(carried.results)

    def _at_once(self, rows: int) -> int:
        """Columns in one turn: two of two rows, or of a single row the most that leave no rest."""
        width = self.plan.layer.geometry.output[2]
        if self.plan.is_paired:
            return min(2, width)
        return next((count for count in (4, 3) if width % count == 0), min(4, width))

    def _weights(self) -> list[tuple[Value, Value]]:
        """W01 and W12 of each kernel column, in registers."""
        at = 4 * self._weights_at
        return [self.dsp.pair(self.local, at + 8 * number) for number in range(self.plan.layer.geometry.kernel[1])]

    def _pairs(self, columns: Value, weights: list[tuple[Value, Value]], count: int, rows: int) -> list[Value]:
        """Sums of `count` columns by `rows` rows: each gathered column is loaded once and used by all outputs that it reaches."""
        dsp, g = self.dsp, self.plan.layer.geometry
        uses: dict[int, list[tuple[int, int]]] = {}
        for x in range(count):
            for tap in range(g.kernel[1]):
                uses.setdefault(x * g.stride[1] + tap * g.dilation[1], []).append((x, tap))
        bias = dsp.word(self.local)
        sums = [bias] * (count * rows)
        for column in sorted(uses):
            upper, lower = dsp.pair(columns, 8 * column)
            for x, tap in uses[column]:
                w01, w12 = weights[tap]
                sums[x * rows] = dsp.smlabt(lower, w12, dsp.smlad(upper, w01, sums[x * rows]))
                if rows == 2:
                    sums[x * rows + 1] = dsp.smlad(lower, w12, dsp.smlatb(upper, w01, sums[x * rows + 1]))
        return sums

    def _singles(self, columns: Value, count: int) -> list[Value]:
        """Sums of `count` columns of one row; weights come from scratch, kernel column by kernel column."""
        plan, dsp, g = self.plan, self.dsp, self.plan.layer.geometry
        weights = dsp.at(self.frame.scratch, plan.columns.nbytes)
        sums = [dsp.word(self.local)] * count
        words = plan.columns.words
        if words * g.kernel[1] <= _STRAIGHT_TAPS:
            for tap in range(g.kernel[1]):
                self._tap(columns, 4 * words * tap * g.dilation[1], weights, 4 * plan.column_weights * tap, sums)
            return sums
        with dsp.repeat(g.kernel[1], [columns, weights, *sums]) as carried:
            here, there, *sums = carried.values
            self._tap(here, 0, there, 0, sums)
            carried.next = (dsp.at(here, 4 * words * g.dilation[1]), dsp.at(there, 4 * plan.column_weights), *sums)
        return list(carried.results[2:])

    def _tap(self, columns: Value, offset: int, weights: Value, at: int, sums: list[Value]) -> None:
        """One kernel column for each output, two words of rows at a time."""
        dsp, words = self.dsp, self.plan.columns.words
        step = 4 * words * self.plan.layer.geometry.stride[1]
        for first in range(0, words, 2):
            count = min(2, words - first)
            factors = dsp.words(weights, at + 4 * first, count)
            for x in range(len(sums)):
                for factor, pixel in zip(factors, dsp.words(columns, offset + x * step + 4 * first, count), strict=True):
                    sums[x] = dsp.smlad(factor, pixel, sums[x])

    def _finish(self, sums: list[Value], out: Value, y: Value, x: Value | None, axes: dict[int, Value], rows: int) -> None:
        """Requantise and store."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        nbytes = self.output.nbytes
        words = dsp.words(dsp.at(self.local, 4), 0, constant_count(plan.form))
        for number, acc in enumerate(sums):
            column, row = divmod(number, rows)
            value = self.place.requantise(dsp, acc, False, words)
            address = dsp.at(out, (column * plan.layer.out.pixel + row * plan.layer.out.row) * nbytes)
            here = axes if x is None else {**axes, 1: builder.add(y, I32(row)), 2: builder.add(x, I32(column))}
            self.output.store([(address, value, here)])
