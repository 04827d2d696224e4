"""FULLY_CONNECTED in all the types of `contraction.py` and `hybrid.py`. Weights (Co, Ci); the input is rows of Ci.

Source: tflite-micro, tensorflow/lite/micro/kernels/fully_connected_common.cc and
tensorflow/lite/kernels/internal/reference/integer_ops/fully_connected.h. What TFLite Micro lacks (uint8, hybrid, int4 weights with int16,
int8 with int4 weights that have a scale for each channel): LiteRT, tflite/kernels/fully_connected.cc. LiteRT's kernels for 8 bits round
once, TFLite Micro's twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from tflite.TensorType import TensorType

from aot.graph import arithmetic
from aot.graph.expr import Affine, Load, affine, axis, fixed, integer
from aot.graph.ir import DType, Shape, Site, Value
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.ops.contraction import (
    Ending,
    Real,
    bias_element,
    bias_of,
    check_dtypes,
    is_hybrid,
    quantised,
    quantised16,
    rounded_once,
    weights_operand,
)
from aot.graph.ops.hybrid import Hybrid, Rows, hybrid
from aot.graph.primitive import Contract, Geometry, Map, identity
from aot.graph.support import litert, micro


@dataclass(frozen=True)
class FullyConnected:
    activation: str = "none"
    keep_num_dims: bool = False
    shuffled: bool = False
    """Weights in an order for one CPU (SHUFFLED4x16INT8): not supported."""
    asymmetric: bool = field(default=False, repr=False)
    """Hybrid: whether rows are quantised around a zero point."""
    int32_sums: bool = field(default=False, repr=False)
    """int16 without a bias: whether its sums are int32 (a bias says so by its type)."""


def _read(options: Any) -> FullyConnected:
    if options is None:
        return FullyConnected()
    activation = arithmetic.activation_name(options.FusedActivationFunction())
    return FullyConnected(
        activation,
        bool(options.KeepNumDims()),
        options.WeightsFormat() != 0,
        bool(options.AsymmetricQuantizeInputs()),
        options.QuantizedBiasType() == TensorType.INT32,
    )


def _attributes(site: Site) -> FullyConnected:
    assert isinstance(site.node.attributes, FullyConnected)
    return site.node.attributes


def _sizes(site: Site) -> tuple[int, int, int]:
    """Rows, input channels, output channels."""
    checks.require_counts(site, (2, 3))
    data, weights = site.input(0), site.input(1)
    checks.require_rank(site, weights, 2)
    checks.require_elements(site, data, weights)
    channels, depth = weights.shape
    if data.size % depth:
        raise site.error(f"an input of {data.size} elements does not divide into rows of the weights' {depth}")
    bias_of(site, channels)
    return data.size // depth, depth, channels


def _infer(site: Site) -> tuple[Shape, ...]:
    """(rows, Co), or with keep_num_dims the input's shape with Co at its end. Another shape of the same rows is kept."""
    rows, depth, channels = _sizes(site)
    data, given = site.input(0), site.output.shape
    if _attributes(site).keep_num_dims:
        if not data.shape or data.shape[-1] != depth:
            raise site.error(
                f"the input {checks.shape_text(data.shape)} must end with the weights' {depth} channels to keep its dimensions"
            )
        return ((*data.shape[:-1], channels),)
    if given and given[-1] == channels and prod(given) == rows * channels:
        return (given,)
    return ((rows, channels),)


def _ending(site: Site) -> Ending | Hybrid:
    a, data, weights = _attributes(site), site.input(0), site.input(1)
    if is_hybrid(site):
        return hybrid(site, a.activation, 0, a.asymmetric)
    if data.dtype is DType.FLOAT32:
        checks.require_activation(site, a.activation)
        return Real(a.activation)
    filter_scales, zero_point = _weights_quantisation(site)
    input_scale, output_scale = (checks.per_tensor(site, value)[0] for value in (data, site.output))
    scales = arithmetic.convolution_scales(input_scale, filter_scales, output_scale)
    channels = weights.shape[0]
    if data.dtype is DType.INT16:
        return quantised16(site, a.activation, np.resize(scales, channels).tolist(), 0, a.int32_sums, zero_point)
    if data.dtype is DType.UINT8 or (weights.dtype is DType.INT4 and len(scales) > 1):
        return rounded_once(site, a.activation, scales, channels, zero_point)
    return quantised(site, a.activation, scales, channels, zero_point)


def _weights_quantisation(site: Site) -> tuple[tuple[float, ...], int]:
    """Scales (one, or one for each output channel) and zero point, which TFLite Micro honours only beside a single scale."""
    weights = site.input(1)
    if checks.quantisation(site, weights).per_axis:
        return checks.channel_scales(site, weights, 0), 0
    scale, zero_point = checks.per_tensor(site, weights)
    return (scale,), zero_point


def _check(site: Site) -> None:
    if _attributes(site).shuffled:
        raise site.error("shuffled weights (SHUFFLED4x16INT8) are not supported")
    _, _, channels = _sizes(site)
    check_dtypes(site, channels)
    _ending(site)


def _compute(site: Site, data: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None) -> tuple[np.ndarray]:
    """Sums in float64, which holds every integer one exactly."""
    rows, depth, _ = _sizes(site)
    ending, left = _ending(site), data.reshape(rows, depth)
    right = weights.astype(np.float64).T - ending.weights_zero_point
    if isinstance(ending, Hybrid):
        values, scale = ending.read(left)
        out = ending.finish(values.astype(np.float64) @ right, bias, scale)
    else:
        out = ending.finish((left.astype(np.float64) - ending.input_zero_point) @ right, bias)
    return (out.reshape(_infer(site)[0]),)


@dataclass(frozen=True)
class _Loops:
    """Row axes (one for each dimension of the rows that is not 1, at least one) and depth axes, and how the buffers are indexed."""

    rows: Shape
    depth: Shape
    left: Load
    store: tuple[Affine, ...]


def _lower(site: Site, lowering: Lowering) -> None:
    """Space (N, Co), window (Ci); more row or depth axes where input or output has several dimensions of them."""
    rows, depth, channels = _sizes(site)
    ending = _ending(site)
    weights, weights_zero_point = weights_operand(site, lowering, ending.weights_zero_point)
    if isinstance(ending, Hybrid):
        data, scale = _quantised_rows(site, lowering, ending, rows, depth)
    else:
        data, scale = site.input(0), ""
    loops = _loops(site, lowering, data, rows, depth)
    space, co = (*loops.rows, channels), len(loops.rows)
    channel = axis(co)
    if isinstance(ending, Hybrid):
        bias, initial = bias_element(site, lowering, channels, channel, DType.FLOAT32), integer(0)
        result = ending.result(lowering, channel, Load(scale, (_flat(loops.rows, 0),), DType.FLOAT32), bias)
    else:
        initial = bias_element(site, lowering, channels, channel, ending.sums)
        result = ending.result(lowering, channel)
    lowering.append(
        Contract(
            site.output.name,
            space,
            loops.depth,
            loops.left,
            load(weights, (channel, _flat(loops.depth, co + 1))),
            ending.input_zero_point,
            weights_zero_point,
            initial,
            result,
            () if space == site.output.shape else (*loops.store, channel),
            Geometry("dense", (rows, 1, 1, depth), (rows, 1, 1, channels)),
            (site.node.index,),
        )
    )


def _quantised_rows(site: Site, lowering: Lowering, ending: Hybrid, rows: int, depth: int) -> tuple[Value, str]:
    """The input quantised row by row (flat, where rows cut through a dimension), and the buffer of the rows' scales."""
    data = site.input(0)
    split = _split(data.shape, rows)
    if split is not None:
        shape = data.shape
        return Rows(data, shape[:split], shape[split:], identity(len(shape))).quantise(site, lowering, ending)
    flat = _flatten(site, lowering, data)
    return Rows(flat, (rows,), (depth,), (affine({0: depth, 1: 1}),)).quantise(site, lowering, ending)


def _loops(site: Site, lowering: Lowering, data: Value, rows: int, depth: int) -> _Loops:
    """`data`: the input, or what it was quantised to; flat if rows cut through a dimension of the input."""
    out = site.output
    split = _split(data.shape, rows)
    out_rows = _long(out.shape[:-1])
    if split is not None:
        in_rows, in_depth = data.shape[:split], data.shape[split:]
        if len(_long(in_rows)) <= 1 or len(out_rows) <= 1 or _long(in_rows) == out_rows:
            axes = max(_long(in_rows), out_rows, key=len) or (1,)
            first_depth = len(axes) + 1
            index = (*_spread(in_rows, axes, 0), *_spread(in_depth, _long(in_depth) or (1,), first_depth))
            return _Loops(axes, _long(in_depth) or (1,), load(data, index), _spread(out.shape[:-1], axes, 0))
    axes = out_rows or (1,)
    flat = data if data.shape == (rows * depth,) else _flatten(site, lowering, data)
    index = affine({**{number: c * depth for number, c in _flat(axes, 0).terms}, len(axes) + 1: 1})
    return _Loops(axes, (depth,), load(flat, (index,)), _spread(out.shape[:-1], axes, 0))


def _split(shape: Shape, rows: int) -> int | None:
    """How many leading dimensions make up the rows; None if a dimension belongs to both rows and depth."""
    return next((number for number in range(len(shape), -1, -1) if prod(shape[:number]) == rows), None)


def _long(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)


def _flat(axes: Shape, first: int) -> Affine:
    """The position in row-major order of iteration axes `first`, `first` + 1, ... of these sizes."""
    return affine({first + number: prod(axes[number + 1 :]) for number in range(len(axes))})


def _spread(shape: Shape, axes: Shape, first: int) -> tuple[Affine, ...]:
    """Indices into dimensions `shape` at the position of the iteration axes: one axis each, or all axes in the only long one."""
    long = _long(shape)
    if len(long) <= 1:
        return tuple(fixed(0) if size == 1 else _flat(axes, first) for size in shape)
    number = iter(range(first, first + len(long)))
    return tuple(fixed(0) if size == 1 else axis(next(number)) for size in shape)


def _flatten(site: Site, lowering: Lowering, data: Value) -> Value:
    """A one-dimensional copy, for rows that cut through a dimension."""
    flat = lowering.temporary("rows", data.dtype, (data.size,))
    lowering.append(Map(flat, data.shape, load(data), (_flat(data.shape, 0),), (site.node.index,)))
    return Value(flat, data.dtype, (data.size,))


def dense_of(site: Site) -> tuple[Geometry, Ending | Hybrid]:
    """What a node computes, as numbers: for a back end that computes it by other means than primitives."""
    rows, depth, channels = _sizes(site)
    return Geometry("dense", (rows, 1, 1, depth), (rows, 1, 1, channels)), _ending(site)


OPERATORS = (
    Operator("FULLY_CONNECTED", "FullyConnectedOptions", _read, _infer, _check, _compute, _lower).supports(
        micro("int8, int8 x int4, int16x8, float32"),
        litert("uint8, int16 x int4, float32 x int8 (hybrid), float32 x int4 (hybrid)"),
        notes="TFLite Micro rounds int8 twice, LiteRT uint8 once, and so do we; floats as CONV_2D; shuffled weights are refused.",
    ),
)
