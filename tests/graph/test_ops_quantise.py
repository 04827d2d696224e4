"""QUANTIZE and DEQUANTIZE against TFLite Micro, and LiteRT for the types that it lacks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.expr import Requantise, walk
from aot.graph.interpreter import run_all
from aot.graph.primitive import Map
from tests.graph.lowered import agree, primitives, read, run_lowered
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs, tflm_runs

SCALES = ((0.05, 0.05), (0.1, 0.01), (0.001, 0.2), (0.2, 0.001), (0.037, 0.051), (1.0, 7.0))
PAIRS = {
    ("int8", "int8"): tflm_runs,
    ("int8", "uint8"): tflm_runs,
    ("int8", "int16"): tflm_runs,
    ("int8", "int32"): tflm_runs,
    ("uint8", "int8"): tflm_runs,
    ("uint8", "uint8"): litert_runs,
    ("uint8", "int16"): litert_runs,
    ("int16", "int8"): tflm_runs,
    ("int16", "int16"): tflm_runs,
    ("int16", "int32"): tflm_runs,
    ("int32", "int8"): tflm_runs,
    ("int32", "int16"): tflm_runs,
}


def zero_points(dtype: str) -> tuple[int, ...]:
    return {"int8": (-128, -1, 0, 127), "uint8": (0, 127, 128, 255)}.get(dtype, (0,))


def values(dtype: str) -> np.ndarray:
    """Every value of an 8-bit type; the ends and random values of a longer one."""
    info = np.iinfo(dtype)
    if info.bits == 8:
        return np.arange(info.min, info.max + 1).astype(dtype).reshape(1, 256)
    rng = np.random.default_rng(2)
    wide = min(int(info.max), 1 << 20)
    return np.append(rng.integers(-wide, wide, 253), [-wide, 0, wide - 1]).astype(dtype).reshape(1, 256)


@pytest.mark.parametrize("pair", PAIRS)
def test_integers_to_integers(pair: tuple[str, str]) -> None:
    source, target = pair
    x = values(source)
    for scales, zero, out_zero in itertools.product(SCALES, zero_points(source), zero_points(target)):
        if source == "int32":
            scales = (scales[0] * 1e-4, scales[1])
        model = one_operator("QUANTIZE", [T(x.shape, source, scales[0], zero)], [T(x.shape, target, scales[1], out_zero)])
        agree(model, [x], oracle=PAIRS[pair])


@pytest.mark.parametrize(("target", "oracle"), [("int8", tflm_runs), ("int16", tflm_runs), ("uint8", litert_runs)])
def test_float_to_integers(target: str, oracle) -> None:
    """Halves go away from zero; the division is one of float32; what is too large saturates."""
    rng = np.random.default_rng(4)
    for scale, zero in itertools.product((1.0, 0.5, 0.1, 0.0037, 20.0), zero_points(target)):
        halves = (np.arange(-300, 300) + 0.5) * scale
        near = np.concatenate([np.nextafter(halves.astype(np.float32), np.float32(side)) for side in (-1e9, 1e9)])
        x = np.concatenate([halves, near, rng.normal(0, 100 * scale, 500), [0, -0.0, 1e6 * scale, -1e6 * scale]])
        x = x.astype(np.float32).reshape(1, -1)
        model = one_operator("QUANTIZE", [T(x.shape, "float32")], [T(x.shape, target, scale, zero)])
        agree(model, [x], oracle=oracle)


def test_float_beyond_int32_saturates() -> None:
    """TFLite converts these with undefined behaviour; a NaN is given the largest value."""
    x = np.array([[np.inf, -np.inf, 3e38, -3e38, np.nan, 3e9, -3e9, 0.49999997]], np.float32)
    graph = read(one_operator("QUANTIZE", [T(x.shape, "float32")], [T(x.shape, "int8", 1.0, 3)]))
    arrays = run_all(graph, [x])
    want = [127, -128, 127, -128, 127, 127, -128, 3]
    assert arrays[graph.outputs[0]].tolist() == [want]
    assert run_lowered(graph, arrays)[graph.outputs[0]].tolist() == [want]


def test_equal_scales_need_no_multiplication() -> None:
    model = one_operator("QUANTIZE", [T((4,), "uint8", 0.1, 128)], [T((4,), "int8", 0.1, 0)])
    (lowered,) = primitives(model)
    assert isinstance(lowered, Map) and not any(isinstance(part, Requantise) for part in walk(lowered.value))


@pytest.mark.parametrize("source", ["int8", "uint8", "int16"])
def test_dequantize(source: str) -> None:
    x = values(source)
    for scale, zero in itertools.product((1.0, 0.1, 0.0037, 1e-20), zero_points(source)):
        model = one_operator("DEQUANTIZE", [T(x.shape, source, scale, zero)], [T(x.shape, "float32")])
        agree(model, [x], bound=0.0)


def test_dequantize_of_constants() -> None:
    rng = np.random.default_rng(6)
    half = T((3, 4), "float16", data=rng.normal(size=(3, 4)).astype(np.float16))
    agree(one_operator("DEQUANTIZE", [half], [T((3, 4), "float32")]), [], bound=0.0, oracle=litert_runs)
    byte = T((3, 4), "int8", 0.1, 3, rng.integers(-128, 128, (3, 4)))
    agree(one_operator("DEQUANTIZE", [byte], [T((3, 4), "float32")]), [], bound=0.0)


def test_dequantize_of_every_float16() -> None:
    """At run time."""
    x = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16).reshape(1, -1)
    x = np.where(np.isnan(x), np.float16(0), x)
    model = one_operator("DEQUANTIZE", [T(x.shape, "float16")], [T(x.shape, "float32")])
    graph = read(model)
    arrays = run_all(graph, [x])
    lowered = run_lowered(graph, arrays)["t1"]
    for found in (arrays["t1"], lowered, litert_runs(model, [[x]])[0][0]):
        assert np.array_equal(found.view(np.uint32), x.astype(np.float32).view(np.uint32))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_dequantize_of_int4(axis: int) -> None:
    """With a scale for each channel, or one. (That of LiteRT for several scales wants zero points of 0.)"""
    rng = np.random.default_rng(8)
    scales = rng.uniform(0.1, 1, (2, 3, 5)[axis]).tolist()
    for scale, zero in ((scales, 0), (0.3, 0), (0.3, -2)):
        nibbles = T((2, 3, 5), "int4", scale, zero, rng.integers(-8, 8, (2, 3, 5)), axis)
        agree(one_operator("DEQUANTIZE", [nibbles], [T((2, 3, 5), "float32")]), [], bound=0.0, oracle=litert_runs)


def test_dequantize_with_scales_per_channel_takes_the_first_as_tflite_micro_does() -> None:
    rng = np.random.default_rng(7)
    weights = T((2, 3), "int8", [0.1, 0.3], 0, rng.integers(-128, 128, (2, 3)))
    agree(one_operator("DEQUANTIZE", [weights], [T((2, 3), "float32")]), [], bound=0.0)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (one_operator("QUANTIZE", [T((2,), "float32")], [T((2,), "int32", 1.0)]), "int32 is not supported for 'out0'"),
        (one_operator("QUANTIZE", [T((2,), "bool")], [T((2,), "int8", 1.0)]), "bool is not supported for 'in0'"),
        (one_operator("QUANTIZE", [T((2,), "uint8", 1.0)], [T((2,), "int32", 1.0)]), "int32 is not supported for 'out0'"),
        (one_operator("DEQUANTIZE", [T((2,), "int4", 1.0)], [T((2,), "float32")]), "the int4 input 'in0' must be constant"),
        (one_operator("QUANTIZE", [T((2,), "float32")], [T((2,), "int8")]), "'out0' is int8 without a scale and zero point"),
        (one_operator("QUANTIZE", [T((2,), "int8", 1e9)], [T((2,), "int8", 1e-9)]), "more than int32 arithmetic can"),
        (one_operator("QUANTIZE", [T((2,), "float32")], [T((2,), "int8", [1.0, 2.0])]), "only weights may have more than one"),
        (one_operator("DEQUANTIZE", [T((2,), "int32", 1.0)], [T((2,), "float32")]), "int32 is not supported for 'in0'"),
        (one_operator("DEQUANTIZE", [T((2,), "int8", 1.0)], [T((2,), "int8", 1.0)]), "int8 is not supported for 'out0'"),
        (one_operator("DEQUANTIZE", [T((2,), "int8")], [T((2,), "float32")]), "'in0' is int8 without a scale and zero point"),
        (one_operator("DEQUANTIZE", [T((2,), "int8", 1.0), None], [T((2,), "float32")]), "has 2 inputs, not 1"),
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value) and "node 0 " in str(caught.value)
