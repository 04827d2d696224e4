"""Elementwise operators on Helium against TFLite Micro, many in one model; and what they cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import aot
from aot.driver import read_main_graph
from aot.graph import interpreter
from aot.run import run_bundle
from aot.samples import random_inputs
from tests.backends.board import needs_board
from tests.builder import ModelBuilder
from tests.one_operator import T, one_operator
from tests.oracle import tflm_run

BINARY, UNARY = ("ADD", "SUB", "MUL"), ("LOGISTIC", "TANH", "QUANTIZE")
SCALES = ((0.05, 0.07, 0.11), (0.5, 0.003, 0.01), (0.02, 0.02, 0.04), (0.9, 0.7, 0.004))
ZERO_POINTS = (-128, -3, 0, 127)


def model_of(shapes: list[tuple[int, ...]], dtype: str) -> tuple[bytes, int]:
    """A model with a node for each operator and shape; and how many inputs it has."""
    m, inputs, outputs = ModelBuilder(), [], []
    shift = 128 if dtype == "uint8" else 0
    for number, shape in enumerate(shapes):
        a, b, out = SCALES[number % len(SCALES)]
        zeros = [ZERO_POINTS[(number + k) % 4] + shift for k in range(3)]
        for op in BINARY if dtype == "int8" else ("ADD", "MUL"):
            reads = [m.tensor(f"{op}{number}{k}", shape, dtype, scale=s, zero_point=zeros[k]) for k, s in enumerate((a, b))]
            writes = [m.tensor(f"{op}{number}y", shape, dtype, scale=out, zero_point=zeros[2])]
            m.operator(op, reads, writes, {})
            inputs, outputs = inputs + reads, outputs + writes
        for op in UNARY if dtype == "int8" else ():
            fixed = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)}.get(op, (out, zeros[2]))
            reads = [m.tensor(f"{op}{number}x", shape, dtype, scale=a, zero_point=zeros[0])]
            writes = [m.tensor(f"{op}{number}y", shape, dtype, scale=fixed[0], zero_point=fixed[1])]
            m.operator(op, reads, writes)
            inputs, outputs = inputs + reads, outputs + writes
    return m.build(inputs, outputs), len(inputs)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_elementwise(tmp_path: Path, dtype: str) -> None:
    """Tails of one to three elements, and none; all values against all others in the largest."""
    needs_board()
    model, count = model_of([(1, 1), (1, 2), (3,), (1, 4), (5, 1), (7,), (2, 3, 3), (1, 17, 5, 3), (256, 256)], dtype)
    path = tmp_path / "many.tflite"
    path.write_bytes(model)
    bundle = aot.compile(path, "cortex-m55", options=aot.Options(io="workspace"))
    kernels = {layer.kernel for layer in bundle.main.layers}
    assert "elementwise" in kernels, kernels
    inputs = list(random_inputs(bundle.main, 3))
    low = -128 if dtype == "int8" else 0
    grid = np.add.outer(np.arange(256) * 0, np.arange(256)) + low
    large = [number for number, one in enumerate(inputs) if one.shape == (256, 256)]
    for turn, number in enumerate(large):
        inputs[number] = (grid if turn % 2 else grid.T).astype(inputs[number].dtype)
    assert len(inputs) == count
    graph = read_main_graph(path, aot.Options())  # TFLite Micro has no uint8 there
    wanted = tflm_run(model, inputs) if dtype == "int8" else interpreter.run(graph, inputs)
    for ours, theirs in zip(run_bundle(bundle, inputs).outputs, wanted, strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize(("op", "ceiling"), [("ADD", 3.0), ("MUL", 4.0), ("LOGISTIC", 1.5)])
def test_cost(tmp_path: Path, op: str, ceiling: float) -> None:
    """Instructions for an element."""
    needs_board()
    shape = (1, 24, 24, 16)
    reads = [T(shape, "int8", 0.05, -3), T(shape, "int8", 0.07, 5)][: 1 + (op in BINARY)]
    out = T(shape, "int8", 1 / 256, -128) if op == "LOGISTIC" else T(shape, "int8", 0.11, -9)
    path = tmp_path / "one.tflite"
    path.write_bytes(one_operator(op, reads, [out]))
    bundle = aot.compile(path, "cortex-m55")
    (layer,) = bundle.main.layers
    assert layer.kernel == "elementwise"
    instructions = run_bundle(bundle, random_inputs(bundle.main, 0)).instructions
    assert instructions is not None
    print(f"{op}: {instructions / np.prod(shape):.2f} instructions per element")
    assert instructions / np.prod(shape) <= ceiling
