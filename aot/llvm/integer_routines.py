"""Integer routines that small cores lack: division, wide multiplication and shifts, leading zeros, memory blocks.

Enters: words. Leaves: words, and code for memory blocks. Invariant: no instruction here needs the routine that it is part of.
Written from the definitions of the operations; names and argument orders are those of libgcc and the Arm run-time ABI (IHI 0043).
"""

from __future__ import annotations

from collections.abc import Sequence

from aot.llvm.types import I8, Builder, Value
from aot.llvm.words import Word, count_down, join


def multiply_wide(a: Word, b: Word, long_multiply: bool) -> tuple[Word, Word]:
    """(high, low) halves of the unsigned product."""
    width = a.width
    if width == 32 and long_multiply:
        product = a.to(64) * b.to(64)
        return (product >> 32).to(32), product.to(32)
    half, mask = width // 2, (1 << (width // 2)) - 1
    a_low, a_high, b_low, b_high = a & mask, a >> half, b & mask, b >> half
    low, cross = a_low * b_low, a_high * b_low
    middle = (low >> half) + a_low * b_high + (cross & mask)
    return a_high * b_high + (cross >> half) + (middle >> half), (middle << half) | (low & mask)


def multiply_small(a: Word, b: Word) -> Word:
    """The low word of a product, by shifts and adds, for cores that can't multiply."""

    def step(index: Word, state: Sequence[Word]) -> list[Word]:
        total, factor = state
        return [(total << 1) + ((b >> index) & 1).ne(0).pick(factor, 0), factor]

    return count_down(a.of(a.width), [a.of(0), a], step)[0]


def multiply_double(a: Word, b: Word, long_multiply: bool) -> Word:
    """The low 64 bits of a 64-bit product, from 32-bit words."""
    a_low, b_low = a.to(32), b.to(32)
    high, low = multiply_wide(a_low, b_low, long_multiply)
    return join(high + a_low * (b >> 32).to(32) + (a >> 32).to(32) * b_low, low)


def divide(n: Word, d: Word) -> tuple[Word, Word]:
    """Unsigned (quotient, remainder). Finds by bisection how far the divisor can move left, then one bit a turn."""
    shift = n.of(0)
    step = n.width // 2
    while step:
        further = shift + step
        shift = (n >> further).ge(d).pick(further, shift)
        step //= 2

    def turn(index: Word, state: Sequence[Word]) -> list[Word]:
        rest, quotient = state
        moved = d << index
        fits = rest.ge(moved)
        return [fits.pick(rest - moved, rest), (quotient << 1) | fits.to(n.width)]

    rest, quotient = count_down(shift + 1, [n, n.of(0)], turn)
    return quotient, rest


def divide_signed(n: Word, d: Word) -> tuple[Word, Word]:
    """(quotient towards zero, remainder with the sign of `n`)."""
    n_sign, d_sign = n.sar(n.width - 1), d.sar(n.width - 1)
    quotient, rest = divide((n ^ n_sign) - n_sign, (d ^ d_sign) - d_sign)
    sign = n_sign ^ d_sign
    return (quotient ^ sign) - sign, (rest ^ n_sign) - n_sign


def shift_left(x: Word, count: Word) -> Word:
    """64-bit shift left by 0..63, from 32-bit words."""
    low, high = x.to(32), (x >> 32).to(32)
    within = count & 31
    spill = (low >> 1) >> (within ^ 31)
    far = (count & 32).ne(0)
    return join(far.pick(low << within, (high << within) | spill), far.pick(low.of(0), low << within))


def shift_right(x: Word, count: Word, arithmetic: bool) -> Word:
    """64-bit shift right by 0..63, from 32-bit words."""
    low, high = x.to(32), (x >> 32).to(32)
    within = count & 31
    spill = (high << 1) << (within ^ 31)
    far = (count & 32).ne(0)
    moved = high.sar(within) if arithmetic else high >> within
    beyond = high.sar(31) if arithmetic else high.of(0)
    return join(far.pick(beyond, moved), far.pick(moved, (low >> within) | spill))


def leading_zeros(x: Word) -> Word:
    """Leading zeros of a 32-bit word, 32 for 0, without the instruction."""
    zeros = x.of(32)
    for step in (16, 8, 4, 2, 1):
        upper = x >> step
        some = upper.ne(0)
        zeros, x = some.pick(zeros - step, zeros), some.pick(upper, x)
    return zeros - x


def copy_block(builder: Builder, target: Value, source: Value, nbytes: Word, upwards: bool) -> None:
    """Copy bytes one by one, from the first or from the last."""

    def step(index: Word, state: Sequence[Word]) -> list[Word]:
        position = nbytes - 1 - index if upwards else index
        here = builder.gep(source, [position.value], source_etype=I8)
        there = builder.gep(target, [position.value], source_etype=I8)
        builder.store(builder.load(here, typ=I8), there)
        return []

    count_down(nbytes, [], step)


def fill_block(builder: Builder, target: Value, byte: Word, nbytes: Word) -> None:
    """Set bytes one by one."""

    def step(index: Word, state: Sequence[Word]) -> list[Word]:
        builder.store(byte.to(8).value, builder.gep(target, [index.value], source_etype=I8))
        return []

    count_down(nbytes, [], step)
