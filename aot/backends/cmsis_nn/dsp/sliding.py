"""Depthwise convolutions of three rows and stride 1 that slide over the image: each input column is read once, where it lies, and goes
into all outputs that it reaches.

Enters: a depthwise layer. Leaves: `Implementation`s.
Invariant: every output element is computed once, from inputs read before it is stored.

Channel by channel, two output rows at a time: a strip. The four rows of a column become P01 = (r0, r1) and P23 = (r2, r3) in two
registers, which the weights W01 = (w0, w1) and W12 = (w1, w2) of each kernel column take into the sums of three output columns: the upper
row's by SMLAD(P01, W01) and SMLABT(P23, W12), the lower one's by SMLATB(P01, W01) and SMLAD(P23, W12). An output is stored before another
is begun, which fills the registers and no more. Columns outside the image are left out: the sums that lack them begin with a bias that
has them in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aot.backends.cmsis_nn.dsp.channels import Channels
from aot.backends.cmsis_nn.dsp.costs import requantised
from aot.backends.cmsis_nn.dsp.sliding_path import Band, Path, turns_for
from aot.backends.cmsis_nn.shared import Body, Frame, digest, emit_body
from aot.backends.layers.fused import skews
from aot.backends.layers.operands import Layer
from aot.backends.layers.skews import channel_by_channel
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, Value
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.program import Program

_KEPT = 2  # kernel columns whose weights are in registers
_NBYTES = 3.95  # of an instruction, on average


def sliding_depthwise(program: Program, layer: Layer, channels: Channels, reads: tuple[str, ...]) -> tuple[Implementation, ...]:
    """The layer in turns of several lengths; none if it can't be had, or something is fused behind it that needs registers."""
    if layer.split.rest is not None:
        return ()
    plans = [_Plan(layer, channels, Path(layer.geometry, turn, layer.dtype.nbytes)) for turn in turns_for(layer.geometry)]
    return tuple(_implementation(program, plan, reads) for plan in plans if plan.path.refusal is None)


def _implementation(program: Program, plan: _Plan, reads: tuple[str, ...]) -> Implementation:
    layer = plan.layer
    table = plan.channels.buffer(layer.instruction.out)
    return Implementation(
        kernel=f"depthwise 3x{layer.geometry.kernel[1]}",
        instruction=layer.instruction,
        reads=reads,
        writes=(layer.instruction.out,),
        constants=(table,),
        emit=lambda function: _emit(function, plan, table.name),
        skew=skews(program, layer, channel_by_channel(layer, 2) if plan.keeps_columns else None),
        rows=Rows(layer.geometry.output[1], 2, images=layer.geometry.output[0]),
        style="ordered",
        cost=plan.cost,
        notes=(str(plan.channels.form), "two rows at a time; a column is read once"),
        variant=f"sliding, {plan.path.turn} columns a turn",
    )


@dataclass(frozen=True)
class _Plan:
    """All decisions for one layer."""

    layer: Layer
    channels: Channels
    path: Path

    @property
    def code(self) -> tuple[object, ...]:
        """All that the code depends on."""
        return self.layer.out, self.path, self.layer.instruction.left_zero_point, self.channels.place.code, self.channels.centre

    @property
    def keeps_columns(self) -> bool:
        """Whether an output is stored only after all inputs of its column have been read, in rows of equal length."""
        g = self.layer.geometry
        return g.input[2] == g.output[2] and g.pad_left < g.kernel[1]

    @property
    def cost(self) -> Cost:
        """What the layer is expected to take."""
        g, path = self.layer.geometry, self.path
        unpacking = 14 + 1.5 * self.channels.constants + 8 * g.kernel[1] + 5 * len(path.biases)
        channel, code_nbytes = unpacking, _NBYTES * unpacking
        for band in path.bands:
            _, turns, _ = path.loop(band)
            columns = [self._column(band, column) for column in path.columns]
            channel += 8 + band.strips * (sum(columns) + (5 if band.strips > 1 else 0) + (5 * turns + 8 if turns else 0))
            code_nbytes += _NBYTES * (14 + sum(columns) / len(columns) * path.code_columns(band))
        instructions = g.input[0] * (g.input[3] * channel + 40)
        again = int(g.input[3] * (unpacking + 12) + 40)
        return Cost(int(instructions), 0, ((f"body {digest(self.code)}", int(code_nbytes)),), again)

    def _column(self, band: Band, column: int) -> float:
        """Instructions of a column."""
        outputs = self.path.outputs(column)
        begun = sum(tap == self.path.taps(x)[0] for tap, x in outputs.items())
        ended = sum(tap == self.path.taps(x)[-1] for tap, x in outputs.items())
        words = self.channels.constants - 1
        ending = (words + 1) // 2 + (4 if words > 2 else 0) + band.height * (requantised(self.channels.form) + 1)
        loads, packs = sum(band.rows), sum(any(rows) for rows in (band.rows[:2], band.rows[2 : 2 + band.height]))
        sums = 2 * band.height * len(outputs)
        return loads + packs + sums + min(1.5, len(outputs)) + begun + ended * ending


def _emit(function: KernelFunction, plan: _Plan, table: str) -> None:
    emit_body(function, plan.layer, table, lambda frame: _Emitter(frame, plan).emit(), "sliding", plan.code)


@dataclass
class _Strip:
    """A strip's code as far as it is: pointers to input column `column` and output column `x`; sums[x] of the outputs begun, row by row;
    weights[tap] of the kernel columns in registers."""

    band: Band
    source: Value
    column: int
    out: Value
    x: int
    sums: dict[int, list[Value]] = field(default_factory=dict[int, list[Value]])
    weights: dict[int, tuple[Value, Value]] = field(default_factory=dict[int, tuple[Value, Value]])


class _Emitter(Body[_Plan]):
    """Emits one layer's body. local: the biases, constants and unpacked weights of the channel at hand."""

    def __init__(self, frame: Frame, plan: _Plan) -> None:
        super().__init__(frame, plan)
        self.path, self.channels, self.geometry = plan.path, plan.channels, plan.layer.geometry
        self.place = plan.channels.place
        self.local = self.dsp.stack(self._weights_at + 2 * self.geometry.kernel[1])

    @property
    def _constants_at(self) -> int:
        """Word of `local` at which requantisation constants begin: after the biases, and even."""
        return len(self.path.biases) + len(self.path.biases) % 2

    @property
    def _weights_at(self) -> int:
        """Word of `local` at which weights begin, even too."""
        return self._constants_at + self.channels.constants - 1 + (self.channels.constants - 1) % 2

    def emit(self) -> None:
        dsp, frame = self.dsp, self.frame
        bands: list[tuple[Band, Value, Value]] = []
        for band in self.path.bands:
            first = self._select(">", frame.y0, band.first) if band.first else frame.y0
            stop = self._select("<", frame.y1, band.stop)
            bands.append((band, first, stop))
        target = dsp.at(frame.target, self.plan.layer.out.offset * self.output.nbytes)
        self.each_image(target, lambda source, out, _: self._image(source, out, bands))

    def _select(self, order: str, value: Value, other: int) -> Value:
        builder = self.dsp.builder
        return builder.select(builder.icmp_signed(order, value, I32(other)), value, I32(other))

    def _image(self, source: Value, out: Value, bands: Sequence[tuple[Band, Value, Value]]) -> None:
        """Loop over channels. bands: with the first row of each in [y0, y1), and where they end."""
        dsp, table, builder = self.dsp, self.frame.table, self.dsp.builder
        with dsp.repeat(self.geometry.input[3], [table, dsp.at(table, self.channels.weights_at), source, out]) as carried:
            constants, weights, here, there = carried.values
            self._unpack(constants, weights)
            for band, first, stop in bands:
                with builder.if_then(builder.icmp_signed("<", first, stop)):
                    self._strips(band, first, stop, here, there)
            steps = (self.channels.constants_nbytes, self.channels.weights_nbytes, self.path.element, self.output.nbytes)
            carried.next = tuple(dsp.at(pointer, nbytes) for pointer, nbytes in zip(carried.values, steps))

    def _unpack(self, constants: Value, weights: Value) -> None:
        """Bring a channel near: its constants, its weights as pairs, and a bias for each set of kernel columns."""
        dsp, zero = self.dsp, self._zero_pair
        bias, *words = dsp.words(constants, 0, self.channels.constants)
        for number, word in enumerate(words):
            dsp.store_word(word, self.local, 4 * (self._constants_at + number))
        pairs: list[tuple[Value, Value]] = []
        for tap in range(self.geometry.kernel[1]):
            upper, middle, lower = (dsp.byte(weights, 3 * tap + row) for row in range(3))
            w01, w12 = self.channels.pair(dsp, upper, middle), self.channels.pair(dsp, middle, lower)
            dsp.store_pair(w01, w12, self.local, 4 * self._weights_at + 8 * tap)
            pairs.append((w01, w12))
        for number, taps in enumerate(self.path.biases):
            value = bias
            for tap, (w01, w12) in enumerate(pairs):
                if tap not in taps:
                    value = dsp.smlabt(zero, w12, dsp.smlad(zero, w01, value))
            dsp.store_word(value, self.local, 4 * number)

    @property
    def _out_nbytes(self) -> tuple[int, int]:
        """From an output row to the next, and from a pixel."""
        return self.plan.layer.out.row * self.output.nbytes, self.plan.layer.out.pixel * self.output.nbytes

    @property
    def _zero(self) -> int:
        return self.plan.layer.instruction.left_zero_point

    @property
    def _zero_pair(self) -> Value:
        both = (self._zero & 0xFFFF) * 0x10001
        return I32(both - (1 << 32) if both >> 31 else both)

    def _strips(self, band: Band, first: Value, stop: Value, channel: Value, out: Value) -> None:
        """The strips of a band, of which there is one at least."""
        dsp, builder = self.dsp, self.dsp.builder
        row_nbytes, out_row = self.path.row_nbytes, self._out_nbytes[0]
        first = first if band.strips > 1 else I32(band.first)
        top = builder.sub(first, I32(self.geometry.pad_top))
        source, target = dsp.at(channel, builder.mul(top, I32(row_nbytes))), dsp.at(out, builder.mul(first, I32(out_row)))
        if band.strips == 1:
            self._columns(_Strip(band, source, 0, target, 0))
            return
        strips = builder.lshr(builder.add(builder.sub(stop, first), I32(1)), I32(1))
        # The pointer is an element behind: the address of a strip's third row would be kept, as where the next strip begins.
        source = dsp.at(source, -self.path.element)
        end = dsp.at(source, builder.mul(strips, I32(2 * row_nbytes)))
        with dsp.until(source, end, [target]) as carried:
            here, there = carried.index, carried.values[0]
            self._columns(_Strip(band, dsp.at(here, self.path.element), 0, there, 0))
            carried.next = (dsp.at(here, 2 * row_nbytes), dsp.at(there, 2 * out_row))

    def _columns(self, strip: _Strip) -> None:
        """All columns of a strip: straight code, with a loop where the same happens many times."""
        start, turns, turn = self.path.loop(strip.band)
        for column in range(start):
            self._column(strip, column)
        if turns:
            self._turns(strip, start, turns, turn)
        for column in range(start + turns * turn, len(self.path.columns)):
            self._column(strip, column)

    def _turns(self, strip: _Strip, start: int, turns: int, turn: int) -> None:
        """A loop over columns; it carries the sums begun and, if they are at hand, the weights of the first kernel column."""
        dsp, depth, pixel = self.dsp, self.path.pixel_nbytes, self._out_nbytes[1]
        begun, rows = sorted(strip.sums), range(strip.band.height)
        x = start + self.geometry.pad_left - self.geometry.kernel[1] + 1  # the output that ends first
        flat = [strip.sums[each][row] for each in begun for row in rows]
        kept = list(strip.weights.get(0, ()))
        source = dsp.at(strip.source, (start - strip.column) * depth)
        with dsp.march(source, turn * depth, turns, [dsp.at(strip.out, (x - strip.x) * pixel), *flat, *kept]) as carried:
            out, *values = carried.values
            strip.source, strip.column, strip.out, strip.x = carried.index, start, out, x
            self._carry(strip, begun, values)
            for column in range(start, start + turn):
                self._column(strip, column)
            flat = [strip.sums[each + turn][row] for each in begun for row in rows]
            carried.next = (dsp.at(out, turn * pixel), *flat, *(strip.weights[0] if kept else ()))
        out, *values = carried.results
        strip.source, strip.column = dsp.at(source, turns * turn * depth), start + turns * turn
        strip.out, strip.x = out, x + turns * turn
        self._carry(strip, [each + turns * turn for each in begun], values)

    def _carry(self, strip: _Strip, begun: Sequence[int], values: Sequence[Value]) -> None:
        """Go on with sums, and weights of the first kernel column behind them, that a loop carries."""
        height = strip.band.height
        strip.sums = {x: list(values[height * number : height * (number + 1)]) for number, x in enumerate(begun)}
        kept = values[height * len(begun) :]
        strip.weights = {0: (kept[0], kept[1])} if kept else {}

    def _column(self, strip: _Strip, column: int) -> None:
        """Take in an input column: the outputs that end first, the one that begins last."""
        dsp, path, rows = self.dsp, self.path, range(strip.band.height)
        upper, lower = self._rows(strip.band, dsp.at(strip.source, (column - strip.column) * self.path.pixel_nbytes))
        outputs = path.outputs(column)
        used: list[int] = []
        for tap in sorted(outputs, key=lambda tap: (tap == 0, tap not in strip.weights, -tap)):
            x = outputs[tap]
            w01, w12 = self._weights(strip, tap, used)
            if x not in strip.sums:
                strip.sums[x] = [dsp.word(self.local, 4 * path.biases.index(path.taps(x)))] * len(rows)
            sums = strip.sums[x]
            sums[0] = dsp.smlabt(lower, w12, dsp.smlad(upper, w01, sums[0]))
            if len(rows) == 2:
                sums[1] = dsp.smlad(lower, w12, dsp.smlatb(upper, w01, sums[1]))
            if tap == path.taps(x)[-1]:
                self._drop(strip, used)  # the constants need their registers
                self._finish(strip.sums.pop(x), dsp.at(strip.out, (x - strip.x) * self._out_nbytes[1]))

    def _weights(self, strip: _Strip, tap: int, used: list[int]) -> tuple[Value, Value]:
        """W01 and W12 of a kernel column; they take the place of some that this column of the image does not need any more."""
        if tap not in strip.weights:
            self._drop(strip, used[: len(strip.weights) + 1 - _KEPT])
            strip.weights[tap] = self.dsp.pair(self.local, 4 * self._weights_at + 8 * tap)
        used.append(tap)
        return strip.weights[tap]

    def _drop(self, strip: _Strip, taps: Sequence[int]) -> None:
        for tap in taps:
            strip.weights.pop(tap, None)

    def _rows(self, band: Band, source: Value) -> tuple[Value, Value]:
        """P01 and P23 of a column; of a single output row's r2 alone. Rows that do not exist are the zero point."""
        dsp, path = self.dsp, self.path

        def row(number: int) -> Value:
            return dsp.element(source, number * path.row_nbytes, path.element) if band.rows[number] else I32(self._zero)

        upper = dsp.pack(row(0), row(1))
        return upper, dsp.pack(row(2), row(3)) if band.height == 2 else row(2)

    def _finish(self, sums: Sequence[Value], out: Value) -> None:
        """Requantise and store an output column."""
        dsp = self.dsp
        words = dsp.words(self.local, 4 * self._constants_at, self.channels.constants - 1)
        for row, acc in enumerate(sums):
            value = self.place.requantise(dsp, acc, False, words)
            self.output.store([(dsp.at(out, row * self._out_nbytes[0]), value, {})])
