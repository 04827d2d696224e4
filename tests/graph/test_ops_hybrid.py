"""Hybrid CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED (float32 with integer weights) against LiteRT, which alone has them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from aot.graph.interpreter import run, run_all
from aot.graph.ir import DType
from tests.graph.lowered import agree, extremes, read, run_lowered
from tests.graph.test_ops_types import FAMILIES, FLOAT_BOUND, compare, compiled, contract_of
from tests.one_operator import T, conv2d, depthwise, one_operator
from tests.oracle import litert_runs


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("weights_dtype", ["int8", "int4"])
def test_hybrid(family: str, weights_dtype: str) -> None:
    if (family, weights_dtype) == ("depthwise", "int4"):
        pytest.skip("LiteRT has none")
    choices = {"per_channel": (True, False) if family != "depthwise" else (True,), "asymmetric": (True, False)}

    def fields(case: dict, number: int) -> dict:
        grouped = case.get("groups", 1) > 1  # LiteRT reads a scale for each channel
        scale = None if case["per_channel"] or grouped else 0.01
        options = {"options": {"asymmetric_quantize_inputs": case["asymmetric"]}} if family == "dense" else {}
        return {"dtype": "float32", "weights_dtype": weights_dtype, "weight_scale": scale, **options}

    compare(family, 40, litert_runs, choices, fields, bound=FLOAT_BOUND)


def hybrid_dense(shape: Sequence[int] = (4, 6), asymmetric: bool = False, output: Sequence[int] = (4, 3), **fields) -> bytes:
    weights = T((3, 6), "int8", fields.get("scale", 0.02), data=np.random.default_rng(4).integers(-127, 128, (3, 6)))
    bias = T((3,), "float32", data=[0.5, -1.5, 3.0])
    options = {"asymmetric_quantize_inputs": asymmetric}
    return one_operator("FULLY_CONNECTED", [T(shape, "float32"), weights, bias], [T(output, "float32")], options)


@pytest.mark.parametrize("asymmetric", [False, True])
def test_hybrid_rows(asymmetric: bool) -> None:
    """Rows of nothing, of one sign, of very different sizes, and of halves between two integers."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(4, 6)).astype(np.float32)
    halves = np.array([127, 0.5, 1.5, -2.5, 63.5, -126.5], np.float32)
    model = hybrid_dense(asymmetric=asymmetric)
    cases = [rows, np.abs(rows), -np.abs(rows), rows * np.float32([[1e-20], [1e20], [0], [1]]), np.zeros((4, 6), np.float32)]
    cases += [np.stack([halves, -halves, halves * 2, halves / 64])]
    for case in cases:
        agree(model, [case], oracle=litert_runs, bound=FLOAT_BOUND)


@pytest.mark.parametrize("asymmetric", [False, True])
def test_hybrid_rows_that_are_not_numbers(asymmetric: bool) -> None:
    """Whatever they give, lowered primitives give the same."""
    strange = [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, -1e-45, 0.0]
    graph = read(hybrid_dense(asymmetric=asymmetric))
    for number, value in enumerate(strange):
        rows = np.random.default_rng(number).normal(size=(4, 6)).astype(np.float32)
        rows[number % 3, number % 6] = value
        rows[3] = value
        arrays = run_all(graph, [rows])
        lowered = run_lowered(graph, arrays)
        for name in graph.outputs:
            assert np.array_equal(arrays[name], lowered[name], equal_nan=True)


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize(
    ("shape", "output"), [((4, 2, 3), (4, 3)), ((2, 12), (4, 3)), ((24,), (4, 3)), ((2, 2, 6), (4, 3)), ((6,), (1, 3))]
)
def test_hybrid_rows_of_any_shape(shape: Sequence[int], output: Sequence[int], asymmetric: bool) -> None:
    agree(hybrid_dense(shape, asymmetric, output), oracle=litert_runs, bound=FLOAT_BOUND)


def test_the_two_ways_to_quantise_differ() -> None:
    rows = np.random.default_rng(6).normal(2, 1, (4, 6)).astype(np.float32)
    one, other = (run(read(hybrid_dense(asymmetric=asymmetric)), [rows])[0] for asymmetric in (False, True))
    assert np.abs(one - other).max() > 1e-3


@pytest.mark.parametrize(("scale", "quantised"), [([0.01, 0.01, 0.01], "int8"), ([0.01, 0.01, 0.02], "int16"), (0.01, "int8")])
def test_images_are_quantised_around_a_zero_point_if_channels_differ(scale, quantised: str) -> None:
    model = conv2d((2, 4, 4, 2), 3, dtype="float32", weights_dtype="int8", weight_scale=scale)
    assert contract_of(model).left.dtype is DType(quantised)
    agree(model, *extremes(model), oracle=litert_runs, bound=FLOAT_BOUND)


def test_images_in_groups_are_quantised_around_a_zero_point() -> None:
    """Although all channels have one scale (which LiteRT wants once for each)."""
    model = conv2d((2, 4, 4, 4), 4, groups=2, dtype="float32", weights_dtype="int8", weight_scale=[0.01] * 4)
    assert contract_of(model).left.dtype is DType.INT16
    agree(model, *extremes(model), oracle=litert_runs, bound=FLOAT_BOUND)


# Compiled code.

COMPILED = {
    "hybrid dense": hybrid_dense(),
    "hybrid dense around zero points": hybrid_dense(asymmetric=True, scale=[0.01, 0.02, 0.03]),
    "hybrid rows that cut a dimension": hybrid_dense((2, 12)),
    "hybrid conv": conv2d((2, 6, 5, 4), 3, dtype="float32", weights_dtype="int8", weight_scale=0.01),
    "hybrid grouped conv": conv2d((2, 6, 5, 4), 6, groups=2, dtype="float32", weights_dtype="int4"),
    "hybrid depthwise": depthwise((2, 6, 5, 4), 2, dtype="float32", weights_dtype="int8"),
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name: str) -> None:
    compiled(COMPILED[name])
