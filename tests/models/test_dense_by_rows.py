"""Networks that end in a fully connected layer on an image: it takes the image's rows as they come, and every byte stays."""

from __future__ import annotations

import numpy as np
import pytest

from aot.bundle import Bundle
from aot.driver import Options, compile_model, resolve_target
from aot.graph.interpreter import run_all
from aot.graph.ops import OPERATORS
from aot.graph.tflite import Model, read_model
from aot.run import run_bundle
from tests.graph.lowered import extremes
from tests.lower.unsigned_networks import Network
from tests.one_operator import random_inputs
from tests.run.poisoned import run_poisoned

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")


def network(seed: int, units: int = 5, flat: bool = True, beyond: int = 1) -> bytes:
    """Two convolutions, then a dense layer: behind a reshape, or as a convolution whose window is the image."""
    net = Network(seed, beyond)
    x = net.activation((1, 17, 13, 3))
    y = net.conv(net.conv(x, 8, (3, 3)), 7 + seed % 2, (3, 3))
    if not flat:
        return net.m.build([x], [net.conv(y, units, (17, 13), padding="VALID")])
    return net.m.build([x], [net.dense(net.reshape(y, (1, 17 * 13 * (7 + seed % 2))), units)])


def made(model: bytes, cpu: str | None = "cortex-m4", **wanted) -> tuple[Model, Bundle]:
    read = read_model(model, "test.tflite", OPERATORS)
    options = Options(**{"target": cpu, "io": "workspace", "optimize": "ram", **wanted})
    return read, compile_model(read, *resolve_target(options), options, lambda stage, result: None)


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_networks(seed: int, flat: bool) -> None:
    model = network(seed, flat=flat)
    read, bundle = made(model)
    whole = made(model, optimize="balanced")[1]
    assert "dense rows" in [layer.kernel for layer in bundle.main.layers]
    assert bundle.workspace_nbytes <= 0.7 * whole.workspace_nbytes
    for inputs in (random_inputs(model), *extremes(model, 2)):
        expected = run_all(read.main, inputs)
        for name, found in zip(read.main.outputs, run_poisoned(bundle, inputs), strict=True):
            np.testing.assert_array_equal(found, expected[name])


@pytest.mark.parametrize("push_rows", [1, 3, 17])
def test_pushed_rows(push_rows: int) -> None:
    model = network(1)
    read, bundle = made(model, stream_input=True)
    assert bundle.workspace_nbytes <= 1000
    inputs = random_inputs(model)
    expected = run_all(read.main, inputs)
    (found,) = run_bundle(bundle, inputs, push_rows=push_rows).outputs
    np.testing.assert_array_equal(found, expected[read.main.outputs[0]])


def test_generic_code() -> None:
    """On this machine, whose back end has plain loops."""
    model = network(2)
    read, bundle = made(model, None)
    inputs = random_inputs(model)
    (found,) = run_bundle(bundle, inputs).outputs
    np.testing.assert_array_equal(found, run_all(read.main, inputs)[read.main.outputs[0]])
    assert bundle.workspace_nbytes < made(model, None, optimize="balanced")[1].workspace_nbytes


@pytest.mark.parametrize("cpu", ["cortex-m0plus", "cortex-m3"])
def test_cores_whose_kernels_need_the_image(cpu: str) -> None:
    """The layer stays as it is."""
    model = network(3)
    read, bundle = made(model, cpu)
    inputs = random_inputs(model)
    (found,) = run_bundle(bundle, inputs).outputs
    np.testing.assert_array_equal(found, run_all(read.main, inputs)[read.main.outputs[0]])
    assert len(bundle.main.layers) == len(made(model, cpu, optimize="balanced")[1].main.layers)


def test_sums_that_take_more_than_the_image() -> None:
    """The layer stays as it is."""
    net = Network(7, 0)
    x = net.activation((1, 6, 6, 4))
    model = net.m.build([x], [net.dense(net.reshape(net.conv(x, 8), (1, 288)), 600)])
    read, bundle = made(model)
    inputs = random_inputs(model)
    (found,) = run_bundle(bundle, inputs).outputs
    np.testing.assert_array_equal(found, run_all(read.main, inputs)[read.main.outputs[0]])
    assert "dense rows" not in [layer.kernel for layer in bundle.main.layers]
