"""Convolutions and dense layers by Cadence's NN library, weights int8 with a scale for each channel (sym8s), activations int8 (asym8s).

Enters: a site. Leaves: `Draft`s, the second of which clamps what the first stored, or the sentence why the library can't take the layer, or
would not compute TFLite Micro's bytes.
Invariant: arguments are in the order of xa_nnlib_kernels_api.h; weights lie as TFLite has them; arrays of one number for each channel, and
weights whose channels are loaded four at a time, are padded to whole vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from aot.backends.hifi_ref.scratch import convolution_nbytes, depthwise_nbytes
from aot.backends.library import Draft
from aot.backends.library.call import Argument, Constant, Data, Scratch, Words, int32
from aot.backends.library.exactness import layer_refusal, leaves_image
from aot.graph.ir import DType, Site
from aot.graph.ops.contraction import Quantised, bias_of
from aot.graph.ops.conv import convolution_of
from aot.graph.ops.dense import dense_of
from aot.graph.primitive import Geometry
from aot.target import Target

CONVOLVE, POINTWISE = "xa_nn_conv2d_std_per_chan_sym8sxasym8s", "xa_nn_conv2d_pointwise_per_chan_sym8sxasym8s"
DEPTHWISE, DENSE = "xa_nn_conv2d_depthwise_per_chan_sym8sxasym8s", "xa_nn_fully_connected_sym8sxasym8s_asym8s"
CLAMP = "xa_nn_vec_activation_min_max_8_8"
CHANNELS_LAST = 0
"""The library's number of the layout in which channels lie next to each other."""
MOST_IMAGES = 16
"""The library's functions take one image: for more the bundle calls them one after another, each call with code of its own."""
_MOST_SHIFT = 31
_LANES = 4

Drafts = tuple[Draft, ...] | str


def is_hifi5(target: Target) -> bool:
    return "hifi5" in target.has


def draft_convolution(site: Site, target: Target) -> Drafts:
    """CONV_2D."""
    geometry, ending = convolution_of(site)
    if geometry.groups != 1:
        return f"a grouped convolution ({geometry.groups} groups): xa_nn_conv2d_std takes one"
    refusal = _refusal(site, geometry, ending)
    if refusal:
        return refusal
    assert isinstance(ending, Quantised)
    if geometry.kernel == geometry.stride == (1, 1) and geometry.input[1:3] == geometry.output[1:3]:
        return _pointwise(site, geometry, ending)
    return _convolution(site, target, geometry, ending)


def draft_depthwise(site: Site, target: Target) -> Drafts:
    """DEPTHWISE_CONV_2D."""
    geometry, ending = convolution_of(site)
    if is_hifi5(target):
        return "its scratch on a HiFi 5 wants to be aligned to 16 bytes, the workspace's is to 8"
    refusal = _refusal(site, geometry, ending)
    if refusal:
        return refusal
    assert isinstance(ending, Quantised)
    scratch, (_, height, width, channels) = depthwise_nbytes(geometry), geometry.input

    def arguments(image: int) -> tuple[Argument, ...]:
        start, end = _images(site, geometry, image)
        return (
            *(end, _padded_weights(site), start, _bias(site, geometry)),
            *(height, width, channels, *geometry.kernel, geometry.multiplier, *_steps(geometry), *geometry.output[1:3]),
            *(-ending.input_zero_point, *_scaling(ending), ending.zero_point, CHANNELS_LAST, CHANNELS_LAST, Scratch()),
        )

    return _drafts(site, DEPTHWISE, geometry, ending, arguments, scratch)


def draft_dense(site: Site, target: Target) -> Drafts:
    """FULLY_CONNECTED; several rows, or with a scale for each channel, as a 1x1 convolution of an image of one column."""
    geometry, ending = dense_of(site)
    refusal = _refusal(site, geometry, ending)
    if refusal:
        return refusal
    assert isinstance(ending, Quantised)
    rows, depth, channels = geometry.input[0], geometry.input[3], geometry.output[3]
    if rows > 1 or len(set(zip(ending.multiplier.tolist(), ending.shift.tolist()))) > 1:
        image = replace(geometry, kind="conv", input=(1, rows, 1, depth), output=(1, rows, 1, channels))
        return _pointwise(site, image, _spread(ending, channels))
    numbers = (int(ending.multiplier[0]), int(ending.shift[0]))
    arguments = (
        *(Data(site.output.name), _weights(site), Data(site.input(0).name), _bias(site, geometry), depth, channels),
        *(-ending.input_zero_point, *numbers, ending.zero_point),
    )
    return _drafts(site, DENSE, geometry, ending, lambda image: arguments, 0)


def clamped(site: Site, low: int, high: int) -> tuple[Draft, ...]:
    """The call that clamps the output where it lies; none for what an int8 clamps by itself."""
    if (low, high) == DType.INT8.limits:
        return ()
    out = Data(site.output.name)
    return (Draft(CLAMP, (out, out, low, high, site.output.size), (site.output.name,), (site.output.name,)),)


def _pointwise(site: Site, geometry: Geometry, ending: Quantised) -> Drafts:
    def arguments(image: int) -> tuple[Argument, ...]:
        start, end = _images(site, geometry, image)
        return (
            *(end, _weights(site), start, _bias(site, geometry), *geometry.input[1:], geometry.output[3]),
            *(-ending.input_zero_point, *_scaling(ending), ending.zero_point, CHANNELS_LAST),
        )

    return _drafts(site, POINTWISE, geometry, ending, arguments, 0)


def _convolution(site: Site, target: Target, geometry: Geometry, ending: Quantised) -> Drafts:
    def arguments(image: int) -> tuple[Argument, ...]:
        start, end = _images(site, geometry, image)
        return (
            *(end, start, _weights(site), _bias(site, geometry), *geometry.input[1:], *geometry.kernel, geometry.output[3]),
            *(*_steps(geometry), *geometry.output[1:3]),
            *(-ending.input_zero_point, *_scaling(ending), ending.zero_point, CHANNELS_LAST, Scratch()),
        )

    return _drafts(site, CONVOLVE, geometry, ending, arguments, convolution_nbytes(geometry, is_hifi5(target)))


def _refusal(site: Site, geometry: Geometry, ending: object) -> str:
    """Why no function here computes the layer to the bit; empty if one does."""
    if refusal := layer_refusal(site, geometry, ending):
        return refusal
    assert isinstance(ending, Quantised)
    if np.abs(ending.shift).max() > _MOST_SHIFT:
        return f"a rescaling by more than 2^{_MOST_SHIFT}"
    if geometry.dilation != (1, 1):
        return "a dilated kernel, for which other functions are"
    if geometry.kind != "dense" and geometry.input[0] > MOST_IMAGES:
        return f"{geometry.input[0]} images: each would be a call, more than {MOST_IMAGES}"
    if leaves_image(geometry) or min(geometry.pad_top, geometry.pad_left) < 0:
        return "a window that lies outside the image"
    return ""


def _drafts(
    site: Site,
    function: str,
    geometry: Geometry,
    ending: Quantised,
    arguments: Callable[[int], tuple[Argument, ...]],
    scratch_nbytes: int,
) -> Drafts:
    """The calls of a layer. arguments(image): those of one image."""
    images = 1 if geometry.kind == "dense" else geometry.input[0]
    first, *others = (arguments(image) for image in range(images))
    data = tuple(dict.fromkeys(argument.name for argument in first if isinstance(argument, Data)))
    read = tuple(name for name in data if name != site.output.name)
    draft = Draft(
        function,
        first,
        read,
        (site.output.name,),
        scratch_nbytes,
        macs=geometry.macs,
        repeats=tuple(others),
        scratch_align=8,
    )
    return (draft, *clamped(site, ending.low, ending.high))


def _images(site: Site, geometry: Geometry, image: int) -> tuple[Data, Data]:
    """The input and the output of one image."""
    sizes = prod(geometry.input[1:]), prod(geometry.output[1:])
    return Data(site.input(0).name, image * sizes[0]), Data(site.output.name, image * sizes[1])


def _steps(geometry: Geometry) -> tuple[int, ...]:
    """x_stride, y_stride, x_padding, y_padding."""
    return (*geometry.stride[::-1], geometry.pad_left, geometry.pad_top)


def _scaling(ending: Quantised) -> tuple[Words, Words]:
    return Words(int32(_padded(ending.multiplier))), Words(int32(_padded(ending.shift)))


def _spread(ending: Quantised, channels: int) -> Quantised:
    """One scale, for each channel."""
    spread = (np.broadcast_to(array.reshape(-1), (channels,)).copy() for array in (ending.multiplier, ending.shift))
    multiplier, shift = spread
    return replace(ending, multiplier=multiplier, shift=shift)


def _weights(site: Site) -> Argument:
    """The weights as they are; int4 ones get a byte each."""
    weights = site.input(1)
    assert weights.data is not None
    return Data(weights.name) if weights.dtype is DType.INT8 else Constant("weights", weights.data.astype(np.int8))


def _padded_weights(site: Site) -> Argument:
    """Those of a depthwise convolution: the library loads four channels, also where fewer are left of the last pixel."""
    weights = site.input(1)
    assert weights.data is not None
    if weights.shape[-1] % _LANES == 0:
        return _weights(site)
    return Constant("weights", np.append(weights.data.astype(np.int8).reshape(-1), np.zeros(_LANES - 1, np.int8)))


def _bias(site: Site, geometry: Geometry) -> Words:
    """The bias; zeros where there is none, as some functions want one."""
    channels = geometry.output[3]
    bias = bias_of(site, channels)
    return Words(int32(_padded(np.zeros(channels, np.int64) if bias is None or bias.data is None else bias.data)))


def _padded(array: np.ndarray) -> np.ndarray:
    flat = array.reshape(-1)
    return np.append(flat, np.zeros(-len(flat) % _LANES, flat.dtype))
