"""Networks of one dimension, whose images have one row: they run by columns where that is wished for, and every byte stays."""

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
from tests.models.test_stream_input import Images
from tests.one_operator import _spatial, random_inputs
from tests.run.poisoned import run_poisoned

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")


class Lines(Images):
    """Networks of int8 layers on [1, 1, width, channels]."""

    def depthwise_line(self, x: int, taps: int, stride: int = 1) -> int:
        n, _, _, depth = self.shapes[x]
        out = self.activation((n, *_spatial(self.shapes[x], (1, taps), (stride, stride), (1, 1), "SAME"), depth))
        options = {"stride_h": stride, "stride_w": stride, "padding": "SAME", "depth_multiplier": 1}
        options |= {"dilation_h_factor": 1, "dilation_w_factor": 1}
        self.m.operator("DEPTHWISE_CONV_2D", [x, self.weights((1, 1, taps, depth)), self.bias(depth)], [out], options)
        return out

    def pool_line(self, x: int, op: str) -> int:
        n, _, w, c = self.shapes[x]
        out = self.activation((n, 1, w // 2, c), self.zero_points[x])
        options = {"stride_h": 1, "stride_w": 2, "padding": "VALID", "filter_height": 1, "filter_width": 2}
        self.m.operator(op, [x], [out], options)
        return out


def network(seed: int, width: int = 96, dense: bool = True) -> bytes:
    """Convolutions, a depthwise layer, a pool, a residual sum, then a dense layer or a mean."""
    net = Lines(seed)
    x = net.activation((1, 1, width, 6))
    y = net.conv(x, 16, (1, 5))
    y = net.pool_line(y, ("MAX_POOL_2D", "AVERAGE_POOL_2D")[seed % 2])
    y = net.conv(net.depthwise_line(y, 3 + 2 * (seed % 2)), 15 + seed % 2)
    y = net.add(y, net.conv(y, 15 + seed % 2, (1, 3)))
    y = net.conv(y, 12, (1, 3), 1 + seed % 2, padding="VALID" if seed % 3 else "SAME")
    if dense:
        return net.m.build([x], [net.dense(net.reshape(y, (1, int(np.prod(net.shapes[y])))), 4)])
    return net.m.build([x], [net.conv(y, 3, (1, net.shapes[y][2]), padding="VALID")])


def made(model: bytes, cpu: str = "cortex-m4", **wanted) -> tuple[Model, Bundle]:
    read = read_model(model, "test.tflite", OPERATORS)
    options = Options(**{"target": cpu, "io": "workspace", "optimize": "ram", **wanted})
    return read, compile_model(read, *resolve_target(options), options, lambda stage, result: None)


@pytest.mark.parametrize("seed", range(6))
def test_networks(seed: int) -> None:
    model = network(seed, dense=seed < 4)
    whole = made(model, optimize="balanced")[1]
    read, bundle = made(model, optimize="balanced", max_workspace_nbytes=whole.workspace_nbytes // 2)
    assert bundle.workspace_nbytes <= whole.workspace_nbytes // 2
    for inputs in (random_inputs(model), *extremes(model, 2)):
        expected = run_all(read.main, inputs)
        for each in (run_poisoned(bundle, inputs), run_bundle(whole, inputs).outputs):
            for name, found in zip(read.main.outputs, each, strict=True):
                np.testing.assert_array_equal(found, expected[name])


@pytest.mark.parametrize("push_rows", [1, 5, 96])
def test_pushed_columns(push_rows: int) -> None:
    """Columns are the rows of such an image."""
    model = network(1)
    read, bundle = made(model, optimize="balanced", stream_input=True, max_workspace_nbytes=1000)
    assert bundle.main.stream is not None and (bundle.main.stream.rows, bundle.main.stream.row_nbytes) == (96, 6)
    inputs = random_inputs(model)
    (found,) = run_bundle(bundle, inputs, push_rows=push_rows).outputs
    np.testing.assert_array_equal(found, run_all(read.main, inputs)[read.main.outputs[0]])
