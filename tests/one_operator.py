"""Models of a single operator, for tests: `one_operator` for any of them, short-cuts for the common ones.

Enters: specs of tensors. Leaves: .tflite bytes. Weights are pseudo-random by `seed`; quantised ones cover their whole range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aot.graph.flatbuffer import enumerators
from tests.builder import ModelBuilder


@dataclass(frozen=True)
class T:
    """A tensor. With `data` it is a constant, else a model input or output. `scale` may be a list (per channel of `axis`)."""

    shape: Sequence[int]
    dtype: str = "int8"
    scale: float | Sequence[float] | None = None
    zero_point: int = 0
    data: np.ndarray | None = None
    axis: int = 0


def one_operator(
    op: str, inputs: Sequence[T | None], outputs: Sequence[T], options: Mapping[str, object] | None = None, **fields
) -> bytes:
    """A model of one node; a None input is an absent optional tensor (-1). `fields` go to ModelBuilder.operator."""
    m = ModelBuilder()
    reads = [-1 if spec is None else _add(m, f"in{number}", spec) for number, spec in enumerate(inputs)]
    writes = [_add(m, f"out{number}", spec) for number, spec in enumerate(outputs)]
    m.operator(op, reads, writes, options, **fields)
    return m.build([index for index, spec in zip(reads, inputs) if spec is not None and spec.data is None], writes)


def custom(code: str, inputs: Sequence[T | None], outputs: Sequence[T], options: Mapping[str, object] | None = None) -> bytes:
    """A model of one custom operator; `options` become a FlexBuffer map (None: no options at all)."""
    from flatbuffers import flexbuffers

    data = None if options is None else bytes(flexbuffers.Dumps(dict(options)))
    return one_operator("CUSTOM", inputs, outputs, custom_code=code, custom_options=data)


def conv2d(
    input_shape: Sequence[int] = (1, 6, 6, 4),
    filters: int = 8,
    kernel: Sequence[int] = (3, 3),
    *,
    stride: Sequence[int] = (1, 1),
    dilation: Sequence[int] = (1, 1),
    padding: str = "SAME",
    activation: str = "NONE",
    dtype: str = "int8",
    input_q: tuple[float, int] = (0.05, -3),
    output_q: tuple[float, int] = (0.4, 5),
    weight_scale: float | Sequence[float] | None = None,
    bias: bool = True,
    groups: int = 1,
    weights_dtype: str | None = None,
    weight_zero_point: int = 0,
    bias_dtype: str | None = None,
    seed: int = 0,
) -> bytes:
    """CONV_2D on NHWC; `weight_scale` None: a different scale for every output channel."""
    rng = np.random.default_rng(seed)
    weights = _weights(
        rng, (filters, *kernel, input_shape[3] // groups), weights_dtype or dtype, weight_scale, 0, weight_zero_point
    )
    options = {**_window(stride, padding, activation), "dilation_h_factor": dilation[0], "dilation_w_factor": dilation[1]}
    out_shape = (input_shape[0], *_spatial(input_shape, kernel, stride, dilation, padding), filters)
    return _layer("CONV_2D", dtype, input_shape, weights, out_shape, bias_dtype if bias else "", input_q, output_q, options, rng)


def depthwise(
    input_shape: Sequence[int] = (1, 6, 6, 4),
    multiplier: int = 1,
    kernel: Sequence[int] = (3, 3),
    *,
    stride: Sequence[int] = (1, 1),
    dilation: Sequence[int] = (1, 1),
    padding: str = "SAME",
    activation: str = "NONE",
    dtype: str = "int8",
    input_q: tuple[float, int] = (0.05, -3),
    output_q: tuple[float, int] = (0.15, 5),
    weight_scale: float | Sequence[float] | None = None,
    bias: bool = True,
    weights_dtype: str | None = None,
    weight_zero_point: int = 0,
    bias_dtype: str | None = None,
    seed: int = 0,
) -> bytes:
    """DEPTHWISE_CONV_2D on NHWC, weights (1, KH, KW, channels*multiplier)."""
    rng = np.random.default_rng(seed)
    channels = input_shape[3] * multiplier
    weights = _weights(rng, (1, *kernel, channels), weights_dtype or dtype, weight_scale, 3, weight_zero_point)
    options = {
        **_window(stride, padding, activation),
        "depth_multiplier": multiplier,
        "dilation_h_factor": dilation[0],
        "dilation_w_factor": dilation[1],
    }
    out_shape = (input_shape[0], *_spatial(input_shape, kernel, stride, dilation, padding), channels)
    return _layer(
        "DEPTHWISE_CONV_2D", dtype, input_shape, weights, out_shape, bias_dtype if bias else "", input_q, output_q, options, rng
    )


def fully_connected(
    input_shape: Sequence[int] = (1, 16),
    units: int = 8,
    *,
    activation: str = "NONE",
    dtype: str = "int8",
    input_q: tuple[float, int] = (0.05, -3),
    output_q: tuple[float, int] = (0.4, 5),
    weight_scale: float | Sequence[float] = 0.01,
    bias: bool = True,
    keep_num_dims: bool = False,
    weights_dtype: str | None = None,
    weight_zero_point: int = 0,
    bias_dtype: str | None = None,
    options: Mapping[str, object] | None = None,
    seed: int = 0,
) -> bytes:
    """FULLY_CONNECTED on the last dimension."""
    rng = np.random.default_rng(seed)
    weights = _weights(rng, (units, input_shape[-1]), weights_dtype or dtype, weight_scale, 0, weight_zero_point)
    rows = int(np.prod(input_shape[:-1]))
    out_shape = (*input_shape[:-1], units) if keep_num_dims else (rows, units)
    options = {"fused_activation_function": activation, "keep_num_dims": keep_num_dims, **(options or {})}
    return _layer(
        "FULLY_CONNECTED", dtype, input_shape, weights, out_shape, bias_dtype if bias else "", input_q, output_q, options, rng
    )


def pool(
    op: str = "AVERAGE_POOL_2D",
    input_shape: Sequence[int] = (1, 6, 6, 4),
    window: Sequence[int] = (2, 2),
    *,
    stride: Sequence[int] = (2, 2),
    padding: str = "VALID",
    activation: str = "NONE",
    dtype: str = "int8",
    q: tuple[float, int] = (0.05, -3),
) -> bytes:
    """AVERAGE_POOL_2D or MAX_POOL_2D on NHWC; input and output share their quantisation."""
    out_shape = (input_shape[0], *_spatial(input_shape, window, stride, (1, 1), padding), input_shape[3])
    options = {**_window(stride, padding, activation), "filter_height": window[0], "filter_width": window[1]}
    return one_operator(op, [_activation(input_shape, dtype, q)], [_activation(out_shape, dtype, q)], options)


def binary(
    op: str = "ADD",
    left_shape: Sequence[int] = (1, 4, 4, 3),
    right_shape: Sequence[int] | None = None,
    *,
    dtype: str = "int8",
    left_q: tuple[float, int] = (0.05, -3),
    right_q: tuple[float, int] = (0.07, 4),
    output_q: tuple[float, int] = (0.12, 5),
    activation: str = "NONE",
    options: Mapping[str, object] | None = None,
    out_dtype: str | None = None,
) -> bytes:
    """A binary elementwise operator with broadcasting; `options` default to the fused activation where the operator has one."""
    right_shape = left_shape if right_shape is None else right_shape
    out_shape = np.broadcast_shapes(tuple(left_shape), tuple(right_shape))
    if options is None and op in ("ADD", "SUB", "MUL", "DIV"):
        options = {"fused_activation_function": activation}
    inputs = [_activation(left_shape, dtype, left_q), _activation(right_shape, dtype, right_q)]
    return one_operator(op, inputs, [_activation(out_shape, out_dtype or dtype, output_q)], options)


def unary(
    op: str,
    shape: Sequence[int] = (1, 4, 4, 3),
    *,
    dtype: str = "int8",
    input_q: tuple[float, int] = (0.05, -3),
    output_q: tuple[float, int] = (0.05, -3),
    options: Mapping[str, object] | None = None,
    out_dtype: str | None = None,
) -> bytes:
    """A unary operator whose output has the input's shape (LOGISTIC and SOFTMAX want output_q=(1/256, -128), TANH (1/128, 0))."""
    return one_operator(op, [_activation(shape, dtype, input_q)], [_activation(shape, out_dtype or dtype, output_q)], options)


def random_inputs(model: bytes, seed: int = 0) -> list[np.ndarray]:
    """Pseudo-random inputs of a model: the full range of 8- and 16-bit integers, small other integers, standard normal floats."""
    import tflite

    names = {number: name.lower() for name, number in enumerators(tflite.TensorType).items()}
    graph, rng = tflite.Model.GetRootAs(model).Subgraphs(0), np.random.default_rng(seed)
    tensors = [graph.Tensors(graph.Inputs(position)) for position in range(graph.InputsLength())]
    return [
        _random(rng, tuple(map(int, tensor.ShapeAsNumpy())) if tensor.ShapeLength() else (), names[tensor.Type()])
        for tensor in tensors
    ]


def _random(rng: np.random.Generator, shape: tuple[int, ...], name: str) -> np.ndarray:
    dtype = np.dtype(name)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max + 1) if dtype.itemsize <= 2 else (0, 100)
    return rng.integers(low, high, shape).astype(dtype)


def _add(m: ModelBuilder, name: str, spec: T) -> int:
    return m.tensor(name, spec.shape, spec.dtype, scale=spec.scale, zero_point=spec.zero_point, axis=spec.axis, data=spec.data)


def _activation(shape: Sequence[int], dtype: str, q: tuple[float, int]) -> T:
    quantised = dtype in ("int8", "uint8", "int16")
    return T(shape, dtype, q[0] if quantised else None, 0 if dtype == "int16" else q[1])


def _weights(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    dtype: str,
    scale: float | Sequence[float] | None,
    axis: int,
    zero_point: int,
) -> T:
    if dtype == "float32":
        return T(shape, dtype, data=rng.standard_normal(shape).astype(np.float32) * 0.2)
    scale = rng.uniform(0.002, 0.02, shape[axis]).astype(np.float32) if scale is None else scale
    low, high = {"int4": (-8, 8), "uint8": (0, 256)}.get(dtype, (-127, 128))
    return T(shape, "int8" if dtype == "int16" else dtype, scale, zero_point, rng.integers(low, high, shape), axis)


def _layer(
    op, dtype: str, input_shape, weights: T, out_shape, bias_dtype: str | None, input_q, output_q, options, rng: np.random.Generator
) -> bytes:
    """A layer: input, weights, bias (integers: scale = input scale * weight scale; int64 beside int16 activations if None).

    Without bias (bias_dtype "") the third input is -1, which LiteRT doesn't take in int8 convolutions; DEPTHWISE_CONV_2D has two inputs
    then, for TFLite Micro crashes on its -1.
    """
    channels = out_shape[-1]
    bias: T | None = None
    if dtype == "float32":
        bias = T((channels,), "float32", data=rng.standard_normal(channels).astype(np.float32))
    elif bias_dtype != "":
        scales = np.asarray(weights.scale, np.float32) * np.float32(input_q[0])
        bias_dtype = bias_dtype or ("int64" if dtype == "int16" else "int32")
        bias = T((channels,), bias_dtype, scales.tolist(), 0, rng.integers(-2000, 2001, channels))
    inputs = [_activation(input_shape, dtype, input_q), weights, bias if bias_dtype != "" else None]
    if op == "DEPTHWISE_CONV_2D" and bias_dtype == "":
        inputs = inputs[:2]
    return one_operator(op, inputs, [_activation(out_shape, dtype, output_q)], options)


def _window(stride: Sequence[int], padding: str, activation: str) -> dict[str, object]:
    return {"stride_h": stride[0], "stride_w": stride[1], "padding": padding, "fused_activation_function": activation}


def _spatial(input_shape, kernel, stride, dilation, padding: str) -> tuple[int, int]:
    def out(size: int, k: int, s: int, d: int) -> int:
        return -(-size // s) if padding == "SAME" else -(-(size - (k - 1) * d) // s)

    return tuple(out(*sizes) for sizes in zip(input_shape[1:3], kernel, stride, dilation))
