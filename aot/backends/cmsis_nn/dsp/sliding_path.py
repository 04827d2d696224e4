"""How a sliding depthwise kernel goes over an image: bands of strips from above, and a strip's columns from the left.

Enters: a depthwise geometry. Leaves: numbers only.
Invariant: each output row is in one strip of one band; the bands' strips and each strip's columns are in the order of the emitted code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from aot.graph.primitive import Geometry

TURN = 3
"""Turns of a loop have a multiple of that many columns: then sums are in the same registers again."""
_REACH = 4095  # of LDRSB and LDRSH, in bytes


@dataclass(frozen=True)
class Band:
    """Strips alike, which begin at the output rows range(first, stop, 2). rows: which of the four input rows exist, and are needed;
    height: output rows of a strip."""

    first: int
    stop: int
    rows: tuple[bool, ...]
    height: int

    @property
    def strips(self) -> int:
        return (self.stop - self.first + 1) // 2


@dataclass(frozen=True)
class Path:
    """turn: columns in a turn of the loop over a strip, where there are many strips; other strips have short turns. element: bytes of an
    input."""

    geometry: Geometry
    turn: int
    element: int = 1

    @property
    def refusal(self) -> str | None:
        """Why there is none."""
        g = self.geometry
        if g.kernel[0] != 3 or g.kernel[1] > 3 or g.stride != (1, 1) or g.dilation != (1, 1):
            return "not a kernel of three rows, and stride 1"
        if g.multiplier > 1 or g.output[1] == 1:
            return "several outputs for each input channel, or one output row"
        if any(not self.taps(x) for x in range(g.output[2])):
            return "an output column that reads none of the image"
        if 3 * self.row_nbytes + self._straight * self.pixel_nbytes > _REACH:
            return "rows beyond the reach of loads"
        return None

    @property
    def _straight(self) -> int:
        """Columns read from one pointer, at most."""
        found = 0
        for band in self.bands:
            start, turns, turn = self.loop(band)
            found = max(found, start, turn if turns else 0, len(self.columns) - start - turns * turn)
        return found

    @property
    def row_nbytes(self) -> int:
        return self.geometry.input[2] * self.pixel_nbytes

    @property
    def pixel_nbytes(self) -> int:
        return self.geometry.input[3] * self.element

    @property
    def columns(self) -> range:
        """The input columns that outputs read."""
        g = self.geometry
        return range(min(g.input[2], g.output[2] + g.kernel[1] - 1 - g.pad_left))

    def taps(self, x: int) -> range:
        """The kernel columns of output column x that lie in the image."""
        g = self.geometry
        return range(max(0, g.pad_left - x), min(g.kernel[1], g.input[2] + g.pad_left - x))

    def outputs(self, column: int) -> dict[int, int]:
        """The output column to which each kernel column takes an input column."""
        g = self.geometry
        reached = {tap: column + g.pad_left - tap for tap in range(g.kernel[1])}
        return {tap: x for tap, x in reached.items() if 0 <= x < g.output[2]}

    @cached_property
    def biases(self) -> tuple[range, ...]:
        """The sets of kernel columns inside the image, each of which has a bias of its own; all columns first."""
        return tuple(dict.fromkeys([range(self.geometry.kernel[1]), *map(self.taps, range(self.geometry.output[2]))]))

    @cached_property
    def bands(self) -> tuple[Band, ...]:
        """All strips, from above."""
        g, found = self.geometry, list[Band]()
        for y in range(0, g.output[1], 2):
            height, top = min(2, g.output[1] - y), y - g.pad_top
            rows = tuple(0 <= top + row < g.input[1] and row < height + 2 for row in range(4))
            if found and (found[-1].rows, found[-1].height) == (rows, height):
                found[-1] = Band(found[-1].first, y + height, rows, height)
            else:
                found.append(Band(y, y + height, rows, height))
        return tuple(found)

    def loop(self, band: Band) -> tuple[int, int, int]:
        """First column, turns, and columns in a turn of the loop; no turns where the columns are too few.

        At all of a loop's columns the same happens: an output begins with all kernel columns before it, and one ends.
        """
        g = self.geometry
        turn = self.turn if band.strips > 1 else TURN
        whole = [x for x in range(g.output[2]) if len(self.taps(x)) == g.kernel[1]]
        start = max(min(1, g.kernel[1] - 1), g.kernel[1] - 1 - g.pad_left)
        turns = max(0, whole[-1] - g.pad_left + 1 - start) // turn if whole else 0
        return (start, turns, turn) if turns > 1 else (0, 0, turn)

    def code_columns(self, band: Band) -> int:
        """Columns of straight code."""
        _, turns, turn = self.loop(band)
        return len(self.columns) - max(0, turns - 1) * turn


def turns_for(geometry: Geometry) -> Sequence[int]:
    """Columns in a turn worth trying: few for little code; many, but such that few are left over."""
    columns = geometry.output[2] - geometry.kernel[1]
    long = min((12, 9, 6), key=lambda turn: (columns % turn, -turn))
    return (TURN, long) if columns >= 2 * TURN else (TURN,)
