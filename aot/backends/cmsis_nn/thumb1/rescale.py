# pyright: basic
"""Requantisation without a long multiplication: the shortest sequence of 32-bit instructions that equals TFLite's double rounding on
every accumulator a layer can reach.

Enters: a `Stage` and each channel's bias. Leaves: a `Rescaling`, or None: then the sums leave the kernel as they are.
Invariant: a clamped requantisation is a monotone step function, so its thresholds fix it; a `Rescaling` has the same thresholds
inside the reachable range, which is a proof by integers, not a test.

For l = acc - bias, the bare sum of products, a channel's output is low + clamp(v, 0, span) with, in the order of preference,
* one multiplication:   v = (l * high + offset) >> right
* two multiplications:  v = (l * high + (l * fraction >> shift) + offset) >> right, which is the upper part of l times the number
  high * 2^shift + fraction, exactly, as long as l * fraction and the sum are int32.
bias, zero point and rounding are all in `offset`. Where that is not enough: `right` for each channel; l clamped first to where the
output changes (`limits`), which keeps saturated sums within int32; another offset for negative accumulators (`correction`), whose
ties TFLite rounds away from zero; or these together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from aot.backends.layers.requantise import Stage, is_regular, tflite, thresholds_of
from aot.errors import InternalError

_FAR = 1 << 62
_INT32 = 1 << 31
_NEAR = np.array(sorted(range(-7, 8), key=abs))  # how far from the exact scale a multiplier is looked for
_TRIALS = 4  # shifts below the largest that might do
_MOST_RIGHT, _MOST_SHIFT, _MOST_BITS = 26, 16, 44
_DEAD_RIGHT = 16  # of a channel whose output does not change


@dataclass(frozen=True)
class Rescaling:
    """Arrays are int64, one entry a channel. shift: None for one multiplication. right: one number for all, or each channel's.

    limits: (channels, 2), what l is clamped to first, or None. bias, correction: None without another offset below 0.
    """

    low: int
    span: int
    shift: int | None
    right: int | np.ndarray
    high: np.ndarray
    fraction: np.ndarray
    offset: np.ndarray
    limits: np.ndarray | None = None
    bias: np.ndarray | None = None
    correction: np.ndarray | None = None

    @property
    def code(self) -> tuple[object, ...]:
        """All that the instructions depend on."""
        right = self.right if isinstance(self.right, int) else None
        return self.low, self.span, self.shift, right, self.limits is None, self.correction is None

    @property
    def instructions(self) -> int:
        """Up to the clamp of the result, where nothing saturates."""
        return (4 if self.shift is None else 7) + 5 * (self.limits is not None) + 5 * (self.correction is not None)

    def words(self, n: int) -> list[int]:
        """The table of channel n, in the order in which the instructions load it."""
        found = [] if self.limits is None else self.limits[n].tolist()
        found += [self.high[n]] if self.shift is None else [self.fraction[n], self.high[n]]
        found += [self.offset[n]]
        found += [] if isinstance(self.right, int) else [self.right[n]]
        if self.bias is not None and self.correction is not None:
            found += [self.bias[n], self.correction[n]]
        return [int(word) for word in found]

    def apply(self, sums: np.ndarray) -> np.ndarray:
        """What the instructions compute from l, (channels, count), in int64."""
        return self.low + np.clip(self.total(sums) >> np.reshape(self.right, (-1, 1)), 0, self.span)

    def total(self, sums: np.ndarray) -> np.ndarray:
        """The int32 that is shifted at last."""
        clamped = self.clamped(sums)
        found = clamped * self.high[:, None] + self.offset[:, None]
        if self.shift is not None:
            found += (clamped * self.fraction[:, None]) >> self.shift
        if self.bias is not None and self.correction is not None:
            found += np.where(clamped + self.bias[:, None] < 0, self.correction[:, None], 0)
        return found

    def clamped(self, sums: np.ndarray) -> np.ndarray:
        return sums if self.limits is None else np.clip(sums, self.limits[:, :1], self.limits[:, 1:])

    def __str__(self) -> str:
        ways = ["one multiplication" if self.shift is None else "two multiplications"]
        ways += [] if isinstance(self.right, int) else ["each channel with its own shift"]
        ways += [] if self.limits is None else ["sums clamped first"]
        ways += [] if self.correction is None else ["another offset below 0"]
        return f"requantised by {', '.join(ways)}"


@dataclass(frozen=True)
class _Task:
    """Thresholds (channels, span) of the levels above `low`, the reachable accumulators of channels whose output changes in them
    (`live`), and those after a clamp to where it changes."""

    stage: Stage
    bias: np.ndarray
    thresholds: np.ndarray
    live: np.ndarray
    acc_low: np.ndarray
    acc_high: np.ndarray
    is_clamped: bool


def solve(stage: Stage, bias: np.ndarray) -> Rescaling | None:
    """The shortest sequence for all channels alike. `bias`: acc - l of each channel."""
    if not is_regular(stage):
        return None
    thresholds = thresholds_of(stage, np.arange(stage.low + 1, stage.high + 1, dtype=np.int64))
    reached = (thresholds > stage.acc_low[:, None]) & (thresholds <= stage.acc_high[:, None])
    live = np.any(reached, axis=1)
    first = np.where(reached, thresholds, _FAR).min(1, initial=_FAR) - 1
    last = np.where(reached, thresholds, -_FAR).max(1, initial=-_FAR)
    whole = _Task(stage, bias, thresholds, live, stage.acc_low, stage.acc_high, False)
    ends = np.where(live, first, stage.acc_low), np.where(live, last, stage.acc_low)
    clamped = replace(whole, acc_low=ends[0], acc_high=ends[1], is_clamped=True)
    attempts = [(whole, True, False, False)]
    attempts += [(task, False, signed, own) for signed in (False, True) for task in (whole, clamped) for own in (False, True)]
    for task, is_single, signed, own in attempts:
        found = _attempt(task, is_single, signed, own)
        if found is not None:
            _prove(stage, bias, thresholds, found)
            return found
    return None


def _attempt(task: _Task, is_single: bool, signed: bool, own: bool) -> Rescaling | None:
    """A sequence of this kind, or None."""
    sums = np.stack([task.acc_low - task.bias, task.acc_high - task.bias], 1)
    largest = np.where(task.live, np.abs(sums).max(1), 1)
    rights = _rights(task)
    if not own:
        rights = np.full_like(rights, rights[task.live].min() if task.live.any() else _DEAD_RIGHT)
    most = min(_MOST_SHIFT, 32 - int(largest.max(initial=1)).bit_length())
    for less in range(_TRIALS):
        for shift in [0] if is_single else range(most, max(most - _TRIALS, 4), -1):
            right = np.minimum(rights - less, _MOST_BITS - shift)
            if (right >= 1).all():
                found = _fit(task, shift, right, signed)
                if found is not None:
                    high, fraction, offset, correction = found
                    return Rescaling(
                        task.stage.low,
                        task.stage.high - task.stage.low,
                        None if is_single else shift,
                        right if own else int(right[0]),
                        high,
                        fraction,
                        offset,
                        sums if task.is_clamped else None,
                        task.bias if signed else None,
                        correction if signed else None,
                    )
    return None


def _rights(task: _Task) -> np.ndarray:
    """The largest last shift of each channel that leaves every v an int32 before it."""
    scale = task.stage.multiplier * 2.0 ** (task.stage.shift - 31.0)
    ends = np.stack([task.acc_low, task.acc_high], 1) * scale[:, None] + (task.stage.zero_point - task.stage.low)
    largest = np.maximum(np.abs(ends).max(1), task.stage.high - task.stage.low) + 1
    found = 31 - np.ceil(np.log2(largest + 1)).astype(np.int64)
    return np.where(task.live, np.minimum(found, _MOST_RIGHT), _DEAD_RIGHT)


def _fit(task: _Task, shift: int, right: np.ndarray, signed: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """(high, fraction, offset, correction) of every channel for these shifts, or None."""
    stage, bits = task.stage, shift + right
    exact = stage.multiplier.astype(float) * 2.0 ** (bits + stage.shift - 31.0)
    largest = np.abs(task.bias) + np.maximum(np.abs(task.acc_low), np.abs(task.acc_high))
    if (task.live & ((exact >= _INT32 * 2.0**shift) | (largest * exact >= 2.0**60))).any():
        return None
    scale = np.where(task.live, np.rint(np.where(task.live, exact, 0)), 0).astype(np.int64)[:, None] + _NEAR * task.live[:, None]
    sides = [(task.acc_low, task.acc_high)]
    if signed:
        sides = [(np.maximum(task.acc_low, 0), task.acc_high), (task.acc_low, np.minimum(task.acc_high, -1))]
    offsets = [_offsets(task, scale, bits, shift, *side) for side in sides]
    ok, half = scale >= 0, np.int64(1) << max(shift - 1, 0)
    high = (scale + half) >> shift if shift else scale
    fraction = scale - (high << shift)
    ends = np.stack([task.acc_low - task.bias, task.acc_high - task.bias], 1)
    for fits, offset in offsets:
        ok &= fits & (np.abs(offset) < _INT32)
        for end in (ends[:, :1], ends[:, 1:]):
            ok &= np.abs(end * fraction) < _INT32
            total = end * high + ((end * fraction) >> shift) + offset
            ok &= (total >= -_INT32) & (total < _INT32)
    if not ok.any(1).all():
        return None
    chosen, each = ok.argmax(1), np.arange(len(scale))
    offset = offsets[0][1][each, chosen]
    correction = offsets[-1][1][each, chosen] - offset
    return high[each, chosen], fraction[each, chosen], offset, correction


def _offsets(
    task: _Task, scale: np.ndarray, bits: np.ndarray, shift: int, acc_low: np.ndarray, acc_high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For each channel and scale: whether there is an offset for accumulators from acc_low to acc_high, and one.

    Level k (counted from `low`) is reached at acc iff acc * scale + O >= k << bits. So O is at least (k << bits) - acc * scale at the
    first accumulator of the side that reaches it, and less than that at the last one that does not. O is offset << shift, less
    bias * scale.
    """
    levels = np.arange(1, task.thresholds.shape[1] + 1, dtype=np.int64) << bits[:, None]
    low, high, thresholds = acc_low[:, None], acc_high[:, None], task.thresholds
    reaches, misses = (thresholds <= high) & (low <= high), (thresholds > low) & (low <= high)
    above = np.clip(thresholds, low, np.maximum(high, low))
    below = np.clip(thresholds - 1, low, np.maximum(high, low))
    least = np.full(scale.shape, -_FAR)
    most = np.full(scale.shape, _FAR)
    for number in range(scale.shape[1]):
        one = scale[:, number : number + 1]
        least[:, number] = np.where(reaches, levels - above * one, -_FAR).max(1, initial=-_FAR)
        most[:, number] = np.where(misses, levels - below * one, _FAR).min(1, initial=_FAR)
    moved = task.bias[:, None] * scale
    from_below = -((-(least + moved)) >> shift)
    from_above = (most + moved - 1) >> shift
    offset = np.where(least > -_FAR, from_below, np.where(most < _FAR, from_above, 0))
    return (least <= (offset << shift) - moved) & ((offset << shift) - moved < most), offset


def _prove(stage: Stage, bias: np.ndarray, thresholds: np.ndarray, found: Rescaling) -> None:
    """Compare with the definition on both sides of each threshold, and at the ends of the range: monotone functions that agree there
    agree everywhere. (With a correction it is monotone on either side of zero: -1 and 0 are compared too.)"""
    low, high = stage.acc_low[:, None], stage.acc_high[:, None]
    around = [thresholds, thresholds - 1, low, high, np.full_like(low, -1), np.zeros_like(low)]
    points = np.clip(np.concatenate(around, 1), low, high)
    sums = points - bias[:, None]
    total, clamped = found.total(sums), found.clamped(sums)
    fits = (np.abs(clamped * found.fraction[:, None]) < _INT32).all() and (total >= -_INT32).all() and (total < _INT32).all()
    right = np.asarray(found.right)
    falls = (found.high << (found.shift or 0)) + found.fraction < 0
    if not fits or right.min() < 1 or right.max() > 31 or falls.any():
        raise InternalError(f"{found}: out of range")
    if (found.apply(sums) != np.clip(tflite(stage, points), stage.low, stage.high)).any():
        raise InternalError(f"{found}: differs from the definition")
