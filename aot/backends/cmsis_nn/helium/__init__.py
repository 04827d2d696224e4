"""Kernels for cores with Helium (integer MVE), such as Cortex-M55 and M85; the rows of the back end's table that are theirs.

Enters: nothing. Leaves: `KERNELS`. Invariant: every kernel here declines, with a sentence, on a core without Helium.
"""

from __future__ import annotations

from aot.backends.cmsis_nn.helium.convolution import claim_convolution, claim_dense
from aot.backends.cmsis_nn.helium.depthwise import claim_depthwise
from aot.backends.cmsis_nn.helium.elementwise import claim_elementwise
from aot.backends.cmsis_nn.helium.pool import claim_pool
from aot.backends.cmsis_nn.helium.rows import claim_rows
from aot.lower.implementation import Kernel

KERNELS = (
    Kernel(
        "helium conv",
        claim_convolution,
        "int8 and int16 convolution of any kernel, stride, dilation and padding",
        ("conv", "depthwise"),
    ),
    Kernel(
        "helium depthwise",
        claim_depthwise,
        "int8 and int16 depthwise convolution, sixteen channels at a time (eight of int16)",
        ("depthwise",),
    ),
    Kernel("helium dense", claim_dense, "int8 and int16 fully connected layer on any number of rows", ("dense",)),
    Kernel("helium pool", claim_pool, "int8 average and maximum pool, and mean over rows and columns", ("reduce",)),
    Kernel("helium elementwise", claim_elementwise, "int8 and int16 sums, products and tables, four elements at a time", ("map",)),
    Kernel(
        "helium rows", claim_rows, "the same of operands that lie otherwise than the results, four channels at a time", ("map",)
    ),
)
