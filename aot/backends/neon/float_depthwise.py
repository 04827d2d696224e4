"""Float32 depthwise convolutions: a few neighbouring pixels of four or eight channels at a time, their sums in registers.

Enters: contractions. Leaves: `Implementation`s, or the sentence why not.
Invariant: a column or row outside the image is not read: its products are left out of the code, or out of the loop.

A row's pixels are divided in tiles. Those whose windows are inside the image share one loop; each other one has code of its own.
Where no multiple of four channels is left over, the last four channels are computed once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np

from aot.backends.neon.float_layer import FloatLayer, is_wide, read_float_layer
from aot.backends.neon.float_rows import Frame
from aot.backends.neon.float_streams import Streams
from aot.backends.neon.simd_float import LANES, NBYTES, Floats, zipped
from aot.graph.ir import DType
from aot.graph.primitive import Geometry, Primitive
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, Value
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.program import Buffer, Program
from aot.target import Target

_STRAIGHT_TAPS = 20  # of a window, up to which its rows are no loop
_MULTIPLIERS = (1, 2, 4, 8)


def claim_depthwise(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Depthwise convolutions of any kernel, stride, dilation and padding."""
    layer = read_float_layer(program, instruction, target, "depthwise")
    if isinstance(layer, str):
        return layer
    g = layer.geometry
    if g.multiplier not in _MULTIPLIERS:
        return f"{g.multiplier} outputs for each input channel: the kernel is for 1, 2, 4 and 8"
    if g.output[3] < LANES:
        return f"{g.output[3]} channels: fewer than a vector has lanes"
    if g.multiplier == 2 and g.output[3] % (2 * LANES):
        return f"{g.output[3]} channels, two for each input channel: the kernel takes eight at a time"
    plan = _Plan(layer, 32 if is_wide(target) else 16)
    name, data = f"{layer.instruction.out}.taps", plan.table
    taps = Buffer(name, DType.FLOAT32, data.shape, "constant", data=data, align=8)
    return Implementation(
        kernel=f"float depthwise {g.kernel[0]}x{g.kernel[1]}",
        instruction=layer.instruction,
        reads=layer.reads,
        writes=(layer.instruction.out,),
        constants=(taps, *layer.constants),
        emit=lambda function: _Emitter(function, plan, name).emit(),
        overwrites=() if plan.overlapped else layer.overwrites,
        rows=Rows(g.output[1], 1, images=g.output[0]),
        scatters=plan.scatters,
        style="ordered",
        notes=(f"{plan.pixels} pixels of {plan.width} channels at a time",),
        cost=plan.cost,
    )


@dataclass(frozen=True)
class _Tile:
    """Pixels [first, first + pixels) of a row, `times` of them one after the other."""

    first: int
    pixels: int
    times: int = 1


@dataclass(frozen=True)
class _Plan:
    """All decisions for one layer. registers: vectors that the core has."""

    layer: FloatLayer
    registers: int

    @property
    def geometry(self) -> Geometry:
        return self.layer.geometry

    @property
    def width(self) -> int:
        """Output channels of a block: eight, unless there are fewer, or four of each input channel."""
        g = self.geometry
        if g.multiplier == LANES or g.output[3] < 2 * LANES:
            return LANES
        wide = self.registers == 32 or g.multiplier in (2, 8)
        return 2 * LANES if wide else LANES

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """(first channel, channels) of each."""
        channels = self.geometry.output[3]
        found = [(first, self.width) for first in range(0, channels - self.width + 1, self.width)]
        done = len(found) * self.width
        if channels - done >= LANES:
            found.append((done, LANES))
            done += LANES
        if done < channels:
            found.append((channels - LANES, LANES))
        return found

    @property
    def overlapped(self) -> bool:
        """Whether some channels are computed twice."""
        return self.geometry.output[3] % LANES != 0

    @property
    def is_straight(self) -> bool:
        """Whether the rows of a window have code of their own each."""
        return self.geometry.kernel[0] * self.geometry.kernel[1] <= _STRAIGHT_TAPS

    @cached_property
    def pixels(self) -> int:
        """Of a tile: what takes fewest instructions."""
        vectors = self.width // LANES
        most = (self.registers - min(self.geometry.kernel[1], 5) * vectors - vectors) // vectors
        fitting = range(1, min(max(most, 1), 10, self.geometry.output[2]) + 1)
        return min(fitting, key=lambda pixels: (self._row_instructions(pixels), pixels))

    def tiles(self, pixels: int) -> list[_Tile]:
        """Those of a row; inner ones that follow each other are one, several times."""
        width = self.geometry.output[2]
        firsts = [*range(0, width - pixels + 1, pixels)]
        found: list[_Tile] = []
        for inner, group in groupby(firsts, key=lambda first: self._is_inside(first, pixels)):
            starts = list(group)
            found += [_Tile(starts[0], pixels, len(starts))] if inner else [_Tile(first, pixels) for first in starts]
        rest = width % pixels
        return found + ([_Tile(width - rest, rest)] if rest else [])

    def column(self, pixel: int, tap: int) -> int:
        """The input column that a tap meets; it may be outside."""
        g = self.geometry
        return pixel * g.stride[1] + tap * g.dilation[1] - g.pad_left

    def has_column(self, column: int) -> bool:
        return 0 <= column < self.geometry.input[2]

    def _is_inside(self, first: int, pixels: int) -> bool:
        last = self.column(first + pixels - 1, self.geometry.kernel[1] - 1)
        return self.has_column(self.column(first, 0)) and self.has_column(last)

    @cached_property
    def row_ranges(self) -> tuple[tuple[range, range], ...]:
        """(output rows, rows of the kernel that are inside the image for them)."""
        g, found = self.geometry, []

        def inside(y: int) -> range:
            rows = [y * g.stride[0] + tap * g.dilation[0] - g.pad_top for tap in range(g.kernel[0])]
            met = [tap for tap, row in enumerate(rows) if 0 <= row < g.input[1]]
            return range(met[0], met[-1] + 1) if met else range(0)

        for taps, group in groupby(range(g.output[1]), key=inside):
            rows = list(group)
            found.append((range(rows[0], rows[-1] + 1), taps))
        return tuple(found)

    @property
    def table(self) -> np.ndarray:
        """For each block: bias, then weights, tap by tap."""
        layer = self.layer
        weights = layer.weights.reshape(len(layer.bias), -1)
        parts = []
        for first, width in self.blocks:
            channels = slice(first, first + width)
            parts += [layer.bias[channels], weights[channels].T.reshape(-1)]
        return np.concatenate(parts)

    def block_nbytes(self, width: int) -> int:
        """Of a block's part of the table."""
        return 4 * width * (1 + self.geometry.kernel[0] * self.geometry.kernel[1])

    @property
    def scatters(self) -> tuple[str, ...]:
        layer = self.layer
        source = (layer.instruction.left.buffer,) if layer.scatters_input and self.is_straight else ()
        return (*source, *((layer.instruction.out,) if layer.scatters_output else ()))

    def _tile_instructions(self, tile: _Tile) -> float:
        """Of a tile and a block; rows of the kernel that are outside the image are left out."""
        g, vectors = self.geometry, self.width // LANES
        columns = [self.column(tile.first + pixel, tap) for pixel in range(tile.pixels) for tap in range(g.kernel[1])]
        inside = [column for column in columns if self.has_column(column)]
        rows = sum(len(rows) * len(taps) for rows, taps in self.row_ranges) / g.output[1]
        per_input = vectors if g.multiplier < LANES else 1
        per_row = len(set(inside)) * per_input + g.kernel[1] * (vectors + 1) // 2 + len(inside) * vectors
        ending = self.layer.ending.instructions
        return rows * (per_row + (1 if self.is_straight else 5)) + tile.pixels * vectors * (1.9 + ending) + 6

    def _row_instructions(self, pixels: int) -> float:
        blocks = self.geometry.output[3] / self.width
        return sum(tile.times * (blocks * self._tile_instructions(tile) + 8) for tile in self.tiles(pixels))

    @property
    def cost(self) -> Cost:
        images, height = self.geometry.output[:2]
        codes = sum(map(self._tile_instructions, self.tiles(self.pixels))) * len({width for _, width in self.blocks})
        copies = len(self.row_ranges) if self.is_straight else 1 / self.geometry.kernel[0]
        instructions = 20 + images * height * (15 + self._row_instructions(self.pixels))
        return Cost(int(instructions), 4 * int(codes * copies + 60), step_instructions=25)


class _Emitter:
    """Emits one layer's function."""

    def __init__(self, function: KernelFunction, plan: _Plan, table: str) -> None:
        self.function, self.plan, self.table = function, plan, table
        self.frame = Frame(function, plan.layer)
        self.floats: Floats = self.frame.floats

    def emit(self) -> None:
        if not self.plan.is_straight:
            self.frame.each_row(self._rolled_row)
            return
        for rows, taps in self.plan.row_ranges:
            self.frame.each_row(lambda image, y, out, taps=taps: self._straight_row(image, y, out, taps), rows)

    # Rows.

    def _straight_row(self, image: Value, y: Value, out: Streams, taps: range) -> None:
        rows = [self.frame.input_row(image, self.frame.tap_row(y, tap)) for tap in taps]
        self._tiles(rows, out, _Straight(self, taps))

    def _rolled_row(self, image: Value, y: Value, out: Streams) -> None:
        """The kernel's rows are a loop over those inside the image."""
        g, builder = self.plan.geometry, self.function.builder
        above = builder.sub(I32(g.pad_top), builder.mul(y, I32(g.stride[0])))
        first, behind = self._steps(above), self._steps(builder.add(above, I32(g.input[1])))
        behind = builder.select(builder.icmp_signed("<", behind, I32(g.kernel[0])), behind, I32(g.kernel[0]))
        row = builder.sub(builder.mul(first, I32(g.dilation[0])), above)
        self._tiles([self.frame.input_row(image, row)], out, _Rolled(self, first, behind))

    def _steps(self, distance: Value) -> Value:
        """Rows of the kernel that a distance in rows has, rounded up; none for a negative one."""
        builder, dilation = self.function.builder, self.plan.geometry.dilation[0]
        positive = builder.select(builder.icmp_signed(">", distance, I32(0)), distance, I32(0))
        return positive if dilation == 1 else builder.udiv(builder.add(positive, I32(dilation - 1)), I32(dilation))

    def _tiles(self, rows: list[Value], out: Streams, window: _Straight | _Rolled) -> None:
        """All tiles of a row. rows: the first bytes of input rows."""
        plan, g = self.plan, self.plan.geometry
        for tile in plan.tiles(plan.pixels):
            origin = max(plan.column(tile.first, 0), 0) if tile.times == 1 else plan.column(tile.first, 0)
            starts = [self.floats.at(row, 4 * origin * g.input[3]) for row in rows]
            streams = out.moved(tile.first)
            if tile.times == 1:
                self._blocks(tile, origin, starts, streams, window)
                continue
            with self.function.carried_loop(0, tile.times, [*starts, *streams.pointers]) as carried:
                starts, pointers = carried.values[: len(rows)], carried.values[len(rows) :]
                streams = out.at(pointers)
                self._blocks(tile, origin, list(starts), streams, window)
                step = 4 * tile.pixels * g.stride[1] * g.input[3]
                moved = [self.floats.at(start, step) for start in starts]
                carried.next = (*moved, *streams.moved(tile.pixels).pointers)

    # Channels.

    def _blocks(self, tile: _Tile, origin: int, rows: list[Value], out: Streams, window: _Straight | _Rolled) -> None:
        """All channels of a tile. rows: at column `origin` of input rows."""
        plan, table = self.plan, self.function.pointer(self.table)
        width, multiplier = plan.width, plan.geometry.multiplier
        whole = sum(each == width and first % width == 0 for first, each in plan.blocks)
        in_step = 4 * width // multiplier
        if whole > 1:
            with self.function.carried_loop(0, whole, [table, *rows, *out.pointers]) as carried:
                table, *pointers = carried.values
                inner, streams = pointers[: len(rows)], out.at(pointers[len(rows) :])
                self._block(tile, origin, inner, streams, table, width, window)
                moved = [self.floats.at(row, in_step) for row in inner]
                carried.next = (
                    self.floats.at(table, plan.block_nbytes(width)),
                    *moved,
                    *streams.moved(channels=width).pointers,
                )
            table, rows, out = (
                carried.results[0],
                list(carried.results[1 : 1 + len(rows)]),
                out.at(carried.results[1 + len(rows) :]),
            )
            done = whole * width
        else:
            done = 0
        for first, each in plan.blocks[whole if whole > 1 else 0 :]:
            inner = [self.floats.at(row, 4 * (first - done) // multiplier) for row in rows]
            self._block(tile, origin, inner, out.moved(channels=first - done), table, each, window)
            table = self.floats.at(table, plan.block_nbytes(each))

    def _block(
        self, tile: _Tile, origin: int, rows: list[Value], out: Streams, table: Value, width: int, window: _Straight | _Rolled
    ) -> None:
        bias = [self.floats.load(table, NBYTES * number) for number in range(width // LANES)]
        sums = window.add(tile, origin, rows, self.floats.at(table, 4 * width), [list(bias) for _ in range(tile.pixels)])
        out.store(sums, width)

    def add_row(self, tile: _Tile, origin: int, row: Value, weights: Value, sums: Sequence[Sequence[Value]]) -> list[list[Value]]:
        """Sums with the products of one row of the kernel. weights: that row's."""
        plan, floats = self.plan, self.floats
        found, vectors = [list(one) for one in sums], len(sums[0])
        taps = range(plan.geometry.kernel[1])
        met: dict[int, list[tuple[int, int]]] = {}
        for pixel in range(tile.pixels):
            for tap in taps:
                met.setdefault(plan.column(tile.first + pixel, tap), []).append((pixel, tap))
        loaded = [[floats.load(weights, NBYTES * (tap * vectors + at)) for at in range(vectors)] for tap in taps]
        for column in sorted(filter(plan.has_column, met)):
            inputs = self._inputs(row, 4 * (column - origin) * plan.geometry.input[3], vectors)
            for pixel, tap in met[column]:
                for at in range(vectors):
                    found[pixel][at] = floats.multiply_add(found[pixel][at], inputs[at], loaded[tap][at])
        return found

    def _inputs(self, row: Value, nbytes: int, vectors: int) -> list[Value]:
        """The inputs of so many vectors of output channels."""
        multiplier, floats = self.plan.geometry.multiplier, self.floats
        if multiplier == 1:
            return [floats.load(row, nbytes + NBYTES * at) for at in range(vectors)]
        if multiplier == 2:
            return zipped(floats, floats.load(row, nbytes))
        return [floats.splat(row, nbytes)] * vectors


@dataclass(frozen=True)
class _Straight:
    """The kernel's rows `taps`, one after the other."""

    emitter: _Emitter
    taps: range

    def add(self, tile: _Tile, origin: int, rows: list[Value], weights: Value, sums: list[list[Value]]) -> list[list[Value]]:
        columns = self.emitter.plan.geometry.kernel[1]
        for row, tap in zip(rows, self.taps, strict=True):
            own = self.emitter.floats.at(weights, NBYTES * len(sums[0]) * columns * tap)
            sums = self.emitter.add_row(tile, origin, row, own, sums)
        return sums


@dataclass(frozen=True)
class _Rolled:
    """The kernel's rows [first, behind), in a loop."""

    emitter: _Emitter
    first: Value
    behind: Value

    def add(self, tile: _Tile, origin: int, rows: list[Value], weights: Value, sums: list[list[Value]]) -> list[list[Value]]:
        emitter, g = self.emitter, self.emitter.plan.geometry
        vectors = len(sums[0])
        row_nbytes = NBYTES * vectors * g.kernel[1]
        weights = emitter.floats.at(weights, emitter.function.builder.mul(self.first, I32(row_nbytes)))
        flat = [vector for own in sums for vector in own]
        with emitter.function.carried_loop(self.first, self.behind, [*rows, weights, *flat]) as carried:
            row, weights, *flat = carried.values
            added = emitter.add_row(tile, origin, row, weights, [flat[at : at + vectors] for at in range(0, len(flat), vectors)])
            moved = emitter.floats.at(row, 4 * g.input[2] * g.input[3] * g.dilation[0])
            carried.next = (moved, emitter.floats.at(weights, row_nbytes), *(vector for own in added for vector in own))
        flat = list(carried.results[2:])
        return [flat[at : at + vectors] for at in range(0, len(flat), vectors)]
