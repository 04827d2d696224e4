"""For tests of graph passes: small graphs, and the check that a pass changes no result.

Enters: operators by name. Leaves: graphs as the reader gives them, and what a pass makes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from aot.graph.interpreter import run
from aot.graph.ir import Graph
from aot.graph.ops import OPERATORS
from aot.graph.passes import verify
from tests.builder import ModelBuilder
from tests.graph.lowered import read


class Net:
    """A model under construction; every method returns the tensor that it makes. Quantised by `scale` and `zero_point`."""

    def __init__(self, dtype: str = "int8", scale: float = 0.1, zero_point: int = -5) -> None:
        self.m = ModelBuilder()
        self.dtype, self.scale, self.zero_point = dtype, scale, zero_point
        self.inputs: list[int] = []
        self.count = 0

    def tensor(
        self, shape: Sequence[int], dtype: str | None = None, scale: float | None = None, zero_point: int | None = None
    ) -> int:
        self.count += 1
        dtype = dtype or self.dtype
        quantised = dtype in ("int8", "uint8", "int16")
        return self.m.tensor(
            f"v{self.count}",
            shape,
            dtype,
            scale=(scale or self.scale) if quantised else None,
            zero_point=self.zero_point if zero_point is None else zero_point,
        )

    def input(self, shape: Sequence[int], **fields) -> int:
        self.inputs.append(self.tensor(shape, **fields))
        return self.inputs[-1]

    def constant(self, data, dtype: str = "int32", **fields) -> int:
        return self.m.constant(np.array(data, dtype), **fields)

    def op(self, name: str, inputs: Sequence[int], shape: Sequence[int], options: dict | None = None, **fields) -> int:
        out = self.tensor(shape, **fields)
        self.m.operator(name, inputs, [out], options)
        return out

    def conv(self, x: int, shape: Sequence[int], out: Sequence[int], kernel: int = 3, padding: str = "VALID", **options) -> int:
        """CONV_2D with random weights and bias, stride 1."""
        rng = np.random.default_rng(9)
        channels = out[-1]
        if self.dtype == "int8":
            weights = self.m.constant(rng.integers(-127, 128, (channels, kernel, kernel, shape[-1])).astype(np.int8), scale=0.01)
            bias = self.m.constant(rng.integers(-500, 500, channels).astype(np.int32), scale=0.01 * self.scale)
        else:
            weights = self.m.constant(rng.normal(size=(channels, kernel, kernel, shape[-1])).astype(np.float32))
            bias = self.m.constant(rng.normal(size=channels).astype(np.float32))
        return self.op("CONV_2D", [x, weights, bias], out, {"stride_h": 1, "stride_w": 1, "padding": padding, **options})

    def graph(self, *outputs: int) -> Graph:
        return read(self.m.build(self.inputs, outputs))


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def unchanged(graph: Graph, function: Callable[[Graph], Graph]) -> Graph:
    """What a pass makes of a graph, after checking that inputs, outputs and results (to the byte) stay."""
    after = function(graph)
    verify(after, OPERATORS)
    assert after.inputs == graph.inputs and after.outputs == graph.outputs
    for name in (*graph.inputs, *graph.outputs):
        assert replace(after[name], data=None).__dict__.items() >= {"label": graph[name].label, "dtype": graph[name].dtype}.items()
        assert after[name].shape == graph[name].shape and after[name].quantisation == graph[name].quantisation
    for kind in ("random", "low", "high"):
        inputs = [example(graph, name, kind) for name in graph.inputs]
        for found, expected in zip(run(after, inputs), run(graph, inputs), strict=True):
            assert found.dtype == expected.dtype and found.shape == expected.shape
            assert found.tobytes() == expected.tobytes(), kind
    return after


def stays(graph: Graph, function: Callable[[Graph], Graph]) -> None:
    """A pass leaves every node as it is."""
    assert unchanged(graph, function).nodes == graph.nodes


def example(graph: Graph, name: str, kind: str) -> np.ndarray:
    """An array for an input: random, or all at the low or the high end."""
    value = graph[name]
    rng = np.random.default_rng(len(name))
    if value.dtype.is_float:
        return {"random": rng.normal(0, 3, value.shape), "low": np.full(value.shape, -9.0), "high": np.full(value.shape, 9.0)}[
            kind
        ].astype(value.dtype.np)
    low, high = value.dtype.limits
    low, high = max(low, -(1 << 15)), min(high, (1 << 15) - 1)
    return {
        "random": rng.integers(low, high + 1, value.shape),
        "low": np.full(value.shape, low),
        "high": np.full(value.shape, high),
    }[kind].astype(value.dtype.np)
