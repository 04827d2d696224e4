# pyright: basic
"""Arithmetic of one element: casts, operators, requantisation.

Enters: LLVM values and their dtypes. Leaves: instructions at the builder's position, and local helper functions.
Invariant: as `aot.graph.evaluate`: integers wrap, floats are never contracted or reordered, nothing is undefined behaviour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llvmlite import ir

from aot.errors import InternalError
from aot.graph.ir import DType
from aot.llvm.types import I1, I32, I64, Builder, Value, known_integer, register_type

if TYPE_CHECKING:
    from aot.target import Target

_WITHOUT_LONG_MULTIPLY = ("thumbv6m", "armv6m", "thumbv8m.base", "armv8m.base", "thumbv4t", "thumbv5", "riscv", "avr", "msp430")
_INTRINSIC = {"sqrt": "llvm.sqrt", "floor": "llvm.floor", "ceil": "llvm.ceil", "rint": "llvm.rint", "trunc": "llvm.trunc"}
_BITWISE = {
    "and": ir.IRBuilder.and_,
    "or": ir.IRBuilder.or_,
    "xor": ir.IRBuilder.xor,
    "shl": ir.IRBuilder.shl,
    "ushr": ir.IRBuilder.lshr,
}
_INTEGER = {"add": ir.IRBuilder.add, "sub": ir.IRBuilder.sub, "mul": ir.IRBuilder.mul}
_FLOAT = {
    "add": ir.IRBuilder.fadd,
    "sub": ir.IRBuilder.fsub,
    "mul": ir.IRBuilder.fmul,
    "div": ir.IRBuilder.fdiv,
    "rem": ir.IRBuilder.frem,
}


def has_long_multiply(target: Target) -> bool:
    """Whether the core multiplies 32x32 -> 64 bits itself (or no worse): all but the smallest Arm cores and RISC-V without M."""
    return "long_multiply" in target.has or not target.triple.startswith(_WITHOUT_LONG_MULTIPLY)


def cast(builder: Builder, x: Value, source: DType, dtype: DType) -> Value:
    """Conversion as `expr.Cast` means it."""
    type = register_type(dtype)
    if source is dtype:
        return x
    if dtype is DType.BOOL:
        zero = ir.Constant(x.type, 0)
        return builder.fcmp_unordered("!=", x, zero) if source.is_float else builder.icmp_unsigned("!=", x, zero)
    if source.is_float:
        if dtype.is_float:
            return builder.fpext(x, type) if dtype.nbytes > source.nbytes else builder.fptrunc(x, type)
        return builder.fptosi(x, type) if dtype.is_signed else builder.fptoui(x, type)
    if dtype.is_float:
        return builder.sitofp(x, type) if source.is_signed else builder.uitofp(x, type)
    if x.type.width >= type.width:
        return x if x.type == type else builder.trunc(x, type)
    return builder.sext(x, type) if source.is_signed else builder.zext(x, type)


def unary(builder: Builder, op: str, x: Value, dtype: DType) -> Value:
    """`expr.UNARY` of a register value."""
    if op in _INTRINSIC:
        return builder.call(builder.module.declare_intrinsic(_INTRINSIC[op], [x.type]), [x])
    if op == "clz":
        return builder.ctlz(x, I1(0))
    if op == "not":
        return builder.not_(x)
    if op == "neg":
        return builder.fneg(x) if dtype.is_float else builder.neg(x)
    if op == "abs":
        if dtype.is_float:
            return builder.call(builder.module.declare_intrinsic("llvm.fabs", [x.type]), [x])
        if not dtype.is_signed:
            return x
        return builder.select(builder.icmp_signed("<", x, ir.Constant(x.type, 0)), builder.neg(x), x)
    raise InternalError(f"unknown operation {op}")


def compare(builder: Builder, sign: str, a: Value, b: Value, dtype: DType) -> Value:
    """A comparison as i1; with a NaN only `!=` holds."""
    if dtype.is_float:
        return builder.fcmp_unordered(sign, a, b) if sign == "!=" else builder.fcmp_ordered(sign, a, b)
    return builder.icmp_signed(sign, a, b) if dtype.is_signed else builder.icmp_unsigned(sign, a, b)


def binary(builder: Builder, op: str, a: Value, b: Value, dtype: DType) -> Value:
    """`expr.ARITHMETIC` of register values of one dtype."""
    if op in ("min", "max"):
        less = compare(builder, "<", a, b, dtype)
        return builder.select(less, a, b) if op == "min" else builder.select(less, b, a)
    if dtype.is_float and op in _FLOAT:
        return _FLOAT[op](builder, a, b)
    if op in _INTEGER and dtype is not DType.BOOL:
        return _INTEGER[op](builder, a, b)
    if op in _BITWISE:
        return _BITWISE[op](builder, a, b)
    if op == "shr":
        return builder.ashr(a, b) if dtype.is_signed else builder.lshr(a, b)
    if op in ("div", "rem") and dtype.is_integer:
        return _divide(builder, op, a, b, dtype)
    raise InternalError(f"{op} of {dtype} is not defined")


def _divide(builder: Builder, op: str, a: Value, b: Value, dtype: DType) -> Value:
    """Towards zero; x / 0 is x, and the smallest number / -1 wraps (neither traps)."""
    one, zero, minus = (ir.Constant(a.type, n) for n in (1, 0, -1))
    known = known_integer(b)
    divide = builder.sdiv if dtype.is_signed else builder.udiv
    if known not in (None, 0, -1):
        return divide(a, b) if op == "div" else (builder.srem if dtype.is_signed else builder.urem)(a, b)
    safe = builder.select(builder.icmp_unsigned("==", b, zero), one, b)
    if dtype.is_signed:
        negative = builder.icmp_unsigned("==", b, minus)
        safe = builder.select(negative, one, safe)
    quotient = divide(a, safe)
    if dtype.is_signed:
        quotient = builder.select(negative, builder.neg(a), quotient)
    return quotient if op == "div" else builder.sub(a, builder.mul(quotient, b))


def requantise(builder: Builder, x: Value, multiplier: Value, shift: Value, shifts: tuple[int, int]) -> Value:
    """`expr.Requantise` with a 64-bit product. `shifts`: the range of `shift`, which decides what is emitted.

    SRDHM of a non-negative multiplier is floor((x * multiplier + 2^30) / 2^31), because its ties never differ from round-half-up.
    Source: tflite-micro, tensorflow/lite/kernels/internal/common.cc.
    """
    low, high = shifts
    if high > 0:
        x = builder.shl(x, shift if low >= 0 else _at_least_zero(builder, shift))
    product = builder.mul(builder.sext(x, I64), builder.sext(multiplier, I64), flags=("nsw",))
    rounded = builder.ashr(builder.add(product, I64(1 << 30), flags=("nsw",)), I64(31))
    return _round_right(builder, builder.trunc(rounded, I32), shift, shifts)


def _at_least_zero(builder: Builder, shift: Value) -> Value:
    return builder.select(builder.icmp_signed(">", shift, I32(0)), shift, I32(0))


def _round_right(builder: Builder, high: Value, shift: Value, shifts: tuple[int, int]) -> Value:
    """RoundingDivideByPOT(high, -shift) where shift < 0, else `high`: half away from zero.

    For e = -shift > 0: (((high - (high < 0)) >> (e - 1)) + 1) >> 1. Nothing overflows, because |high| < 2^31 - 1.
    """
    if shifts[0] >= 0:
        return high
    less = builder.add(high, builder.ashr(high, I32(31)))
    halves = builder.ashr(less, builder.not_(shift))
    rounded = builder.ashr(builder.add(halves, I32(1)), I32(1))
    return rounded if shifts[1] < 0 else builder.select(builder.icmp_signed("<", shift, I32(0)), rounded, high)


def build_requantise(function: ir.Function) -> None:
    """int32 (x, multiplier, shift) -> int32 out of 16-bit halves, for cores that multiply 32x32 -> 32 bits only."""
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    x, multiplier, shift = function.args
    x = builder.shl(x, _at_least_zero(builder, shift))
    x_low, x_high = builder.and_(x, I32(0xFFFF)), builder.ashr(x, I32(16))
    m_low, m_high = builder.and_(multiplier, I32(0xFFFF)), builder.lshr(multiplier, I32(16))
    lows, cross, other = builder.mul(x_low, m_low), builder.mul(x_high, m_low), builder.mul(x_low, m_high)
    middle = builder.add(builder.add(builder.lshr(lows, I32(16)), other), builder.and_(cross, I32(0xFFFF)))
    high = builder.add(builder.mul(x_high, m_high), builder.add(builder.ashr(cross, I32(16)), builder.lshr(middle, I32(16))))
    low = builder.or_(builder.shl(middle, I32(16)), builder.and_(lows, I32(0xFFFF)))
    nudged = builder.add(low, I32(1 << 30))
    carry = builder.zext(builder.icmp_unsigned("<", nudged, low), I32)
    doubled = builder.or_(builder.shl(builder.add(high, carry), I32(1)), builder.lshr(nudged, I32(31)))
    builder.ret(_round_right(builder, doubled, shift, (-31, 30)))
