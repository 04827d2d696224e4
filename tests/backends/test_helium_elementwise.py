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
    shift, is_wide = 128 if dtype == "uint8" else 0, dtype == "int16"
    for number, shape in enumerate(shapes):
        a, b, out = SCALES[number % len(SCALES)]
        zeros = [0 if is_wide else ZERO_POINTS[(number + k) % 4] + shift for k in range(3)]
        for op in BINARY if dtype != "uint8" else ("ADD", "MUL"):
            reads = [m.tensor(f"{op}{number}{k}", shape, dtype, scale=s, zero_point=zeros[k]) for k, s in enumerate((a, b))]
            writes = [m.tensor(f"{op}{number}y", shape, dtype, scale=out, zero_point=zeros[2])]
            m.operator(op, reads, writes, {})
            inputs, outputs = inputs + reads, outputs + writes
        for op in {"int8": UNARY, "int16": (*UNARY, "LEAKY_RELU")}.get(dtype, ()):
            sigmoid = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)} if not is_wide else {}
            fixed = sigmoid.get(op, (1 / 32768 if is_wide and op in UNARY[:2] else out, zeros[2]))
            scale = a / 100 if is_wide and number % 2 else a
            reads = [m.tensor(f"{op}{number}x", shape, dtype, scale=scale, zero_point=zeros[0])]
            writes = [m.tensor(f"{op}{number}y", shape, dtype, scale=fixed[0], zero_point=fixed[1])]
            m.operator(op, reads, writes, {"alpha": 0.3} if op == "LEAKY_RELU" else None)
            inputs, outputs = inputs + reads, outputs + writes
    return m.build(inputs, outputs), len(inputs)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
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
    low, unit = {"int8": (-128, 1), "uint8": (0, 1), "int16": (-32768, 257)}[dtype]
    grid = np.add.outer(np.arange(256) * 0, np.arange(256)) * unit + low
    large = [number for number, one in enumerate(inputs) if one.shape == (256, 256)]
    for turn, number in enumerate(large):
        inputs[number] = (grid if turn % 2 else grid.T).astype(inputs[number].dtype)
    assert len(inputs) == count
    graph = read_main_graph(path, aot.Options())  # TFLite Micro has no uint8 there
    wanted = tflm_run(model, inputs) if dtype != "uint8" else interpreter.run(graph, inputs)
    for ours, theirs in zip(run_bundle(bundle, inputs).outputs, wanted, strict=True):
        assert np.array_equal(ours, theirs)


COSTS = [("ADD", 3.0), ("MUL", 4.0), ("LOGISTIC", 1.5), ("ADD int16", 5.0), ("MUL int16", 3.0), ("LOGISTIC int16", 7.8)]


@pytest.mark.parametrize(("what", "ceiling"), COSTS)
def test_cost(tmp_path: Path, what: str, ceiling: float) -> None:
    """Instructions for an element."""
    needs_board()
    shape = (1, 24, 24, 16)
    op, dtype, *_ = *what.split(), "int8"
    zeros = (-3, 5, -128, -9) if dtype == "int8" else (0,) * 4
    reads = [T(shape, dtype, 0.05, zeros[0]), T(shape, dtype, 0.07, zeros[1])][: 1 + (op in BINARY)]
    out = (
        T(shape, dtype, 1 / (256 if dtype == "int8" else 32768), zeros[2]) if op == "LOGISTIC" else T(shape, dtype, 0.11, zeros[3])
    )
    path = tmp_path / "one.tflite"
    path.write_bytes(one_operator(op, reads, [out]))
    bundle = aot.compile(path, "cortex-m55")
    (layer,) = bundle.main.layers
    assert layer.kernel == "elementwise"
    instructions = run_bundle(bundle, random_inputs(bundle.main, 0)).instructions
    assert instructions is not None
    print(f"{what}: {instructions / np.prod(shape):.2f} instructions per element")
    assert instructions / np.prod(shape) <= ceiling
