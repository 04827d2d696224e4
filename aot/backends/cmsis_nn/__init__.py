"""The `cmsis-nn` back end: our own int8 kernels for Cortex-M cores with the DSP extension (SMLAD).

Enters: nothing. Leaves: `BACKEND`, its table of kernels. Cores without the extension are declined with a sentence; the generic emitter takes them.
"""

from __future__ import annotations

from aot.lower.implementation import Backend

BACKEND = Backend("cmsis-nn", (), default_cpu="cortex-m4", summary="our own int8 kernels for Cortex-M, specialised to each layer")
