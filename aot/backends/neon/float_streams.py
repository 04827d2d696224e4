"""Stores of float results: the output, and what is read beside it or for its channels, through pointers that move together.

Enters: a layer's ending, vectors of sums. Leaves: stores.
Invariant: of the vector that holds a row's last channels only the lanes of channels that exist are loaded and stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from aot.backends.neon.float_ending import Ending, Lanes, vector_type
from aot.backends.neon.simd_float import LANES, NBYTES, Floats
from aot.graph.expr import Load
from aot.graph.ir import DType
from aot.llvm.types import I32, Value, memory_type

_TOGETHER = 4  # vectors that are loaded before the first of them is stored, so that loads and stores go in pairs


@dataclass(frozen=True)
class Streams:
    """pointers: the output's, then one for each of the ending's streams, all at one element. pixel: bytes from pixel to pixel of
    the output (and of what lies beside it). scalars: vectors of what is the same for all."""

    floats: Floats
    ending: Ending
    pointers: tuple[Value, ...]
    pixel: int
    scalars: Mapping[Load, Value] = field(default_factory=dict[Load, Value])

    def moved(self, pixels: int = 0, channels: int = 0) -> Streams:
        """The streams so many pixels and channels on."""
        ending = self.ending
        steps = [pixels * self.pixel + 4 * channels] * (1 + len(ending.beside))
        steps += [4 * channels] * len(ending.channels) + [4 * pixels] * len(ending.pixels)
        return self.at([self.floats.at(pointer, step) for pointer, step in zip(self.pointers, steps, strict=True)])

    def at(self, pointers: tuple[Value, ...] | list[Value]) -> Streams:
        return replace(self, pointers=tuple(pointers))

    def store(self, sums: Sequence[Sequence[Value | None]], channels: int, at: tuple[Value, Value, Value] | None = None) -> None:
        """Results of pixels that follow each other, from vectors (None: there are no sums) of their first `channels` channels.
        at: image, row and column of the first, for an ending that asks for positions."""
        counts = [min(LANES, channels - first) for first in range(0, channels, LANES)]
        beside = 1 + len(self.ending.beside)
        numbers = [self._loaded(self.ending.channels, beside, NBYTES * number, count) for number, count in enumerate(counts)]
        for pixel, own in enumerate(sums):
            known = {**self.scalars, **self._pixel_numbers(pixel)}
            axes = {} if at is None else self._axes(at, pixel)
            for first in range(0, len(counts), _TOGETHER):
                some = range(first, min(first + _TOGETHER, len(counts)))
                places = [pixel * self.pixel + NBYTES * number for number in some]
                near = [
                    self._loaded(self.ending.beside, 1, place, counts[number]) for number, place in zip(some, places, strict=True)
                ]
                results = [
                    Lanes(self.floats, self.ending, own[number], {**known, **numbers[number], **operands}, axes).value(
                        self.ending.result
                    )
                    for number, operands in zip(some, near, strict=True)
                ]
                for number, place, result in zip(some, places, results, strict=True):
                    self.floats.store(result, self.pointers[0], place, counts[number])

    def _pixel_numbers(self, pixel: int) -> dict[Load, Value]:
        """What follows the pixel, in all lanes."""
        pointers = self.pointers[1 + len(self.ending.beside) + len(self.ending.channels) :]
        return {
            load: self.floats.repeated(self._element(load, pointer, 4 * pixel))
            for load, pointer in zip(self.ending.pixels, pointers, strict=True)
        }

    def _axes(self, at: tuple[Value, Value, Value], pixel: int) -> dict[int, Value]:
        return {0: at[0], 1: at[1], 2: self.floats.builder.add(at[2], I32(pixel))}

    def _loaded(self, loads: tuple[Load, ...], first: int, nbytes: int, count: int) -> dict[Load, Value]:
        pointers = self.pointers[first : first + len(loads)]
        found = {load: self.floats.load(pointer, nbytes, count) for load, pointer in zip(loads, pointers, strict=True)}
        return {
            load: self.floats.builder.bitcast(vector, vector_type(load.dtype)) if load.dtype is DType.INT32 else vector
            for load, vector in found.items()
        }

    def _element(self, load: Load, pointer: Value, nbytes: int) -> Value:
        return self.floats.builder.load(self.floats.at(pointer, nbytes), align=4, typ=memory_type(load.dtype))
