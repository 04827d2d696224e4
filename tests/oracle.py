"""Runs a model with other engines, for tests: TFLite Micro's reference kernels and LiteRT's reference resolver.

Enters: a model's bytes and its inputs in model order. Leaves: its outputs (quantised values as they are).
A test that needs an engine which is not installed is skipped, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest


def tflm_run(model: bytes, inputs: Sequence[np.ndarray], arena_nbytes: int = 4 << 20) -> list[np.ndarray]:
    """Outputs of TFLite Micro (PyPI tflite-micro) for one invocation from a fresh start."""
    return tflm_runs(model, [inputs], arena_nbytes)[0]


def tflm_runs(model: bytes, invocations: Sequence[Sequence[np.ndarray]], arena_nbytes: int = 4 << 20) -> list[list[np.ndarray]]:
    """Outputs of each of several invocations of one interpreter, which keeps its variables."""
    runtime = pytest.importorskip("tflite_micro", reason="needs TFLite Micro: pip install tflite-micro").runtime
    interpreter = runtime.Interpreter.from_bytes(bytes(model), arena_size=arena_nbytes)
    found = []
    for inputs in invocations:
        for index, array in enumerate(inputs):
            interpreter.set_input(array, index)
        interpreter.invoke()
        found.append([np.array(interpreter.get_output(index)) for index in range(_output_count(model))])
    return found


def litert_run(model: bytes, inputs: Sequence[np.ndarray], all_tensors: bool = False):
    """Outputs of LiteRT's reference kernels; with `all_tensors` instead a dict of every readable tensor by its index."""
    return litert_runs(model, [inputs], all_tensors)[0]


def litert_runs(model: bytes, invocations: Sequence[Sequence[np.ndarray]], all_tensors: bool = False) -> list:
    """As `litert_run`, for several invocations of one interpreter, which keeps its variables."""
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="needs LiteRT: pip install ai-edge-litert")
    interpreter = litert.Interpreter(
        model_content=bytes(model),
        num_threads=1,
        experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=all_tensors,
        experimental_default_delegate_latest_features=False,
    )
    for detail, array in zip(interpreter.get_input_details(), invocations[0]):
        if tuple(detail["shape"]) != array.shape:
            interpreter.resize_tensor_input(detail["index"], array.shape)
    interpreter.allocate_tensors()
    found = []
    for inputs in invocations:
        for detail, array in zip(interpreter.get_input_details(), inputs):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        if all_tensors:
            found.append(
                {
                    detail["index"]: value
                    for detail in interpreter.get_tensor_details()
                    if (value := _readable(interpreter, detail)) is not None
                }
            )
        else:
            found.append([interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()])
    return found


def _readable(interpreter, detail) -> np.ndarray | None:
    try:
        return interpreter.get_tensor(detail["index"])
    except ValueError:  # a tensor without memory: absent, folded away or a resource
        return None


def _output_count(model: bytes) -> int:
    import tflite

    return tflite.Model.GetRootAs(model).Subgraphs(0).OutputsLength()
