"""Elementwise operators on Cortex-A against TFLite Micro, many in one model; the forms that they are computed by; and what they cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import aot
from aot.backends.neon.affine import Affine, affine_of
from aot.driver import read_main_graph
from aot.graph import interpreter
from aot.graph.expr import Binary, Expr, Load, add, axis, cast, clamp, integer, mul
from aot.graph.ir import DType
from aot.run import run_bundle
from aot.samples import random_inputs
from aot.target import load_target
from tests.backends.board import needs_board
from tests.backends.test_helium_elementwise import BINARY, model_of
from tests.builder import ModelBuilder
from tests.one_operator import T, one_operator
from tests.oracle import tflm_run

CORES = ("cortex-a53", "cortex-a9")


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_elementwise(tmp_path: Path, core: str, dtype: str) -> None:
    """Tails of one to fifteen elements, and none; all values against all others in the largest."""
    needs_board(load_target(core))
    model, count = model_of([(1, 1), (7,), (2, 3, 3), (1, 17, 5, 3), (65, 1), (256, 256)], dtype)
    path = tmp_path / "many.tflite"
    path.write_bytes(model)
    bundle = aot.compile(path, core, options=aot.Options(io="workspace"))
    assert "elementwise" in {layer.kernel for layer in bundle.main.layers}
    inputs = list(random_inputs(bundle.main, 3))
    low = -128 if dtype == "int8" else 0
    pairs = np.add.outer(np.arange(256) * 0, np.arange(256)) + low
    large = [number for number, one in enumerate(inputs) if one.shape == (256, 256)]
    for turn, number in enumerate(large):
        inputs[number] = (pairs if turn % 2 else pairs.T).astype(inputs[number].dtype)
    assert len(inputs) == count
    graph = read_main_graph(path, aot.Options())  # TFLite Micro has no uint8 there
    wanted = tflm_run(model, inputs) if dtype != "uint8" else interpreter.run(graph, inputs)
    for ours, theirs in zip(run_bundle(bundle, inputs).outputs, wanted, strict=True):
        assert np.array_equal(ours, theirs)


def test_a_table_of_equal_entries(tmp_path: Path) -> None:
    """x - x is one number whatever x is: the table that says so holds it 256 times, and is no constant of the code's."""
    needs_board(load_target("cortex-a53"))
    path, m = tmp_path / "zero.tflite", ModelBuilder()
    x, y = m.tensor("x", (1, 29, 16, 4), scale=0.0428), m.tensor("y", (1, 29, 16, 4), scale=0.0605, zero_point=4)
    m.operator("SUB", [x, x], [y], {"fused_activation_function": "RELU6"})
    path.write_bytes(m.build([x], [y]))
    bundle = aot.compile(path, "cortex-a53")
    assert [layer.kernel for layer in bundle.main.layers] == ["elementwise"]
    assert np.all(run_bundle(bundle, random_inputs(bundle.main, 3)).outputs[0] == 4)


X, Y = (Load(name, (axis(0),), DType.INT8) for name in "xy")


def scaled(a: int, b: int, c: int, shift: int) -> Expr:
    """An addition in its exact form."""
    total = add(mul(cast(X, DType.INT32), integer(a)), add(mul(cast(Y, DType.INT32), integer(b)), integer(c)))
    return cast(clamp(Binary("shr", total, integer(shift)), -100, 127), DType.INT8)


def test_what_is_affine() -> None:
    assert affine_of(scaled(3 << 20, -5 << 18, -12345, 22), (X, Y)) == Affine((3 << 20, -5 << 18), -12345, 22, -100, 127)
    assert affine_of(scaled(3, 5, 7, 16), (X, Y)) is None  # shifts of 17 to 24 only
    assert affine_of(scaled(1 << 24, 1 << 16, 0, 24), (X, Y)) is None  # its sums may leave 32 bits
    product = mul(cast(X, DType.INT32), cast(Y, DType.INT32))
    assert affine_of(cast(clamp(Binary("shr", product, integer(20)), -128, 127), DType.INT8), (X, Y)) is None


@pytest.mark.parametrize(
    ("what", "core", "ceiling"), [("ADD", "cortex-a76", 2.3), ("LOGISTIC", "cortex-a76", 0.9), ("ADD", "cortex-a9", 2.8)]
)
def test_cost(tmp_path: Path, what: str, core: str, ceiling: float) -> None:
    """Instructions for an element."""
    needs_board(load_target(core))
    shape = (1, 24, 24, 16)
    reads = [T(shape, "int8", 0.05, -3), T(shape, "int8", 0.07, 5)][: 1 + (what in BINARY)]
    out = T(shape, "int8", 1 / 256, -128) if what == "LOGISTIC" else T(shape, "int8", 0.11, -9)
    path = tmp_path / "one.tflite"
    path.write_bytes(one_operator(what, reads, [out]))
    bundle = aot.compile(path, core)
    (layer,) = bundle.main.layers
    assert layer.kernel == "elementwise"
    instructions = run_bundle(bundle, random_inputs(bundle.main, 0)).instructions
    assert instructions is not None
    print(f"{what}: {instructions / np.prod(shape):.2f} instructions per element")
    assert instructions / np.prod(shape) <= ceiling
