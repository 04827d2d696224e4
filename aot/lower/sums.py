"""Sums of two rescaled 8-bit numbers, as the int8 ADD and SUB make them: two table entries, one addition, one saturating shift.

Enters: a Program of groups. Leaves: the same Program with such sums in that form.
Invariant: the new form is compared with the old one at all 65,536 pairs, so no byte changes; where no table fits, the sum stays.

TFLite rescales each operand, adds, and rescales the sum with two roundings. As a function of the sum that is a staircase: if its
steps lie where floor(slope * sum + offset) has them, the slope can be multiplied into the operands' tables beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from aot.graph.expr import Binary, Cast, Const, Expr, Requantise, add, cast, clamp, integer, mul
from aot.graph.ir import DType
from aot.lower.program import Program
from aot.lower.tables import BYTES, ByteArguments, Tables, byte_values, often_enough, with_children

_MOST_FRACTION_BITS = 24
_NEAR = range(-4, 5)  # steps from the tables' slopes to factors that are tried
_FEWER_BITS = 4  # precisions tried


def separate_sums(program: Program) -> Program:
    """int8(clamp(requantise(f(a) + g(b)) + zero_point)) -> int8(clamp(table1[a] + table2[b] >> bits)), a and b 8 bits wide."""
    tables = Tables(program)
    return tables.rewritten(lambda root, uses: _separated(root, tables) if often_enough(uses, 2 * 1024) else root)


def _separated(root: Expr, tables: Tables) -> Expr:
    done: dict[int, Expr] = {}

    def visit(expr: Expr) -> Expr:
        if id(expr) not in done:
            found = _find(expr, tables.byte_argument)
            form = _fit(found, tables) if found is not None else None
            if found is not None and form is not None:
                parts = form.parts(tables, visit(found.a), visit(found.b))
                shifted = Binary("shr", add(*parts), integer(form.bits))
                done[id(expr)] = cast(clamp(shifted, form.low, form.high), found.whole.dtype)
            else:
                done[id(expr)] = with_children(expr, visit)
        return done[id(expr)]

    return visit(root)


@dataclass(frozen=True)
class _Sum:
    """whole: the 8-bit expression; scaled: the Requantise in it; left (of a) and right (of b): what that adds or subtracts."""

    whole: Cast
    scaled: Requantise
    left: Expr
    right: Expr
    a: Expr
    b: Expr


def _find(expr: Expr, byte_argument: ByteArguments) -> _Sum | None:
    """The parts of a sum whose outermost node is `expr`; None if it is none."""
    if not (isinstance(expr, Cast) and expr.dtype in BYTES):
        return None
    scaled = _varying_core(expr.x)
    if not (isinstance(scaled, Requantise) and isinstance(scaled.multiplier, Const) and isinstance(scaled.shift, Const)):
        return None
    if not (isinstance(scaled.x, Binary) and scaled.x.op in ("add", "sub")):
        return None
    a, b = byte_argument(scaled.x.a), byte_argument(scaled.x.b)
    if a is None or b is None or a == b:
        return None
    return _Sum(expr, scaled, scaled.x.a, scaled.x.b, a, b)


def _varying_core(expr: Expr) -> Expr:
    """What is left of `expr` without the additions of, and comparisons with, constants around it."""
    while isinstance(expr, Binary) and expr.op in ("add", "sub", "min", "max") and isinstance(expr.b, Const):
        expr = expr.a
    return expr


@dataclass(frozen=True)
class _Form:
    """clamp(left[a] + right[b] >> bits, low, high)."""

    left: np.ndarray
    right: np.ndarray
    bits: int
    low: int
    high: int

    def parts(self, tables: Tables, a: Expr, b: Expr) -> tuple[Expr, Expr]:
        """left[a] and right[b]."""
        return tables.lookup(self.left, a), tables.lookup(self.right, b)


@dataclass(frozen=True)
class _Line:
    """clamp(a * left + (b * right + offset) >> bits, low, high): the same without tables, where the bytes themselves are summed."""

    left: int
    right: int
    offset: int
    bits: int
    low: int
    high: int

    def parts(self, tables: Tables, a: Expr, b: Expr) -> tuple[Expr, Expr]:
        """a * left and b * right + offset."""
        first, second = (mul(cast(each, DType.INT32), integer(by)) for each, by in ((a, self.left), (b, self.right)))
        return first, add(second, integer(self.offset))


def _fit(found: _Sum, tables: Tables) -> _Form | _Line | None:
    """A line or tables that give every pair's result; None if the staircase has no such slope and offset, or the tables are too coarse."""
    wanted = tables.values(found.whole, (found.a, found.b)).astype(np.int64)
    left = tables.values(found.left, (found.a,)).astype(np.int64)
    right = tables.values(found.right, (found.b,)).astype(np.int64)
    assert isinstance(found.scaled.x, Binary)
    right = -right if found.scaled.x.op == "sub" else right
    sums = left[:, None] + right[None, :]
    if np.abs(sums).max() >= 1 << 31:
        return None
    slope = _slope(found.scaled)
    offset = _offset(sums.ravel(), wanted.ravel(), slope)
    if offset is None:
        return None
    form = _tables_of(left, right, slope, offset, wanted)
    values = [byte_values(each.dtype).astype(np.int64) for each in (found.a, found.b)]
    line = None if form is None else _line_of(form, values, wanted)
    return form if line is None else line


def _line_of(form: _Form, values: Sequence[np.ndarray], wanted: np.ndarray) -> _Line | None:
    """Factors near the tables' slopes with which one offset is right for every pair; None if no such factors are near.

    A pair with the smallest or largest result bounds the offset from one side only: the clamp does the rest.
    """
    slopes = [_steepness(table, value) for table, value in zip((form.left, form.right), values, strict=True)]
    for fewer in range(_FEWER_BITS):
        bits = form.bits - fewer
        found = _line_near([slope / (1 << fewer) for slope in slopes], bits, values, wanted) if bits > 8 else None
        if found is not None:
            return found
    return None


def _line_near(slopes: Sequence[float], bits: int, values: Sequence[np.ndarray], wanted: np.ndarray) -> _Line | None:
    """The first factors around `slopes`, nearest first, that some offset makes right."""
    rises, falls = wanted > wanted.min(), wanted < wanted.max()
    for first, second in sorted(((a, b) for a in _NEAR for b in _NEAR), key=lambda pair: (abs(pair[0]) + abs(pair[1]), pair)):
        left, right = round(slopes[0]) + first, round(slopes[1]) + second
        room = (wanted << bits) - (values[0][:, None] * left + values[1][None, :] * right)
        least = int(np.max(room[rises], initial=-(1 << 40)))
        most = int(np.min(room[falls], initial=1 << 40)) + (1 << bits)
        if least < most:
            return _checked_line(left, right, (least + most) // 2, bits, values, wanted)
    return None


def _steepness(table: np.ndarray, values: np.ndarray) -> float:
    """What a table gains for each step of its argument."""
    order = np.argsort(values)
    return float(table[order[-1]].astype(np.int64) - table[order[0]]) / 255


def _checked_line(left: int, right: int, offset: int, bits: int, values: Sequence[np.ndarray], wanted: np.ndarray) -> _Line | None:
    """The line with the widest clamp that is right at every pair, if all its sums are int32."""
    sums = values[0][:, None] * left + values[1][None, :] * right + offset
    parts = (sums, values[0] * left, values[1] * right, values[1] * right + offset)
    if any(np.abs(part).max() >= 1 << 31 for part in parts):
        return None
    for low, high in ((-128, 127), (int(wanted.min()), int(wanted.max()))):
        if np.array_equal(np.clip(sums >> bits, low, high), wanted):
            return _Line(left, right, offset, bits, low, high)
    return None


def _slope(scaled: Requantise) -> Fraction:
    """Output steps for one step of the sum."""
    assert isinstance(scaled.multiplier, Const) and isinstance(scaled.shift, Const)
    return Fraction(int(scaled.multiplier.value)) * Fraction(2) ** (int(scaled.shift.value) - 31)


def _offset(sums: np.ndarray, wanted: np.ndarray, slope: Fraction) -> Fraction | None:
    """The middle of the offsets for which floor(slope * sum + offset) is `wanted` between its smallest and largest value."""
    low, high = int(wanted.min()), int(wanted.max())
    lower: list[Fraction] = []
    upper: list[Fraction] = []
    for step in range(low + 1, high + 1):
        reached = wanted >= step
        lower.append(step - slope * int(sums[reached].min()))
        upper.append(step - slope * int(sums[~reached].max()))
    if not lower or max(lower) >= min(upper):
        return None
    return (max(lower) + min(upper)) / 2


def _tables_of(left: np.ndarray, right: np.ndarray, slope: Fraction, offset: Fraction, wanted: np.ndarray) -> _Form | None:
    for bits in range(_MOST_FRACTION_BITS, 7, -1):
        scale = slope * (1 << bits)
        first = np.array([round(int(x) * scale) for x in left.tolist()], np.int64)
        second = np.array([round(int(x) * scale + offset * (1 << bits)) for x in right.tolist()], np.int64)
        sums = first[:, None] + second[None, :]
        if np.abs(first).max() < 1 << 31 and np.abs(second).max() < 1 << 31 and np.abs(sums).max() < 1 << 31:
            return _checked(first, second, bits, wanted)
    return None


def _checked(first: np.ndarray, second: np.ndarray, bits: int, wanted: np.ndarray) -> _Form | None:
    """The form with the widest clamp that is right at every pair: -128..127 is one instruction on many cores."""
    sums = (first[:, None] + second[None, :]) >> bits
    for low, high in ((-128, 127), (int(wanted.min()), int(wanted.max()))):
        if np.array_equal(np.clip(sums, low, high), wanted):
            return _Form(first.astype(np.int32), second.astype(np.int32), bits, low, high)
    return None
