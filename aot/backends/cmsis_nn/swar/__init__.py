"""Kernels for cores without the DSP extension (Cortex-M0, M0+, M3): two products in one 32-bit multiplication; the rows of the back
end's table that are theirs.

Enters: nothing. Leaves: `KERNELS`. Invariant: every kernel here declines, with a sentence, on a core it is not for.
"""

from __future__ import annotations

from aot.backends.cmsis_nn.swar import m3

KERNELS = m3.KERNELS
