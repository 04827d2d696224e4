"""The choice among variants, against all choices there are, on small random problems."""

from __future__ import annotations

import os
from itertools import product

import numpy as np
import pytest

from aot.lower.tradeoff import OPTIMIZE, Figures, Goal, Layers, Picks, Total, choose, total

ONE = [[Figures(100, 10, 40), Figures(80, 20, 40), Figures(50, 100, 80)]]


def random_layers(seed: int) -> Layers:
    """Up to six layers of up to four variants; more flash, fewer instructions, mostly; some share code."""
    rng = np.random.default_rng(seed)
    layers = []
    for _ in range(rng.integers(1, 7)):
        work = int(rng.integers(1, 1000)) * 100
        variants = []
        for _ in range(rng.integers(1, 5)):
            code, constants = int(rng.integers(0, 4000)), int(rng.integers(100, 9000))
            speed = 1 + 3000 / (1000 + code + constants) + 0.2 * rng.random()
            names = [f"core{number}" for number in range(3) if rng.random() < 0.25]
            variants.append(Figures(int(work * speed), code, constants, tuple((name, 500 + 100 * len(name)) for name in names)))
        layers.append(variants)
    return layers


def every(layers: Layers) -> list[tuple[Total, Picks]]:
    return [(total(layers, picks), picks) for picks in product(*(range(len(layer)) for layer in layers))]


def test_shared_code_counts_once() -> None:
    layers = [[Figures(10, 5, 7, (("core", 100),))], [Figures(20, 6, 8, (("core", 100), ("other", 30)))]]
    assert total(layers, (0, 0)) == Total(30, 141, 15)


@pytest.mark.parametrize(
    ("goal", "wanted"),
    [
        (Goal("speed"), 2),
        (Goal("size"), 0),
        (Goal("balanced"), 1),  # 5000, 4800, 9000: instructions times bytes
        (Goal("speed", max_flash_nbytes=100), 1),
        (Goal("speed", max_constants_nbytes=50), 1),
        (Goal("balanced", max_flash_nbytes=55), 0),
        (Goal("speed", max_flash_nbytes=0), 0),
    ],
)
def test_one_layer(goal: Goal, wanted: int) -> None:
    assert choose(ONE, goal) == (wanted,)


def test_all_layers_leave_code_that_they_share() -> None:
    """No single layer saves a byte by that, and faster code is at hand; the other code comes in two parts."""
    layer = [Figures(100, 0, 40, (("fast", 200),)), Figures(120, 0, 40, (("body", 50), ("core", 100)))]
    assert choose([layer] * 3, Goal("size")) == (1, 1, 1)
    assert choose([layer[::-1]] * 3, Goal("size")) == (0, 0, 0)
    assert choose([layer] * 3, Goal("speed", max_flash_nbytes=280)) == (1, 1, 1)


def test_the_fewest_bytes_need_not_be_the_fewest_constants() -> None:
    layers = [[Figures(100, 10, 50), Figures(10, 100, 40)]] * 2
    assert choose(layers, Goal("size")) == (0, 0)
    assert choose(layers, Goal("balanced", max_constants_nbytes=85)) == (1, 1)
    assert choose(layers, Goal("balanced", max_constants_nbytes=75)) == (0, 0)  # out of reach


def test_equally_fast_variants_go_by_bytes() -> None:
    assert choose([[Figures(10, 9, 9), Figures(10, 8, 9)]], Goal("speed")) == (1,)


def test_equal_variants_go_by_preference() -> None:
    for optimize in OPTIMIZE:
        assert choose([[Figures(10, 9, 9)] * 3], Goal(optimize)) == (0,)


@pytest.mark.parametrize("seed", range(1000 if os.environ.get("AOT_SWEEP") else 40))
def test_against_every_choice(seed: int) -> None:
    """Limits hold, and what is found is the best or close to it."""
    layers = random_layers(seed)
    all_of_them = every(layers)
    least = min(one.flash_nbytes for one, _ in all_of_them)
    most = max(one.flash_nbytes for one, _ in all_of_them)
    assert total(layers, choose(layers, Goal("size"))).flash_nbytes <= 1.02 * least
    fastest = min(one.instructions for one, _ in all_of_them)
    assert total(layers, choose(layers, Goal("speed"))).instructions == fastest
    found = total(layers, choose(layers, Goal("balanced")))
    best = min(one.instructions * one.flash_nbytes for one, _ in all_of_them)
    assert found.instructions * found.flash_nbytes <= 1.05 * best
    for share in (0.1, 0.5, 0.9):
        limit = int(least * 1.02 + share * (most - least))
        found = total(layers, choose(layers, Goal("speed", max_flash_nbytes=limit)))
        assert found.flash_nbytes <= limit
        best = min(one.instructions for one, _ in all_of_them if one.flash_nbytes <= limit)
        assert found.instructions <= 1.15 * best


@pytest.mark.parametrize("seed", range(20))
def test_constants_have_a_limit_of_their_own(seed: int) -> None:
    layers = random_layers(seed)
    least = sum(min(one.constants_nbytes for one in layer) for layer in layers)
    for optimize in ("speed", "balanced"):
        goal = Goal(optimize, max_constants_nbytes=int(1.2 * least))
        picks = choose(layers, goal)
        sums = total(layers, picks)
        smallest = total(layers, choose(layers, Goal("size")))
        assert sums.constants_nbytes <= 1.2 * least or sums == smallest


def test_many_layers_take_little_time() -> None:
    layers = [variants for seed in range(40) for variants in random_layers(seed)]
    for optimize in OPTIMIZE:
        picks = choose(layers, Goal(optimize, max_flash_nbytes=sum(layer[0].constants_nbytes for layer in layers)))
        assert len(picks) == len(layers)
