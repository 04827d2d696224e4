"""The `cmsis-nn` back end: our own int8 kernels for Cortex-M cores, by what the core can do.

Enters: nothing. Leaves: `BACKEND`, its table of kernels: a package of kernels for each kind of core, in order of preference. A kernel
declines, with a sentence, on a core that lacks its instructions; what none takes goes to the generic emitter.
"""

from __future__ import annotations

from aot.backends.cmsis_nn import dsp, helium, swar, thumb1
from aot.lower.implementation import Backend

BACKEND = Backend(
    "cmsis-nn",
    helium.KERNELS + dsp.KERNELS + swar.KERNELS + thumb1.KERNELS,
    default_cpu="cortex-m4",
    summary="our own int8 kernels for Cortex-M, specialised to each layer",
)
