"""LEAKY_RELU and PRELU: every 8-bit value, every 16-bit value, floats; against TFLite Micro (uint8: LiteRT)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot.errors import CompileError
from tests.graph.lowered import agree, read, sweep
from tests.one_operator import T, one_operator, unary
from tests.oracle import litert_runs, tflm_runs
from tests.shared import golden, model

EVERY = {
    name: np.arange(np.iinfo(name).min, np.iinfo(name).max + 1).astype(name).reshape(1, 16, -1)
    for name in ("int8", "uint8", "int16")
}
FLOATS = np.array([[-np.inf, -7, -1.3, -0.5, -0.0, 0.0, 0.5, 1, 6, 3e38, -1e38]], np.float32)
ALPHAS = [0.1, 0.0, -0.3, 1.0, 2.5, 1e-6, 0.2]
SCALES = [0.05, 0.003, 0.1]

# LEAKY_RELU


@pytest.mark.parametrize(
    "case",
    [
        *sweep(
            30,
            1,
            alpha=ALPHAS,
            scale=SCALES,
            out_scale=[0.05, 0.02, 0.1],
            zero_point=[-128, -1, 0, 127],
            out_zero_point=[-128, 0, 127],
        )
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_leaky_relu_of_bytes(dtype: str, case: dict) -> None:
    """Numbers below zero too: a calibration without any hid a wrong result elsewhere (tvm 11397)."""
    moved = 128 if dtype == "uint8" else 0
    input_q, output_q = (case["scale"], case["zero_point"] + moved), (case["out_scale"], case["out_zero_point"] + moved)
    options = {"alpha": case["alpha"]}
    bytes_ = unary("LEAKY_RELU", EVERY[dtype].shape, dtype=dtype, input_q=input_q, output_q=output_q, options=options)
    agree(bytes_, [EVERY[dtype]], oracle=litert_runs if dtype == "uint8" else tflm_runs)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("scales", [(1e-4, 1e-4), (3e-4, 1.1e-4), (1 / 32768, 1 / 30000), (1e-4, 7e-4)])
def test_leaky_relu_of_int16(scales: tuple[float, float], alpha: float) -> None:
    x = EVERY["int16"]
    options = {"alpha": alpha}
    agree(unary("LEAKY_RELU", x.shape, dtype="int16", input_q=(scales[0], 0), output_q=(scales[1], 0), options=options), [x])


def test_int16_has_tflite_micros_multipliers_and_not_litert_s() -> None:
    """They divide in double and in float32: 16 of 65,536 outputs differ by one here."""
    x = EVERY["int16"]
    options = {"alpha": 0.3}
    bytes_ = unary("LEAKY_RELU", x.shape, dtype="int16", input_q=(1 / 32768, 0), output_q=(1 / 30000, 0), options=options)
    assert not np.array_equal(agree(bytes_, [x])[0], litert_runs(bytes_, [[x]])[0][0])


@pytest.mark.parametrize("alpha", ALPHAS)
def test_leaky_relu_of_float32(alpha: float) -> None:
    agree(unary("LEAKY_RELU", FLOATS[:, 1:].shape, dtype="float32", options={"alpha": alpha}), [FLOATS[:, 1:]], bound=0.0)


def test_leaky_relu_without_options_is_relu() -> None:
    x = EVERY["int8"]
    agree(one_operator("LEAKY_RELU", [T(x.shape, "int8", 0.05, 3)], [T(x.shape, "int8", 0.05, 3)], {}), [x])


# PRELU


def prelu(
    dtype: str, alpha_shape: tuple[int, ...], case: dict, constant: bool = True, shape=(1, 4, 5, 3)
) -> tuple[bytes, list[np.ndarray]]:
    """A model and its inputs: random numbers over the whole range."""
    rng = np.random.default_rng(3)
    alpha_type = "int8" if dtype == "int16" else dtype
    x, alpha = _numbers(rng, dtype, shape), _numbers(rng, alpha_type, alpha_shape)
    moved = 128 if dtype == "uint8" else 0
    points = (0, 0) if dtype == "int16" else (case["zero_point"] + moved, case["out_zero_point"] + moved)
    quantisation, out_quantisation = (case["scale"], points[0]), (case["out_scale"], points[1])
    alpha_quantisation = (case["alpha_scale"], case["alpha_zero_point"] + moved)
    alpha_spec = T(alpha_shape, alpha_type, *alpha_quantisation, data=alpha if constant else None)
    specs = T(shape, dtype, *quantisation), alpha_spec, T(shape, dtype, *out_quantisation)
    if dtype == "float32":
        specs = tuple(replace(spec, scale=None) for spec in specs)
    bytes_ = one_operator("PRELU", specs[:2], specs[2:])
    return bytes_, [x] if constant else [x, alpha]


def _numbers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    if dtype == "float32":
        return rng.normal(size=shape).astype(np.float32)
    return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)


PRELUS = [
    *sweep(
        24,
        2,
        alpha_shape=[(1, 1, 3), (3,), (1,), (1, 4, 5, 3), (4, 1, 1), (1, 5, 3)],
        scale=SCALES,
        out_scale=[0.05, 0.02, 0.1],
        alpha_scale=[0.01, 0.002],
        zero_point=[-128, -1, 0, 127],
        out_zero_point=[-128, 0, 127],
        alpha_zero_point=[-128, 0, 5, 127],
        constant=[True, True, False],
    )
]


@pytest.mark.parametrize("case", PRELUS, ids=str)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "float32"])
def test_prelu(dtype: str, case: dict) -> None:
    bytes_, inputs = prelu(dtype, case["alpha_shape"], case, case["constant"])
    agree(bytes_, inputs, bound=0.0, oracle=litert_runs if dtype == "uint8" else tflm_runs)


# Real models.


SEANET = [f"tflm_seanet/leaky_relu{number}" for number in (0, 5, 7, 9, 12, 16, 17, 18, 19)]


@pytest.mark.parametrize("name", [*SEANET, "glow/leaky_relu", "glow/prelu"])
def test_real_models(name: str) -> None:
    bytes_, data = model(f"unit/{name}").read_bytes(), np.load(golden(f"unit/{name}"))
    ours = agree(bytes_, [data["in0_0"]])[0]
    assert ours.tobytes() == data["out0_0"].tobytes()


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (unary("LEAKY_RELU", dtype="int32", options={"alpha": 0.1}), "int32 is not supported for 'in0'"),
        (unary("LEAKY_RELU", options={"alpha": float("nan")}), "its scales would multiply the accumulator by nan"),
        (unary("LEAKY_RELU", options={"alpha": 1e30}), "more than int32 arithmetic can"),
        (one_operator("LEAKY_RELU", [T((2,))], [T((2,))], {"alpha": 0.1}), "'in0' is int8 without a scale and zero point"),
        (one_operator("PRELU", [T((2,), "float32")], [T((2,), "float32")]), "has 1 inputs, not 2"),
        (
            one_operator("PRELU", [T((1, 3), "float32"), T((4, 3), "float32")], [T((4, 3), "float32")]),
            "alpha of shape 4x3 is larger than the input of shape 1x3",
        ),
        (one_operator("PRELU", [T((2, 3), "float32"), T((2,), "float32")], [T((2, 3), "float32")]), "do not broadcast"),
        (one_operator("PRELU", [T((3,), "int16", 0.1), T((3,), "int16", 0.1)], [T((3,), "int16", 0.1)]), "int16 is not supported for 'in1'"),
        (one_operator("PRELU", [T((3,), "int8", 1e20), T((3,), "int8", 1.0)], [T((3,), "int8", 0.1)]), "more than int32 arithmetic can"),
        (one_operator("PRELU", [T((3,), "int8", 0.1), T((3,), "int8")], [T((3,), "int8", 0.1)]), "'in1' is int8 without a scale and zero point"),
    ],
)  # fmt: skip
def test_refused(bad: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(bad)
    assert sentence in str(caught.value) and "node 0 " in str(caught.value)
