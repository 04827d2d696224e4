"""Which cores the kernels for Cortex-M0 are for."""

from __future__ import annotations

from aot.target import Target

_ARCHITECTURES = ("thumbv6m", "thumbv8m.base")


def refusal(target: Target) -> str:
    """Why they are not for this one; empty if they are."""
    if target.triple.split("-")[0] in _ARCHITECTURES:
        return ""
    return f"{target.name} has more than Armv6-M's instructions, or none of them"
