"""Models that keep something, run several times in a row: an oracle, `compute`, Programs before and after fusion, and compiled code.

Enters: .tflite bytes and the inputs of each run. Leaves: the outputs, or an AssertionError that says which two differ.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.driver import Options, compile_model, resolve_target
from aot.graph.interpreter import run_all
from aot.graph.ir import Graph
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_model
from aot.lower.build import build_program
from aot.lower.execute import execute_program
from aot.lower.fuse import fuse
from aot.run import run_bundle
from tests.graph.lowered import FLOAT_BOUND, Oracle, assert_near
from tests.one_operator import random_inputs
from tests.oracle import tflm_runs

Runs = Sequence[Sequence[np.ndarray]]


def random_runs(model: bytes, count: int = 3, seed: int = 0) -> list[list[np.ndarray]]:
    """Pseudo-random inputs for several runs."""
    return [random_inputs(model, seed * 100 + number) for number in range(count)]


def runs_agree(
    model: bytes, runs: Runs = (), bound: float = FLOAT_BOUND, oracle: Oracle | None = tflm_runs, cpu: str | None = None
) -> list[list[np.ndarray]]:
    """The outputs of each run; all ways of computing them agree: integers exactly, floats within `bound`.

    Without runs: three, pseudo-random. Code is compiled for this machine, or for `cpu`.
    """
    runs = runs or random_runs(model)
    graph = read_model(model, "test.tflite", OPERATORS).main
    found = computed(graph, runs)
    if oracle is not None:
        _same(found, [[b.reshape(a.shape) for a, b in zip(*pair)] for pair in zip(found, oracle(model, runs))], "oracle", bound)
    program = build_program(graph, OPERATORS)
    for name, stage in (("built", program), ("fused", fuse(program))):
        state: dict[str, np.ndarray] = {}
        results = [execute_program(stage, dict(zip(stage.inputs, inputs)), state) for inputs in runs]
        _same(found, [[result[name] for name in stage.outputs] for result in results], name, bound)
    _same(found, compiled(model, runs, cpu), "compiled", bound)
    return found


def computed(graph: Graph, runs: Runs) -> list[list[np.ndarray]]:
    """What `compute` gives in each run."""
    state: dict[str, np.ndarray] = {}
    return [[arrays[name] for name in graph.outputs] for arrays in (run_all(graph, inputs, state) for inputs in runs)]


def compiled(model: bytes, runs: Runs, cpu: str | None = None) -> list[list[np.ndarray]]:
    """What compiled code gives, one run after the other."""
    options = Options(target=cpu)
    target, backend = resolve_target(options)
    bundle = compile_model(read_model(model, "test.tflite", OPERATORS), target, backend, options, lambda stage, result: None)
    found, state = [], None
    for inputs in runs:
        result = run_bundle(bundle, inputs, state=state)
        found.append(list(result.outputs))
        state = result.state
    return found


def _same(found: list[list[np.ndarray]], expected: list[list[np.ndarray]], what: str, bound: float) -> None:
    for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        for a, b in zip(ours, theirs, strict=True):
            assert_near(a, b, f"run {number}: computed and {what}", bound)
