"""Compiled code against `compute`, on this machine, also for graphs that keep something: their variables become inputs and outputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aot.driver import Options, compile_model, resolve_target
from aot.graph.interpreter import run
from aot.graph.ir import Graph, Model
from aot.run import run_bundle
from tests.graph.lowered import assert_near


def closed(graph: Graph) -> Graph:
    """The graph as a pure function: each variable is one more input, its new content one more output."""
    values = tuple(replace(value, is_variable=False, initial=None) for value in graph.values)
    inputs = (*graph.inputs, *(variable for variable, _ in graph.updates))
    return replace(graph, values=values, inputs=inputs, outputs=(*graph.outputs, *(name for _, name in graph.updates)), updates=())


def compiled(graph: Graph, *invocations: list[np.ndarray], bound: float = 0.0) -> None:
    """The code for this machine gives what `compute` gives, one invocation after the other."""
    target, backend = resolve_target(Options())
    pure = closed(graph)
    bundle = compile_model(Model("model", (pure,)), target, backend, Options(), lambda stage, result: None)
    kept = [graph[variable].content for variable, _ in graph.updates]
    for given in invocations:
        inputs = [*given, *kept]
        expected = run(pure, inputs)
        for found, wanted in zip(run_bundle(bundle, inputs).outputs, expected, strict=True):
            assert_near(found, wanted, "compiled and computed", bound)
        kept = expected[len(graph.outputs) :]
