"""Lanes: groups that fit never overflow, whatever the activations; splits are exact; what just does not fit is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aot.backends.cmsis_nn.swar import lanes

WEIGHTS = st.sampled_from([*range(-128, 128), -128, -127, 127, 0])


@st.composite
def matrices(draw: st.DrawFn) -> np.ndarray:
    channels, depth = draw(st.integers(1, 4)), draw(st.integers(1, 24))
    flat = draw(st.lists(WEIGHTS, min_size=channels * depth, max_size=channels * depth))
    return np.array(flat, np.int64).reshape(channels, depth)


def worst_inputs(weights: np.ndarray) -> list[np.ndarray]:
    """For one channel: activations with the largest and the smallest sum."""
    return [np.where(weights > 0, 127, -128), np.where(weights > 0, -128, 127)]


def accumulate(groups: list[tuple[np.ndarray, np.ndarray]]) -> tuple[int, int]:
    """What kernels compute from (factor with lanes, plain factor) of each group: S modulo 2^32 and the sum of upper halves."""
    total = upper = 0
    for wide, plain in groups:
        word = int((wide.astype(object) * plain.astype(object)).sum()) & 0xFFFFFFFF
        total += word
        upper += lanes.split(word)[1]
    low = ((total - (upper << 16) + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
    return low, upper


@given(matrices(), st.data())
def test_sums_are_exact_with_either_factor_in_lanes(weights: np.ndarray, data: st.DataObject) -> None:
    groups = lanes.partition(weights)
    lanes.check(weights, groups)
    some = np.array(data.draw(st.lists(st.integers(-128, 127), min_size=weights.shape[1], max_size=weights.shape[1])))
    inputs = [some, *(x for row in weights for x in worst_inputs(row))]
    for x in inputs:
        for y in inputs:  # pixels in lanes
            for w in weights:
                parts = [(lanes.pack(x[list(g)], y[list(g)]), w[list(g)]) for g in groups]
                assert accumulate(parts) == (w @ x, w @ y)
        for a in weights:  # channels in lanes
            for b in weights:
                parts = [(lanes.pack(a[list(g)], b[list(g)]), x[list(g)]) for g in groups]
                assert accumulate(parts) == (a @ x, b @ x)


@given(st.integers(-32767, 32767), st.integers(-32767, 32767))
def test_split_inverts_pack(low: int, high: int) -> None:
    assert lanes.split(int(lanes.pack(np.array([low]), np.array([high]))[0])) == (low, high)
    assert (low + (high << 16) + lanes.BIAS) >> 16 == high


def test_the_limit_is_the_last_that_is_exact() -> None:
    """W+ = 256 reaches -32768: exact in the low lane, but as the high lane above a negative low one it leaves int32."""
    assert not lanes.fits(np.array([[127, 127, 2]]))
    assert lanes.fits(np.array([[127, 127, 1]]))
    assert lanes.split(-32768 * 65536 - 1)[1] != -32768
    assert not lanes.fits(np.array([[-128, -128]]))
    assert lanes.fits(np.array([[-128, 1, 126]]))


@given(matrices())
def test_cuts_are_neighbours_that_fit_and_could_not_be_longer(weights: np.ndarray) -> None:
    at = 0
    for length in lanes.cuts(weights):
        assert lanes.fits(weights[:, at : at + length])
        assert at + length == weights.shape[1] or not lanes.fits(weights[:, at : at + length + 1])
        at += length
    assert at == weights.shape[1]
    assert max(lanes.cuts(weights, most=3)) <= 3
    size = lanes.any_of(weights)
    order = np.argsort(-abs(weights).max(0))
    assert size >= 1 and lanes.fits(weights[:, order[:size]])


def test_saturated_weights_go_two_by_two() -> None:
    signs = np.random.default_rng(1).choice([-127, 127], (16, 64))
    assert {len(group) for group in lanes.partition(signs)} == {2}
    assert lanes.any_of(signs) == 2
    assert set(lanes.cuts(signs)) == {2}
    assert {len(group) for group in lanes.partition(np.full((2, 9), -128))} == {1}


def test_groups_are_few_and_the_same_each_time() -> None:
    weights = np.clip(np.random.default_rng(2).normal(0, 30, (64, 64)), -127, 127).round().astype(int)
    groups = lanes.partition(weights)
    assert groups == lanes.partition(weights)
    assert len(groups) <= 11 < len(lanes.cuts(weights))


def test_a_narrow_range_of_activations_allows_more() -> None:
    weights = np.full((1, 8), 127)
    assert len(lanes.partition(weights, reach=(0, 31))) == 1
    assert len(lanes.partition(weights)) == 4


def test_check_refuses() -> None:
    weights = np.full((1, 4), 127)
    with pytest.raises(ValueError, match="not a partition"):
        lanes.check(weights, ((0, 1), (2,)))
    with pytest.raises(ValueError, match="does not fit"):
        lanes.check(weights, ((0, 1, 2), (3,)))
