"""Float32 pools and means over rows and columns: a few neighbouring pixels of four or eight channels at a time.

Enters: reductions. Leaves: `Implementation`s, or the sentence why not.
Invariant: what lies outside the image is neutral, so it is left out.
"""

from __future__ import annotations

from math import prod

import numpy as np

from aot.backends.generic import activations, generic_constants
from aot.backends.layers.operands import Layout
from aot.backends.neon.float_ending import read_ending
from aot.backends.neon.float_layer import FloatLayer, is_wide
from aot.backends.neon.float_tiles import Emitter
from aot.backends.neon.float_tiling import TilePlan
from aot.backends.neon.simd_float import LANES
from aot.graph.expr import Affine, Const, IndexMap, Load, axis
from aot.graph.ir import DType
from aot.graph.primitive import Geometry, Map, Primitive, Reduce, store_of
from aot.lower.implementation import Implementation, Rows
from aot.lower.indexing import linear, same
from aot.lower.inplace import elementwise_overwrites
from aot.lower.program import Program
from aot.target import Target

_WIDEST = 64  # columns of a window, each of which has code
_COMBINES = ("add", "max", "min")


def claim_pool(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Pools of any kernel, stride and padding; means over rows and columns."""
    if "neon" not in target.has:
        return f"{target.name} has no Advanced SIMD"
    layer = _read(program, instruction, is_wide(target))
    if isinstance(layer, str):
        return layer
    reduce, g = layer.instruction, layer.geometry
    assert isinstance(reduce, Reduce) and isinstance(reduce.initial, Const)
    plan = TilePlan(layer, 32 if is_wide(target) else 16, reduce.combine, float(reduce.initial.value))
    return Implementation(
        kernel=f"float pool {g.kernel[0]}x{g.kernel[1]}",
        instruction=reduce,
        reads=layer.reads,
        writes=(reduce.out,),
        constants=layer.constants,
        emit=lambda function: Emitter(function, plan).emit(),
        overwrites=() if plan.overlapped else layer.overwrites,
        rows=Rows(g.output[1], 1, images=g.output[0]),
        scatters=plan.scatters,
        style="ordered",
        notes=(f"{plan.pixels} pixels of {plan.width} channels at a time",),
        cost=plan.cost,
    )


def _read(program: Program, instruction: Primitive, wide: bool) -> FloatLayer | str:
    """The pool behind a reduction, or why it is not one."""
    if not isinstance(instruction, Reduce) or not isinstance(instruction.term, Load) or instruction.term.dtype is not DType.FLOAT32:
        return "not a reduction of float32 elements"
    load, buffer = instruction.term, program[instruction.term.buffer]
    if not len(buffer.shape) == len(instruction.space) == 4 or len(instruction.window) != 2:
        return "not a reduction over rows and columns"
    if instruction.combine not in _COMBINES or not isinstance(instruction.initial, Const):
        return f"{instruction.combine} is none of {', '.join(_COMBINES)} with a number to begin with"
    if prod(instruction.space) * prod(instruction.window) == 0:
        return "it has no elements"
    if load.fill is not None and not instruction.skip_fill:
        return "its padding is not neutral"
    if program[program.storage(load.buffer)].role == "constant":
        return "its input is a constant"
    geometry = _geometry(instruction, load, buffer.shape)
    if geometry is None:
        return "its input is read through an index map that the kernel doesn't know"
    if geometry.output[3] < LANES:
        return f"{geometry.output[3]} channels: fewer than a vector has lanes"
    if geometry.kernel[1] > _WIDEST:
        return f"a window of {geometry.kernel[1]} columns: more than {_WIDEST}"
    out = _layout(program, instruction)
    if out is None:
        return "its output channels are not stored next to each other"
    ending = read_ending(program, instruction, instruction.result, (3,), wide, positions=True)
    if isinstance(ending, str):
        return ending
    fused = Map(instruction.out, instruction.space, instruction.result, instruction.store)
    source = program.storage(load.buffer)
    beside = any(program.storage(one.buffer) == source for one in ending.beside)
    whole = prod(instruction.space) == program[instruction.out].size
    return FloatLayer(
        instruction,
        geometry,
        np.zeros(0, np.float32),
        np.zeros(0, np.float32),
        out,
        ending,
        tuple(dict.fromkeys((load.buffer, *activations(program, fused)))),
        generic_constants(program, fused),
        elementwise_overwrites(program, instruction),
        geometry.input[0] == 1 and geometry.input[1] > 1 and not beside,
        geometry.output[0] == 1 and geometry.output[1] > 1 and whole and not ending.beside,
    )


def _geometry(reduce: Reduce, load: Load, shape: tuple[int, ...]) -> Geometry | None:
    steps: list[tuple[int, int, int]] = []
    for number in range(2):
        index: IndexMap = load.index[1 + number]
        if not isinstance(index, Affine):
            return None
        terms = dict(index.terms)
        steps.append((terms.get(1 + number, 1), terms.get(4 + number, 1), -index.offset))
    (stride_y, dilation_y, top), (stride_x, dilation_x, left) = steps
    if min(stride_y, dilation_y, stride_x, dilation_x) < 1:
        return None
    expected = (
        axis(0),
        Affine(((1, stride_y), (4, dilation_y)), -top),
        Affine(((2, stride_x), (5, dilation_x)), -left),
        axis(3),
    )
    if not same(load.index, expected, (*reduce.space, *reduce.window)):
        return None
    (n, height, width, channels), (rows, columns) = reduce.space, reduce.window
    output = (n, height, width, channels)
    return Geometry(
        "depthwise",
        (shape[0], shape[1], shape[2], shape[3]),
        output,
        (rows, columns),
        (stride_y, stride_x),
        (dilation_y, dilation_x),
        top,
        left,
    )


def _layout(program: Program, reduce: Reduce) -> Layout | None:
    """Where output elements lie; None if channels are not next to each other."""
    position = linear(store_of(reduce), program[reduce.out].shape, reduce.space)
    if position is None:
        return None
    terms = dict(position.terms)
    if reduce.space[3] > 1 and terms.get(3, 0) != 1:
        return None
    image, row, pixel = (terms.get(number, 0) for number in range(3))
    return Layout(image, row, pixel or reduce.space[3], position.offset)
