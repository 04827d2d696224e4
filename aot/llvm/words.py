"""Integers as Python objects that emit LLVM instructions: makes bit-level routines readable.

Enters: a builder and LLVM integer values. Leaves: instructions at the builder's position.
Invariant: both sides of an operation have one width; Python integers take the width of the other side. `>>` is a logical shift;
comparisons are unsigned where they do not say `signed`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from llvmlite import ir

from aot.llvm.types import I1, Builder, Value


@dataclass(frozen=True, eq=False)
class Word:
    """An integer value. `|`, `&`, `^` and `~` also combine conditions (width 1)."""

    builder: Builder
    value: Value

    @property
    def width(self) -> int:
        return self.value.type.width

    def of(self, number: int | Word) -> Word:
        """A number as a word of this width (wrapped)."""
        if isinstance(number, Word):
            return number
        wrapped = number & ((1 << self.width) - 1)
        return Word(self.builder, ir.Constant(self.value.type, wrapped))

    def _do(self, name: str, other: int | Word) -> Word:
        return Word(self.builder, getattr(self.builder, name)(self.value, self.of(other).value))

    def __add__(self, other: int | Word) -> Word:
        return self._do("add", other)

    def __sub__(self, other: int | Word) -> Word:
        return self._do("sub", other)

    def __rsub__(self, other: int) -> Word:
        return self.of(other) - self

    def __mul__(self, other: int | Word) -> Word:
        return self._do("mul", other)

    def __and__(self, other: int | Word) -> Word:
        return self._do("and_", other)

    def __or__(self, other: int | Word) -> Word:
        return self._do("or_", other)

    def __xor__(self, other: int | Word) -> Word:
        return self._do("xor", other)

    def __invert__(self) -> Word:
        return self ^ -1

    def __neg__(self) -> Word:
        return self.of(0) - self

    def __lshift__(self, count: int | Word) -> Word:
        return self._do("shl", count)

    def __rshift__(self, count: int | Word) -> Word:
        return self._do("lshr", count)

    def sar(self, count: int | Word) -> Word:
        """Arithmetic shift right."""
        return self._do("ashr", count)

    def _compare(self, name: str, sign: str, other: int | Word) -> Word:
        return Word(self.builder, getattr(self.builder, name)(sign, self.value, self.of(other).value))

    def eq(self, other: int | Word) -> Word:
        return self._compare("icmp_unsigned", "==", other)

    def ne(self, other: int | Word) -> Word:
        return self._compare("icmp_unsigned", "!=", other)

    def lt(self, other: int | Word) -> Word:
        return self._compare("icmp_unsigned", "<", other)

    def ge(self, other: int | Word) -> Word:
        return self._compare("icmp_unsigned", ">=", other)

    def gt(self, other: int | Word) -> Word:
        return self._compare("icmp_unsigned", ">", other)

    def signed_lt(self, other: int | Word) -> Word:
        return self._compare("icmp_signed", "<", other)

    def signed_gt(self, other: int | Word) -> Word:
        return self._compare("icmp_signed", ">", other)

    def signed_ge(self, other: int | Word) -> Word:
        return self._compare("icmp_signed", ">=", other)

    def pick(self, yes: Word, no: int | Word) -> Word:
        """This condition's choice."""
        return Word(self.builder, self.builder.select(self.value, yes.value, yes.of(no).value))

    def to(self, width: int) -> Word:
        """Zero-extended or cut to a width."""
        return self._resize(width, "zext")

    def signed_to(self, width: int) -> Word:
        """Sign-extended or cut to a width."""
        return self._resize(width, "sext")

    def _resize(self, width: int, extend: str) -> Word:
        if width == self.width:
            return self
        name = extend if width > self.width else "trunc"
        return Word(self.builder, getattr(self.builder, name)(self.value, ir.IntType(width)))

    def leading_zeros(self) -> Word:
        return Word(self.builder, self.builder.ctlz(self.value, I1(0)))

    def shifted_right_sticky(self, count: Word) -> Word:
        """Logical shift right by any count; a lost bit leaves the lowest bit set. The top bit must be clear."""
        safe = count.lt(self.width - 1).pick(count, self.width - 1)
        kept = self >> safe
        return kept | (kept << safe).ne(self).to(self.width)


def join(high: Word, low: Word) -> Word:
    """A word of twice the width."""
    width = 2 * low.width
    return (high.to(width) << low.width) | low.to(width)


@contextmanager
def when(condition: Word) -> Generator[None]:
    """Emit code that runs only if the condition holds (it must return, or have effects only)."""
    with condition.builder.if_then(condition.value):
        yield


def count_down(count: Word, state: Sequence[Word], body: Callable[[Word, Sequence[Word]], Sequence[Word]]) -> list[Word]:
    """Run body(index, state) for index = count - 1 .. 0 (none if count is 0). Returns the final state."""
    builder = count.builder
    before = builder.block
    turn, after = builder.append_basic_block("turn"), builder.append_basic_block("after")
    builder.cbranch(count.eq(0).value, after, turn)
    builder.position_at_end(turn)
    remaining = builder.phi(count.value.type)
    remaining.add_incoming(count.value, before)
    phis = [builder.phi(word.value.type) for word in state]
    for phi, word in zip(phis, state):
        phi.add_incoming(word.value, before)
    index = Word(builder, remaining) - 1
    following = body(index, [Word(builder, phi) for phi in phis])
    latch = builder.block
    remaining.add_incoming(index.value, latch)
    for phi, word in zip(phis, following):
        phi.add_incoming(word.value, latch)
    builder.cbranch(index.eq(0).value, after, turn)
    builder.position_at_end(after)
    merged = [builder.phi(word.value.type) for word in state]
    for phi, start, end in zip(merged, state, following):
        phi.add_incoming(start.value, before)
        phi.add_incoming(end.value, latch)
    return [Word(builder, phi) for phi in merged]
