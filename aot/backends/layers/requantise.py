"""Requantisation solver: the cheapest instructions that equal TFLite's double rounding on every accumulator a layer can reach.

Enters: each channel's multiplier, shift and reachable accumulator range, the output's zero point and clamp. Leaves: a `Form`.
Invariant: requantisation with a clamp is a monotone step function, so its thresholds (the smallest accumulator that gives at least
k, for each k) fix it; a `Form` has the same thresholds inside the reachable range, which is a proof by integers, not a test.

The forms, for u = (acc + delta) * factor << pre (factor is 1 but for kernels that sum multiples) and all of a layer's channels alike:
* saturate: y = SSAT8((offset + (u * multiplier >> 32)) >> right)                                      SMMLA, SSAT
* signed:   the same with offset + (u < 0 ? correction : 0); delta is 0                                AND, SMMLA, ADD, SSAT
* exact:    SMULL and both roundings, with each channel's own shifts; for wrapping or ill-conditioned layers
* sums:     none: the layer's output is its accumulators
Saturate and signed also come with each channel's own shift (one instruction more), where a layer's shifts lie too far apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

import numpy as np

from aot.errors import InternalError

Kind = Literal["saturate", "signed", "exact", "long", "sums"]
_FAR = np.int64(1) << 40  # an accumulator beyond every int32
_MOST_RIGHT = 23  # 128 << 23 and a carry fit int32
_ROUND = 4  # shifts that layers prefer to have are multiples of it
_SEARCH = 1 << 17  # how far from 0 a delta is looked for
_CHUNK = 1 << 12
_TRIED = 16  # channels whose offset is tried for all
_OPEN = 1 << 60


@dataclass(frozen=True)
class Stage:
    """What is to be computed: for each channel multiplier and shift (TFLite's) and the reachable accumulators [acc_low, acc_high],
    int64 arrays of one length; for the layer zero_point, and the clamp [low, high] inside int8."""

    multiplier: np.ndarray
    shift: np.ndarray
    acc_low: np.ndarray
    acc_high: np.ndarray
    zero_point: int
    low: int
    high: int

    @property
    def channels(self) -> int:
        return len(self.multiplier)


@dataclass(frozen=True)
class Form:
    """How to compute a stage. Arrays are int64, one entry a channel.

    kind, pre (left shifts before the multiplication; `pre[n]` is the kernel's choice for the channel's place), delta (add to the
    bias). saturate, signed: multiplier (int32, >= 0), offset, correction (0 unless signed), right (for pre 0: the shift is right +
    pre). uniform: `right` is the same for each channel. clamp: the clamp that SSAT does not already do, or None.
    exact: multiplier, left, right are TFLite's. long: saturate for sums of int64. bits: of the output (int16: see `requantise16.py`).
    """

    kind: Kind
    pre: np.ndarray
    delta: np.ndarray
    multiplier: np.ndarray
    offset: np.ndarray
    correction: np.ndarray
    right: np.ndarray
    uniform: bool
    clamp: tuple[int, int] | None
    zero_point: int = 0
    left: np.ndarray | None = None
    factor: int = 1
    bits: int = 8

    def __str__(self) -> str:
        if self.kind == "sums":
            return "sums in int32"
        how = {
            "saturate": "SMMLA, SSAT",
            "signed": "AND, SMMLA, ADD, SSAT",
            "exact": "both roundings as TFLite spells them",
            "long": "UMULL, MLA, ADD, SSAT",
        }[self.kind]
        return f"requantised by {how}{'' if self.uniform or self.kind == 'exact' else ', each channel with its own shift'}"


def sums(channels: int) -> Form:
    """The form of a layer whose output is its accumulators."""
    none = np.zeros(channels, np.int64)
    return Form("sums", none, none, none, none, none, none, True, None, bits=32)


def tflite(stage: Stage, acc: np.ndarray) -> np.ndarray:
    """The definition, before the clamp: `acc` of shape (channels, ...) -> int64, with every int32 wrap."""
    tail = (1,) * (acc.ndim - 1)
    multiplier, shift = (array.reshape(-1, *tail) for array in (stage.multiplier, stage.shift))
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    shifted = _wrap32(np.asarray(acc, np.int64) << left)
    high = (shifted * multiplier + (1 << 30)) >> 31  # SRDHM: for multiplier >= 0 this is its rounding, half up
    mask = (np.int64(1) << right) - 1
    rounded = (high >> right) + ((high & mask) > (mask >> 1) + (high < 0))
    return _wrap32(rounded + stage.zero_point)


def solve(
    stage: Stage, pre_choices: tuple[np.ndarray, ...], kinds: Sequence[Kind] = ("saturate", "signed"), factor: int = 1
) -> Form:
    """The cheapest form. `pre_choices`: for each choice the left shift of every channel, in the order to try; a choice whose
    shifted accumulators leave int32 is skipped. kinds: what the kernel has instructions for, apart from exact. factor: what the
    kernel's accumulators are multiplied by (an exact form does not regard it)."""
    if not is_regular(stage):
        return _exact(stage)
    thresholds = _thresholds(stage)
    for uniform in (True, False):
        for kind in kinds:
            for pre in pre_choices:
                form = _attempt(stage, thresholds, kind, np.asarray(pre, np.int64), uniform, factor)
                if form is not None:
                    _prove(stage, form, thresholds)
                    return form
    return _exact(stage)


def unified(stage: Stage, form: Form) -> Form | None:
    """The same function with the same multiplier, offset and correction for all channels of one `pre`; None if there is none.

    With one scale for the whole layer all channels have the same steps: offsets of the one that reaches most serve the others.
    """
    varying = form.multiplier[form.multiplier != 0]
    if form.kind == "exact" or not form.uniform or not len(varying) or (varying != varying[0]).any():
        return None
    thresholds, (levels, _) = _thresholds(stage), _levels(stage)
    form = replace(form, multiplier=np.full_like(form.multiplier, varying[0]))
    found = _one_offset(stage, thresholds, levels, form) if form.kind == "saturate" else _one_pair(stage, thresholds, levels, form)
    if found is None or not _in_range(stage, found):
        return None
    _prove(stage, found, thresholds)
    return found


def _one_offset(stage: Stage, thresholds: np.ndarray, levels: np.ndarray, form: Form) -> Form | None:
    """A saturate form with one offset for each `pre`, every channel with its own delta."""
    offset, delta = np.zeros_like(form.offset), np.zeros_like(form.delta)
    bounds = _bounds(stage, thresholds, levels, form, stage.acc_low, stage.acc_high, _OPEN)
    for pre in np.unique(form.pre):
        alike = np.flatnonzero(form.pre == pre)
        step = int(form.multiplier[alike[0]]) << int(pre)
        narrow = sorted(alike, key=lambda n: bounds[n][1] - bounds[n][0])[:_TRIED]
        for candidate in dict.fromkeys(int(form.offset[n]) for n in narrow):
            deltas = [_delta(bounds[n][0] - (candidate << 32), bounds[n][1] - (candidate << 32), step) for n in alike]
            if None not in deltas:
                offset[alike], delta[alike] = candidate, np.array(deltas, np.int64)
                break
        else:
            return None
    return replace(form, offset=offset, delta=delta)


def _delta(low: int, high: int, step: int) -> int | None:
    """The number nearest to 0 with low <= delta * step < high."""
    least, most = -(-low // step), -(-high // step) - 1
    return max(least, min(0, most)) if least <= most else None


def _one_pair(stage: Stage, thresholds: np.ndarray, levels: np.ndarray, form: Form) -> Form | None:
    """A signed form with one offset and one correction for each `pre`."""
    zero, minus_one = np.zeros_like(stage.acc_low), np.full_like(stage.acc_low, -1)
    positive = _bounds(stage, thresholds, levels, form, np.maximum(stage.acc_low, zero), stage.acc_high, _OPEN)
    negative = _bounds(stage, thresholds, levels, form, stage.acc_low, np.minimum(stage.acc_high, minus_one), _OPEN)
    offset, correction = np.zeros_like(form.offset), np.zeros_like(form.offset)
    for pre in np.unique(form.pre):
        alike = np.flatnonzero(form.pre == pre)
        found: list[int | None] = []
        for bounds, reached in ((positive, stage.acc_high >= 0), (negative, stage.acc_low < 0)):
            these = [bounds[n] for n in alike if reached[n]] or [(0, 1)]
            found.append(_offset(max(low for low, _ in these), min(high for _, high in these)))
        above, below = found
        if above is None or below is None or not all(map(_is_int32, (above, below, below - above))):
            return None
        offset[alike], correction[alike] = above, below - above
    return replace(form, offset=offset, correction=correction)


def varies(stage: Stage) -> np.ndarray:
    """Which channels have more than one output over their reachable accumulators. Of the others a saturate or signed form takes no
    notice of the accumulator (their multiplier is 0), so that their weights and biases do not matter."""
    if not is_regular(stage):
        return np.ones(stage.channels, bool)
    return _live(stage, _thresholds(stage))


def _live(stage: Stage, thresholds: np.ndarray) -> np.ndarray:
    reached = (thresholds > stage.acc_low[:, None]) & (thresholds <= stage.acc_high[:, None])
    return np.any(reached, axis=1)


def apply(form: Form, acc: np.ndarray) -> np.ndarray:
    """A saturate or signed form's value of `acc` (channels, ...): what the emitted instructions compute, in int64."""
    tail = (1,) * (acc.ndim - 1)
    pre, delta, multiplier, offset, correction, right = (
        array.reshape(-1, *tail) for array in (form.pre, form.delta, form.multiplier, form.offset, form.correction, form.right)
    )
    u = (acc + delta) * form.factor << pre
    total = offset + np.where(u < 0, correction, 0) + ((u * multiplier) >> 32)
    y = np.clip(total >> (right + pre), -128, 127)
    return y if form.clamp is None else np.clip(y, *form.clamp)


def _wrap32(x: np.ndarray) -> np.ndarray:
    return ((x + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


def is_regular(stage: Stage) -> bool:
    """Whether no int32 wraps, so that the function is monotone."""
    if stage.acc_low.min() < -(1 << 31) or stage.acc_high.max() >= 1 << 31 or stage.shift.max() > 30 or stage.shift.min() < -31:
        return False
    left, right = np.maximum(stage.shift, 0), np.maximum(-stage.shift, 0)
    for end in (stage.acc_low, stage.acc_high):
        shifted = end << left
        rounded = ((shifted * np.minimum(stage.multiplier, 1 << 31) + (1 << 30)) >> 31) >> right
        if (np.abs(shifted) >= 1 << 31).any() or (np.abs(rounded) >= (1 << 31) - 1024).any():
            return False
    return True


def _levels(stage: Stage) -> tuple[np.ndarray, tuple[int, int] | None]:
    """The outputs k whose thresholds matter, and the clamp left to do after SSAT.

    A bound inside int8 that no accumulator passes needs no clamp; then its threshold is one of those that matter.
    """
    ends = tflite(stage, np.stack([stage.acc_low, stage.acc_high], 1))
    under, over = stage.low > -128 and ends[:, 0].min() < stage.low, stage.high < 127 and ends[:, 1].max() > stage.high
    first = stage.low + 1 if under or stage.low <= -128 else stage.low
    last = stage.high if over or stage.high >= 127 else stage.high + 1
    return np.arange(first, last + 1, dtype=np.int64), (stage.low, stage.high) if under or over else None


def _thresholds(stage: Stage) -> np.ndarray:
    return thresholds_of(stage, _levels(stage)[0])


def thresholds_of(stage: Stage, levels: np.ndarray) -> np.ndarray:
    """(channels, levels): the smallest accumulator whose output (before the clamp) is at least k; +-2^40 where out of reach.

    y >= k  <=>  SRDHM >= bar  <=>  (acc << left) * multiplier + 2^30 >= bar * 2^31, with the rounding's tie rule in `bar`.
    """
    steps = (levels - stage.zero_point)[None, :]
    left, right = (np.maximum(sign * stage.shift, 0)[:, None] for sign in (1, -1))
    half = np.where(right > 0, np.int64(1) << np.maximum(right - 1, 0), 0)
    bar = (steps << right) - half + ((right > 0) & (steps <= 0))
    within = np.abs(bar) < 1 << 31
    multiplier = stage.multiplier[:, None]
    needed = (np.where(within, bar, 0) << 31) - (1 << 30)
    product_unit = np.maximum(multiplier, 1) << left
    threshold = -((-needed) // product_unit)
    threshold = np.where(within, threshold, np.where(bar > 0, _FAR, -_FAR))
    return np.where(multiplier == 0, np.where(bar <= 0, -_FAR, _FAR), threshold)


def _attempt(stage: Stage, thresholds: np.ndarray, kind: Kind, pre: np.ndarray, uniform: bool, factor: int) -> Form | None:
    """A form of this kind, or None."""
    levels, clamp = _levels(stage)
    live = _live(stage, thresholds)
    too_large = np.maximum(-stage.acc_low, stage.acc_high) * factor << pre >= 1 << 31
    if (live & too_large).any():
        return None
    zeros = np.zeros(stage.channels, np.int64)
    for right in _shifts(stage, pre, live, uniform):
        form = Form(kind, pre, zeros, zeros, zeros, zeros, right, uniform, clamp, factor=factor)
        for multiplier in _scaled(stage, right, live, factor):
            found = _fit(stage, thresholds, levels, replace(form, multiplier=multiplier))
            if found is not None:
                return found
    return None


def _shifts(stage: Stage, pre: np.ndarray, live: np.ndarray, uniform: bool) -> list[np.ndarray]:
    """Candidate shifts. The largest that keeps every multiplier in int32 keeps most bits; a round one close below lets layers
    share code."""
    largest = np.minimum(-stage.shift - 1, _MOST_RIGHT - pre)
    least = int(largest[live].min()) if live.any() else 0
    if not uniform:
        found = [np.where(live, largest, least)]
    else:
        found = [np.full(stage.channels, right) for right in dict.fromkeys((least - least % _ROUND, least))]
    return [right for right in found if (right + pre >= 0).all()]


def _scaled(stage: Stage, right: np.ndarray, live: np.ndarray, factor: int) -> list[np.ndarray]:
    """Candidate multipliers: TFLite's, scaled to the layer's shift and the factor, rounded to nearest, down and up. 0 for a constant
    channel."""
    dropped = -(stage.shift + 1 + right)
    divisor = np.int64(factor) << np.maximum(dropped, 0)
    exact = stage.multiplier << np.maximum(-dropped, 0)
    down = exact // divisor
    nearest = (exact + divisor // 2) // divisor
    rounded = [nearest, down, down + 1] if (divisor > 1).any() else [exact]
    return [np.where(live, np.minimum(candidate, (1 << 31) - 1), 0) for candidate in rounded]


def _fit(stage: Stage, thresholds: np.ndarray, levels: np.ndarray, form: Form) -> Form | None:
    """Offsets (and deltas) for given multipliers, channel by channel; None as soon as a channel has none."""
    zero, minus_one = np.zeros_like(stage.acc_low), np.full_like(stage.acc_low, -1)
    if form.kind == "saturate":
        bounds = _bounds(stage, thresholds, levels, form, stage.acc_low, stage.acc_high)
        pairs = [_offset_and_delta(stage, form, n, *bounds[n]) for n in range(stage.channels)] if _open(bounds) else [None]
        if any(pair is None for pair in pairs):
            return None
        found = np.array(pairs, np.int64).reshape(-1, 2)
        return replace(form, offset=found[:, 0], delta=found[:, 1])
    positive = _bounds(stage, thresholds, levels, form, np.maximum(stage.acc_low, zero), stage.acc_high)
    negative = _bounds(stage, thresholds, levels, form, stage.acc_low, np.minimum(stage.acc_high, minus_one))
    above, below = ([_offset(low, high) for low, high in bounds] for bounds in (positive, negative))
    if any(offset is None for offset in above + below):
        return None
    offset, other = np.array(above, object), np.array(below, object)
    offset, other = np.where(stage.acc_high < 0, other, offset), np.where(stage.acc_low >= 0, offset, other)
    found = replace(form, offset=offset.astype(np.int64), correction=(other - offset).astype(np.int64))
    return found if _in_range(stage, found) else None


Bounds = list[tuple[int, int]]


def _open(bounds: Bounds) -> bool:
    return all(low < high for low, high in bounds)


def _bounds(
    stage: Stage,
    thresholds: np.ndarray,
    levels: np.ndarray,
    form: Form,
    acc_low: np.ndarray,
    acc_high: np.ndarray,
    far: int = 1 << 34,
) -> Bounds:
    """For each channel [L, U): where delta * step + offset * 2^32 must lie for the form to step exactly at the thresholds.

    With step = multiplier * factor << pre and unit = 2^(32 + right + pre), level k is reached at acc iff acc * step + O >= k * unit. So O
    is at least k * unit - T * step, and less than k * unit - (T - 1) * step; thresholds out of reach bind at the ends of the range.
    The differences are small although their terms pass int64: they are taken modulo 2^64, relative to the zero point.
    """
    step = form.multiplier * form.factor << form.pre
    scale = form.right + form.pre
    relative = (levels - stage.zero_point)[None, :].astype(np.uint64)
    unit = np.uint64(1) << (32 + scale).astype(np.uint64)
    distance = (relative * unit[:, None] - thresholds.astype(np.uint64) * step[:, None].astype(np.uint64)).astype(np.int64)
    inside = (thresholds > acc_low[:, None]) & (thresholds <= acc_high[:, None])
    largest = np.where(inside, distance, np.iinfo(np.int64).min).max(1, initial=np.iinfo(np.int64).min)
    smallest = np.where(inside, distance, np.iinfo(np.int64).max).min(1, initial=np.iinfo(np.int64).max)
    passed, beyond = (thresholds <= acc_low[:, None]).sum(1), (thresholds > acc_high[:, None]).sum(1)
    found: Bounds = []
    for n in range(stage.channels):
        one, multiple, low, high = int(step[n]), 1 << (32 + int(scale[n])), None, None
        if inside[n].any():
            origin = stage.zero_point * multiple
            low, high = int(largest[n]) + origin, int(smallest[n]) + origin + one
        if acc_low[n] <= acc_high[n]:
            if passed[n]:
                low = _largest(low, int(levels[passed[n] - 1]) * multiple - int(acc_low[n]) * one)
            if beyond[n]:
                high = _smallest(high, int(levels[len(levels) - beyond[n]]) * multiple - int(acc_high[n]) * one)
        found.append(_closed(low, high, far))
    return found


def _largest(a: int | None, b: int) -> int:
    return b if a is None else max(a, b)


def _smallest(a: int | None, b: int) -> int:
    return b if a is None else min(a, b)


def _closed(low: int | None, high: int | None, far: int) -> tuple[int, int]:
    """An interval with its open ends put `far` away."""
    if low is None:
        low = 0 if high is None else high - far
    return low, low + far if high is None else high


def _offset(low: int, high: int) -> int | None:
    """The smallest C with low <= C * 2^32 < high."""
    offset = -((-low) >> 32)
    return offset if (offset << 32) < high else None


def _offset_and_delta(stage: Stage, form: Form, n: int, low: int, high: int) -> tuple[int, int] | None:
    """(C, delta) with low <= delta * step + C * 2^32 < high and delta nearest to 0."""
    unit = form.factor << int(form.pre[n])
    step = int(form.multiplier[n]) * unit
    for delta in islice(_deltas(step, low, high - low), 4):
        offset = -((-(low - delta * step)) >> 32)
        least, most = (int(stage.acc_low[n]) + delta, int(stage.acc_high[n]) + delta) if step else (0, 0)
        ends = [(acc * unit, offset + ((acc * step) >> 32)) for acc in (least, most)]
        if _is_int32(offset) and all(_is_int32(u) and _is_int32(total) for u, total in ends):
            return offset, delta
    return None


def _deltas(step: int, low: int, width: int) -> Iterator[int]:
    """Deltas, nearest to 0 first, for which an offset exists: ceil((low - delta * step) / 2^32) * 2^32 stays under low - delta *
    step + width."""
    if width >= 1 << 32:
        yield 0
    if width <= 0:
        return
    for start in range(0, _SEARCH, _CHUNK):
        delta = np.arange(start, start + _CHUNK, dtype=np.int64)
        both = np.stack([delta, -delta], 1).ravel()[1 if start == 0 else 0 :]
        short = (both * np.int64(step % (1 << 32)) - np.int64(low % (1 << 32))) % (1 << 32)
        yield from both[short < width].tolist()


def _is_int32(x: int) -> bool:
    return -(1 << 31) <= x < 1 << 31


def _in_range(stage: Stage, form: Form) -> bool:
    return bool(_within(stage, form).all())


def _within(stage: Stage, form: Form) -> np.ndarray:
    """For each channel, whether u, the offsets and their sums stay in int32 (int64 arrays hold them all exactly here)."""
    limit = 1 << 31
    ends = np.stack([stage.acc_low, stage.acc_high], 1) + form.delta[:, None]
    u = np.where(form.multiplier[:, None] == 0, 0, ends * form.factor << form.pre[:, None])
    total = form.offset[:, None] + ((u * form.multiplier[:, None]) >> 32)
    parts = (u, total, total + form.correction[:, None], form.offset[:, None], form.correction[:, None])
    return np.all([((part >= -limit) & (part < limit)).all(1) for part in parts], axis=0)


def agreement(stage: Stage, form: Form, thresholds: np.ndarray | None = None) -> np.ndarray:
    """For each channel of a regular stage, whether a saturate or signed form is the definition on every reachable accumulator.

    Both are compared on both sides of each threshold, and at the ends of the range: monotone functions that agree there agree
    everywhere. (The signed form is monotone on either side of zero: -1 and 0 are compared too.)
    """
    thresholds = _thresholds(stage) if thresholds is None else thresholds
    low, high = stage.acc_low[:, None], stage.acc_high[:, None]
    around = np.concatenate([thresholds, thresholds - 1, low, high, np.full_like(low, -1), np.zeros_like(low)], 1)
    points = np.clip(around, low, high)
    expected = np.clip(tflite(stage, points), stage.low, stage.high)
    return (apply(form, points) == expected).all(1) & _within(stage, form)


def clamp_of(stage: Stage) -> tuple[int, int] | None:
    """The clamp of a regular stage that saturation to int8 does not already do."""
    return _levels(stage)[1]


def _prove(stage: Stage, form: Form, thresholds: np.ndarray) -> None:
    """InternalError if the form is not the definition."""
    if not agreement(stage, form, thresholds).all():
        raise InternalError(f"requantisation: {form} differs from the definition")


def _exact(stage: Stage) -> Form:
    clamp = None if (stage.low, stage.high) == (-128, 127) else (stage.low, stage.high)
    return exact(stage.multiplier, stage.shift, stage.zero_point, clamp)


def exact(multiplier: np.ndarray, shift: np.ndarray, zero_point: int, clamp: tuple[int, int] | None) -> Form:
    """The definition itself, as instructions."""
    zeros = np.zeros_like(multiplier)
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    return Form("exact", zeros, zeros, multiplier, zeros, zeros, right, False, clamp, zero_point, left)
