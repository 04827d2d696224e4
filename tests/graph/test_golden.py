"""Whole real models in the interpreter against their golden outputs: integers exactly, float32 within FLOAT_BOUND."""

from __future__ import annotations

import numpy as np
import pytest

from aot.graph.interpreter import run
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_file
from tests import shared
from tests.shared import golden, model

INT8 = (*shared.INT8, "mlperf_tiny/str_ww_ref_model", "unit/aieq_test/conv_fc_mnist_srq_a8w8")
FLOAT = (
    *shared.FLOAT,
    "mlperf_tiny/model_ToyCar",
    "unit/glow/avgpool2d_valid",
    "unit/glow/mean_keep_dims",
    "unit/glow/softmax",
    "unit/litert_test/single_conv_no_bias",
)
FLOAT_BOUND = 1e-5
"""Relative to the largest output."""


@pytest.mark.parametrize("name", INT8 + FLOAT)
def test_interpreter_gives_the_golden_outputs(name):
    graph = read_file(model(name), OPERATORS).main
    with np.load(golden(name)) as archive:
        arrays = {key: archive[key] for key in archive.files}
    invocations = sum(key.startswith("in0_") for key in arrays)
    assert invocations
    for invocation in range(invocations):
        inputs = [arrays[f"in{number}_{invocation}"] for number in range(len(graph.inputs))]
        for number, found in enumerate(run(graph, inputs)):
            expected = arrays[f"out{number}_{invocation}"]
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            if found.dtype.kind != "f":
                assert (found == expected).all()
            else:
                assert np.abs(found - expected).max() <= FLOAT_BOUND * np.abs(expected).max()
