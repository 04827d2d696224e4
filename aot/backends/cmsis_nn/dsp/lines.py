"""Depthwise convolutions down a single column, as networks of one dimension have them: four channels abreast, from rows wherever they lie.

Enters: contractions. Leaves: `Implementation`s, or the sentence why not.
Invariant: every output element is computed once, from inputs read before it is stored.

Two rows' words of four channels become a pair of halves for each channel, which one SMLAD multiplies with two taps' weights. Nothing is
gathered; rows outside the image are read from one that holds the zero point.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from aot.backends.cmsis_nn.dsp.costs import requantised
from aot.backends.cmsis_nn.dsp.ending import Place, constant_count, constants_of_form
from aot.backends.cmsis_nn.dsp.instructions import Image
from aot.backends.cmsis_nn.shared import Body, Frame, digest, emit_body
from aot.backends.layers.fused import overlaps, scatterable
from aot.backends.layers.operands import Layer, read_layer, stage_of
from aot.backends.layers.requantise import Form, solve
from aot.graph.ir import DType
from aot.graph.primitive import Primitive
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, POINTER, Value
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.program import Buffer, Program
from aot.target import Target

_ABREAST = 4  # channels
_MOST_TAPS = 16  # each is code of its own


def claim_lines(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Depthwise convolutions of one column, of any stride and dilation."""
    layer = read_layer(program, instruction, target, "depthwise", "dsp")
    if isinstance(layer, str):
        return layer
    g = layer.geometry
    if g.input[2] != 1 or g.kernel[1] != 1 or g.multiplier != 1 or g.input[0] != 1:
        return "not an image of one column, or several images or outputs for an input channel"
    if g.input[3] % _ABREAST or g.kernel[0] > _MOST_TAPS:
        return f"not a multiple of {_ABREAST} channels, or a kernel of more than {_MOST_TAPS} rows"
    if layer.split.rest is not None:
        return "what is fused behind it needs registers"
    count = len(layer.bias)
    plan = _Plan(layer, solve(stage_of(layer, range(count)), (np.zeros(count, np.int64), np.full(count, 8))))
    table = Buffer(f"{layer.instruction.out}.lines", DType.INT32, plan.data.shape, "constant", data=plan.data, align=4)
    return Implementation(
        kernel=f"depthwise {g.kernel[0]}x1",
        instruction=instruction,
        reads=(layer.instruction.left.buffer,),
        writes=(layer.instruction.out,),
        constants=(table,),
        emit=lambda function: _emit(function, plan, table.name),
        scratch_nbytes=g.input[3] if plan.leaves else 0,
        scatters=scatterable(program, layer),
        overlap=overlaps(program, layer, "same" if layer.out.row == g.input[3] else None),
        rows=Rows(g.output[1], 1),
        style="ordered",
        cost=plan.cost,
        notes=(str(plan.form), "four channels abreast"),
        variant="four channels abreast",
    )


@dataclass(frozen=True)
class _Plan:
    """All decisions for one layer."""

    layer: Layer
    form: Form

    @property
    def place(self) -> Place:
        return Place.of(self.form, 0, 1)

    @property
    def pairs(self) -> int:
        """Pairs of taps."""
        return (self.layer.geometry.kernel[0] + 1) // 2

    @property
    def constants(self) -> int:
        """Words of a channel's requantisation."""
        return constant_count(self.form)

    @property
    def record(self) -> int:
        """Words of four channels: biases, weights, constants."""
        return _ABREAST + 2 * self.pairs + _ABREAST * self.constants

    @property
    def leaves(self) -> bool:
        """Whether some output reads rows outside the image."""
        g = self.layer.geometry
        last = (g.output[1] - 1) * g.stride[0] - g.pad_top + (g.kernel[0] - 1) * g.dilation[0]
        return g.pad_top > 0 or last >= g.input[1]

    @cached_property
    def data(self) -> np.ndarray:
        """The table. Of two taps a word holds two channels' weights: both of the first tap, then both of the second."""
        layer, count = self.layer, len(self.layer.bias)
        weights = np.zeros((count, 2 * self.pairs), np.int64)
        weights[:, : layer.geometry.kernel[0]] = layer.weights[:, :, 0]
        shaped = weights.reshape(count // _ABREAST, 2, 2, self.pairs, 2)  # group, word, channel, pair, tap
        packed = shaped.transpose(0, 3, 1, 4, 2).astype(np.int8).reshape(count // _ABREAST, -1).view("<i4")
        constants = np.array([constants_of_form(self.form, n) for n in range(count)], np.int64)
        biases = layer.folded_bias + self.form.delta
        groups = [each.reshape(count // _ABREAST, -1) for each in (biases, packed, constants)]
        return (np.concatenate(groups, 1) & 0xFFFFFFFF).astype("<u4").view("<i4").reshape(-1)

    @property
    def code(self) -> tuple[object, ...]:
        """All that the code depends on."""
        return self.layer.geometry, self.layer.out, self.layer.instruction.left_zero_point, self.place.code

    @property
    def cost(self) -> Cost:
        """What the layer is expected to take."""
        g = self.layer.geometry
        group = 10 + 20 * self.pairs + _ABREAST * (requantised(self.form) + 1 + (self.constants + 1) // 2)
        row = g.kernel[0] * (9 if self.leaves else 5) + 12 + g.input[3] // _ABREAST * group
        filled = 3 * g.input[3] // 4 if self.leaves else 0
        nbytes = 200 + 60 * self.pairs + g.kernel[0] * (28 if self.leaves else 15)
        return Cost(g.output[1] * row + filled + 40, 0, ((f"body {digest(self.code)}", nbytes),), filled + 24)


def _emit(function: KernelFunction, plan: _Plan, table: str) -> None:
    emit_body(function, plan.layer, table, lambda frame: _Emitter(frame, plan).emit(), "lines", plan.code)


class _Emitter(Body[_Plan]):
    """Emits one layer's body. rows: on the stack, the addresses of the rows of an output."""

    def __init__(self, frame: Frame, plan: _Plan) -> None:
        super().__init__(frame, plan)
        self.rows = self.dsp.stack(2 * plan.pairs)

    def emit(self) -> None:
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        if plan.leaves:
            zero = int.from_bytes(
                plan.layer.instruction.left_zero_point.to_bytes(1, "little", signed=True) * 4, "little", signed=True
            )
            with dsp.repeat(plan.layer.geometry.input[3] // 4, [self.frame.scratch]) as carried:
                dsp.store_word(I32(zero), carried.values[0])
                carried.next = (dsp.at(carried.values[0], 4),)
        first = dsp.at(self.frame.target, plan.layer.out.offset)
        self.each_image(dsp.at(first, builder.mul(self.frame.y0, I32(plan.layer.out.row))), self._image)

    def _image(self, source: Value, out: Value, _: Value) -> None:
        dsp, builder, image, g = self.dsp, self.dsp.builder, self.frame.image.at(source), self.plan.layer.geometry
        with dsp.repeat(builder.sub(self.frame.y1, self.frame.y0), [self.frame.y0, out]) as carried:
            y, here = carried.values
            top = builder.sub(builder.mul(y, I32(g.stride[0])), I32(g.pad_top))
            for tap in range(2 * self.plan.pairs):
                row = self._row(image, builder.add(top, I32(min(tap, g.kernel[0] - 1) * g.dilation[0])))
                dsp.store_word(builder.ptrtoint(row, I32), self.rows, 4 * tap)
            self._channels(here)
            carried.next = (builder.add(y, I32(1)), dsp.at(here, self.plan.layer.out.row))

    def _row(self, image: Image, number: Value) -> Value:
        """The address of a row, or of the one that stands for those outside."""
        dsp, builder = self.dsp, self.dsp.builder
        if not self.plan.leaves:
            return image.row(dsp, number)
        exists = builder.icmp_unsigned("<", number, I32(self.plan.layer.geometry.input[1]))
        return builder.select(exists, image.row(dsp, builder.select(exists, number, I32(0))), self.frame.scratch)

    def _channels(self, out: Value) -> None:
        """Loop over the channels of an output row."""
        dsp, plan = self.dsp, self.plan
        with dsp.repeat(plan.layer.geometry.input[3] // _ABREAST, [self.frame.table, out, I32(0)]) as carried:
            table, there, at = carried.values
            sums = dsp.words(table, 0, _ABREAST)
            for pair in range(plan.pairs):
                sums = self._pair(pair, table, at, sums)
            for number, acc in enumerate(sums):
                words = dsp.words(table, 4 * (_ABREAST + 2 * plan.pairs + number * plan.constants), plan.constants)
                dsp.store_byte(plan.place.requantise(dsp, acc, False, words), dsp.at(there, number))
            carried.next = (dsp.at(table, 4 * plan.record), dsp.at(there, _ABREAST), dsp.builder.add(at, I32(_ABREAST)))

    def _pair(self, pair: int, table: Value, at: Value, sums: list[Value]) -> list[Value]:
        """Two taps of four channels."""
        dsp, builder = self.dsp, self.dsp.builder
        pointers = dsp.pair(self.rows, 8 * pair)
        upper, lower = (dsp.any_word(dsp.at(builder.inttoptr(each, POINTER), at)) for each in pointers)
        weights = dsp.pair(table, 4 * (_ABREAST + 2 * pair))
        even, odd = ((half(upper), half(lower)) for half in (dsp.sxtb16, dsp.sxtb16_odd))
        inputs = (dsp.pack(*even), dsp.pack(*odd), dsp.pack_upper(*even), dsp.pack_upper(*odd))
        factors = (half(word) for word in weights for half in (dsp.sxtb16, dsp.sxtb16_odd))
        return [dsp.smlad(x, factor, acc) for x, factor, acc in zip(inputs, factors, sums, strict=True)]
