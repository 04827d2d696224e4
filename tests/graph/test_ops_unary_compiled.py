"""Compiled code of the unary operators and activations against `compute`: on this machine all, on small cores the ones with libcalls."""

from __future__ import annotations

import numpy as np
import pytest

from aot.driver import Options, compile_model, resolve_target
from aot.graph.interpreter import run
from aot.graph.ir import Model
from aot.run import run_bundle
from tests.graph.lowered import extremes, read
from tests.graph.test_ops_compiled import compiled
from tests.one_operator import T, one_operator, unary

SHAPE = (2, 61)
FLOATS = (
    "ABS",
    "CEIL",
    "COS",
    "ELU",
    "EXP",
    "FLOOR",
    "GELU",
    "HARD_SWISH",
    "LOG",
    "NEG",
    "RELU_0_TO_1",
    "ROUND",
    "RSQRT",
    "SIGN",
    "SIN",
)
FLOATS += ("SQRT", "SQUARE", "LEAKY_RELU", "RELU", "RELU6", "RELU_N1_TO_1", "TANH", "LOGISTIC")
OPTIONS = {"LEAKY_RELU": {"alpha": 0.3}}


def floats() -> np.ndarray:
    rng = np.random.default_rng(2)
    special = [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        1e-40,
        1e10,
        -1e10,
        3e38,
        np.inf,
        -np.inf,
        np.nan,
        1e-30,
        88.0,
        -100.0,
        33.0,
        -7.0,
    ]
    return np.concatenate([special, rng.normal(size=2 * 61 - len(special)) * 5]).astype(np.float32).reshape(SHAPE)


CASES = {
    **{f"{op} float32": unary(op, SHAPE, dtype="float32", options=OPTIONS.get(op)) for op in FLOATS},
    "GELU approximate": unary("GELU", SHAPE, dtype="float32", options={"approximate": True}),
    "PRELU float32": one_operator(
        "PRELU", [T(SHAPE, "float32"), T((61,), "float32", data=np.linspace(-1, 1, 61))], [T(SHAPE, "float32")]
    ),
}


def integer_case(op: str, dtype: str) -> bytes:
    scale = {"int16": 0.0003}.get(dtype, 0.05)
    point = {"int8": -3, "uint8": 100}.get(dtype, 0)
    output = {"LOGISTIC": {"int16": (1 / 32768, 0), "uint8": (1 / 256, 0)}, "TANH": {"int16": (1 / 32768, 0)}}.get(op, {})
    output_q = output.get(dtype, (scale * 1.3, point))
    return unary(op, SHAPE, dtype=dtype, input_q=(scale, point), output_q=output_q, options=OPTIONS.get(op))


INTEGERS = {
    "int8": ("ABS", "ELU", "EXP", "GELU", "HARD_SWISH", "LEAKY_RELU", "LOG", "NEG", "RELU_0_TO_1", "RSQRT", "SQRT"),
    "uint8": ("GELU", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "RELU", "RELU6", "RELU_N1_TO_1", "TANH"),
    "int16": ("ABS", "EXP", "GELU", "LEAKY_RELU", "LOG", "LOGISTIC", "NEG", "RELU", "RELU6", "RSQRT", "SQRT", "TANH"),
    "int32": ("ABS", "NEG", "SIGN"),
    "int64": ("NEG",),
    "bool": ("LOGICAL_NOT",),
}
WHOLE = {f"{op} {dtype}": integer_case(op, dtype) for dtype, ops in INTEGERS.items() for op in ops}
for dtype in ("int8", "int16"):
    alpha = T((61,), "int8", 0.01, 5, np.arange(-30, 31))
    WHOLE[f"PRELU {dtype}"] = one_operator("PRELU", [T(SHAPE, dtype, 0.02), alpha], [T(SHAPE, dtype, 0.03)])


@pytest.mark.parametrize("name", CASES)
def test_floats(name: str) -> None:
    """The same bits, also of infinities and NaNs."""
    graph = read(CASES[name])
    found = on("host", graph, floats())
    expected = run(graph, [floats()])[0]
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    numbers = ~np.isnan(expected)
    assert found[numbers].tobytes() == expected[numbers].tobytes()


@pytest.mark.parametrize("name", WHOLE)
def test_integers(name: str) -> None:
    inputs = ([np.random.default_rng(1).integers(0, 2, SHAPE).astype(bool)],) if name.endswith("bool") else extremes(WHOLE[name])
    compiled(read(WHOLE[name]), *inputs)


@pytest.mark.parametrize("cpu", ["cortex-m0", "cortex-m4"])
@pytest.mark.parametrize("name", ["CEIL float32", "COS float32", "GELU float32", "ROUND float32", "RSQRT float32", "SIN float32"])
def test_small_cores(name: str, cpu: str) -> None:
    """Without instructions for rounding (M4) or for floats at all (M0): 64-bit products, int64 to float32, floorf, sqrtf."""
    graph = read(CASES[name])
    found, expected = on(cpu, graph, floats()), run(graph, [floats()])[0]
    numbers = ~np.isnan(expected)
    assert np.array_equal(np.isnan(found), ~numbers) and found[numbers].tobytes() == expected[numbers].tobytes()


def on(cpu: str, graph, *inputs: np.ndarray) -> np.ndarray:
    options = Options() if cpu == "host" else Options(target=cpu)
    target, backend = resolve_target(options)
    bundle = compile_model(Model("model", (graph,)), target, backend, options, lambda stage, result: None)
    return run_bundle(bundle, list(inputs)).outputs[0]
