"""The `cmsis-nn` back end: our own int8 kernels for Cortex-M cores, by what the core can do.

Enters: nothing. Leaves: `BACKEND`, its table of kernels: a package of kernels for each kind of core, in order of preference. A kernel
declines, with a sentence, on a core that lacks its instructions; what none takes goes to the generic emitter.
"""

from __future__ import annotations

from aot.backends.cmsis_nn import dsp, helium, swar, thumb1
from aot.backends.layers.endings import separate_endings
from aot.lower.fuse import LOWER_PASSES, LowerPass
from aot.lower.groups import split_groups
from aot.lower.implementation import Backend
from aot.lower.narrow import bare_weights, narrow_weights
from aot.lower.signed import signed_bytes
from aot.target import Target


def _unneeded(target: Target) -> LowerPass:
    """Of the two ways to bring weights to kernels, the one that is not for this target."""
    return narrow_weights if "dsp" in target.has and "mve" not in target.has else bare_weights


BACKEND = Backend(
    "cmsis-nn",
    helium.KERNELS + dsp.KERNELS + swar.KERNELS + thumb1.KERNELS,
    default_cpu="cortex-m4",
    summary="our own int8 kernels for Cortex-M, specialised to each layer",
    passes=(
        (signed_bytes, "first: operators are still on their own, each with its type"),
        *LOWER_PASSES,
        (split_groups, "after fusion: a layer's ending goes to each of its groups"),
        (narrow_weights, "then it is known which buffers are there, and who reads them"),
        (bare_weights, "instead, where kernels take weights of nine bits"),
        (separate_endings, "last: weights are as they stay now, and nothing more is fused behind a layer"),
    ),
    unneeded=_unneeded,
)
