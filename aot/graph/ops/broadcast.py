"""Elementwise operators' loads: a value's element for an output position, with TFLite's broadcasting.

Enters: a site's inputs. Leaves: the broadcast shape and one `Load` (or `Const`) for each input.
Invariant: an input of the output's shape is read at the identity index, so that fusion can put its producer's result there.
"""

from __future__ import annotations

from aot.graph.expr import Affine, Const, Expr, axis, fixed
from aot.graph.ir import Shape, Site, Value
from aot.graph.operator import load
from aot.graph.ops.checks import describe, shape_text


def broadcast_shape(site: Site, left: Value, right: Value) -> Shape:
    """numpy's rule: sizes are aligned at the last axis, and a 1 stretches."""
    rank = max(len(left.shape), len(right.shape))
    pairs = zip(_extended(left.shape, rank), _extended(right.shape, rank))
    sizes = []
    for a, b in pairs:
        if a != b and 1 not in (a, b):
            raise site.error(
                f"{describe(left)} of shape {shape_text(left.shape)} and {describe(right)} of shape {shape_text(right.shape)} "
                "do not broadcast"
            )
        sizes.append(b if a == 1 else a)
    return tuple(sizes)


def operand(value: Value, out_shape: Shape) -> Expr:
    """The element of `value` that belongs to the output position; a constant with one element becomes a `Const`."""
    if value.data is not None and value.size == 1:
        return Const(value.data.reshape(-1)[0].item(), value.dtype)
    return load(value, stretched_index(value.shape, out_shape))


def stretched_index(shape: Shape, out_shape: Shape) -> tuple[Affine, ...]:
    """Leading axes dropped, axes of size 1 fixed where the output is longer."""
    skipped = len(out_shape) - len(shape)
    return tuple(axis(number) if size == out_shape[number] else fixed(0) for number, size in enumerate(shape, start=skipped))


def _extended(shape: Shape, rank: int) -> Shape:
    return (1,) * (rank - len(shape)) + shape
