# pyright: basic
"""Blocks of some pixels times 4 or 8 channels by SMULL, SMLAL and SADALP, for cores without SDOT: eight products an instruction, two of
which are added up in 16 bits.

Enters, leaves: as `dot_product.py`, whose quads of window bytes these blocks take four at a time.
Invariant: two products of a lane fit 16 bits, whatever the input (`fits_halves`), or are added up one by one.

A sum lies in four lanes of its own until the window is done: then those of four channels are added up, and become one vector.
The table has, for each chunk of a window, 16 bytes of each channel (8 for a last chunk of one or two quads).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from llvmlite import ir

from aot.backends.neon.dot_product import LANES, MOST, Block, Quad
from aot.backends.neon.simd import BYTES8, BYTES16, WORDS2, WORDS4, Simd
from aot.backends.neon.windows import QUAD
from aot.llvm.types import I32, I64, Value

QUADS = 4
_HALVES = -(1 << 15), (1 << 15) - 1


@dataclass(frozen=True)
class PairBlock(Block):
    """pixels x vectors * 4 channels. registers: of vectors that the core has. pairs: whether two products fit 16 bits."""

    registers: int = 32
    pairs: bool = True
    by = "SMULL and SADALP"

    @property
    def sums(self) -> int:
        return LANES * self.vectors

    @property
    def is_looped(self) -> bool:
        return 3 * len(self.quads) // QUADS * self.pixels * self.sums > MOST

    @property
    def instructions(self) -> float:
        chunks = len(self.quads) / QUADS
        sources = chunks * self.pixels * (1.0 if min(run.nbytes for run in self.runs) >= QUADS * QUAD else 3.0)
        products = chunks * self.pixels * self.sums * (3 if self.pairs else 4)
        return products + sources + chunks * self.sums * self._loads + self.pixels * self.vectors * 5 + self.is_looped * chunks * 2

    @property
    def _loads(self) -> float:
        return 0.25 if self.registers == 32 else 1.0

    def weights(self, weights: np.ndarray) -> np.ndarray:
        return np.concatenate([chunk.reshape(-1) for chunk in self._chunks(weights)])

    def fits_halves(self, weights: np.ndarray) -> bool:
        """Whether two products of these weights, (Co, KH, KW, Ci), always fit 16 bits together."""
        chunks = self._chunks(weights)
        for nbytes in {chunk.shape[1] for chunk in chunks}:
            pairs = np.stack([chunk for chunk in chunks if chunk.shape[1] == nbytes]).astype(np.int32).reshape(-1, nbytes // 8, 8)
            low, high = np.minimum(pairs * -128, pairs * 127), np.maximum(pairs * -128, pairs * 127)
            if high.sum(1).max() > _HALVES[1] or low.sum(1).min() < _HALVES[0]:
                return False
        return True

    def _chunks(self, weights: np.ndarray) -> list[np.ndarray]:
        """(channels, 16 or 8) int8 for each chunk of the windows."""
        quads = self.packed_quads(weights)
        found: list[np.ndarray] = []
        for group in (quads[at : min(at + QUADS, last)] for first, last in self._parts for at in range(first, last, QUADS)):
            wide = QUADS if len(group) > 2 else 2
            found.append(np.concatenate([*group, *[np.zeros_like(group[0])] * (wide - len(group))], 1))
        return found

    @property
    def _parts(self) -> list[tuple[int, int]]:
        """Numbers of the quads that chunks are made of: all, or those of each run."""
        if not self.is_looped:
            return [(0, len(self.quads))]
        counts = np.cumsum([0, *(-(-run.nbytes // QUAD) for run in self.runs)]).tolist()
        return list(pairwise(counts))

    def initial(self, start: Sequence[Value]) -> list[Value | None]:
        zero = ir.Constant(WORDS4, None)
        return [zero if self.is_looped else None] * self.sums

    def final(self, simd: Simd, sums: Sequence[Value], start: Sequence[Value]) -> list[Value]:
        groups = [sums[at : at + LANES] for at in range(0, self.sums, LANES)]
        return [simd.builder.add(simd.lanes_added(group), first) for group, first in zip(groups, start, strict=True)]

    def products(self, simd: Simd, rows: Sequence[Value]) -> PairProducts:
        return PairProducts(self, simd, rows)


@dataclass
class PairProducts:
    """Emits the products chunk by chunk. Vectors of pixels are kept while registers last, because neighbours share them."""

    block: PairBlock
    simd: Simd
    rows: Sequence[Value]
    loaded: dict[tuple[Quad, ...], Value] = field(default_factory=dict[tuple[Quad, ...], Value])

    def add(self, sums: list[list[Value]], quads: Sequence[Quad], table: Value) -> Value:
        """Take quads into the sums, in place; the pointer behind their weights."""
        block = self.block
        for at in range(0, len(quads), QUADS):
            chunk = quads[at : at + QUADS]
            pixels = [
                self._bytes([(quad.row, quad.offset + pixel * block.step) for quad in chunk]) for pixel in range(block.pixels)
            ]
            for first in range(0, block.sums, LANES):
                weights, table = self.simd.stream(table, BYTES16 if len(chunk) > 2 else BYTES8, LANES)
                for number, weight in enumerate(weights):
                    for pixel, bytes in zip(sums, pixels, strict=True):
                        pixel[first + number] = self._sum(pixel[first + number], bytes, weight)
        return table

    def _sum(self, sum: Value | None, a: Value, b: Value) -> Value:
        simd = self.simd
        if a.type == BYTES8:
            return simd.pairwise_widening_add(sum, simd.widening_multiply(a, b))
        low, high = (simd.widening_multiply(*both) for both in zip(simd.halves(a), simd.halves(b), strict=True))
        if self.block.pairs:
            return simd.pairwise_widening_add(sum, simd.builder.add(low, high))
        return simd.pairwise_widening_add(simd.pairwise_widening_add(sum, low), high)

    def _bytes(self, quads: list[tuple[int, int]]) -> Value:
        """Quads, by row and offset, as a vector of bytes."""
        key = tuple(Quad(row, offset, 0) for row, offset in quads)
        if key not in self.loaded:
            budget = self.block.registers - self.block.pixels * self.block.sums - LANES - 2
            while len(self.loaded) >= max(self.block.pixels, budget):
                del self.loaded[next(iter(self.loaded))]
            self.loaded[key] = self._load(quads)
        return self.loaded[key]

    def _load(self, quads: list[tuple[int, int]]) -> Value:
        simd = self.simd
        if len(quads) == QUADS and _in_line(quads):
            return simd.load(self.rows[quads[0][0]], BYTES16, quads[0][1])
        halves = [self._half(quads[at : at + 2]) for at in range(0, len(quads), 2)]
        return simd.cast(simd.paired(halves), BYTES16 if len(halves) == 2 else BYTES8)

    def _half(self, quads: list[tuple[int, int]]) -> Value:
        """One or two quads as a vector of two words."""
        simd = self.simd
        if len(quads) == 2 and _in_line(quads):
            return simd.cast(simd.load(self.rows[quads[0][0]], I64, quads[0][1]), WORDS2)
        vector: Value = ir.Constant(WORDS2, None)
        for lane, (row, offset) in enumerate(quads):
            vector = simd.builder.insert_element(vector, simd.load(self.rows[row], I32, offset), I32(lane))
        return vector


def _in_line(quads: Sequence[tuple[int, int]]) -> bool:
    row, first = quads[0]
    return all(quad == (row, first + number * QUAD) for number, quad in enumerate(quads))
