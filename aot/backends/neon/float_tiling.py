"""How a float layer of channels that do not mix is divided: tiles of a row's pixels, blocks of four or eight channels.

Enters: a depthwise layer or a pool. Leaves: `TilePlan`: tiles, blocks, packed weights, what it costs.
Invariant: a column or row outside the image is met by no tap of a tile.

A row's pixels are divided in tiles. Those whose windows are inside the image are one, several times; each other one has code of its own.
Where no multiple of four channels is left over, the last four channels are computed once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np

from aot.backends.neon.float_layer import FloatLayer
from aot.backends.neon.simd_float import LANES
from aot.graph.primitive import Geometry
from aot.lower.implementation import Cost

_STRAIGHT_TAPS = 20  # of a window, up to which its rows are no loop


@dataclass(frozen=True)
class Tile:
    """Pixels [first, first + pixels) of a row, `times` of them one after the other."""

    first: int
    pixels: int
    times: int = 1


@dataclass(frozen=True)
class TilePlan:
    """All decisions for one layer. registers: vectors that the core has. combine: what is done with inputs: `multiply` by weights and add
    to the bias; `add`, `max` or `min` with a number to begin with."""

    layer: FloatLayer
    registers: int
    combine: str = "multiply"
    initial: float = 0.0

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
    def has_weights(self) -> bool:
        return self.combine == "multiply"

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
        weights = min(self.geometry.kernel[1], 5) * vectors if self.has_weights else 0
        most = (self.registers - weights - vectors) // vectors
        fitting = range(1, min(max(most, 1), 10, self.geometry.output[2]) + 1)
        return min(fitting, key=lambda pixels: (self._row_instructions(pixels), pixels))

    def tiles(self, pixels: int) -> list[Tile]:
        """Those of a row; inner ones that follow each other are one, several times."""
        width = self.geometry.output[2]
        firsts = [*range(0, width - pixels + 1, pixels)]
        found: list[Tile] = []
        for inner, group in groupby(firsts, key=lambda first: self._is_inside(first, pixels)):
            starts = list(group)
            found += [Tile(starts[0], pixels, len(starts))] if inner else [Tile(first, pixels) for first in starts]
        rest = width % pixels
        return found + ([Tile(width - rest, rest)] if rest else [])

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
        g = self.geometry
        found: list[tuple[range, range]] = []

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
        """For each block: bias, then weights, tap by tap. Without weights: nothing."""
        layer = self.layer
        if not self.has_weights:
            return np.zeros(0, np.float32)
        weights = layer.weights.reshape(len(layer.bias), -1)
        parts: list[np.ndarray] = []
        for first, width in self.blocks:
            channels = slice(first, first + width)
            parts += [layer.bias[channels], weights[channels].T.reshape(-1)]
        return np.concatenate(parts)

    def block_nbytes(self, width: int) -> int:
        """Of a block's part of the table."""
        if not self.has_weights:
            return 0
        return 4 * width * (1 + self.geometry.kernel[0] * self.geometry.kernel[1])

    @property
    def scatters(self) -> tuple[str, ...]:
        layer = self.layer
        source = (layer.source,) if layer.scatters_input and self.is_straight else ()
        return (*source, *((layer.instruction.out,) if layer.scatters_output else ()))

    def _tile_instructions(self, tile: Tile) -> float:
        """Of a tile and a block; rows of the kernel that are outside the image are left out."""
        g, vectors = self.geometry, self.width // LANES
        columns = [self.column(tile.first + pixel, tap) for pixel in range(tile.pixels) for tap in range(g.kernel[1])]
        inside = [column for column in columns if self.has_column(column)]
        rows = sum(len(rows) * len(taps) for rows, taps in self.row_ranges) / g.output[1]
        per_input = vectors if g.multiplier < LANES else 1
        weights = g.kernel[1] * (vectors + 1) // 2 if self.has_weights else 0
        per_row = len(set(inside)) * per_input + weights + len(inside) * vectors
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
