# pyright: basic
"""What a depthwise convolution multiplies: a column of a window, of one row or four, with eight channels' weights.

Enters: a layer, and how many rows of outputs are computed at once. Leaves: packed weights, and sums of int32 as LLVM instructions.
Invariant: sums are those of the layer, over raw inputs (the zero point not taken off), whatever the inputs are.

With SDOT four rows stand in a word. A block of output rows shares them: each has weights of its own, zero for the rows that it does not
see. Without, products of int8 are summed in 16 bits as long as these channels' weights let them fit (`grades`), then in 32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from aot.backends.layers.operands import Layer
from aot.backends.neon.simd import BYTES8, BYTES16, WORDS4, Simd
from aot.llvm.types import Value
from aot.llvm.volatile import volatile_load

UNIT = 8  # channels whose weights registers hold while a row of windows is computed
_MOST_PARTED = 12  # taps of which all partitions are looked at
_INT16 = (-(1 << 15), (1 << 15) - 1)

Window = Callable[[int, int], tuple[Value, ...]]
"""A column of the window at hand, in a line."""


@dataclass(frozen=True)
class Weights(Sequence):
    """Vectors of weights, each loaded when it is asked for, in that place (`fresh`)."""

    simd: Simd
    table: Value
    type: Any
    count: int
    fresh: bool = True

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Value:  # pyright: ignore[reportIncompatibleMethodOverride]
        if not 0 <= number < self.count:
            raise IndexError(number)
        at = self.simd.at(self.table, self.type.count * number)
        return volatile_load(self.simd.builder, at, self.type, 8) if self.fresh else self.simd.load(at, self.type, align=8)


@dataclass(frozen=True)
class Products:
    """rows: of outputs in a block. each: rows of a line; type, vectors: of a unit's inputs in a column of a line."""

    layer: Layer
    rows: int

    each: ClassVar[int] = 1
    type: ClassVar[Any] = BYTES8
    vectors: ClassVar[int] = 1

    @cached_property
    def inputs(self) -> list[int]:
        """The input rows of a block, from that of its first window on."""
        return sorted({row for number in range(self.rows) for row in self._seen(number)})

    def _seen(self, number: int) -> list[int]:
        """The input rows of an output row's window."""
        g = self.layer.geometry
        return [number * g.stride[0] + tap * g.dilation[0] for tap in range(g.kernel[0])]

    @cached_property
    def lines(self) -> list[list[int]]:
        """The input rows in lines."""
        return [self.inputs[first : first + self.each] for first in range(0, len(self.inputs), self.each)]

    @property
    def loads(self) -> float:
        """Instructions that load a window, for all rows of the block."""
        return float(self.layer.geometry.kernel[1] * len(self.lines))

    @property
    def window_vectors(self) -> int:
        return self.layer.geometry.kernel[1] * len(self.lines) * self.vectors

    @property
    def weight_vectors(self) -> int:
        """Vectors of a unit's weights."""
        raise NotImplementedError

    def grades(self, starts: Sequence[int]) -> list[tuple[Any, list[int]]]:
        """Ways to multiply, and the units (their first channels) that each is for."""
        return [(None, list(starts))]

    def instructions(self, grade: Any) -> float:
        """For one pixel of all rows of the block."""
        raise NotImplementedError

    def packed(self, channels: Sequence[int]) -> np.ndarray:
        """Int32: the weights of a unit's channels, in whole vectors of 16 bytes."""
        raise NotImplementedError

    def load(self, simd: Simd, table: Value, streamed: bool) -> Sequence[Value]:
        """A unit's weights; streamed: loaded anew wherever they are asked for."""
        return (
            Weights(simd, table, self.type, self.weight_vectors)
            if streamed
            else list(Weights(simd, table, self.type, self.weight_vectors, False))
        )

    def sums(
        self, simd: Simd, row: int, grade: Any, weights: Sequence[Value], window: Window, start: Sequence[Value]
    ) -> list[Value]:
        """Two vectors of four sums, which begin with `start`, of a window of an output row of the block."""
        raise NotImplementedError

    def note(self) -> str:
        """For `--explain`."""
        raise NotImplementedError


@dataclass(frozen=True)
class DotProducts(Products):
    """With SDOT."""

    each = 4
    type = BYTES16
    vectors = 2

    @cached_property
    def _terms(self) -> list[list[tuple[int, int]]]:
        """For each output row of the block (column, line) of each SDOT."""
        columns = range(self.layer.geometry.kernel[1])
        seen = [[number for number, line in enumerate(self.lines) if set(line) & set(self._seen(row))] for row in range(self.rows)]
        return [[(column, line) for column in columns for line in lines] for lines in seen]

    @property
    def weight_vectors(self) -> int:
        return 2 * sum(map(len, self._terms))

    def instructions(self, grade: None) -> float:
        return 2 * (sum(map(len, self._terms)) + self.rows)

    def packed(self, channels: Sequence[int]) -> np.ndarray:
        found: list[np.ndarray] = []
        for row, terms in enumerate(self._terms):
            taps = {line: tap for tap, line in enumerate(self._seen(row))}
            for column, line in terms:
                part = np.zeros((len(channels), self.each), np.int8)
                for slot, number in enumerate(self.lines[line]):
                    if number in taps:
                        part[:, slot] = self.layer.weights[channels, taps[number], column]
                found.append(part.reshape(-1).view(np.int32))
        return np.concatenate(found)

    def sums(
        self, simd: Simd, row: int, grade: None, weights: Sequence[Value], window: Window, start: Sequence[Value]
    ) -> list[Value]:
        sums, at = list(start), 2 * sum(map(len, self._terms[:row]))
        for number, (column, line) in enumerate(self._terms[row]):
            inputs = window(column, line)
            sums = [simd.sdot(sums[half], inputs[half], weights[at + 2 * number + half]) for half in (0, 1)]
        return sums

    def note(self) -> str:
        return "SDOT of four rows"


Partition = tuple[tuple[int, ...], ...]
"""Taps whose products are summed in 16 bits, group by group."""


@dataclass(frozen=True)
class HalfSums(Products):
    """With SMULL and SMLAL of bytes, whose sums of 16 bits SADDW adds up."""

    @cached_property
    def _taps(self) -> list[tuple[int, int]]:
        g = self.layer.geometry
        return [(row, column) for row in range(g.kernel[0]) for column in range(g.kernel[1])]

    @cached_property
    def _reach(self) -> tuple[np.ndarray, np.ndarray]:
        """(channels, taps): the smallest and largest product."""
        flat = self.layer.weights.reshape(len(self.layer.bias), -1)
        ends = np.stack([flat * -128, flat * 127])
        return ends.min(0), ends.max(0)

    @property
    def weight_vectors(self) -> int:
        return len(self._taps)

    def grades(self, starts: Sequence[int]) -> list[tuple[Partition, list[int]]]:
        """The fewest groups that many units allow, and what the others need."""
        left = list(starts)
        found: list[tuple[tuple[tuple[int, ...], ...], list[int]]] = []
        for _ in range(2):
            best = max(self._partitions(left), key=lambda one: self._gain(one, left), default=None)
            if best is None or self._gain(best, left) <= 0:
                break
            chosen = [first for first in left if self._fits(best, first)]
            found.append((best, chosen))
            left = [first for first in left if first not in chosen]
        if left:
            found.append((self._pairs, left))
        return found

    def _gain(self, partition: Partition, starts: Sequence[int]) -> int:
        """Groups that it saves for all units that it is for."""
        return (len(self._pairs) - len(partition)) * sum(self._fits(partition, first) for first in starts)

    def _partitions(self, starts: Sequence[int]) -> Iterator[Partition]:
        """Partitions that are worth a look: for each unit the one that fits as many taps in each group as it can, fullest first."""
        seen: set[tuple[tuple[int, ...], ...]] = set()
        for first in starts:
            for order in self._orders(first):
                partition = self._greedy(first, order)
                if partition not in seen:
                    seen.add(partition)
                    yield partition

    def _orders(self, first: int) -> Iterator[list[int]]:
        low, high = self._reach
        size = np.maximum(high, -low)[first : first + UNIT]
        yield list(np.argsort(-size.max(0), kind="stable"))
        yield list(np.argsort(-size.sum(0), kind="stable"))
        yield list(range(len(self._taps)))

    def _greedy(self, first: int, order: Sequence[int]) -> Partition:
        """Each tap goes to the first group where it fits."""
        groups: list[list[int]] = []
        for tap in order:
            for group in groups:
                if self._fits(((*group, tap),), first):
                    group.append(int(tap))
                    break
            else:
                groups.append([int(tap)])
        return tuple(sorted(tuple(sorted(group)) for group in groups))

    def _fits(self, partition: Partition, first: int) -> bool:
        """Whether no group's sum of a unit's channel leaves 16 bits."""
        low, high = (ends[first : first + UNIT] for ends in self._reach)
        return all(
            low[:, list(group)].sum(1).min() >= _INT16[0] and high[:, list(group)].sum(1).max() <= _INT16[1] for group in partition
        )

    @cached_property
    def _pairs(self) -> Partition:
        """Groups that fit all channels."""
        taps = range(len(self._taps))
        pairs = tuple(tuple(taps[at : at + 2]) for at in range(0, len(taps), 2))
        starts = range(0, len(self.layer.bias), UNIT)
        return pairs if all(self._fits(pairs, first) for first in starts) else tuple((tap,) for tap in taps)

    def instructions(self, grade: Partition) -> float:
        return self.rows * (len(self._taps) + 2 * len(grade))

    def packed(self, channels: Sequence[int]) -> np.ndarray:
        flat = self.layer.weights.reshape(len(self.layer.bias), -1)[list(channels)].T.astype(np.int8)
        return np.concatenate([flat.reshape(-1), np.zeros(-flat.size % 16, np.int8)]).view(np.int32)

    def sums(
        self, simd: Simd, row: int, grade: Partition, weights: Sequence[Value], window: Window, start: Sequence[Value]
    ) -> list[Value]:
        builder, sums, seen = simd.builder, list(start), self._seen(row)
        for group in grade:
            total = None
            for tap in group:
                line, column = self._taps[tap]
                product = simd.widening_multiply(window(column, self.inputs.index(seen[line]))[0], weights[tap])
                total = product if total is None else builder.add(total, product)
            sums = [builder.add(acc, builder.sext(half, WORDS4)) for acc, half in zip(sums, simd.halves(total), strict=True)]
        return sums

    def note(self) -> str:
        starts = range(0, len(self.layer.bias) - UNIT + 1, UNIT) or [0]
        return f"products of {'+'.join(str(len(group)) for group in self.grades(list(starts))[0][0])} taps are summed in 16 bits"
