"""Elementwise operators on Helium whose operands lie otherwise than their results, against TFLite Micro; and what they cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import aot
from aot.driver import read_main_graph
from aot.graph import interpreter
from aot.graph.expr import Load, Requantise, axis, cast, clamp, fixed
from aot.graph.ir import DType
from aot.graph.primitive import Map
from aot.lower.program import Buffer, Program
from aot.run import run_bundle
from aot.samples import random_inputs
from aot.target import load_target
from tests.backends.board import needs_board, run_all
from tests.backends.contracts import expected
from tests.builder import ModelBuilder

SHAPES = [(1, 3, 4, 8), (2, 2, 3, 5), (1, 1, 5, 17), (1, 4, 1, 33), (3, 1, 1, 4), (1, 2, 2, 7)]


def _beside(m: ModelBuilder, name: str, shape: tuple[int, ...], dtype: str, zero_point: int) -> tuple[list[int], list[int]]:
    """A sum and products with tensors that are broadcast along channels, or along rows and columns, or from constants."""
    channels, outs = shape[-1], []
    rng = np.random.default_rng(channels)
    x = m.tensor(f"{name}x", shape, dtype, scale=0.05, zero_point=zero_point)
    given = [x]
    others = [(1, 1, 1, channels), (*shape[:3], 1), (1, 1, 1, channels), (1, 1, shape[2], channels)]
    for number, other in enumerate(others):
        data = rng.integers(-128, 128, other).astype(dtype) if number >= 2 else None
        if data is not None and channels == 33:
            data[...] = 5
        right = m.tensor(f"{name}r{number}", other, dtype, data=data, scale=0.03, zero_point=zero_point)
        out = m.tensor(f"{name}y{number}", shape, dtype, scale=0.08 if number % 2 else 0.02, zero_point=-zero_point)
        m.operator(("ADD", "MUL", "MUL", "SUB")[number], [x, right], [out], {})
        given += [right] if data is None else []
        outs.append(out)
    return given, outs


def model_of(dtype: str) -> bytes:
    m, inputs, outputs = ModelBuilder(), [], []
    for number, shape in enumerate(SHAPES):
        given, outs = _beside(m, f"b{number}", shape, dtype, 0 if dtype == "int16" else 7)
        inputs, outputs = inputs + given, outputs + outs
    return m.build(inputs, outputs)


def padded_model(slices: bool) -> bytes:
    """Sums of tensors of which one has fewer channels, or of parts of tensors, rescaled."""
    m, given, outputs = ModelBuilder(), [], []
    for number, shape in enumerate(SHAPES):
        less = (*shape[:3], shape[3] - 3)
        wide = (shape[0], shape[1] + 1, shape[2] + 2, shape[3] + 5)
        a = m.tensor(f"a{number}", wide if slices else less, "int8", scale=0.05, zero_point=3)
        b = m.tensor(f"b{number}", shape, "int8", scale=0.04, zero_point=-9)
        part = m.tensor(f"p{number}", shape, "int8", scale=0.05, zero_point=3)
        if slices:
            ends = [
                m.tensor(f"{name}{number}", (4,), "int32", data=np.array(data, np.int32))
                for name, data in (("first", (0, 1, 2, 4)), ("last", tuple(np.add((0, 1, 2, 4), shape))), ("step", (1, 1, 1, 1)))
            ]
            m.operator("STRIDED_SLICE", [a, *ends], [part], {})
        else:
            pads = m.tensor(f"pads{number}", (4, 2), "int32", data=np.array([[0, 0], [0, 0], [0, 0], [1, 2]], np.int32))
            m.operator("PAD", [a, pads], [part], {})
        out = m.tensor(f"y{number}", shape, "int8", scale=0.07, zero_point=1)
        m.operator("ADD", [part, b], [out], {})
        given, outputs = [*given, a, b], [*outputs, out]
    return m.build(given, outputs)


MODELS = {
    "int8": lambda: model_of("int8"),
    "int16": lambda: model_of("int16"),
    "padded": lambda: padded_model(False),
    "slices": lambda: padded_model(True),
}


@pytest.mark.parametrize("name", MODELS)
def test_rows(tmp_path: Path, name: str) -> None:
    """Against our interpreter, whose bytes are TFLite Micro's; memory guarded, in the workspace."""
    needs_board()
    path = tmp_path / "rows.tflite"
    path.write_bytes(MODELS[name]())
    bundle = aot.compile(path, "cortex-m55", options=aot.Options(io="workspace"))
    kernels = [layer.kernel for layer in bundle.main.layers]
    assert kernels.count("elementwise rows") >= len(SHAPES), kernels
    for seed in range(2):
        given = list(random_inputs(bundle.main, seed))
        wanted = interpreter.run(read_main_graph(path, aot.Options()), given)
        for number, (ours, theirs) in enumerate(zip(run_bundle(bundle, given).outputs, wanted, strict=True)):
            assert np.array_equal(ours, theirs), number


@pytest.mark.parametrize("by", ["row", "channel", "both"])
def test_scales_of_rows_and_channels(by: str) -> None:
    """Both roundings by every shift, of the whole of int32."""
    needs_board()
    rng = np.random.default_rng(3)
    rows, channels = 62, 11
    shape = {"row": (rows, 1), "channel": (1, channels), "both": (rows, channels)}[by]
    index = tuple(axis(number) if extent > 1 else fixed(0) for number, extent in enumerate(shape))
    shift = (np.arange(shape[0])[:, None] + np.arange(shape[1]) * 7) % 62 - 31
    multiplier = rng.integers(0, 1 << 31, shape)
    multiplier[:: 1 + shape[0] // 5] = (1 << 31) - 1
    x = rng.integers(-(1 << 31), 1 << 31, (rows, channels))
    x = np.where(rng.random(x.shape) < 0.3, x >> rng.integers(0, 31, x.shape), x)
    x[::7, ::3] = rng.choice([-(1 << 31), (1 << 31) - 1, 0, -1, 1], x[::7, ::3].shape)
    factor, by_shift = (Load(name, index, DType.INT32) for name in ("multiplier", "shift"))
    scaled = Requantise(Load("x", (axis(0), axis(1)), DType.INT32), factor, by_shift)
    buffers = (
        Buffer("x", DType.INT32, x.shape, "input"),
        Buffer("y", DType.INT16, x.shape, "output"),
        *(
            Buffer(name, DType.INT32, shape, "constant", data=data.astype(np.int32))
            for name, data in (("multiplier", multiplier), ("shift", shift))
        ),
    )
    value = cast(clamp(scaled, -32768, 32767), DType.INT16)
    program = Program("test", buffers, (Map("y", x.shape, value),), ("x",), ("y",))
    given = {"x": x.astype(np.int32)}
    ((implementation, out),) = run_all([program], load_target("cortex-m55"), [given])
    assert implementation.kernel == "elementwise rows"
    assert np.array_equal(out, expected(program, given))


def test_cost(tmp_path: Path) -> None:
    """A product with a number for each channel."""
    needs_board()
    m, shape = ModelBuilder(), (1, 24, 24, 16)
    x = m.tensor("x", shape, "int8", scale=0.05, zero_point=3)
    factors = m.tensor(
        "factors", (1, 1, 1, 16), "int8", data=np.arange(-8, 8, dtype=np.int8).reshape(1, 1, 1, 16), scale=0.1, zero_point=0
    )
    y = m.tensor("y", shape, "int8", scale=0.02, zero_point=5)
    m.operator("MUL", [x, factors], [y], {})
    path = tmp_path / "one.tflite"
    path.write_bytes(m.build([x], [y]))
    bundle = aot.compile(path, "cortex-m55")
    (layer,) = bundle.main.layers
    assert layer.kernel == "elementwise rows"
    instructions = run_bundle(bundle, random_inputs(bundle.main, 0)).instructions
    assert instructions is not None
    print(f"{instructions / np.prod(shape):.2f} instructions per element")
    assert instructions / np.prod(shape) <= 4.2


@pytest.mark.parametrize(("shape", "other"), [((1, 5, 5, 3), (1, 1, 1, 3)), ((1, 4, 4, 8), (1, 4, 4, 8))], ids=str)
def test_others_have_it(tmp_path: Path, shape: tuple[int, ...], other: tuple[int, ...]) -> None:
    """Rows of fewer than four, and operands that lie as their results do."""
    m = ModelBuilder()
    reads = [m.tensor(name, dims, "int8", scale=0.05, zero_point=3) for name, dims in (("a", shape), ("b", other))]
    y = m.tensor("y", shape, "int8", scale=0.02, zero_point=5)
    m.operator("MUL", reads, [y], {})
    path = tmp_path / "one.tflite"
    path.write_bytes(m.build(reads, [y]))
    (layer,) = aot.compile(path, "cortex-m55").main.layers
    assert layer.kernel == ("elementwise" if shape == other else "generic map")
