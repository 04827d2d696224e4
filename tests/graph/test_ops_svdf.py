"""SVDF: runs in a row against TFLite Micro (hybrid: LiteRT), lowered and compiled; memory in place; refusals; real models."""

from __future__ import annotations

import re

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.ops import OPERATORS
from aot.lower.build import build_program
from aot.lower.fuse import fuse
from tests.builder import ModelBuilder
from tests.graph.lowered import read, sweep
from tests.graph.running import computed, random_runs, runs_agree
from tests.oracle import litert_runs, tflm_runs

SCALES = {"data": 0.05, "feature": 0.01, "time": 0.004, "state": 0.02, "out": 0.1}


def svdf(
    batch: int = 2,
    depth: int = 5,
    units: int = 3,
    rank: int = 2,
    memory: int = 4,
    *,
    kind: str = "int16",
    activation: str = "NONE",
    bias: bool = True,
    zero_points: tuple[int, int, int] = (-3, 7, 5),
    scales: dict[str, float] | None = None,
    seed: int = 0,
    **wrong,
) -> bytes:
    """kind: of the state with int8 data (int16, int8); float32; hybrid. zero_points: of data, an int8 state, output.

    wrong: shapes, types and data other than they would be, by name; `option`: the rank in the file; `variable`; `inputs`, `outputs`.
    """
    rng, m, filters = np.random.default_rng(seed), ModelBuilder(), units * rank
    scale = {**SCALES, **(scales or {})}
    integers = kind in ("int16", "int8")
    plain = "int8" if integers else "float32"
    types = {
        "data": plain,
        "feature": "float32" if kind == "float32" else "int8",
        "time": {"hybrid": "int8"}.get(kind, kind),
        "state": kind if integers else "float32",
        "bias": "int32" if integers else "float32",
        "out": plain,
    } | wrong.get("types", {})
    shapes = {
        "data": (batch, depth),
        "feature": (filters, depth),
        "time": (filters, memory),
        "bias": (units,),
        "state": (batch, filters * memory),
        "out": (batch, units),
    } | wrong.get("shapes", {})
    points = {"data": zero_points[0], "state": zero_points[1] if kind == "int8" else 0, "out": zero_points[2]} | wrong.get(
        "points", {}
    )

    def tensor(name: str, data: bool = False, **fields) -> int:
        dtype, shape = types[name], shapes[name]
        array = wrong.get("data", {}).get(name, _numbers(rng, shape, dtype)) if data else None
        quantised = None if dtype == "float32" else scale["state"] * scale["time"] if name == "bias" else scale[name]
        return m.tensor(name, shape, dtype, scale=quantised, zero_point=points.get(name, 0), data=array, **fields)

    data, feature, time = tensor("data"), tensor("feature", True), tensor("time", True)
    inputs = [data, feature, time, tensor("bias", True) if bias else -1, tensor("state", variable=wrong.get("variable", True))]
    out, more = tensor("out"), [m.tensor("more", (1,)) for _ in range(wrong.get("outputs", 1) - 1)]
    options = {"rank": wrong.get("option", rank), "fused_activation_function": activation, **wrong.get("options", {})}
    m.operator("SVDF", inputs[: wrong.get("inputs", 5)], [out, *more], options, version=3)
    return m.build([data], [out])


def _numbers(rng: np.random.Generator, shape, dtype: str) -> np.ndarray:
    if dtype == "float32":
        return rng.standard_normal(shape).astype(np.float32)
    reach = {"int8": 127, "int16": 32767, "int32": 3000}[dtype]
    return rng.integers(-reach, reach + 1, shape)


def runs_of(model: bytes, count: int = 6) -> list[list[np.ndarray]]:
    """Random inputs, then all at their smallest and largest."""
    runs = random_runs(model, count)
    for number, value in ((1, -128), (2, 127)):
        if runs[0][0].dtype == np.int8:
            runs[number][0][:] = value
    return runs


@pytest.mark.parametrize(
    "case",
    [
        *sweep(
            24,
            batch=[1, 2, 3],
            units=[1, 2, 3, 5, 7],
            rank=[1, 2, 3],
            memory=[1, 2, 5, 9],
            depth=[1, 4, 13],
            kind=["int16", "int8"],
            zero_points=[(0, 0, 0), (-128, -128, -128), (127, 100, 127), (-3, -50, 5)],
            activation=["NONE", "RELU"],
        )
    ],
    ids=str,
)
def test_integers(case):
    model = svdf(**case)
    runs_agree(model, runs_of(model))


@pytest.mark.parametrize("units", range(1, 8))
def test_unit_counts_on_a_cortex_m(units: int):
    """Trap 6: counts that are no multiple of what a kernel does at once, and state behind state."""
    model = svdf(1, 8, units, 1, 3, kind="int8")
    runs_agree(model, runs_of(model), cpu="cortex-m4")


@pytest.mark.parametrize("kind", ["int16", "int8"])
def test_the_state_saturates_before_its_zero_point_wraps(kind: str):
    model = svdf(scales={"state": 2e-6 if kind == "int16" else 0.001}, zero_points=(-3, -100, 5), kind=kind)
    runs_agree(model, runs_of(model))


def test_scales_are_multiplied_in_double_precision():
    """512 sums, with biases that leave nothing of what that makes of them. A product in float32 would round one of them differently."""
    rng = np.random.default_rng(3)
    data, weights = rng.integers(-128, 128, (1, 3)), rng.integers(-127, 128, (512, 3))
    one, other, state = map(float, np.random.default_rng(32).uniform(0.3, 1, 3).astype(np.float32))
    bias = -np.rint((data + 3) @ weights.T * (one * other / state)).reshape(-1)
    scales = {"data": one, "feature": other, "state": state, "time": 0.01, "out": state * 0.01}
    constants = {"feature": weights, "time": np.ones((512, 1)), "bias": bias}
    model = svdf(1, 3, 512, 1, 1, scales=scales, zero_points=(-3, 0, 0), data=constants)
    assert not np.count_nonzero(runs_agree(model, [[data.astype(np.int8)]])[0][0])


FLOATS = [
    *sweep(
        16,
        batch=[1, 2],
        units=[1, 4, 5],
        rank=[1, 2, 3],
        memory=[1, 3, 8],
        activation=["NONE", "RELU", "RELU6", "RELU_N1_TO_1", "TANH", "SIGN_BIT"],
        bias=[True, False],
    )
]


@pytest.mark.parametrize("case", FLOATS, ids=str)
def test_floats(case):
    runs_agree(svdf(kind="float32", **case), oracle=tflm_runs if case["bias"] else litert_runs)


@pytest.mark.parametrize("activation, expected", [("RELU", 0), ("RELU6", 6), ("RELU_N1_TO_1", 1)])
def test_a_nan_becomes_a_bound(activation: str, expected: int):
    model = svdf(1, 2, 2, 1, 2, kind="float32", activation=activation)
    runs = random_runs(model)
    runs[0][0][:] = np.nan
    assert (runs_agree(model, runs)[0][0] == expected).all()


@pytest.mark.parametrize(
    "case",
    [
        *sweep(
            12,
            batch=[1, 2],
            rank=[1, 2],
            memory=[1, 3],
            depth=[3, 16],
            activation=["NONE", "RELU", "TANH"],
            bias=[True, False],
            options=[{"asymmetric_quantize_inputs": False}, {"asymmetric_quantize_inputs": True}],
        )
    ],
    ids=str,
)
def test_hybrid(case):
    model = svdf(kind="hybrid", **case)
    runs = random_runs(model, 4)
    runs[2][0][:] = 0
    runs_agree(model, runs, oracle=litert_runs)


def test_without_a_bias():
    """TFLite Micro crashes on it; LiteRT takes it for zeros."""
    model = svdf(kind="int16", bias=False, activation="RELU", zero_points=(-3, 0, -128))
    runs_agree(model, runs_of(model), oracle=litert_runs)


@pytest.mark.parametrize("activation", ["RELU6", "TANH"])
def test_the_activation_of_int8_does_not_count(activation: str):
    model, plain = svdf(activation=activation), svdf()
    runs = runs_of(model)
    assert all((a[0] == b[0]).all() for a, b in zip(computed(read(model), runs), tflm_runs(plain, runs)))


@pytest.mark.parametrize("memory", [1, 4])
def test_the_state_is_renewed_in_place(memory: int):
    program = fuse(build_program(read(svdf(memory=memory)), OPERATORS))
    assert not [buffer for buffer in program.buffers if buffer.role == "temporary" and buffer.base is None]


@pytest.mark.parametrize(
    "case, text",
    [
        ({"inputs": 4}, "has 4 inputs, not 5"),
        ({"outputs": 2}, "has 2 outputs, not 1"),
        ({"variable": False, "shapes": {"state": (2, 24)}}, "reads 'state' before it is written"),
        ({"option": 0}, "6 filters do not divide into units of rank 0"),
        ({"option": -2}, "6 filters do not divide into units of rank -2"),
        ({"option": 4}, "6 filters do not divide into units of rank 4"),
        ({"shapes": {"data": (2, 5, 1)}}, "'data' has 3 dimensions, not 2"),
        ({"shapes": {"time": (6, 0), "state": (2, 0)}}, "'time' is empty: its shape is 6x0"),
        ({"shapes": {"feature": (6, 4)}}, "'feature' is 6x4, but the other inputs want 6x5"),
        ({"shapes": {"time": (5, 4)}}, "'time' is 5x4, but the other inputs want 6x4"),
        ({"shapes": {"state": (2, 12)}}, "'state' is 2x12, but the other inputs want 2x24"),
        ({"shapes": {"bias": (4,)}}, "the bias 'bias' is 4 for 3 units"),
        ({"types": {"data": "int16"}}, "int16 is not supported for 'data' (supported: int8, float32)"),
        ({"types": {"feature": "int16"}}, "int16 is not supported for 'feature' (supported: int8)"),
        ({"types": {"time": "int32"}}, "int32 is not supported for 'time' (supported: int16, int8)"),
        ({"types": {"state": "int8"}}, "int8 is not supported for 'state' (supported: int16)"),
        ({"types": {"bias": "float32"}}, "float32 is not supported for 'bias' (supported: int32)"),
        ({"types": {"out": "int16"}}, "'out' is int16 but 'data' is int8"),
        ({"kind": "float32", "types": {"time": "int8"}}, "int8 is not supported for 'time' (supported: float32)"),
        ({"points": {"state": 3}}, "the state 'state' is int16 with a zero point that is not 0"),
        ({"scales": {"state": 1e-30}}, "its scales would multiply the accumulator by"),
        ({"scales": {"data": 1e30, "feature": 1e30}}, "its scales would multiply the accumulator by 5e+61"),
        ({"kind": "float32", "options": {"fused_activation_function": 9}}, "the fused activation activation 9 is not supported"),
        ({"kind": "hybrid", "scales": {"feature": 0.0}}, "'feature' has scale 0"),
    ],
    ids=str,
)
def test_refusals(case, text: str):
    with pytest.raises(CompileError, match=re.escape(text)):
        read(svdf(**case))


def test_a_state_that_the_model_writes_itself_is_no_variable():
    m = ModelBuilder()
    x, y = m.tensor("x", (1, 2), "float32"), m.tensor("y", (1, 2), "float32")
    state = m.tensor("state", (1, 2), "float32")
    weights = [m.constant(np.ones((2, size), np.float32)) for size in (2, 1)]
    m.operator("NEG", [x], [state])
    m.operator("SVDF", [x, *weights, -1, state], [y], {"rank": 1})
    with pytest.raises(CompileError, match="its input 4 'state' must be a variable"):
        read(m.build([x], [y]))
