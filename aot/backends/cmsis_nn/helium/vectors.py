"""Fused expressions four elements at a time, where they are made of int32 arithmetic, tables, and operands beside the output.

Enters: an expression. Leaves: vectors of four int32, as LLVM instructions.
Invariant: a lane holds the value of its element's dtype, as int32; what this does not know is declined beforehand (`refusal`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from llvmlite import ir

from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.cmsis_nn.operands import Layer
from aot.errors import InternalError
from aot.graph.expr import Acc, Binary, Cast, Const, Expr, Load, Lookup, walk
from aot.graph.ir import DType
from aot.llvm.expressions import uniform
from aot.llvm.types import I8, I32, POINTER, Value

LANES = 4
BYTES, WORDS = (ir.VectorType(type, LANES) for type in (I8, I32))
_BYTE = (DType.INT8, DType.UINT8)
_SIZES = {DType.INT8: 8, DType.UINT8: 8, DType.INT16: 16, DType.INT32: 32}
_ARITHMETIC = ("add", "sub", "mul", "and", "or", "xor", "min", "max", "shl", "shr", "ushr")


def refusal(layer: Layer) -> str:
    """Why a layer's fused expression is computed element by element; empty if it need not be."""
    rest = layer.split.rest
    if rest is None or rest.dtype not in _BYTE:
        return "its results are not bytes"
    if layer.rest_axes:
        return "it asks where an element is"
    for expr in walk(rest):
        match expr:
            case Load() if expr in layer.beside and expr.dtype in _BYTE:
                pass
            case Lookup() if expr.dtype in _SIZES:
                pass
            case Acc() | Const(int(), DType.INT32):
                pass
            case Cast() if _casts(expr):
                pass
            case Binary(op) if op in _ARITHMETIC and expr.dtype is DType.INT32:
                pass
            case _:
                return f"it has {type(expr).__name__} of {getattr(expr, 'dtype', '')}"
    return ""


def _casts(expr: Cast) -> bool:
    return expr.dtype in (*_BYTE, DType.INT32) and expr.x.dtype in _SIZES


@dataclass
class Vectors:
    """load(load or None for the accumulator, as unsigned): four bytes widened to int32."""

    dsp: Dsp
    load: Callable[[Load | None, bool], Value]
    done: dict[int, Value] = field(default_factory=dict)

    def value(self, expr: Expr) -> Value:
        if id(expr) not in self.done:
            self.done[id(expr)] = self._emit(expr)
        return self.done[id(expr)]

    def stored(self, expr: Expr) -> Value:
        """The four bytes to store: a cast at the end only drops bits, which the store does."""
        inner = expr.x if isinstance(expr, Cast) else expr
        return self.dsp.builder.trunc(self.value(inner), BYTES)

    def _emit(self, expr: Expr) -> Value:
        builder = self.dsp.builder
        match expr:
            case Const(value):
                return ir.Constant(WORDS, [int(value)] * LANES)
            case Acc():
                return self.load(None, False)
            case Load():
                return self.load(expr, expr.dtype is DType.UINT8)
            case Lookup(buffer, index):
                single = uniform(self.dsp.function.buffer(buffer).data)
                if single is not None:
                    return ir.Constant(WORDS, [int(single)] * LANES)
                return self._gather(self.dsp.function.pointer(buffer), self.value(index), expr.dtype)
            case Cast(Acc() as x, DType.UINT8):
                return self.load(None, True) if x.dtype is DType.INT8 else self.value(x)
            case Cast(Load() as x, DType.UINT8):
                return self.load(x, True)
            case Cast(x, dtype):
                return self._cast(self.value(x), x.dtype, dtype)
            case Binary("min" | "max" as op, a, b):
                type = ir.FunctionType(WORDS, [WORDS, WORDS])
                return builder.call(self.dsp.function.intrinsic(f"llvm.s{op}.v4i32", type), [self.value(a), self.value(b)])
            case Binary(op, a, b):
                name = {"and": "and_", "or": "or_", "shr": "ashr", "ushr": "lshr"}.get(op, op)
                return getattr(builder, name)(self.value(a), self.value(b))
        raise InternalError(f"no vector of {expr}")

    def _cast(self, x: Value, source: DType, dtype: DType) -> Value:
        builder = self.dsp.builder
        if source is dtype or dtype is DType.INT32 or _SIZES[source] < _SIZES[dtype]:
            return x
        if dtype is DType.UINT8:
            return builder.and_(x, ir.Constant(WORDS, [255] * LANES))
        count = ir.Constant(WORDS, [24] * LANES)
        return builder.ashr(builder.shl(x, count), count)

    def _gather(self, base: Value, index: Value, dtype: DType) -> Value:
        """VLDR of four elements of a table."""
        bits = _SIZES[dtype]
        signature = ir.FunctionType(WORDS, [POINTER, WORDS, I32, I32, I32])
        intrinsic = self.dsp.function.intrinsic("llvm.arm.mve.vldr.gather.offset.v4i32.p0.v4i32", signature)
        arguments = [base, index, I32(bits), I32({8: 0, 16: 1, 32: 2}[bits]), I32(int(dtype is DType.UINT8))]
        return self.dsp.builder.call(intrinsic, arguments)
