"""Compiled code on random graphs of small operators, against the interpreter: host, and Cortex-M in Unicorn."""

from __future__ import annotations

import os

import numpy as np
import pytest

from aot.driver import Options, compile_model, resolve_target
from aot.graph.interpreter import run as interpret
from aot.graph.ir import Model
from aot.run import run_bundle
from aot.samples import random_inputs
from tests.graph.test_passes_random import Grower

SEEDS = [*range(400 if os.environ.get("AOT_SWEEP") else 25), 49, 91]


@pytest.mark.parametrize("cpu", [None, "cortex-m4", "cortex-m0plus"])
@pytest.mark.parametrize("seed", sorted(set(SEEDS)))
def test_compiled_code_is_the_interpreter(seed: int, cpu: str | None) -> None:
    """49 and 91: IT blocks with predicated loads, which Unicorn gets wrong under an access hook."""
    model = Model(f"random{seed}", (Grower(seed).grown(),))
    options = Options(target=cpu)
    bundle = compile_model(model, *resolve_target(options), options, lambda stage, result: None)
    inputs = random_inputs(bundle.main, seed)
    expected = interpret(model.main, inputs)
    for want, got in zip(expected, run_bundle(bundle, inputs).outputs, strict=True):
        if want.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
        else:
            np.testing.assert_array_equal(got, want)
