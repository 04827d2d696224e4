"""The rows of the back end's table that are for float32.

Enters: nothing. Leaves: `FLOAT_KERNELS`. Invariant: every kernel here declines, with a sentence, what is not float32.
"""

from __future__ import annotations

from aot.backends.neon.float_convolution import claim_convolution, claim_dense
from aot.backends.neon.float_depthwise import claim_depthwise
from aot.backends.neon.float_map import claim_map
from aot.backends.neon.float_pool import claim_pool
from aot.backends.neon.float_reduce import claim_reduce
from aot.lower.implementation import Kernel

FLOAT_KERNELS = (
    Kernel(
        "float conv", claim_convolution, "float32 convolution of any kernel, stride, dilation and padding", ("conv", "depthwise")
    ),
    Kernel("float depthwise", claim_depthwise, "float32 depthwise convolution, four or eight channels at a time", ("depthwise",)),
    Kernel("float dense", claim_dense, "float32 fully connected layer on any number of rows", ("dense",)),
    Kernel("float pool", claim_pool, "float32 average and maximum pool, and mean over rows and columns", ("reduce",)),
    Kernel("float reduce", claim_reduce, "float32 sums, largest and smallest of elements that follow each other", ("reduce",)),
    Kernel("float map", claim_map, "float32 elementwise layers, sixteen elements at a time", ("map",)),
)
