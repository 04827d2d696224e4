"""The layers of the sweep, as models of one operator, and CMSIS-NN's kernels called for the same layers.

Enters: a layer, a CPU, a mode. Leaves: instructions of ours, and of CMSIS-NN.
Invariant: both compute the same bytes from the same input; what is compared is checked.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt
from pathlib import Path
from typing import Literal

import numpy as np

from aot.bundle import Bundle, Entry, Port
from aot.driver import Options, compile
from aot.errors import InternalError
from aot.graph.arithmetic import convolution_scales, quantise_multipliers
from aot.graph.ir import DType
from aot.lower.tradeoff import Optimize
from aot.run import RunResult, run_bundle
from aot.target import Target, load_target
from tests.cmsis_nn_sources import CmsisNn, Unavailable, cmsis_nn, run_tool
from tests.one_operator import T, one_operator

_INPUT = {DType.INT8: (0.05, -128), DType.INT16: (0.0002, 0)}  # scale and zero point, as after a RELU
_VALUES = {DType.INT8: (-64, 40), DType.INT16: (16000, 10000)}  # mean and deviation
_SCRATCH_NBYTES = 64 * 1024


@dataclass(frozen=True)
class Layer:
    """A layer with RELU and trained-looking weights of int8. shape: of the input, (height, width, channels); dtype: of activations."""

    kind: Literal["conv", "depthwise", "dense"]
    shape: tuple[int, int, int]
    channels: int
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    dtype: DType = DType.INT8

    @property
    def name(self) -> str:
        return self._name if self.dtype is DType.INT8 else f"{self._name}, {self.dtype}"

    @property
    def _name(self) -> str:
        if self.kind == "dense":
            return f"dense {self.shape[2]} -> {self.channels}"
        height, width, depth = self.shape
        window = f"{self.kernel[0]}x{self.kernel[1]}" + (f" stride {self.stride}" if self.stride > 1 else "")
        channels = f"{depth}" if self.kind == "depthwise" else f"{depth} -> {self.channels}"
        return f"{self.kind} {window}, {channels}, {height}x{width}"

    @property
    def out_shape(self) -> tuple[int, int, int]:
        height, width, _ = self.shape
        return -(-height // self.stride), -(-width // self.stride), self.channels

    @property
    def taps(self) -> int:
        """Products of one output."""
        return prod(self.kernel) * (1 if self.kind == "depthwise" else self.shape[2])

    @property
    def macs(self) -> int:
        """As borders counted whole."""
        return prod(self.out_shape) * self.taps

    def before(self, axis: int) -> int:
        """Rows (axis 0) or columns of padding before the input, of SAME."""
        return max(0, (self.out_shape[axis] - 1) * self.stride + self.kernel[axis] - self.shape[axis]) // 2


LAYERS = (
    Layer("conv", (25, 5, 64), 64),
    Layer("conv", (24, 24, 8), 16),
    Layer("conv", (12, 12, 32), 64),
    Layer("conv", (6, 6, 128), 128),
    Layer("conv", (3, 3, 256), 256),
    Layer("conv", (32, 32, 3), 16, (3, 3)),
    Layer("conv", (32, 32, 16), 16, (3, 3)),
    Layer("conv", (16, 16, 32), 32, (3, 3)),
    Layer("conv", (8, 8, 64), 64, (3, 3)),
    Layer("conv", (49, 10, 1), 64, (10, 4), 2),
    Layer("depthwise", (48, 48, 8), 8, (3, 3)),
    Layer("depthwise", (25, 5, 64), 64, (3, 3)),
    Layer("depthwise", (48, 48, 16), 16, (3, 3), 2),
    Layer("depthwise", (6, 6, 128), 128, (3, 3)),
    Layer("depthwise", (12, 12, 32), 32, (5, 5)),
    Layer("dense", (1, 1, 640), 128),
    Layer("dense", (1, 1, 128), 128),
    Layer("conv", (12, 12, 32), 64, dtype=DType.INT16),
    Layer("conv", (16, 16, 32), 32, (3, 3), dtype=DType.INT16),
    Layer("depthwise", (25, 5, 64), 64, (3, 3), dtype=DType.INT16),
    Layer("dense", (1, 1, 640), 128, dtype=DType.INT16),
)


@dataclass(frozen=True, eq=False)
class _Data:
    """A layer's constants: weights as the operator's file has them, bias, scales of the weights, the input and the output."""

    weights: np.ndarray
    bias: np.ndarray
    scales: np.ndarray
    in_scale: float
    out_scale: float

    def multipliers(self) -> tuple[np.ndarray, np.ndarray]:
        return quantise_multipliers(convolution_scales(self.in_scale, self.scales.tolist(), self.out_scale))


def _data(layer: Layer) -> _Data:
    """Weights spread like trained ones, each channel up to 127; the output's scale so that half of it lies above zero, few at its end."""
    generator = np.random.default_rng(0)
    shape = (layer.channels, layer.taps)
    weights = np.clip(generator.standard_normal(shape) * 0.3, -1, 1)
    peak = np.abs(weights).max(axis=1, keepdims=True)
    whole = np.clip(np.round(weights / peak * 127), -127, 127).astype(np.int8)
    count = 1 if layer.kind == "dense" else layer.channels
    scales = generator.uniform(0.005, 0.01, count).astype(np.float32)
    (in_scale, in_zero), (mean, deviation) = _INPUT[layer.dtype], _VALUES[layer.dtype]
    zero = whole.astype(np.int64).sum(axis=1) * (in_zero - mean)
    bias = (zero + generator.integers(-50, 51, layer.channels) * deviation).astype(_bias_dtype(layer).np)
    if layer.kind == "depthwise":
        ordered = whole.T.reshape(1, *layer.kernel, layer.channels)
    elif layer.kind == "conv":
        ordered = whole.reshape(layer.channels, *layer.kernel, layer.shape[2])
    else:
        ordered = whole
    spread = sqrt(layer.taps) * deviation * 37 * 0.0075 * in_scale
    most = 50 if layer.dtype is DType.INT8 else 50 * 256
    return _Data(ordered, bias, scales, in_scale, float(np.float32(spread / most)))


def _bias_dtype(layer: Layer) -> DType:
    return DType.INT32 if layer.dtype is DType.INT8 else DType.INT64


def model_of(layer: Layer) -> bytes:
    """A TFLite file of the layer alone."""
    data = _data(layer)
    dense = layer.kind == "dense"
    input_shape = (1, layer.shape[2]) if dense else (1, *layer.shape)
    out_shape = (1, layer.channels) if dense else (1, *layer.out_shape)
    axis = 3 if layer.kind == "depthwise" else 0
    bias_scales, dtype = (data.scales * np.float32(data.in_scale)).tolist(), str(layer.dtype)
    inputs = [
        T(input_shape, dtype, *_INPUT[layer.dtype]),
        T(data.weights.shape, "int8", data.scales.tolist(), 0, data.weights, axis),
        T(data.bias.shape, str(_bias_dtype(layer)), bias_scales, 0, data.bias),
    ]
    settings: dict[str, object] = {"fused_activation_function": "RELU"}
    if not dense:
        settings |= {"stride_h": layer.stride, "stride_w": layer.stride, "padding": "SAME"}
        settings |= {"dilation_h_factor": 1, "dilation_w_factor": 1}
    if layer.kind == "depthwise":
        settings |= {"depth_multiplier": 1}
    operator = {"conv": "CONV_2D", "depthwise": "DEPTHWISE_CONV_2D", "dense": "FULLY_CONNECTED"}[layer.kind]
    return one_operator(operator, inputs, [T(out_shape, dtype, data.out_scale, _INPUT[layer.dtype][1])], settings)


def input_of(layer: Layer) -> np.ndarray:
    """Numbers as after a RELU, of the input's shape."""
    low, high = _INPUT[layer.dtype][1], layer.dtype.limits[1]
    values = np.clip(np.random.default_rng(1).normal(*_VALUES[layer.dtype], layer.shape), low, high).astype(layer.dtype.np)
    return values.reshape(1, -1) if layer.kind == "dense" else values[np.newaxis]


def our_instructions(layer: Layer, cpu: str, modes: Sequence[Optimize]) -> tuple[dict[str, int], np.ndarray]:
    """Instructions of bundles with the layer alone, one for each mode, and its output."""
    runs: dict[bytes, RunResult] = {}  # by object: modes often differ in nothing
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "layer.tflite")
        path.write_bytes(model_of(layer))
        for mode in modes:
            bundle = compile(path, cpu, options=Options(optimize=mode))
            if bundle.object not in runs:
                runs[bundle.object] = run_bundle(bundle, [input_of(layer)])
            found[mode] = runs[bundle.object].instructions or 0
    outputs = [result.outputs[0] for result in runs.values()]
    if any(not np.array_equal(output, outputs[0]) for output in outputs):
        raise InternalError(f"{layer.name}: modes of --optimize differ")
    return found, outputs[0]


def cmsis_nn_instructions(layer: Layer, cpu: str, expected: np.ndarray) -> int:
    """Instructions of CMSIS-NN's function for an int8 layer. Unavailable where it can't be had; InternalError if its output is another."""
    if layer.dtype is not DType.INT8:
        raise Unavailable(f"the package has no kernels for {layer.dtype}")
    target = load_target(cpu)
    result = run_bundle(_bundle(layer, target, _object(layer, cmsis_nn(target))), [input_of(layer)])
    if result.outputs[0].reshape(-1).tolist() != expected.reshape(-1).tolist():
        raise InternalError(f"{layer.name}: CMSIS-NN computes other bytes")
    return result.instructions or 0


def _bundle(layer: Layer, target: Target, data: bytes) -> Bundle:
    def port(name: str, shape: tuple[int, ...]) -> Port:
        return Port(name, name, DType.INT8, shape, None, 4)

    inputs, outputs = (port("x", input_of(layer).shape),), (port("y", layer.out_shape),)
    entry = Entry("cmsis_nn_run", inputs, outputs, _SCRATCH_NBYTES, 8, 0, 0, 0, ())
    return Bundle("cmsis_nn", "generic", target, data, (entry,), 0, 0)


def _object(layer: Layer, library: CmsisNn) -> bytes:
    """The library with a function that calls its kernel for the layer."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "call.c").write_text(_source(layer))
        include = [f"-I{path}" for path in library.include]
        command = ["arm-none-eabi-gcc", *library.flags, *include]
        run_tool(*command, "-c", str(folder / "call.c"), "-o", str(folder / "call.o"))
        run_tool(*command, "-r", "-nostdlib", str(folder / "call.o"), str(library.object), "-o", str(folder / "all.o"))
        return (folder / "all.o").read_bytes()


def _source(layer: Layer) -> str:
    """C of a function that calls CMSIS-NN."""
    data = _data(layer)
    multipliers, shifts = data.multipliers()
    height, width, depth = layer.shape
    out_height, out_width, channels = layer.out_shape
    window = f"{{{layer.stride}, {layer.stride}}}, {{{layer.before(1)}, {layer.before(0)}}}, {{1, 1}}"
    zero = _INPUT[layer.dtype][1]
    offsets, clamp = f"{-zero}, {zero}", "{-128, 127}"
    kernel_height, kernel_width = layer.kernel
    per_channel = "const cmsis_nn_per_channel_quant_params quant = {(int32_t *)multiplier, (int32_t *)shift};"
    if layer.kind == "conv":
        function, quant = "arm_convolve_wrapper_s8", per_channel
        parameters = f"const cmsis_nn_conv_params params = {{{offsets}, {window}, {clamp}}};"
        filter_dims = f"{channels}, {kernel_height}, {kernel_width}, {depth}"
    elif layer.kind == "depthwise":
        function, quant = "arm_depthwise_conv_wrapper_s8", per_channel
        parameters = f"const cmsis_nn_dw_conv_params params = {{{offsets}, 1, {window}, {clamp}}};"
        filter_dims = f"1, {kernel_height}, {kernel_width}, {channels}"
    else:
        function = "arm_fully_connected_s8"
        quant = f"const cmsis_nn_per_tensor_quant_params quant = {{{multipliers[0]}, {shifts[0]}}};"
        parameters = f"const cmsis_nn_fc_params params = {{{-zero}, 0, {zero}, {clamp}}};"
        filter_dims = f"{depth}, 1, 1, {channels}"
    return f"""
#include "arm_nnfunctions.h"
{_array("int8_t", "weights", data.weights)}
{_array("int32_t", "bias", data.bias)}
{_array("int32_t", "multiplier", multipliers)}
{_array("int32_t", "shift", shifts)}
int cmsis_nn_run(const int8_t *x, int8_t *y, void *scratch)
{{
    const cmsis_nn_context context = {{scratch, {_SCRATCH_NBYTES}}};
    {parameters}
    {quant}
    const cmsis_nn_dims in = {{1, {height}, {width}, {depth}}}, filter = {{{filter_dims}}};
    const cmsis_nn_dims bias_dims = {{1, 1, 1, {channels}}}, out = {{1, {out_height}, {out_width}, {channels}}};
    return {function}(&context, &params, &quant, &in, x, &filter, weights, &bias_dims, bias, &out, y);
}}
"""


def _array(kind: str, name: str, values: np.ndarray | Sequence[int]) -> str:
    # On the M55 CMSIS-NN reads whole vectors, also past an array's end.
    numbers = ", ".join(map(str, [*np.asarray(values).reshape(-1).tolist(), *([0] * 16)]))
    return f"static const {kind} {name}[] __attribute__((unused, aligned(4))) = {{{numbers}}};"
