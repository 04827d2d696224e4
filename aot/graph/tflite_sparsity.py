"""Sparse tensors of a TFLite file: where the stored elements lie in the dense tensor.

Enters: a checked SparsityParameters table and the tensor's shape. Leaves: the dense position of each stored element, in their order.
Invariant: every position lies inside the tensor, and no more memory is used than its elements need, whatever the file says.

The format is a tree: one level for each dimension in traversal order, then for each blocked dimension the positions inside a block.
A dense level has a child for each index; a compressed (CSR) one says where each parent's children begin (segments) and their indices.
Source: LiteRT, tflite/kernels/internal/utils/sparsity_format_converter.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from aot.errors import CompileError
from aot.graph.flatbuffer import Table
from aot.graph.ir import Shape

_DENSE, _COMPRESSED = 0, 1
_INDEX_DTYPES = {1: "i4", 2: "u2", 3: "u1"}
"""Element types of index vectors, by the number of their kind in the schema's union."""


@dataclass(frozen=True)
class _Level:
    """One level: how many indices its dimension has, and how far apart they lie in the dense tensor, in elements."""

    table: Table
    size: int
    step: int


def positions(table: Table, shape: Shape) -> np.ndarray:
    """The dense, row-major positions (int64) of the stored elements. CompileError where the table does not describe the shape."""
    found = np.zeros(1, np.int64)
    for level in _levels(table, shape):
        found = _children(level, found, prod(shape))
    return found


def _damaged(what: str) -> CompileError:
    return CompileError(f"its sparsity is damaged: {what}")


def _levels(table: Table, shape: Shape) -> list[_Level]:
    order = _list(table, 0, "traversal order")
    blocked = _list(table, 1, "block map")
    tables = table.tables(2, "dimension")
    rank = len(shape)
    if sorted(order) != list(range(rank + len(blocked))) or len(tables) != len(order):
        raise _damaged(
            f"{len(order)} levels of {len(tables)} dimensions do not make up {rank} dimensions and {len(blocked)} of blocks"
        )
    if len(set(blocked)) != len(blocked) or not set(blocked) <= set(range(rank)):
        raise _damaged(f"it blocks the dimensions {blocked} of {rank}")
    blocks = {dim: tables[order.index(rank + number)].number(1, "i") for number, dim in enumerate(blocked)}
    for dim, size in blocks.items():
        if size < 1 or shape[dim] % size:
            raise _damaged(f"blocks of {size} do not divide dimension {dim} of {shape[dim]}")
    steps = [prod(shape[dim + 1 :]) for dim in range(rank)]
    outer = [(shape[dim] // blocks.get(dim, 1), steps[dim] * blocks.get(dim, 1)) for dim in range(rank)]
    inner = [(blocks[dim], steps[dim]) for dim in blocked]
    return [_Level(tables[number], *[*outer, *inner][dim]) for number, dim in enumerate(order)]


def _children(level: _Level, parents: np.ndarray, most: int) -> np.ndarray:
    """The positions of a level's nodes, given those of the level above. `most`: the elements of the dense tensor."""
    kind = level.table.number(0, "b")
    if kind == _DENSE:
        if level.table.number(1, "i") != level.size:
            raise _damaged(f"a dense level of {level.table.number(1, 'i')} stands for {level.size} indices")
        if parents.size * level.size > most:
            raise _damaged(f"it has more than {most} elements")
        return (parents[:, None] + np.arange(level.size, dtype=np.int64) * level.step).reshape(-1)
    if kind != _COMPRESSED:
        raise _damaged(f"a level has the unknown format {kind}")
    segments, indices = _indices(level.table, 2, "segments"), _indices(level.table, 4, "indices")
    counts = np.diff(segments)
    if segments.size != parents.size + 1 or segments[0] != 0 or (counts < 0).any() or segments[-1] != indices.size:
        raise _damaged(f"{segments.size} segments do not divide {indices.size} indices among {parents.size} parents")
    if indices.size > most or (indices < 0).any() or (indices >= level.size).any():
        raise _damaged(f"an index is outside its dimension of {level.size}")
    return np.repeat(parents, counts) + indices * level.step


def _indices(table: Table, slot: int, what: str) -> np.ndarray:
    """An index vector of any width as int64; `slot` holds its kind, the next one the vector."""
    dtype, holder = _INDEX_DTYPES.get(table.number(slot, "B")), table.table(slot + 1, what)
    array = None if dtype is None or holder is None else holder.numbers(0, dtype, what)
    return np.zeros(0, np.int64) if array is None else array.astype(np.int64)


def _list(table: Table, slot: int, what: str) -> list[int]:
    array: Sequence[int] | np.ndarray | None = table.numbers(slot, "i4", what)
    if array is None:
        return []
    if len(array) > 32:
        raise _damaged(f"its {what} has {len(array)} entries")
    return [int(number) for number in array]
