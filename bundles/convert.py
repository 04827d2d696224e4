"""Trained layers -> .tflite files, in float32 or quantised to int8 after training.

Enters: layers as `training` leaves them, the model's input quantisation, samples for calibration. Leaves: the bytes of a model.
Invariant: int8 files follow TFLite's quantisation specification: weights symmetric (per output channel for convolutions, per tensor
for fully connected), activations asymmetric, int32 biases of scale input * weight, softmax of scale 1/256 and zero point -128.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bundles.training import AveragePool, Conv, Dense, Depthwise, Flatten, Layer, Relu, predict
from tests.builder import ModelBuilder

_CONV = {"padding": "SAME", "stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}
_POOL = {
    "padding": "VALID",
    "stride_w": 2,
    "stride_h": 2,
    "filter_width": 2,
    "filter_height": 2,
    "fused_activation_function": "NONE",
}


@dataclass(frozen=True)
class Scale:
    """real = scale * (q - zero_point); `scale` is a float32 number."""

    scale: float
    zero_point: int


@dataclass(frozen=True)
class _Activation:
    """A tensor that has been written: its index, its quantisation (None: float32)."""

    index: int
    shape: tuple[int, ...]
    scale: Scale | None


def calibrated(values: np.ndarray) -> Scale:
    """The int8 quantisation that covers `values` and zero."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    scale = float(np.float32((high - low) / 255))
    return Scale(scale, int(np.clip(np.rint(-128 - low / scale), -128, 127)))


def convert(
    layers: Sequence[Layer], samples: np.ndarray, names: tuple[str, str], description: str, input_scale: Scale | None, softmax: bool
) -> bytes:
    """A model with one input and one output, called `names`. int8 with `input_scale`, calibrated on `samples`; else float32."""
    writer = _Converter(layers, samples, input_scale is not None, description)
    start = writer.activation(names[0], samples.shape[1:], input_scale)
    end = writer.layers(start, "" if softmax else names[1])
    if softmax:
        end = writer.softmax(end, names[1])
    writer.builder.signature("serving_default", {names[0]: start.index}, {names[1]: end.index})
    return writer.builder.build([start.index], [end.index])


class _Converter:
    def __init__(self, layers: Sequence[Layer], samples: np.ndarray, quantised: bool, description: str) -> None:
        self.builder = ModelBuilder(description)
        self.stack = list(layers)
        self.reached = predict(layers, samples)
        self.quantised = quantised

    def activation(self, name: str, shape: Sequence[int], scale: Scale | None) -> _Activation:
        full = (1, *shape)
        if scale is None:
            return _Activation(self.builder.tensor(name, full, "float32"), full, None)
        return _Activation(self.builder.tensor(name, full, "int8", scale=scale.scale, zero_point=scale.zero_point), full, scale)

    def layers(self, now: _Activation, last_name: str) -> _Activation:
        """Write every layer, a ReLU within the layer before it; the last tensor is called `last_name`, if it is not empty."""
        for i, layer in enumerate(self.stack):
            if isinstance(layer, Relu):
                continue
            relu = i + 1 < len(self.stack) and isinstance(self.stack[i + 1], Relu)
            values = self.reached[i + relu]
            kind = type(layer).__name__.lower()
            name = last_name if last_name and i + relu + 1 == len(self.stack) else f"{kind}_{i}"
            keeps_scale = isinstance(layer, AveragePool | Flatten)
            scale = now.scale if keeps_scale else calibrated(values) if self.quantised else None
            after = self.activation(name, values.shape[1:], scale)
            self.layer(layer, now, after, "RELU" if relu else "NONE", f"{kind}_{i}")
            now = after
        return now

    def layer(self, layer: Layer, before: _Activation, after: _Activation, activation: str, name: str) -> None:
        fused = {"fused_activation_function": activation}
        match layer:
            case Conv():
                inputs = [before.index, *self.weights(layer.kernel(), layer.weights[1], before, 0, name)]
                self.builder.operator("CONV_2D", inputs, [after.index], _CONV | fused, version=3 if self.quantised else 1)
            case Depthwise():
                inputs = [before.index, *self.weights(layer.kernel(), layer.weights[1], before, 3, name)]
                options = _CONV | fused | {"depth_multiplier": 1}
                self.builder.operator("DEPTHWISE_CONV_2D", inputs, [after.index], options, version=3 if self.quantised else 1)
            case Dense():
                inputs = [before.index, *self.weights(layer.weights[0].T, layer.weights[1], before, None, name)]
                self.builder.operator("FULLY_CONNECTED", inputs, [after.index], fused, version=4 if self.quantised else 1)
            case AveragePool():
                self.builder.operator("AVERAGE_POOL_2D", [before.index], [after.index], _POOL, version=2 if self.quantised else 1)
            case Flatten():
                shape = self.builder.constant(np.array(after.shape, np.int32), name=f"{name}/shape")
                self.builder.operator("RESHAPE", [before.index, shape], [after.index], {"new_shape": after.shape})
            case _:
                raise TypeError(f"no TFLite operator for {type(layer).__name__}")

    def weights(self, kernel: np.ndarray, bias: np.ndarray, before: _Activation, axis: int | None, name: str) -> tuple[int, int]:
        """Indices of the weights and bias tensors. `axis` of the output channels: a scale for each; None: one scale."""
        if before.scale is None:
            return (
                self.builder.constant(kernel.astype(np.float32), name=f"{name}/weights"),
                self.builder.constant(bias.astype(np.float32), name=f"{name}/bias"),
            )
        others = tuple(i for i in range(kernel.ndim) if i != axis)
        largest = np.abs(kernel).max(axis=None if axis is None else others, keepdims=True)
        scale = (np.where(largest > 0, largest, 1.0) / 127).astype(np.float32)
        integers = np.clip(np.rint(kernel / scale), -127, 127).astype(np.int8)
        bias_scale = np.float32(before.scale.scale) * scale.reshape(-1)
        bias_integers = np.rint(bias / bias_scale.astype(np.float64)).astype(np.int32)
        return (
            self.builder.constant(integers, name=f"{name}/weights", scale=scale.reshape(-1).tolist(), zero_point=0, axis=axis or 0),
            self.builder.constant(bias_integers, name=f"{name}/bias", scale=bias_scale.tolist(), zero_point=0),
        )

    def softmax(self, before: _Activation, name: str) -> _Activation:
        after = self.activation(name, before.shape[1:], Scale(1 / 256, -128) if self.quantised else None)
        self.builder.operator("SOFTMAX", [before.index], [after.index], {"beta": 1.0}, version=2 if self.quantised else 1)
        return after
