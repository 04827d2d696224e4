"""Blocks of some pixels times 4, 8, 12 or 16 channels by SDOT: four products of int8 a lane, four channels a vector.

Enters: pointers to windows (`windows.py`), a pointer into the table. Leaves: vectors of four sums for each pixel.
Invariant: only bytes of the pixels' windows, and what lies between them, are read (and up to 3 bytes behind runs of less than 4).

The table has, for each block of channels: what sums start from; then for each quad of a window's bytes, and each vector of channels, 4
channels x 4 bytes; then the ending's columns. The last quad of a run whose length is no multiple of 4 begins earlier, with weights
of zero for bytes that were multiplied already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from llvmlite import ir

from aot.backends.neon.ending import Ending
from aot.backends.neon.simd import BYTES16, WORDS2, WORDS4, Simd
from aot.backends.neon.windows import QUAD, Run
from aot.llvm.types import I32, Value

LANES, CHUNK = 4, 16
MOST = 2600  # SDOTs that are written out; more are looped over
_TURN = 64  # bytes of a run that a turn of such a loop takes
_REGISTERS = 32


class Quad(NamedTuple):
    """Four bytes of a window's row. known: how many of them earlier quads have multiplied."""

    row: int
    offset: int
    known: int


@dataclass(frozen=True)
class Block:
    """pixels x vectors * 4 channels. runs: of a window; step: bytes between pixels."""

    runs: tuple[Run, ...]
    step: int
    pixels: int
    vectors: int
    by = "SDOT"

    @property
    def quads(self) -> tuple[Quad, ...]:
        return _all_quads(self.runs)

    @property
    def is_looped(self) -> bool:
        return len(self.quads) * self.pixels * self.vectors > MOST

    @property
    def instructions(self) -> float:
        """Of the products: SDOTs and loads, about."""
        quads = len(self.quads)
        sources = self.pixels * sum(max(1.0, run.nbytes / CHUNK) * min(1.0, self.step / run.nbytes) for run in self.runs)
        return quads * self.pixels * self.vectors + quads * -(-self.vectors // 4) + sources + self.is_looped * quads / 4

    @property
    def code(self) -> float:
        """Instructions that are written out."""
        if not self.is_looped:
            return self.instructions
        written = sum(min(run.nbytes, _TURN + run.nbytes % _TURN) for run in self.runs)
        return self.instructions * written / sum(run.nbytes for run in self.runs)

    def weights(self, weights: np.ndarray) -> np.ndarray:
        """(4 * vectors, KH, KW, Ci), a block's channels -> bytes as this block reads them. Windows are as `runs` has them."""
        return np.concatenate([four.reshape(-1) for four in self.packed_quads(weights)])

    def packed_quads(self, weights: np.ndarray) -> list[np.ndarray]:
        """For each quad (channels, 4) int8, zeros where a byte was multiplied already."""
        flat, (place, taken) = weights.reshape(len(weights), -1).astype(np.int8), _places(self.runs)
        return list(np.where(taken, flat[:, place], np.int8(0)).transpose(1, 0, 2))

    def fits_halves(self, weights: np.ndarray) -> bool:
        """Whether sums fit where this block adds them up: four products of int8 in int32."""
        return True

    def emit(self, simd: Simd, rows: Sequence[Value], table: Value) -> tuple[list[list[Value]], Value]:
        """The sums, by pixel and vector, and the pointer behind the weights."""
        start, table = simd.stream(table, WORDS4, self.vectors)
        sums, table = self.summed(simd, rows, [self.initial(start) for _ in range(self.pixels)], table)
        return [self.final(simd, pixel, start) for pixel in sums], table

    def summed(self, simd: Simd, rows: Sequence[Value], sums: list[list[Value]], table: Value) -> tuple[list[list[Value]], Value]:
        """All products taken into sums, and the pointer behind their weights."""
        if self.is_looped:
            for run in self.runs:
                sums, table = self._looped(simd, rows[run.row], run, sums, table)
            return sums, table
        return sums, self.products(simd, rows).add(sums, self.quads, table)

    @property
    def sums(self) -> int:
        """Vectors that a pixel's sums take while products are added."""
        return self.vectors

    def initial(self, start: Sequence[Value]) -> list[Value]:
        """What a pixel's sums are before any product."""
        return list(start)

    def final(self, simd: Simd, sums: Sequence[Value], start: Sequence[Value]) -> list[Value]:
        """A pixel's sums when all products are in: four channels a vector."""
        return list(sums)

    def products(self, simd: Simd, rows: Sequence[Value]) -> _Products:
        return _Products(self, simd, rows)

    def _looped(self, simd: Simd, row: Value, run: Run, sums: list[list[Value]], table: Value) -> tuple[list[list[Value]], Value]:
        """The products of one run: `_TURN` bytes in a turn, then what is left."""
        quads, turns, pointer = list(_quads(run)), run.nbytes // _TURN, simd.at(row, run.offset)
        if turns > 1:
            initial = [pointer, table, *(one for pixel in sums for one in pixel)]
            with simd.function.carried_loop(0, turns, initial) as carried:
                pointer, table, *flat = carried.values
                sums = [list(flat[at : at + self.sums]) for at in range(0, len(flat), self.sums)]
                turn = [Quad(0, at, 0) for at in range(0, _TURN, QUAD)]
                table = self.products(simd, [pointer]).add(sums, turn, table)
                carried.next = (simd.at(pointer, _TURN), table, *(one for pixel in sums for one in pixel))
            pointer, table, *flat = carried.results
            sums = [list(flat[at : at + self.sums]) for at in range(0, len(flat), self.sums)]
        else:
            turns = 0
        done = turns * _TURN
        left = [
            Quad(0, quad.offset - run.offset - done, quad.known) for quad in quads if quad.offset - run.offset >= done or quad.known
        ]
        return sums, self.products(simd, [pointer]).add(sums, left, table)


@lru_cache(maxsize=64)
def _all_quads(runs: tuple[Run, ...]) -> tuple[Quad, ...]:
    return tuple(quad for run in runs for quad in _quads(run))


@lru_cache(maxsize=64)
def _places(runs: tuple[Run, ...]) -> tuple[np.ndarray, np.ndarray]:
    """For each quad (quads, 4): which weights of a channel it takes, in the order of `runs`; and whether it does take them."""
    starts = np.cumsum([0, *(run.nbytes for run in runs)]).tolist()
    found = [
        (start + quad.offset - run.offset, quad.known, start + run.nbytes)
        for start, run in zip(starts, runs, strict=False)
        for quad in _quads(run)
    ]
    first, known, end = np.array(found).T[:, :, None]
    place = first + np.arange(QUAD)
    return np.minimum(place, end - 1), (np.arange(QUAD) >= known) & (place < end)


def _quads(run: Run) -> Iterator[Quad]:
    for at in range(0, run.nbytes, QUAD):
        first = min(at, max(run.nbytes - QUAD, 0))
        yield Quad(run.row, run.offset + first, at - first)


@dataclass
class _Products:
    """Emits SDOTs quad by quad. Vectors of pixels are kept as long as registers last, because several quads and pixels share them."""

    block: Block
    simd: Simd
    rows: Sequence[Value]
    loaded: dict[tuple[int, int], tuple[Value, int]] = field(default_factory=dict[tuple[int, int], tuple[Value, int]])

    def add(self, sums: list[list[Value]], quads: Sequence[Quad], table: Value) -> Value:
        """Take quads into the sums, in place; the pointer behind their weights."""
        block, simd = self.block, self.simd
        ends = self._ends(quads)
        at = 0
        while at < len(quads):
            some = 4 // block.vectors if block.vectors in (1, 2) else 1
            several = quads[at : at + some]
            weights, table = simd.stream(table, BYTES16, block.vectors * len(several))
            for number, quad in enumerate(several):
                for pixel in range(block.pixels):
                    bytes = self._lane(quad.row, pixel * block.step + quad.offset, ends[quad.row])
                    for vector in range(block.vectors):
                        weight = weights[number * block.vectors + vector]
                        sums[pixel][vector] = simd.sdot(sums[pixel][vector], weight, bytes)
            at += some
        return table

    def _ends(self, quads: Sequence[Quad]) -> dict[int, int]:
        """For each row how far the pixels' quads reach."""
        last = (self.block.pixels - 1) * self.block.step + QUAD
        return {row: last + max(quad.offset for quad in quads if quad.row == row) for row in {quad.row for quad in quads}}

    def _lane(self, row: int, offset: int, end: int) -> Value:
        """The four bytes at an offset of a row, four times."""
        simd = self.simd
        for (there, first), (vector, nbytes) in self.loaded.items():
            if there == row and first <= offset and offset + QUAD <= first + nbytes and (offset - first) % QUAD == 0:
                return self._dup(vector, (offset - first) // QUAD)
        nbytes = next(size for size in (CHUNK, 8, QUAD) if offset + size <= end or size == QUAD)
        if nbytes == QUAD:
            word = simd.load(self.rows[row], I32, offset)
            vector = simd.builder.insert_element(ir.Constant(WORDS4, ir.Undefined), word, I32(0))
        else:
            vector = simd.load(self.rows[row], WORDS4 if nbytes == CHUNK else WORDS2, offset)
        budget = _REGISTERS - self.block.pixels * self.block.vectors - max(4, self.block.vectors)
        while len(self.loaded) >= max(1, budget):
            del self.loaded[next(iter(self.loaded))]
        self.loaded[row, offset] = vector, nbytes
        return self._dup(vector, 0)

    def _dup(self, vector: Value, lane: int) -> Value:
        return self.simd.cast(self.simd.take(vector, [lane] * LANES), BYTES16)


@dataclass(frozen=True)
class Product:
    """All channels of a layer for lines of pixels. pixels, vectors: of a block. out_step: output elements from a pixel to the next."""

    ending: Ending
    runs: tuple[Run, ...]
    step: int
    channels: int
    pixels: int
    vectors: int
    out_step: int
    block: Callable[..., Block] = Block

    @property
    def blocks(self) -> tuple[tuple[Block, int], ...]:
        """Blocks of channels, and how many of each follow each other."""
        whole, left = divmod(self.channels, LANES * self.vectors)
        found = [(self.vectors, whole)] if whole else []
        found += [(-(-left // LANES), 1)] if left else []
        return tuple((self.block(self.runs, self.step, self.pixels, vectors), count) for vectors, count in found)

    @property
    def instructions(self) -> float:
        """Of one block of pixels and all channels."""
        return 6.0 + sum(count * (block.instructions + self._ending(block)) for block, count in self.blocks)

    @property
    def code(self) -> float:
        """Instructions that are written out."""
        return 6.0 + sum(block.code + self._ending(block) for block, _ in self.blocks)

    def _ending(self, block: Block) -> float:
        """Instructions of a block when its products are in."""
        vectors = block.pixels * block.vectors
        columns = self.ending.columns * block.vectors / 4
        return vectors * (1.25 + self.ending.instructions) + columns + 3 + block.pixels * self._stores(block.vectors)

    def _stores(self, vectors: int) -> float:
        """Instructions for a pixel of a block."""
        return vectors if self.ending.kind == "sums" else 1.0 if vectors == 4 else 1.5

    def fits_halves(self, weights: np.ndarray) -> bool:
        """Whether two products of these weights always fit 16 bits together, where blocks add them up there."""
        return all(block.fits_halves(own) for block, own in self._by_block(weights))

    def table(self, weights: np.ndarray) -> np.ndarray:
        """int32: (Co, KH, KW, Ci) weights and the ending's numbers, in the order of reading."""
        first = 0
        parts: list[Value] = []
        for block, own in self._by_block(weights):
            numbers = self.ending.packed(range(first, first + len(own)))
            parts += [numbers[0], block.weights(own).view(np.int32), numbers[1:].reshape(-1)]
            first += len(own)
        return np.concatenate(parts)

    @property
    def table_nbytes(self) -> int:
        return sum(count * self._block_nbytes(block) for block, count in self.blocks)

    def _block_nbytes(self, block: Block) -> int:
        wide = LANES * block.vectors
        weights = block.weights(np.zeros((wide, sum(run.nbytes for run in self.runs)), np.int64))
        return weights.nbytes + 4 * wide * (1 + self.ending.columns)

    def panels(self, nbytes: int) -> tuple[tuple[Product, int], ...]:
        """The same channels as products of fewer, whose tables take this many bytes or one block's, and how often each comes."""
        block, count = self.blocks[0]
        some = min(count, max(1, nbytes // self._block_nbytes(block)))
        wide = some * LANES * block.vectors
        turns = count // some
        left = self.channels - turns * wide
        panels = [(replace(self, channels=min(wide, self.channels)), turns)]
        return tuple(panels + [(replace(self, channels=left), 1)] * (left > 0))

    def _by_block(self, weights: np.ndarray) -> Iterator[tuple[Block, np.ndarray]]:
        """Each block of channels with its weights (4 * vectors, KH, KW, Ci), zeros for channels beyond the last."""
        first = 0
        for block in (block for block, count in self.blocks for _ in range(count)):
            own = np.zeros((LANES * block.vectors, *weights.shape[1:]), np.int64)
            some = weights[first : first + len(own)]
            own[: len(some)] = some
            first += len(own)
            yield block, own

    def emit(self, simd: Simd, rows: Sequence[Value], out: Value, table: Value) -> None:
        """One block of pixels: all channels, stored from `out` on."""
        channel = 0
        for block, count in self.blocks:
            wide, nbytes = LANES * block.vectors, LANES * block.vectors * self.ending.nbytes
            if count == 1:
                table = self._channels(simd, block, rows, out, table, min(wide, self.channels - channel))
            else:
                with simd.function.carried_loop(0, count, [table, out]) as carried:
                    following = self._channels(simd, block, rows, carried.values[1], carried.values[0], wide)
                    carried.next = following, simd.at(carried.values[1], nbytes)
                table, out = carried.results
                channel += wide * count
                continue
            out, channel = simd.at(out, nbytes), channel + wide

    def _channels(self, simd: Simd, block: Block, rows: Sequence[Value], out: Value, table: Value, count: int) -> Value:
        """One block of channels, `count` of which are the layer's."""
        sums, table = block.emit(simd, rows, table)
        columns, table = simd.stream(table, WORDS4, self.ending.columns * block.vectors)
        by_vector = [columns[vector :: block.vectors] for vector in range(block.vectors)]
        places = [(pixel, vector) for pixel in range(block.pixels) for vector in range(block.vectors)]
        if self.ending.kind == "sums":
            for pixel, vector in places:
                at = (pixel * self.out_step + LANES * vector) * self.ending.nbytes
                simd.store_lanes(sums[pixel][vector], out, min(LANES, count - LANES * vector), at)
            return table
        whole = self.out_step == count == LANES * block.vectors
        rows_of = [places] if whole else [places[at : at + block.vectors] for at in range(0, len(places), block.vectors)]
        for one in rows_of:
            while one:
                group, one = _first(one)
                found = self.ending.finish(simd, [sums[pixel][vector] for pixel, vector in group], [by_vector[v] for _, v in group])
                pixel, vector = group[0]
                nbytes = LANES * len(group) if whole else min(LANES * len(group), count - LANES * vector)
                simd.store_lanes(found, out, nbytes, pixel * self.out_step + LANES * vector)
        return table


def _first(places: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """As many as an ending takes at once, and the others."""
    some = next(size for size in (4, 2, 1) if size <= len(places))
    return places[:some], places[some:]
