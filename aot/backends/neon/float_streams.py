"""Stores of float results: the output, and what is read beside it or for its channels, through pointers that move together.

Enters: a layer's ending, vectors of sums. Leaves: stores.
Invariant: of the vector that holds a row's last channels only the lanes of channels that exist are loaded and stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from aot.backends.neon.float_ending import Ending, Lanes
from aot.backends.neon.simd_float import LANES, NBYTES, Floats
from aot.graph.expr import Load
from aot.llvm.types import I32, Value


@dataclass(frozen=True)
class Streams:
    """pointers: the output's, then one for each of the ending's streams, all at one element. pixel: bytes from pixel to pixel of
    the output (and of what lies beside it)."""

    floats: Floats
    ending: Ending
    pointers: tuple[Value, ...]
    pixel: int

    def moved(self, pixels: int = 0, channels: int = 0) -> Streams:
        """The streams so many pixels and channels on."""
        beside = 1 + len(self.ending.beside)
        steps = [pixels * self.pixel * (number < beside) + 4 * channels for number in range(len(self.pointers))]
        return self.at([self.floats.at(pointer, step) for pointer, step in zip(self.pointers, steps, strict=True)])

    def at(self, pointers: tuple[Value, ...] | list[Value]) -> Streams:
        return Streams(self.floats, self.ending, tuple(pointers), self.pixel)

    def store(self, sums: list[list[Value]], channels: int, at: tuple[Value, Value, Value] | None = None) -> None:
        """Results of pixels that follow each other, from vectors of their first `channels` channels. at: image, row and column of the
        first, for an ending that asks for positions."""
        counts = [min(LANES, channels - first) for first in range(0, channels, LANES)]
        beside = 1 + len(self.ending.beside)
        numbers = [self._loaded(self.ending.channels, beside, NBYTES * number, count) for number, count in enumerate(counts)]
        for pixel, own in enumerate(sums):
            axes = {} if at is None else self._axes(at, pixel)
            for number, count in enumerate(counts):
                where = pixel * self.pixel + NBYTES * number
                operands = {**numbers[number], **self._loaded(self.ending.beside, 1, where, count)}
                result = Lanes(self.floats, self.ending, own[number], operands, axes).value(self.ending.result)
                self.floats.store(result, self.pointers[0], where, count)

    def _axes(self, at: tuple[Value, Value, Value], pixel: int) -> dict[int, Value]:
        return {0: at[0], 1: at[1], 2: self.floats.builder.add(at[2], I32(pixel))}

    def _loaded(self, loads: tuple[Load, ...], first: int, nbytes: int, count: int) -> dict[Load, Value]:
        pointers = self.pointers[first : first + len(loads)]
        return {load: self.floats.load(pointer, nbytes, count) for load, pointer in zip(loads, pointers, strict=True)}
