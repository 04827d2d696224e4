"""Quantised arithmetic: multipliers, activation ranges, fixed-point functions, against exact rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aot.graph import arithmetic
from aot.graph.evaluate import requantise
from aot.graph.ir import DType

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)


def half_away(x: Fraction) -> int:
    return int(math.copysign(math.floor(abs(x) + Fraction(1, 2)), x)) if x else 0


@given(st.floats(2.0**-30, 2.0**29))
def test_a_multiplier_is_within_half_a_unit(real):
    multiplier, shift = arithmetic.quantise_multiplier(real)
    assert 1 << 30 <= multiplier < 1 << 31
    assert abs(Fraction(multiplier) * Fraction(2) ** (shift - 31) - Fraction(real)) <= Fraction(2) ** (shift - 32)


@pytest.mark.parametrize(
    ("real", "expected"),
    [
        (0.0, (0, 0)),
        (1.0, (1 << 30, 1)),
        (0.5, (1 << 30, 0)),
        (0.75, (3 << 29, 0)),
        (1 - 2.0**-53, (1 << 30, 1)),  # rounds up to 2^31: carried into the shift
        (0.5 + 2.0**-32, ((1 << 30) + 1, 0)),  # a half goes away from zero
        (2.0**-32, (1 << 30, -31)),
        (2.0**-33, (0, 0)),
        (2.0**-32 - 2.0**-80, (1 << 30, -31)),
        (3e9, (1_500_000_000, 32)),
    ],
)
def test_multipliers_at_the_edges(real, expected):
    assert arithmetic.quantise_multiplier(real) == expected


@given(INT32, st.integers(0, (1 << 31) - 1), st.integers(-31, 0))
def test_requantise_rounds_twice(x, multiplier, shift):
    high = half_away(Fraction(x * multiplier, 1 << 31))
    if x * multiplier < 0 and (x * multiplier) % (1 << 31) == 1 << 30:
        high += 1  # gemmlowp's nudge takes an exact negative half towards zero
    expected = half_away(Fraction(high, 1 << -shift))
    assert int(requantise(np.array([x]), multiplier, shift)[0]) == expected


@given(INT32, INT32)
def test_rounding_high_multiply(a, b):
    product = a * b
    expected = half_away(Fraction(product, 1 << 31))
    if product < 0 and product % (1 << 31) == 1 << 30:
        expected += 1
    assert int(arithmetic.rounding_high_multiply(a, b)) == min(expected, (1 << 31) - 1)


@given(INT32, st.integers(0, 31))
def test_rounding_shift_right(x, exponent):
    assert int(arithmetic.rounding_shift_right(np.int64(x), exponent)) == half_away(Fraction(x, 1 << exponent))


def test_exp_of_negative_is_near_exp():
    x = -np.arange(0, 1 << 31, 12345677, dtype=np.int64)
    expected = np.exp(x / 2.0**26)
    assert np.abs(arithmetic.exp_of_negative(x.astype(np.int32)) / 2.0**31 - expected).max() < 2e-7
    assert arithmetic.exp_of_negative(np.zeros(1, np.int32))[0] == (1 << 31) - 1


def test_reciprocal_of_one_plus_is_near_the_reciprocal():
    x = np.arange(0, 1 << 31, 1234567, dtype=np.int64)
    assert np.abs(arithmetic.reciprocal_of_one_plus(x) / 2.0**31 - 1 / (1 + x / 2.0**31)).max() < 1e-8
    assert arithmetic.reciprocal_of_one_plus(np.zeros(1, np.int64))[0] == (1 << 31) - 1


@pytest.mark.parametrize(
    ("activation", "scale", "zero_point", "expected"),
    [
        ("none", 0.1, 0, (-128, 127)),
        ("relu", 0.1, -7, (-7, 127)),
        ("relu6", 0.1, -128, (-128, -68)),
        ("relu6", 0.01, -128, (-128, 127)),
        ("relu6", 4.0, 0, (0, 2)),  # 6 / 4 = 1.5: a half goes away from zero
        ("relu_n1_to_1", 2.0, 3, (2, 4)),  # -1 / 2 too
        ("relu_n1_to_1", 0.001, 0, (-128, 127)),
        ("tanh", 0.1, 0, None),
        ("relu6", 1e-9, 0, None),
        ("relu6", 1e-45, 0, None),
    ],
)
def test_quantised_ranges(activation, scale, zero_point, expected):
    assert arithmetic.quantised_range(activation, DType.INT8, scale, zero_point) == expected


def test_float_ranges():
    assert arithmetic.float_range("relu6") == (0.0, 6.0)
    assert arithmetic.float_range("relu") == (0.0, arithmetic.FLOAT32_MAX)
    assert arithmetic.float_range("tanh") is None


def test_sum_scales_are_relative_to_twice_the_larger_input():
    a, b, out = arithmetic.sum_scales(0.5, 0.25, 1.0, 20)
    assert (a, b, out) == (0.5, 0.25, 1.0 / (1 << 20))


def test_activation_names():
    assert [arithmetic.activation_name(code) for code in range(6)] == list(arithmetic.ACTIVATIONS)
    assert arithmetic.activation_name(-1) == "activation -1"
