"""Depthwise convolutions: channel by channel, strip by strip; the columns of a strip are gathered once, then multiplied.

Enters: contractions. Leaves: `Implementation`s, or the sentence why not.
Invariant: every output element is computed once, from inputs read before it is stored.

3 rows, stride 1 (`Paired`): two output rows at a time from four input rows, three columns at a time. With columns P01 = (r0, r1),
P23 = (r2, r3) and weights W01 = (w0, w1), W12 = (w1, w2), the upper row is SMLAD(P01, W01) + SMLABT(P23, W12), the lower one
SMLATB(P01, W01) + SMLAD(P23, W12): six multiplications for an output instead of nine. Any other kernel (`Single`): one output row
at a time, SMLAD on pairs of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from aot.backends.cmsis_nn.dsp.channels import Channels
from aot.backends.cmsis_nn.dsp.columns import Columns
from aot.backends.cmsis_nn.dsp.compact_depthwise import compact_depthwise
from aot.backends.cmsis_nn.dsp.convolution import MOST_ROWS, TAKES, is_for_columns
from aot.backends.cmsis_nn.dsp.costs import fused, requantised
from aot.backends.cmsis_nn.dsp.sliding import sliding_depthwise
from aot.backends.cmsis_nn.shared import Body, Frame, digest, emit_body
from aot.backends.layers.fused import operands_of, overlaps, scatterable, scatterable_output, skews
from aot.backends.layers.operands import Layer, read_layer
from aot.backends.layers.skews import channel_by_channel
from aot.graph.primitive import Primitive
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, Value
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.inplace import elementwise_overwrites
from aot.lower.program import Program
from aot.target import Target

_NBYTES = 3.8  # of an instruction, on average
_STRAIGHT_TAPS = 24  # SMLAD for each output that are emitted without a loop
_STRAIGHT_WORDS = 9  # unpacked weights of a channel that are unpacked without a loop over kernel columns


def claim_depthwise(program: Program, instruction: Primitive, target: Target) -> tuple[Implementation, ...] | str:
    """Depthwise convolutions of any multiplier, kernel, stride, dilation and padding: strip by strip; where that can be, sliding, or in
    few bytes."""
    layer = _read(program, instruction, target)
    if isinstance(layer, str):
        return layer
    if layer.geometry.kernel[0] > MOST_ROWS:
        return f"a kernel of {layer.geometry.kernel[0]} rows (at most {MOST_ROWS})"
    if not layer.fits_int32:
        return "sums of more than 32 bits"
    channels = Channels.of(layer)
    if isinstance(channels, str):
        return channels
    plan = _plan(layer, channels)
    table = plan.channels.buffer(layer.instruction.out)
    reads, constants = operands_of(program, layer.instruction, layer.split.rest)
    kernel = f"depthwise {layer.geometry.kernel[0]}x{layer.geometry.kernel[1]}"
    how = "two rows at a time" if plan.is_paired else "one row at a time"
    usual = Implementation(
        kernel=kernel,
        instruction=instruction,
        reads=reads,
        writes=(layer.instruction.out,),
        constants=(table, *constants),
        emit=lambda function: _emit(function, plan, table.name),
        scratch_nbytes=plan.columns.nbytes + (0 if plan.is_paired else 4 * plan.weight_words),
        overwrites=elementwise_overwrites(program, instruction),
        scatters=(*scatterable(program, layer), *scatterable_output(program, layer)),
        overlap=overlaps(program, layer, "same" if plan.is_congruent else None),
        skew=skews(program, layer, channel_by_channel(layer, plan.columns.step)),
        rows=Rows(layer.geometry.output[1], 2 if plan.is_paired else 1, images=layer.geometry.output[0]),
        style="ordered",
        cost=plan.cost,
        notes=(str(plan.channels.form), how),
        variant=how,
    )
    frugal = compact_depthwise(layer, reads)
    others = sliding_depthwise(program, layer, plan.channels, reads)
    return (usual, *others) if isinstance(frugal, str) else (usual, *others, frugal)


def _read(program: Program, instruction: Primitive, target: Target) -> Layer | str:
    """The layer; a convolution of one channel that is better off here is the depthwise layer of as many products for each input."""
    refusal = read_layer(program, instruction, target, "depthwise", "dsp", TAKES, nine_bits=True)
    if isinstance(refusal, Layer):
        return refusal
    layer = read_layer(program, instruction, target, "conv", "dsp", TAKES, nine_bits=True)
    if isinstance(layer, str) or not is_for_columns(layer):
        return refusal
    geometry = replace(layer.geometry, kind="depthwise", multiplier=len(layer.bias))
    return replace(layer, geometry=geometry, weights=layer.weights[..., 0])


@dataclass(frozen=True)
class _Plan:
    """All decisions for one layer."""

    layer: Layer
    is_paired: bool
    columns: Columns
    channels: Channels

    @property
    def code(self) -> tuple[object, ...] | None:
        """All that the code depends on; None where something is fused behind, which is code of its own."""
        layer = self.layer
        if layer.split.rest is not None:
            return None
        return layer.geometry, layer.out, self.is_paired, self.columns, self.channels.place.code, self.channels.centre

    @property
    def weight_words(self) -> int:
        """Words of a channel's weights when unpacked: W01 and W12 of each kernel column, or pairs of rows."""
        return self.column_weights * self.layer.geometry.kernel[1]

    @property
    def column_weights(self) -> int:
        """Unpacked words of a kernel column."""
        return 2 if self.is_paired else self.columns.words

    @property
    def at_once(self) -> int:
        """Output columns in one turn: three of two rows, or of a single row the most that leave no rest."""
        width = self.layer.geometry.output[2]
        if self.is_paired:
            return min(3, width)
        return next((count for count in (4, 3) if width % count == 0), min(4, width))

    @property
    def is_congruent(self) -> bool:
        """Whether an output lies where the input of its channel and column lay, if a step's only row does."""
        g = self.layer.geometry
        alike = g.stride[1] == 1 and g.input[2] == g.output[2] and g.multiplier == 1 and self.layer.out.pixel == g.input[3]
        return alike and not self.is_paired

    @property
    def cost(self) -> Cost:
        """What the layer is expected to take."""
        g, columns, height = self.layer.geometry, self.columns, self.layer.geometry.output[1]
        strips = [(columns.instructions(y) + 12, self._row(min(columns.step, height - y))) for y in range(0, height, columns.step)]
        unpacking = 14 + 1.5 * self.channels.constants + g.kernel[1] * (6 if self.is_paired else 8 + 3 * g.kernel[0])
        channel = 16 + unpacking * g.multiplier * (1 if g.multiplier == 1 else len(strips))
        channel += sum(gathering + g.multiplier * row for gathering, row in strips)
        unrolled = g.kernel[1] if self.weight_words <= _STRAIGHT_WORDS else 1
        code = 60 + unrolled * (6 if self.is_paired else 12) + columns.code_instructions + self._code(columns.step)
        code += self._code(1) if self.is_paired and height % 2 else 0
        own, body = int(_NBYTES * code), self.code
        instructions = int(g.input[0] * (g.input[3] * channel + 40))
        through_tables = 12 + 1.1 * g.output[2]
        again = int(g.input[3] * (16 + through_tables + (unpacking if g.multiplier == 1 else 0)) + 40)
        shared = () if body is None else ((f"body {digest(body)}", own),)
        return Cost(instructions, own if body is None else 0, shared, again)

    def _row(self, rows: int) -> float:
        """Instructions of `rows` output rows."""
        full, rest = divmod(self.layer.geometry.output[2], self.at_once)
        more = self._block(rest, rows) if self.is_paired else rest * self._block(1, rows)
        return full * (self._block(self.at_once, rows) + (4 if full > 1 else 0)) + more

    def _code(self, rows: int) -> float:
        """Instructions of the code for `rows` output rows."""
        rest = self.layer.geometry.output[2] % self.at_once
        short = 1 / self.layer.geometry.kernel[1] if self._is_long else 1
        return short * (self._block(self.at_once, rows) + self._block(rest if self.is_paired else min(rest, 1), rows))

    @property
    def _is_long(self) -> bool:
        """Whether there is a loop over kernel columns."""
        return not self.is_paired and self.columns.words * self.layer.geometry.kernel[1] > _STRAIGHT_TAPS

    def _block(self, count: int, rows: int) -> float:
        """Instructions of `count` output columns by `rows` rows."""
        if not count:
            return 0
        g, words = self.layer.geometry, self.columns.words
        ending = self.channels.constants / 2 + count * rows * (requantised(self.channels.form) + 1 + fused(self.layer))
        if self.is_paired:
            loads = 2 + (count - 1) * g.stride[1] + (g.kernel[1] - 1) * g.dilation[1] + g.kernel[1]
            return loads + 2 * g.kernel[1] * count * rows + ending + (8 if rows * count == 6 else 2)
        loads = -(-words // 2)
        return g.kernel[1] * (loads + count * (loads + words) + (6 if self._is_long else 0)) + ending + 1


def _plan(layer: Layer, channels: Channels) -> _Plan:
    g = layer.geometry
    paired = g.kernel[0] == 3 and g.kernel[1] <= 3 and g.stride[0] == 1 and g.dilation[0] == 1 and g.output[1] > 1
    columns = Columns(g, layer.instruction.left_zero_point, 4 if paired else g.kernel[0], 2 if paired else 1, layer.dtype.nbytes)
    return _Plan(layer, paired, columns, channels)


def _emit(function: KernelFunction, plan: _Plan, table: str) -> None:
    emit_body(function, plan.layer, table, lambda frame: _Emitter(frame, plan).emit(), "depthwise", plan.code)


class _Emitter(Body[_Plan]):
    """Emits one layer's body. local: bias and constants of the channel at hand; paired: its weights too. below: bytes from an output row
    to the next, where rows are scattered."""

    def __init__(self, frame: Frame, plan: _Plan) -> None:
        super().__init__(frame, plan)
        self.place = plan.channels.place
        self.local = self.dsp.stack(self._weights_at + (plan.weight_words if plan.is_paired else 0))
        self.below = self.dsp.stack(1) if plan.is_paired and frame.out.offsets is not None else None

    @property
    def _weights_at(self) -> int:
        """Word of `local` at which weights begin: even, for LDRD."""
        return self.plan.channels.constants + self.plan.channels.constants % 2

    @property
    def _wants_axes(self) -> bool:
        return self.output.rest is not None

    def emit(self) -> None:
        plan, dsp = self.plan, self.dsp
        layer = plan.layer
        plan.columns.pad(dsp, self.frame.scratch)
        target = dsp.at(self.frame.target, layer.out.offset * self.output.nbytes)
        if self.frame.out.offsets is None:
            target = dsp.at(target, dsp.builder.mul(self.frame.y0, I32(layer.out.row * self.output.nbytes)))
        self.each_image(target, self._image)

    def _image(self, source: Value, out: Value, number: Value) -> None:
        """Loop over input channels."""
        plan, dsp = self.plan, self.dsp
        depth, each = plan.layer.geometry.input[3], plan.layer.geometry.multiplier
        table = self.frame.table
        with dsp.repeat(depth, [table, dsp.at(table, plan.channels.weights_at), source, out]) as carried:
            constants, weights, here, there = carried.values
            channel = dsp.builder.sub(I32(depth), carried.index) if depth > 1 else I32(0)
            if each == 1:
                self._unpack(constants, weights)
            self._channel(constants, weights, here, there, {0: number, 3: channel})
            nbytes = plan.columns.element
            forward = (
                each * plan.channels.constants_nbytes,
                each * plan.channels.weights_nbytes,
                nbytes,
                each * self.output.nbytes,
            )
            carried.next = tuple(dsp.at(pointer, nbytes) for pointer, nbytes in zip(carried.values, forward))

    def _channel(self, constants: Value, weights: Value, source: Value, out: Value, axes: dict[int, Value]) -> None:
        """Loop over the strips of an input channel."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        step, y0, y1 = plan.columns.step, self.frame.y0, self.frame.y1
        strips = builder.sub(y1, y0)
        if step == 2:
            strips = builder.lshr(builder.add(strips, I32(1)), I32(1))
        with dsp.repeat(strips, [y0, out]) as carried:
            y, here = carried.values
            plan.columns.gather(dsp, self.frame.image.at(source), plan.columns.top(dsp, y), self.frame.scratch)
            if self.frame.out.offsets is not None:
                here = self._scattered(out, y)
            each = plan.layer.geometry.multiplier
            if each == 1:
                self._strip(here, y, axes)
            else:
                with dsp.repeat(each, [constants, weights, here]) as many:
                    self._unpack(*many.values[:2])
                    self._strip(many.values[2], y, {**axes, 4: builder.sub(I32(each), many.index)})
                    steps = (plan.channels.constants_nbytes, plan.channels.weights_nbytes, self.output.nbytes)
                    many.next = tuple(dsp.at(pointer, nbytes) for pointer, nbytes in zip(many.values, steps))
            forward = dsp.at(here, step * plan.layer.out.row * self.output.nbytes)
            carried.next = (builder.add(y, I32(step)), out if self.frame.out.offsets is not None else forward)

    def _scattered(self, out: Value, y: Value) -> Value:
        """Where output row y of a channel is; `below` gets the distance of the next, if that is computed, too."""
        dsp, builder, image = self.dsp, self.dsp.builder, self.frame.out.at(out)
        row = image.row(dsp, y)
        if self.below is not None:
            following = builder.add(y, I32(1))
            exists = builder.icmp_signed("<", following, self.frame.y1)
            lower = image.row(dsp, builder.select(exists, following, y))
            dsp.store_word(builder.sub(builder.ptrtoint(lower, I32), builder.ptrtoint(row, I32)), self.below)
        return row

    def _unpack(self, constants: Value, weights: Value) -> None:
        """Bring a channel near: bias and constants to the stack, weights unpacked to the stack (paired) or to scratch."""
        plan, dsp = self.plan, self.dsp
        for number, word in enumerate(dsp.words(constants, 0, plan.channels.constants)):
            dsp.store_word(word, self.local, 4 * number)
        g = plan.layer.geometry
        into = dsp.at(self.local, 4 * self._weights_at) if plan.is_paired else dsp.at(self.frame.scratch, plan.columns.nbytes)
        block = g.kernel[1] if plan.weight_words <= _STRAIGHT_WORDS else 1
        with dsp.repeat(g.kernel[1] // block, [weights, into]) as carried:
            here, place = carried.values
            for column in range(block):
                self._unpack_column(dsp.at(here, column * g.kernel[0]), dsp.at(place, 4 * plan.column_weights * column))
            carried.next = (dsp.at(here, block * g.kernel[0]), dsp.at(place, 4 * block * plan.column_weights))

    def _unpack_column(self, weights: Value, into: Value) -> None:
        """A kernel column's bytes to pairs of rows."""
        dsp, height = self.dsp, self.plan.layer.geometry.kernel[0]
        if self.plan.is_paired:
            upper, middle, lower = (dsp.byte(weights, row) for row in range(3))
            channels = self.plan.channels
            dsp.store_pair(channels.pair(dsp, upper, middle), channels.pair(dsp, middle, lower), into)
            return
        if height > 1:
            with dsp.repeat(height // 2, [weights, into]) as carried:
                here, place = carried.values
                dsp.store_word(self.plan.channels.pair(dsp, dsp.byte(here), dsp.byte(here, 1)), place)
                carried.next = (dsp.at(here, 2), dsp.at(place, 4))
        if height % 2:
            last = dsp.builder.add(dsp.byte(weights, height - 1), I32(self.plan.channels.centre))
            alone = dsp.builder.and_(last, I32(0xFFFF))
            dsp.store_word(alone, into, 4 * (height // 2))

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
        width, at_once = g.output[2], plan.at_once
        column_nbytes = 4 * plan.columns.words * g.stride[1]
        columns, start = self.frame.scratch, [out] + ([I32(0)] if self._wants_axes else [])
        rest = width % at_once
        blocks = [(at_once, width // at_once), (rest, 1) if plan.is_paired else (1, rest)]
        for count, turns in blocks:
            if not count * turns:
                continue
            with dsp.march(columns, count * column_nbytes, turns, start) as carried:
                here, *x = carried.values
                sums = self._pairs(carried.index, count, rows) if plan.is_paired else self._singles(carried.index, count)
                self._finish(sums, here, y, x[0] if x else None, axes, rows)
                forward = [builder.add(x[0], I32(count))] if x else []
                carried.next = (dsp.at(here, count * pixel), *forward)
            columns, start = dsp.at(columns, turns * count * column_nbytes), list(carried.results)

    def _pairs(self, columns: Value, count: int, rows: int) -> list[Value]:
        """Sums of `count` columns by `rows` rows: each gathered column is loaded once and used by all outputs that it reaches.

        W01 and W12 of a kernel column are loaded when first needed, which is late enough for the registers.
        """
        dsp, g = self.dsp, self.plan.layer.geometry
        uses: dict[int, list[tuple[int, int]]] = {}
        for tap in range(g.kernel[1]):
            for x in range(count):
                uses.setdefault(x * g.stride[1] + tap * g.dilation[1], []).append((x, tap))
        weights: dict[int, tuple[Value, Value]] = {}
        bias = dsp.word(self.local)
        sums = [bias] * (count * rows)
        for column in sorted(uses):
            upper, lower = dsp.pair(columns, 8 * column)
            for x, tap in uses[column]:
                if tap not in weights:
                    weights[tap] = dsp.pair(self.local, 4 * self._weights_at + 8 * tap)
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
        words = dsp.words(dsp.at(self.local, 4), 0, plan.channels.constants - 1)
        lower = out if self.below is None or rows == 1 else dsp.at(out, dsp.word(self.below))
        step = plan.layer.out.row if lower is out else 0
        for number, acc in enumerate(sums):
            column, row = divmod(number, rows)
            value = self.place.requantise(dsp, acc, False, words)
            address = dsp.at(lower if row else out, (column * plan.layer.out.pixel + row * step) * nbytes)
            here = axes if x is None else {**axes, 1: builder.add(y, I32(row)), 2: builder.add(x, I32(column))}
            self.output.store([(address, value, here)])
