"""A sample of the differential cases: every operator in its turn, and graphs. `make fuzz N=...` runs as many as one likes."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.differential.hunt import UNCHECKED, Hunter
from tests.differential.net import parse
from tests.differential.strategies import graphs, single, supported
from tests.differential.table import CASES

SEED = int(os.environ.get("AOT_SEED", "0"))
MANY = 20 if os.environ.get("AOT_SWEEP") else 1
ENGINES = [pytest.importorskip(name, reason="needs TFLite Micro and LiteRT") for name in ("tflite_micro", "ai_edge_litert")]


@pytest.fixture(scope="module")
def hunter():
    hunter = Hunter()
    yield hunter
    hunter.referee.close()


def check(hunter: Hunter) -> None:
    """No failure since the last check; says which, with the text that rebuilds it."""
    found, hunter.tally.failures = hunter.tally.failures, []
    assert not found, "\n".join(f"{ops}: {what}\n    {text}" for ops, what, text in found)


@pytest.mark.slow
@pytest.mark.parametrize("op", supported())
def test_one_operator(hunter: Hunter, op: str) -> None:
    hunter.run(single(CASES[op]), SEED, 4 * MANY)
    check(hunter)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(5 * MANY))
def test_graphs(hunter: Hunter, number: int) -> None:
    hunter.run(graphs(), 1000 * SEED + number, 10)
    check(hunter)


def test_a_case_is_its_text(hunter: Hunter) -> None:
    """The text of a case rebuilds it: the same bytes and inputs."""
    from hypothesis import Phase, given, seed, settings

    @seed(SEED)
    @settings(max_examples=5, database=None, deadline=None, phases=(Phase.generate,), suppress_health_check=UNCHECKED)
    @given(graphs())
    def same(case) -> None:
        net = case[0]
        again = parse(repr(net))
        assert again == net and again.build() == net.build()
        assert all(np.array_equal(a, b) for a, b in zip(again.arrays(), net.arrays()))

    same()
