"""Instructions of Armv7E-M's DSP extension, one method for one instruction, in the order of the calls.

Enters: a `KernelFunction`. Leaves: LLVM instructions at its builder's position that LLVM selects as the named ones.
Invariant: loads of pairs and of constants are volatile: LLVM then forms LDRD, and neither merges nor hoists them into spills.

What selects what was found by experiment: LDRD and STRD from volatile 64-bit accesses; SMMLA from the upper half of a 64-bit
product plus an addend; shifts and rotations by constants fold into SSAT, SXTB16 and AND; PKHBT from a masked `or`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from llvmlite import ir

from aot.llvm.emission import Carried, KernelFunction
from aot.llvm.scattered import table_of_rows
from aot.llvm.types import I8, I16, I32, I64, POINTER, Builder, Value, known_integer
from aot.llvm.volatile import volatile_load, volatile_store

REACH = 1020
"""The largest offset of LDRD and STRD, in bytes."""


class Dsp:
    """Emits instructions. Pointers are opaque, offsets in bytes, values int32 unless said otherwise."""

    def __init__(self, function: KernelFunction, builder: Builder | None = None) -> None:
        self.function = function
        self.builder: Builder = function.builder if builder is None else builder

    # Addresses and memory.

    def at(self, pointer: Value, offset: int | Value) -> Value:
        """pointer + offset."""
        if isinstance(offset, int):
            if offset == 0:
                return pointer
            offset = I32(offset)
        return self.builder.gep(pointer, [offset], source_etype=I8)

    def volatile_load(self, pointer: Value, type: ir.Type, align: int) -> Value:
        return volatile_load(self.builder, pointer, type, align)

    def word(self, pointer: Value, offset: int = 0) -> Value:
        """LDR of an aligned word (volatile)."""
        return self.volatile_load(self.at(pointer, offset), I32, 4)

    def pair(self, pointer: Value, offset: int = 0) -> tuple[Value, Value]:
        """LDRD of two aligned words (volatile); two LDR beyond its reach."""
        if offset > REACH:
            return self.word(pointer, offset), self.word(pointer, offset + 4)
        both = self.volatile_load(self.at(pointer, offset), I64, 4)
        low = self.builder.trunc(both, I32)
        return low, self.builder.trunc(self.builder.lshr(both, I64(32)), I32)

    def words(self, pointer: Value, offset: int, count: int) -> list[Value]:
        """`count` words, by LDRD where possible."""
        found: list[Value] = []
        for number in range(0, count - 1, 2):
            found += self.pair(pointer, offset + 4 * number)
        return found + ([self.word(pointer, offset + 4 * (count - 1))] if count % 2 else [])

    def any_word(self, pointer: Value, offset: int = 0) -> Value:
        """LDR at any address."""
        return self.builder.load(self.at(pointer, offset), align=1, typ=I32)

    def byte(self, pointer: Value, offset: int = 0) -> Value:
        """LDRSB."""
        return self.builder.sext(self.builder.load(self.at(pointer, offset), align=1, typ=I8), I32)

    def half(self, pointer: Value, offset: int = 0) -> Value:
        """LDRSH, aligned."""
        return self.builder.sext(self.builder.load(self.at(pointer, offset), align=2, typ=I16), I32)

    def element(self, pointer: Value, offset: int, nbytes: int) -> Value:
        """LDRSB or LDRSH."""
        return self.byte(pointer, offset) if nbytes == 1 else self.half(pointer, offset)

    def long(self, pointer: Value, offset: int = 0) -> Value:
        """LDRD of an aligned int64 (volatile)."""
        return self.volatile_load(self.at(pointer, offset), I64, 4)

    def unsigned_byte(self, pointer: Value, offset: int = 0) -> Value:
        """LDRB."""
        return self.builder.zext(self.builder.load(self.at(pointer, offset), align=1, typ=I8), I32)

    def store_word(self, value: Value, pointer: Value, offset: int = 0) -> None:
        """STR, aligned (volatile: it keeps its place)."""
        self.volatile_store(value, self.at(pointer, offset), 4)

    def store_pair(self, low: Value, high: Value, pointer: Value, offset: int = 0) -> None:
        """STRD, aligned (volatile); two STR beyond its reach."""
        if offset > REACH:
            self.store_word(low, pointer, offset)
            self.store_word(high, pointer, offset + 4)
            return
        upper = self.builder.shl(self.builder.zext(high, I64), I64(32))
        self.volatile_store(self.builder.or_(self.builder.zext(low, I64), upper), self.at(pointer, offset), 4)

    def store_words(self, values: Sequence[Value], pointer: Value, offset: int = 0) -> None:
        """Words side by side, by STRD where possible."""
        for number in range(0, len(values) - 1, 2):
            self.store_pair(values[number], values[number + 1], pointer, offset + 4 * number)
        if len(values) % 2:
            self.store_word(values[-1], pointer, offset + 4 * (len(values) - 1))

    def store_half(self, value: Value, pointer: Value, offset: int = 0) -> None:
        """STRH, aligned."""
        self.builder.store(self.builder.trunc(value, I16), self.at(pointer, offset), align=2)

    def store_byte(self, value: Value, pointer: Value, offset: int = 0) -> None:
        """STRB of an int32's low byte."""
        self.builder.store(self.builder.trunc(value, I8), self.at(pointer, offset), align=1)

    def store_element(self, value: Value, pointer: Value, nbytes: int) -> None:
        """STRB, STRH or STR."""
        {1: self.store_byte, 2: self.store_half, 4: self.store_word}[nbytes](value, pointer)

    def volatile_store(self, value: Value, pointer: Value, align: int) -> None:
        volatile_store(self.builder, value, pointer, align)

    def stack(self, nwords: int) -> Value:
        """Words on the stack, at a fixed offset from the stack pointer, which needs no register."""
        with self.builder.goto_entry_block():
            slot = self.builder.alloca(ir.ArrayType(I32, nwords))
        slot.align = 8
        return slot

    # Arithmetic.

    def _call(self, name: str, *arguments: Value) -> Value:
        type = ir.FunctionType(I32, [I32] * len(arguments))
        return self.builder.call(self.function.intrinsic(f"llvm.arm.{name}", type), arguments)

    def smlad(self, a: Value, b: Value, acc: Value) -> Value:
        """acc + a.low * b.low + a.high * b.high (signed halves)."""
        return self._call("smlad", a, b, acc)

    def smlald(self, a: Value, b: Value, acc: Value) -> Value:
        """The same with an int64."""
        type = ir.FunctionType(I64, [I32, I32, I64])
        return self.builder.call(self.function.intrinsic("llvm.arm.smlald", type), [a, b, acc])

    def smlabb(self, a: Value, b: Value, acc: Value) -> Value:
        """acc + a.low * b.low."""
        return self._call("smlabb", a, b, acc)

    def smlabt(self, a: Value, b: Value, acc: Value) -> Value:
        """acc + a.low * b.high."""
        return self._call("smlabt", a, b, acc)

    def smlatb(self, a: Value, b: Value, acc: Value) -> Value:
        """acc + a.high * b.low."""
        return self._call("smlatb", a, b, acc)

    def smuad(self, a: Value, b: Value) -> Value:
        """a.low * b.low + a.high * b.high."""
        return self._call("smuad", a, b)

    def sadd16(self, a: Value, b: Value) -> Value:
        """Sums of halves."""
        return self._call("sadd16", a, b)

    def ssub16(self, a: Value, b: Value) -> Value:
        """Differences of halves."""
        return self._call("ssub16", a, b)

    def uxtb16(self, x: Value) -> Value:
        """Bytes 0 and 2, zero-extended to halves."""
        return self._call("uxtb16", x)

    def uxtb16_odd(self, x: Value) -> Value:
        """Bytes 1 and 3, zero-extended to halves: UXTB16 with ROR #8."""
        return self.uxtb16(self._rotated(x))

    def _rotated(self, x: Value) -> Value:
        type = ir.FunctionType(I32, [I32, I32, I32])
        return self.builder.call(self.function.intrinsic("llvm.fshr.i32", type), [x, x, I32(8)])

    def sxtb16(self, x: Value) -> Value:
        """Bytes 0 and 2, sign-extended to halves."""
        return self._call("sxtb16", x)

    def sxtb16_odd(self, x: Value) -> Value:
        """Bytes 1 and 3, sign-extended to halves: SXTB16 with ROR #8."""
        return self.sxtb16(self._rotated(x))

    def signed_half(self, x: Value) -> Value:
        """SXTH: the low half."""
        return self.builder.sext(self.builder.trunc(x, I16), I32)

    def sxtab16(self, acc: Value, x: Value) -> Value:
        """Halves of acc + bytes 0 and 2."""
        return self._call("sxtab16", acc, x)

    def sxtab16_odd(self, acc: Value, x: Value) -> Value:
        """Halves of acc + bytes 1 and 3: SXTAB16 with ROR #8."""
        return self._call("sxtab16", acc, self._rotated(x))

    def larger_bytes(self, a: Value, b: Value) -> Value:
        """The larger of each two signed bytes: SSUB8, whose flags SEL reads."""
        self._call("ssub8", a, b)
        return self._call("sel", a, b)

    def pack(self, low: Value, high: Value) -> Value:
        """PKHBT: the low halves of `low` and `high`, the latter above."""
        return self.builder.or_(self.builder.and_(low, I32(0xFFFF)), self.builder.shl(high, I32(16)))

    def pack_upper(self, low: Value, high: Value) -> Value:
        """PKHTB: the high halves of `low` and `high`, the latter above."""
        return self.builder.or_(self.builder.lshr(low, I32(16)), self.builder.and_(high, I32(-(1 << 16))))

    def smmla(self, a: Value, b: Value, acc: Value) -> Value:
        """acc + (a * b >> 32)."""
        product = self.builder.mul(self.builder.sext(a, I64), self.builder.sext(b, I64))
        return self.builder.add(self.builder.trunc(self.builder.lshr(product, I64(32)), I32), acc)

    def smmla_long(self, a: Value, b: Value, acc: Value) -> Value:
        """acc + (a * b >> 32) of an int64 a and an int32 b >= 0, modulo 2^32: UMULL, MLA, ADD."""
        builder = self.builder
        low, factor = builder.zext(builder.trunc(a, I32), I64), builder.zext(b, I64)
        carried = builder.trunc(builder.lshr(builder.mul(low, factor), I64(32)), I32)
        high = builder.trunc(builder.lshr(a, I64(32)), I32)
        return builder.add(builder.add(builder.mul(high, b), carried), acc)

    def saturated(self, x: Value, shift: int | Value = 0, bits: int = 8, signed: bool = True) -> Value:
        """(x >> shift) saturated to an integer of so many bits; one instruction where the shift is a constant."""
        count = I32(shift) if isinstance(shift, int) else shift
        shifted = x if known_integer(count) == 0 else self.builder.ashr(x, count)
        return self._call("ssat" if signed else "usat", shifted, I32(bits))

    def sign(self, x: Value) -> Value:
        """0 or -1; folds as an operand."""
        return self.builder.ashr(x, I32(31))

    # Control.

    def _hidden(self, value: Value) -> Value:
        """A pointer that LLVM's loop strength reduction can't see through; costs no instruction.

        It would trade two pointers that step through memory for one index and sums, which take more registers than there are.
        """
        if not isinstance(value.type, ir.PointerType):
            return value
        type = ir.FunctionType(POINTER, [POINTER])
        return self.builder.call(self.function.intrinsic("llvm.launder.invariant.group.p0", type), [value])

    @contextmanager
    def repeat(self, count: int | Value, initial: Sequence[Value] = ()) -> Generator[Carried]:
        """The body `count` times, at least once, with carried values. `index` counts down to 1: SUBS and BNE.

        In the body: read `values`, set `next`; after it: `results`. A known count of 1 makes no loop.
        """
        start = I32(count) if isinstance(count, int) else count
        with self._loop(count == 1, start, lambda left: self.builder.sub(left, I32(1)), I32(0), initial) as carried:
            yield carried

    @contextmanager
    def march(self, pointer: Value, step: int, count: int, initial: Sequence[Value] = ()) -> Generator[Carried]:
        """The body `count` times while `index`, a pointer, steps from `pointer` on: it ends where pointers meet, without a
        counter."""
        with self._loop(count == 1, pointer, lambda at: self.at(at, step), self.at(pointer, step * count), initial) as carried:
            yield carried

    @contextmanager
    def until(self, start: Value, end: Value, initial: Sequence[Value] = ()) -> Generator[Carried]:
        """The body, at least once, until `index` is `end`. In the body set `next` to the following index and the values."""
        following: list[Value] = []
        with self._loop(False, start, lambda _: following[0], end, initial) as carried:
            yield carried
            following[:], carried.next = carried.next[:1], carried.next[1:]

    @contextmanager
    def _loop(
        self, once: bool, start: Value, following: Callable[[Value], Value], end: Value, initial: Sequence[Value]
    ) -> Generator[Carried]:
        """A loop tested at its end: on while the following index is not `end`; none if it runs `once`."""
        builder = self.builder
        if once:
            carried = Carried(start, tuple(initial))
            yield carried
            carried.results = carried.next
            return
        before, body, after = builder.block, builder.append_basic_block("again"), builder.append_basic_block("on")
        builder.branch(body)
        builder.position_at_end(body)
        phis = [builder.phi(value.type) for value in (start, *initial)]
        for phi, value in zip(phis, (start, *initial)):
            phi.add_incoming(value, before)
        carried = Carried(phis[0], tuple(phis[1:]))
        yield carried
        nexts = [self._hidden(value) for value in (following(phis[0]), *carried.next)]
        for phi, value in zip(phis, nexts, strict=True):
            phi.add_incoming(value, builder.block)
        carried.next = tuple(nexts[1:])
        builder.cbranch(builder.icmp_unsigned("!=", nexts[0], end), body, after)
        builder.position_at_end(after)
        carried.results = carried.next


@dataclass(frozen=True)
class Image:
    """An image whose rows a function finds. base: its first byte, rows of `row_nbytes` following each other; or what the offsets of its
    rows count from, which are numbers of `offset_nbytes` bytes at `offsets`."""

    base: Value
    row_nbytes: int
    offsets: Value | None = None
    offset_nbytes: int = 2

    @staticmethod
    def of(function: KernelFunction, name: str, nbytes: int) -> Image:
        """A buffer of the function's, of rows of `nbytes`."""
        if name not in function.scattered:
            return Image(function.pointer(name), nbytes)
        table = table_of_rows(name)
        return Image(function.pointer(name), nbytes, function.pointer(table), function.buffer(table).dtype.nbytes)

    def at(self, base: Value) -> Image:
        """Another image, or a part of each row, of which the first byte is at `base`."""
        return replace(self, base=base)

    @property
    def pointers(self) -> tuple[Value, ...]:
        """What another function needs of it."""
        return (self.base,) if self.offsets is None else (self.base, self.offsets)

    def there(self, pointers: Sequence[Value]) -> Image:
        """The image in a function that was given its `pointers`."""
        return replace(self, base=pointers[0], offsets=None if self.offsets is None else pointers[1])

    @property
    def code(self) -> tuple[object, ...]:
        """All that instructions depend on, besides the size of rows; empty where these follow each other."""
        return () if self.offsets is None else (self.offset_nbytes,)

    def row(self, dsp: Dsp, number: Value) -> Value:
        """The first byte of a row that there is."""
        builder = dsp.builder
        if self.offsets is None:
            return dsp.at(self.base, builder.mul(number, I32(self.row_nbytes)))
        type = I16 if self.offset_nbytes == 2 else I32
        offset = builder.load(builder.gep(self.offsets, [number], source_etype=type), align=self.offset_nbytes, typ=type)
        return dsp.at(self.base, builder.zext(offset, I32) if type == I16 else offset)
