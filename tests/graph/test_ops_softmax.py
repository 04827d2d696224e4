"""SOFTMAX: numpy meaning and lowering against TFLite Micro; rows longer than it takes; what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.interpreter import run_all
from aot.graph.primitive import Map, Reduce
from tests.graph.lowered import agree, assert_near, extremes, primitives, read, run_lowered, sweep
from tests.graph.reducing import compiled
from tests.one_operator import T, one_operator, random_inputs, unary
from tests.oracle import litert_runs, tflm_runs

CASES = {"shape": ((1,), (5,), (1, 1), (1, 10), (3, 7), (2, 3, 4), (1, 2, 3, 2), (1, 300)), "beta": (1.0, 0.3, 2.5)}
SCALES = (1 / 256, 0.1, 0.003, 1.0, 0.5, 17.0, 1e-4)


def softmax(shape, beta=1.0, dtype="int8", scale=0.1, zero_point=5) -> bytes:
    return unary("SOFTMAX", shape, dtype=dtype, input_q=(scale, zero_point), output_q=(1 / 256, -128), options={"beta": beta})


FORMS = [
    ("int8", "int16", (1 / 65536, -32768), tflm_runs),
    ("uint8", "uint8", (1 / 256, 0), litert_runs),
    ("uint8", "int16", (1 / 65536, -32768), litert_runs),
]


def int16(shape, beta=1.0, scale=0.001, zero_point=0) -> bytes:
    return one_operator("SOFTMAX", [T(shape, "int16", scale, zero_point)], [T(shape, "int16", 1 / 32768)], {"beta": beta})


@pytest.mark.parametrize("part", range(2))
def test_int8_equals_tflite_micro(part):
    for number, case in enumerate(sweep(40, part, **CASES, scale=SCALES, zero_point=(-128, -1, 0, 127))):
        model = softmax(case["shape"], case["beta"], scale=case["scale"], zero_point=case["zero_point"])
        agree(model, *extremes(model, number))


@pytest.mark.parametrize("scale", SCALES)
def test_int8_every_difference(scale):
    """A row with each input once, so that every entry of the table counts; and each difference in a row of two."""
    every = np.arange(-128, 128, dtype=np.int8)
    agree(softmax((1, 256), scale=scale), [every.reshape(1, 256)])
    agree(softmax((256, 2), scale=scale), [np.stack([every, np.full(256, 127, np.int8)], axis=-1)])


@pytest.mark.parametrize(("source", "target", "out", "oracle"), FORMS)
def test_other_types(source, target, out, oracle):
    """8 bits to int16 (TFLite Micro), uint8 (LiteRT); the input may have any zero point."""
    low, high = np.iinfo(source).min, np.iinfo(source).max
    for number, case in enumerate(sweep(40, 9, **CASES, scale=SCALES, zero_point=(low, 0, high, 7))):
        specs = [T(case["shape"], source, case["scale"], case["zero_point"])], [T(case["shape"], target, *out)]
        model = one_operator("SOFTMAX", *specs, {"beta": case["beta"]})
        agree(model, *extremes(model, number), oracle=oracle)


def test_8_bits_to_int16_in_long_rows():
    """Rows that are too long for 8-bit results are not for int16; and sums with every number of leading zeros."""
    for length in (1, 2, 3, 17, 300, 512, 2000):
        model = one_operator("SOFTMAX", [T((4, length), "int8", 0.02)], [T((4, length), "int16", 1 / 65536, -32768)], {"beta": 1.0})
        rows = [
            np.full(length, 7),
            np.arange(length) % 256 - 128,
            np.where(np.arange(length) == 0, 127, -128),
            np.arange(length) % 3,
        ]
        agree(model, [np.stack(rows).astype(np.int8)])


def test_int16_equals_tflite_micro():
    for number, case in enumerate(sweep(60, 2, **CASES, scale=(*SCALES, 10 / 65535, 1e-9))):
        model = int16(case["shape"], case["beta"], case["scale"])
        agree(model, *extremes(model, number))


def test_int16_differences():
    """Rows of two whose difference takes every seventh value, for scales with different parts of the table."""
    every = np.arange(0, 65536, 7, dtype=np.int32)
    rows = np.stack([every - 32768, np.full(len(every), 32767)], axis=-1).astype(np.int16)
    for scale in (10 / 65535, 1e-3, 0.7e-4):
        agree(int16(rows.shape, 1.0, scale), [rows])


def test_int16_sums_of_every_size():
    """Equal inputs: their sum is the row's length; powers of two and their neighbours are the table's ends."""
    for length in (1, 2, 3, 4, 7, 8, 9, 33, 257, 1000):
        agree(int16((2, length), 0.0), [np.stack([np.zeros(length), np.arange(length)]).astype(np.int16)])
        agree(int16((2, length), 1.0, 1e-3), [np.stack([np.zeros(length), np.arange(length)]).astype(np.int16)])


@pytest.mark.parametrize(("source", "target", "out"), [*(form[:3] for form in FORMS), ("int16", "int16", (1 / 32768, 0))])
def test_compiled(source, target, out):
    for shape in ((1, 10), (2, 3, 40), (2, 600)):
        specs = [T(shape, source, 0.05, 0 if source == "int16" else 5)], [T(shape, target, *out)]
        model = one_operator("SOFTMAX", *specs, {"beta": 0.7})
        compiled(model, *extremes(model))


def test_float_is_near_tflite_micro():
    for number, case in enumerate(sweep(40, 0, **CASES)):
        model = softmax(case["shape"], case["beta"], "float32")
        agree(model, *extremes(model, number))


def test_float_of_large_numbers_does_not_overflow():
    agree(softmax((2, 3), dtype="float32"), [np.array([[1e4, -1e4, 9.9e3], [-3e38, 3e38, 0]], np.float32)])


@pytest.mark.parametrize("length", [511, 512, 4096])
def test_rows_of_equal_inputs(length):
    """From 512 equal inputs on every result rounds to 0; TFLite Micro stops with a failed check there, we give the result."""
    model = softmax((2, length), scale=1.0)
    data = np.full((2, length), 7, np.int8)
    data[1, 1:] = -128
    if length < 512:
        agree(model, [data])
        return
    graph = read(model)
    arrays = run_all(graph, [data])
    (out,) = (arrays[name] for name in graph.outputs)
    assert (out[0] == -128).all()
    assert (out[1, 0], out[1, 1]) == (127, -128)
    assert_near(run_lowered(graph, arrays)[graph.outputs[0]], out, "lowered and computed")
    agree(model, [np.repeat(data[1:], 2, axis=0)])


def test_lowers_to_two_reductions_and_two_maps():
    found = primitives(softmax((2, 3, 7)))
    assert [type(primitive) for primitive in found] == [Reduce, Reduce, Map, Map]
    assert [primitive.space for primitive in found] == [(2, 3, 1), (2, 3, 1), (2, 3, 1), (2, 3, 7)]
    assert [type(primitive) for primitive in primitives(softmax((2, 3, 7), dtype="float32"))] == [Reduce, Map, Reduce, Map]


def test_the_lowered_reciprocal_is_exact_for_every_kind_of_sum():
    """Sums between one and 511 exponentials of 1, whose leading zeros and fractions vary: lowered and computed agree."""
    rng = np.random.default_rng(3)
    for length in (1, 2, 3, 17, 300, 511):
        model = softmax((64, length), scale=0.02)
        data = (rng.integers(-128, 128, (64, length)) * rng.random((64, 1))).astype(np.int8)
        agree(model, [data])


# What is refused.

INPUT, OUTPUT = T((2, 3), "int8", 0.05, -3), T((2, 3), "int8", 1 / 256, -128)


def softmax_with(input=INPUT, output=OUTPUT, beta=1.0) -> bytes:
    return one_operator("SOFTMAX", [input], [output], {"beta": beta})


FORM = "int8 SOFTMAX of int8 needs an output with scale 1/256 and zero point -128"
REFUSED = [
    (softmax_with(T((2, 3), "int32", 0.05)), "int32 is not supported for 'in0' (supported: int8, uint8, int16, float32)"),
    (softmax_with(T((2, 3), "uint8", 0.05)), "'out0' is int8 but 'in0' is uint8"),
    (softmax_with(T((2, 3), "int16", 0.05)), "'out0' is int8 but 'in0' is int16"),
    (softmax_with(output=T((2, 3), "float32")), "'out0' is float32 but 'in0' is int8"),
    (
        softmax_with(output=T((2, 3), "int16", 1 / 32768)),
        "int16 SOFTMAX of int8 needs an output with scale 1/65536 and zero point -32768",
    ),
    (
        softmax_with(T((2, 3), "int16", 0.05), T((2, 3), "int16", 1 / 256)),
        "int16 SOFTMAX of int16 needs an output with scale 1/32768",
    ),
    (int16((2, 3), 1.0, 0.1, 4), "int16 SOFTMAX needs an input with zero point 0, not 4"),
    (int16((2, 3), -1.0), "beta = -1 is below 0"),
    (int16((2, 3), 1.0, 1e9), "more than int32 arithmetic can"),
    (int16((1, 65539)), "a row of 65539 elements is longer than the 65537 whose sum int16 SOFTMAX can hold"),
    (softmax_with(output=T((2, 3), "int8", 1 / 255, -128)), FORM),
    (softmax_with(output=T((2, 3), "int8", 1 / 256, 0)), FORM),
    (softmax_with(T((2, 3), "int8")), "'in0' is int8 without a scale and zero point"),
    (softmax_with(beta=0.0), "beta * scale = 0 is too small for fixed-point arithmetic"),
    (softmax_with(beta=-1.0), "beta * scale = -0.05 is too small for fixed-point arithmetic"),
    (softmax_with(T((2, 3), "int8", 1e-9), beta=1.0), "is too small for fixed-point arithmetic"),
    (softmax_with(beta=float("nan")), "beta is not a finite number"),
    (softmax_with(T((), "float32"), T((), "float32")), "'in0' is a scalar; SOFTMAX needs a dimension"),
    (one_operator("SOFTMAX", [INPUT, INPUT], [OUTPUT], {"beta": 1.0}), "has 2 inputs, not 1"),
]


@pytest.mark.parametrize(("model", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(model, message):
    with pytest.raises(CompileError, match=re.escape(message)) as error:
        read(model)
    assert "node 0 SOFTMAX 'out0'" in str(error.value)


def test_random_inputs_are_a_distribution():
    model = softmax((4, 9), dtype="float32")
    (out,) = agree(model, random_inputs(model))
    assert np.allclose(out.sum(axis=-1), 1, atol=1e-6)
