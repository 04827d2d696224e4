"""floatmath: the stated ulp bounds over dense samples, and the extremes. The exact result comes from numpy's long double."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from aot.graph import floatmath
from aot.graph.evaluate import execute
from aot.graph.expr import Expr, Load, axis, walk
from aot.graph.ir import DType
from aot.graph.primitive import Map

INFINITY, NAN = np.inf, np.nan


def run(function: Callable[[Expr], Expr], x: np.ndarray) -> np.ndarray:
    arrays = {"x": x.astype(np.float32), "y": np.zeros(x.shape, np.float32)}
    execute(Map("y", x.shape, function(Load("x", (axis(0),), DType.FLOAT32))), arrays)
    return arrays["y"]


def ulp_errors(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Distance in units of the last place of `want`, a long double within float32's range."""
    _, exponent = np.frexp(want)
    return np.abs(got.astype(np.longdouble) - want) / np.exp2(np.maximum(exponent - 1, -126) - 23.0)


def exact_logistic(x: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


CASES = {
    "exp": (floatmath.exp, np.exp, floatmath.EXP_ULP, (-104.0, 88.72)),
    "exp_minus_1": (floatmath.exp_minus_1, np.expm1, floatmath.EXP_MINUS_1_ULP, (-40.0, 20.0)),
    "tanh": (floatmath.tanh, np.tanh, floatmath.TANH_ULP, (-12.0, 12.0)),
    "logistic": (floatmath.logistic, exact_logistic, floatmath.LOGISTIC_ULP, (-103.0, 20.0)),
    "log": (floatmath.log, np.log, floatmath.LOG_ULP, (1e-6, 10.0)),
}


def samples(low: float, high: float) -> np.ndarray:
    """Even steps over the interesting range and around 0 and 1, and random bit patterns."""
    rng = np.random.default_rng(1)
    even = np.concatenate([np.linspace(low, high, 400_003), np.linspace(-2, 2, 300_007)])
    bits = rng.integers(0, 1 << 32, 300_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    return np.concatenate([even.astype(np.float32), bits[np.isfinite(bits)]])


@pytest.mark.parametrize("name", CASES)
def test_the_error_bound_holds(name: str) -> None:
    function, exact, bound, (low, high) = CASES[name]
    x = samples(low, high)
    if name == "log":
        x = np.abs(x)[x != 0]
    if name == "exp_minus_1":
        x = np.minimum(x, np.float32(20))
    with np.errstate(all="ignore"):
        want = exact(x.astype(np.longdouble))
    got = run(function, x)
    finite = np.abs(want) < np.finfo(np.float32).max
    assert finite.mean() > 0.5
    assert ulp_errors(got[finite], want[finite]).max() <= bound
    assert np.array_equal(got[~finite], np.where(want[~finite] > 0, INFINITY, -INFINITY).astype(np.float32))


@pytest.mark.parametrize(
    ("name", "x", "want"),
    [
        ("exp", [0.0, -0.0, INFINITY, -INFINITY, 88.73, -104.1, 3e38, -3e38], [1, 1, INFINITY, 0, INFINITY, 0, INFINITY, 0]),
        ("exp_minus_1", [0.0, -0.0, -INFINITY, -3e38, 1e-45, -1e-45], [0, 0, -1, -1, 1e-45, -1e-45]),
        ("tanh", [INFINITY, -INFINITY, 3e38, -3e38, 1e-45, -1e-45], [1, -1, 1, -1, 1e-45, -1e-45]),
        ("logistic", [0.0, -0.0, INFINITY, -INFINITY, 3e38, -3e38], [0.5, 0.5, 1, 0, 1, 0]),
        ("log", [0.0, -0.0, INFINITY, 1.0], [-INFINITY, -INFINITY, INFINITY, 0]),
    ],
)
def test_extremes(name: str, x: list[float], want: list[float]) -> None:
    assert run(CASES[name][0], np.array(x)).tolist() == np.array(want, np.float32).tolist()


@pytest.mark.parametrize("name", CASES)
def test_nan_passes(name: str) -> None:
    assert np.isnan(run(CASES[name][0], np.array([NAN, -NAN]))).all()


def test_log_of_a_negative_number_is_nan() -> None:
    assert np.isnan(run(floatmath.log, np.array([-1.0, -1e-45, -INFINITY]))).all()


def test_tanh_keeps_the_sign_of_zero() -> None:
    assert np.signbit(run(floatmath.tanh, np.array([0.0, -0.0]))).tolist() == [False, True]


@pytest.mark.parametrize("name", CASES)
def test_expressions_stay_small(name: str) -> None:
    expression = CASES[name][0](Load("x", (axis(0),), DType.FLOAT32))
    assert len(list(walk(expression))) < 90
