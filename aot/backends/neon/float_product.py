"""The matrix product of float32: blocks of pixels by channels whose sums stay in registers, FMLA by lane.

Enters: windows in memory (runs of floats at fixed distances), weights packed in panels. Leaves: sums as vectors of four channels.
Invariant: the sums of a block begin as the bias; nothing behind a run is read but where `slack` says that something lies there.

A panel is, for a number of channels: their bias, then their weights, window element by window element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from aot.backends.neon.simd_float import LANES, NBYTES, Floats
from aot.llvm.types import Value

_PAIR_NBYTES = 1024  # of weights that loads of pairs reach from one address
_REACH_NBYTES = 60_000  # that a load reaches from one address


@dataclass(frozen=True)
class Window:
    """What one output pixel reads: levels of (count, distance in bytes) around a run of so many floats.

    slack: whether three floats behind each run may be read.
    """

    levels: tuple[tuple[int, int], ...]
    run: int
    slack: bool = False

    @property
    def taps(self) -> int:
        return int(np.prod([count for count, _ in self.levels], dtype=np.int64)) * self.run


@dataclass(frozen=True)
class Block:
    """pixels x channels, of windows that begin `step` bytes apart. channels: a multiple of four."""

    pixels: int
    channels: int
    window: Window
    step: int
    is_wide: bool = True

    @property
    def vectors(self) -> int:
        return self.channels // LANES

    @property
    def unrolled(self) -> int:
        """Vectors of a run that one turn of its loop takes."""
        limit = max(1, _PAIR_NBYTES // (NBYTES * self.channels)) if self.is_wide else 1
        whole = self.window.run // LANES
        return next((n for n in range(min(limit, whole), limit // 2, -1) if whole % n == 0), min(limit, max(whole, 1)))

    @property
    def instructions(self) -> float:
        """Of the sums of one block."""
        rows, run = self.window.taps // self.window.run, self.window.run
        whole, rest = divmod(run, LANES)
        loads = whole * self.pixels + (self.pixels if rest else 0) + run * -(-self.vectors // 2)
        turns = whole / self.unrolled
        return rows * (loads + self.pixels * self.vectors * run + 4 * turns) + 4 * rows + self.pixels * self.vectors

    def emit(self, floats: Floats, source: Value, panel: Value) -> list[list[Value]]:
        """The sums, pixel by pixel."""
        bias = [floats.load(panel, NBYTES * number) for number in range(self.vectors)]
        sums = [vector for _ in range(self.pixels) for vector in bias]
        _, sums = self._level(floats, 0, source, floats.at(panel, NBYTES * self.vectors), sums)
        return [sums[at : at + self.vectors] for at in range(0, len(sums), self.vectors)]

    def _level(self, floats: Floats, depth: int, source: Value, panel: Value, sums: list[Value]) -> tuple[Value, list[Value]]:
        if depth == len(self.window.levels):
            return self._run(floats, source, panel, sums)
        count, step = self.window.levels[depth]
        if count == 1:
            return self._level(floats, depth + 1, source, panel, sums)
        with floats.function.carried_loop(0, count, [source, panel, *sums]) as carried:
            source, panel, *sums = carried.values
            next_panel, sums = self._level(floats, depth + 1, source, panel, sums)
            carried.next = (floats.at(source, step), next_panel, *sums)
        return carried.results[1], list(carried.results[2:])

    def _run(self, floats: Floats, source: Value, panel: Value, sums: list[Value]) -> tuple[Value, list[Value]]:
        turn = self.unrolled
        turns, rest = divmod(self.window.run, LANES * turn)
        if turns == 1:
            rest, turns = self.window.run, 0
        if turns:
            with floats.function.carried_loop(0, turns, [source, panel, *sums]) as carried:
                source, panel, *sums = carried.values
                sums = self._straight(floats, source, panel, sums, LANES * turn, False)
                carried.next = (floats.at(source, NBYTES * turn), floats.at(panel, NBYTES * turn * self.channels), *sums)
            source, panel, *sums = carried.results
        sums = self._straight(floats, source, panel, list(sums), rest, self.window.slack)
        return floats.at(panel, 4 * rest * self.channels), sums

    def _straight(self, floats: Floats, source: Value, panel: Value, sums: list[Value], length: int, slack: bool) -> list[Value]:
        """A part of a run, without a loop."""
        sums = list(sums)
        for start in range(0, length, LANES):
            count = min(LANES, length - start)
            known = LANES if slack else count
            inputs = [floats.load(source, pixel * self.step + 4 * start, known) for pixel in range(self.pixels)]
            for lane in range(count):
                for first in range(0, self.vectors, 2):
                    vectors = range(first, min(first + 2, self.vectors))
                    weights = [floats.load(panel, 4 * (start + lane) * self.channels + NBYTES * vector) for vector in vectors]
                    for pixel in range(self.pixels):
                        value = floats.lane(inputs[pixel], lane)
                        for vector, weight in zip(vectors, weights, strict=True):
                            at = pixel * self.vectors + vector
                            sums[at] = floats.multiply_add(sums[at], weight, value)
        return sums


def pack(weights: np.ndarray, bias: np.ndarray, widths: Sequence[int]) -> np.ndarray:
    """The panels of these widths, one after the other. weights: (channels, taps)."""
    channels, taps = weights.shape
    first = 0
    panels: list[np.ndarray] = []
    for width in widths:
        count = min(width, channels - first)
        panel = np.zeros((1 + taps, width), np.float32)
        panel[0, :count], panel[1:, :count] = bias[first : first + count], weights[first : first + count].T
        panels.append(panel.reshape(-1))
        first += count
    return np.concatenate(panels)


@dataclass(frozen=True)
class Tiling:
    """How a row of `pixels` pixels and all channels are divided in blocks: most of `block`, and smaller ones at the ends."""

    pixels: int
    channels: int
    block: Block

    @property
    def panels(self) -> int:
        """Panels of the block's width."""
        return self.channels // self.block.channels

    @property
    def last(self) -> int:
        """The width of the panel behind them, of as many vectors as it needs; 0 if there is none."""
        return -(-(self.channels % self.block.channels) // LANES) * LANES

    @property
    def widths(self) -> list[int]:
        return [self.block.channels] * self.panels + [self.last] * bool(self.last)

    def panel_nbytes(self, width: int) -> int:
        return 4 * width * (1 + self.block.window.taps)

    def blocks(self) -> list[tuple[Block, int]]:
        """The blocks of a row, with how often each is computed."""
        found: list[tuple[Block, int]] = []
        for width, count in ((self.block.channels, self.panels), (self.last, 1)):
            for pixels, times in ((self.block.pixels, self.pixels // self.block.pixels), (self.pixels % self.block.pixels, 1)):
                if width and count and pixels and times:
                    found.append((replace(self.block, pixels=pixels, channels=width), count * times))
        return found

    def instructions(self, ending: float) -> float:
        """Of a row; ending: for each vector of results, besides its store."""
        found = 12.0 + 8 * len(self.widths)
        for block, times in self.blocks():
            vectors = block.pixels * block.vectors
            found += times * (block.instructions + vectors * (ending + 0.75) + 6)
        return found


def choose_tiling(pixels: int, channels: int, window: Window, step: int, ending: float, registers: int) -> Tiling:
    """The tiling of fewest instructions whose sums, inputs and two vectors of weights fit into the registers."""
    most = 8 if registers == 32 else 4
    found: list[Tiling] = []
    for width in range(LANES, 13 * LANES, LANES):
        for count in range(1, min(most, pixels) + 1):
            fits = count * (width // LANES) + count + 2 <= registers and (count - 1) * step < _REACH_NBYTES
            if fits and width <= -(-channels // LANES) * LANES:
                found.append(Tiling(pixels, channels, Block(count, width, window, step, registers == 32)))
    return min(found, key=lambda one: one.instructions(ending))
