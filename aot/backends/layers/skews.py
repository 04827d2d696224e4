"""Skews: how far below its input the output of a layer must start, if each byte is to be written after its last reading.

Enters: a layer, and the order in which a kernel takes its input and stores its output. Leaves: a `Skew`.
Invariant: an address inequality: wherever an output is stored, what is read later lies above it. Geometry alone decides, no plan.

The kernels' orders: pixel by pixel (a window is gathered, then multiplied with all channels); row by row (the rows that an output row needs
are copied away before it is stored); channel by channel, in strips of rows (an output byte lies on one of its own channel's, so the
distance must be a number of rows).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from aot.backends.layers.operands import Layer
from aot.lower.implementation import Skew


def pixel_by_pixel(layer: Layer, rereads: bool = False) -> Skew:
    """For kernels that read all of an output pixel's window before they store it, in the order of the pixels. (Those that read a block of
    windows first need no more.) rereads: they read it again for other channels, while some are stored."""
    g, nbytes = layer.geometry, layer.dtype.nbytes
    images, rows, columns = np.ogrid[: g.output[0], : g.output[1], : g.output[2]]
    reads = images * (prod(g.input[1:]) * nbytes) + _row_starts(layer, rows * g.stride[0] - g.pad_top)
    reads = (reads + np.clip(columns * g.stride[1] - g.pad_left, 0, g.input[2]) * (g.input[3] * nbytes)).reshape(-1)
    stores = (images * layer.out.image + rows * layer.out.row + columns * layer.out.pixel + g.output[3]).reshape(-1) * nbytes
    later = np.minimum.accumulate(reads[::-1])[::-1]
    apart = stores - later if rereads else stores[:-1] - later[1:]
    return Skew(int(max(apart, default=-prod(g.input) * nbytes)))


def row_by_row(layer: Layer, first: Callable[[np.ndarray], np.ndarray]) -> Skew | None:
    """For kernels that make one output row after the other. first(y): the first input row that is read for the rows from y on, y > 0."""
    if layer.geometry.input[0] != 1:
        return None
    ends = np.arange(1, layer.geometry.output[1])
    apart = ends * layer.out.row * layer.dtype.nbytes - _row_starts(layer, first(ends))
    return Skew(int(max(apart, default=-prod(layer.geometry.input) * layer.dtype.nbytes)))


def channel_by_channel(layer: Layer, rows_per_step: int, rereads: bool = False) -> Skew | None:
    """For depthwise kernels that read what `rows_per_step` output rows of a channel need before they store them, from above. rereads: they
    read the same rows for some columns after they have stored others."""
    g, nbytes = layer.geometry, layer.dtype.nbytes
    if g.multiplier != 1 or layer.out.pixel != g.input[3] or g.input[0] != 1:
        return None
    ends = np.arange(rows_per_step, g.output[1] + rereads, rows_per_step)
    first = (ends - rows_per_step if rereads else ends) * g.stride[0] - g.pad_top
    apart = ((ends - 1) * layer.out.row + g.output[2] * layer.out.pixel) * nbytes - _row_starts(layer, first)
    unit = g.input[2] * g.input[3] * nbytes
    return Skew(int(max(apart, default=-prod(g.input) * nbytes)), unit)


def _row_starts(layer: Layer, rows: np.ndarray) -> np.ndarray:
    """Bytes from the input's start to each of these rows; rows outside the image are as its border."""
    g = layer.geometry
    return np.clip(rows, 0, g.input[1]) * g.input[2] * g.input[3] * layer.dtype.nbytes
