"""The code of depthwise layers and pools of float32: a few neighbouring pixels of four or eight channels at a time, in registers.

Enters: a function and a `TilePlan`. Leaves: instructions.
Invariant: a column or row outside the image is not read: it is left out of the code, or out of the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from aot.backends.neon.float_rows import Frame
from aot.backends.neon.float_streams import Streams
from aot.backends.neon.float_tiling import Tile, TilePlan
from aot.backends.neon.simd_float import LANES, NBYTES, Floats, constant_floats, zipped
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, POINTER, Value


class Emitter:
    """Emits one layer's function."""

    def __init__(self, function: KernelFunction, plan: TilePlan, table: str = "") -> None:
        self.function, self.plan = function, plan
        self.table = function.pointer(table) if plan.has_weights else ir.Constant(POINTER, None)
        self.frame = Frame(function, plan.layer)
        self.floats: Floats = self.frame.floats
        self.at: tuple[Value, Value] = (I32(0), I32(0))  # image and row

    def emit(self) -> None:
        if not self.plan.is_straight:
            self.frame.each_row(self._rolled_row)
            return
        for rows, taps in self.plan.row_ranges:
            self.frame.each_row(lambda image, y, out, taps=taps: self._straight_row(image, y, out, taps), rows)

    # Rows.

    def _straight_row(self, image: Value, y: Value, out: Streams, taps: range) -> None:
        self.at = image, y
        rows = [self.frame.input_row(image, self.frame.tap_row(y, tap)) for tap in taps]
        self._tiles(rows, out, _Straight(self, taps))

    def _rolled_row(self, image: Value, y: Value, out: Streams) -> None:
        """The kernel's rows are a loop over those inside the image."""
        self.at = image, y
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
                self._blocks(tile, origin, starts, streams, window, I32(tile.first))
                continue
            with self.function.carried_loop(0, tile.times, [*starts, *streams.pointers]) as carried:
                starts, pointers = carried.values[: len(rows)], carried.values[len(rows) :]
                streams = out.at(pointers)
                builder = self.function.builder
                first = builder.add(builder.mul(carried.index, I32(tile.pixels)), I32(tile.first))
                self._blocks(tile, origin, list(starts), streams, window, first)
                step = 4 * tile.pixels * g.stride[1] * g.input[3]
                moved = [self.floats.at(start, step) for start in starts]
                carried.next = (*moved, *streams.moved(tile.pixels).pointers)

    # Channels.

    def _blocks(
        self, tile: Tile, origin: int, rows: list[Value], out: Streams, window: _Straight | _Rolled, first_pixel: Value
    ) -> None:
        """All channels of a tile. rows: at column `origin` of input rows. first_pixel: the tile's, where it is now."""
        plan, table = self.plan, self.table
        width, multiplier = plan.width, plan.geometry.multiplier
        whole = sum(each == width and first % width == 0 for first, each in plan.blocks)
        in_step = 4 * width // multiplier
        if whole > 1:
            with self.function.carried_loop(0, whole, [table, *rows, *out.pointers]) as carried:
                table, *pointers = carried.values
                inner, streams = pointers[: len(rows)], out.at(pointers[len(rows) :])
                self._block(tile, origin, inner, streams, table, width, window, first_pixel)
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
            self._block(tile, origin, inner, out.moved(channels=first - done), table, each, window, first_pixel)
            table = self.floats.at(table, plan.block_nbytes(each))

    def _block(
        self,
        tile: Tile,
        origin: int,
        rows: list[Value],
        out: Streams,
        table: Value,
        width: int,
        window: _Straight | _Rolled,
        first_pixel: Value,
    ) -> None:
        vectors = range(width // LANES)
        if self.plan.has_weights:
            start = [self.floats.load(table, NBYTES * number) for number in vectors]
            table = self.floats.at(table, 4 * width)
        else:
            start = [constant_floats(self.plan.initial) for _ in vectors]
        sums = window.add(tile, origin, rows, table, [list(start) for _ in range(tile.pixels)])
        out.store(sums, width, (*self.at, first_pixel))

    def add_row(self, tile: Tile, origin: int, row: Value, weights: Value, sums: Sequence[Sequence[Value]]) -> list[list[Value]]:
        """Sums with the products of one row of the kernel. weights: that row's."""
        plan = self.plan
        found, vectors = [list(one) for one in sums], len(sums[0])
        taps = range(plan.geometry.kernel[1])
        met: dict[int, list[tuple[int, int]]] = {}
        for pixel in range(tile.pixels):
            for tap in taps:
                met.setdefault(plan.column(tile.first + pixel, tap), []).append((pixel, tap))
        loaded = self._weights(weights, vectors)
        for column in sorted(filter(plan.has_column, met)):
            inputs = self._inputs(row, 4 * (column - origin) * plan.geometry.input[3], vectors)
            for pixel, tap in met[column]:
                for at in range(vectors):
                    found[pixel][at] = self._combined(found[pixel][at], inputs[at], loaded[tap][at] if loaded else None)
        return found

    def _weights(self, row: Value, vectors: int) -> list[list[Value]]:
        """Those of a row of the kernel, by tap; none in a pool."""
        taps = range(self.plan.geometry.kernel[1] if self.plan.has_weights else 0)
        return [[self.floats.load(row, NBYTES * (tap * vectors + at)) for at in range(vectors)] for tap in taps]

    def _combined(self, so_far: Value, value: Value, weight: Value | None) -> Value:
        """The accumulator with one more input."""
        match self.plan.combine:
            case "multiply":
                return self.floats.multiply_add(so_far, value, weight)
            case "add":
                return self.floats.builder.fadd(so_far, value)
            case "max":
                return self.floats.larger_number(so_far, value)
            case _:
                pass
        return self.floats.smaller_number(so_far, value)

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

    emitter: Emitter
    taps: range

    def add(self, tile: Tile, origin: int, rows: list[Value], weights: Value, sums: list[list[Value]]) -> list[list[Value]]:
        columns = self.emitter.plan.geometry.kernel[1]
        for row, tap in zip(rows, self.taps, strict=True):
            own = self.emitter.floats.at(weights, NBYTES * len(sums[0]) * columns * tap)
            sums = self.emitter.add_row(tile, origin, row, own, sums)
        return sums


@dataclass(frozen=True)
class _Rolled:
    """The kernel's rows [first, behind), in a loop."""

    emitter: Emitter
    first: Value
    behind: Value

    def add(self, tile: Tile, origin: int, rows: list[Value], weights: Value, sums: list[list[Value]]) -> list[list[Value]]:
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
