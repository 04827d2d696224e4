"""RELU, RELU6, RELU_N1_TO_1, LOGISTIC, TANH: every int8 value, against TFLite Micro (RELU_N1_TO_1: LiteRT)."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph import floatmath
from aot.graph.expr import Lookup, Requantise, walk
from aot.graph.primitive import Map
from tests.graph.lowered import agree, primitives, read
from tests.one_operator import T, one_operator, unary
from tests.oracle import litert_runs, tflm_runs

EVERY = np.arange(-128, 128, dtype=np.int8).reshape(1, 16, 16)
ZERO_POINTS = (-128, -1, 0, 127)
SCALES = ((0.05, 0.05), (0.1, 0.01), (0.001, 0.2), (0.2, 0.001), (0.037, 0.051), (1.0, 1.0))
RELUS = {"RELU": tflm_runs, "RELU6": tflm_runs, "RELU_N1_TO_1": litert_runs}


@pytest.mark.parametrize("op", RELUS)
@pytest.mark.parametrize("scales", SCALES)
def test_int8_relu(op: str, scales: tuple[float, float]) -> None:
    for zero_point in ZERO_POINTS:
        for out_zero_point in ZERO_POINTS:
            model = unary(op, EVERY.shape, input_q=(scales[0], zero_point), output_q=(scales[1], out_zero_point))
            agree(model, [EVERY], oracle=RELUS[op])


@pytest.mark.parametrize("op", RELUS)
def test_float_relu(op: str) -> None:
    x = np.array([[-np.inf, -7, -1, -0.5, -0.0, 0.0, 0.5, 1, 6, 7, 3e38]], np.float32)
    agree(unary(op, x.shape, dtype="float32"), [x], bound=0.0, oracle=RELUS[op])


@pytest.mark.parametrize("op", RELUS)
def test_relu_with_equal_quantisation_is_a_clamp(op: str) -> None:
    (lowered,) = primitives(unary(op))
    assert isinstance(lowered, Map)
    assert not any(isinstance(part, Requantise) for part in walk(lowered.value))


def test_relu6_ignores_the_output_scale_as_tflite_micro_does() -> None:
    """LiteRT rescales; a model that asks for it gets TFLite Micro's bytes."""
    model = unary("RELU6", EVERY.shape, input_q=(0.05, -10), output_q=(0.1, 4))
    ours = agree(model, [EVERY])[0]
    assert not np.array_equal(ours, litert_runs(model, [[EVERY]])[0][0])


# LOGISTIC and TANH


@pytest.mark.parametrize(("op", "output_q"), [("LOGISTIC", (1 / 256, -128)), ("TANH", (1 / 128, 0))])
@pytest.mark.parametrize("scale", [2.0**-28, 1e-6, 0.001, 1 / 128, 0.0137, 0.0625, 0.1, 1 / 3, 1.0, 7.5, 15.0, 100.0])
def test_int8_table(op: str, output_q: tuple[float, int], scale: float) -> None:
    for zero_point in ZERO_POINTS:
        agree(unary(op, EVERY.shape, input_q=(scale, zero_point), output_q=output_q), [EVERY])


@pytest.mark.parametrize(("op", "output_q"), [("LOGISTIC", (1 / 256, -128)), ("TANH", (1 / 128, 0))])
def test_int8_table_on_many_scales(op: str, output_q: tuple[float, int]) -> None:
    rng = np.random.default_rng(5)
    for scale in np.exp(rng.uniform(np.log(1e-3), np.log(2), 40)):
        model = unary(op, EVERY.shape, input_q=(float(scale), int(rng.integers(-128, 128))), output_q=output_q)
        agree(model, [EVERY])


def test_the_table_is_one_lookup() -> None:
    (lowered,) = primitives(unary("LOGISTIC", output_q=(1 / 256, -128)))
    assert isinstance(lowered, Map) and isinstance(lowered.value, Lookup)


@pytest.mark.parametrize(("op", "ulp"), [("LOGISTIC", floatmath.LOGISTIC_ULP), ("TANH", floatmath.TANH_ULP)])
def test_float(op: str, ulp: float) -> None:
    """TFLite Micro's own result is within 2 ulp of the exact one (LOGISTIC: from -9 on; below it takes e^x)."""
    x = np.concatenate([np.linspace(-20, 20, 4001), [-100, -0.0, 0.0, 100, 1e-30]]).astype(np.float32).reshape(1, -1)
    model = unary(op, x.shape, dtype="float32")
    ours = agree(model, [x])[0]
    theirs = tflm_runs(model, [[x]])[0][0]
    normal = (np.abs(theirs) > 1e-37) & (x >= -9)
    assert (np.abs(ours - theirs) <= (ulp + 2) * np.spacing(np.abs(theirs)))[normal].all()


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (unary("RELU", dtype="int32", output_q=(1, 0)), "int32 is not supported for 'in0'"),
        (unary("RELU", out_dtype="float32"), "'out0' is float32 but 'in0' is int8"),
        (unary("RELU_N1_TO_1", input_q=(1e-10, 0), output_q=(1e-10, 0)), "too small for the fused activation"),
        (unary("RELU_N1_TO_1", input_q=(1e5, 0), output_q=(1e-6, 0)), "more than int32 arithmetic can"),
        (unary("LOGISTIC"), "the int8 output must have scale 1/256 and zero point -128"),
        (unary("LOGISTIC", output_q=(1 / 256, 0)), "the int8 output must have scale 1/256 and zero point -128"),
        (unary("TANH"), "the int8 output must have scale 1/128 and zero point 0"),
        (unary("TANH", dtype="int16", output_q=(1 / 32768, 0)), "int16 is not supported for 'in0'"),
        (unary("TANH", input_q=(1e-12, 0), output_q=(1 / 128, 0)), "the input's scale 1e-12 is too small or too large"),
        (one_operator("RELU", [T((2,), "int8")], [T((2,), "int8")]), "'in0' is int8 without a scale and zero point"),
        (one_operator("RELU", [T((2,)), T((2,))], [T((2,))]), "has 2 inputs, not 1"),
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value) and "node 0 " in str(caught.value)
