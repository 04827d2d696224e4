"""DIV, FLOOR_DIV, FLOOR_MOD: compute, lowering and the oracle agree; zero divisors; what is refused says why."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.arithmetic import quantise_multiplier, quotient_scale
from aot.graph.interpreter import run
from aot.graph.ir import Graph
from tests.graph.lowered import agree, read, run_lowered, sweep
from tests.graph.test_ops_binary import BROADCASTS
from tests.one_operator import T, binary, one_operator
from tests.oracle import litert_run, litert_runs, tflm_run, tflm_runs

FLOORS = ("FLOOR_DIV", "FLOOR_MOD")
LIMITS = np.array([-(1 << 31), -(1 << 31) + 1, -7, -3, -1, 1, 2, 5, 1 << 30, (1 << 31) - 1], np.int32)


def not_zero(array: np.ndarray, zero: int = 0) -> np.ndarray:
    return np.where(array == zero, array.dtype.type(zero + 1 if zero < 100 else zero - 1), array)


def numbers(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == "float32":
        return rng.standard_normal(shape).astype(np.float32)
    limits = np.iinfo(dtype)
    return np.asarray(rng.integers(limits.min, int(limits.max) + 1, shape) >> rng.integers(0, 8 * limits.bits // 8, shape)).astype(
        dtype
    )


def lowered(graph: Graph, inputs: list[np.ndarray]) -> np.ndarray:
    return run_lowered(graph, dict(zip(graph.inputs, inputs)))[graph.outputs[0]]


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("activation", ["NONE", "RELU", "RELU6", "RELU_N1_TO_1"])
def test_div(dtype: str, activation: str) -> None:
    for seed, (left, right) in enumerate(BROADCASTS):
        model = binary("DIV", left, right, dtype=dtype, activation=activation)
        agree(model, [numbers(left, dtype, seed), not_zero(numbers(right, dtype, seed + 100))])


def test_div_of_int32_rounds_towards_zero() -> None:
    pair = [np.repeat(LIMITS, 10), np.tile(LIMITS, 10)]
    pair = [array[(pair[0] != LIMITS[0]) | (pair[1] != -1)] for array in pair]  # C leaves that quotient open, and the oracle traps
    agree(binary("DIV", pair[0].shape, dtype="int32"), pair)


def defined(dtype: str, left: tuple[float, int], right: tuple[float, int], out_scale: float) -> np.ndarray:
    """Where the reference's last shift is at most 31 (256 x 256; beyond, it is undefined in C)."""
    values = np.arange(256) + np.iinfo(dtype).min
    a, b = (values - left[1])[:, None], (values - right[1])[None, :]
    a, b = np.where(b < 0, -a, a), np.abs(b)
    _, shift = quantise_multiplier(quotient_scale(left[0], right[0], out_scale, dtype == "uint8"))
    headroom = 31 - np.frexp(np.where(a < 0, ~a, a))[1]
    return (shift - (np.frexp(b)[1] - 1) - headroom >= -31) & (b != 0)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_div_of_bytes(dtype: str) -> None:
    """All pairs. Where the reference is undefined the quotient is tiny: real 0, give or take one step."""
    low, oracle = int(np.iinfo(dtype).min), tflm_run if dtype == "int8" else litert_run
    values = (np.arange(256) + low).astype(dtype)
    seen_undefined = 0
    for case in sweep(
        16,
        scales=((0.1, 0.1), (0.1, 0.001), (0.003, 0.07)),
        out=(2.0, 0.05, 0.004, 1.0 / 256),
        left=(0, 1, 128, 255),
        right=(0, 128, 130, 255),
        zero=(0, 130, 255),
        activation=("NONE", "RELU", "RELU6"),
    ):
        left, right = (case["scales"][0], low + case["left"]), (case["scales"][1], low + case["right"])
        inputs, kept = [values.reshape(256, 1), values[values != right[1]].reshape(1, 255)], values != right[1]
        out = (case["out"] * case["scales"][0] / case["scales"][1], low + case["zero"])
        shapes, activation = ((256, 1), (1, 255)), case["activation"]
        model = binary("DIV", *shapes, dtype=dtype, activation=activation, left_q=left, right_q=right, output_q=out)
        graph = read(model)
        (found,) = run(graph, inputs)
        assert np.array_equal(lowered(graph, inputs), found)
        where = defined(dtype, left, right, out[0])[:, kept]
        assert np.array_equal(found[where], oracle(model, inputs)[0][where])
        rest = found[~where].astype(int) - out[1]
        assert case["activation"] != "NONE" or (np.abs(rest) <= 1).all()
        seen_undefined += rest.size
    assert seen_undefined


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_div_of_bytes_by_constants_and_by_zero(dtype: str) -> None:
    """By the zero point, a real 0, the quotient means nothing, but compute and lowering agree on it."""
    zero = 5
    for divisor in (T((), dtype, 0.1, zero, np.array(60)), T((1, 3), dtype, 0.1, zero, np.array([[1, 9, 127]]))):
        inputs = [T((7, 1), dtype, 0.05, zero), divisor]
        out = T(np.broadcast_shapes((7, 1), divisor.shape), dtype, 0.02, 3)
        model = one_operator("DIV", inputs, [out], {})
        agree(model, oracle=tflm_runs if dtype == "int8" else litert_runs)
    graph = read(binary("DIV", (256,), dtype=dtype, left_q=(0.1, zero), right_q=(0.1, zero)))
    inputs = [(np.arange(256) + np.iinfo(dtype).min).astype(dtype), np.full(256, zero, dtype)]
    assert np.array_equal(lowered(graph, inputs), run(graph, inputs)[0])


@pytest.mark.parametrize("op", FLOORS)
@pytest.mark.parametrize("dtype", ["float32", "int8", "int16", "int32"])
def test_floor(op: str, dtype: str) -> None:
    for seed, (left, right) in enumerate(BROADCASTS):
        model = binary(op, left, right, dtype=dtype, left_q=(0.5, 3), right_q=(0.5, -2))
        pair = [numbers(left, dtype, seed), not_zero(numbers(right, dtype, seed + 100))]
        agree(model, pair, oracle=tflm_runs if dtype == "float32" else litert_runs)


@pytest.mark.parametrize("op", FLOORS)
def test_floor_of_bytes(op: str) -> None:
    """All pairs, disregarding the quantisation. -128 / -1 saturates; LiteRT gives 127 or -128, depending on the shapes."""
    values = np.arange(-127, 128, dtype=np.int8)
    model = binary(op, (255, 1), (1, 254), left_q=(0.5, 3), right_q=(0.1, -2), output_q=(0.1, 7))
    agree(model, [values.reshape(255, 1), values[values != 0].reshape(1, 254)], oracle=litert_runs)
    model = binary(op, (254,), left_q=(0.5, 3), right_q=(0.1, -2), output_q=(0.1, 7))
    agree(model, [np.full(254, -128, np.int8), values[values != 0]], oracle=litert_runs)


@pytest.mark.parametrize("op", FLOORS)
def test_floor_of_int16_and_int32_extremes(op: str) -> None:
    for dtype in ("int16", "int32"):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        values = np.array([low, low + 1, -7, -3, -1, 1, 2, 5, high - 1, high], dtype)
        pair = [np.repeat(values, 10), np.tile(values, 10)]
        pair = [array[(pair[0] != low) | (pair[1] != -1)] for array in pair] if dtype == "int32" else pair
        agree(binary(op, pair[0].shape, dtype=dtype), pair, oracle=litert_runs)


def test_floor_mod_of_int64() -> None:
    values = np.array([-(1 << 63) + 1, -(1 << 40), -7, -1, 1, 3, 1 << 35, (1 << 63) - 1])
    agree(binary("FLOOR_MOD", (64,), dtype="int64"), [np.repeat(values, 8), np.tile(values, 8)], oracle=litert_runs)


@pytest.mark.parametrize("op", FLOORS)
def test_floor_of_floats_next_to_whole_quotients(op: str) -> None:
    """A float32 quotient would round up to the whole number."""
    rng = np.random.default_rng(2)
    right = rng.uniform(0.1, 10, 4000).astype(np.float32) * rng.choice([-1, 1], 4000).astype(np.float32)
    left = (right * rng.integers(1, 1 << 20, 4000)).astype(np.float32)
    left = np.nextafter(left, rng.choice([-np.inf, np.inf], 4000).astype(np.float32), dtype=np.float32)
    agree(binary(op, (4000,), dtype="float32"), [left, right], bound=0.0)


def test_run_time_zeros() -> None:
    """Integers: x / 0 = x, x mod 0 = x, FLOOR_DIV one less of negative numbers; floats: IEEE 754."""
    for op, dtype in (
        ("DIV", "int32"),
        ("FLOOR_DIV", "int32"),
        ("FLOOR_MOD", "int32"),
        ("FLOOR_DIV", "int8"),
        ("FLOOR_MOD", "int64"),
    ):
        graph = read(binary(op, (3,), dtype=dtype))
        inputs = [np.array([-5, 0, 9], dtype), np.zeros(3, dtype)]
        expected = [-6, 0, 9] if op == "FLOOR_DIV" else [-5, 0, 9]
        assert run(graph, inputs)[0].tolist() == lowered(graph, inputs).tolist() == expected
    for op, expected in (("DIV", [-np.inf, np.nan]), ("FLOOR_DIV", [-np.inf, np.nan]), ("FLOOR_MOD", [np.nan, np.nan])):
        graph = read(binary(op, (2,), dtype="float32"))
        inputs = [np.array([-5, 0], np.float32), np.zeros(2, np.float32)]
        assert np.array_equal(run(graph, inputs)[0], np.array(expected, np.float32), equal_nan=True)


def test_the_smallest_number_by_minus_one_wraps() -> None:
    for op in ("DIV", "FLOOR_DIV"):
        graph = read(binary(op, (1,), dtype="int32"))
        inputs = [LIMITS[:1], np.array([-1], np.int32)]
        assert run(graph, inputs)[0].tolist() == lowered(graph, inputs).tolist() == [-(1 << 31)]


def by(op: str, dtype: str, divisor: list, zero_point: int = 0) -> bytes:
    scale = 0.1 if dtype in ("int8", "uint8") else None
    inputs = [T((2,), dtype, scale), T((2,), dtype, scale, zero_point, np.array(divisor))]
    return one_operator(op, inputs, [T((2,), dtype, scale)], {})


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (by("DIV", "int32", [1, 0]), "the constant divisor 'in1' has a 0"),
        (by("DIV", "int8", [1, 7], 7), "the constant divisor 'in1' has a 0"),
        (by("FLOOR_DIV", "float32", [1, 0]), "the constant divisor 'in1' has a 0"),
        (by("FLOOR_MOD", "int32", [0, 1]), "the constant divisor 'in1' has a 0"),
        (binary("DIV", dtype="int16"), "int16 is not supported for 'in0'"),
        (binary("DIV", dtype="int64"), "int64 is not supported for 'in0'"),
        (binary("FLOOR_DIV", dtype="int64"), "int64 is not supported for 'in0'"),
        (binary("FLOOR_MOD", dtype="uint8", left_q=(0.1, 3), output_q=(0.1, 3)), "uint8 is not supported for 'in0'"),
        (binary("DIV", dtype="float32", activation="TANH"), "the fused activation tanh is not supported"),
        (binary("DIV", left_q=(1.0, 0), right_q=(1.0, 0), output_q=(1e-8, 0)), "the output's scale 1e-08 is too small for inputs"),
        (one_operator("DIV", [T((2,), "int8")] * 2, [T((2,), "int8")], {}), "'in0' is int8 without a scale and zero point"),
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value)
