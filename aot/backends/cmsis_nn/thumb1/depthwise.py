# pyright: basic
"""Depthwise convolutions on Cortex-M0: two output rows at a time, channel by channel.

Enters: contractions. Leaves: `Implementation`s, or the sentence why not.
Invariant: every output element is computed once, from inputs read before it is stored, so that a fused operand may be overwritten
in place; nothing outside the image is read.

Rows outside the image are a row of zero points in scratch; columns outside are put beside the gathered ones once. The lower row
of a pair that has none goes where the upper one goes, before it. What is fused behind the requantisation reads int8 from scratch;
where no requantisation is found, the sums go there, and the whole expression follows.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from aot.backends.cmsis_nn.dsp.ending import word32
from aot.backends.cmsis_nn.shared import Body, Frame, emit_body
from aot.backends.cmsis_nn.swar import lanes
from aot.backends.cmsis_nn.thumb1.refusal import refusal
from aot.backends.cmsis_nn.thumb1.rescale import solve
from aot.backends.cmsis_nn.thumb1.taps import Taps
from aot.backends.layers.fused import operands_of, skews
from aot.backends.layers.operands import Layer, read_layer, stage_of
from aot.backends.layers.skews import channel_by_channel
from aot.graph.ir import DType
from aot.graph.primitive import Primitive
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, Value
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.inplace import elementwise_overwrites
from aot.lower.program import Buffer, Program
from aot.target import Target

_MOST_ROWS, _MOST_TAPS = 32, 200
_SEARCHED_TAPS = 16  # up to these, all ways to cut them into three groups are tried
_CLASSES = 3


def claim_depthwise(program: Program, instruction: Primitive, target: Target) -> tuple[Implementation, ...] | str:
    """Depthwise convolutions of any multiplier, kernel, stride, dilation and padding."""
    layer = refusal(target) or read_layer(program, instruction, target, "depthwise")
    if isinstance(layer, str):
        return layer
    height, width = layer.geometry.kernel
    if height > _MOST_ROWS or height * width > _MOST_TAPS:
        return f"a {height}x{width} kernel (at most {_MOST_ROWS} rows, {_MOST_TAPS} taps)"
    plan = _plan(layer)
    small = replace(plan, taps=replace(plan.taps, is_small=True))
    return tuple(_implementation(program, each) for each in ((plan, small) if small.taps.can_be_small else (plan,)))


def _implementation(program: Program, plan: _Plan) -> Implementation:
    layer, rescaling, words = plan.layer, plan.taps.rescaling, plan.words
    instruction, (height, width) = layer.instruction, layer.geometry.kernel
    table = Buffer(f"{instruction.out}.packed", DType.INT32, words.shape, "constant", data=words, align=4)
    reads, constants = operands_of(program, instruction, instruction.result if rescaling is None else layer.split.rest)
    groups = ", ".join(f"{count} channels in {len(sizes)}" for sizes, count in plan.taps.classes)
    return Implementation(
        kernel=f"depthwise {height}x{width}",
        instruction=instruction,
        reads=reads,
        writes=(instruction.out,),
        constants=(table, *constants),
        emit=lambda function: _emit(function, plan, table.name),
        scratch_nbytes=plan.scratch_nbytes,
        overwrites=elementwise_overwrites(program, instruction),
        skew=skews(program, layer, channel_by_channel(layer, 2)),
        rows=Rows(layer.geometry.output[1], min(2, layer.geometry.output[1]), images=layer.geometry.output[0]),
        style="ordered",
        notes=("sums requantised one by one" if rescaling is None else str(rescaling), f"groups of taps: {groups}"),
        cost=plan.cost,
        variant="int8 weights" if plan.taps.is_small else "weights as words",
    )


@dataclass(frozen=True)
class _Plan:
    """All decisions for one layer. channels: in the order of the table. Scratch: the gathered columns, the addresses of rows, a row of
    zero points, and where something follows, the results of a pair of rows."""

    layer: Layer
    taps: Taps
    channels: tuple[int, ...]

    @cached_property
    def words(self) -> np.ndarray:
        """The table: see `Taps.call`; where sums leave it as they are, the biases follow."""
        layer, rescaling, found = self.layer, self.taps.rescaling, []
        weights = layer.weights.swapaxes(1, 2).reshape(len(layer.bias), -1)
        for n in self.channels:
            place = (n // layer.geometry.multiplier, n * self.taps.element_nbytes)
            found += self.taps.words(place, weights[n].tolist())
            found += [] if rescaling is None else rescaling.words(n)
        found += layer.folded_bias.tolist() if rescaling is None else []
        return np.array([word32(word) for word in found], "<i4")

    @property
    def is_direct(self) -> bool:
        """Whether outputs are left where they belong."""
        return self.layer.split.rest is None and self.taps.rescaling is not None

    @property
    def rows_at(self) -> int:
        return self.taps.columns_nbytes

    @property
    def outside_at(self) -> int:
        return self.rows_at + 4 * len(self.taps.offsets)

    @property
    def outside_words(self) -> int:
        """Words of a row of zero points."""
        return -(-self.layer.geometry.input[2] * self.layer.geometry.input[3] // 4)

    @property
    def results_at(self) -> int:
        return self.outside_at + 4 * self.outside_words

    @property
    def result_nbytes(self) -> int:
        """Bytes of a row's results."""
        return self.taps.element_nbytes * prod(self.layer.geometry.output[2:])

    @property
    def scratch_nbytes(self) -> int:
        return -(-(self.results_at + (0 if self.is_direct else 2 * self.result_nbytes)) // 4) * 4

    @property
    def code(self) -> tuple[object, ...] | None:
        """All that the code depends on; None where something is fused behind, which is code of its own."""
        if not self.is_direct:
            return None
        return self.layer.geometry, self.layer.out, self.layer.instruction.left_zero_point, self.taps.code

    @property
    def cost(self) -> Cost:
        images, height, width, channels = self.layer.geometry.output
        pair = self.taps.instructions + 15 * len(self.taps.offsets) + 40
        found = images * -(-height // 2) * pair + 3 * (self.outside_words + self.taps.columns_nbytes // 4)
        found += 0 if self.is_direct else 25 * images * height * width * channels
        return Cost(found, len(self.taps.code) + 500)


def _plan(layer: Layer) -> _Plan:
    g, count = layer.geometry, len(layer.bias)
    weights = layer.weights.swapaxes(1, 2).reshape(count, -1)
    rescaling = solve(stage_of(layer, range(count)), layer.folded_bias)
    classes = cut_classes(weights)
    out_pixel = layer.out.pixel if layer.split.rest is None and rescaling is not None else count * (4 if rescaling is None else 1)
    taps = Taps(g, tuple((sizes, len(channels)) for sizes, channels in classes), out_pixel, rescaling)
    return _Plan(layer, taps, tuple(n for _, channels in classes for n in channels))


def cut_classes(weights: np.ndarray) -> list[tuple[tuple[int, ...], list[int]]]:
    """Classes of channels with the sizes of groups of neighbouring taps that fit them all: (sizes, channels). weights: (channels,
    taps). Few groups for many channels, at most `_CLASSES` classes; every channel is in one."""
    taps, left = weights.shape[1], list(range(len(weights)))
    found: list[tuple[tuple[int, ...], list[int]]] = []
    while left:
        rest = lanes.cuts(weights[left])
        ways = [] if len(found) + 1 == _CLASSES else _ways(weights[left], taps)
        best, best_gain, best_channels = rest, 0, left
        for way in ways:
            fitting = [n for n, fits in zip(left, _fits(weights[left], way), strict=True) if fits]
            gain = (len(rest) - len(way)) * len(fitting)
            if gain > best_gain:
                best, best_gain, best_channels = way, gain, fitting
        found.append((best, best_channels))
        taken = set(best_channels)
        left = [n for n in left if n not in taken]
    return found


def _ways(weights: np.ndarray, taps: int) -> list[tuple[int, ...]]:
    """Sizes of groups to try: all of up to three groups where there are few taps, else what fits some channel."""
    if taps > _SEARCHED_TAPS:
        return sorted({lanes.cuts(one[None]) for one in weights})
    cuts = [each for number in range(3) for each in itertools.combinations(range(1, taps), number)]
    return [tuple(np.diff([0, *cut, taps]).tolist()) for cut in cuts]


def _fits(weights: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """For each channel whether groups of these sizes fit."""
    starts = np.cumsum([0, *sizes[:-1]])
    low, high = (np.add.reduceat(ends, starts, axis=1) for ends in lanes.extremes(weights))
    return np.all((low >= -lanes.LIMIT) & (high <= lanes.LIMIT), axis=1)


def _emit(function: KernelFunction, plan: _Plan, table: str) -> None:
    emit_body(function, plan.layer, table, lambda frame: _Emitter(frame, plan).emit(), "row_pairs", plan.code)


class _Emitter(Body[_Plan]):
    """Emits one layer's body."""

    def __init__(self, frame: Frame, plan: _Plan) -> None:
        super().__init__(frame, plan)
        self.rows, self.outside, self.results = (
            self.dsp.at(frame.scratch, offset) for offset in (plan.rows_at, plan.outside_at, plan.results_at)
        )

    def emit(self) -> None:
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        layer, zero_point = plan.layer, plan.layer.instruction.left_zero_point
        self._fill(self.frame.scratch, plan.taps.columns_nbytes // 4, word32(zero_point * 0x10001))
        self._fill(self.outside, plan.outside_words, word32((zero_point & 0xFF) * 0x1010101))
        nbytes = self.output.nbytes
        first = builder.mul(self.frame.y0, I32(layer.out.row * nbytes))
        start = dsp.at(dsp.at(self.frame.target, layer.out.offset * nbytes), first)
        pairs = builder.lshr(builder.add(builder.sub(self.frame.y1, self.frame.y0), I32(1)), I32(1))

        def rows(image: Value, out: Value, number: Value) -> None:
            with dsp.repeat(1 if layer.geometry.output[1] <= 2 else pairs, [out, self.frame.y0]) as lines:
                line, row = lines.values
                self._pair(image, line, row, number)
                lines.next = (dsp.at(line, 2 * layer.out.row * nbytes), builder.add(row, I32(2)))

        self.each_image(start, rows)

    def _fill(self, into: Value, count: int, word: int) -> None:
        with self.dsp.repeat(count, [into]) as carried:
            self.dsp.store_word(I32(word), carried.values[0])
            carried.next = (self.dsp.at(carried.values[0], 4),)

    def _pair(self, image: Value, out: Value, row: Value, number: Value) -> None:
        """Output rows `row` and the next one, if that is wanted."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        g = plan.layer.geometry
        top = builder.sub(builder.mul(row, I32(g.stride[0])), I32(g.pad_top))
        for place, offset in enumerate(plan.taps.offsets):
            which = builder.add(top, I32(offset))
            inside = builder.icmp_unsigned("<", which, I32(g.input[1]))
            there = dsp.at(image, builder.mul(which, I32(g.input[2] * g.input[3])))
            address = builder.ptrtoint(builder.select(inside, there, self.outside), I32)
            dsp.store_word(address, self.rows, 4 * place)
        stride = plan.layer.out.row if plan.is_direct else plan.result_nbytes
        has_two = builder.icmp_signed("<", builder.add(row, I32(1)), self.frame.y1)
        step = builder.select(has_two, I32(stride), I32(0))
        target = out if plan.is_direct else self.results
        plan.taps.call(dsp, self.rows, self.frame.table, target, step, self.frame.scratch)
        if not plan.is_direct:
            self._finish(out, (number, row), has_two)

    # What follows.

    def _finish(self, out: Value, place: tuple[Value, Value], has_two: Value) -> None:
        """One or two rows of results through what is fused, one by one."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        number, row = place
        rows = builder.add(builder.zext(has_two, I32), I32(1))
        with dsp.repeat(rows, [self.results, out, row]) as lines:
            from_, to, y = lines.values
            with dsp.repeat(plan.layer.geometry.output[2], [from_, to, I32(0)]) as carried:
                results, here, x = carried.values
                behind = self._pixel(results, here, {0: number, 1: y, 2: x})
                forward = dsp.at(here, plan.layer.out.pixel * self.output.nbytes)
                carried.next = (behind, forward, builder.add(x, I32(1)))
            forward = dsp.at(to, plan.layer.out.row * self.output.nbytes)
            lines.next = (dsp.at(from_, plan.result_nbytes), forward, builder.add(y, I32(1)))

    def _pixel(self, results: Value, out: Value, axes: dict[int, Value]) -> Value:
        """A pixel's channels. Returns where the next pixel's results are."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        g, rescaling = plan.layer.geometry, plan.taps.rescaling
        with dsp.repeat(g.output[3], [results, out, I32(0)]) as carried:
            from_, to, channel = carried.values
            if g.multiplier > 1:
                axes = {**axes, 3: builder.udiv(channel, I32(g.multiplier)), 4: builder.urem(channel, I32(g.multiplier))}
            else:
                axes = {**axes, 3: channel}
            if rescaling is None:
                biases = dsp.at(self.frame.table, plan.words.nbytes - 4 * g.output[3])
                bias = dsp.word(dsp.at(biases, builder.shl(channel, I32(2))))
                self.output.finish(plan.layer.instruction.result, to, builder.add(dsp.word(from_), bias), axes)
            else:
                self.output.store([(to, dsp.byte(from_), axes)])
            forward = dsp.at(from_, plan.taps.element_nbytes), dsp.at(to, self.output.nbytes)
            carried.next = (*forward, builder.add(channel, I32(1)))
        return carried.results[0]
