"""Convolutions and dense layers by CMSIS-NN: arm_convolve_wrapper_s8, arm_depthwise_conv_wrapper_s8, arm_fully_connected_s8.

Enters: a site. Leaves: a `Draft`, or the sentence why the library can't take it, or would not compute TFLite Micro's bytes.
Invariant: weights lie in the library's order, made at compile time; nothing is left to be summed or packed at run time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aot.backends.cmsis_nn.library.facts import (
    convolution_scratch,
    core_of,
    depthwise_scratch,
    is_pointwise,
    size_refusal,
    takes_one_row_path,
)
from aot.backends.library.call import Argument, Constant, Data, Draft, Record, Scratch, Words, int32
from aot.backends.library.exactness import after, layer_refusal, leaves_image
from aot.graph.ir import DType, Site
from aot.graph.ops.contraction import Quantised, bias_of
from aot.graph.ops.conv import convolution_of
from aot.graph.ops.dense import dense_of
from aot.graph.primitive import Geometry
from aot.target import Target

CONVOLVE, DEPTHWISE, DENSE = "arm_convolve_wrapper_s8", "arm_depthwise_conv_wrapper_s8", "arm_fully_connected_s8"


def draft_convolution(site: Site, target: Target) -> Draft | str:
    """CONV_2D."""
    geometry, ending = convolution_of(site)
    if geometry.groups != 1:
        return f"a grouped convolution ({geometry.groups} groups), which CMSIS-NN has only since 6.0.0"
    refusal = _refusal(site, geometry, ending)
    if refusal:
        return refusal
    assert isinstance(ending, Quantised)
    return _convolution(site, target, geometry, ending)


def draft_depthwise(site: Site, target: Target) -> Draft | str:
    """DEPTHWISE_CONV_2D; that of one input channel is a convolution."""
    geometry, ending = convolution_of(site)
    refusal = _refusal(site, geometry, ending)
    if refusal:
        return refusal
    assert isinstance(ending, Quantised)
    if geometry.input[3] == 1:
        return _convolution(site, target, replace(geometry, kind="conv", multiplier=1), ending)
    if leaves_image(geometry):
        return "a window that lies outside the image: the library's code for DSP cores then writes beyond its scratch"
    numbers = (-ending.input_zero_point, ending.zero_point, geometry.multiplier)
    parameters = Words((*numbers, *_window(geometry), ending.low, ending.high))
    n, kernel, channels = geometry.input[0], geometry.kernel, geometry.output[3]
    core = core_of(target)
    lanes = 4 if core == "mve" else 1  # it loads whole vectors there, and offsets the bias pointer even if it is null
    scratch = depthwise_scratch(geometry, core)
    bias = _bias(site, channels, lanes) or (Words((0,) * _up(channels, lanes)) if lanes > 1 else None)
    arguments = (
        *(_context(scratch), parameters, _scaling(ending, lanes)),
        *(Words(geometry.input), Data(site.input(0).name), Words((1, *kernel, channels)), _weights(site, lanes)),
        *(Words((1, 1, 1, channels)), bias, Words((n, *geometry.output[1:])), Data(site.output.name)),
    )
    return _draft(site, DEPTHWISE, arguments, scratch, geometry.macs)


def draft_dense(site: Site, target: Target) -> Draft | str:
    """FULLY_CONNECTED. With a scale for each channel it is a 1x1 convolution, as arm_fully_connected_s8 knows one scale; and so it is on
    an MVE core, where that function wants sums of weights from the caller that mean something else from 5.0.0 to 6.0.0 than from 7.0.0
    on, and takes more instructions."""
    geometry, ending = dense_of(site)
    refusal = _refusal(site, geometry, ending)
    if refusal:
        return refusal
    assert isinstance(ending, Quantised)
    if core_of(target) == "mve" or len(set(zip(ending.multiplier.tolist(), ending.shift.tolist()))) > 1:
        rows = geometry.input[0]
        pixels = replace(geometry, kind="conv", input=(1, rows, 1, geometry.input[3]), output=(1, rows, 1, geometry.output[3]))
        return size_refusal(pixels) or _convolution(site, target, pixels, ending)
    (rows, _, _, depth), channels = geometry.input, geometry.output[3]
    parameters = Words((-ending.input_zero_point, 0, ending.zero_point, ending.low, ending.high))
    arguments = (
        *(_context(0), parameters, Words((int(ending.multiplier[0]), int(ending.shift[0])))),
        *(Words((rows, 1, 1, depth)), Data(site.input(0).name), Words((depth, 1, 1, channels)), _weights(site)),
        *(Words((1, 1, 1, channels)), _bias(site, channels), Words((rows, 1, 1, channels)), Data(site.output.name)),
    )
    return _draft(site, DENSE, arguments, 0, geometry.macs)


def _convolution(site: Site, target: Target, geometry: Geometry, ending: Quantised) -> Draft | str:
    core = core_of(target)
    if is_pointwise(geometry) and max(after(geometry)) > 0:
        return "a 1x1 convolution that is padded below or to the right"
    if core == "mve" and takes_one_row_path(geometry) and not is_pointwise(geometry):
        if geometry.output[1] != 1 or geometry.input[2] == 1:
            return "an image of one row that is padded above or below, or of one pixel"
        geometry = _turned(geometry)  # one column instead of one row: the same bytes, by the general path
    parameters = Words((-ending.input_zero_point, ending.zero_point, *_window(geometry), ending.low, ending.high))
    depth, channels, scratch = geometry.input[3], geometry.output[3], convolution_scratch(geometry, core)
    weights = _first_channel(site) if site.node.op == "DEPTHWISE_CONV_2D" else _weights(site)
    arguments = (
        *(_context(scratch), parameters, _scaling(ending)),
        *(Words(geometry.input), Data(site.input(0).name), Words((channels, *geometry.kernel, depth)), weights),
        *(Words((1, 1, 1, channels)), _bias(site, channels), Words(geometry.output), Data(site.output.name)),
    )
    return _draft(site, CONVOLVE, arguments, scratch, geometry.macs)


def _turned(geometry: Geometry) -> Geometry:
    """Height and width exchanged."""
    (n, h, w, c), (_, oh, ow, channels) = geometry.input, geometry.output
    pairs = {name: getattr(geometry, name)[::-1] for name in ("kernel", "stride", "dilation")}
    pads = {"pad_top": geometry.pad_left, "pad_left": geometry.pad_top}
    return replace(geometry, input=(n, w, h, c), output=(n, ow, oh, channels), **pairs, **pads)


def _refusal(site: Site, geometry: Geometry, ending: object) -> str:
    """Why no function here computes the layer to the bit; empty if one does."""
    return layer_refusal(site, geometry, ending) or size_refusal(geometry)


def _window(geometry: Geometry) -> tuple[int, ...]:
    """Stride, padding and dilation, each a cmsis_nn_tile (width before height)."""
    return (*geometry.stride[::-1], geometry.pad_left, geometry.pad_top, *geometry.dilation[::-1])


def _context(scratch_nbytes: int) -> Record:
    return Record((Scratch() if scratch_nbytes else None, scratch_nbytes))


def _scaling(ending: Quantised, lanes: int = 1) -> Record:
    """cmsis_nn_per_channel_quant_params; arrays are padded to whole vectors."""
    return Record(tuple(Words(int32(_padded(array, lanes))) for array in (ending.multiplier, ending.shift)))


def _padded(array: np.ndarray, lanes: int) -> np.ndarray:
    flat = array.reshape(-1)
    return np.append(flat, np.zeros(_up(len(flat), lanes) - len(flat), flat.dtype))


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _weights(site: Site, lanes: int = 1) -> Argument:
    """The weights as they are: the library has TFLite's order; int4 ones get a byte each. A vector may reach beyond their end."""
    weights = site.input(1)
    assert weights.data is not None
    if weights.dtype is DType.INT8 and weights.shape[-1] % lanes == 0:
        return Data(weights.name)
    return Constant("weights", np.append(weights.data.astype(np.int8).reshape(-1), np.zeros(lanes - 1, np.int8)))


def _first_channel(site: Site) -> Argument:
    """The weights of a depthwise convolution of one channel, output channels first."""
    weights = site.input(1)
    assert weights.data is not None
    return Constant("weights", np.moveaxis(weights.data, 3, 0).astype(np.int8))


def _bias(site: Site, channels: int, lanes: int = 1) -> Words | None:
    bias = bias_of(site, channels)
    return None if bias is None or bias.data is None else Words(int32(_padded(bias.data, lanes)))


def _draft(site: Site, function: str, arguments: tuple[Argument, ...], scratch_nbytes: int, macs: int) -> Draft:
    read = (site.input(0).name, *(argument.name for argument in arguments[6:7] if isinstance(argument, Data)))
    return Draft(function, arguments, read, (site.output.name,), scratch_nbytes, macs=macs)
