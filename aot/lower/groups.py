"""Grouped convolutions, which kernels do not take: as convolutions, one for each group, or as one depthwise convolution.

Enters: a Program of groups of instructions. Leaves: the same Program, in which a convolution whose output channels each read some of the
input's channels is several that read all of theirs, from a copy.
Invariant: every output element is the same sum of the same products, ended by the same expression.
"""

from __future__ import annotations

from dataclasses import replace

from aot.graph.expr import Load, affine, axis, fixed
from aot.graph.ir import DType
from aot.graph.primitive import Contract, Map, Primitive, store_of
from aot.lower.indexing import Index, compose_all, rebase, rebase_load
from aot.lower.program import Buffer, Program

MOST_GROUPS = 16
"""Each group has code of its own."""
_LEAST_USES = 8
"""How often an element of the input is multiplied, to be worth copying."""


def split_groups(program: Program) -> Program:
    """conv(x) in g groups -> x_k = x[..., channels of k]; out[..., channels of k] = conv(x_k), for each group k.

    Groups of a single input channel: one depthwise convolution, whose multiplier is the group's number of output channels.
    """
    buffers: list[Buffer] = []
    instructions: list[Primitive] = []
    for instruction in program.instructions:
        found = _split(program, instruction) if isinstance(instruction, Contract) else None
        instructions += [instruction] if found is None else found[1]
        buffers += [] if found is None else found[0]
    if tuple(instructions) == program.instructions:
        return program
    return replace(program, buffers=(*program.buffers, *buffers), instructions=tuple(instructions))


def _split(program: Program, layer: Contract) -> tuple[list[Buffer], list[Primitive]] | None:
    """New buffers and the instructions in the layer's place; None if it stays."""
    geometry, source = layer.geometry, program[layer.left.buffer]
    if geometry is None or geometry.kind != "conv" or geometry.groups == 1 or source.shape != geometry.input or source.is_window:
        return None
    depth, each = geometry.input[3] // geometry.groups, geometry.output[3] // geometry.groups
    if layer.left.index[3] != affine({3: depth, 7: 1}) or layer.left.dtype not in (DType.INT8, DType.INT16):
        return None
    if depth == 1:
        single = _depthwise(layer)
        return None if single is None else ([], [single])
    if geometry.groups > MOST_GROUPS or geometry.kernel[0] * geometry.kernel[1] * each < _LEAST_USES:
        return None
    buffers: list[Buffer] = []
    instructions: list[Primitive] = []
    for number in range(geometry.groups):
        shape = (*geometry.input[:3], depth)
        part = replace(
            source, name=_free(f"{layer.out}_group{number}", program), shape=shape, role="temporary", base=None, label=""
        )
        index = (axis(0), axis(1), axis(2), axis(3, 1, number * depth))
        group = _group(layer, number, part.name)
        if group is None:
            return None
        buffers.append(part)
        instructions += [Map(part.name, shape, Load(source.name, index, source.dtype), nodes=layer.nodes), group]
    return buffers, instructions


def _group(layer: Contract, number: int, source: str) -> Contract | None:
    """One group's convolution of `source`; None where an index can't be said."""
    geometry = layer.geometry
    assert geometry is not None
    depth, each = geometry.input[3] // geometry.groups, geometry.output[3] // geometry.groups
    by = (axis(0), axis(1), axis(2), fixed(number), *(axis(old) for old in range(3, 7)))
    found = rebased(layer, by, (*layer.space[:3], each), layer.window)
    if found is None:
        return None
    left = replace(found.left, buffer=source, index=(*found.left.index[:3], axis(6)))
    n, h, w, _ = geometry.input
    single = replace(geometry, input=(n, h, w, depth), output=(*geometry.output[:3], each), groups=1)
    return replace(found, left=left, geometry=single)


def _depthwise(layer: Contract) -> Contract | None:
    """The layer whose groups have a single input channel each: its last axis, of one input channel, goes."""
    geometry = layer.geometry
    assert geometry is not None
    found = rebased(layer, (*(axis(old) for old in range(7)), fixed(0)), layer.space, layer.window[:2])
    each = geometry.output[3] // geometry.groups
    return None if found is None else replace(found, geometry=replace(geometry, kind="depthwise", groups=1, multiplier=each))


def rebased(layer: Contract, by: Index, space: tuple[int, ...], window: tuple[int, ...]) -> Contract | None:
    """The layer over other axes: each old one k is `by[k]`."""
    extents = (*space, *window)
    left, right = rebase_load(layer.left, by, extents), rebase_load(layer.right, by, extents)
    initial, result = rebase(layer.initial, by, extents), rebase(layer.result, by, space)
    store = compose_all(store_of(layer), by, space)
    if left is None or right is None or initial is None or result is None or store is None:
        return None
    return replace(layer, space=space, window=window, left=left, right=right, initial=initial, result=result, store=store)


def _free(name: str, program: Program) -> str:
    """`name`, or with the first number after it that no buffer has."""
    found, count = name, 1
    while found in program.by_name:
        found, count = f"{name}_{count}", count + 1
    return found
