"""Models of many layers for library mode.

Enters: cases. Leaves: one model whose layers stand beside each other, each with its own input and output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.builder import ModelBuilder
from tests.one_operator import _spatial

Layer = Callable[[ModelBuilder, np.random.Generator], tuple[list[int], int]]
"""Adds a layer to a model. Returns its inputs and its output."""


def side_by_side(layers: Sequence[Layer], seed: int = 0) -> bytes:
    """A model of these layers, none of which reads another's output."""
    m, rng = ModelBuilder(), np.random.default_rng(seed)
    ports = [layer(m, rng) for layer in layers]
    return m.build([number for inputs, _ in ports for number in inputs], [output for _, output in ports])


def convolution(
    shape: Sequence[int],
    channels: int,
    kernel: Sequence[int] = (1, 1),
    stride: Sequence[int] = (1, 1),
    padding: str = "SAME",
    dilation: Sequence[int] = (1, 1),
    *,
    zero_points: tuple[int, int] = (-3, 5),
    activation: str = "NONE",
    bias: bool = True,
    multiplier: int = 0,
    factor: float = 1.0,
    extreme: bool = False,
    pads: Sequence[int] = (),
    halves: bool = False,
) -> Layer:
    """CONV_2D, or with a `multiplier` DEPTHWISE_CONV_2D. factor: of the output's steps to those that fill it. extreme: all weights -127.

    pads: top, bottom, left, right, by a PAD in front (which the compiler makes the convolution's padding). halves: scales are powers of
    two, so that many sums lie in the middle between two outputs.
    """

    def add(m: ModelBuilder, rng: np.random.Generator) -> tuple[list[int], int]:
        depthwise, count = multiplier > 0, shape[3] * multiplier if multiplier else channels
        top, bottom, left, right = pads or (0, 0, 0, 0)
        padded = (shape[0], shape[1] + top + bottom, shape[2] + left + right, shape[3])
        out_shape = (shape[0], *_spatial(padded, kernel, stride, dilation, padding), count)
        w_shape = (1, *kernel, count) if depthwise else (count, *kernel, shape[3])
        taps = kernel[0] * kernel[1] * (1 if depthwise else shape[3])
        data = np.full(w_shape, -127) if extreme else rng.integers(-127, 128, w_shape)
        scales = [_power(scale, halves) for scale in rng.uniform(0.005, 0.02, count)]
        x_scale = _power(0.05, halves)
        x = m.tensor("x", shape, "int8", scale=x_scale, zero_point=zero_points[0])
        w = m.tensor("w", w_shape, "int8", scale=scales, zero_point=0, axis=3 if depthwise else 0, data=data.astype(np.int8))
        b = m.tensor(
            "b",
            (count,),
            "int32",
            scale=[x_scale * scale for scale in scales],
            zero_point=0,
            data=rng.integers(-3000, 3000, count).astype(np.int32),
        )
        scale = 0.05 * 0.0125 * 75 * 75 * np.sqrt(taps) / 50 / factor
        y = m.tensor("y", out_shape, "int8", scale=_power(scale, halves), zero_point=zero_points[1])
        options = {"stride_h": stride[0], "stride_w": stride[1], "padding": padding, "fused_activation_function": activation}
        options |= {"dilation_h_factor": dilation[0], "dilation_w_factor": dilation[1]}
        options |= {"depth_multiplier": multiplier} if depthwise else {}
        read = x
        if pads:
            read = m.tensor("padded", padded, "int8", scale=x_scale, zero_point=zero_points[0])
            amounts = np.array([[0, 0], [top, bottom], [left, right], [0, 0]], np.int32)
            m.operator("PAD", [x, m.constant(amounts)], [read], {})
        m.operator("DEPTHWISE_CONV_2D" if depthwise else "CONV_2D", [read, w, b] if bias else [read, w], [y], options)
        return [x], y

    return add


def depthwise(shape: Sequence[int], multiplier: int = 1, kernel: Sequence[int] = (3, 3), *rest, **named) -> Layer:
    return convolution(shape, 0, kernel, *rest, multiplier=multiplier, **named)


def dense(
    rows: int,
    depth: int,
    channels: int,
    *,
    zero_points: tuple[int, int] = (-3, 5),
    per_channel: bool = False,
    bias: bool = True,
    halves: bool = False,
) -> Layer:
    """FULLY_CONNECTED. halves: as for `convolution`."""

    def add(m: ModelBuilder, rng: np.random.Generator) -> tuple[list[int], int]:
        scales = [_power(scale, halves) for scale in rng.uniform(0.005, 0.02, channels if per_channel else 1)]
        x_scale = _power(0.05, halves)
        x = m.tensor("x", (rows, depth), "int8", scale=x_scale, zero_point=zero_points[0])
        w = m.tensor(
            "w",
            (channels, depth),
            "int8",
            scale=scales,
            zero_point=0,
            data=rng.integers(-127, 128, (channels, depth)).astype(np.int8),
        )
        data = rng.integers(-3000, 3000, channels).astype(np.int32)
        b = m.tensor("b", (channels,), "int32", scale=[x_scale * scale for scale in scales], zero_point=0, data=data)
        scale = _power(0.05 * 0.0125 * 110 * np.sqrt(depth), halves)
        y = m.tensor("y", (rows, channels), "int8", scale=scale, zero_point=zero_points[1])
        m.operator("FULLY_CONNECTED", [x, w, b] if bias else [x, w], [y], {"fused_activation_function": "NONE"})
        return [x], y

    return add


def pool(
    op: str, shape: Sequence[int], window: Sequence[int], stride: Sequence[int], padding: str = "SAME", activation: str = "NONE"
) -> Layer:
    """AVERAGE_POOL_2D or MAX_POOL_2D."""

    def add(m: ModelBuilder, rng: np.random.Generator) -> tuple[list[int], int]:
        out_shape = (shape[0], *_spatial(shape, window, stride, (1, 1), padding), shape[3])
        x, y = (m.tensor(name, each, "int8", scale=0.05, zero_point=-3) for name, each in (("x", shape), ("y", out_shape)))
        options = {"stride_h": stride[0], "stride_w": stride[1], "padding": padding, "fused_activation_function": activation}
        m.operator(op, [x], [y], {**options, "filter_height": window[0], "filter_width": window[1]})
        return [x], y

    return add


def binary(
    op: str,
    shape: Sequence[int],
    dtype: str = "int8",
    zero_points: Sequence[int] = (-3, 4, 5),
    scales: Sequence[float] = (0.05, 0.07, 0.1),
) -> Layer:
    """ADD or MUL."""

    def add(m: ModelBuilder, rng: np.random.Generator) -> tuple[list[int], int]:
        points = zero_points if dtype == "int8" else (0, 0, 0)
        a, b, y = (m.tensor(name, shape, dtype, scale=scale, zero_point=point) for name, scale, point in zip("aby", scales, points))
        m.operator(op, [a, b], [y], {"fused_activation_function": "NONE"})
        return [a, b], y

    return add


def softmax(shape: Sequence[int], scale: float = 0.1, dtypes: tuple[str, str] = ("int8", "int8"), beta: float = 1.0) -> Layer:
    def add(m: ModelBuilder, rng: np.random.Generator) -> tuple[list[int], int]:
        out = {"int8": (1 / 256, -128), "int16": (1 / 65536, -32768)}[dtypes[1]] if dtypes[0] == "int8" else (1 / 32768, 0)
        x = m.tensor("x", shape, dtypes[0], scale=scale, zero_point=0)
        y = m.tensor("y", shape, dtypes[1], scale=out[0], zero_point=out[1])
        m.operator("SOFTMAX", [x], [y], {"beta": beta})
        return [x], y

    return add


def _power(scale: float, wanted: bool) -> float:
    """A scale; wanted: the nearest power of two."""
    return float(2.0 ** np.round(np.log2(scale))) if wanted else float(np.float32(scale))


def random_layer(rng: np.random.Generator) -> Layer:
    """A convolution, dense layer or pool of small random sizes."""
    kind = rng.choice(["conv", "conv", "depthwise", "depthwise", "dense", "AVERAGE_POOL_2D", "MAX_POOL_2D"])
    shape = (
        1 if "POOL" in kind else int(rng.choice([1, 1, 1, 2])),
        *rng.integers(1, 9, 2).tolist(),
        int(rng.choice([*range(1, 18), 33, 64])),
    )
    kernel = tuple(rng.choice([1, 1, 2, 3, 3, 4, 5, 7], 2).tolist())
    stride, dilation = tuple(rng.integers(1, 4, 2).tolist()), tuple(rng.choice([1, 1, 1, 2], 2).tolist())
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, (1, 1) if "POOL" in kind else dilation)]
    padding = str(rng.choice(["SAME", "VALID"])) if all(span <= size for span, size in zip(spans, shape[1:3])) else "SAME"
    points = tuple(rng.choice([-128, -1, 0, 127, 5], 2).tolist())
    options = {"zero_points": points, "bias": bool(rng.integers(0, 4)), "activation": str(rng.choice(["NONE", "RELU", "RELU6"]))}
    if kind == "dense":
        rows, depth, channels = rng.integers(1, 40, 3).tolist()
        return dense(rows % 4 + 1, depth, channels, zero_points=points, per_channel=bool(rng.integers(0, 2)), bias=options["bias"])
    if "POOL" in kind:
        return pool(kind, shape, kernel, stride, padding, options["activation"])
    factor = float(rng.choice([0.1, 1.0, 3.0, 30.0]))
    if kind == "depthwise":
        return depthwise(shape, int(rng.choice([1, 1, 1, 2, 3, 4])), kernel, stride, padding, dilation, factor=factor, **options)
    return convolution(shape, int(rng.integers(1, 20)), kernel, stride, padding, dilation, factor=factor, **options)
