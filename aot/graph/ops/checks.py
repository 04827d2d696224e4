"""What operators ask of their values' dtypes, shapes and quantisation, each a sentence when it is not so.

Enters: a site and its values. Leaves: scales, zero points, multipliers, clamps; or `site.error`.
Invariant: what these return is finite and inside the ranges that the lowering relies on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from aot.graph import arithmetic
from aot.graph.ir import DType, Quantisation, Shape, Site, Value

MAX_SHIFT = 30
"""The largest left shift of a requantisation that TFLite's int32 arithmetic can do."""


def describe(value: Value) -> str:
    """How messages name a value: its label in the model, else our name."""
    return f"'{value.title}'"


def require_counts(site: Site, inputs: Iterable[int], outputs: int = 1) -> None:
    """As many inputs (one of these counts) and outputs as the operator has."""
    allowed = tuple(inputs)
    if len(site.inputs) not in allowed:
        raise site.error(f"has {len(site.inputs)} inputs, not {' or '.join(map(str, allowed))}")
    if len(site.outputs) != outputs:
        raise site.error(f"has {len(site.outputs)} outputs, not {outputs}")


def require_dtype(site: Site, value: Value, *allowed: DType) -> None:
    if value.dtype not in allowed:
        raise site.error(f"{value.dtype} is not supported for {describe(value)}", f"supported: {', '.join(map(str, allowed))}")


def require_same_dtype(site: Site, value: Value, other: Value) -> None:
    if value.dtype is not other.dtype:
        raise site.error(f"{describe(value)} is {value.dtype} but {describe(other)} is {other.dtype}")


def require_rank(site: Site, value: Value, rank: int) -> None:
    if len(value.shape) != rank:
        raise site.error(f"{describe(value)} has {len(value.shape)} dimensions, not {rank}")


def require_elements(site: Site, *values: Value) -> None:
    """No dimension is 0."""
    for value in values:
        if 0 in value.shape:
            raise site.error(f"{describe(value)} is empty: its shape is {shape_text(value.shape)}")


COMPUTED = "this model computes it at run time"


def require_constant(site: Site, value: Value, purpose: str, hint: str = COMPUTED) -> np.ndarray:
    """The data of a value that must be known at compile time. hint: what to do where it is not."""
    if value.data is None:
        raise site.error(f"the {purpose} {describe(value)} must be constant", hint)
    return value.data


def constant_number(site: Site, value: Value, purpose: str, hint: str = COMPUTED) -> int:
    """The one integer of a constant (an axis, a count). hint: what to do where it is none."""
    data = require_constant(site, value, purpose, hint).reshape(-1)
    if data.size != 1:
        raise site.error(f"the {purpose} {describe(value)} has {data.size} elements, not 1")
    return int(data[0])


def require_axis(site: Site, value: Value, number: int) -> int:
    """A dimension of `value`, from 0; numbers below 0 count from the end."""
    rank = len(value.shape)
    if not -rank <= number < rank:
        raise site.error(f"axis {number} is outside the {rank} dimensions of {describe(value)}")
    return number % rank


def shape_text(shape: Shape) -> str:
    return "x".join(map(str, shape)) if shape else "scalar"


# Quantisation.


def quantisation(site: Site, value: Value) -> Quantisation:
    """A value's quantisation, with finite scales that are not negative and as many zero points as scales (or one)."""
    found = value.quantisation
    if found is None or not found.scales or not found.zero_points:
        raise site.error(f"{describe(value)} is {value.dtype} without a scale and zero point", "quantise the model fully")
    if not all(math.isfinite(scale) and scale >= 0 for scale in found.scales):
        raise site.error(f"{describe(value)} has a scale that is not a positive number")
    if len(found.zero_points) not in (1, len(found.scales)):
        raise site.error(f"{describe(value)} has {len(found.scales)} scales but {len(found.zero_points)} zero points")
    return found


def per_tensor(site: Site, value: Value) -> tuple[float, int]:
    """The one scale (> 0) and zero point (inside the dtype) of an activation."""
    found = quantisation(site, value)
    if found.per_axis:
        raise site.error(f"{describe(value)} has {len(found.scales)} scales; only weights may have more than one")
    if found.scale == 0:
        raise site.error(f"{describe(value)} has scale 0")
    low, high = value.dtype.limits
    if not low <= found.zero_point <= high:
        raise site.error(f"{describe(value)} has zero point {found.zero_point}, outside {value.dtype}")
    return found.scale, found.zero_point


def require_same_quantisation(site: Site, value: Value, other: Value, tolerance: float = 0.0) -> None:
    """The same zero point, and scales that differ by no more than `tolerance`."""
    scale, zero_point = per_tensor(site, value)
    other_scale, other_zero_point = per_tensor(site, other)
    if abs(scale - other_scale) > tolerance or zero_point != other_zero_point:
        raise site.error(f"{describe(value)} and {describe(other)} must have the same quantisation")


def channel_scales(site: Site, weights: Value, axis: int) -> tuple[float, ...]:
    """Scales of weights whose zero points are 0: one for all, or one for each index of `axis`.

    A channel may have scale 0 if all its weights are 0 (pruned): TFLite gives the output's zero point there.
    """
    found = quantisation(site, weights)
    channels = weights.shape[axis]
    if any(found.zero_points):
        raise site.error(f"the weights {describe(weights)} have a zero point that is not 0", "TFLite's weights are symmetric")
    if found.per_axis and (len(found.scales) != channels or _size(weights, found.axis) != channels):
        raise site.error(f"the weights {describe(weights)} have {len(found.scales)} scales for {channels} output channels")
    for channel in (channel for channel, scale in enumerate(found.scales) if scale == 0):
        if weights.data is None or not found.per_axis or np.take(weights.data, channel, axis).any():
            raise site.error(f"the weights {describe(weights)} have scale 0 for output channel {channel}")
    return found.scales


def _size(value: Value, axis: int) -> int:
    return value.shape[axis] if 0 <= axis < len(value.shape) else -1


def multipliers(site: Site, reals: Sequence[float], count: int) -> tuple[np.ndarray, np.ndarray]:
    """int32 multipliers and shifts of real rescalings, `count` of each (a single real is repeated)."""
    for real in reals:
        if not math.isfinite(real) or arithmetic.quantise_multiplier(real)[1] > MAX_SHIFT:
            raise site.error(f"its scales would multiply the accumulator by {real:.3g}, more than int32 arithmetic can")
    multiplier, shift = arithmetic.quantise_multipliers(reals)
    return np.resize(multiplier, count), np.resize(shift, count)


# Fused activations.


def require_activation(site: Site, activation: str) -> None:
    if arithmetic.float_range(activation) is None:
        raise site.error(f"the fused activation {activation} is not supported", "supported: none, relu, relu6, relu_n1_to_1")


def output_range(site: Site, activation: str, output: Value) -> tuple[int, int]:
    """Bounds of a quantised output after its fused activation."""
    require_activation(site, activation)
    scale, zero_point = per_tensor(site, output)
    found = arithmetic.quantised_range(activation, output.dtype, scale, zero_point)
    if found is None:
        raise site.error(f"the scale {scale:.3g} of {describe(output)} is too small for the fused activation {activation}")
    return found
