"""ABS, CEIL, COS, EXP, FLOOR, LOG, LOGICAL_NOT, NEG, ROUND, RSQRT, SIGN, SIN, SQRT, SQUARE against TFLite Micro, and LiteRT beyond it."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph import floatmath, trigonometry
from aot.graph.interpreter import run as interpret
from tests import shared
from tests.graph.lowered import agree, assert_near, read, sweep
from tests.one_operator import T, one_operator, unary
from tests.oracle import litert_runs, tflm_runs

BYTES = np.arange(-128, 128, dtype=np.int8).reshape(1, 16, 16)
WORDS = np.arange(-32768, 32768).astype(np.int16).reshape(1, 64, -1)
INFINITY, NAN = np.inf, np.nan


def floats(low: float, high: float) -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.concatenate([np.linspace(low, high, 2001), rng.normal(size=500)]).astype(np.float32).reshape(1, -1)


SPECIAL = np.array(
    [[0.0, -0.0, 0.3, -0.3, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 8388607.5, -8388607.5, 1e10, -1e10, INFINITY, -INFINITY, NAN]]
)


@pytest.mark.parametrize("op", ["ABS", "CEIL", "FLOOR", "NEG", "ROUND", "SQRT", "SQUARE", "RSQRT"])
def test_floats_that_are_exact(op: str) -> None:
    x = np.concatenate([SPECIAL.astype(np.float32), floats(-9, 9)], axis=1)
    model = unary(op, x.shape, dtype="float32")
    ours, theirs = run(model, x)
    assert np.array_equal(ours, theirs, equal_nan=True)
    numbers = ~np.isnan(ours)
    assert np.array_equal(np.signbit(ours)[numbers], np.signbit(theirs)[numbers])


def run(model: bytes, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Our result and TFLite Micro's; NaNs may be among them, so that `agree` does not compare."""
    return interpret(read(model), [x])[0], tflm_runs(model, [[x]])[0][0]


@pytest.mark.parametrize(
    ("op", "x", "ulp"),
    [
        ("COS", floats(-50, 50), trigonometry.SIN_ULP),
        ("SIN", floats(-50, 50), trigonometry.SIN_ULP),
        ("SIN", floats(-1e7, 1e7), trigonometry.SIN_ULP),
        ("EXP", floats(-80, 80), floatmath.EXP_ULP),
        ("LOG", np.abs(floats(1e-3, 1e4)), floatmath.LOG_ULP),
    ],
)
def test_floats_within_a_bound(op: str, x: np.ndarray, ulp: float) -> None:
    """TFLite Micro's own result is within 1 ulp of the exact one."""
    model = unary(op, x.shape, dtype="float32")
    ours = agree(model, [x], bound=3e-7)[0]
    theirs = tflm_runs(model, [[x]])[0][0]
    assert (np.abs(ours - theirs) <= (ulp + 1) * np.spacing(np.abs(theirs))).all()


@pytest.mark.parametrize("op", ["COS", "EXP", "LOG", "SIN"])
def test_functions_of_special_floats(op: str) -> None:
    x = np.concatenate([SPECIAL, [[-1.0, 100, -110, 1e-40]]], axis=1).astype(np.float32)
    ours, theirs = run(unary(op, x.shape, dtype="float32"), x)
    assert np.array_equal(np.isnan(ours), np.isnan(theirs)) and np.allclose(ours, theirs, rtol=1e-6, equal_nan=True)


def test_logical_not() -> None:
    x = np.array([[True, False, True]])
    assert agree(unary("LOGICAL_NOT", x.shape, dtype="bool"), [x])[0].tolist() == [[False, True, False]]


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("op", ["NEG", "SIGN", "ABS"])
def test_integers_without_a_scale(op: str, dtype: str) -> None:
    if (op == "SIGN" and dtype != "int32") or (op == "ABS" and dtype not in ("int16", "int32")):
        return
    limits = np.iinfo(dtype)
    x = np.array([[limits.min, limits.min + 1, -77, -1, 0, 1, 99, limits.max]], dtype)
    agree(one_operator(op, [T(x.shape, dtype)], [T(x.shape, dtype)]), [x], oracle=litert_runs)


def test_the_smallest_int16_is_its_own_size_without_a_scale() -> None:
    x = WORDS
    agree(one_operator("ABS", [T(x.shape, "int16")], [T(x.shape, "int16")]), [x])


def test_sign_of_floats() -> None:
    x = SPECIAL[:, :-1].astype(np.float32)
    agree(unary("SIGN", x.shape, dtype="float32"), [x], bound=0.0, oracle=litert_runs)


@pytest.mark.parametrize(
    "case",
    [
        *sweep(
            24,
            1,
            scale=[0.05, 0.003, 1.7],
            out_scale=[0.05, 0.02, 0.4],
            zero_point=[-128, -1, 0, 127],
            out_zero_point=[-128, 0, 5, 127],
        )
    ],
    ids=str,
)
def test_abs_of_int8(case: dict) -> None:
    model = unary(
        "ABS", BYTES.shape, input_q=(case["scale"], case["zero_point"]), output_q=(case["out_scale"], case["out_zero_point"])
    )
    agree(model, [BYTES])


@pytest.mark.parametrize("scales", [(0.05, 0.05), (1 / 32768, 1 / 30000), (3e-4, 1.1e-4), (0.01, 0.5), (0.5, 0.01)])
def test_abs_of_int16(scales: tuple[float, float]) -> None:
    agree(unary("ABS", WORDS.shape, dtype="int16", input_q=(scales[0], 0), output_q=(scales[1], 0)), [WORDS])


@pytest.mark.parametrize(
    "case",
    [*sweep(30, 2, scale=[0.05, 0.003, 1.7, 1e-6, 300.0], out_scale=[0.05, 0.02, 0.4, 0.0007], zero_point=[-128, -1, 0, 100, 127])],
    ids=str,
)
def test_rsqrt_of_int8(case: dict) -> None:
    """From the zero point on; what is below it TFLite Micro refuses at run time."""
    x = np.maximum(BYTES, np.int8(case["zero_point"]))
    agree(unary("RSQRT", x.shape, input_q=(case["scale"], case["zero_point"]), output_q=(case["out_scale"], -3)), [x])


@pytest.mark.parametrize("case", [*sweep(12, 5, scale=[0.05, 1e-4, 1.7, 300.0], out_scale=[0.05, 1e-3, 1e-4, 0.4])], ids=str)
def test_rsqrt_of_int16(case: dict) -> None:
    x = np.maximum(WORDS, 0)
    agree(unary("RSQRT", x.shape, dtype="int16", input_q=(case["scale"], 0), output_q=(case["out_scale"], 0)), [x])


def test_rsqrt_of_what_is_not_positive_is_the_largest_number() -> None:
    graph = read(unary("RSQRT", BYTES.shape, input_q=(0.05, 3), output_q=(0.05, -3)))
    assert (interpret(graph, [BYTES])[0][BYTES <= 3] == 127).all()


@pytest.mark.parametrize(
    "case",
    [
        *sweep(
            24,
            3,
            op=["EXP", "LOG", "SQRT"],
            scale=[0.05, 0.003, 0.02],
            out_scale=[0.05, 0.02, 0.4],
            zero_point=[-128, -1, 0],
            out_zero_point=[-128, 0, 5],
        )
    ],
    ids=str,
)
def test_tables_of_int8(case: dict) -> None:
    x = np.maximum(BYTES, np.int8(case["zero_point"])) if case["op"] == "SQRT" else BYTES
    model = unary(
        case["op"], x.shape, input_q=(case["scale"], case["zero_point"]), output_q=(case["out_scale"], case["out_zero_point"])
    )
    agree(model, [x], oracle=litert_runs)


@pytest.mark.parametrize(
    "case", [*sweep(24, 4, op=["EXP", "LOG", "SQRT"], scale=[1e-4, 3e-5, 0.001], out_scale=[1e-4, 1e-3, 0.01])], ids=str
)
def test_tables_of_int16(case: dict) -> None:
    x = np.abs(WORDS[:, :, 1:]) if case["op"] == "SQRT" else WORDS
    x = np.maximum(x, 0)
    model = unary(case["op"], x.shape, dtype="int16", input_q=(case["scale"], 0), output_q=(case["out_scale"], 0))
    agree(model, [x], oracle=litert_runs)


def test_what_overflows_int32_saturates() -> None:
    """C leaves e^25 in units of 0.0001 undefined; x86 gives the smallest number, Arm the largest."""
    graph = read(unary("EXP", (1, 3), input_q=(0.2, 0), output_q=(0.0001, 0)))
    assert interpret(graph, [np.array([[127, 0, -128]], np.int8)])[0].tolist() == [[127, 127, 0]]


REAL = ["glow/ceil", "glow/cos", "glow/log", "glow/round", "litert_test/simple_ceil_op", "litert_test/simple_sign_op"]
REAL += ["litert_test/simple_relu1_op", "litert_test/simple_relu0to1_op", "aieq_test/single_sqrt", "aieq_test/single_hard_swish"]


@pytest.mark.parametrize("name", REAL)
def test_real_models(name: str) -> None:
    data = np.load(shared.golden(f"unit/{name}"))
    found = interpret(read(shared.model(f"unit/{name}").read_bytes()), [data["in0_0"]])[0]
    assert_near(found, data["out0_0"], name, bound=1e-7)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (unary("COS"), "int8 is not supported for 'in0'"),
        (unary("CEIL", dtype="int32"), "int32 is not supported for 'in0'"),
        (unary("ABS", dtype="uint8", input_q=(0.1, 0), output_q=(0.1, 0)), "uint8 is not supported for 'in0'"),
        (unary("LOGICAL_NOT", dtype="int32"), "int32 is not supported for 'in0'"),
        (unary("NEG", dtype="uint8", input_q=(0.1, 0), output_q=(0.1, 0)), "uint8 is not supported for 'in0'"),
        (unary("EXP", dtype="float32", out_dtype="int8"), "'out0' is int8 but 'in0' is float32"),
        (unary("ABS", input_q=(1e30, 0), output_q=(1e-30, 0)), "more than int32 arithmetic can"),
        (unary("RSQRT", input_q=(1e-30, 0), output_q=(1e-30, 0)), "multiply the reciprocal root by more than int32 arithmetic can"),
        (one_operator("ABS", [T((2,), "int16", 0.1, 3)], [T((2,), "int16", 0.1, 0)]), "int16 with a zero point that is not 0"),
        (one_operator("LOG", [T((2,))], [T((2,))]), "'in0' is int8 without a scale and zero point"),
        (one_operator("EXP", [T((2,), "int16")], [T((2,), "int16")]), "'in0' is int16 without a scale and zero point"),
        (one_operator("NEG", [T((2,), "float32")] * 2, [T((2,), "float32")]), "has 2 inputs, not 1"),
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value) and "node 0 " in str(caught.value)
