"""Other implementations that say what a model's outputs must be: TFLite Micro, LiteRT's reference kernels, our interpreter.

Enters: a model file's bytes and inputs. Leaves: outputs. Invariant: none is imported before it is asked for, and a missing one is no error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec

import numpy as np

from aot.graph.interpreter import run as interpret
from aot.graph.ir import Graph

INTERPRETER = "aot's interpreter"
Oracle = Callable[[Sequence[np.ndarray]], list[np.ndarray]]


def best_oracle(model: bytes, graph: Graph) -> tuple[str, Oracle]:
    """The best oracle that is installed and runs this model: (its name, a function from inputs to outputs).

    A model with state goes on, from call to call, from its initial state.
    """
    for name, make in (("TFLite Micro (reference kernels)", _tflite_micro), ("LiteRT (reference kernels)", _litert)):
        oracle = make(model)
        if oracle is not None:
            return name, oracle
    state: dict[str, np.ndarray] = {}
    return INTERPRETER, lambda inputs: interpret(graph, inputs, state)


def _tflite_micro(model: bytes) -> Oracle | None:
    if find_spec("tflite_micro") is None:
        return None
    from tflite_micro import runtime

    try:
        interpreter = runtime.Interpreter.from_bytes(model, arena_size=max(1 << 20, 32 * len(model)))
    except (RuntimeError, ValueError):
        return None

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        for index, array in enumerate(inputs):
            interpreter.set_input(array, index)
        interpreter.invoke()
        return [np.array(interpreter.get_output(index)) for index in range(_count_outputs(model))]

    return run


def _litert(model: bytes) -> Oracle | None:
    if find_spec("ai_edge_litert") is None:
        return None
    from ai_edge_litert import interpreter as litert

    try:
        interpreter = litert.Interpreter(
            model_content=model,
            num_threads=1,
            experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
            experimental_default_delegate_latest_features=False,
        )
        interpreter.allocate_tensors()
    except (RuntimeError, ValueError):
        return None

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        for details, array in zip(interpreter.get_input_details(), inputs, strict=True):
            interpreter.set_tensor(details["index"], array)
        interpreter.invoke()
        return [interpreter.get_tensor(details["index"]) for details in interpreter.get_output_details()]

    return run


def _count_outputs(model: bytes) -> int:
    import tflite

    graph = tflite.Model.GetRootAsModel(model, 0).Subgraphs(0)
    return 0 if graph is None else graph.OutputsLength()
