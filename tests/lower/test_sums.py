"""Sums of two rescaled 8-bit numbers as a line or two table entries: for ADD's own parameters, and where it must not fire."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aot.driver import Options, lower, prepare
from aot.graph.expr import Const, Expr, Lookup, Requantise, add, cast, clamp, integer, sub, walk
from aot.graph.interpreter import run as interpret
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_model
from aot.lower.execute import execute_program
from aot.lower.program import Program
from aot.lower.sums import separate_sums
from tests.lower.test_tabulate import INT8, INT32, element, program, rescaled, results, total
from tests.one_operator import T, one_operator

SHAPE = (64, 64)
FIT = ((0.1, 0.1, 0.1), (0.05, 0.11, 0.13), (0.0235, 0.0419, 0.0473))
TIES = ((0.2, 0.001, 0.15), (0.037, 0.5, 0.02), (0.01, 0.01, 3.0))
"""With TIES, sums on either side of 0 lie exactly between two steps and round away from 0: no staircase of one offset does that."""


def count(made: Program, kind: type) -> int:
    return sum(isinstance(each, kind) for each in walk(made.instructions[0].value))  # type: ignore[union-attr]


def all_pairs() -> list[np.ndarray]:
    """Every pair of int8 numbers, as two inputs of 16 x 64 x 64."""
    values = np.arange(-128, 128).astype(np.int8)
    a, b = np.meshgrid(values, values, indexing="ij")
    return [a.reshape(16, *SHAPE), b.reshape(16, *SHAPE)]


@pytest.mark.parametrize("op", ["ADD", "SUB"])
@pytest.mark.parametrize("activation", ["NONE", "RELU", "RELU6"])
@pytest.mark.parametrize("scales", [*FIT, *TIES])
@pytest.mark.parametrize("zero_points", [(0, 0, 0), (-128, 5, -128), (127, -1, 3)])
def test_operators_at_every_pair(op: str, activation: str, scales: tuple[float, ...], zero_points: tuple[int, ...]) -> None:
    tensors = [T((16, *SHAPE), "int8", scale, zero) for scale, zero in zip(scales, zero_points, strict=True)]
    model = read_model(one_operator(op, tensors[:2], tensors[2:], {"fused_activation_function": activation}), "pairs", OPERATORS)
    made = lower(prepare(model.main, {}, lambda stage, result: None), Options(), lambda stage, result: None)
    inputs = all_pairs()
    (expected,) = interpret(model.main, inputs)
    (got,) = execute_program(made, dict(zip(made.inputs, inputs, strict=True))).values()
    np.testing.assert_array_equal(got, expected)
    if scales in FIT:
        assert count(made, Lookup) in (0, 2) and count(made, Requantise) == 0


@pytest.mark.parametrize("shifts", [(-3, -5), (0, -2), (-1, -1)])
def test_a_line_needs_no_tables(shifts: tuple[int, int]) -> None:
    before = program(total(rescaled(element("a"), 1_300_000_007, shifts[0]), rescaled(element("b"), 1_700_000_001, shifts[1])))
    after = separate_sums(before)
    after.verify()
    assert count(after, Lookup) == 0 and count(after, Requantise) == 0
    np.testing.assert_array_equal(results(before), results(after))


def test_the_sum_is_separated() -> None:
    before = program(total(rescaled(element("a")), rescaled(element("b"), 1_100_000_000)))
    after = separate_sums(before)
    after.verify()
    assert count(after, Lookup) in (0, 2) and count(after, Requantise) == 0
    np.testing.assert_array_equal(results(before), results(after))


def varying_shift() -> Expr:
    a, b = rescaled(element("a")), rescaled(element("b"))
    return cast(clamp(Requantise(add(a, b), integer(1 << 30), cast(element("a"), INT32)), -128, 127), INT8)


@pytest.mark.parametrize(
    "value,edge",
    [
        (total(rescaled(element("a")), rescaled(element("b"))), 32),  # too seldom for 2 KiB
        (total(rescaled(element("a")), rescaled(element("a"), 1_100_000_000)), 64),  # one number
        (add(rescaled(element("a")), rescaled(element("b"))), 64),  # not 8 bits wide
        (varying_shift(), 64),
        (cast(sub(cast(element("a"), INT32), cast(element("b"), INT32)), INT8), 64),  # wraps: no staircase
        (Const(1, INT8), 64),
    ],
    ids=["seldom", "one", "wide", "shift", "wraps", "constant"],
)
def test_where_it_does_not_fire(value: Expr, edge: int) -> None:
    before = program(value, edge)
    assert separate_sums(before) is before


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(1 << 30, (1 << 31) - 1), st.integers(1 << 30, (1 << 31) - 1), st.integers(-8, 0), st.integers(-8, 0))
def test_no_byte_changes(first: int, second: int, left: int, right: int) -> None:
    before = program(total(rescaled(element("a"), first, left), rescaled(element("b"), second, right)))
    np.testing.assert_array_equal(results(before), results(separate_sums(before)))
