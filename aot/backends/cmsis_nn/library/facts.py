"""Facts of CMSIS-NN that a call depends on: how much scratch its functions use, and how they choose their paths.

Enters: sizes of a layer and the kind of core. Leaves: bytes; sentences for what some version of the library does not compute exactly.
Invariant: a number of bytes is at least what the `*_get_buffer_size` function of each release from 4.0.0 to 7.0.0 answers.
Source: CMSIS-NN, Source/ConvolutionFunctions and PoolingFunctions, *_get_buffer_size*.c (before 4.1.0 in the files of the functions).
"""

from __future__ import annotations

from typing import Literal

from aot.graph.primitive import Geometry
from aot.target import Target

Core = Literal["mve", "dsp", "plain"]
"""Which of its three implementations the library compiles to: by Arm's macros for Helium, the DSP extension, neither."""

_MOST = 65535
"""Sizes and numbers of taps that fit its uint16_t counters."""
_BLOCK = 124
"""CH_IN_BLOCK_MVE: channels that an MVE depthwise convolution takes at a time."""


def core_of(target: Target) -> Core:
    return "mve" if "mve" in target.has else "dsp" if "dsp" in target.has else "plain"


def size_refusal(geometry: Geometry) -> str:
    """Why a convolution's sizes don't fit the library's counters; empty if they do."""
    taps = geometry.kernel[0] * geometry.kernel[1] * (1 if geometry.kind == "depthwise" else geometry.input[3])
    most = max(*geometry.input, *geometry.output, *geometry.kernel, *geometry.stride, *geometry.dilation, taps)
    return f"a size of {most}: the library counts in 16 bits" if most > _MOST else ""


def convolution_scratch(geometry: Geometry, core: Core) -> int:
    """arm_convolve_wrapper_s8_get_buffer_size."""
    depth = geometry.input[3]
    if is_pointwise(geometry):
        # armclang's build for DSP cores keeps two columns of int16, other compilers' nothing
        return 4 * depth if core == "dsp" and geometry.stride == (1, 1) else 0
    taps = depth * geometry.kernel[0] * geometry.kernel[1]
    if core != "mve":
        return 4 * _up(taps, 4)
    return 4 * _up(taps, 16)


def takes_one_row_path(geometry: Geometry) -> bool:
    """Whether a release may send a convolution to arm_convolve_1_x_n_s8, which on an MVE core guesses the padding on the right (and
    before 6.0.0 got some images' ends wrong)."""
    return geometry.input[1] == geometry.kernel[0] == geometry.dilation[1] == 1


def is_pointwise(geometry: Geometry) -> bool:
    """Whether the wrapper sends a convolution to arm_convolve_1x1_s8, which takes every output to have its input pixel."""
    return geometry.kernel == geometry.dilation == (1, 1) and geometry.pad_top == geometry.pad_left == 0


def depthwise_scratch(geometry: Geometry, core: Core) -> int:
    """arm_depthwise_conv_wrapper_s8_get_buffer_size, for more than one input channel."""
    taps = geometry.kernel[0] * geometry.kernel[1]
    if geometry.multiplier != 1 or geometry.input[0] != 1 or geometry.dilation != (1, 1):
        return 0
    if core == "mve":
        return 4 * _BLOCK * taps
    if geometry.kernel == (3, 3) and geometry.pad_top <= 1 and geometry.pad_left <= 1:
        return 0
    return 2 * geometry.input[3] * taps if core == "dsp" else 0


def average_scratch(channels: int, core: Core) -> int:
    """arm_avgpool_s8_get_buffer_size: a sum for each channel."""
    return 4 * channels if core == "dsp" else 0


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
