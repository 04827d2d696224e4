"""SignalRfft and SignalIrfft: against TFLite Micro, to the bit; their lowering; their refusals."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.interpreter import run_all
from tests.graph.closed import compiled
from tests.graph.lowered import agree, read, run_lowered, sweep
from tests.one_operator import T, custom
from tests.oracle import tflm_runs

NUMBERS = {"float32": 0, "int32": 2, "int16": 7}


def rfft(dtype: str = "int16", length: int = 16, filled: int | None = None, outer: tuple[int, ...] = ()) -> bytes:
    rows = (T((*outer, filled or length), dtype), T((*outer, length + 2), dtype))
    return custom("SignalRfft", rows[:1], rows[1:], {"T": NUMBERS[dtype], "fft_length": length})


def irfft(dtype: str = "int16", length: int = 16, outer: tuple[int, ...] = ()) -> bytes:
    rows = (T((*outer, length + 2), dtype), T((*outer, length), dtype))
    return custom("SignalIrfft", rows[:1], rows[1:], {"T": NUMBERS[dtype], "fft_length": length})


def signals(model: bytes, seed: int) -> list[list[np.ndarray]]:
    """Random numbers over the whole range, only its ends, its smallest, its largest, small ones, a single pulse."""
    value = read(model)[read(model).inputs[0]]
    rng, shape, dtype = np.random.default_rng(seed), value.shape, value.dtype.np
    low, high = (-1000, 1000) if dtype.kind == "f" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    pulse = np.zeros(shape)
    pulse[..., 1] = high
    found = [
        rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(low, high, shape, endpoint=True),
        np.where(rng.random(shape) < 0.5, low, high),
        np.full(shape, low),
        np.full(shape, high),
        rng.integers(-9, 10, shape),
        pulse,
    ]
    return [[array.astype(dtype)] for array in found]


CASES = [
    *sweep(14, 1, dtype=list(NUMBERS), length=[4, 8, 16, 32, 64, 128], outer=[(), (1,), (3,), (2, 2)]),
    *sweep(12, 2, dtype=list(NUMBERS), length=[6, 10, 12, 18, 20, 24, 30, 36, 40, 50, 60, 90, 100, 150], outer=[(), (2,)]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_and_back(case):
    for model in (rfft(filled=case["length"] - case["length"] % 3, **case), irfft(**case)):
        agree(model, *signals(model, case["length"]), bound=0.0)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("length, filled", [(512, 480), (400, 400), (1024, 1000), (480, 480), (2048, 2048)])
def test_long_ones(dtype, length, filled):
    """compute against TFLite Micro; lowering for one input only, as it takes longer."""
    for model in (rfft(dtype, length, filled), irfft(dtype, length)):
        graph, inputs = read(model), signals(model, 7)
        for given, (expected,) in zip(inputs, tflm_runs(model, inputs), strict=True):
            found = run_all(graph, given)[graph.outputs[0]]
            assert found.tobytes() == expected.tobytes()
        arrays = run_all(graph, inputs[1])
        assert run_lowered(graph, arrays)[graph.outputs[0]].tobytes() == arrays[graph.outputs[0]].tobytes()


@pytest.mark.parametrize("dtype", NUMBERS)
def test_compiled(dtype):
    """Both directions, of a power of two and of another length, one each for a type (AOT_SWEEP=1: all)."""
    models = (rfft(dtype, 64, 50, (2,)), irfft(dtype, 60), rfft(dtype, 60), irfft(dtype, 64, (2,)))
    half = 2 * (list(NUMBERS).index(dtype) % 2)
    for model in models if os.environ.get("AOT_SWEEP") else models[half : half + 2]:
        compiled(read(model), *signals(model, 3), bound=1e-6)


def case(code: str, options: dict | None, shape=(16,), out=(18,), dtype="int16", out_dtype=None, count: int = 1) -> bytes:
    return custom(code, [T(shape, dtype)] * count, [T(out, out_dtype or dtype)], options)


REFUSALS = {
    "no length": (case("SignalRfft", {"T": 7}), "its options have no number 'fft_length'"),
    "no options": (case("SignalRfft", None), "its options have no number 'fft_length'"),
    "text": (case("SignalRfft", {"T": 7, "fft_length": "16"}), "its options have no number 'fft_length'"),
    "odd": (case("SignalRfft", {"T": 7, "fft_length": 17}), "its fft_length 17 is not supported"),
    "two": (case("SignalRfft", {"T": 7, "fft_length": 2}, (2,), (4,)), "its fft_length 2 is not supported"),
    "seven": (case("SignalRfft", {"T": 7, "fft_length": 14}), "its fft_length 14 is not supported"),
    "long": (case("SignalRfft", {"T": 7, "fft_length": 1 << 17}), "its option fft_length is 131072, not 2 to 65536"),
    "negative": (case("SignalIrfft", {"T": 7, "fft_length": -16}), "its option fft_length is -16, not 2 to 65536"),
    "rows": (case("SignalRfft", {"T": 7, "fft_length": 8}), "its rows have 16 elements, more than its fft_length 8"),
    "inverse rows": (case("SignalIrfft", {"T": 7, "fft_length": 16}), "its rows have 16 elements, but its fft_length 16 wants 18"),
    "shape": (case("SignalRfft", {"T": 7, "fft_length": 16}, out=(16,)), "the file says its output is 16, its inputs give 18"),
    "scalar": (case("SignalRfft", {"T": 7, "fft_length": 16}, (), ()), "its input is a scalar"),
    "dtype": (case("SignalRfft", {"T": 9, "fft_length": 16}, dtype="int8"), "int8 is not supported for 'in0'"),
    "output": (case("SignalRfft", {"T": 7, "fft_length": 16}, out_dtype="int32"), "'out0' is int32 but 'in0' is int16"),
    "T": (case("SignalRfft", {"T": 2, "fft_length": 16}), "its option T is 2, which does not say int16"),
    "inputs": (case("SignalRfft", {"T": 7, "fft_length": 16}, count=2), "has 2 inputs, not 1"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    model, text = REFUSALS[name]
    with pytest.raises(CompileError, match=re.escape(text)):
        read(model)
