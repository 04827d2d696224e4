"""Depthwise convolutions of three rows, one output row after the other, straight from the input rows wherever these lie.

Enters: depthwise layers. Leaves: `Implementation`s, or the sentence why not.
Invariant: of a channel all inputs of a row are read before its last output is stored; every output element is computed once.

Row by row and channel by channel, without scratch: a column of the three input rows becomes P01 = (r0, r1) and r2, which each kernel
column that reaches an output takes into its sum by SMLAD and SMLABB or SMLABT. Columns outside the image are in biases of their own,
which the table has beside the usual one; rows outside are the zero point. A call brings nothing with it but the addresses of its rows: a
channel's weights, in the order in which SXTB16 takes them apart, cost it six instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from llvmlite import ir

from aot.backends.cmsis_nn.dsp.channels import centre_of, centred
from aot.backends.cmsis_nn.dsp.costs import requantised
from aot.backends.cmsis_nn.dsp.ending import Place, constant_count, constants_of_form
from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.cmsis_nn.shared import Body, digest, emit_body
from aot.backends.layers.fused import overlaps, scatterable
from aot.backends.layers.operands import Layer, read_layer, stage_of
from aot.backends.layers.requantise import Form, solve
from aot.graph.ir import DType
from aot.graph.primitive import Geometry, Primitive
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, POINTER, Value
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.program import Buffer, Program
from aot.target import Target

_REACH = 4095  # of LDRSB, in bytes
_STRAIGHT = 8  # columns that are read without a loop
_SPILLED = 3  # instructions for each output, where several are begun at a time
_FEW, _MANY = 3, (6, 9)  # outputs in a turn of a loop


def claim_single_rows(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Depthwise convolutions of three rows and up to three columns, of any stride."""
    layer = read_layer(program, instruction, target, "depthwise", "dsp", nine_bits=True)
    if isinstance(layer, str):
        return layer
    g = layer.geometry
    if g.kernel[0] != 3 or g.kernel[1] > 3 or g.multiplier > 1:
        return "not a kernel of three rows and up to three columns, one output for each input channel"
    if layer.split.rest is not None:
        return "what is fused behind it needs registers"
    path = min((Path(g, count) for count in _MANY), key=lambda path: path.straight)
    if any(not path.taps(x) for x in range(g.output[2])) or (path.most + 2) * g.input[3] > _REACH:
        return "columns beyond the reach of loads, or outputs that read none"
    centre = centre_of(layer.weights)
    if centre is None:
        return "weights of nine bits and more than 256 values"
    plan = _Plan(layer, path, solve(stage_of(layer, range(len(layer.bias))), _pre(layer)), centre)
    table = Buffer(f"{layer.instruction.out}.rows", DType.INT32, plan.data.shape, "constant", data=plan.data, align=4)
    return Implementation(
        kernel=f"depthwise 3x{g.kernel[1]}",
        instruction=instruction,
        reads=(layer.instruction.left.buffer,),
        writes=(layer.instruction.out,),
        constants=(table,),
        emit=lambda function: _emit(function, plan, table.name),
        scatters=scatterable(program, layer),
        overlap=overlaps(program, layer, "same" if plan.is_congruent else None),
        rows=Rows(g.output[1], 1, images=g.output[0]),
        style="ordered",
        cost=plan.cost,
        notes=(str(plan.form), "one row at a time; a column is read once"),
        variant="single rows",
    )


def _pre(layer: Layer) -> tuple[np.ndarray, np.ndarray]:
    count = len(layer.bias)
    return np.zeros(count, np.int64), np.full(count, 8)


@dataclass(frozen=True)
class Band:
    """Output rows [first, stop), alike. mask: which of their three input rows exist."""

    first: int
    stop: int
    mask: tuple[bool, ...]


@dataclass(frozen=True)
class Path:
    """How a row is walked: column by column; many of them in a loop, `at_once` outputs a turn."""

    geometry: Geometry
    at_once: int = _FEW

    @cached_property
    def columns(self) -> range:
        """The input columns that outputs read."""
        g = self.geometry
        return range(min(g.input[2], (g.output[2] - 1) * g.stride[1] + (g.kernel[1] - 1) * g.dilation[1] + 1 - g.pad_left))

    def _column(self, x: int, tap: int) -> int:
        g = self.geometry
        return x * g.stride[1] + tap * g.dilation[1] - g.pad_left

    def taps(self, x: int) -> tuple[int, ...]:
        """The kernel columns of an output column that lie in the image."""
        return tuple(tap for tap in range(self.geometry.kernel[1]) if 0 <= self._column(x, tap) < self.geometry.input[2])

    def outputs(self, column: int) -> dict[int, int]:
        """The output columns that an input column goes into, and the kernel column that takes it there; those that end first first."""
        taps = reversed(range(self.geometry.kernel[1]))
        found = {x: tap for tap in taps for x in range(self.geometry.output[2]) if self._column(x, tap) == column}
        return dict(sorted(found.items()))

    @cached_property
    def biases(self) -> tuple[tuple[int, ...], ...]:
        """The sets of kernel columns inside the image, each of which has a bias of its own; the most frequent one first."""
        every = [self.taps(x) for x in range(self.geometry.output[2])]
        return tuple(sorted(dict.fromkeys(every), key=lambda taps: -every.count(taps)))

    @property
    def turn(self) -> int:
        """Columns of a turn."""
        return self.at_once * self.geometry.stride[1]

    @cached_property
    def loop(self) -> tuple[int, int]:
        """The first column of a loop, and its turns; no turns where columns are few. Each turn does as the one before, so many columns and
        outputs on."""
        count = len(self.columns)
        if count <= _STRAIGHT:
            return 0, 0
        for start in range(self.turn + 1):
            turns = (count - start) // self.turn
            while turns > 1 and not self._alike(start, turns):
                turns -= 1
            if turns > 1:
                return start, turns
        return 0, 0

    def _alike(self, start: int, turns: int) -> bool:
        """Whether all of the loop's columns do what those of the first turn do."""
        return all(
            self._deeds(column) == {(x + self.at_once * number, *deed) for x, *deed in self._deeds(column - self.turn * number)}
            for number in range(1, turns)
            for column in range(start + number * self.turn, start + (number + 1) * self.turn)
        )

    def _deeds(self, column: int) -> set[tuple[Any, ...]]:
        return {(x, tap, self.taps(x), tap == self.taps(x)[0], tap == self.taps(x)[-1]) for x, tap in self.outputs(column).items()}

    @property
    def straight(self) -> int:
        """Columns of code."""
        return len(self.columns) - max(0, self.loop[1] - 1) * self.turn

    @property
    def most(self) -> int:
        """Columns that are read from one address, at most."""
        start, turns = self.loop
        return max(start, self.turn if turns else 0, len(self.columns) - start - turns * self.turn)

    @cached_property
    def bands(self) -> tuple[Band, ...]:
        """From above."""
        g, found = self.geometry, list[Band]()
        for y in range(g.output[1]):
            top = y * g.stride[0] - g.pad_top
            mask = tuple(0 <= top + row * g.dilation[0] < g.input[1] for row in range(3))
            if found and found[-1].mask == mask:
                found[-1] = Band(found[-1].first, y + 1, mask)
            else:
                found.append(Band(y, y + 1, mask))
        return tuple(found)


@dataclass(frozen=True)
class _Plan:
    """All decisions for one layer. centre: what weights in bytes are stored less."""

    layer: Layer
    path: Path
    form: Form
    centre: int

    @property
    def place(self) -> Place:
        return Place.of(self.form, 0, 1)

    @property
    def record(self) -> int:
        """Words of a channel: constants, biases, weights."""
        return constant_count(self.form) + len(self.path.biases) + 3

    @cached_property
    def data(self) -> np.ndarray:
        """The table. Weights: (w00, w01, w10, w11) and (w02, w20, w12, w21) as bytes, w22 as a word: row, then column."""
        layer, count = self.layer, len(self.layer.bias)
        constants = np.array([constants_of_form(self.form, n) for n in range(count)], np.int64)
        weights = np.zeros((count, 3, 3), np.int64)
        weights[:, :, : layer.geometry.kernel[1]] = layer.weights
        usual, columns = layer.folded_bias + self.form.delta, weights.sum(1) * layer.instruction.left_zero_point
        outside = [[tap for tap in range(3) if tap not in taps] for taps in self.path.biases]
        biases = np.stack([usual + columns[:, missing].sum(1) for missing in outside], 1)
        order = ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (1, 2), (2, 1))
        packed = np.stack([weights[:, row, column] for row, column in order], 1)
        packed = (packed - self.centre).astype(np.int8).view("<i4")
        words = np.concatenate([constants, biases, packed, weights[:, 2, 2:]], 1) & 0xFFFFFFFF
        return words.astype("<u4").view("<i4").reshape(-1)

    @property
    def is_congruent(self) -> bool:
        """Whether an output lies where the input of its channel and column lay, if rows do."""
        g = self.layer.geometry
        return g.stride[1] == 1 and g.input[2] == g.output[2] and self.layer.out.pixel == g.input[3]

    @property
    def code(self) -> tuple[object, ...]:
        """All that the code depends on."""
        return self.layer.geometry, self.layer.out, self.layer.instruction.left_zero_point, self.place.code, self.centre

    @property
    def cost(self) -> Cost:
        """What the layer is expected to take."""
        g, path = self.layer.geometry, self.path
        columns, (_, turns) = len(path.columns), path.loop
        sums = 2 * sum(len(path.taps(x)) for x in range(g.output[2]))
        output = requantised(self.form) + 2 + (constant_count(self.form) + 1) // 2
        spilled = _SPILLED * max(0, g.output[2] - 4) if g.stride[1] == 1 else 0
        channel = (
            (20 if g.output[2] > 1 else 4) + 5 * columns + sums + g.output[2] * output + (12 * turns + 6 if turns else 0) + spilled
        )
        nbytes = 150.0
        for band in path.bands:
            straight = (path if band.stop - band.first > 1 else replace(path, at_once=_FEW)).straight
            nbytes += 3.8 * (20 + straight * (5 + (sums + g.output[2] * output) / columns))
        instructions = g.input[0] * (g.output[1] * (g.input[3] * channel + 40) + 30)
        return Cost(int(instructions), 0, ((f"body {digest(self.code)}", int(nbytes)),), 22)


def _emit(function: KernelFunction, plan: _Plan, table: str) -> None:
    emit_body(function, plan.layer, table, lambda frame: _Emitter(frame, plan).emit(), "single_rows", plan.code)


class _Emitter(Body[_Plan]):
    """Emits one layer's body: its rows, each by the function of its band."""

    def emit(self) -> None:
        layer, dsp, builder = self.plan.layer, self.dsp, self.dsp.builder
        first = dsp.at(self.frame.target, layer.out.offset)
        self.each_image(dsp.at(first, builder.mul(self.frame.y0, I32(layer.out.row))), self._image)

    def _image(self, source: Value, out: Value, _: Value) -> None:
        dsp, builder, image = self.dsp, self.dsp.builder, self.frame.image.at(source)
        g = self.plan.layer.geometry
        with dsp.repeat(builder.sub(self.frame.y1, self.frame.y0), [self.frame.y0, out]) as carried:
            y, here = carried.values
            top = builder.sub(builder.mul(y, I32(g.stride[0])), I32(g.pad_top))

            def row(band: Band) -> None:
                numbers = [builder.add(top, I32(number * g.dilation[0])) for number in range(3) if band.mask[number]]
                _Row(self.plan, band).call(dsp, self.frame.table, [image.row(dsp, number) for number in numbers], here)

            self._choose(y, self.plan.path.bands, row)
            carried.next = (builder.add(y, I32(1)), dsp.at(here, self.plan.layer.out.row))

    def _choose(self, y: Value, bands: Sequence[Band], row: Callable[[Band], None]) -> None:
        """`row` of the band that y is in."""
        band, *others = bands
        if not others:
            row(band)
            return
        builder = self.dsp.builder
        with builder.if_else(builder.icmp_unsigned("<", y, I32(band.stop))) as (then, otherwise):
            with then:
                row(band)
            with otherwise:
                self._choose(y, others, row)


@dataclass
class _Row:
    """The function of a band's rows."""

    plan: _Plan
    band: Band
    dsp: Dsp = field(init=False)

    @property
    def path(self) -> Path:
        """Where it is one of a few rows, with less code."""
        return self.plan.path if self.band.stop - self.band.first > 1 else replace(self.plan.path, at_once=_FEW)

    def call(self, dsp: Dsp, table: Value, rows: Sequence[Value], out: Value) -> None:
        """rows: those that exist."""

        def build(function: ir.Function) -> None:
            self.dsp = Dsp(dsp.function, ir.IRBuilder(function.append_basic_block("entry")))
            self._emit(*function.args[:2], function.args[2:])  # type: ignore[call-arg]
            self.dsp.builder.ret_void()

        type = ir.FunctionType(ir.VoidType(), [POINTER] * (2 + len(rows)))
        function = dsp.function.helper(f"single_row_{digest((self.plan.code, self.path.at_once, self.band.mask))}", type, build)
        dsp.builder.call(function, [table, out, *rows])

    def _emit(self, table: Value, out: Value, rows: Sequence[Value]) -> None:
        """Loop over channels."""
        dsp, plan = self.dsp, self.plan
        with dsp.repeat(plan.layer.geometry.input[3], [table, out, *rows]) as carried:
            here, there, *sources = carried.values
            self._channel(here, there, sources)
            carried.next = (dsp.at(here, 4 * plan.record), *(dsp.at(pointer, 1) for pointer in carried.values[1:]))

    def _channel(self, table: Value, out: Value, rows: Sequence[Value]) -> None:
        dsp, path = self.dsp, self.path
        at = 4 * (constant_count(self.plan.form) + len(path.biases))
        first, second = dsp.pair(table, at)
        halves = (dsp.sxtb16(first), dsp.sxtb16_odd(first), dsp.sxtb16(second), dsp.sxtb16_odd(second))
        *w01, w2 = (centred(dsp, pair, self.plan.centre) for pair in halves)
        strip = _Strip(table, w01, w2, dsp.word(table, at + 8), list(rows), 0, out, 0)
        start, turns = path.loop
        for column in range(start):
            self._column(strip, column)
        if turns:
            self._turns(strip, start, turns)
        for column in range(start + turns * path.turn, len(path.columns)):
            self._column(strip, column)

    def _turns(self, strip: _Strip, start: int, turns: int) -> None:
        """The loop; it carries the sums that are begun."""
        dsp, g, path = self.dsp, self.plan.layer.geometry, self.path
        begun, pixel = sorted(strip.sums), self.plan.layer.out.pixel
        x = min([*begun, *path.outputs(start)])
        depth = g.input[3]
        rows = [dsp.at(row, (start - strip.column) * depth) for row in strip.rows]
        out = dsp.at(strip.out, (x - strip.x) * pixel)
        with dsp.repeat(turns, [out, *rows, *(strip.sums[each] for each in begun)]) as carried:
            strip.out, strip.x = carried.values[0], x
            strip.rows, strip.column = list(carried.values[1 : 1 + len(rows)]), start
            strip.sums = dict(zip(begun, carried.values[1 + len(rows) :], strict=True))
            here = [strip.out, *strip.rows]
            for column in range(start, start + path.turn):
                self._column(strip, column)
            steps = [path.at_once * pixel, *[path.turn * depth] * len(rows)]
            moved = [dsp.at(pointer, step) for pointer, step in zip(here, steps, strict=True)]
            carried.next = (*moved, *(strip.sums[each + path.at_once] for each in begun))
        strip.out, strip.x = carried.results[0], x + path.at_once * turns
        strip.rows, strip.column = list(carried.results[1 : 1 + len(rows)]), start + turns * path.turn
        strip.sums = {
            each + path.at_once * turns: value for each, value in zip(begun, carried.results[1 + len(rows) :], strict=True)
        }

    def _column(self, strip: _Strip, column: int) -> None:
        """Take in an input column."""
        dsp, path = self.dsp, self.path
        outputs = path.outputs(column)
        if not outputs:
            return
        offset = (column - strip.column) * self.plan.layer.geometry.input[3]
        pointers, zero = iter(strip.rows), I32(self.plan.layer.instruction.left_zero_point)
        r0, r1, r2 = (dsp.byte(next(pointers), offset) if exists else zero for exists in self.band.mask)
        both = dsp.pack(r0, r1)
        for x, tap in outputs.items():
            taps = path.taps(x)
            if x not in strip.sums:
                bias = constant_count(self.plan.form) + path.biases.index(taps)
                strip.sums[x] = dsp.word(strip.table, 4 * bias)
            acc = dsp.smlad(both, strip.w01[tap], strip.sums[x])
            if tap == 2:
                acc = dsp.smlabb(r2, strip.w22, acc)
            else:
                acc = dsp.smlabb(r2, strip.w2, acc) if tap == 0 else dsp.smlabt(r2, strip.w2, acc)
            strip.sums[x] = acc
            if tap == taps[-1]:
                words = dsp.words(strip.table, 0, constant_count(self.plan.form))
                value = self.plan.place.requantise(dsp, strip.sums.pop(x), False, words)
                dsp.store_byte(value, dsp.at(strip.out, (x - strip.x) * self.plan.layer.out.pixel))


@dataclass
class _Strip:
    """A row of a channel as far as it is. table: the channel's; w01[tap]: weights of rows 0 and 1; w2: those of row 2, kernel columns 0
    and 1; rows: addresses of input column `column`; out: that of output column `x`; sums: of the outputs begun."""

    table: Value
    w01: Sequence[Value]
    w2: Value
    w22: Value
    rows: list[Value]
    column: int
    out: Value
    x: int
    sums: dict[int, Value] = field(default_factory=dict[int, Value])
