"""Compares the three meanings of a small model: the operator's `compute`, its lowered primitives, and TFLite Micro.

Enters: .tflite bytes. Leaves: the agreed outputs, or an AssertionError that says which two differ and by how much.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from aot.graph.evaluate import execute
from aot.graph.interpreter import run_all
from aot.graph.ir import Graph
from aot.graph.operator import Lowering
from aot.graph.ops import OPERATORS
from aot.graph.primitive import Primitive
from aot.graph.tflite import read_model
from tests.one_operator import random_inputs
from tests.oracle import tflm_runs

Oracle = Callable[[bytes, Sequence[Sequence[np.ndarray]]], list[list[np.ndarray]]]
"""`tflm_runs` or `litert_runs`."""

FLOAT_BOUND = 2e-6
"""Largest error of float32 results, relative to the largest output."""


def read(model: bytes) -> Graph:
    """The main graph; every operator's `read`, `infer` and `check` has run."""
    return read_model(model, "test.tflite", OPERATORS).main


def lower(graph: Graph, number: int = 0) -> Lowering:
    """The primitives of one node, with their constants and temporaries."""
    node = graph.nodes[number]
    lowering = Lowering(f"n{number}", number, [], [])
    OPERATORS[node.op].lower(graph.site(node), lowering)
    return lowering


def primitives(model: bytes) -> list[Primitive]:
    return lower(read(model)).primitives


def run_lowered(graph: Graph, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Execute every node's primitives on the computed inputs; the arrays they write, by value name."""
    written = {}
    for number, node in enumerate(graph.nodes):
        lowering = lower(graph, number)
        memory = dict(arrays)
        for value in lowering.values:
            memory[value.name] = value.data if value.data is not None else np.full(value.shape, 99, value.dtype.np)
        for name in node.outputs:
            memory[name] = np.full(graph[name].shape, 99, graph[name].dtype.np)
        for primitive in lowering.primitives:
            execute(primitive, memory)
        if not lowering.primitives:  # a view of input 0
            memory[node.outputs[0]] = memory[str(node.inputs[0])].reshape(graph[node.outputs[0]].shape)
        written |= {name: memory[name] for name in node.outputs}
    return written


def assert_near(found: np.ndarray, expected: np.ndarray, what: str, bound: float = FLOAT_BOUND) -> None:
    """Integers equal; floats within `bound` of the largest expected magnitude (or of 0.1, where terms have cancelled)."""
    assert found.shape == expected.shape and found.dtype == expected.dtype, (what, found.shape, expected.shape, found.dtype)
    if found.dtype.kind != "f":
        different = np.flatnonzero(found.reshape(-1) != expected.reshape(-1))
        first = different[:1]
        values = f"{found.flat[first]} is not {expected.flat[first]}"
        assert not different.size, f"{what}: {different.size} of {found.size} differ, the first at {first}: {values}"
        return
    scale = max(float(np.abs(expected).max(initial=0)), 0.1)
    error = float(np.abs(found.astype(np.float64) - expected).max(initial=0)) / scale
    assert error <= bound, f"{what}: relative error {error:.3g}"


def agree(
    model: bytes, *invocations: Sequence[np.ndarray], bound: float = FLOAT_BOUND, oracle: Oracle = tflm_runs
) -> list[np.ndarray]:
    """The first invocation's outputs, after compute, lowering and the oracle agreed on every invocation.

    Integers agree exactly, floats within `bound`. What the model keeps goes from one invocation to the next. Without invocations:
    pseudo-random inputs.
    """
    graph = read(model)
    invocations = invocations or (random_inputs(model),)
    found, state = [], {}
    for inputs, expected in zip(invocations, oracle(model, invocations), strict=True):
        arrays = run_all(graph, inputs, state)
        for name, array in run_lowered(graph, arrays).items():
            assert_near(array, arrays[name], "lowered and computed", bound)
        found.append([arrays[name] for name in graph.outputs])
        for ours, theirs in zip(found[-1], expected, strict=True):
            assert_near(ours, theirs.reshape(ours.shape), f"computed and {oracle.__name__}", bound)
    return found[0]


def extremes(model: bytes, seed: int = 0) -> tuple[list[np.ndarray], ...]:
    """Pseudo-random inputs, then all at their smallest, then all at their largest value."""
    inputs = random_inputs(model, seed)
    limits = [_limits(array.dtype) for array in inputs]
    return inputs, *([np.full_like(array, pair[end]) for array, pair in zip(inputs, limits)] for end in (0, 1))


def _limits(dtype: np.dtype) -> tuple[float, float]:
    if dtype.kind in "fb":
        return (-3.0, 3.0) if dtype.kind == "f" else (False, True)
    return np.iinfo(dtype).min, np.iinfo(dtype).max


def sweep(count: int, seed: int = 0, **choices: Sequence) -> Iterator[dict]:
    """`count` cases (30 times as many under AOT_SWEEP), each a pick from every choice; every value comes up equally often."""
    count *= 30 if os.environ.get("AOT_SWEEP") else 1
    picker = random.Random(seed)
    columns = {}
    for name, values in choices.items():
        column = [values[number % len(values)] for number in range(count)]
        picker.shuffle(column)
        columns[name] = column
    for number in range(count):
        yield {name: column[number] for name, column in columns.items()}
