"""Depthwise convolutions in few bytes: one code for layers of all sizes and strides, six bytes a channel beside its weights.

Enters: a depthwise layer. Leaves: an `Implementation`, or the sentence why not.
Invariant: every output element is computed once, from inputs read before it is stored.

As in `depthwise.py`, channel by channel: the rows that an output row reads are gathered column by column, two by two as int16, then
multiplied. Sizes come from the table. A row outside the image is read from one byte that holds the zero point, again and again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aot.backends.cmsis_nn.dsp.channels import centre_of
from aot.backends.cmsis_nn.dsp.columns import Columns
from aot.backends.cmsis_nn.dsp.compact import NBYTES, Channel, Compact, Numbers, compact, layer_numbers, rounding, words_of
from aot.backends.cmsis_nn.dsp.ending import Place
from aot.backends.cmsis_nn.shared import Frame, digest, emit_body
from aot.backends.layers.operands import Layer, stage_of
from aot.graph.ir import DType
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I16, I32, Value
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.program import Buffer

_ROWS = 8  # of a strip, at most
_COLUMN_NBYTES = 2 * _ROWS  # from a gathered column to the next
_MOST_TAPS = 25  # of a kernel: each is code of its own
_CONSTANTS = 4  # words of a channel before its unpacked weights, which begin at an even one
_CODE_NBYTES, _TAP_NBYTES = 410, 21


@dataclass(frozen=True)
class _Plan:
    """All decisions for one layer. table: numbers, then for each channel its six bytes and its weights, column by column."""

    layer: Layer
    columns: Columns
    found: Compact
    numbers: Numbers
    table: np.ndarray

    @property
    def code(self) -> tuple[object, ...]:
        """All that the code depends on."""
        return "depthwise", self.layer.geometry.kernel, self.found.low, Place.of(self.found.form, 0, 1).code

    @property
    def record_nbytes(self) -> int:
        return NBYTES + int(np.prod(self.layer.geometry.kernel))

    @property
    def words(self) -> int:
        """Unpacked words of a kernel's column."""
        return (self.layer.geometry.kernel[0] + 1) // 2

    @property
    def cost(self) -> Cost:
        g, words = self.layer.geometry, self.words
        height, width, each = g.output[1], g.output[2], g.multiplier
        strips = -(-height // self.numbers.values["strip"])
        gathered = (height - strips) * g.stride[0] + strips * g.kernel[0]
        output = g.kernel[1] * (-(-words // 2) + 2 * words) + 7.7
        unpacked = 20 + g.kernel[1] * (2 * g.kernel[0] + 1)
        rows = gathered * (18 + 5 * len(self.columns.inside)) + each * height * (width * output + 21)
        instructions = g.input[3] * (rows + strips * (30 + each * 18) + unpacked * each * (strips if each > 1 else 1) + 20)
        nbytes = _CODE_NBYTES + _TAP_NBYTES * g.kernel[0] * g.kernel[1]
        return Cost(int(instructions) + 16 * self.columns.count + 40, 0, ((f"body {digest(self.code)}", nbytes),))


def compact_depthwise(layer: Layer, reads: tuple[str, ...]) -> Implementation | str:
    """The layer with one code for all sizes, or why it can't have it."""
    plan = _plan(layer)
    if isinstance(plan, str):
        return plan
    table = Buffer(f"{layer.instruction.out}.packed", DType.INT32, plan.table.shape, "constant", data=plan.table, align=4)
    return Implementation(
        kernel=f"depthwise {layer.geometry.kernel[0]}x{layer.geometry.kernel[1]}",
        instruction=layer.instruction,
        reads=reads,
        writes=(layer.instruction.out,),
        constants=(table,),
        emit=lambda function: _emit(function, plan, table.name),
        scratch_nbytes=_COLUMN_NBYTES * plan.columns.count,
        rows=Rows(layer.geometry.output[1], 1),
        style="ordered",
        cost=plan.cost,
        is_frugal=True,
        notes=(str(plan.found.form), "one code for all sizes"),
        variant="one code for all sizes",
    )


def _plan(layer: Layer) -> _Plan | str:
    g = layer.geometry
    if layer.dtype is not DType.INT8:
        return f"{layer.dtype} activations: it is for int8"
    if layer.split.rest is not None:
        return "something is fused behind it, which is code of its own"
    if g.input[0] != 1:
        return "several images"
    if g.kernel[0] > _ROWS or g.kernel[0] * g.kernel[1] > _MOST_TAPS or g.dilation != (1, 1):
        return f"a {g.kernel[0]}x{g.kernel[1]} kernel, dilated by {g.dilation}: it is for small ones without gaps"
    columns = Columns(g, layer.instruction.left_zero_point, g.kernel[0], 1)
    if not columns.inside or columns.inside.start != g.pad_left:
        return "its first column lies outside the image"
    if centre_of(layer.weights) != 0:
        return "weights of nine bits"
    stage = stage_of(layer, range(len(layer.bias)))
    found = compact(stage, layer.folded_bias)
    if found is None:
        return "its requantisation needs more than six bytes a channel"
    numbers = _numbers(layer, columns, layer_numbers(stage, found))
    if not numbers.fit:
        return "sizes beyond 16 bits"
    records = np.zeros((len(layer.bias), NBYTES + g.kernel[0] * g.kernel[1]), np.uint8)
    records[:, :4] = found.words.astype("<u4").view(np.uint8).reshape(-1, 4)
    records[:, 4:NBYTES] = found.halves.astype("<i2").view(np.uint8).reshape(-1, 2)
    weights = layer.weights.swapaxes(1, 2).reshape(len(layer.bias), -1)
    records[:, NBYTES:] = weights.astype(np.int8).view(np.uint8)
    return _Plan(layer, columns, found, numbers, words_of(numbers.data + records.tobytes()))


def _numbers(layer: Layer, columns: Columns, requantised: dict[str, int]) -> Numbers:
    g = layer.geometry
    return Numbers(
        **requantised,
        zero=layer.instruction.left_zero_point,
        offset=layer.out.offset,
        out_row=layer.out.row,
        out_pixel=layer.out.pixel,
        depth=g.input[3],
        multiplier=g.multiplier,
        in_row=g.input[2] * g.input[3],
        height=g.input[1],
        width=g.output[2],
        pad_top=g.pad_top,
        stride=g.stride[0],
        step=_COLUMN_NBYTES * g.stride[1],
        left=_COLUMN_NBYTES * g.pad_left,
        inside=len(columns.inside),
        words=_COLUMN_NBYTES // 4 * columns.count,
        strip=(_ROWS - g.kernel[0]) // g.stride[0] + 1,
    )


def _emit(function: KernelFunction, plan: _Plan, table: str) -> None:
    emit_body(function, plan.layer, table, lambda frame: _Emitter(frame, plan).emit(), "depthwise", plan.code)


class _Emitter:
    """Emits the body. near: of the channel at hand multiplier, offset and bias, then unpacked weights."""

    def __init__(self, frame: Frame, plan: _Plan) -> None:
        self.frame, self.plan, self.dsp = frame, plan, frame.dsp
        self.place = Place.of(plan.found.form, 0, 1)
        self.near = self.dsp.stack(_CONSTANTS + plan.words * plan.layer.geometry.kernel[1])

    def _read(self, name: str) -> Value:
        return self.plan.numbers.read(self.dsp, self.frame.table, name)

    def _address(self, name: str) -> Value:
        return self.plan.numbers.address(self.dsp, self.frame.table, name)

    def emit(self) -> None:
        dsp, builder, frame = self.dsp, self.dsp.builder, self.frame
        self._pad()
        first = builder.add(self._read("offset"), builder.mul(frame.y0, self._read("out_row")))
        records = dsp.at(frame.table, self.plan.numbers.nbytes)
        with dsp.repeat(self._read("depth"), [records, frame.source, dsp.at(frame.target, first)]) as channels:
            records, source, target = channels.values
            with dsp.until(frame.y0, frame.y1, [target]) as strips:
                y, (out,) = strips.index, strips.values
                behind = builder.add(y, self._read("strip"))
                behind = builder.select(builder.icmp_signed("<", behind, frame.y1), behind, frame.y1)
                count = builder.sub(behind, y)
                self._gather(source, y, count)
                with dsp.repeat(self._read("multiplier"), [records, out]) as many:
                    record, here = many.values
                    self._unpack_once(record, y)
                    self._rows(here, count)
                    many.next = (dsp.at(record, self.plan.record_nbytes), dsp.at(here, 1))
                strips.next = (behind, dsp.at(out, builder.mul(count, self._read("out_row"))))
            outputs = self._read("multiplier")
            forward = builder.mul(outputs, I32(self.plan.record_nbytes))
            channels.next = (dsp.at(records, forward), dsp.at(source, 1), dsp.at(target, outputs))

    def _pad(self) -> None:
        """Fill scratch with the zero point; columns outside the image stay so."""
        dsp, zero = self.dsp, self._read("zero")
        pair = dsp.pack(zero, zero)
        with dsp.repeat(self._read("words"), [self.frame.scratch]) as carried:
            dsp.store_word(pair, carried.values[0])
            carried.next = (dsp.at(carried.values[0], 4),)

    def _gather(self, source: Value, y: Value, count: Value) -> None:
        """The rows that `count` output rows from y on read. `source`: the channel's byte of the image's first pixel."""
        dsp, builder = self.dsp, self.dsp.builder
        stride = self._read("stride")
        first = builder.sub(builder.mul(y, stride), self._read("pad_top"))
        rows = builder.add(builder.mul(builder.sub(count, I32(1)), stride), I32(self.plan.layer.geometry.kernel[0]))
        place = dsp.at(self.frame.scratch, self._read("left"))
        here, nothing = dsp.at(source, builder.mul(first, self._read("in_row"))), self._address("zero")
        with dsp.repeat(rows, [first, here, place]) as carried:
            row, here, place = carried.values
            is_inside = builder.icmp_unsigned("<", row, self._read("height"))
            step = builder.select(is_inside, self._read("depth"), I32(0))
            with dsp.repeat(self._read("inside"), [builder.select(is_inside, here, nothing), place]) as columns:
                dsp.store_half(dsp.byte(columns.values[0]), columns.values[1])
                columns.next = (dsp.at(columns.values[0], step), dsp.at(columns.values[1], _COLUMN_NBYTES))
            carried.next = (builder.add(row, I32(1)), dsp.at(here, self._read("in_row")), dsp.at(place, 2))

    def _unpack_once(self, record: Value, y: Value) -> None:
        """Unpack a channel, unless it is the only one of its input channel and was unpacked for the row before."""
        builder = self.dsp.builder
        only = builder.icmp_signed("==", self._read("multiplier"), I32(1))
        with builder.if_then(builder.not_(builder.and_(only, builder.icmp_signed("!=", y, self.frame.y0)))):
            self._unpack(record)

    def _unpack(self, record: Value) -> None:
        """A channel's numbers and weights to the stack: all times 256, which is what the requantisation wants."""
        dsp, builder, (height, width) = self.dsp, self.dsp.builder, self.plan.layer.geometry.kernel
        words = self.plan.words
        for column in range(width):
            first = NBYTES + column * height
            rows = [dsp.unsigned_byte(record, first + row) for row in range(height)]
            pairs = [builder.or_(rows[n], builder.shl(rows[n + 1], I32(16))) for n in range(0, height - 1, 2)]
            pairs += [rows[-1]] if height % 2 else []
            dsp.store_words([builder.shl(pair, I32(8)) for pair in pairs], self.near, 4 * (_CONSTANTS + words * column))
        half = builder.sext(dsp.volatile_load(dsp.at(record, 4), I16, 1), I32)
        channel = Channel(
            dsp, dsp.any_word(record), half, rounding(dsp, self._read("odd"), self._read("right")), self.plan.found.low
        )
        dsp.store_pair(channel.multiplier, channel.offset, self.near)
        dsp.store_word(builder.shl(channel.bias, I32(8)), self.near, 8)

    def _rows(self, out: Value, count: Value) -> None:
        """The strip's output rows, of the channel at hand."""
        dsp = self.dsp
        with dsp.repeat(count, [self.frame.scratch, out]) as carried:
            columns, here = carried.values
            self._row(columns, here)
            forward = dsp.builder.shl(self._read("stride"), I32(1))
            carried.next = (dsp.at(columns, forward), dsp.at(here, self._read("out_row")))

    def _row(self, columns: Value, out: Value) -> None:
        """An output row, column by column."""
        dsp, (height, width) = self.dsp, self.plan.layer.geometry.kernel
        step, pixel, right = self._read("step"), self._read("out_pixel"), self._read("right")
        multiplier, offset = dsp.pair(self.near)
        bias, words = dsp.word(self.near, 8), self.plan.words
        with dsp.repeat(self._read("width"), [columns, out]) as carried:
            columns, here = carried.values
            acc = bias
            for tap in range(width):
                weights = dsp.words(self.near, 4 * (_CONSTANTS + words * tap), words)
                for number, factor in enumerate(weights):
                    at = _COLUMN_NBYTES * tap + 4 * number
                    acc = dsp.smlad(dsp.any_word(columns, at) if 2 * number + 1 < height else dsp.half(columns, at), factor, acc)
            dsp.store_byte(self.place.requantise(dsp, acc, True, [multiplier, offset, right]), here)
            carried.next = (dsp.at(columns, step), dsp.at(here, pixel))
