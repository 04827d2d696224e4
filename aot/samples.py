"""Inputs and expected outputs for a bundle: from .npz files, or pseudo-random.

Enters: an entry and arrays by name. Leaves: arrays in the entry's order, of its dtypes and shapes.
Invariant: a file's arrays are checked against the entry; nothing is converted silently.

Two kinds of file: plain (`in0`, `in1`, ...) and golden (`in{i}_{k}`, `out{i}_{k}` of run k, and `meta`, a JSON string).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from aot.bundle import Entry, Port
from aot.errors import CompileError
from aot.graph.ir import DType
from aot.names import listed


@dataclass(frozen=True)
class Sample:
    """One invocation: inputs, and the outputs it must give."""

    inputs: tuple[np.ndarray, ...]
    outputs: tuple[np.ndarray, ...]


def input_arrays(entry: Entry, arrays: Mapping[str, np.ndarray], where: str) -> list[np.ndarray]:
    """The inputs of run 0. CompileError if one is missing or of another dtype or size."""
    suffix = "_0" if "in0_0" in arrays else ""
    return [_matching(port, f"in{i}{suffix}", arrays, where) for i, port in enumerate(entry.inputs)]


def class_of(entry: Entry, arrays: Mapping[str, np.ndarray], where: str) -> int | None:
    """The largest element of the first output in run 0, by its number; None if the file has no output."""
    key = next((each for each in ("out0_0", "out0") if each in arrays), None)
    if key is None or not entry.outputs:
        return None
    return int(np.argmax(_matching(entry.outputs[0], key, arrays, where)))


def golden_samples(entry: Entry, arrays: Mapping[str, np.ndarray], where: str) -> tuple[str, list[Sample]]:
    """(oracle, samples) of a golden file; a plain file with `in{i}` and `out{i}` is one sample."""
    meta = _meta(arrays, where)
    runs = sum(1 for name in arrays if name.startswith("in0_")) if "in0_0" in arrays else 0
    suffixes = [f"_{k}" for k in range(runs)] if runs else [""]
    if not entry.inputs:
        suffixes = [f"_{k}" for k in range(sum(1 for name in arrays if name.startswith("out0_")))] or [""]
    samples = [
        Sample(
            tuple(_matching(port, f"in{i}{suffix}", arrays, where) for i, port in enumerate(entry.inputs)),
            tuple(_matching(port, f"out{i}{suffix}", arrays, where) for i, port in enumerate(entry.outputs)),
        )
        for suffix in suffixes
    ]
    return str(meta.get("oracle", "the file")), samples


def _meta(arrays: Mapping[str, np.ndarray], where: str) -> dict[str, object]:
    if "meta" not in arrays:
        return {}
    try:
        content: Any = json.loads(str(arrays["meta"]))
    except ValueError as error:
        raise CompileError(f"`meta` is no JSON: {error}", where=where) from error
    return cast("dict[str, object]", content) if isinstance(content, dict) else {}


def _matching(port: Port, key: str, arrays: Mapping[str, np.ndarray], where: str) -> np.ndarray:
    if key not in arrays:
        raise CompileError(f"array `{key}` is missing", where=where, hint=f"it holds {listed(sorted(arrays))}")
    array = arrays[key]
    if array.dtype != port.dtype.np or array.size * array.dtype.itemsize != port.nbytes:
        raise CompileError(
            f"array `{key}` is {array.dtype}{list(array.shape)}; the model has {port.dtype}{list(port.shape)}", where=where
        )
    return np.ascontiguousarray(array).reshape(port.shape)


def random_inputs(entry: Entry, seed: int) -> list[np.ndarray]:
    """Pseudo-random inputs: the full range of an integer type, a normal distribution for floats."""
    generator = np.random.default_rng(seed)
    return [_random(port, generator) for port in entry.inputs]


def _random(port: Port, generator: np.random.Generator) -> np.ndarray:
    if port.dtype is DType.BOOL:
        return generator.integers(0, 2, port.shape).astype(bool)
    if port.dtype.is_float:
        return generator.standard_normal(port.shape).astype(port.dtype.np)
    low, high = port.dtype.limits
    return generator.integers(low, high, port.shape, endpoint=True, dtype=port.dtype.np)


FLOAT_TOLERANCE = 1e-5
"""Largest difference of a float output, relative to the output's largest magnitude."""


@dataclass(frozen=True)
class Difference:
    """An output that is not as expected: its number, the elements that differ, by how much at most; the first of them, by flat index."""

    output: int
    count: int
    largest: float
    index: int
    expected: float
    actual: float

    def __str__(self) -> str:
        first = f"the first at {self.index}: {self.actual:g} instead of {self.expected:g}"
        return f"output {self.output}: {self.count} elements differ, by {self.largest:g} at most, {first}"


def differences(expected: Sequence[np.ndarray], actual: Sequence[np.ndarray]) -> list[Difference]:
    """Each output that is not as expected.

    Integers must be equal; floats within FLOAT_TOLERANCE of the largest magnitude; NaN equals NaN.
    """
    found: list[Difference] = []
    for number, (want, got) in enumerate(zip(expected, actual, strict=True)):
        apart = distances(want, got)
        wrong = apart != 0
        if want.dtype.kind == "f":
            finite = want[np.isfinite(want)]
            wrong = ~(apart <= FLOAT_TOLERANCE * float(np.max(np.abs(finite), initial=0.0)))
        if wrong.any():
            largest, first = float(np.max(np.where(np.isnan(apart), np.inf, apart))), int(np.flatnonzero(wrong)[0])
            values = (float(array.reshape(-1)[first]) for array in (want, got))
            found.append(Difference(number, int(wrong.sum()), largest, first, *values))
    return found


def distances(want: np.ndarray, got: np.ndarray) -> np.ndarray:
    """How far each element is from what it must be, as float64: 0 for NaN in the place of NaN, else NaN where one of them is."""
    if want.dtype.kind != "f":
        return np.abs(want.astype(np.int64) - got.astype(np.int64)).astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.abs(want.astype(np.float64) - got.astype(np.float64))
        return np.where((want == got) | (np.isnan(want) & np.isnan(got)), 0.0, apart)
