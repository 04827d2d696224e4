"""Fused expressions four elements at a time, where they are made of int32 arithmetic, tables, and operands beside the output.

Enters: an expression. Leaves: vectors of four int32, as LLVM instructions.
Invariant: a lane holds the value of its element's dtype, as int32; what this does not know is declined beforehand (`refusal`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from llvmlite import ir

from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.layers.operands import Layer
from aot.errors import InternalError
from aot.graph.arithmetic import INT32_MAX
from aot.graph.expr import COMPARE, Acc, Binary, Cast, Const, Expr, Load, Lookup, Requantise, Select, Unary, walk
from aot.graph.ir import DType
from aot.llvm.expressions import uniform
from aot.llvm.types import I8, I16, I32, Value, known_integer

LANES = 4
_BYTES, _HALVES, WORDS = (ir.VectorType(type, LANES) for type in (I8, I16, I32))
_STORED = (DType.INT8, DType.UINT8, DType.INT16)
_SIZES = {DType.INT8: 8, DType.UINT8: 8, DType.INT16: 16, DType.UINT16: 16, DType.INT32: 32}
_UNSIGNED = (DType.UINT8, DType.UINT16)
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_ARITHMETIC = ("add", "sub", "mul", "and", "or", "xor", "min", "max", "shl", "shr", "ushr")


def refusal_of(layer: Layer) -> str:
    """Why a layer's fused expression is computed element by element; empty if it need not be."""
    if layer.split.rest is None or layer.rest_axes:
        return "it asks where an element is"
    return refusal(layer.split.rest, layer.beside)


def refusal(expression: Expr, beside: Sequence[Load], numbers: Mapping[Load, np.ndarray] | None = None) -> str:
    """Why an expression over these loads of the element that is stored is not for vectors; empty if it is. numbers: what those that are
    constants may load."""

    def lies(expr: Expr, low: int, high: int) -> bool:
        found = np.array(expr.value) if isinstance(expr, Const) else (numbers or {}).get(expr) if isinstance(expr, Load) else None
        return found is not None and low <= found.min() and found.max() <= high

    if expression.dtype not in _STORED:
        return f"its results are {expression.dtype}"
    for expr in walk(expression):
        match expr:
            case Load() if expr in beside and expr.dtype in (*_STORED, DType.INT32):
                pass
            case Lookup() if expr.dtype in _SIZES:
                pass
            case Acc() | Const(int()) if expr.dtype in _SIZES:
                pass
            case Requantise(_, multiplier, shift) if lies(multiplier, 0, INT32_MAX) and lies(shift, -31, 30):
                pass
            case Cast() if _casts(expr):
                pass
            case Binary(op, a) if (op in _ARITHMETIC or op in COMPARE) and a.dtype is DType.INT32:
                pass
            case Binary("min" | "max") if expr.dtype in _SIZES:
                pass
            case Select() | Unary("abs" | "neg") if expr.dtype is DType.INT32:
                pass
            case _:
                return f"it has a {type(expr).__name__} of {getattr(expr, 'dtype', '')}"
    return ""


def _casts(expr: Cast) -> bool:
    return expr.dtype in (*_STORED, DType.INT32) and expr.x.dtype in _SIZES


def widened(dsp: Dsp, address: Value, nbytes: int, unsigned: bool) -> Value:
    """Four integers of so many bytes, as int32."""
    if nbytes == 4:
        return dsp.builder.load(address, align=4, typ=WORDS)
    loaded = dsp.builder.load(address, align=nbytes, typ=_BYTES if nbytes == 1 else _HALVES)
    return dsp.builder.zext(loaded, WORDS) if unsigned else dsp.builder.sext(loaded, WORDS)


def splat(value: int) -> Value:
    """The same number in all lanes."""
    return ir.Constant(WORDS, [value] * LANES)


def everywhere(dsp: Dsp, scalar: Value) -> Value:
    """An int32 in all lanes."""
    undefined = ir.Constant(WORDS, ir.Undefined)
    first = dsp.builder.insert_element(undefined, scalar, I32(0))
    return dsp.builder.shuffle_vector(first, undefined, ir.Constant(WORDS, [0] * LANES))


def narrowed(expr: Expr) -> Expr:
    """An expression without the cast at its end that only drops bits."""
    return expr.x if isinstance(expr, Cast) and _SIZES[expr.x.dtype] >= _SIZES[expr.dtype] else expr


@dataclass
class Vectors:
    """load(load or None for the accumulator, as unsigned): four elements widened to int32."""

    dsp: Dsp
    load: Callable[[Load | None, bool], Value]
    done: dict[int, Value] = field(default_factory=dict[int, Value])

    def value(self, expr: Expr) -> Value:
        if id(expr) not in self.done:
            self.done[id(expr)] = self._emit(expr)
        return self.done[id(expr)]

    def store(self, expr: Expr, out: Value) -> None:
        """Four elements: a cast at the end only drops bits, which the store does."""
        narrow = self.dsp.builder.trunc(self.value(narrowed(expr)), _BYTES if expr.dtype.nbytes == 1 else _HALVES)
        self.dsp.builder.store(narrow, out, align=expr.dtype.nbytes)

    def _emit(self, expr: Expr) -> Value:
        builder = self.dsp.builder
        match expr:
            case Const(value):
                return splat(int(value))
            case Acc():
                return self.load(None, False)
            case Load():
                return self.load(expr, expr.dtype is DType.UINT8)
            case Lookup(buffer, index):
                single = uniform(self.dsp.function.buffer(buffer).data)
                if single is not None:
                    return splat(int(single))
                return self._gather(self.dsp.function.pointer(buffer), self.value(index), expr.dtype)
            case Cast(Acc() as x, DType.UINT8):
                return self.load(None, True) if x.dtype is DType.INT8 else self.value(x)
            case Cast(Load() as x, DType.UINT8):
                return self.load(x, True)
            case Cast(x, dtype):
                return self._cast(self.value(x), x.dtype, dtype)
            case Requantise(x, Const(multiplier), Const(shift)):
                return self._requantise(self.value(x), int(multiplier), int(shift))
            case Requantise(x, multiplier, shift):
                return self._requantise_by(*map(self.value, (x, multiplier, shift)))
            case Select(condition, yes, no):
                return builder.select(self.value(condition), self.value(yes), self.value(no))
            case Unary("neg", x):
                return builder.neg(self.value(x))
            case Unary("abs", x):
                return self._call("llvm.abs.v4i32", self.value(x), ir.Constant(ir.IntType(1), 0))
            case Binary(op, a, b) if op in COMPARE:
                return builder.icmp_signed(_COMPARE[op], self.value(a), self.value(b))
            case Binary("min" | "max" as op, a, b):
                return self._call(f"llvm.s{op}.v4i32", self.value(a), self.value(b))
            case Binary(op, a, b):
                name = {"and": "and_", "or": "or_", "shr": "ashr", "ushr": "lshr"}.get(op, op)
                return getattr(builder, name)(self.value(a), self.value(b))
            case _:
                pass
        raise InternalError(f"no vector of {expr}")

    def _cast(self, x: Value, source: DType, dtype: DType) -> Value:
        builder = self.dsp.builder
        if source is dtype or dtype is DType.INT32 or _SIZES[source] < _SIZES[dtype]:
            return x
        if dtype is DType.UINT8:
            return builder.and_(x, splat(255))
        count = splat(32 - _SIZES[dtype])
        return builder.ashr(builder.shl(x, count), count)

    def _call(self, name: str, *arguments: Value) -> Value:
        type = ir.FunctionType(WORDS, [argument.type for argument in arguments])
        return self.dsp.builder.call(self.dsp.function.intrinsic(name, type), arguments)

    def _requantise(self, x: Value, multiplier: int, shift: int) -> Value:
        """Both roundings: VQRDMULH, then VRSHL, with ties of negative numbers mended to go away from zero."""
        builder = self.dsp.builder
        if shift > 0:
            x = builder.shl(x, splat(shift))
        high = self._call("llvm.arm.mve.vqrdmulh.v4i32", x, splat(multiplier))
        if shift >= 0:
            return high
        mended = self._call("llvm.sadd.sat.v4i32", high, builder.ashr(high, splat(31)))
        return self._call("llvm.arm.mve.vshl.vector.v4i32.v4i32", mended, splat(shift), I32(0), I32(1), I32(0))

    def _requantise_by(self, x: Value, multiplier: Value, shift: Value) -> Value:
        """The same by numbers of each lane: only a shift to the right, which is negative, has ties to mend."""
        builder, zero = self.dsp.builder, splat(0)
        left, right = (self._call(f"llvm.s{op}.v4i32", shift, zero) for op in ("max", "min"))
        high = self._call("llvm.arm.mve.vqrdmulh.v4i32", builder.shl(x, left), multiplier)
        mended = self._call("llvm.sadd.sat.v4i32", high, builder.ashr(builder.and_(high, right), splat(31)))
        return self._call("llvm.arm.mve.vshl.vector.v4i32.v4i32", mended, right, I32(0), I32(1), I32(0))

    def _gather(self, base: Value, index: Value, dtype: DType) -> Value:
        """VLDR of four elements of a table."""
        bits = _SIZES[dtype]
        how = I32(bits), I32({8: 0, 16: 1, 32: 2}[bits]), I32(int(dtype in _UNSIGNED))
        return self._call("llvm.arm.mve.vldr.gather.offset.v4i32.p0.v4i32", base, index, *how)


def run(
    dsp: Dsp,
    count: int | Value,
    pointers: Sequence[tuple[Value, int]],
    four: Callable[..., None],
    one: Callable[..., None],
    tail: bool,
) -> None:
    """`count` elements (at least one) at pointers that step by so many bytes: by `four` at a time, the rest by `one`. tail: whether there
    can be a rest."""
    builder, total = dsp.builder, I32(count) if isinstance(count, int) else count
    known = known_integer(total)

    def loop(turns: Value, start: Sequence[Value], step: int, body: Callable[..., None]) -> None:
        with dsp.repeat(turns if known is None else known // LANES if step == LANES else known % LANES, list(start)) as carried:
            body(*carried.values)
            carried.next = tuple(dsp.at(pointer, step * size) for pointer, size in zip(carried.values, sizes, strict=True))

    starts, sizes = [pointer for pointer, _ in pointers], [nbytes for _, nbytes in pointers]
    turns, left = builder.lshr(total, I32(2)), builder.and_(total, I32(LANES - 1))
    whole = builder.sub(total, left)
    behind = [dsp.at(pointer, whole if nbytes == 1 else builder.mul(whole, I32(nbytes))) for pointer, nbytes in pointers]
    if known is not None:
        if known >= LANES:
            loop(turns, starts, LANES, four)
        if known % LANES:
            loop(left, behind, 1, one)
        return
    if not tail:
        loop(turns, starts, LANES, four)
        return
    for number, start, step, body in ((turns, starts, LANES, four), (left, behind, 1, one)):
        with builder.if_then(builder.icmp_signed(">", number, I32(0))):
            loop(number, start, step, body)
