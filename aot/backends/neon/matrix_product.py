"""Blocks of an even number of pixels times 4, 8, 12 or 16 channels by SMMLA: eight products of int8 a lane, two pixels times two channels
a vector.

Enters, leaves: as `dot_product.py`. Windows are taken four quads at a time, as in `pair_product.py`.
Invariant: sums are in int32 throughout, so that weights and inputs may be any int8.

The table has, for each 8 bytes of a window, 2 channels x 8 bytes a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aot.backends.neon.dot_product import Block, Quad
from aot.backends.neon.pair_product import QUADS, PairBlock, PairProducts
from aot.backends.neon.simd import BYTES16, LONGS2, WORDS4, Simd
from aot.llvm.types import Value

_OCTET = 8


@dataclass(frozen=True)
class MatrixBlock(PairBlock):
    """pixels (even) x vectors * 4 channels. Of two pixels' sums the first pixel's list has those of the first half of the channels, for
    both pixels, the second's the others."""

    by = "SMMLA"

    @property
    def sums(self) -> int:
        return self.vectors

    @property
    def is_looped(self) -> bool:
        return Block.is_looped.fget(self)  # type: ignore[attr-defined]

    @property
    def instructions(self) -> float:
        chunks = len(self.quads) / QUADS
        source = 2.0 if min(run.nbytes for run in self.runs) >= QUADS * 4 else 4.0
        return (
            self.pixels * self.vectors * (2 * chunks + 1) + chunks * (self.vectors + source * self.pixels) + self.is_looped * chunks
        )

    def weights(self, weights: np.ndarray) -> np.ndarray:
        chunks = [chunk.reshape(len(chunk), -1, _OCTET).transpose(1, 0, 2) for chunk in self._chunks(weights)]
        return np.concatenate([chunk.reshape(-1) for chunk in chunks])

    def fits_halves(self, weights: np.ndarray) -> bool:
        return True

    def emit(self, simd: Simd, rows: Sequence[Value], table: Value) -> tuple[list[list[Value]], Value]:
        start, table = simd.stream(table, WORDS4, self.vectors)
        twice = [simd.take(one, lanes) for one in start for lanes in ([0, 1, 0, 1], [2, 3, 2, 3])]
        halves = twice[: self.vectors], twice[self.vectors :]
        sums, table = self.summed(simd, rows, [list(halves[pixel % 2]) for pixel in range(self.pixels)], table)
        found: list[list[Value]] = []
        for first, second in zip(sums[::2], sums[1::2], strict=True):
            both = [simd.cast(one, LONGS2) for one in (*first, *second)]
            zipped = [simd.zip(*both[at : at + 2]) for at in range(0, len(both), 2)]
            found += [[simd.cast(pair[number], WORDS4) for pair in zipped] for number in range(2)]
        return found, table

    def products(self, simd: Simd, rows: Sequence[Value]) -> _Products:
        return _Products(self, simd, rows)


class _Products(PairProducts):
    """Emits SMMLAs octet by octet."""

    def add(self, sums: list[list[Value]], quads: Sequence[Quad], table: Value) -> Value:
        block, simd = self.block, self.simd
        for at in range(0, len(quads), QUADS):
            chunk = quads[at : at + QUADS]
            pixels = [
                self._bytes([(quad.row, quad.offset + pixel * block.step) for quad in chunk]) for pixel in range(block.pixels)
            ]
            pairs = [self._octets(*pixels[number : number + 2]) for number in range(0, block.pixels, 2)]
            for octet in range(len(pairs[0])):
                weights, table = simd.stream(table, BYTES16, 2 * block.vectors)
                for number, weight in enumerate(weights):
                    half, place = divmod(number, block.vectors)
                    for pair, both in enumerate(pairs):
                        pixel = sums[2 * pair + half]
                        pixel[place] = simd.smmla(pixel[place], both[octet], weight)
        return table

    def _octets(self, a: Value, b: Value) -> list[Value]:
        """8 bytes of one pixel and the same 8 of the next, once or twice."""
        simd = self.simd
        if a.type != BYTES16:
            return [simd.join(a, b)]
        return [simd.cast(one, BYTES16) for one in simd.zip(simd.cast(a, LONGS2), simd.cast(b, LONGS2))]
