"""Kernels for Cortex-M0, M0+ and M23: the 16-bit Thumb instructions of Armv6-M, 32-bit multiplication and no long one.

Enters: nothing. Leaves: `KERNELS`. Invariant: every kernel here declines, with a sentence, on a core it is not for.
"""

from __future__ import annotations

from aot.backends.cmsis_nn.thumb1.convolution import claim_convolution, claim_dense
from aot.backends.cmsis_nn.thumb1.depthwise import claim_depthwise
from aot.lower.implementation import Kernel

KERNELS = (
    Kernel(
        "conv, two channels a word",
        claim_convolution,
        "int8 convolution of any kernel: two products a multiplication",
        ("conv", "depthwise"),
    ),
    Kernel(
        "depthwise, two rows a word", claim_depthwise, "int8 depthwise convolution: two products a multiplication", ("depthwise",)
    ),
    Kernel("dense, two channels a word", claim_dense, "int8 fully connected layer on any number of rows", ("dense",)),
)
