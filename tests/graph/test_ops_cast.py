"""CAST: compute, lowering and the oracle agree for every pair of types; what is refused says why."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.interpreter import run
from tests.graph.lowered import agree, read, run_lowered
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs, tflm_runs

MICRO = ("int8", "int16", "int32", "uint32", "float32", "bool")
"""What TFLite Micro has."""
ALL = (*MICRO, "uint8", "uint16", "int64")
FLOATS = (0.0, -0.0, 0.3, -0.5, 0.99, -0.99, 1.0, 127.9, 128.0, -128.9, -129.0, 255.5, 256.0, 300.7, 32767.5, 32768.0, -32769.0)
FLOATS += (65535.5, 65536.0, 2147483520.0, 2147483648.0, -2147483648.0, -2147483904.0, 2.5e9, 4294967040.0, 4294967296.0, 9.2e18)
FLOATS += (9223371487098961920.0, 9223372036854775808.0, -9223372036854775808.0, -1e19, 1e30, -1e30, np.inf, -np.inf, np.nan, 1e-45)


def conversion(source: str, target: str, count: int) -> bytes:
    """Quantisation is disregarded; some tensors have one."""
    scales = [0.1 if name in ("int8", "uint8") else None for name in (source, target)]
    return one_operator("CAST", [T((count,), source, scales[0], 3)], [T((count,), target, scales[1], 3)])


def numbers(source: str) -> np.ndarray:
    if source == "float32":
        return np.array(FLOATS, np.float32)
    if source == "bool":
        return np.array([True, False])
    limits = np.iinfo(source)
    edges = [edge + step for edge in (0, 128, 256, 32768, 65536, 1 << 24, 1 << 31, 1 << 32) for step in (-1, 0, 1)]
    found = [int(limits.min), int(limits.max), *edges, *(-edge for edge in edges)]
    return np.array([number for number in found if limits.min <= number <= limits.max], source)


@pytest.mark.parametrize("source", ALL)
@pytest.mark.parametrize("target", ALL)
def test_every_pair(source: str, target: str) -> None:
    values = numbers(source)
    known = values if target != "float32" else values[~np.isnan(values.astype(np.float32)) & np.isfinite(values.astype(np.float32))]
    oracle = tflm_runs if source in MICRO and target in MICRO else litert_runs
    agree(conversion(source, target, known.size), [known], bound=0.0, oracle=oracle)


def test_float32_passes() -> None:
    values = numbers("float32")
    assert np.array_equal(run(read(conversion("float32", "float32", values.size)), [values])[0], values, equal_nan=True)


@pytest.mark.parametrize("other", [*ALL, "uint64"])
def test_uint64(other: str) -> None:
    """Neither oracle has it: integers wrap, floats saturate."""
    top = (1 << 64) - 1
    for source, target in (("uint64", other), (other, "uint64")):
        values = (
            numbers(source) if source != "uint64" else np.array([0, 1, 255, 1 << 31, 1 << 32, 1 << 63, top - 1, top], np.uint64)
        )
        graph = read(conversion(source, target, values.size))
        (found,) = run(graph, [values])
        assert np.array_equal(run_lowered(graph, {graph.inputs[0]: values})[graph.outputs[0]], found)
        if source != "float32":
            with np.errstate(all="ignore"):
                assert np.array_equal(found, values.astype(target))
        else:
            whole = [0 if np.isnan(x) else int(min(max(np.trunc(np.float64(x)), 0), 2.0**64)) for x in values]
            expected = [top if np.isnan(x) else min(number, top) for x, number in zip(values, whole)]
            assert found.tolist() == expected


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (conversion("float16", "float32", 2), "float16 is not supported for 'in0'"),
        (conversion("float32", "float64", 2), "float64 is not supported for 'out0'"),
        (one_operator("CAST", [T((2,), "int8")] * 2, [T((2,), "int16")]), "has 2 inputs, not 1"),
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value)
