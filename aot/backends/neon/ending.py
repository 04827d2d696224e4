"""The end of every int8 kernel: vectors of int32 sums become int8 lanes, by the fewest instructions that equal TFLite's rounding.

Enters: a layer's requantisation. Leaves: `Ending`: what sums start from, what the instructions read for each channel, and the instructions.
Invariant: for every sum that a layer can reach the lanes are TFLite Micro's: `saturate` is proven by the solver, the others are the
definition, less what no reachable sum asks for.

* positive: SQRDMULH, SQRSHRN, SQXTUN, UQADD (zero point and 128), EOR (128): for layers that are rectified, whose negative sums all
            become the zero point. Where channels need shifts of their own: SQRDMULH, SRSHL, XTN (SQXTN), SQXTUN, UQADD, EOR
* saturate: SQDMULH, ADD (offset), SQSHRN, SQXTN: for channels whose shifts differ, but not by much
* signed:   SQRDMULH, SSRA (ties of negative numbers round down), then as positive up to halfwords, SQADD (zero point), SQXTN
* exact:    SSHL, SQRDMULH, AND, SSHR, SQADD, SRSHL, ADD (zero point), SQXTN, SQXTN
* sums:     none: they are stored as they are
Then SMAX and SMIN, where saturation does not clamp already.

A kernel starts its sums at `start` (bias, input zero point and all), loads `columns` vectors for each vector of channels, in the order
of `table`, and gives both to `finish`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from aot.backends.layers.operands import Layer, stage_of
from aot.backends.layers.requantise import Stage, clamp_of, is_regular, solve, tflite
from aot.backends.neon.simd import WORDS4, Simd, splat
from aot.llvm.types import Value

_MOST_NARROW = 16
_INT8 = (-128, 127)
_SATURATING = 3.5  # instructions of a saturate ending, at least: what takes no more need not be compared with it


@dataclass(frozen=True)
class Ending:
    """Arrays are int64, one entry a channel. start: what a sum over raw inputs (zero point not taken off) begins with. shift: the
    number that all channels are shifted to the right by while they are narrowed; None where the last column has each channel's, to
    the left. fits: whether results fit int16 before they are narrowed."""

    kind: Literal["positive", "saturate", "signed", "exact", "sums"]
    start: np.ndarray
    table: tuple[np.ndarray, ...]
    shift: int | None
    zero_point: int
    clamp: tuple[int, int] | None
    fits: bool = False

    @staticmethod
    def of(layer: Layer) -> Ending:
        """The ending of a layer of int8 that is requantised to int8, or whose output is its sums."""
        if layer.is_sums:
            return Ending("sums", layer.folded_bias, (), None, 0, None)
        return Ending.of_stage(stage_of(layer, range(len(layer.bias))), layer.folded_bias)

    @staticmethod
    def of_stage(stage: Stage, bias: np.ndarray) -> Ending:
        """bias: what sums start from, but for what an ending adds to it."""
        left, right = np.maximum(stage.shift, 0), np.maximum(-stage.shift, 0)
        if not is_regular(stage):
            clamp = None if (stage.low, stage.high) == _INT8 else (stage.low, stage.high)
            return Ending(
                "exact", bias, (*((left,) if left.any() else ()), stage.multiplier, -right), None, stage.zero_point, clamp
            )
        defining = _defining(stage, bias, left, right)
        saturating = _saturating(stage, bias) if defining.instructions > _SATURATING else None
        return saturating if saturating is not None and saturating.instructions < defining.instructions else defining

    @property
    def nbytes(self) -> int:
        """Of an output."""
        return 4 if self.kind == "sums" else 1

    @property
    def columns(self) -> int:
        """Vectors that `finish` takes for each vector of sums."""
        return len(self.table)

    def packed(self, channels: Sequence[int]) -> np.ndarray:
        """(1 + columns, channels) int32: `start`, then each column, for these channels; zeros where a number is no channel's."""
        wanted = np.asarray(channels, np.int64)
        there = (wanted >= 0) & (wanted < len(self.start))
        rows = np.stack([self.start, *self.table])[:, np.where(there, wanted, 0)]
        return (np.where(there, rows, 0) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)

    def apply(self, sums: np.ndarray) -> np.ndarray:
        """What the instructions compute: sums (channels, ...) that began with `start`, as int64 -> outputs."""
        tail = (1,) * (sums.ndim - 1)
        columns = [column.reshape(-1, *tail) for column in self.table]
        right = np.asarray(self.shift) if self.shift is not None else -columns[-1]
        if self.kind == "saturate":
            return np.clip(np.clip((sums * columns[0] >> 31) + columns[1] >> right, *_INT8), *(self.clamp or _INT8))
        sums = _wrap32(sums << columns.pop(0)) if self._shifts_left else sums
        x = np.minimum(sums * columns[0] + (1 << 30) >> 31, (1 << 31) - 1)
        if self.kind != "positive":
            x = np.maximum(x - ((x < 0) & (right > 0)), -(1 << 31))
        y = x + np.where(right > 0, np.int64(1) << np.maximum(right - 1, 0), 0) >> right
        y = np.maximum(y, 0) if self.kind == "positive" else y
        return np.clip(np.clip(_wrap32(y + self.zero_point), *_INT8), *(self.clamp or _INT8))

    def finish(self, simd: Simd, sums: Sequence[Value], columns: Sequence[Sequence[Value]]) -> Value:
        """1, 2 or 4 vectors of four sums to as many times 4 bytes in a vector. columns: for each vector of sums its `columns` vectors."""
        words = [self._words(simd, one, some) for one, some in zip(sums, columns, strict=True)]
        pairs = [words[at : at + 2] for at in range(0, len(words), 2)]
        halves = [self._halves(simd, pair[0], pair[-1]) for pair in pairs]
        if self.kind == "positive":
            found = simd.paired([simd.narrow_unsigned(one) for one in halves])
            if self.zero_point > -128:
                found = simd.saturating_add_unsigned(found, splat(self.zero_point + 128, found.type))
            found = simd.builder.xor(found, splat(-128, found.type))
        else:
            if self.kind == "signed" and self.zero_point:
                halves = [simd.saturating_add(one, splat(self.zero_point, one.type)) for one in halves]
            found = simd.paired([simd.narrow(one) for one in halves])
        low, high = self.clamp or _INT8
        found = found if low == -128 else simd.max(found, splat(low, found.type))
        found = found if high == 127 else simd.min(found, splat(high, found.type))
        return simd.take(found, range(4)) if len(sums) == 1 else found

    def _words(self, simd: Simd, x: Value, columns: Sequence[Value]) -> Value:
        """Four sums, as far as words go."""
        if self.kind == "saturate":
            return simd.builder.add(simd.doubling_high(x, columns[0]), columns[1])
        left = columns[:1] if self._shifts_left else ()
        x = simd.shift(x, left[0]) if left else x
        x = simd.rounding_doubling_high(x, columns[len(left)])
        if self.kind == "signed":
            x = simd.add_sign(x)
        if self.kind == "exact":
            sign = simd.builder.ashr(simd.builder.and_(x, columns[-1]), splat(31, WORDS4))
            x = simd.saturating_add(x, sign)
        if self.shift is None:
            x = simd.rounding_shift(x, columns[-1])
        return simd.builder.add(x, splat(self.zero_point, WORDS4)) if self.kind == "exact" and self.zero_point else x

    def _halves(self, simd: Simd, low: Value, high: Value) -> Value:
        """Eight words to halfwords."""
        if self.shift is not None:
            rounds = self.kind != "saturate"
            return simd.join(*(simd.shift_narrow(one, self.shift, rounds) for one in (low, high)))
        return simd.truncate(low, high) if self.fits else simd.join(simd.narrow(low), simd.narrow(high))

    @property
    def _shifts_left(self) -> bool:
        return self.kind == "exact" and len(self.table) == 3

    @property
    def instructions(self) -> float:
        """For a vector of four sums that are narrowed with three others, loads of columns apart."""
        if self.kind == "sums":
            return 0.0
        words = {"positive": 1, "saturate": 2, "signed": 2, "exact": 5 + self._shifts_left}[self.kind]
        words += (self.kind == "exact" and self.zero_point != 0) + (self.shift is None and self.kind != "exact")
        halves = 0.5 * (self.kind == "signed" and self.zero_point != 0) + 0.5
        ends = 0.25 * sum(bound != most for bound, most in zip(self.clamp or _INT8, _INT8))
        last = 0.25 * (1 + (self.zero_point > -128)) if self.kind == "positive" else 0.0
        return words + (0.5 if self.fits and self.shift is None else 1.0) + halves + last + ends

    def note(self) -> str:
        """How, for `--explain`."""
        if self.kind == "sums":
            return "sums in int32"
        product = {"positive": "SQRDMULH", "saturate": "SQDMULH, ADD", "signed": "SQRDMULH, SSRA"}.get(self.kind, "")
        if not product:
            return "requantised by SQRDMULH and SRSHL, ties mended as TFLite has them"
        rounds = self.kind != "saturate"
        shift = "SRSHL" if self.shift is None else ("SQRSHRN" if rounds else "SQSHRN") + f" #{self.shift}"
        return f"requantised by {product}, {shift}"


def _saturating(stage: Stage, bias: np.ndarray) -> Ending | None:
    """The saturate form of doubled products, if there is one with one shift."""
    form = solve(stage, (np.ones(stage.channels, np.int64),), ("saturate",))
    shift = int(form.right[0] + form.pre[0])
    if form.kind != "saturate" or not form.uniform or not 1 <= shift <= _MOST_NARROW:
        return None
    return Ending("saturate", bias + form.delta, (form.multiplier, form.offset), shift, 0, form.clamp)


def _defining(stage: Stage, bias: np.ndarray, left: np.ndarray, right: np.ndarray) -> Ending:
    """The definition, of a stage where nothing wraps."""
    shift = int(right[0]) if (right == right[0]).all() and 1 <= right[0] <= _MOST_NARROW else None
    table = (stage.multiplier, *(() if shift else (-right,)))
    ends = tflite(stage, np.stack([stage.acc_low, stage.acc_high], 1)) - stage.zero_point
    fits, clamp = bool(ends.min() > -(1 << 15) and ends.max() < 1 << 15), clamp_of(stage)
    if not left.any() and (stage.low >= stage.zero_point or ends.min() >= 0):
        low = max(stage.low, stage.zero_point)
        clamp = (low if low > stage.zero_point else -128, stage.high)
        return Ending("positive", bias, table, shift, stage.zero_point, None if clamp == _INT8 else clamp, fits)
    if (right > 0).all():
        return Ending("signed", bias, table, shift, stage.zero_point, clamp, fits)
    return Ending("exact", bias, (*((left,) if left.any() else ()), stage.multiplier, -right), None, stage.zero_point, clamp)


def _wrap32(x: np.ndarray) -> np.ndarray:
    return ((x + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
