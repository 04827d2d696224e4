"""Instructions of Advanced SIMD by name, for both architectures: one method for one instruction (or the two that Armv7 needs).

Enters: LLVM vectors. Leaves: LLVM vectors.
Invariant: a method means the same on Armv7 and AArch64; what a core lacks (SDOT, SMMLA) is asked for only where its target has it.

Plain arithmetic, `mul`, `add`, `shl` and conversions of vectors are LLVM's own instructions: use the builder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from aot.llvm.emission import KernelFunction
from aot.llvm.types import I8, I16, I32, I64, POINTER, Value


def vector(type: Any, lanes: int) -> Any:
    """The LLVM type of a vector."""
    return ir.VectorType(type, lanes)


BYTES8, BYTES16 = vector(I8, 8), vector(I8, 16)
HALVES4, HALVES8 = vector(I16, 4), vector(I16, 8)
WORDS2, WORDS4 = vector(I32, 2), vector(I32, 4)
LONGS2 = vector(I64, 2)


def splat(number: int, type: Any) -> Value:
    """A constant in all lanes."""
    return ir.Constant(type, [type.element(number)] * type.count)


def constants(numbers: Sequence[int], type: Any) -> Value:
    return ir.Constant(type, [type.element(int(number)) for number in numbers])


class Simd:
    """Emits at the function's builder."""

    def __init__(self, function: KernelFunction) -> None:
        self.function, self.builder = function, function.builder
        self.is_wide = function.target.triple.startswith(("aarch64", "arm64"))

    # Memory. Addresses are pointers and byte distances.

    def at(self, pointer: Value, nbytes: Value | int) -> Value:
        """The address so many bytes behind a pointer."""
        if isinstance(nbytes, int):
            if nbytes == 0:
                return pointer
            nbytes = I32(nbytes)
        return self.builder.gep(pointer, [nbytes], inbounds=True, source_etype=I8)

    def load(self, pointer: Value, type: Any, nbytes: Value | int = 0, align: int = 1) -> Value:
        return self.builder.load(self.at(pointer, nbytes), align=align, typ=type)

    def store(self, value: Value, pointer: Value, nbytes: Value | int = 0, align: int = 1) -> None:
        self.builder.store(value, self.at(pointer, nbytes), align=align)

    def stream(self, pointer: Value, type: Any, count: int) -> tuple[list[Value], Value]:
        """`count` vectors that follow each other, and the pointer behind them: on AArch64 one LD1 for four of them, with write-back."""
        found: list[Value] = []
        nbytes = type.count * type.element.width // 8
        while len(found) < count:
            some = min(4 if self.is_wide else 1, count - len(found))
            if some == 1:
                found.append(self.load(pointer, type))
            else:
                name = f"llvm.aarch64.neon.ld1x{some}.{_suffix(type)}.p0"
                several = self._call(name, ir.LiteralStructType([type] * some), pointer)
                found += [self.builder.extract_value(several, number) for number in range(some)]
            pointer = self._kept(self.at(pointer, some * nbytes))
        return found, pointer

    def _kept(self, pointer: Value) -> Value:
        """The same pointer, which LLVM does not take apart into another and a distance: so write-back stays."""
        assembly = ir.InlineAsm(ir.FunctionType(POINTER, [POINTER]), "", "=r,0")
        return self.builder.call(assembly, [pointer])

    def store_lanes(self, value: Value, pointer: Value, count: int, nbytes: int = 0, first: int = 0) -> None:
        """Store `count` lanes of a vector from lane `first`, in as few stores as powers of two allow."""
        lane = value.type.element.width // 8
        while count:
            some = 1 << (count.bit_length() - 1)
            part = self.take(value, range(first, first + some)) if some < value.type.count else value
            if some == 1:
                part = self.builder.extract_element(value, I32(first))
            elif some < value.type.count:
                part = self.builder.bitcast(part, ir.IntType(8 * lane * some)) if lane * some <= 8 else part
            self.store(part, pointer, nbytes)
            first, count, nbytes = first + some, count - some, nbytes + some * lane

    # Lanes.

    def dup(self, value: Value, lanes: int) -> Value:
        """DUP: a scalar in all lanes."""
        type = vector(value.type, lanes)
        one = self.builder.insert_element(ir.Constant(type, ir.Undefined), value, I32(0))
        return self.builder.shuffle_vector(one, ir.Constant(type, ir.Undefined), ir.Constant(vector(I32, lanes), None))

    def shuffle(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        """Lanes of a, then of b, by number: ZIP, UZP, TRN, EXT, REV or DUP, whichever LLVM finds."""
        return self.builder.shuffle_vector(a, b, constants(lanes, vector(I32, len(lanes))))

    def take(self, a: Value, lanes: Sequence[int]) -> Value:
        """Some lanes of one vector."""
        return self.shuffle(a, ir.Constant(a.type, ir.Undefined), lanes)

    def join(self, low: Value, high: Value) -> Value:
        """Two vectors as one of twice the lanes."""
        return self.shuffle(low, high, range(2 * low.type.count))

    def paired(self, parts: Sequence[Value]) -> Value:
        """One vector, or two as one."""
        return self.join(*parts) if len(parts) > 1 else parts[0]

    def halves(self, a: Value) -> tuple[Value, Value]:
        """The lower and the upper lanes."""
        half = a.type.count // 2
        return self.take(a, range(half)), self.take(a, range(half, 2 * half))

    def zip(self, a: Value, b: Value) -> tuple[Value, Value]:
        """ZIP1 and ZIP2: lanes of a and b by turns."""
        count = a.type.count
        order = [lane + side * count for lane in range(count) for side in (0, 1)]
        return self.shuffle(a, b, order[:count]), self.shuffle(a, b, order[count:])

    def unzip(self, a: Value, b: Value) -> tuple[Value, Value]:
        """UZP1 and UZP2: even lanes of a then b, and odd ones."""
        count = a.type.count
        return self.shuffle(a, b, range(0, 2 * count, 2)), self.shuffle(a, b, range(1, 2 * count, 2))

    def cast(self, a: Value, type: Any) -> Value:
        """The same bits."""
        return a if a.type == type else self.builder.bitcast(a, type)

    def table(self, tables: Sequence[Value], indices: Value) -> Value:
        """TBL: bytes of one to four tables (16 bytes each, 8 on Armv7), 0 beyond; indices: 16 or 8 bytes (8 on Armv7)."""
        name = f"llvm.aarch64.neon.tbl{len(tables)}.v{indices.type.count}i8" if self.is_wide else f"llvm.arm.neon.vtbl{len(tables)}"
        return self._call(name, indices.type, *tables, indices)

    def table_into(self, found: Value, tables: Sequence[Value], indices: Value) -> Value:
        """TBX: as TBL, but where an index is beyond, `found` stays (AArch64)."""
        return self._call(f"llvm.aarch64.neon.tbx{len(tables)}.v{indices.type.count}i8", indices.type, found, *tables, indices)

    # Products.

    def sdot(self, sums: Value, a: Value, b: Value) -> Value:
        """SDOT: each int32 lane takes in four products of int8."""
        return self._call("llvm.aarch64.neon.sdot.v4i32.v16i8", WORDS4, sums, a, b)

    def smmla(self, sums: Value, a: Value, b: Value) -> Value:
        """SMMLA: 2x2 sums take in the product of two rows of eight int8 with two others: (a0 b0, a0 b1, a1 b0, a1 b1)."""
        return self._call("llvm.aarch64.neon.smmla.v4i32.v16i8", WORDS4, sums, a, b)

    def widening_multiply(self, a: Value, b: Value) -> Value:
        """SMULL: int8 to int16, or int16 to int32. Adding to the result makes it SMLAL."""
        wide = vector(ir.IntType(2 * a.type.element.width), a.type.count)
        name = "llvm.aarch64.neon.smull" if self.is_wide else "llvm.arm.neon.vmulls"
        return self._call(f"{name}.{_suffix(wide)}", wide, a, b)

    def pairwise_widening_add(self, sums: Value | None, a: Value) -> Value:
        """SADALP: each lane takes in two neighbours of half its bits. Without sums, SADDLP."""
        wide = vector(ir.IntType(2 * a.type.element.width), a.type.count // 2)
        if sums is not None and not self.is_wide:
            return self._call(f"llvm.arm.neon.vpadals.{_suffix(wide)}.{_suffix(a.type)}", wide, sums, a)
        name = "llvm.aarch64.neon.saddlp" if self.is_wide else "llvm.arm.neon.vpaddls"
        pairs = self._call(f"{name}.{_suffix(wide)}.{_suffix(a.type)}", wide, a)
        return pairs if sums is None else self.builder.add(sums, pairs)

    def lanes_added(self, four: Sequence[Value]) -> Value:
        """The sum of all lanes of each of four vectors of words. ADDP three times; on Armv7 VADD and VPADD."""
        a, b, c, d = four
        if self.is_wide:
            name = "llvm.aarch64.neon.addp.v4i32"
            return self._call(name, WORDS4, self._call(name, WORDS4, a, b), self._call(name, WORDS4, c, d))
        halved = [self.builder.add(*self.halves(one)) for one in four]
        name = "llvm.arm.neon.vpadd.v2i32"
        return self.join(self._call(name, WORDS2, *halved[:2]), self._call(name, WORDS2, *halved[2:]))

    def doubling_high(self, a: Value, b: Value) -> Value:
        """SQDMULH: the upper half of 2ab, rounded down, saturated."""
        return self._same("sqdmulh", "vqdmulh", a, b)

    def rounding_doubling_high(self, a: Value, b: Value) -> Value:
        """SQRDMULH: the upper half of 2ab, rounded half up, saturated."""
        return self._same("sqrdmulh", "vqrdmulh", a, b)

    # Sums and shifts.

    def saturating_add(self, a: Value, b: Value) -> Value:
        return self._call(f"llvm.sadd.sat.{_suffix(a.type)}", a.type, a, b)

    def saturating_add_unsigned(self, a: Value, b: Value) -> Value:
        return self._call(f"llvm.uadd.sat.{_suffix(a.type)}", a.type, a, b)

    def min(self, a: Value, b: Value) -> Value:
        return self._call(f"llvm.smin.{_suffix(a.type)}", a.type, a, b)

    def max(self, a: Value, b: Value) -> Value:
        return self._call(f"llvm.smax.{_suffix(a.type)}", a.type, a, b)

    def add_sign(self, a: Value) -> Value:
        """SSRA: negative lanes less by one."""
        return self.builder.add(a, self.builder.ashr(a, splat(a.type.element.width - 1, a.type)))

    def shift(self, a: Value, by: Value) -> Value:
        """SSHL: lane by lane to the left; to the right, rounded down, by negative numbers."""
        return self._same("sshl", "vshifts", a, by)

    def rounding_shift(self, a: Value, by: Value) -> Value:
        """SRSHL: lane by lane to the left; to the right, rounded half up, by negative numbers."""
        return self._same("srshl", "vrshifts", a, by)

    def narrow(self, a: Value) -> Value:
        """SQXTN: lanes of half the bits, saturated."""
        to = _halved(a.type)
        name = "llvm.aarch64.neon.sqxtn" if self.is_wide else "llvm.arm.neon.vqmovns"
        return self._call(f"{name}.{_suffix(to)}", to, a)

    def narrow_unsigned(self, a: Value) -> Value:
        """SQXTUN: lanes of half the bits, saturated to unsigned ones."""
        to = _halved(a.type)
        name = "llvm.aarch64.neon.sqxtun" if self.is_wide else "llvm.arm.neon.vqmovnsu"
        return self._call(f"{name}.{_suffix(to)}", to, a)

    def truncate(self, a: Value, b: Value) -> Value:
        """UZP1 (XTN twice on Armv7): the lower halves of a's lanes, then of b's."""
        both = self.join(a, b)
        return self.builder.trunc(both, _halved(both.type))

    def widen(self, a: Value, unsigned: bool = False) -> Value:
        """SXTL or UXTL: lanes of twice the bits."""
        to = vector(ir.IntType(2 * a.type.element.width), a.type.count)
        return self.builder.zext(a, to) if unsigned else self.builder.sext(a, to)

    def upper_halves(self, a: Value) -> Value:
        """SHRN: the upper half of each lane. Of a sum that makes ADDHN."""
        width = a.type.element.width // 2
        return self.builder.trunc(self.builder.lshr(a, splat(width, a.type)), _halved(a.type))

    def shift_narrow(self, a: Value, right: int, rounds: bool) -> Value:
        """SQRSHRN or SQSHRN: shifted to the right by 1 to half the bits, rounded half up or down, then saturated."""
        to = _halved(a.type)
        if self.is_wide:
            return self._call(f"llvm.aarch64.neon.{'sqrshrn' if rounds else 'sqshrn'}.{_suffix(to)}", to, a, I32(right))
        return self._call(f"llvm.arm.neon.{'vqrshiftns' if rounds else 'vqshiftns'}.{_suffix(to)}", to, a, splat(-right, a.type))

    # How intrinsics are called.

    def _same(self, wide: str, narrow: str, a: Value, b: Value) -> Value:
        name = f"llvm.aarch64.neon.{wide}" if self.is_wide else f"llvm.arm.neon.{narrow}"
        return self._call(f"{name}.{_suffix(a.type)}", a.type, a, b)

    def _call(self, name: str, type: Any, *values: Value) -> Value:
        declared = self.function.intrinsic(name, ir.FunctionType(type, [value.type for value in values]))
        return self.builder.call(declared, values)


def _suffix(type: Any) -> str:
    return f"v{type.count}i{type.element.width}"


def _halved(type: Any) -> Any:
    return vector(ir.IntType(type.element.width // 2), type.count)
