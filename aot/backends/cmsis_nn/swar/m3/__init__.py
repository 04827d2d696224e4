"""Kernels for Cortex-M3: Armv7-M, which has MLA, SMULL and SSAT, and no DSP extension.

Enters: nothing. Leaves: `KERNELS`. Invariant: where several ways suit a layer, all are offered, the one with the fewest instructions first.
"""

from __future__ import annotations

from collections.abc import Callable

from aot.backends.cmsis_nn.swar.m3.convolution import claim_convolution, claim_rows
from aot.backends.cmsis_nn.swar.m3.dense import claim_dense, claim_single_pixel
from aot.backends.cmsis_nn.swar.m3.depthwise import claim_depthwise, claim_single_channel
from aot.graph.primitive import Primitive
from aot.lower.implementation import Answer, Implementation, Kernel
from aot.lower.program import Program
from aot.target import Target

Claim = Callable[[Program, Primitive, Target], Implementation | str]


def _any_of(general: Claim, *special: Claim) -> Callable[[Program, Primitive, Target], Answer]:
    """A claim that offers what these do. What `special` ones say does not matter where they decline, but what `general` says does."""

    def claim(program: Program, instruction: Primitive, target: Target) -> Answer:
        answers = [one(program, instruction, target) for one in (general, *special)]
        offered = [answer for answer in answers if isinstance(answer, Implementation)]
        return tuple(sorted(offered, key=_instructions)) if offered else answers[0]

    return claim


def _instructions(one: Implementation) -> int:
    assert one.cost is not None
    return one.cost.instructions


_claim_convolution = _any_of(claim_convolution, claim_single_channel, claim_single_pixel)

KERNELS = (
    Kernel(
        "conv, Armv7-M", _claim_convolution, "int8 convolution of any kernel: two products a multiplication", ("conv", "depthwise")
    ),
    Kernel("depthwise, Armv7-M", claim_depthwise, "int8 depthwise convolution, a byte loaded once for all columns", ("depthwise",)),
    Kernel("dense, Armv7-M", _any_of(claim_dense, claim_rows), "int8 fully connected layer on any number of rows", ("dense",)),
)
