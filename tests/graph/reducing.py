"""Models of reductions, and compiled code against `compute` on this machine, for the tests of several families."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.driver import Options, compile_model, resolve_target
from aot.graph.interpreter import run, run_all
from aot.graph.ir import Model
from aot.run import run_bundle
from tests.graph.lowered import Oracle, assert_near, read, run_lowered
from tests.one_operator import T, one_operator, random_inputs
from tests.oracle import tflm_runs

QUANTISED = ("int8", "uint8", "int16")


def reducer(op: str, shape, axes, keep_dims=False, dtype="int8", input_q=(0.05, 0), output_q=(0.05, 0)) -> bytes:
    """MEAN, SUM, REDUCE_MAX ... over constant axes."""
    reduced = {axis % len(shape) for axis in axes}
    kept = [1 if number in reduced else size for number, size in enumerate(shape) if keep_dims or number not in reduced]
    specs = [T(out, dtype, *(q if dtype in QUANTISED else (None, 0))) for out, q in ((shape, input_q), (kept, output_q))]
    axis_spec = T((len(axes),), "int32", data=np.array(axes, np.int32))
    return one_operator(op, [specs[0], axis_spec], [specs[1]], {"keep_dims": keep_dims})


def fits(case: dict) -> bool:
    """Whether the axes are dimensions of the shape."""
    rank = len(case["shape"])
    return all(-rank <= axis < rank for axis in case["axes"])


def compiled(model: bytes, *invocations: Sequence[np.ndarray], bound: float = 0.0) -> None:
    """The code for this machine, with all passes, gives what `compute` gives; with bound 0 to the bit (any NaN is a NaN)."""
    graph = read(model)
    target, backend = resolve_target(Options())
    bundle = compile_model(Model("model", (graph,)), target, backend, Options(), lambda stage, result: None)
    for inputs in invocations or (random_inputs(model),):
        for found, expected in zip(run_bundle(bundle, inputs).outputs, run(graph, inputs), strict=True):
            if bound:
                assert_near(found, expected, "compiled and computed", bound)
            else:
                assert bits(found) == bits(expected), f"{found} is not {expected}"


def identical(model: bytes, *invocations: Sequence[np.ndarray], oracle: Oracle = tflm_runs) -> list[np.ndarray]:
    """The first invocation's outputs, after compute, lowering and the oracle agreed to the bit on every one (any NaN is a NaN)."""
    graph, found = read(model), []
    for inputs, expected in zip(invocations, oracle(model, invocations), strict=True):
        arrays = run_all(graph, inputs)
        lowered = run_lowered(graph, arrays)
        found.append([arrays[name] for name in graph.outputs])
        for name, theirs in zip(graph.outputs, expected, strict=True):
            assert bits(lowered[name]) == bits(arrays[name]), f"lowered {lowered[name]} is not {arrays[name]}"
            assert bits(arrays[name]) == bits(theirs), f"{arrays[name]} is not {theirs}"
    return found[0]


def bits(array: np.ndarray) -> bytes:
    return (np.where(np.isnan(array), np.float32("nan"), array) if array.dtype.kind == "f" else array).tobytes()
