"""Histograms of differences: how many elements of an output are how far from what they must be.

Enters: expected and actual outputs of every sample. Leaves: `Histogram`, one for each output. Invariant: its bins count every element once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aot.samples import distances

_DECADES = 8


@dataclass(frozen=True)
class Bin:
    """`count` differences d with low < d <= high; the first bin counts d = 0, and the last has no `high` (None: infinity, NaN)."""

    low: float
    high: float | None
    count: int


@dataclass(frozen=True)
class Histogram:
    """Of one output, without the empty bins behind the last one that counts. relative: differences are divided by the largest magnitude of
    the sample's expected output (floats); otherwise they are in steps of the output (integers)."""

    output: int
    relative: bool
    bins: tuple[Bin, ...]

    @property
    def elements(self) -> int:
        return sum(each.count for each in self.bins)

    @property
    def equal(self) -> int:
        """Elements without any difference."""
        return self.bins[0].count


def histograms(expected: Sequence[Sequence[np.ndarray]], actual: Sequence[Sequence[np.ndarray]]) -> tuple[Histogram, ...]:
    """Of each output, over all samples. Bins double from one step on, or are decades from 1e-8 to 1 where differences are relative."""
    found: list[Histogram] = []
    for output, pairs in enumerate(
        zip(*(zip(want, got, strict=True) for want, got in zip(expected, actual, strict=True)), strict=True)
    ):
        relative = pairs[0][0].dtype.kind == "f"
        apart = np.concatenate([_scaled(want, got) for want, got in pairs])
        edges = 10.0 ** np.arange(-_DECADES, 1) if relative else _doubling(apart)
        places = np.searchsorted(edges, apart)  # NaN goes last
        counts = np.bincount(np.where(apart == 0, 0, places + 1), minlength=1).tolist()
        lows, highs = [0.0, 0.0, *edges.tolist()], [0.0, *edges.tolist(), None]
        found.append(Histogram(output, relative, tuple(Bin(lows[n], highs[n], count) for n, count in enumerate(counts))))
    return tuple(found)


def _scaled(want: np.ndarray, got: np.ndarray) -> np.ndarray:
    apart = distances(want, got).reshape(-1)
    if want.dtype.kind != "f":
        return apart
    finite = np.abs(want[np.isfinite(want)].astype(np.float64))
    largest = float(np.max(finite, initial=0.0))
    return apart / largest if largest else apart


def _doubling(apart: np.ndarray) -> np.ndarray:
    """1, 2, 4, ... up to the largest distance."""
    return 2.0 ** np.arange(max(1, int(np.max(apart, initial=1))).bit_length() + 1)
