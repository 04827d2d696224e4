"""Random layers with the weights' whole range, compiled, against the interpreter (which other tests hold against TFLite Micro)."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest

import aot
from aot.graph.interpreter import run as interpret
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_file
from aot.run import run_bundle
from aot.samples import random_inputs
from tests import one_operator
from tests.differential.net import Fill, Net, Node, Tensor

SEEDS = range(2000 if os.environ.get("AOT_SWEEP") else 48)
CPUS = ("cortex-m4", "cortex-m4", "cortex-m4", "cortex-m33", "cortex-m7", "cortex-m3", "cortex-m0plus")


def layer(pick: random.Random) -> bytes:
    """A convolution, a depthwise convolution or a dense layer of any shape, quantisation and padding."""
    kind = pick.choice(("conv", "conv", "depthwise", "dense"))
    activation = pick.choice(("NONE", "RELU", "RELU6"))
    quantised = {
        "input_q": (0.05, pick.choice((-128, -3, 0, 1, 127, pick.randint(-128, 127)))),
        "output_q": (pick.choice((0.004, 0.05, 0.4, 3.0)), pick.choice((-128, -1, 0, 5, 127))),
        "bias": pick.random() < 0.8,
        "activation": activation,
        "seed": pick.randrange(1 << 30),
    }
    if pick.random() < 0.4:
        quantised["weight_scale"] = pick.choice((0.5, 0.02, 1e-5))
    if kind == "dense":
        depth, rows = pick.choice((pick.randint(1, 80), pick.choice((128, 256, 300, 640)))), pick.randint(1, 5)
        return one_operator.fully_connected((rows, depth), pick.randint(1, 40), **quantised)
    image = (pick.choice((1, 1, 2)), pick.randint(1, 11), pick.randint(1, 11))
    kernel = (pick.choice((1, 2, 3, 3, 5, pick.randint(1, 9))), pick.choice((1, 2, 3, 3, 5, pick.randint(1, 9))))
    stride = (pick.choice((1, 1, 2, 3)), pick.choice((1, 1, 2, 3)))
    fits = kernel[0] <= image[1] and kernel[1] <= image[2]
    padding = pick.choice(("SAME", "VALID")) if fits else "SAME"
    shared = {**quantised, "stride": stride, "padding": padding}
    if kind == "depthwise":
        return one_operator.depthwise((*image, pick.randint(1, 20)), pick.choice((1, 1, 1, 2, 3)), kernel, **shared)
    if pick.random() < 0.4:
        kernel = (1, 1)
    depth = pick.choice((1, 3, 4, 8, 16, 36, 40, 56, pick.randint(1, 70)))
    return one_operator.conv2d((*image, depth), pick.randint(1, 24), kernel, **shared)


@pytest.mark.parametrize("seed", SEEDS)
def test_compiled_layer_is_the_interpreter(seed: int, tmp_path: Path) -> None:
    pick = random.Random(seed)
    path = tmp_path / f"layer{seed}.tflite"
    path.write_bytes(layer(pick))
    graph = read_file(path, OPERATORS).main
    for cpu in (None, pick.choice(CPUS)):
        bundle = aot.compile(path, cpu)
        inputs = random_inputs(bundle.main, seed)
        for want, got in zip(interpret(graph, inputs), run_bundle(bundle, inputs).outputs, strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"{path.name} on {bundle.target.name}: {bundle.main.layers[0].kernel}")


def agrees(path: Path, cpu: str) -> None:
    """Compiled for this CPU, the model computes what the interpreter says of its first random inputs."""
    bundle = aot.compile(path, cpu)
    inputs = random_inputs(bundle.main, 1)
    for want, got in zip(interpret(read_file(path, OPERATORS).main, inputs), run_bundle(bundle, inputs).outputs, strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_clamp_from_minus_three_to_two_is_no_saturation(tmp_path: Path) -> None:
    """Its ends are one another's complements, as those of SSAT are, but no power of two."""
    path = tmp_path / "clamp.tflite"
    quantised = {"left_q": (1.0, 5), "right_q": (1.0, 0), "output_q": (1.1, -3), "activation": "RELU6"}
    path.write_bytes(one_operator.binary("ADD", (1, 64), **quantised))
    agrees(path, "cortex-m4")


def test_channels_with_one_output_beside_weights_of_minus_128(tmp_path: Path) -> None:
    """Two channels share a half, which does not hold 256 * -128 - 1: also where the second has only one output, but keeps its weights."""
    path = tmp_path / "pair.tflite"
    weights = np.array([[81, 115, -35, -128], [101, -128, -76, -128], [-48, -103, -20, 88]]).reshape(3, 1, 1, 4)
    tensors = [
        one_operator.T((1, 3, 1, 4), "int8", 0.02, -1),
        one_operator.T(weights.shape, "int8", (0.337, 0.914, 0.821), data=weights),
        one_operator.T((3,), "int32", (0.00674, 0.01828, 0.01642), data=np.array([-18974, -118397, -105390])),
    ]
    options = {"padding": "VALID", "stride_h": 1, "stride_w": 1}
    path.write_bytes(one_operator.one_operator("CONV_2D", tensors, [one_operator.T((1, 3, 1, 3), "int8", 1.0, 5)], options))
    agrees(path, "cortex-m4")


@pytest.mark.parametrize("cpu", ["cortex-m0plus", "cortex-m3", "cortex-m4"])
@pytest.mark.parametrize("shape", [(2, 1, 1), (1, 3, 1), (1, 3, 5), (2, 3, 5)])
def test_a_dense_layer_whose_rows_are_two_axes(shape: tuple[int, ...], cpu: str, tmp_path: Path) -> None:
    """What is fused behind it reads an operand by either axis, or both."""
    bias = Tensor((5,), "int32", 0.002, data=Fill(3, -900, 900))
    tensors = (
        Tensor((2, 3, 8), scale=0.05),
        Tensor((5, 8), scale=0.04, data=Fill(2, -127, 127)),
        bias,
        Tensor((2, 3, 5), scale=0.08),
    )
    nodes = (
        Node("FULLY_CONNECTED", (0, 1, 2), (3,), {"keep_num_dims": True}),
        Node("ADD", (3, 4), (5,), {"fused_activation_function": "NONE"}),
    )
    path = tmp_path / "rows.tflite"
    path.write_bytes(Net((*tensors, Tensor(shape, scale=0.07), Tensor((2, 3, 5), scale=0.09)), nodes, (0, 4), (5,)).build())
    agrees(path, cpu)
