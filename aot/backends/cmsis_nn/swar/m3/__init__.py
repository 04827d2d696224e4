"""Kernels for Cortex-M3: Armv7-M, which has MLA, SMULL and SSAT, and no DSP extension.

Enters: nothing. Leaves: `KERNELS`.
"""

from __future__ import annotations

from aot.backends.cmsis_nn.swar.m3.convolution import claim_convolution, claim_rows
from aot.backends.cmsis_nn.swar.m3.dense import claim_dense, claim_single_pixel
from aot.backends.cmsis_nn.swar.m3.depthwise import claim_depthwise, claim_single_channel
from aot.lower.implementation import Kernel

KERNELS = (
    Kernel(
        "conv of one channel",
        claim_single_channel,
        "int8 convolution of one input channel: as a depthwise one",
        ("conv", "depthwise"),
    ),
    Kernel(
        "conv, four channels a word",
        claim_single_pixel,
        "int8 convolution with the whole image as its window",
        ("conv", "depthwise"),
    ),
    Kernel(
        "conv, two pixels a word",
        claim_convolution,
        "int8 convolution of any kernel: two products a multiplication",
        ("conv", "depthwise"),
    ),
    Kernel(
        "dense, four channels a word",
        claim_dense,
        "int8 fully connected layer row by row: two products a multiplication",
        ("dense",),
    ),
    Kernel("dense, two rows a word", claim_rows, "int8 fully connected layer on any number of rows", ("dense",)),
    Kernel(
        "depthwise, Armv7-M",
        claim_depthwise,
        "int8 depthwise convolution, a row of pixels loaded once for all columns",
        ("depthwise",),
    ),
)
