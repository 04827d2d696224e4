"""What a layer must be for a library's 32-bit sums and double rounding to give TFLite Micro's bytes.

Enters: a site, its geometry and its ending. Leaves: the sentence why not; facts of where windows lie.
Invariant: a layer without a sentence has int8 inputs, constant symmetric weights, and no sum that leaves int32 when it is rescaled.
"""

from __future__ import annotations

from math import prod

import numpy as np

from aot.graph.ir import DType, Site
from aot.graph.ops.contraction import Quantised, bias_of
from aot.graph.primitive import Geometry


def layer_refusal(site: Site, geometry: Geometry, ending: object) -> str:
    """Why no function of a library computes a convolution or dense layer to the bit; empty if one may."""
    data, weights = site.input(0), site.input(1)
    if data.dtype is not DType.INT8:
        return f"{data.dtype} activations: the calls are for int8"
    if not isinstance(ending, Quantised):
        return "its results are rounded once, the library's twice"
    bias = bias_of(site, geometry.output[3])
    if weights.data is None or (bias is not None and bias.data is None):
        return "its weights or bias are computed at run time"
    if ending.weights_zero_point:
        return f"weights with a zero point ({ending.weights_zero_point})"
    if prod(geometry.input) * prod(geometry.output) == 0:
        return "it has no elements"
    axis = 3 if site.node.op == "DEPTHWISE_CONV_2D" else 0
    rows = np.moveaxis(weights.data, axis, 0).reshape(weights.shape[axis], -1).astype(np.int64)
    ends = np.stack([rows * (bound - ending.input_zero_point) for bound in DType.INT8.limits])
    start = 0 if bias is None or bias.data is None else bias.data.reshape(-1).astype(np.int64)
    most = np.maximum(np.abs(start + ends.min(0).sum(1)), np.abs(start + ends.max(0).sum(1)))
    if (most << np.maximum(ending.shift, 0)).max() > DType.INT32.limits[1]:
        return "a sum of it could leave int32 when it is rescaled"
    return ""


def after(geometry: Geometry) -> tuple[int, int]:
    """Rows and columns of padding below and to the right that the last window reaches into; negative where it ends before the edge."""
    found: list[int] = []
    for number, before in enumerate((geometry.pad_top, geometry.pad_left)):
        span = (geometry.kernel[number] - 1) * geometry.dilation[number] + 1
        last = (geometry.output[1 + number] - 1) * geometry.stride[number] + span
        found.append(last - before - geometry.input[1 + number])
    return found[0], found[1]


def leaves_image(geometry: Geometry) -> bool:
    """Whether a window has no pixel of the image, in its rows or its columns."""
    for number, before in enumerate((geometry.pad_top, geometry.pad_left)):
        last = (geometry.output[1 + number] - 1) * geometry.stride[number] - before
        if before > (geometry.kernel[number] - 1) * geometry.dilation[number] or last >= geometry.input[1 + number]:
            return True
    return False
