"""LOGISTIC and TANH: every 8-bit value, every 16-bit value, against TFLite Micro (uint8: LiteRT)."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph import floatmath
from aot.graph.expr import Lookup, walk
from aot.graph.ir import DType
from aot.graph.ops.sigmoid16 import table
from aot.graph.primitive import Map
from tests.graph.lowered import agree, primitives, read
from tests.one_operator import T, one_operator, unary
from tests.oracle import litert_runs, tflm_runs

OUTPUTS = {
    "int8": {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)},
    "uint8": {"LOGISTIC": (1 / 256, 0), "TANH": (1 / 128, 128)},
    "int16": {"LOGISTIC": (1 / 32768, 0), "TANH": (1 / 32768, 0)},
}
OPS = ("LOGISTIC", "TANH")
EVERY = {
    name: np.arange(np.iinfo(name).min, np.iinfo(name).max + 1).astype(name).reshape(1, 16, -1)
    for name in ("int8", "uint8", "int16")
}


def model(op: str, dtype: str, scale: float, zero_point: int = 0) -> bytes:
    return unary(op, EVERY[dtype].shape, dtype=dtype, input_q=(scale, zero_point), output_q=OUTPUTS[dtype][op])


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("scale", [2.0**-28, 1e-6, 0.001, 1 / 128, 0.0137, 0.0625, 0.1, 1 / 3, 1.0, 7.5, 15.0, 100.0])
def test_int8(op: str, scale: float) -> None:
    for zero_point in (-128, -1, 0, 127):
        agree(model(op, "int8", scale, zero_point), [EVERY["int8"]])


@pytest.mark.parametrize("op", OPS)
def test_int8_on_many_scales(op: str) -> None:
    rng = np.random.default_rng(5)
    for scale in np.exp(rng.uniform(np.log(1e-3), np.log(2), 40)):
        agree(model(op, "int8", float(scale), int(rng.integers(-128, 128))), [EVERY["int8"]])


@pytest.mark.parametrize("op", OPS)
def test_uint8_on_many_scales(op: str) -> None:
    rng = np.random.default_rng(6)
    for scale in np.exp(rng.uniform(np.log(1e-4), np.log(20), 40)):
        agree(model(op, "uint8", float(scale), int(rng.integers(0, 256))), [EVERY["uint8"]], oracle=litert_runs)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    "scale",
    [
        1 / 4096,
        1 / 2048,
        1 / 1024,
        1 / 8192,
        1 / 3000,
        1 / 20000,
        1 / 4096 * 1.0005,
        1 / 4096 * 1.002,
        1 / 32768,
        0.37,
        1.0,
        2.0,
        1.34,
        1e-9,
        3.9e-14,
    ],
)
def test_int16(op: str, scale: float) -> None:
    """Scales that are powers of two, nearly, and not; all 65,536 inputs (public bug reports: tensorflow 42671, executorch 20668)."""
    agree(model(op, "int16", scale), [EVERY["int16"]])


@pytest.mark.parametrize("op", OPS)
def test_int16_on_many_scales(op: str) -> None:
    rng = np.random.default_rng(7)
    for scale in np.exp(rng.uniform(np.log(1e-6), np.log(1), 30)):
        agree(model(op, "int16", float(scale)), [EVERY["int16"]])


@pytest.mark.parametrize("op", OPS)
def test_int16_on_the_largest_scales(op: str) -> None:
    """From 2.67 on the multiplier has more than 15 bits, from 5.33 on the product more than 32."""
    agree(model(op, "int16", 5.33), [EVERY["int16"]])
    with pytest.raises(CompileError, match=r"the input's scale 5\.34 is too large for int16 " + op):
        read(model(op, "int16", 5.34))


@pytest.mark.parametrize("op", OPS)
def test_int16_needs_no_wide_arithmetic(op: str) -> None:
    (lowered,) = primitives(model(op, "int16", 1 / 3000))
    assert isinstance(lowered, Map)
    assert {part.dtype for part in walk(lowered.value)} == {DType.INT16, DType.INT32, DType.UINT16, DType.BOOL}


def test_the_table_of_16_bits_is_within_a_unit_of_the_function() -> None:
    exact = 65536 / (1 + np.exp(-np.arange(256) / 24))
    assert (np.abs(table() - exact) < 1.3).all() and table()[0] == 32768


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_bytes_are_one_lookup(op: str, dtype: str) -> None:
    (lowered,) = primitives(model(op, dtype, 0.05))
    assert isinstance(lowered, Map) and isinstance(lowered.value, Lookup)


@pytest.mark.parametrize(("op", "ulp"), [("LOGISTIC", floatmath.LOGISTIC_ULP), ("TANH", floatmath.TANH_ULP)])
def test_float(op: str, ulp: float) -> None:
    """TFLite Micro's own result is within 2 ulp of the exact one (LOGISTIC: from -9 on; below it takes e^x)."""
    x = np.concatenate([np.linspace(-20, 20, 4001), [-100, -0.0, 0.0, 100, 1e-30]]).astype(np.float32).reshape(1, -1)
    plain = unary(op, x.shape, dtype="float32")
    ours = agree(plain, [x])[0]
    theirs = tflm_runs(plain, [[x]])[0][0]
    normal = (np.abs(theirs) > 1e-37) & (x >= -9)
    assert (np.abs(ours - theirs) <= (ulp + 2) * np.spacing(np.abs(theirs)))[normal].all()


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (unary("LOGISTIC", dtype="int32"), "int32 is not supported for 'in0'"),
        (
            unary("TANH", dtype="int16", input_q=(3.7e-14, 0), output_q=(1 / 32768, 0)),
            "the input's scale 3.7e-14 is too small for int16",
        ),
        (unary("LOGISTIC"), "the int8 output must have scale 1/256 and zero point -128"),
        (unary("LOGISTIC", output_q=(1 / 256, 0)), "the int8 output must have scale 1/256 and zero point -128"),
        (unary("TANH"), "the int8 output must have scale 1/128 and zero point 0"),
        (
            unary("LOGISTIC", dtype="uint8", input_q=(0.1, 0), output_q=(1 / 128, 0)),
            "the uint8 output must have scale 1/256, not 0.0078",
        ),
        (unary("TANH", dtype="int16", output_q=(1 / 128, 0)), "the int16 output must have scale 1/32768, not 0.0078"),
        (unary("LOGISTIC", dtype="int16", output_q=(0.3, 0)), "the int16 output must have scale 1/32768, not 0.3"),
        (
            one_operator("TANH", [T((2,), "int16", 0.1, 3)], [T((2,), "int16", 1 / 32768, 0)]),
            "int16 with a zero point that is not 0 is not supported",
        ),
        (unary("TANH", input_q=(1e-12, 0), output_q=(1 / 128, 0)), "the input's scale 1e-12 is too small or too large"),
    ],
)
def test_refused(bad: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(bad)
    assert sentence in str(caught.value) and "node 0 " in str(caught.value)
