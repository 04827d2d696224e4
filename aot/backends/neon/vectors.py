"""Fused expressions sixteen elements at a time, where they are int32 arithmetic on operands that lie beside the output.

Enters: an expression. Leaves: four vectors of four int32, or sixteen bytes.
Invariant: a lane holds the value of its element's dtype, as int32; what this does not know is declined beforehand (`refusal`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from aot.backends.neon.simd import WORDS4, Simd, splat
from aot.errors import InternalError
from aot.graph.arithmetic import INT32_MAX
from aot.graph.expr import Acc, Binary, Cast, Const, Expr, Load, Requantise, walk
from aot.graph.ir import DType
from aot.llvm.types import Value

LANES = 16
Words = list[Value]
_BYTES = (DType.INT8, DType.UINT8)
_ARITHMETIC = {"add": "add", "sub": "sub", "mul": "mul", "and": "and_", "or": "or_", "xor": "xor", "shl": "shl", "shr": "ashr"}


def refusal(expression: Expr, beside: Sequence[Load]) -> str:
    """Why an expression over the accumulator and these loads is computed element by element; empty if it need not be."""
    if expression.dtype not in _BYTES or not isinstance(expression, Cast | Load | Acc):
        return f"its results are {expression.dtype}"
    for expr in walk(expression):
        match expr:
            case Load() if expr in beside and expr.dtype in _BYTES and expr.fill is None:
                pass
            case Acc(DType.INT8) | Const(int()):
                pass
            case Requantise(x, Const(int(multiplier)), Const(int(shift))) if x.dtype is DType.INT32:
                if not (0 <= multiplier <= INT32_MAX and -31 <= shift <= 30):
                    return f"it is scaled by {multiplier} << {shift}"
            case Cast(x, dtype) if {x.dtype, dtype} <= {*_BYTES, DType.INT32}:
                pass
            case Binary(op, a) if (op in _ARITHMETIC or op in ("min", "max")) and a.dtype is DType.INT32:
                pass
            case _:
                return f"it has a {type(expr).__name__} of {getattr(expr, 'dtype', '')}"
    return ""


@dataclass
class Vectors:
    """load(load, or None for the accumulator): sixteen bytes."""

    simd: Simd
    load: Callable[[Load | None], Value]
    done: dict[int, Words] = field(default_factory=dict[int, Words])

    def bytes(self, expr: Expr) -> Value:
        """Sixteen results. A clamp to int8 at the end is done by narrowing, as far as that saturates."""
        simd = self.simd
        match expr:
            case Acc():
                return self.load(None)
            case Load():
                return self.load(expr)
            case Cast(x, DType.INT8) if (clamped := _clamp(x)) is not None:
                inner, low, high = clamped
                found = simd.join(*(simd.narrow(half) for half in self._halved(inner, simd.narrow)))
                found = found if low == -128 else simd.max(found, splat(low, found.type))
                return found if high == 127 else simd.min(found, splat(high, found.type))
            case Cast(x, _) if x.dtype in _BYTES:
                return self.bytes(x)
            case Cast(x, _):
                words = self.value(x)
                halves = [simd.truncate(*words[at : at + 2]) for at in (0, 2)]
                return simd.truncate(*halves)
            case _:
                pass
        raise InternalError(f"no bytes of {expr}")

    def _halved(self, expr: Expr, narrow: Callable[[Value], Value]) -> list[Value]:
        words = [narrow(one) for one in self.value(expr)]
        return [self.simd.join(*words[at : at + 2]) for at in (0, 2)]

    def value(self, expr: Expr) -> Words:
        if id(expr) not in self.done:
            self.done[id(expr)] = self._emit(expr)
        return self.done[id(expr)]

    def _emit(self, expr: Expr) -> Words:
        simd, builder = self.simd, self.simd.builder
        match expr:
            case Const(number):
                return [splat(int(number), WORDS4)] * 4
            case Acc() | Load():
                return self._widened(self.bytes(expr), expr.dtype is DType.UINT8)
            case Cast(x, dtype) if dtype in _BYTES:
                return self._widened(self.bytes(expr), dtype is DType.UINT8)
            case Cast(x, _):
                return self.value(x)
            case Requantise(x, Const(multiplier), Const(shift)):
                return [self._requantise(one, int(multiplier), int(shift)) for one in self.value(x)]
            case Binary("min" | "max" as op, a, b):
                return [getattr(simd, op)(one, other) for one, other in zip(self.value(a), self.value(b), strict=True)]
            case Binary(op, a, b):
                emit = getattr(builder, _ARITHMETIC[op])
                return [emit(one, other) for one, other in zip(self.value(a), self.value(b), strict=True)]
            case _:
                pass
        raise InternalError(f"no vectors of {expr}")

    def _widened(self, bytes: Value, unsigned: bool) -> Words:
        simd = self.simd
        halves = [simd.widen(part, unsigned) for part in simd.halves(bytes)]
        return [simd.widen(part, unsigned) for half in halves for part in simd.halves(half)]

    def _requantise(self, x: Value, multiplier: int, shift: int) -> Value:
        """Both roundings, ties of negative numbers away from zero."""
        simd = self.simd
        x = simd.builder.shl(x, splat(shift, WORDS4)) if shift > 0 else x
        high = simd.rounding_doubling_high(x, splat(multiplier, WORDS4))
        if shift >= 0:
            return high
        sign = simd.builder.ashr(high, splat(31, WORDS4))
        return simd.rounding_shift(simd.saturating_add(high, sign), splat(shift, WORDS4))


def _clamp(expr: Expr) -> tuple[Expr, int, int] | None:
    """min(max(x, low), high), where the bounds are inside int8."""
    match expr:
        case Binary("min", Binary("max", x, Const(low)), Const(high)) if -128 <= int(low) <= int(high) <= 127:
            return x, int(low), int(high)
        case _:
            pass
    return None
