"""Which cores the kernels for Cortex-M3 are for."""

from __future__ import annotations

from aot.target import Target

_ARCHITECTURES = ("thumbv7m", "thumbv7em", "thumbv8m.main", "thumbv8.1m.main")


def refusal(target: Target) -> str:
    """Why they are not for this one; empty if they are."""
    if target.triple.split("-")[0] not in _ARCHITECTURES:
        return f"{target.name} has no 32-bit Thumb-2 multiply-accumulate (MLA)"
    return f"{target.name} has the DSP extension, whose kernels need fewer instructions" if "dsp" in target.has else ""
