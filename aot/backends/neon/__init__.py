"""The `neon` back end: kernels for Cortex-A cores with Advanced SIMD, by what the core can do.

Enters: nothing. Leaves: `BACKEND`, its table of kernels, in order of preference. A kernel declines, with a sentence, on a core that lacks
its instructions; what none takes goes to the generic emitter, whose loops LLVM vectorises.
"""

from __future__ import annotations

from aot.backends.layers.endings import separate_endings
from aot.backends.neon.convolution import claim_convolution, claim_dense
from aot.backends.neon.depthwise import claim_depthwise
from aot.backends.neon.elementwise import claim_elementwise
from aot.backends.neon.floats import FLOAT_KERNELS
from aot.backends.neon.pool import claim_pool
from aot.lower.fuse import LOWER_PASSES
from aot.lower.groups import split_groups
from aot.lower.implementation import Backend, Kernel
from aot.lower.narrow import narrow_weights
from aot.lower.signed import signed_bytes

KERNELS = (
    Kernel(
        "convolution",
        claim_convolution,
        "blocks of pixels times channels, windows read where they lie",
        ("conv", "depthwise"),
    ),
    Kernel("dense", claim_dense, "blocks of rows times channels", ("dense",)),
    *FLOAT_KERNELS,
    Kernel("depthwise", claim_depthwise, "int8 depthwise convolution, eight channels at a time", ("depthwise",)),
    Kernel("pool", claim_pool, "average and maximum pools and means of int8, up to 32 channels at a time", ("reduce",)),
    Kernel("elementwise", claim_elementwise, "sums, products and tables of bytes, sixteen at a time", ("map",)),
)

BACKEND = Backend(
    "neon",
    KERNELS,
    default_cpu="cortex-a53",
    summary="our own kernels for Cortex-A with Advanced SIMD, specialised to each layer",
    passes=(
        (signed_bytes, "first: operators are still on their own, each with its type"),
        *LOWER_PASSES,
        (split_groups, "after fusion: a layer's ending goes to each of its groups"),
        (narrow_weights, "then it is known which buffers are there, and who reads them"),
        (separate_endings, "last: weights are as they stay now, and nothing more is fused behind a layer"),
    ),
)
