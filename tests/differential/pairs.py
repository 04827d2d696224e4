"""Cases of operators on single elements of two or more operands, with broadcasting."""

from __future__ import annotations

import numpy as np

from tests.differential.case import ULPS, cases
from tests.differential.grower import ACTIVATIONS, Grower
from tests.differential.net import Fill, Tensor


def other_shape(g: Grower, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts with this one: the same, some axes 1, some leading axes missing."""
    kind = g.pick("same", "same", "ones", "tail", "scalar")
    if kind == "ones":
        return tuple(size if g.coin() else 1 for size in shape)
    if kind == "tail":
        return shape[g.whole(0, len(shape) - 1) :]
    return {"same": shape, "scalar": (1,)}[kind]


def operands(g: Grower, dtypes, *, like_left: bool = False, right_fill: Fill | None = None) -> tuple[int, int, tuple[int, ...]]:
    """Two operands (in any order) and the shape of the result."""
    left = g.value(dtypes, constant=True)
    shape = other_shape(g, g[left].shape)
    same = g.reuse and g.seldom() and right_fill is None
    right = (
        left if same else g.value(g[left].dtype, shape=shape, like=g[left] if like_left else None, fill=right_fill, constant=True)
    )
    result = tuple(np.broadcast_shapes(g[left].shape, g[right].shape))
    if right_fill is None and g.coin():
        left, right = right, left
    return left, right, result


def arithmetic(g: Grower, op: str) -> None:
    left, right, shape = operands(g, ("int8", "float32", "int16", "int32", "uint8", "int64"))
    g.node(op, [left, right], g.output(shape, g[left].dtype), {"fused_activation_function": g.pick(*ACTIVATIONS)})


def division(g: Grower, op: str) -> None:
    """DIV: by anything but 0 (integers)."""
    dtype = g.pick("float32", "int8", "int32", "uint8")
    if dtype in ("int8", "uint8"):
        _quantised_division(g, op, dtype)
        return
    fill = None if dtype == "float32" else Fill(g.whole(0, 99), 1, 100)
    left, right, shape = operands(g, dtype, right_fill=fill)
    g.node(op, [left, right], g.output(shape, dtype), {"fused_activation_function": g.pick(*ACTIVATIONS)})


def _quantised_division(g: Grower, op: str, dtype: str) -> None:
    """Of large numbers and to a small scale: else the oracles shift by more than 31, which C leaves undefined."""
    low = -128 if dtype == "int8" else 0
    shape = g.shape()
    left = g.add(Tensor(shape, dtype, g.pick(1.0, 0.5), low, fill=Fill(g.whole(0, 99), low + 64)), True)
    right_fill = Fill(g.whole(0, 99), low + 21, low + 255)
    right = g.add(Tensor(other_shape(g, shape), dtype, g.pick(0.05, 0.1), low + 20, fill=right_fill), True)
    made = Tensor(shape, dtype, g.pick(0.003, 1 / 256, 1.0), g.pick(low, 0, 127))
    g.node(op, [left, right], made, {"fused_activation_function": g.pick(*ACTIVATIONS)})


def floored(g: Grower, op: str) -> None:
    """FLOOR_DIV, FLOOR_MOD: the divisor is never 0, nor -1 for FLOOR_DIV: of -128 / -1 LiteRT makes 127 or -128 by the position."""
    dtype = g.pick("float32", "int8", "int32", "int16", "int64")
    low, high = g.pick((1, 100), (-100, -2 if op == "FLOOR_DIV" else -1))
    left, right, shape = operands(g, dtype, right_fill=Fill(g.whole(0, 99), low, high))
    g.node(op, [left, right], Tensor(shape, dtype, g[left].scale, g[left].zero_point), {})


def choice(g: Grower, op: str) -> None:
    """MAXIMUM, MINIMUM: everything has the same quantisation."""
    left, right, shape = operands(g, ("int8", "float32", "int16", "int32", "uint8", "int64"), like_left=True)
    g.node(op, [left, right], g.like(left, shape), {})


def squared_difference(g: Grower, op: str) -> None:
    left, right, shape = operands(g, ("int8", "float32", "int32", "int16"))
    g.node(op, [left, right], g.output(shape, g[left].dtype), {})


def comparison(g: Grower, op: str) -> None:
    types = ("int8", "float32", "int32", "int16", "uint8", "int64", *(("bool",) if op in ("EQUAL", "NOT_EQUAL") else ()))
    left, right, shape = operands(g, types)
    g.node(op, [left, right], Tensor(shape, "bool"), {})


def logical(g: Grower, op: str) -> None:
    left, right, shape = operands(g, "bool")
    g.node(op, [left, right], Tensor(shape, "bool"), {})


def power(g: Grower, op: str) -> None:
    left, right, shape = operands(g, "float32", right_fill=Fill(g.whole(0, 99), -2, 2))
    g.node(op, [left, right], Tensor(shape, "float32"), {})


def angle(g: Grower, op: str) -> None:
    """ATAN2: LiteRT reads past the end of an operand that would have to broadcast."""
    left = g.value("float32")
    g.node(op, [left, g.value("float32", shape=g[left].shape)], Tensor(g[left].shape, "float32"))


def add_n(g: Grower, op: str) -> None:
    first = g.value(("int8", "float32", "int32"))
    more = [g.value(g[first].dtype, shape=g[first].shape) for _ in range(g.whole(1, 3))]
    g.node(op, [first, *more], g.output(g[first].shape, g[first].dtype), {})


def select(g: Grower, op: str) -> None:
    left, right, shape = operands(g, ("int8", "float32", "int16", "int32", "bool"), like_left=True)
    condition = g.value("bool", shape=shape if g.coin() else other_shape(g, shape))
    shape = tuple(np.broadcast_shapes(shape, g[condition].shape))
    g.node(op, [condition, left, right], g.like(left, shape), {})


CASES = (
    *cases(arithmetic, "ADD", "SUB", "MUL"),
    *cases(division, "DIV"),
    *cases(floored, "FLOOR_DIV", "FLOOR_MOD", jumps=True),
    *cases(choice, "MAXIMUM", "MINIMUM"),
    *cases(squared_difference, "SQUARED_DIFFERENCE"),
    *cases(comparison, "EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", jumps=True),
    *cases(logical, "LOGICAL_AND", "LOGICAL_OR"),
    *cases(power, "POW", bound=ULPS),
    *cases(angle, "ATAN2", bound=ULPS, jumps=True),
    *cases(add_n, "ADD_N"),
    *cases(select, "SELECT_V2", "SELECT"),
)
