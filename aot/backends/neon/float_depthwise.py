"""Float32 depthwise convolutions: a few neighbouring pixels of four or eight channels at a time, their sums in registers.

Enters: contractions. Leaves: `Implementation`s, or the sentence why not.
Invariant: nothing outside the image is read.
"""

from __future__ import annotations

from aot.backends.neon.float_layer import is_wide, read_float_layer
from aot.backends.neon.float_tiles import Emitter
from aot.backends.neon.float_tiling import TilePlan
from aot.backends.neon.simd_float import LANES
from aot.graph.ir import DType
from aot.graph.primitive import Primitive
from aot.lower.implementation import Implementation, Rows
from aot.lower.program import Buffer, Program
from aot.target import Target

_MULTIPLIERS = (1, 2, 4, 8)


def claim_depthwise(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Depthwise convolutions of any kernel, stride, dilation and padding."""
    layer = read_float_layer(program, instruction, target, "depthwise")
    if isinstance(layer, str):
        return layer
    g = layer.geometry
    if g.multiplier not in _MULTIPLIERS:
        return f"{g.multiplier} outputs for each input channel: the kernel is for 1, 2, 4 and 8"
    if g.output[3] < LANES:
        return f"{g.output[3]} channels: fewer than a vector has lanes"
    if g.multiplier == 2 and g.output[3] % (2 * LANES):
        return f"{g.output[3]} channels, two for each input channel: the kernel takes eight at a time"
    plan = TilePlan(layer, 32 if is_wide(target) else 16)
    name, data = f"{layer.instruction.out}.taps", plan.table
    taps = Buffer(name, DType.FLOAT32, data.shape, "constant", data=data, align=8)
    return Implementation(
        kernel=f"float depthwise {g.kernel[0]}x{g.kernel[1]}",
        instruction=layer.instruction,
        reads=layer.reads,
        writes=(layer.instruction.out,),
        constants=(taps, *layer.constants),
        emit=lambda function: Emitter(function, plan, name).emit(),
        overwrites=() if plan.overlapped else layer.overwrites,
        rows=Rows(g.output[1], 1, images=g.output[0]),
        scatters=plan.scatters,
        style="ordered",
        notes=(f"{plan.pixels} pixels of {plan.width} channels at a time",),
        cost=plan.cost,
    )
