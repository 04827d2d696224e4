"""Elementwise operators' loads: a value's element for an output position, with TFLite's broadcasting.

Enters: a site's inputs. Leaves: the broadcast shape and one `Load` (or `Const`) for each input.
Invariant: an input of the output's shape is read at the identity index, so that fusion can put its producer's result there.
"""

from __future__ import annotations

from aot.graph.expr import Affine, Const, Expr, axis, fixed
from aot.graph.ir import Shape, Site, Value
from aot.graph.operator import load
from aot.graph.ops.checks import describe, shape_text


def broadcast_shape(site: Site, *values: Value) -> Shape:
    """numpy's rule: sizes are aligned at the last axis, and a 1 stretches."""
    shape: Shape = ()
    for number, value in enumerate(values):
        together = _together(shape, value.shape)
        if together is None:
            others = ", ".join(f"{describe(each)} of shape {shape_text(each.shape)}" for each in values[:number])
            raise site.error(f"{others} and {describe(value)} of shape {shape_text(value.shape)} do not broadcast")
        shape = together
    return shape


def _together(left: Shape, right: Shape) -> Shape | None:
    """The shape that both stretch to, if they do."""
    rank = max(len(left), len(right))
    pairs = list(zip(_extended(left, rank), _extended(right, rank)))
    if any(a != b and 1 not in (a, b) for a, b in pairs):
        return None
    return tuple(b if a == 1 else a for a, b in pairs)


def operand(value: Value, out_shape: Shape) -> Expr:
    """The element of `value` that belongs to the output position; a constant with one element becomes a `Const`."""
    if value.data is not None and value.size == 1:
        return Const(value.data.reshape(-1)[0].item(), value.dtype)
    return load(value, stretched_index(value.shape, out_shape))


def stretched_index(shape: Shape, out_shape: Shape) -> tuple[Affine, ...]:
    """Leading axes dropped, axes of size 1 fixed where the output is longer, or has no such axis."""
    skipped = len(out_shape) - len(shape)
    return tuple(
        axis(number) if number >= 0 and size == out_shape[number] else fixed(0) for number, size in enumerate(shape, start=skipped)
    )


def _extended(shape: Shape, rank: int) -> Shape:
    return (1,) * (rank - len(shape)) + shape
