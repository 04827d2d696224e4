"""RELU, RELU6, RELU_N1_TO_1, RELU_0_TO_1: every 8-bit value and many of 16 bits, against TFLite Micro or LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.expr import Requantise, walk
from aot.graph.interpreter import run_all
from aot.graph.ir import Graph
from aot.graph.passes.ranges import activation_bounds
from aot.graph.primitive import Map
from tests.graph.lowered import agree, primitives, read, run_lowered
from tests.one_operator import T, one_operator, unary
from tests.oracle import litert_runs, tflm_runs

EVERY = {
    "int8": np.arange(-128, 128, dtype=np.int8).reshape(1, 16, 16),
    "uint8": np.arange(256, dtype=np.uint8).reshape(1, 16, 16),
    "int16": np.append(np.arange(-32768, 32768, 37), [32767, -1, 0, 1]).astype(np.int16).reshape(1, -1),
}
ZERO_POINTS = {"int8": (-128, -1, 0, 127), "uint8": (0, 3, 128, 255)}
SCALES = ((0.05, 0.05), (0.1, 0.01), (0.001, 0.2), (0.2, 0.001), (0.037, 0.051), (1.0, 1.0))
RELUS = {"RELU": tflm_runs, "RELU6": tflm_runs, "RELU_N1_TO_1": litert_runs, "RELU_0_TO_1": litert_runs}


@pytest.mark.parametrize("op", RELUS)
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_every_byte(op: str, scales: tuple[float, float], dtype: str) -> None:
    x = EVERY[dtype]
    for zero_point in ZERO_POINTS[dtype]:
        for out_zero_point in ZERO_POINTS[dtype]:
            model = unary(op, x.shape, dtype=dtype, input_q=(scales[0], zero_point), output_q=(scales[1], out_zero_point))
            agree(model, [x], oracle=RELUS[op] if dtype == "int8" else litert_runs)


@pytest.mark.parametrize("op", ["RELU", "RELU6"])
@pytest.mark.parametrize("scales", [*SCALES, (1 / 32768, 1 / 32768), (1e-4, 3e-4), (3e-4, 1e-4)])
def test_int16(op: str, scales: tuple[float, float]) -> None:
    x = EVERY["int16"]
    agree(unary(op, x.shape, dtype="int16", input_q=(scales[0], 0), output_q=(scales[1], 0)), [x])


@pytest.mark.parametrize("op", RELUS)
def test_float_relu(op: str) -> None:
    x = np.array([[-np.inf, -7, -1, -0.5, -0.0, 0.0, 0.5, 1, 6, 7, 3e38]], np.float32)
    agree(unary(op, x.shape, dtype="float32"), [x], bound=0.0, oracle=RELUS[op])


@pytest.mark.parametrize("op", RELUS)
def test_nan_stays(op: str) -> None:
    model = unary(op, (1, 2), dtype="float32")
    x = np.array([[np.nan, -0.0]], np.float32)
    if op in ("RELU", "RELU6"):
        assert np.isnan(tflm_runs(model, [[x]])[0][0][0, 0])
    graph = read(model)
    computed = run_all(graph, [x])
    (lowered,) = run_lowered(graph, computed).values()
    assert np.isnan(lowered[0, 0]) and lowered.tobytes() == computed[graph.outputs[0]].tobytes()


@pytest.mark.parametrize("op", RELUS)
def test_relu_with_equal_quantisation_is_a_clamp(op: str) -> None:
    (lowered,) = primitives(unary(op))
    assert isinstance(lowered, Map)
    assert not any(isinstance(part, Requantise) for part in walk(lowered.value))


def test_relu6_ignores_the_output_scale_as_tflite_micro_does() -> None:
    """LiteRT rescales; a model that asks for it gets TFLite Micro's bytes."""
    x = EVERY["int8"]
    model = unary("RELU6", x.shape, input_q=(0.05, -10), output_q=(0.1, 4))
    ours = agree(model, [x])[0]
    assert not np.array_equal(ours, litert_runs(model, [[x]])[0][0])


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8"])
@pytest.mark.parametrize("op", RELUS)
def test_the_bounds_that_passes_rely_on(op: str, dtype: str) -> None:
    """No output lies outside, also where the scales differ."""
    if dtype == "int16" and op not in ("RELU", "RELU6"):
        return
    for scales in SCALES:
        graph: Graph = read(unary(op, EVERY[dtype].shape, dtype=dtype, input_q=(scales[0], 0), output_q=(scales[1], 3)))
        site = graph.site(graph.nodes[0])
        found = agree(unary(op, EVERY[dtype].shape, dtype=dtype, input_q=(scales[0], 0), output_q=(scales[1], 3)), [EVERY[dtype]],
                      oracle=litert_runs if dtype == "uint8" else RELUS[op])[0]  # fmt: skip
        low, high = activation_bounds(site)
        assert low <= found.min() and found.max() <= high


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (unary("RELU", dtype="int32", output_q=(1, 0)), "int32 is not supported for 'in0'"),
        (unary("RELU_N1_TO_1", dtype="int16"), "int16 is not supported for 'in0'"),
        (unary("RELU", out_dtype="float32"), "'out0' is float32 but 'in0' is int8"),
        (unary("RELU_N1_TO_1", input_q=(1e-10, 0), output_q=(1e-10, 0)), "too small for the fused activation"),
        (unary("RELU_0_TO_1", input_q=(1e-10, 0), output_q=(1e-10, 0)), "too small for the fused activation"),
        (unary("RELU_N1_TO_1", input_q=(1e5, 0), output_q=(1e-6, 0)), "more than int32 arithmetic can"),
        (
            one_operator("RELU", [T((2,), "int16", 0.1, 3)], [T((2,), "int16", 0.1, 0)]),
            "int16 with a zero point that is not 0 is not supported",
        ),
        (one_operator("RELU", [T((2,), "int8")], [T((2,), "int8")]), "'in0' is int8 without a scale and zero point"),
        (one_operator("RELU", [T((2,)), T((2,))], [T((2,))]), "has 2 inputs, not 1"),
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value) and "node 0 " in str(caught.value)
