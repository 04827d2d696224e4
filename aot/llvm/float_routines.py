"""IEEE 754 binary arithmetic on integers, for cores without (enough of) a floating-point unit.

Enters: the bits of floats as words. Leaves: the bits of the result, or integers. Round to nearest even, subnormals included; a NaN
in gives a quiet NaN out; no exception flags. Written from the standard. Invariant: no instruction here works on a float type.

A magnitude on its way to rounding is a significand with three bits more (guard, round, sticky): 1.0 is 1 << (fraction + 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from aot.llvm.integer_routines import multiply_wide
from aot.llvm.words import Word, count_down, when

EXTRA = 3


@dataclass(frozen=True)
class Format:
    """A binary format: its width, and the bits of its exponent and fraction."""

    width: int
    exponent: int
    fraction: int

    @property
    def top(self) -> int:
        """The exponent field of infinities and NaNs."""
        return (1 << self.exponent) - 1

    @property
    def bias(self) -> int:
        return self.top >> 1

    @property
    def sign(self) -> int:
        return 1 << (self.width - 1)

    @property
    def infinity(self) -> int:
        return self.top << self.fraction

    @property
    def quiet(self) -> int:
        """A quiet NaN."""
        return self.infinity | 1 << (self.fraction - 1)

    @property
    def hidden(self) -> int:
        """The leading bit of a normal significand."""
        return 1 << self.fraction


HALF, SINGLE, DOUBLE = Format(16, 5, 10), Format(32, 8, 23), Format(64, 11, 52)
FLOATS = {HALF: ir.HalfType(), SINGLE: ir.FloatType(), DOUBLE: ir.DoubleType()}


def give(bits: Word) -> None:
    """Return a word from the function under construction, as the type that it returns."""
    type = bits.builder.function.function_type.return_type
    if isinstance(type, ir.IntType):
        bits.builder.ret(bits.to(type.width).value)
    else:
        width = next(f.width for f, float_type in FLOATS.items() if float_type == type)
        bits.builder.ret(bits.builder.bitcast(bits.to(width).value, type))


def leave(condition: Word, bits: Word) -> None:
    """Return early."""
    with when(condition):
        give(bits)


def exponent_of(f: Format, x: Word) -> Word:
    return (x >> f.fraction) & f.top


def magnitude_of(f: Format, x: Word) -> Word:
    return x & (f.sign - 1)


def is_nan(f: Format, x: Word) -> Word:
    return magnitude_of(f, x).gt(f.infinity)


def normalised(f: Format, x: Word) -> tuple[Word, Word]:
    """(exponent, significand with its leading bit at `fraction`) of a finite number but 0; subnormals have exponents below 1."""
    exponent, fraction = exponent_of(f, x), x & (f.hidden - 1)
    shift = fraction.leading_zeros() - (x.width - 1 - f.fraction)
    small = exponent.eq(0)
    return small.pick(1 - shift, exponent), small.pick(fraction << shift, fraction | f.hidden)


def rounded(f: Format, sign: Word, exponent: Word, significand: Word) -> Word:
    """Assemble a number from a signed exponent (of the leading bit) and a significand with EXTRA bits. Below 1: a subnormal."""
    below = exponent.signed_lt(1)
    significand = below.pick(significand.shifted_right_sticky(below.pick(1 - exponent, 0)), significand)
    return assembled(f, sign, below.pick(exponent.of(1), exponent), significand)


def assembled(f: Format, sign: Word, exponent: Word, significand: Word) -> Word:
    """As `rounded`, for an exponent of at least 1, whose leading bit may be missing (subnormal) where it is 1."""
    kept, lost = significand >> EXTRA, significand & ((1 << EXTRA) - 1)
    up = lost.gt(1 << (EXTRA - 1)) | (lost.eq(1 << (EXTRA - 1)) & (kept & 1).ne(0))
    packed = ((exponent - 1) << f.fraction) + kept + up.to(kept.width)
    return sign | exponent.signed_ge(f.top).pick(packed.of(f.infinity), packed)


def add(f: Format, a: Word, b: Word) -> Word:
    """a + b."""
    swap = magnitude_of(f, a).lt(magnitude_of(f, b))
    a, b = swap.pick(b, a), swap.pick(a, b)
    large, small = magnitude_of(f, a), magnitude_of(f, b)
    differ = ((a ^ b) & f.sign).ne(0)
    undefined = large.gt(f.infinity) | (small.eq(f.infinity) & differ)
    leave(large.ge(f.infinity), undefined.pick(a.of(f.quiet), a))
    leave(small.eq(0), large.eq(0).pick(a & b, a))
    exponent, m = _aligned(f, large)
    small_exponent, n = _aligned(f, small)
    n = n.shifted_right_sticky(exponent - small_exponent)
    total = differ.pick(m - n, m + n)
    leave(total.eq(0), a.of(0))
    carry = (total >> (f.fraction + EXTRA + 1)).ne(0)
    halved = (total >> 1) | (total & 1)
    wanted = total.leading_zeros() - (a.width - 1 - f.fraction - EXTRA)
    shift = wanted.lt(exponent).pick(wanted, exponent - 1)
    significand = carry.pick(halved, total << (shift & (a.width - 1)))
    return assembled(f, a & f.sign, carry.pick(exponent + 1, exponent - shift), significand)


def _aligned(f: Format, magnitude: Word) -> tuple[Word, Word]:
    """(exponent of at least 1, significand with EXTRA bits) of a magnitude."""
    exponent, fraction = magnitude >> f.fraction, magnitude & (f.hidden - 1)
    small = exponent.eq(0)
    return small.pick(exponent.of(1), exponent), small.pick(fraction, fraction | f.hidden) << EXTRA


def multiply(f: Format, a: Word, b: Word, long_multiply: bool) -> Word:
    """a * b."""
    sign = (a ^ b) & f.sign
    x, y = magnitude_of(f, a), magnitude_of(f, b)
    swap = x.lt(y)
    x, y = swap.pick(y, x), swap.pick(x, y)
    undefined = x.gt(f.infinity) | y.eq(0)
    leave(x.ge(f.infinity), undefined.pick(x.of(f.quiet), sign | f.infinity))
    leave(y.eq(0), sign)
    x_exponent, m = normalised(f, x)
    y_exponent, n = normalised(f, y)
    high, low = multiply_wide(m << (a.width - 1 - f.fraction), n << (EXTRA + 1), long_multiply)
    product = high | low.ne(0).to(a.width)
    carry = (product >> (f.fraction + EXTRA + 1)).ne(0)
    product = carry.pick((product >> 1) | (product & 1), product)
    return rounded(f, sign, x_exponent + y_exponent - f.bias + carry.to(a.width), product)


def divide(f: Format, a: Word, b: Word) -> Word:
    """a / b."""
    sign = (a ^ b) & f.sign
    x, y = magnitude_of(f, a), magnitude_of(f, b)
    undefined = x.gt(f.infinity) | y.gt(f.infinity) | (x.eq(y) & (x.eq(0) | x.eq(f.infinity)))
    leave(undefined, a.of(f.quiet))
    leave(x.eq(f.infinity) | y.eq(0), sign | f.infinity)
    leave(y.eq(f.infinity) | x.eq(0), sign)
    x_exponent, m = normalised(f, x)
    y_exponent, n = normalised(f, y)
    less = m.lt(n)
    m = less.pick(m << 1, m)

    def turn(index: Word, state: Sequence[Word]) -> list[Word]:
        rest, quotient = state
        fits = rest.ge(n)
        return [fits.pick(rest - n, rest) << 1, (quotient << 1) | fits.to(rest.width)]

    rest, quotient = count_down(a.of(f.fraction + EXTRA + 1), [m, a.of(0)], turn)
    quotient = quotient | rest.ne(0).to(a.width)
    return rounded(f, sign, x_exponent - y_exponent + f.bias - less.to(a.width), quotient)


def remainder(f: Format, a: Word, b: Word) -> Word:
    """C's fmod: a - b * trunc(a / b), exact, with the sign of `a`."""
    sign = a & f.sign
    x, y = magnitude_of(f, a), magnitude_of(f, b)
    leave(x.ge(f.infinity) | y.gt(f.infinity) | y.eq(0), a.of(f.quiet))
    leave(x.lt(y), a)
    x_exponent, m = normalised(f, x)
    y_exponent, n = normalised(f, y)

    def turn(index: Word, state: Sequence[Word]) -> list[Word]:
        return [(state[0].ge(n).pick(state[0] - n, state[0])) << 1]

    (rest,) = count_down(x_exponent - y_exponent, [m], turn)
    rest = rest.ge(n).pick(rest - n, rest)
    leave(rest.eq(0), sign)
    shift = rest.leading_zeros() - (a.width - 1 - f.fraction)
    return rounded(f, sign, y_exponent - shift, rest << (shift + EXTRA))


def square_root(f: Format, x: Word) -> Word:
    """The square root, one digit a turn."""
    magnitude = magnitude_of(f, x)
    leave(magnitude.eq(0) | x.eq(f.infinity), x)
    leave(is_nan(f, x) | (x & f.sign).ne(0), x.of(f.quiet))
    exponent, m = normalised(f, x)
    exponent = exponent - f.bias
    m = m << (exponent & 1)

    def turn(index: Word, state: Sequence[Word]) -> list[Word]:
        digits, rest, root = state
        rest = (rest << 2) | (digits >> (x.width - 2))
        trial = (root << 2) | 1
        fits = rest.ge(trial)
        return [digits << 2, fits.pick(rest - trial, rest), (root << 1) | fits.to(x.width)]

    start = [m << (x.width - 2 - f.fraction), x.of(0), x.of(0)]
    _, rest, root = count_down(x.of(f.fraction + EXTRA + 1), start, turn)
    return assembled(f, x.of(0), exponent.sar(1) + f.bias, root | rest.ne(0).to(x.width))


def ordering(f: Format, a: Word, b: Word, unordered: int) -> Word:
    """-1, 0 or 1 (32 bits) as a is less than, equal to or greater than b; `unordered` with a NaN."""
    x, y = _ordered(f, a), _ordered(f, b)
    answer = x.signed_gt(y).to(32) - x.signed_lt(y).to(32)
    return (is_nan(f, a) | is_nan(f, b)).pick(answer.of(unordered), answer)


def _ordered(f: Format, x: Word) -> Word:
    """An integer that orders as the numbers do; both zeros are 0."""
    magnitude = magnitude_of(f, x)
    return (x & f.sign).ne(0).pick(-magnitude, magnitude)


def to_integer(f: Format, x: Word, width: int, signed: bool) -> Word:
    """Towards zero; saturates; 0 for a NaN."""
    wide = max(f.width, width)
    magnitude = magnitude_of(f, x)
    negative = (x & f.sign).ne(0)
    exponent = (magnitude >> f.fraction).to(wide) - f.bias
    significand = ((x & (f.hidden - 1)) | f.hidden).to(wide)
    left, right = exponent - f.fraction, f.fraction - exponent
    moved = left.signed_lt(0).pick(significand >> (right & (wide - 1)), significand << (left & (wide - 1)))
    moved = exponent.signed_lt(0).pick(moved.of(0), moved).to(width)
    limit = width - 1 if signed else width
    largest = moved.of((1 << limit) - 1)
    smallest = moved.of(1 << (width - 1) if signed else 0)
    over = exponent.signed_ge(limit)
    answer = negative.pick(over.pick(smallest, -moved), over.pick(largest, moved))
    if not signed:
        answer = negative.pick(answer.of(0), answer)
    return magnitude.gt(f.infinity).pick(answer.of(0), answer)


def from_integer(f: Format, x: Word, signed: bool) -> Word:
    """To nearest even."""
    wide = max(f.width, x.width)
    negative = x.signed_lt(0) if signed else x.ne(x)
    magnitude = (negative.pick(-x, x) if signed else x).to(wide)
    leave(magnitude.eq(0), magnitude.of(0).to(f.width))
    zeros = magnitude.leading_zeros()
    normal = magnitude << zeros
    spare = wide - 1 - f.fraction - EXTRA
    significand = normal >> spare
    significand = significand | (significand << spare).ne(normal).to(wide)
    sign = negative.pick(magnitude.of(f.sign), 0)
    return assembled(f, sign, (wide - 1 + f.bias) - zeros, significand).to(f.width)


def widen(small: Format, large: Format, x: Word) -> Word:
    """To a wider format: exact."""
    magnitude = magnitude_of(small, x)
    wide = x.to(large.width)
    sign = (x & small.sign).ne(0).pick(wide.of(large.sign), 0)
    leave(magnitude.eq(0), sign)
    nan = magnitude.gt(small.infinity)
    leave(magnitude.ge(small.infinity), nan.pick(sign.of(large.quiet), sign | large.infinity))
    exponent, m = normalised(small, x.to(max(x.width, 32)))
    significand = m.to(large.width) << (large.fraction - small.fraction)
    field = exponent.signed_to(large.width) + (large.bias - small.bias)
    return sign | ((field << large.fraction) + (significand & (large.hidden - 1)))


def narrow(large: Format, small: Format, x: Word) -> Word:
    """To a narrower format: to nearest even. The answer is a word of the wider format's width."""
    magnitude = magnitude_of(large, x)
    sign = (x & large.sign).ne(0).pick(x.of(small.sign), 0)
    leave(magnitude.gt(large.infinity), x.of(small.quiet).to(small.width))
    exponent = (magnitude >> large.fraction) - (large.bias - small.bias)
    significand = (x & (large.hidden - 1)) | large.hidden
    spare = large.fraction - small.fraction - EXTRA
    kept = significand >> spare
    kept = kept | (kept << spare).ne(significand).to(x.width)
    return rounded(small, sign, exponent, kept)


def to_integral(f: Format, x: Word, mode: str) -> Word:
    """Round to an integral number: `floor`, `ceil`, `trunc`, or `rint` (half to even)."""
    magnitude, sign = magnitude_of(f, x), x & f.sign
    exponent = exponent_of(f, x)
    leave(exponent.ge(f.bias + f.fraction), is_nan(f, x).pick(x | (f.quiet & ~f.infinity), x))
    one = x.of(f.bias << f.fraction)
    leave(exponent.lt(f.bias), sign | _below_one(f, magnitude, sign, one, mode))
    unit = x.of(1) << ((f.bias + f.fraction) - exponent)
    mask = unit - 1
    if mode == "rint":  # the unit's bit says odd or even; at 1.0 that is the lowest exponent bit, and a bias is odd
        nudge = (unit >> 1) - 1 + (magnitude & unit).ne(0).to(x.width)
    elif mode == "trunc":
        nudge = x.of(0)
    else:
        nudge = sign.ne(0).pick(mask, 0) if mode == "floor" else sign.eq(0).pick(mask, 0)
    return sign | ((magnitude + nudge) & ~mask)


def _below_one(f: Format, magnitude: Word, sign: Word, one: Word, mode: str) -> Word:
    """The rounded magnitude of a number between -1 and 1."""
    if mode == "trunc":
        return one.of(0)
    if mode == "rint":
        return magnitude.gt((f.bias - 1) << f.fraction).pick(one, 0)
    away = sign.ne(0) if mode == "floor" else sign.eq(0)
    return (away & magnitude.ne(0)).pick(one, 0)
