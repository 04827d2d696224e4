"""Reading a float32 contraction: constants as arrays by output channel, what is fused behind, where input and output lie.

Enters: a Program's instruction. Leaves: `FloatLayer`, or the sentence why no kernel here can take it.
Invariant: a `FloatLayer` states everything that the instruction means; sums may be added up in another order, and rounded once less.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from aot.backends.generic import activations, generic_constants
from aot.backends.layers.operands import Layout, channel_axes, common_geometry, input_refusal, layout_of, tabulate
from aot.backends.neon.float_ending import Ending, read_ending
from aot.graph.ir import DType
from aot.graph.primitive import Contract, Geometry, Map, Primitive, Reduce
from aot.lower.inplace import elementwise_overwrites
from aot.lower.program import Buffer, Program
from aot.target import Target


@dataclass(frozen=True)
class FloatLayer:
    """weights: (Co, KH, KW, Ci), depthwise (Co, KH, KW); bias: (Co,); a pool has neither. geometry: of a dense layer that of a 1x1
    convolution on one row of pixels, of a depthwise layer on one channel that of a convolution. reads, constants: for the implementation's
    lists, the input first.
    """

    instruction: Contract | Reduce
    geometry: Geometry
    weights: np.ndarray
    bias: np.ndarray
    out: Layout
    ending: Ending
    reads: tuple[str, ...]
    constants: tuple[Buffer, ...]
    overwrites: tuple[str, ...]
    scatters_input: bool
    scatters_output: bool

    @property
    def source(self) -> str:
        """The input's name."""
        return self.reads[0]


def read_float_layer(program: Program, instruction: Primitive, target: Target, kind: str) -> FloatLayer | str:
    """The layer behind a float32 contraction of geometry `kind`, or why it is not one."""
    if not isinstance(instruction, Contract) or instruction.geometry is None or common_geometry(instruction.geometry).kind != kind:
        return f"not a {kind} layer"
    if "neon" not in target.has:
        return f"{target.name} has no Advanced SIMD"
    dtypes = {instruction.left.dtype, instruction.right.dtype, instruction.initial.dtype}
    if dtypes != {DType.FLOAT32}:
        return f"the kernel is for float32, not {' with '.join(sorted(map(str, dtypes)))}"
    if prod(instruction.space) * prod(instruction.window) == 0:
        return "it has no elements"
    if instruction.geometry.groups != 1:
        return f"grouped convolution ({instruction.geometry.groups} groups)"
    if instruction.left_zero_point or instruction.right_zero_point:
        return "it has zero points"
    return _with_constants(program, instruction, common_geometry(instruction.geometry), is_wide(target))


def is_wide(target: Target) -> bool:
    """Whether Advanced SIMD has 32 registers and FMLA: that of AArch64."""
    return target.triple.startswith(("aarch64", "arm64"))


def _with_constants(program: Program, instruction: Contract, geometry: Geometry, wide: bool) -> FloatLayer | str:
    axes = channel_axes(instruction)
    rank = len(instruction.space)
    window = range(rank, rank + len(instruction.window))
    bias = tabulate(program, instruction.initial, instruction, axes, np.float32)
    weights = tabulate(program, instruction.right, instruction, [*axes, *window], np.float32)
    if bias is None or weights is None:
        return f"its {'weights are' if weights is None else 'bias is'} not a constant for each output channel"
    out = layout_of(program, instruction, geometry)
    if isinstance(out, str):
        return out
    if refusal := input_refusal(program, instruction, geometry):
        return refusal
    if program[program.storage(instruction.left.buffer)].role == "constant":
        return "its input is a constant"
    ending = read_ending(program, instruction, instruction.result, axes, wide)
    if isinstance(ending, str):
        return ending
    depth = () if geometry.kind == "depthwise" else (geometry.input[3],)
    source = instruction.left.buffer
    fused = Map(instruction.out, instruction.space, instruction.result, instruction.store)
    beside = any(program.storage(load.buffer) == program.storage(source) for load in ending.beside)
    whole = prod(instruction.space) == program[instruction.out].size
    return FloatLayer(
        instruction,
        geometry,
        weights.reshape(-1, *geometry.kernel, *depth),
        bias.reshape(-1),
        out,
        ending,
        tuple(dict.fromkeys((source, *activations(program, fused)))),
        generic_constants(program, fused),
        elementwise_overwrites(program, instruction),
        geometry.kind != "dense" and geometry.input[0] == 1 and geometry.input[1] > 1 and not beside,
        geometry.output[0] == 1 and geometry.output[1] > 1 and whole and not ending.beside,
    )
