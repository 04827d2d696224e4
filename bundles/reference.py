"""What a sample model computes, by definition: the project's numpy interpreter.

Enters: a model with one input and one output, and inputs without the batch axis. Leaves: its outputs.
Invariant: integers are those of TFLite Micro's reference kernels (tests/bundles compares).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from aot.graph import interpreter, tflite
from aot.graph.ir import Quantisation
from aot.graph.ops import OPERATORS


def interpret(path: Path, inputs: np.ndarray) -> np.ndarray:
    """The output for each of `inputs` (N, ...): (N, ...)."""
    graph = tflite.read_file(path, OPERATORS).main
    return np.concatenate([interpreter.run(graph, [array[None]])[0] for array in inputs])


def output_quantisation(path: Path) -> Quantisation:
    """The output's scale and zero point, as the file states them. ValueError for a float model."""
    graph = tflite.read_file(path, OPERATORS).main
    found = graph[graph.outputs[0]].quantisation
    if found is None:
        raise ValueError(f"the output of {path.name} is not quantised")
    return found


def write_golden(path: Path, inputs: np.ndarray, outputs: np.ndarray, **more: np.ndarray) -> None:
    """A golden file for `aot verify --golden` and `aot run --inputs`: array `in0_k`, `out0_k` of each invocation k, and `more`."""
    meta = json.dumps({"oracle": "the numpy interpreter", "runs": len(inputs), "stateful": False})
    arrays: dict[str, Any] = {"meta": np.array(meta), **more}
    for k, (given, found) in enumerate(zip(inputs, outputs, strict=True)):
        arrays |= {f"in0_{k}": given[None], f"out0_{k}": found[None]}
    np.savez(path, **arrays)
