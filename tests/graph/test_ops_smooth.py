"""ELU, GELU and HARD_SWISH: every 8-bit value, every 16-bit value, floats; against TFLite Micro, and LiteRT beyond it."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph import floatmath, gelu
from aot.graph.expr import Lookup
from aot.graph.primitive import Map
from tests.graph.lowered import agree, primitives, read, sweep
from tests.one_operator import T, one_operator, unary
from tests.oracle import litert_runs, tflm_runs

EVERY = {
    name: np.arange(np.iinfo(name).min, np.iinfo(name).max + 1).astype(name).reshape(1, 16, -1)
    for name in ("int8", "uint8", "int16")
}
FLOATS = np.concatenate([np.linspace(-10, 10, 4001), [-100, -30, -0.0, 0.0, 1e-30, -1e-30, 50]]).astype(np.float32).reshape(1, -1)
CASES = [
    *sweep(
        24, 1, scale=[0.05, 0.003, 0.1, 0.031], out_scale=[0.05, 0.02, 0.1], zero_point=[-128, -1, 0, 127], out_zero_point=[-128, 5]
    ),
]


def quantised(op: str, dtype: str, case: dict, options: dict | None = None) -> bytes:
    moved = 128 if dtype == "uint8" else 0
    input_q, output_q = (case["scale"], case["zero_point"] + moved), (case["out_scale"], case["out_zero_point"] + moved)
    return unary(op, EVERY[dtype].shape, dtype=dtype, input_q=input_q, output_q=output_q, options=options)


# ELU


@pytest.mark.parametrize("case", CASES, ids=str)
def test_elu_of_int8(case: dict) -> None:
    agree(quantised("ELU", "int8", case), [EVERY["int8"]])


def test_elu_of_float32() -> None:
    model = unary("ELU", FLOATS.shape, dtype="float32")
    ours, theirs = agree(model, [FLOATS])[0], tflm_runs(model, [[FLOATS]])[0][0]
    assert (np.abs(ours - theirs) <= (floatmath.EXP_MINUS_1_ULP + 1) * np.spacing(np.abs(theirs))).all()


# HARD_SWISH


@pytest.mark.parametrize("case", CASES, ids=str)
def test_hard_swish_of_bytes(case: dict) -> None:
    agree(quantised("HARD_SWISH", "int8", case), [EVERY["int8"]])
    agree(quantised("HARD_SWISH", "uint8", case), [EVERY["uint8"]], oracle=litert_runs)


@pytest.mark.parametrize(
    "scales", [(1e-6, 1e-6), (1e-9, 1e-8), (10.0, 10.0), (300.0, 70.0), (1e6, 1e6), (0.01, 5.0), (1e-4, 300.0)]
)
def test_hard_swish_on_extreme_scales(scales: tuple[float, float]) -> None:
    """Shifts of the gate to the left and to the right by many bits, and of the output by up to 31."""
    model = unary("HARD_SWISH", EVERY["int8"].shape, input_q=(scales[0], 3), output_q=(scales[1], -5))
    agree(model, [EVERY["int8"]])


def test_hard_swish_of_float32() -> None:
    agree(unary("HARD_SWISH", FLOATS.shape, dtype="float32"), [FLOATS], bound=0.0)


# GELU


@pytest.mark.parametrize("approximate", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("case", CASES[:12], ids=str)
def test_gelu_of_bytes(dtype: str, case: dict, approximate: bool) -> None:
    agree(quantised("GELU", dtype, case, {"approximate": approximate}), [EVERY[dtype]], oracle=litert_runs)


@pytest.mark.parametrize("approximate", [False, True])
@pytest.mark.parametrize("scales", [(1e-4, 1e-4), (3e-4, 1e-4), (1 / 4096, 1 / 2048), (0.001, 0.0005)])
def test_gelu_of_int16(scales: tuple[float, float], approximate: bool) -> None:
    x = EVERY["int16"]
    model = unary(
        "GELU", x.shape, dtype="int16", input_q=(scales[0], 0), output_q=(scales[1], 0), options={"approximate": approximate}
    )
    agree(model, [x], oracle=litert_runs)


@pytest.mark.parametrize("approximate", [False, True])
def test_gelu_of_float32(approximate: bool) -> None:
    """LiteRT's own result is within 8 ulp where nothing cancels."""
    model = unary("GELU", FLOATS.shape, dtype="float32", options={"approximate": approximate})
    ours, theirs = agree(model, [FLOATS], oracle=litert_runs)[0], litert_runs(model, [[FLOATS]])[0][0]
    bound = (gelu.APPROXIMATE_GELU_ULP if approximate else gelu.GELU_ULP) + 8
    assert (np.abs(ours - theirs) <= bound * np.spacing(np.abs(theirs)))[FLOATS >= -1].all()


def test_gelu_without_options_is_exact() -> None:
    x = EVERY["int8"]
    plain = one_operator("GELU", [T(x.shape, "int8", 0.05, 0)], [T(x.shape, "int8", 0.05, 0)])
    exact = one_operator("GELU", [T(x.shape, "int8", 0.05, 0)], [T(x.shape, "int8", 0.05, 0)], {"approximate": False})
    assert np.array_equal(agree(plain, [x], oracle=litert_runs)[0], agree(exact, [x], oracle=litert_runs)[0])


@pytest.mark.parametrize("op", ["ELU", "GELU", "HARD_SWISH"])
def test_bytes_are_one_lookup(op: str) -> None:
    (lowered,) = primitives(unary(op))
    assert isinstance(lowered, Map) and isinstance(lowered.value, Lookup)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (unary("ELU", dtype="int16"), "int16 is not supported for 'in0'"),
        (unary("HARD_SWISH", dtype="int16"), "int16 is not supported for 'in0'"),
        (unary("GELU", dtype="int32"), "int32 is not supported for 'in0'"),
        (unary("ELU", out_dtype="float32"), "'out0' is float32 but 'in0' is int8"),
        (
            unary("HARD_SWISH", input_q=(0.5, 0), output_q=(0.001, 0)),
            "the output's scale 0.001 is too small for an input of scale 0.5",
        ),
        (unary("HARD_SWISH", input_q=(1e35, 0), output_q=(1e35, 0)), "the input's scale 1e+35 is too large"),
        (unary("HARD_SWISH", input_q=(1.0, 0), output_q=(1e-43, 0)), "the output's scale 9.95e-44 is too small"),
        (one_operator("GELU", [T((2,))], [T((2,))]), "'in0' is int8 without a scale and zero point"),
        (one_operator("ELU", [T((2,), "float32")] * 2, [T((2,), "float32")]), "has 2 inputs, not 1"),
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value) and "node 0 " in str(caught.value)
