"""One judgement for all traps: the oracle, `compute` and compiled code give the same.

Enters: .tflite bytes. Leaves: nothing, or an AssertionError that says which two differ. Emulated code runs with every buffer alone
between unmapped pages, twice, with other garbage in its workspace: an access outside its buffers fails too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.driver import Options, compile_model, resolve_target
from aot.graph.interpreter import run
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_model
from aot.run import run_bundle
from tests.graph.lowered import Oracle, assert_near, extremes
from tests.oracle import tflm_runs

HOST, DSP = (None,), (None, "cortex-m4")
"""This machine (plain loops), and beside it a core whose kernels are ordered by hand."""


def exact(
    model: bytes,
    *invocations: Sequence[np.ndarray],
    cpus: Sequence[str | None] = DSP,
    oracle: Oracle = tflm_runs,
    bound: float = 2e-6,
) -> list[str]:
    """Every invocation (default: random, smallest, largest inputs); the names of the last CPU's kernels. `bound`: of floats."""
    read = read_model(model, "trap.tflite", OPERATORS)
    invocations = invocations or extremes(model)
    expected = [run(read.main, inputs) for inputs in invocations]
    for ours, theirs in zip(expected, oracle(model, invocations), strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert_near(a, b.reshape(a.shape), f"computed and {oracle.__name__}", bound)
    kernels: list[str] = []
    for cpu in cpus:
        options = Options(target=cpu)
        bundle = compile_model(read, *resolve_target(options), options, lambda stage, result: None)
        kernels = [layer.kernel for layer in bundle.main.layers]
        for inputs, ours in zip(invocations, expected, strict=True):
            for a, b in zip(run_bundle(bundle, inputs).outputs, ours, strict=True):
                assert_near(a, b, f"compiled for {cpu or 'this machine'} and computed", bound)
    return kernels
