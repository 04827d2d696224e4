"""Sine and cosine: the stated ulp bound for arguments of every size, and the extremes. The exact result: numpy's long double."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from aot.graph import trigonometry
from aot.graph.evaluate import execute
from aot.graph.expr import Expr, Load, axis, walk
from aot.graph.ir import DType
from aot.graph.primitive import Map
from tests.graph.test_floatmath import ulp_errors

CASES = {"sine": (trigonometry.sine, np.sin), "cosine": (trigonometry.cosine, np.cos)}
CLOSEST = 16367173 * 2.0**72
"""The float32 whose distance from a multiple of pi / 2 is the smallest of all, about 1.6e-9."""


def run(function: Callable[[Expr, str], Expr], x: np.ndarray) -> np.ndarray:
    arrays = {"x": x.astype(np.float32), "w": trigonometry.two_over_pi(), "y": np.zeros(x.shape, np.float32)}
    execute(Map("y", x.shape, function(Load("x", (axis(0),), DType.FLOAT32), "w")), arrays)
    return arrays["y"]


def samples() -> np.ndarray:
    """Even steps around 0, neighbours of multiples of pi / 2, random bit patterns of every exponent."""
    rng = np.random.default_rng(3)
    multiples = (np.arange(1, 60_000) * (np.pi / 2)).astype(np.float32)
    bits = rng.integers(0, 1 << 32, 300_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    even = [np.linspace(-20, 20, 400_001), np.linspace(-1, 1, 200_001)]
    return np.concatenate([*even, multiples, np.nextafter(multiples, np.float32(0)), -multiples, bits[np.isfinite(bits)]])


@pytest.mark.parametrize("name", CASES)
def test_the_error_bound_holds(name: str) -> None:
    function, exact = CASES[name]
    x = samples().astype(np.float32)
    errors = ulp_errors(run(function, x), exact(x.astype(np.longdouble)))
    assert errors.max() <= trigonometry.SIN_ULP


def test_the_float_closest_to_a_multiple_of_half_pi() -> None:
    x = np.array([CLOSEST, -CLOSEST])
    assert np.abs(np.cos(x.astype(np.longdouble))).max() < 2e-9
    assert ulp_errors(run(trigonometry.cosine, x), np.cos(x.astype(np.longdouble))).max() <= trigonometry.SIN_ULP


def test_extremes() -> None:
    tiny = np.array([0.0, -0.0, 1e-45, -1e-45, 1e-30], np.float32)
    assert run(trigonometry.sine, tiny).tobytes() == tiny.tobytes()
    assert run(trigonometry.cosine, tiny).tolist() == [1.0] * 5
    for function, _ in CASES.values():
        assert np.isnan(run(function, np.array([np.inf, -np.inf, np.nan, -np.nan]))).all()


@pytest.mark.parametrize("name", CASES)
def test_expressions_stay_small(name: str) -> None:
    assert len(list(walk(CASES[name][0](Load("x", (axis(0),), DType.FLOAT32), "w")))) < 130
