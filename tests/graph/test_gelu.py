"""Float GELU: the stated bounds over dense samples, and the extremes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from aot.graph import gelu
from aot.graph.expr import Load, axis, walk
from aot.graph.ir import DType
from tests.graph.test_floatmath import run, ulp_errors

_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def exact(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    return 0.5 * wide * _erfc(-wide / math.sqrt(2))


def approximate(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.longdouble)
    with np.errstate(over="ignore"):
        return wide / (1 + np.exp(-2 * np.sqrt(2 / np.longdouble(np.pi)) * (wide + 0.044715 * wide**3)))


def samples() -> np.ndarray:
    rng = np.random.default_rng(4)
    bits = rng.integers(0, 1 << 32, 100_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    even = [np.linspace(-15, 15, 300_001), -np.exp(rng.uniform(-20, 2.5, 100_000))]
    return np.concatenate([*even, bits[np.isfinite(bits)]]).astype(np.float32)


def test_the_error_bound_of_the_exact_form_holds() -> None:
    x = samples()
    assert ulp_errors(run(gelu.gelu, x), exact(x)).max() <= gelu.GELU_ULP


def test_the_error_bound_of_the_approximation_holds() -> None:
    x = samples()
    x = x[np.abs(x) < 1e9]  # the exact result needs x^3
    got, want = run(gelu.approximate_gelu, x), approximate(x)
    assert ulp_errors(got, want)[x >= -1].max() <= gelu.APPROXIMATE_GELU_ULP
    assert (np.abs(got - want) <= np.spacing(np.abs(x)))[x < -1].all()


@pytest.mark.parametrize("function", [gelu.gelu, gelu.approximate_gelu])
def test_extremes(function) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, 3e38, -3e38, 20, -20])
    assert run(function, x).tolist() == [0, 0, np.inf, 0, np.float32(3e38), 0, 20, 0]
    assert np.isnan(run(function, np.array([np.nan, -np.nan]))).all()


@pytest.mark.parametrize("function", [gelu.gelu, gelu.approximate_gelu])
def test_expressions_stay_small(function) -> None:
    assert len(list(walk(function(Load("x", (axis(0),), DType.FLOAT32))))) < 140
