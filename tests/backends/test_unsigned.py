"""uint8 networks on emulated cores against the interpreter: no layer is left to generic code, and every byte is right."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from aot.bundle import Bundle
from aot.driver import Options, compile_model, resolve_target
from aot.graph.interpreter import run_all
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_model
from aot.run import run_bundle
from tests.graph.lowered import extremes
from tests.lower.unsigned_networks import Network, small_network
from tests.one_operator import random_inputs

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

CPUS = ("cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m55")


def check(model: bytes, cpu: str) -> Bundle:
    read = read_model(model, "test.tflite", OPERATORS)
    options = Options(target=cpu)
    if cpu == "cortex-m55" and shutil.which("qemu-system-arm") is None:
        pytest.skip("qemu-system-arm is not installed")
    bundle = compile_model(read, *resolve_target(options), options, lambda stage, result: None)
    for inputs in (random_inputs(model), *extremes(model, 2)):
        expected, result = run_all(read.main, inputs), run_bundle(bundle, inputs)
        for name, found in zip(read.main.outputs, result.outputs, strict=True):
            np.testing.assert_array_equal(found, expected[name])
    return bundle


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("seed", range(3))
def test_networks(seed: int, cpu: str) -> None:
    check(small_network(seed, beyond=1 + seed), cpu)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("activation", ["NONE", "RELU6"])
def test_all_layers_have_a_kernel(activation: str, cpu: str) -> None:
    net = Network(11, 1)
    x = net.activation((2, 9, 7, 3))
    y = net.conv(x, 8, (3, 3), 2, activation=activation)
    y = net.conv(net.depthwise(y), 13, activation=activation)
    y = net.conv(net.depthwise(y, 2), 5, (2, 3), padding="VALID")
    layers = [layer for layer in check(net.m.build([x], [y]), cpu).main.layers if layer.macs]
    assert len(layers) == (5 if cpu == "cortex-m4" else 7) and not [
        layer.kernel for layer in layers if layer.kernel.startswith("generic")
    ]
