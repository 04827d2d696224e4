"""Layers in parts: a contraction as several, each of some output channels, with the constants that these need.

Enters: a Program's contraction. Leaves: contractions that write next to each other in its output, and the parts of its constants.
Invariant: every output element is the same sum of the same products, ended by the same expression.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from aot.graph.expr import Load, Table, axis, rewrite
from aot.graph.primitive import Contract, Geometry
from aot.lower.groups import rebased
from aot.lower.indexing import bounds
from aot.lower.program import Buffer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aot.graph.expr import Affine, Expr
    from aot.lower.indexing import Index
    from aot.lower.program import Program

Parts = tuple[tuple[Buffer, ...], tuple[Contract, ...]]
"""New constants, and the contractions in the layer's place."""


def channel_axis(layer: Contract) -> int | None:
    """The axis of the output's channels; None if it has none that the layer can be divided along."""
    geometry, last = layer.geometry, len(layer.space) - 1
    if geometry is None or 0 in (*layer.space, *layer.window):
        return None
    if geometry.kind == "depthwise":
        return last - 1
    return last if layer.space[last] == geometry.output[3] else None


def split_channels(program: Program, layer: Contract, ends: Sequence[int]) -> Parts | None:
    """out = contract(x) -> out[..., channels of part k] = contract(x), for the parts [0, ends[0]), [ends[0], ends[1]), ...

    The parts of a depthwise or grouped layer have no geometry: kernels know none that read some of a tensor's channels.
    """
    at = channel_axis(layer)
    if at is None:
        return None
    buffers: dict[str, Buffer] = {}
    found: list[Contract] = []
    for first, end in pairwise((0, *ends)):
        by = tuple(axis(number, 1, first if number == at else 0) for number in range(len(layer.space) + len(layer.window)))
        space = tuple(end - first if number == at else extent for number, extent in enumerate(layer.space))
        part = rebased(layer, by, space, layer.window)
        if part is None:
            return None
        found.append(_with_own_constants(program, replace(part, geometry=_part_of(layer, end - first)), buffers))
    return tuple(buffers.values()), tuple(found)


def _part_of(layer: Contract, channels: int) -> Geometry | None:
    geometry = layer.geometry
    assert geometry is not None
    if geometry.kind == "depthwise" or geometry.groups != 1:
        return None
    return replace(geometry, output=(*geometry.output[:3], channels))


def _with_own_constants(program: Program, part: Contract, buffers: dict[str, Buffer]) -> Contract:
    """The part with loads of constants that hold no more than it reads; these go into `buffers`."""
    every, space = (*part.space, *part.window), part.space

    def narrowed(load: Load, extents: tuple[int, ...]) -> Load:
        storage = program[program.storage(load.buffer)]
        if storage.role != "constant" or storage.data is None or load.fill is not None or not load.index:
            return load
        shape = program[load.buffer].shape
        spans = [bounds(index, extents) for index in load.index]
        if all(low == 0 and high == size - 1 for (low, high), size in zip(spans, shape, strict=True)):
            return load
        name = f"{load.buffer}.{'x'.join(f'{low}-{high}' for low, high in spans)}"
        if name not in buffers:
            data = storage.data.reshape(shape)[tuple(slice(low, high + 1) for low, high in spans)].copy()
            buffers[name] = Buffer(name, load.dtype, data.shape, "constant", data=data, align=program[load.buffer].align)
        return Load(name, _moved(load.index, [low for low, _ in spans]), load.dtype)

    def expression(expr: Expr, extents: tuple[int, ...]) -> Expr:
        return rewrite(expr, lambda node: narrowed(node, extents) if isinstance(node, Load) else None)

    return replace(
        part,
        right=narrowed(part.right, every),
        initial=expression(part.initial, space),
        result=expression(part.result, space),
    )


def _moved(index: Index, by: Sequence[int]) -> Index:
    """The index into what begins at these positions."""
    return tuple(
        Table(one.axis, tuple(entry - low for entry in one.entries)) if isinstance(one, Table) else _lower(one, low)
        for one, low in zip(index, by, strict=True)
    )


def _lower(index: Affine, by: int) -> Affine:
    return replace(index, offset=index.offset - by)
