"""CONV_2D and DEPTHWISE_CONV_2D in all the types of `contraction.py` and `hybrid.py`. NHWC; weights OHWI and 1HWO.

Source: tflite-micro, tensorflow/lite/micro/kernels/conv_common.cc, depthwise_conv_common.cc and
tensorflow/lite/kernels/internal/reference/integer_ops/conv.h, depthwise_conv.h. What TFLite Micro lacks (uint8, hybrid, int4 weights
with int16): LiteRT, tflite/kernels/conv.cc, depthwise_conv.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from tflite.TensorType import TensorType

from aot.graph.arithmetic import activation_name
from aot.graph.expr import Affine, IndexMap, Load, affine, axis, fixed, integer
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.ops.contraction import (
    Ending,
    bias_element,
    bias_of,
    check_dtypes,
    convolution_ending,
    fill_of,
    is_hybrid,
    weights_operand,
)
from aot.graph.ops.hybrid import Hybrid, Rows, hybrid, weights_scales
from aot.graph.ops.windows import Padding, Slide, padding_name, slides
from aot.graph.primitive import Contract, Geometry, identity
from aot.graph.support import alone, litert, micro


@dataclass(frozen=True)
class Conv2D:
    """Attributes of both convolutions; pairs are (height, width)."""

    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: Padding = "same"
    activation: str = "none"
    int32_sums: bool = field(default=False, repr=False)
    """int16 without a bias: whether its sums are int32 (a bias says so by its type)."""


def _read(options: Any) -> Conv2D:
    if options is None:
        return Conv2D((0, 0))  # the schema's default, refused below
    return Conv2D(
        (options.StrideH(), options.StrideW()),
        (options.DilationHFactor(), options.DilationWFactor()),
        padding_name(options.Padding()),
        activation_name(options.FusedActivationFunction()),
    )


def _read_conv(options: Any) -> Conv2D:
    return replace(_read(options), int32_sums=options is not None and options.QuantizedBiasType() == TensorType.INT32)


@dataclass(frozen=True)
class _Layout:
    """Sizes of a convolution: output channels = groups * per_group; each group reads `depth` input channels."""

    rows: Slide
    columns: Slide
    groups: int
    depth: int
    per_group: int

    @property
    def channels(self) -> int:
        return self.groups * self.per_group

    @property
    def leaves(self) -> bool:
        return self.rows.leaves or self.columns.leaves


def _attributes(site: Site) -> Conv2D:
    assert isinstance(site.node.attributes, Conv2D)
    return site.node.attributes


def _operands(site: Site) -> tuple[Shape, Shape]:
    checks.require_counts(site, (2, 3))
    data, weights = site.input(0), site.input(1)
    for value in (data, weights):
        checks.require_rank(site, value, 4)
    checks.require_elements(site, data, weights)
    return data.shape, weights.shape


def _slides(site: Site, sizes: Shape, kernel: Shape) -> tuple[Slide, Slide]:
    a = _attributes(site)
    return slides(site, (sizes[1], sizes[2]), (kernel[1], kernel[2]), a.stride, a.dilation, a.padding)


def _conv_layout(site: Site) -> _Layout:
    data, weights = _operands(site)
    depth, channels = weights[3], weights[0]
    if data[3] % depth:
        raise site.error(f"the input has {data[3]} channels, which the weights' {depth} do not divide")
    groups = data[3] // depth
    if channels % groups:
        raise site.error(f"{channels} output channels do not divide into {groups} groups")
    bias_of(site, channels)
    return _Layout(*_slides(site, data, weights), groups, depth, channels // groups)


def _depthwise_layout(site: Site) -> _Layout:
    data, weights = _operands(site)
    if weights[0] != 1 or weights[3] % data[3]:
        raise site.error(f"weights of shape {checks.shape_text(weights)} do not fit an input of {data[3]} channels")
    bias_of(site, weights[3])
    return _Layout(*_slides(site, data, weights), data[3], 1, weights[3] // data[3])


def _out_shape(site: Site, layout: _Layout) -> tuple[Shape, ...]:
    return ((site.input(0).shape[0], layout.rows.out, layout.columns.out, layout.channels),)


def _taps(layout: _Layout) -> Iterator[tuple[int, int, tuple[slice, ...], tuple[slice, ...]]]:
    """For each kernel position: its row and column, the outputs it reaches and the inputs it reads."""
    for ky in layout.rows.taps:
        out_rows, in_rows = layout.rows.reach(ky)
        for kx in layout.columns.taps:
            out_columns, in_columns = layout.columns.reach(kx)
            yield ky, kx, (slice(None), out_rows, out_columns), (slice(None), in_rows, in_columns)


# CONV_2D


def _conv_infer(site: Site) -> tuple[Shape, ...]:
    return _out_shape(site, _conv_layout(site))


def _conv_ending(site: Site) -> Ending | Hybrid:
    """A hybrid convolution's images are quantised around a zero point if channels have different scales, or in groups."""
    a = _attributes(site)
    if not is_hybrid(site):
        return convolution_ending(site, a.activation, 0, a.int32_sums)
    return hybrid(site, a.activation, 0, _conv_layout(site).groups > 1 or len(weights_scales(site, 0)) > 1)


def _conv_check(site: Site) -> None:
    check_dtypes(site, _conv_layout(site).channels)
    _conv_ending(site)


def _conv_compute(site: Site, data: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None) -> tuple[np.ndarray]:
    return (_output(partial(_conv_sums, site, _conv_layout(site)), _conv_ending(site), data, weights, bias),)


def _conv_sums(site: Site, layout: _Layout, data: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Sums in float64, which holds every integer one exactly; one matrix product for each kernel position and group."""
    total = np.zeros(_out_shape(site, layout)[0])
    for group in range(layout.groups):
        ins = slice(group * layout.depth, (group + 1) * layout.depth)
        outs = slice(group * layout.per_group, (group + 1) * layout.per_group)
        for ky, kx, written, read in _taps(layout):
            total[(*written, outs)] += data[(*read, ins)] @ weights[outs, ky, kx].T
    return total


def _conv_lower(site: Site, lowering: Lowering) -> None:
    """Space (N, Ho, Wo, Co), or (N, Ho, Wo, G, Co/G) with groups; window (KH, KW, Ci/G)."""
    layout, ending = _conv_layout(site), _conv_ending(site)
    grouped = layout.groups > 1
    channels = (layout.groups, layout.per_group) if grouped else (layout.channels,)
    ky, kx, depth = (3 + len(channels) + number for number in range(3))
    channel = affine({3: layout.per_group, 4: 1}) if grouped else axis(3)
    in_channel = affine({3: layout.depth, depth: 1}) if grouped else axis(depth)
    window = (layout.rows.kernel, layout.columns.kernel, layout.depth)
    index = (channel, axis(ky), axis(kx), axis(depth))
    _append(site, lowering, layout, ending, _Loops(channels, window, channel, in_channel, index, _geometry(site, layout, "conv")))


# DEPTHWISE_CONV_2D


def _depthwise_infer(site: Site) -> tuple[Shape, ...]:
    return _out_shape(site, _depthwise_layout(site))


def _depthwise_ending(site: Site) -> Ending | Hybrid:
    activation = _attributes(site).activation
    return hybrid(site, activation, 3, True) if is_hybrid(site) else convolution_ending(site, activation, 3)


def _depthwise_check(site: Site) -> None:
    channels = _depthwise_layout(site).channels
    check_dtypes(site, channels)
    bias = bias_of(site, channels)
    if bias is not None and (site.input(0).dtype, bias.dtype) == (DType.INT16, DType.INT32):
        raise site.error(f"the bias {checks.describe(bias)} of int16 activations is int32", "TFLite's kernel reads an int64 one")
    _depthwise_ending(site)


def _depthwise_compute(site: Site, data: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None) -> tuple[np.ndarray]:
    return (_output(partial(_depthwise_sums, site, _depthwise_layout(site)), _depthwise_ending(site), data, weights, bias),)


def _depthwise_sums(site: Site, layout: _Layout, data: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Output channel c * multiplier + m is input channel c times its own filter."""
    spread = np.repeat(data, layout.per_group, axis=3)
    total = np.zeros(_out_shape(site, layout)[0])
    for ky, kx, written, read in _taps(layout):
        total[written] += spread[read] * weights[0, ky, kx]
    return total


def _depthwise_lower(site: Site, lowering: Lowering) -> None:
    """Space (N, Ho, Wo, C, M); window (KH, KW)."""
    layout, ending = _depthwise_layout(site), _depthwise_ending(site)
    many = layout.per_group > 1
    channel = affine({3: layout.per_group, 4: 1}) if many else axis(3)
    index = (fixed(0), axis(5), axis(6), channel)
    window, geometry = (layout.rows.kernel, layout.columns.kernel), _geometry(site, layout, "depthwise")
    _append(site, lowering, layout, ending, _Loops((layout.groups, layout.per_group), window, channel, axis(3), index, geometry))


# Both


def _output(
    sums: Callable[[np.ndarray, np.ndarray], np.ndarray],
    ending: Ending | Hybrid,
    data: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray | None,
) -> np.ndarray:
    """`sums` of inputs and weights without their zero points (float64), brought to its end."""
    right = weights.astype(np.float64) - ending.weights_zero_point
    if isinstance(ending, Hybrid):
        values, scale = ending.read(data.reshape(len(data), -1))
        return ending.finish(sums(values.reshape(data.shape).astype(np.float64), right), bias, scale)
    return ending.finish(sums(data.astype(np.float64) - ending.input_zero_point, right), bias)


@dataclass(frozen=True)
class _Loops:
    """What differs between the two: loops over channels, the window, and their index maps."""

    channels: Shape
    window: Shape
    channel: Affine
    in_channel: Affine
    weights: tuple[IndexMap, ...]
    geometry: Geometry


def _geometry(site: Site, layout: _Layout, kind: Literal["conv", "depthwise"]) -> Geometry:
    n, h, w, c = site.input(0).shape
    rows, columns = layout.rows, layout.columns
    return Geometry(
        kind,
        (n, h, w, c),
        (n, rows.out, columns.out, layout.channels),
        (rows.kernel, columns.kernel),
        (rows.stride, columns.stride),
        (rows.dilation, columns.dilation),
        rows.before,
        columns.before,
        groups=layout.groups if kind == "conv" else 1,
        multiplier=layout.per_group if kind == "depthwise" else 1,
    )


def _append(site: Site, lowering: Lowering, layout: _Layout, ending: Ending | Hybrid, loops: _Loops) -> None:
    data = site.input(0)
    weights, weights_zero_point = weights_operand(site, lowering, ending.weights_zero_point)
    space = (data.shape[0], layout.rows.out, layout.columns.out, *loops.channels)
    ky, kx = len(space), len(space) + 1
    read = (axis(0), layout.rows.index(1, ky), layout.columns.index(2, kx), loops.in_channel)
    if isinstance(ending, Hybrid):
        images = Rows(data, data.shape[:1], data.shape[1:], identity(4))
        data, scale = images.quantise(site, lowering, ending)
        bias, initial = bias_element(site, lowering, layout.channels, loops.channel, DType.FLOAT32), integer(0)
        result = ending.result(lowering, loops.channel, Load(scale, (axis(0),), DType.FLOAT32), bias)
    else:
        initial = bias_element(site, lowering, layout.channels, loops.channel, ending.sums)
        result = ending.result(lowering, loops.channel)
    lowering.append(
        Contract(
            site.output.name,
            space,
            loops.window,
            load(data, read, fill_of(data, ending.input_zero_point) if layout.leaves else None),
            load(weights, loops.weights),
            ending.input_zero_point,
            weights_zero_point,
            initial,
            result,
            () if len(loops.channels) == 1 else (axis(0), axis(1), axis(2), loops.channel),
            loops.geometry,
            (site.node.index,),
        )
    )


def convolution_of(site: Site) -> tuple[Geometry, Ending | Hybrid]:
    """What a node of either operator computes, as numbers: for a back end that computes it by other means than primitives."""
    if site.node.op == "CONV_2D":
        return _geometry(site, _conv_layout(site), "conv"), _conv_ending(site)
    return _geometry(site, _depthwise_layout(site), "depthwise"), _depthwise_ending(site)


OPERATORS = (
    Operator("CONV_2D", "Conv2DOptions", _read_conv, _conv_infer, _conv_check, _conv_compute, _conv_lower).supports(
        micro("int8, int8 x int4, int16x8, float32"),
        litert("uint8, int16 x int4, float32 x int8 (hybrid), float32 x int4 (hybrid)"),
        notes="float32 sums in any order: within 2e-6 of the output's largest magnitude; hybrid within 2 ulp of LiteRT.",
    ),
    Operator(
        "DEPTHWISE_CONV_2D",
        "DepthwiseConv2DOptions",
        _read,
        _depthwise_infer,
        _depthwise_check,
        _depthwise_compute,
        _depthwise_lower,
    ).supports(
        micro("int8, int8 x int4, int16x8, float32"),
        litert("uint8, int16 x int4, float32 x int8 (hybrid)"),
        alone("float32 x int4 (hybrid)"),
        notes="float32 sums in any order: within 2e-6 of the output's largest magnitude; hybrid within 2 ulp of LiteRT.",
    ),
)
