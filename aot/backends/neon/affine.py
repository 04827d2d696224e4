"""Sums of two tensors of bytes as the operators' exact form has them: one product each, a sum and a shift.

Enters: an expression over two bytes. Leaves: `Affine`, or None; and, of one byte or two, what an expression is for all of them.
Invariant: no sum leaves 32 bits, so that the instructions give what the expression gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aot.backends.neon.simd import WORDS4, Simd, splat
from aot.graph.evaluate import execute
from aot.graph.expr import Binary, Cast, Const, Expr, Load, axis, rewrite
from aot.graph.ir import DType
from aot.graph.primitive import Map
from aot.llvm.types import Value

_BYTES = (DType.INT8, DType.UINT8)
_HALF, _SHIFTS = 16, range(17, 25)
"""ADDHN shifts by the first; then SQSHRN by 1 to 8."""


@dataclass(frozen=True)
class Affine:
    """clip((x * factors[0] + y * factors[1] + offset) >> shift), clipped to [low, high] inside int8."""

    factors: tuple[int, int]
    offset: int
    shift: int
    low: int
    high: int

    def emit(self, simd: Simd, operands: Sequence[tuple[Value, bool]]) -> Value:
        """Sixteen bytes: MUL, MLA, ADDHN, SQSHRN. operands: sixteen bytes each, and whether these are unsigned."""
        builder, total = simd.builder, None
        for (bytes_, unsigned), factor in zip(operands, self.factors, strict=True):
            halves = [simd.widen(part, unsigned) for part in simd.halves(bytes_)]
            words = [simd.widen(part, unsigned) for half in halves for part in simd.halves(half)]
            products = [builder.mul(word, splat(factor, WORDS4)) for word in words]
            total = products if total is None else [builder.add(a, b) for a, b in zip(total, products, strict=True)]
        assert total is not None
        upper = [simd.upper_halves(builder.add(one, splat(self.offset, WORDS4))) for one in total]
        joined = [simd.join(*upper[at : at + 2]) for at in (0, 2)]
        found = simd.join(*(simd.shift_narrow(one, self.shift - _HALF, False) for one in joined))
        found = found if self.low == -128 else simd.max(found, splat(self.low, found.type))
        return found if self.high == 127 else simd.min(found, splat(self.high, found.type))


def affine_of(value: Expr, operands: tuple[Load, Load]) -> Affine | None:
    """The form of an int8 expression over these two loads of bytes, and nothing else."""
    match value:
        case Cast(
            Binary("min", Binary("max", Binary("shr", total, Const(int(shift))), Const(int(low))), Const(int(high))), DType.INT8
        ) if shift in _SHIFTS and -128 <= low <= high <= 127 and total.dtype is DType.INT32:
            terms = _terms(total, operands)
            if terms is None or max(map(abs, terms)) >= 1 << 31:
                return None
            most = (128 if one.dtype is DType.INT8 else 255 for one in operands)
            reach = sum(abs(factor) * each for factor, each in zip(terms, most, strict=False)) + abs(terms[2])
            return Affine((terms[0], terms[1]), terms[2], shift, low, high) if reach < 1 << 31 else None
        case _:
            pass
    return None


def _terms(expr: Expr, operands: tuple[Load, Load]) -> tuple[int, int, int] | None:
    """The factor of each operand, and a number."""
    match expr:
        case Const(int(number)):
            return 0, 0, number
        case Cast(Load() as x, DType.INT32) if x in operands:
            return (1, 0, 0) if x == operands[0] else (0, 1, 0)
        case Binary("mul", x, Const(int(factor))):
            inner = _terms(x, operands)
            return None if inner is None else (inner[0] * factor, inner[1] * factor, inner[2] * factor)
        case Binary("add", x, y):
            one, other = _terms(x, operands), _terms(y, operands)
            return None if one is None or other is None else (one[0] + other[0], one[1] + other[1], one[2] + other[2])
        case _:
            pass
    return None


def results(value: Expr, operand: Load, constants: Mapping[str, np.ndarray]) -> np.ndarray:
    """What an expression of bytes over one byte is for each of them, by the byte that memory holds. constants: that it reads."""
    numbers = np.arange(256).astype(np.uint8).view(operand.dtype.np)
    place = Load("operand", (axis(0),), operand.dtype)
    arrays = {**constants, "operand": numbers, "result": np.zeros(256, value.dtype.np)}
    execute(Map("result", (256,), rewrite(value, lambda node: place if node == operand else None)), arrays)
    return arrays["result"].view(np.uint8)
