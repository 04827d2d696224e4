# pyright: basic
"""Depthwise convolutions: block by block of output rows, whose input rows are padded in scratch first, then eight channels at a time.

Enters: contractions. Leaves: `Implementation`s, or the sentence why not.
Invariant: nothing outside the image is read; a row that is not there is one of zero points in scratch, and an output row that nobody
asked for is stored there.

Input rows come to scratch in *lines*: one row, or four with their bytes by turns (`depthwise_products.py` says what is multiplied).
Along a line a column stays in registers while the windows that share it are computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from aot.backends.layers.fused import operands_of, scatterable, scatterable_output
from aot.backends.layers.operands import Layer, read_layer
from aot.backends.neon.depthwise_products import UNIT, DotProducts, HalfSums, Products
from aot.backends.neon.ending import Ending
from aot.backends.neon.memory import Span, copy, fill, interleave, repeat, spread
from aot.backends.neon.rest import Rest, instructions
from aot.backends.neon.simd import WORDS4, Simd
from aot.graph.ir import DType
from aot.graph.primitive import Geometry, Primitive
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, Value
from aot.llvm.volatile import volatile_load
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.inplace import elementwise_overwrites
from aot.lower.program import Buffer, Program
from aot.target import Target

_MOST_ROWS = 3  # of outputs in a block
_MOST_STRAIGHT = 6  # pixels of a row without a loop
_MOST_CARRIED = 8  # vectors of columns that stay in registers from turn to turn
_MOST_IMAGES = 8
_MOST_HELD = (32, 64, 48)  # vectors of weights and windows: where there are 16 registers, and 32 for vectors of 8 and of 16 bytes
_ALIGN = 8


def claim_depthwise(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Depthwise convolutions of any kernel, stride, dilation, padding and number of filters for a channel."""
    if "neon" not in target.has:
        return f"{target.name} has no Advanced SIMD (NEON)"
    layer = read_layer(program, instruction, target, "depthwise")
    if isinstance(layer, str):
        return layer
    g = layer.geometry
    if g.input[0] > _MOST_IMAGES:
        return f"{g.input[0]} images (at most {_MOST_IMAGES})"
    ending = Ending.of(layer)
    kind = DotProducts if "dotprod" in target.has else HalfSums
    registers = 32 if target.pointer_bits == 64 else 16
    plans = [Plan(layer, ending, kind(layer, rows), registers) for rows in range(1, _MOST_ROWS + 1)]
    plan = min(plans, key=lambda one: one.instructions)
    data = plan.table()
    table = Buffer(f"{layer.instruction.out}.packed", DType.INT32, data.shape, "constant", data=data, align=_ALIGN)
    reads, constants = operands_of(program, layer.instruction, layer.split.rest)
    return Implementation(
        kernel=f"depthwise {g.kernel[0]}x{g.kernel[1]}",
        instruction=layer.instruction,
        reads=reads,
        writes=(layer.instruction.out,),
        constants=(table, *constants),
        emit=lambda function: _Emitter(function, plan, table.name).emit(),
        scratch_nbytes=plan.scratch_nbytes,
        scratch_align=_ALIGN,
        overwrites=elementwise_overwrites(program, layer.instruction) if plan.has_rest else (),
        scatters=(*scatterable(program, layer), *scatterable_output(program, layer)),
        rows=Rows(g.output[1], plan.rows, images=g.output[0]),
        style="ordered",
        notes=(plan.ending.note(), f"{plan.products.note()}, {plan.rows} rows of outputs at a time"),
        cost=Cost(round(plan.instructions), step_instructions=60),
    )


@dataclass(frozen=True)
class Plan:
    """All decisions for one layer. registers: vectors that the core has."""

    layer: Layer
    ending: Ending
    products: Products
    registers: int

    @property
    def geometry(self) -> Geometry:
        return self.layer.geometry

    @property
    def rows(self) -> int:
        """Of outputs in a block."""
        return self.products.rows

    @cached_property
    def columns(self) -> Span:
        return Span.of(self.geometry, 1)

    @property
    def depth(self) -> int:
        """Channels of the output, and of the input, each as many times as it has filters."""
        return self.geometry.output[3]

    @property
    def has_rest(self) -> bool:
        """Whether something is fused behind the results: these stay in scratch for a block."""
        return self.layer.split.rest is not None

    @property
    def row_nbytes(self) -> int:
        """Of an image's row, as far as windows see it."""
        return self.columns.inside * self.depth

    @property
    def pixel_nbytes(self) -> int:
        """Of a pixel of a line."""
        return self.products.each * self.depth

    @property
    def out_pixel(self) -> int:
        """From a pixel's results to the next one's."""
        return self.depth if self.has_rest else self.layer.out.pixel

    @cached_property
    def line_nbytes(self) -> int:
        """Of a line, and what vectors may read beyond it."""
        return _rounded(self.columns.size * self.pixel_nbytes + self.products.each * UNIT)

    @property
    def needs_zeros(self) -> bool:
        """Whether windows may see rows outside the image."""
        rows = Span.of(self.geometry, 0)
        return bool(rows.before or rows.after) or self.rows > 1

    @cached_property
    def zeros_at(self) -> int:
        """Where in scratch a row of zero points lies."""
        return len(self.products.lines) * self.line_nbytes

    @cached_property
    def idle_at(self) -> int:
        """Where an output row goes that nobody asked for."""
        return self.zeros_at + (_rounded(self.row_nbytes) if self.needs_zeros else 0)

    @property
    def result_nbytes(self) -> int:
        """Of a row of results in scratch."""
        return _rounded(self.geometry.output[2] * self.out_pixel)

    @property
    def spread_at(self) -> int:
        """Where input rows lie whose channels come several times."""
        return self.idle_at + self.result_nbytes * (self.rows if self.has_rest else 1 if self.rows > 1 else 0)

    @property
    def scratch_nbytes(self) -> int:
        spread = len(self.products.inputs) if self.geometry.multiplier > 1 else 0
        return self.spread_at + spread * _rounded(self.row_nbytes)

    @property
    def unit(self) -> int:
        """Channels that are stored at a time."""
        return min(UNIT, self.depth)

    @property
    def is_narrow(self) -> bool:
        """Whether registers hold weights, but no windows."""
        return self.registers < 32 or self.is_streamed

    @property
    def is_streamed(self) -> bool:
        """Whether weights and windows are loaded where they are needed, each time: there are so many that the stack would hold them."""
        products = self.products
        if self.registers < 32:
            return products.weight_vectors > _MOST_HELD[0]
        return products.weight_vectors + products.window_vectors > _MOST_HELD[products.vectors]

    @cached_property
    def step(self) -> int:
        """Pixels of a turn along a line: columns come back to the same registers where windows overlap."""
        g = self.geometry
        if self.is_narrow:
            return 1
        if g.output[2] <= _MOST_STRAIGHT:
            return g.output[2]
        overlapping = g.stride[1] < g.kernel[1] and g.dilation[1] == 1
        return min(g.output[2], g.kernel[1] if overlapping and g.stride[1] == 1 else 4)

    @cached_property
    def carried(self) -> list[tuple[int, int]]:
        """The (column, line)s of a turn's first windows that the turn before has loaded, if registers hold them."""
        g = self.geometry
        columns = {x * g.stride[1] + tap * g.dilation[1] for x in range(self.step) for tap in range(g.kernel[1])}
        shared = sorted(column for column in columns if column + self.step * g.stride[1] in columns)
        found = [(column, line) for column in shared for line in range(len(self.products.lines))]
        return found if not self.is_narrow and self.products.vectors * len(found) <= _MOST_CARRIED else []

    @property
    def starts(self) -> list[int]:
        """The first channels of all units; the last begins earlier where it would not be full."""
        depth = self.depth
        return [min(first, depth - self.unit) for first in range(0, depth, self.unit)]

    @cached_property
    def grades(self) -> list[tuple[object, list[int]]]:
        """Ways to multiply, and the units (their first channels) that each is for."""
        return self.products.grades(self.starts)

    @property
    def instructions(self) -> float:
        """Counted on the code."""
        g, products = self.geometry, self.products
        each = self.rows * (2 + 2 * self.ending.instructions)
        held = products.weight_vectors / (1 if products.vectors > 1 or not self.is_narrow else 2) + 2 + 2 * self.ending.columns
        held += 0 if self.is_narrow else products.window_vectors
        spilled = max(0, held + 4 - self.registers) if not self.is_streamed else 1.25 * products.weight_vectors
        again = self.is_narrow or (not self.carried and g.output[2] > _MOST_STRAIGHT)
        loads = products.loads * (self.rows if self.is_streamed else 1 if again else min(1, g.stride[1] / g.kernel[1]))
        units = 0.0
        for grade, firsts in self.grades:
            pixel = each + loads + products.instructions(grade) + 0.8 * spilled + 5 / self.step
            pixel += 6 * self.rows if self.is_narrow and self.rows > 1 else 0  # several rows' sums are spilled
            units += len(firsts) * (16 + 0.6 * held + g.output[2] * pixel)
        if g.multiplier > 1:
            units += len(products.inputs) * self.row_nbytes / 6
        units += self.rows * g.output[2] * self.depth * instructions(self.layer)
        filled = len(products.lines) * (12 + self.row_nbytes * (2 + products.each * 1.5) / 32)
        blocks = -(-g.output[1] // self.rows)
        return 40 + g.output[0] * blocks * (10 + 8 * products.each * len(products.lines) + filled + units)

    def table(self) -> np.ndarray:
        """For each unit its first channel, weights, and its ending's numbers."""
        words: list[np.ndarray] = []
        for _, firsts in self.grades:
            for first in firsts:
                channels = [min(first + lane, self.depth - 1) for lane in range(UNIT)]
                head = np.array([first, 0, 0, 0], np.int32)
                words += [head, self.products.packed(channels), self.ending.packed(channels).reshape(-1)]
        return np.concatenate(words)

    @cached_property
    def weights_nbytes(self) -> int:
        """Of a unit's packed weights."""
        return 4 * len(self.products.packed([0] * UNIT))

    @cached_property
    def unit_nbytes(self) -> int:
        """Of a unit's part of the table."""
        return 16 + self.weights_nbytes + 4 * UNIT * (1 + self.ending.columns)


def _rounded(nbytes: int) -> int:
    return -(-nbytes // 16) * 16


class _Emitter:
    def __init__(self, function: KernelFunction, plan: Plan, table: str) -> None:
        self.function, self.plan, self.builder = function, plan, function.builder
        self.simd = Simd(function)
        self.table = function.pointer(table)

    def emit(self) -> None:
        plan, function = self.plan, self.function
        zero_point, columns = plan.layer.instruction.left_zero_point, plan.columns
        for number in range(len(plan.products.lines)):
            behind = (columns.before + columns.inside) * plan.pixel_nbytes
            for at, count in ((0, columns.before), (behind, columns.after)):
                fill(self.simd, self._scratch(number * plan.line_nbytes + at), count * plan.pixel_nbytes, zero_point)
        if plan.needs_zeros:
            fill(self.simd, self._scratch(plan.zeros_at), plan.row_nbytes, zero_point)
        for image in range(plan.geometry.input[0]):
            with function.loop(function.y0, function.y1, plan.rows) as y:
                self._block(image, y)

    def _scratch(self, nbytes: int) -> Value:
        return self.simd.at(self.function.scratch, nbytes)

    def _block(self, image: int, y: Value) -> None:
        """The output rows from y on."""
        plan, builder = self.plan, self.builder
        g = plan.geometry
        top = builder.mul(y, I32(g.stride[0])) if g.stride[0] > 1 else y
        for number, line in enumerate(plan.products.lines):
            rows = [self._input_row(image, builder.add(top, I32(row - g.pad_top)), row) for row in line]
            to = self._scratch(number * plan.line_nbytes + plan.columns.before * plan.pixel_nbytes)
            if plan.products.each == 1:
                copy(self.simd, rows[0], to, plan.row_nbytes)
            else:
                interleave(self.simd, rows, to, plan.row_nbytes)
        outs = [self._output_row(image, y, number) for number in range(plan.rows)]
        table = self.table
        for grade, firsts in plan.grades:
            with repeat(self.function, len(firsts), [table]) as carried:
                self._unit(outs, carried.values[0], grade)
                carried.next = (self.simd.at(carried.values[0], plan.unit_nbytes),)
            table = carried.results[0]
        for number in range(plan.rows if plan.has_rest else 0):
            self._rest(image, builder.add(y, I32(number)), outs[number])

    def _input_row(self, image: int, row: Value, number: int) -> Value:
        """The first byte of an input row, or of a row of zero points where there is none. number: of the block's rows."""
        plan, builder = self.plan, self.builder
        g, name = plan.geometry, plan.layer.instruction.left.buffer
        exists = builder.icmp_unsigned("<", row, I32(g.input[1]))
        if plan.needs_zeros:
            row = builder.select(exists, row, I32(0))
        if g.input[0] > 1:
            nbytes = builder.mul(builder.add(row, I32(image * g.input[1])), I32(g.input[2] * g.input[3]))
            found = self.simd.at(self.function.pointer(name), nbytes)
        else:
            found = self.function.row(name, row)
        if g.multiplier > 1:
            place = plan.products.inputs.index(number) * _rounded(plan.row_nbytes)
            to = self._scratch(plan.spread_at + place)
            spread(self.simd, found, to, plan.columns.inside * g.input[3], g.multiplier)
            found = to
        return builder.select(exists, found, self._scratch(plan.zeros_at)) if plan.needs_zeros else found

    def _rest(self, image: int, row: Value, results: Value) -> None:
        """What is fused behind an output row's results, if the step has the row."""
        plan = self.plan
        with self.builder.if_then(self.builder.icmp_signed("<", row, self.function.y1)):
            target = self.simd.at(self.function.pointer(plan.layer.instruction.out), self._row_offset(image, row))
            Rest(self.simd, plan.layer).emit(results, target, plan.geometry.output[2], (I32(image), row, 0))

    def _row_offset(self, image: int, row: Value) -> Value:
        """Bytes from the output's first to a row's."""
        out, builder = self.plan.layer.out, self.builder
        nbytes = self.function.buffer(self.plan.layer.instruction.out).dtype.nbytes
        return builder.add(builder.mul(row, I32(out.row * nbytes)), I32((out.offset + image * out.image) * nbytes))

    def _output_row(self, image: int, y: Value, number: int) -> Value:
        """Where results of an output row of the block go: to its first byte, or to scratch for a row that is beyond the step, or for what is
        fused behind."""
        plan, builder = self.plan, self.builder
        if plan.has_rest:
            return self._scratch(plan.idle_at + number * plan.result_nbytes)
        name, row = plan.layer.instruction.out, y
        if number:
            row = builder.add(y, I32(number))
            inside = builder.icmp_signed("<", row, self.function.y1)
            row = builder.select(inside, row, y)
        if name in self.function.scattered:
            found = self.function.row(name, row)
        else:
            found = self.simd.at(self.function.pointer(name), self._row_offset(image, row))
        return builder.select(inside, found, self._scratch(plan.idle_at)) if number else found

    def _unit(self, outs: Sequence[Value], table: Value, grade: object) -> None:
        """A block's rows of one unit's channels."""
        plan, simd, builder = self.plan, self.simd, self.builder
        each, width, step = plan.products.each, plan.geometry.output[2], plan.step
        source = self.function.scratch
        if len(plan.starts) > 1:
            first = simd.load(table, I32, align=4)
            source = simd.at(source, builder.mul(first, I32(each)) if each > 1 else first)
            outs = [simd.at(out, first) for out in outs]
        weights = plan.products.load(simd, simd.at(table, 16), plan.is_streamed)
        numbers = simd.at(table, 16 + plan.weights_nbytes)
        ending = [
            [simd.load(numbers, WORDS4, 32 * column + 16 * half, _ALIGN) for column in range(1 + plan.ending.columns)]
            for half in (0, 1)
        ]
        line = _Line(self, grade, weights, ending)
        turns = width // step
        known = {key: line.column(source, key) for key in plan.carried} if turns > 1 else {}
        with repeat(self.function, turns, [source, *outs, *_flat(known.values())]) as loop:
            here, there, columns = self._carried(loop.values, len(outs))
            line.pixels(here, there, step, columns)
            forward = step * plan.geometry.stride[1]
            following = [columns[column + forward, number] for column, number in known]
            moved = [simd.at(out, step * plan.out_pixel) for out in there]
            loop.next = (simd.at(here, forward * plan.pixel_nbytes), *moved, *_flat(following))
        if width % step:
            line.pixels(*self._carried(loop.results, len(outs))[:2], width % step, self._carried(loop.results, len(outs))[2])

    def _carried(
        self, values: Sequence[Value], outs: int
    ) -> tuple[Value, Sequence[Value], dict[tuple[int, int], tuple[Value, ...]]]:
        """Source, outputs, and the columns that a turn begins with."""
        flat, each = values[1 + outs :], self.plan.products.vectors
        columns = {key: tuple(flat[each * n : each * (n + 1)]) for n, key in enumerate(self.plan.carried)} if flat else {}
        return values[0], values[1 : 1 + outs], columns


def _flat(groups: Iterable[Iterable[Value]]) -> list[Value]:
    return [value for group in groups for value in group]


@dataclass
class _Line:
    """Windows side by side. weights: as the products load them; ending: for each half of a unit what sums start from, and its columns."""

    emitter: _Emitter
    grade: object
    weights: Sequence[Value]
    ending: list[list[Value]]

    def column(self, source: Value, key: tuple[int, int]) -> tuple[Value, ...]:
        """A unit's inputs in a column of a line."""
        plan, simd = self.emitter.plan, self.emitter.simd
        type = plan.products.type
        at = key[1] * plan.line_nbytes + key[0] * plan.pixel_nbytes
        if plan.is_streamed:
            places = [simd.at(source, at + type.count * number) for number in range(plan.products.vectors)]
            return tuple(volatile_load(simd.builder, place, type, 1) for place in places)
        return tuple(simd.load(source, type, at + type.count * number) for number in range(plan.products.vectors))

    def pixels(self, source: Value, outs: Sequence[Value], count: int, columns: dict[tuple[int, int], tuple[Value, ...]]) -> None:
        """`count` pixels; columns: what is loaded already, to which is added."""
        plan, simd = self.emitter.plan, self.emitter.simd
        g = plan.geometry
        start, numbers = [half[0] for half in self.ending], [half[1:] for half in self.ending]

        def window(column: int, line: int) -> tuple[Value, ...]:
            key = (x * g.stride[1] + column * g.dilation[1], line)
            if key in columns:
                return columns[key]
            found = self.column(source, key)
            if not plan.is_narrow:
                columns[key] = found
            return found

        for x in range(count):
            sums = [plan.products.sums(simd, row, self.grade, self.weights, window, start) for row in range(plan.rows)]
            for out, both in zip(outs, sums):
                simd.store_lanes(plan.ending.finish(simd, both, numbers), out, plan.unit, x * plan.out_pixel)
