# pyright: basic
"""Lanes: two sums of products in one 32-bit register, and which products may share it.

Enters: weights of one or more channels, (channels, depth), integers; the range of the activations. Leaves: groups of k (indices
into the depth), each of which may be summed in lanes before it is split.
Invariant: over a group that `fits`, every channel's sum of weight * activation stays in [-32767, 32767] for all activations.

A register P holds two sums as the integer low + high * 65536, modulo 2^32. It does not matter which factor carries the lanes:

* pixels in lanes (M3): X = x_a + (x_b << 16) for the same k of two pixels, times one channel's plain weight w: low and high are
  the same channel's sums for two pixels, and the channel must fit by itself;
* channels in lanes (M0): W = w_a + (w_b << 16) for two channels at one k, times one activation x: low and high are two channels'
  sums for one pixel, and both channels must fit.

So the condition is one of each channel alone, and a partition of the k's that fits all channels of a set serves any pairing.
`split` gives the sums back: high = (P + 32768) >> 16 (arithmetic), which is P >> 16 plus P's bit 15, the carry that ASRS #16
leaves; low = P - (high << 16). That is exact while -32768 <= low <= 32767 and P itself is an int32; as high = -32768 with a
negative low is none, the range is symmetric. With several groups: high sums up group by group; the sum S of all P is only needed
modulo 2^32, and low = S - (high << 16) as an int32. A bias of 32768 that P starts from replaces the carry: high = P >> 16 then,
and S carries 32768 for each group.

Weights may be -128, activations -128 to 127; a group of one k always fits int8 weights. Weights of at most 127 fit two by two.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Group = tuple[int, ...]
Reach = tuple[int, int]

INT8: Reach = (-128, 127)
LIMIT = 32767
BIAS = 32768
"""What P may start from, so that its upper half is `high` without a carry."""

_WORK = 60_000_000  # comparisons that a search may take: a fraction of a second
_MOST_TRIALS = 40


def extremes(weights: np.ndarray, reach: Reach = INT8) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest product of each weight with any activation in `reach` (both ends included); they are at most and at
    least 0, so that a part of a group fits where the whole does, in any order of the sum."""
    weights = np.asarray(weights, np.int64)
    ends = np.stack([weights * reach[0], weights * reach[1], np.zeros_like(weights)])
    return ends.min(0), ends.max(0)


def fits(weights: np.ndarray, reach: Reach = INT8) -> bool:
    """Whether these k's, all of `weights` (channels, k), may be summed in lanes, for every channel."""
    low, high = (ends.sum(-1) for ends in extremes(weights, reach))
    return bool((low >= -LIMIT).all() and (high <= LIMIT).all())


def pack(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """low + (high << 16) modulo 2^32, as int32: a factor with two lanes (the sum of integers, not a union of bits)."""
    return (np.asarray(low, np.int64) + (np.asarray(high, np.int64) << 16)).astype(np.uint64).astype(np.uint32).view(np.int32)


def split(total: int) -> tuple[int, int]:
    """(low, high) of a register modulo 2^32: what the emitted instructions compute."""
    word = ((int(total) + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
    high = (word >> 16) + ((word >> 15) & 1)
    return word - (high << 16), high


def partition(weights: np.ndarray, reach: Reach = INT8, seed: int = 0) -> tuple[Group, ...]:
    """The k's of `weights` (channels, depth) in few groups, each of which fits every channel; the order of k is free.

    Randomised best fit, the same groups for the same weights. Sorted: larger groups first, each in ascending order of k.
    """
    low, high = (ends.T for ends in extremes(weights, reach))
    depth, channels = low.shape
    load = (high - low).sum(1) / max(channels, 1)
    generator, best = np.random.default_rng(seed), None
    trials = max(1, min(_MOST_TRIALS, _WORK // max(1, depth * depth * channels // 4)))
    least = _least_groups(low, high)
    for trial in range(trials):
        order = np.argsort(-load * (1 if trial == 0 else generator.uniform(0.6, 1.4, depth)), kind="stable")
        found = _best_fit(low, high, order, tight=trial % 2 == 0)
        if best is None or len(found) < len(best):
            best = found
        if len(best) <= least:
            break
    return tuple(sorted((tuple(sorted(group)) for group in best or ()), key=lambda group: (-len(group), group)))


def cuts(weights: np.ndarray, reach: Reach = INT8, most: int | None = None) -> tuple[int, ...]:
    """Lengths of groups of neighbouring k's, in the given order, as long as they fit (and at most `most`)."""
    low, high = (ends.T for ends in extremes(weights, reach))
    lengths: list[int] = []
    at = 0
    while at < len(low):
        ahead = slice(at, None if most is None else at + most)
        ok = (np.cumsum(low[ahead], 0) >= -LIMIT).all(1) & (np.cumsum(high[ahead], 0) <= LIMIT).all(1)
        length = int(np.logical_and.accumulate(ok).sum())
        if length == 0:
            raise ValueError("a weight beyond int8 fits no lane")
        lengths.append(length)
        at += length
    return tuple(lengths)


def any_of(weights: np.ndarray, reach: Reach = INT8) -> int:
    """The largest size of group that fits whichever k's are taken: a partition that needs no search. At least 1 for int8."""
    low, high = extremes(weights, reach)
    worst = np.sort(np.stack([-low, high]), axis=-1)[..., ::-1].cumsum(-1)
    return int((worst <= LIMIT).all((0, 1)).sum())


def _least_groups(low: np.ndarray, high: np.ndarray) -> int:
    """A bound from below: no partition has fewer groups."""
    most = max(int(-low.sum(0).min(initial=0)), int(high.sum(0).max(initial=0)))
    return max(1, -(-most // LIMIT)) if len(low) else 0


def _best_fit(low: np.ndarray, high: np.ndarray, order: np.ndarray, tight: bool) -> list[list[int]]:
    """Put each k into the group that it fits with least (tight) or most room left, or into a new one. Arrays are (depth, channels)."""
    lows, highs = np.zeros_like(low), np.zeros_like(high)
    groups: list[list[int]] = []
    for k in order.tolist():
        count = len(groups)
        below, above = lows[:count] + low[k], highs[:count] + high[k]
        worst = np.maximum(above.max(1, initial=0), -below.min(1, initial=0))
        ok = worst <= LIMIT
        if ok.any():
            filled = (above - below).sum(1)
            chosen = int(np.where(ok, filled if tight else -filled, np.iinfo(np.int64).min).argmax())
            lows[chosen], highs[chosen] = below[chosen], above[chosen]
            groups[chosen].append(k)
        else:
            lows[count], highs[count] = low[k], high[k]
            groups.append([k])
    return groups


def check(weights: np.ndarray, groups: Sequence[Group], reach: Reach = INT8) -> None:
    """ValueError unless `groups` is a partition of the k's, each of which fits: the proof, independent of the search."""
    weights = np.asarray(weights)
    if sorted(k for group in groups for k in group) != list(range(weights.shape[1])):
        raise ValueError("not a partition")
    if not all(fits(weights[:, list(group)], reach) for group in groups):
        raise ValueError("a group does not fit its lanes")
