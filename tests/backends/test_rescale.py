"""Requantisation by two 32-bit multiplications against the definition: every kind of scale, reach, zero point and clamp."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aot.backends.cmsis_nn.thumb1.rescale import Rescaling, solve
from aot.backends.layers.requantise import Stage
from tests.backends.test_requantise import definition, stage_of, stages


def check(stage: Stage, bias: np.ndarray, acc: np.ndarray) -> Rescaling | None:
    found = solve(stage, bias)
    if found is not None:
        sums = acc - bias[:, None]
        assert (found.apply(sums) == definition(stage, acc)).all(), found
        assert all(-(1 << 31) <= word < 1 << 31 for n in range(stage.channels) for word in found.words(n))
    return found


@given(stages(), st.integers(0, 1000))
@settings(max_examples=200, deadline=None)
def test_sequences_equal_the_definition(stage: Stage, seed: int) -> None:
    rng = np.random.default_rng(seed)
    acc = rng.integers(stage.acc_low[:, None], stage.acc_high[:, None] + 1, (stage.channels, 300))
    check(stage, rng.integers(stage.acc_low, stage.acc_high + 1), acc)


@pytest.mark.parametrize("zero_point", [-128, -7, 0, 127])
@pytest.mark.parametrize("scale", [0.0, 2**-20, 2**-9, 0.0031, 0.3, 0.999, 1.0, 1.7, 40.0])
def test_every_accumulator(scale: float, zero_point: int) -> None:
    reach = 30000
    acc = np.arange(-reach, reach + 1)[None, :]
    for clamp in ((-128, 127), (zero_point, 127), (-60, 70)):
        stage = stage_of([scale], [-reach], [reach], zero_point, clamp)
        assert check(stage, np.array([1234]), acc) is not None


def test_layers_as_in_models_have_a_sequence() -> None:
    """64 to 256 channels, accumulators of 17 to 20 bits, ReLU or none: no layer leaves its sums as they are."""
    rng, found = np.random.default_rng(5), Counter()
    for number in range(24):
        channels, depth = (64, 128, 256)[number % 3], (64, 144, 576, 27)[number % 4]
        deviation = 74 * 40 * depth**0.5
        reach = depth * 128 * 60
        scales = 70 / deviation * np.exp(rng.normal(0, 0.4, channels))
        bias = (rng.normal(0, 0.5, channels) * deviation).astype(np.int64)
        zero_point = -128 if number % 2 else int(rng.integers(-20, 20))
        stage = stage_of(scales, bias - reach, bias + reach, zero_point)
        acc = rng.integers(stage.acc_low[:, None] // 8, stage.acc_high[:, None] // 8, (channels, 200))
        chosen = check(stage, bias, acc)
        assert chosen is not None
        found[str(chosen)] += 1
    print(found)
    assert sum(count for text, count in found.items() if "clamped" not in text and "below" not in text) >= 6


def test_what_wraps_is_left_alone() -> None:
    stage = stage_of([0.5], [-(1 << 40)], [1 << 40])
    assert solve(stage, np.array([0])) is None
