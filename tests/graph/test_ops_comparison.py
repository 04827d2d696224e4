"""Comparisons, MAXIMUM, MINIMUM, LOGICAL_AND, LOGICAL_OR: compute, lowering and the oracle agree; what is refused says why."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.expr import Requantise, loads, walk
from aot.graph.interpreter import run
from aot.graph.primitive import Map
from tests.graph.lowered import agree, extremes, primitives, read, run_lowered, sweep
from tests.graph.test_ops_binary import BROADCASTS
from tests.one_operator import T, binary, one_operator, random_inputs
from tests.oracle import litert_runs, tflm_run, tflm_runs

COMPARISONS = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
EXTREMES = ("MAXIMUM", "MINIMUM")
LOGICAL = ("LOGICAL_AND", "LOGICAL_OR")
BYTES = {"int8": np.arange(-128, 128, dtype=np.int8), "uint8": np.arange(256, dtype=np.uint8)}
SCALES = ((0.05, 0.05), (0.05, 0.07), (0.9, 0.0011), (0.001, 0.001), (1e-6, 1e-3), (2.0**-7, 2.0**-5))
"""Of 0.001 and less many neighbours fall together."""


def compare(op: str, *shapes, dtype: str, **quantisations) -> bytes:
    return binary(op, *shapes, dtype=dtype, out_dtype="bool", **quantisations)


@pytest.mark.parametrize("op", COMPARISONS)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_all_pairs_of_bytes(op: str, dtype: str) -> None:
    values, oracle = BYTES[dtype], litert_runs if dtype == "uint8" else tflm_runs
    low = int(values[0])
    for case in sweep(8, scales=SCALES, left=(0, 3, 128, 255), right=(0, 3, 200)):
        (a, b), left, right = case["scales"], low + case["left"], low + case["right"]
        model = compare(op, (256, 1), (1, 256), dtype=dtype, left_q=(a, left), right_q=(b, right))
        agree(model, [values.reshape(256, 1), values.reshape(1, 256)], oracle=oracle)


@pytest.mark.parametrize("op", COMPARISONS)
def test_same_quantisation_of_bytes(op: str) -> None:
    """The cheap form, and where it must not be taken: at scale 0.002 neighbours are equal."""
    values = BYTES["int8"]
    for scale, zero_point in ((0.05, -3), (0.003, 5), (0.002, -128)):
        model = compare(op, (256, 1), (1, 256), dtype="int8", left_q=(scale, zero_point), right_q=(scale, zero_point))
        agree(model, [values.reshape(256, 1), values.reshape(1, 256)])
    for quantisation, count in (((0.05, -3), 0), ((0.002, -3), 2)):
        (lowered,) = primitives(compare(op, (4,), dtype="int8", left_q=quantisation, right_q=quantisation))
        assert isinstance(lowered, Map)
        assert sum(isinstance(part, Requantise) for part in walk(lowered.value)) == count
        assert len(loads(lowered.value)) == 2


@pytest.mark.parametrize("op", COMPARISONS)
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_plain_numbers(op: str, dtype: str) -> None:
    rng = np.random.default_rng(5)
    for shapes in BROADCASTS:
        model = compare(op, *shapes, dtype=dtype)
        agree(model, [rng.integers(-2, 3, shape).astype(dtype) for shape in shapes])


@pytest.mark.parametrize("op", COMPARISONS)
def test_extremes_and_nan(op: str) -> None:
    numbers = np.array([np.nan, -np.inf, -1, -0.0, 0, 1e-45, 1, np.inf], np.float32)
    agree(compare(op, (8, 1), (8,), dtype="float32"), [numbers.reshape(8, 1), numbers])
    limits = np.array([-(1 << 63), -1, 0, (1 << 31), (1 << 63) - 1])
    agree(compare(op, (5, 1), (5,), dtype="int64"), [limits.reshape(5, 1), limits])


@pytest.mark.parametrize("op", COMPARISONS)
def test_int16(op: str) -> None:
    """LiteRT, which rescales for EQUAL and NOT_EQUAL: with a scale of 0.0001 numbers next to each other are equal.

    Its NOT_EQUAL needs scales: without them it reads multipliers that nobody has written.
    """
    rng = np.random.default_rng(5)
    scales = [(0.001, 0.001), (0.0001, 0.0001)]
    scales += [(0.001, 0.002)] if op in ("EQUAL", "NOT_EQUAL") else []
    scales += [(None, None)] if op != "NOT_EQUAL" else []
    for scale, other in scales:
        inputs = [T((40, 1), "int16", scale), T((1, 40), "int16", other)]
        model = one_operator(op, inputs, [T((40, 40), "bool")], {})
        pair = [rng.integers(-40, 41, spec.shape).astype(np.int16) for spec in inputs]
        agree(model, pair, *extremes(model), oracle=litert_runs)


@pytest.mark.parametrize("op", ["EQUAL", "NOT_EQUAL", *LOGICAL])
def test_bool(op: str) -> None:
    for shapes in BROADCASTS:
        agree(binary(op, *shapes, dtype="bool"))


@pytest.mark.parametrize("op", EXTREMES)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "float32"])
def test_maximum_and_minimum(op: str, dtype: str) -> None:
    for shapes in BROADCASTS:
        model = binary(op, *shapes, dtype=dtype, left_q=(0.05, 3), right_q=(0.05, 3), output_q=(0.05, 3))
        agree(model, *extremes(model), oracle=litert_runs if dtype == "uint8" else tflm_runs)


@pytest.mark.parametrize("op", EXTREMES)
def test_bytes_are_compared_without_their_quantisation(op: str) -> None:
    model = binary(op, (50,), left_q=(0.05, 3), right_q=(0.5, -20), output_q=(0.1, 1))
    agree(model, *extremes(model))


@pytest.mark.parametrize("op", EXTREMES)
def test_nan_and_signed_zeros(op: str) -> None:
    """The second operand, where the two do not compare."""
    numbers = np.array([np.nan, -0.0, 0.0, 1.0, -np.inf], np.float32)
    pair = [np.repeat(numbers, 5), np.tile(numbers, 5)]
    model = binary(op, (25,), dtype="float32")
    graph = read(model)
    lowered = run_lowered(graph, dict(zip(graph.inputs, pair)))[graph.outputs[0]]
    for found in (run(graph, pair)[0], lowered):
        assert np.array_equal(found, tflm_run(model, pair)[0], equal_nan=True)
        assert np.array_equal(np.signbit(found), np.signbit(tflm_run(model, pair)[0]))


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (compare("LESS", dtype="bool"), "bool is not supported for 'in0'"),
        (compare("EQUAL", dtype="uint32"), "uint32 is not supported for 'in0'"),
        (binary("EQUAL", dtype="int32"), "int32 is not supported for 'out0'"),
        (one_operator("LESS", [T((2,), "int32"), T((2,), "float32")], [T((2,), "bool")]), "'in1' is float32 but 'in0' is int32"),
        (compare("LESS", dtype="int8", left_q=(1.5, 0)), "'in0' has scale 1.5; TFLite compares scales below 1 only"),
        (
            one_operator("GREATER", [T((2,), "int16", 0.1), T((2,), "int16", 0.2)], [T((2,), "bool")]),
            "'in0' and 'in1' must have the same quantisation",
        ),
        (binary("MAXIMUM", dtype="bool"), "bool is not supported for 'in0'"),
        (one_operator("MAXIMUM", [T((2,), "int32")], [T((2,), "int32")]), "has 1 inputs, not 2"),
        (binary("LOGICAL_OR", dtype="int8"), "int8 is not supported for 'in0'"),
        (
            one_operator("LESS", [T((2, 3), "int32"), T((4, 3), "int32")], [T((4, 3), "bool")]),
            "'in0' of shape 2x3 and 'in1' of shape 4x3 do not broadcast",
        ),
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value)


def test_random_inputs_of_bools_differ() -> None:
    """The sweeps above mean something."""
    left, right = random_inputs(binary("LOGICAL_AND", (20,), dtype="bool"))
    assert {(bool(a), bool(b)) for a, b in zip(left, right)} == {(False, False), (False, True), (True, False), (True, True)}
