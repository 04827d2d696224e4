"""Average and maximum pools of int8, and means over rows and columns: up to 32 channels at a time.

Enters: reductions of int8 over windows of rows and columns. Leaves: `Implementation`s, or the sentence why not.
Invariant: sums stay inside 16 bits, as a window has at most 256 elements. Where a vector does not fill, the last one begins earlier:
some channels are then computed twice, and stored twice alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from llvmlite import ir

from aot.backends.layers.pools import MOST_TAPS, Pool, Side, implementation_of, pool_of, quotient
from aot.backends.neon.memory import repeat
from aot.backends.neon.simd import BYTES8, BYTES16, HALVES8, WORDS4, Simd, splat
from aot.backends.neon.vectors import Vectors, refusal
from aot.graph.expr import Acc, Cast, Expr, rewrite
from aot.graph.ir import DType
from aot.graph.primitive import Primitive, Reduce
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, Value, known_integer
from aot.lower.implementation import Cost, Implementation
from aot.lower.program import Program
from aot.target import Target

_STRAIGHT_TAPS = 9  # of windows that never leave the image: without loops
_UNROLLED = 5
_FRACTION = 24
"""Bits of a reciprocal: the quotient of a number below 2^16 by one up to 256 is exact."""


def claim_pool(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Pools whose channels lie side by side."""
    if "neon" not in target.has:
        return f"{target.name} has no Advanced SIMD (NEON)"
    if not isinstance(instruction, Reduce):
        return "not a reduction"
    pool = pool_of(program, instruction)
    if isinstance(pool, str):
        return pool
    taps = pool.rows.taps * pool.columns.taps
    if taps > MOST_TAPS:
        return f"windows of {taps} elements (at most {MOST_TAPS})"
    _, rest = quotient(pool)
    if instruction.combine == "max" and rest != Acc(DType.INT8):
        return "something is fused behind the maximum"
    why = refusal(rewrite(rest, lambda node: Cast(Acc(DType.INT8), DType.INT32) if node == Acc(DType.INT32) else None), ())
    if why:
        return why
    pixels, vectors = prod(instruction.space) // pool.depth, -(-pool.depth // 16)
    each = vectors * (1.5 * taps + 2 if instruction.combine == "max" else 3 * taps + 60)
    looped = 0 if taps <= _STRAIGHT_TAPS and not pool.leaves else vectors / 2 * (6 + 4 * taps / _UNROLLED)
    cost = Cost(round(20 + pixels * (12 + each + looped)))
    return implementation_of(program, pool, lambda function: _Emitter(function, pool).emit(), cost, "32 channels at a time")


def _chunks(depth: int) -> list[tuple[int, int, int]]:
    """(first channel, lanes, vectors) of all that is computed at once; the last begins earlier where it would not be full."""
    lanes = next(lanes for lanes in (16, 8, 4) if depth >= lanes)
    firsts = [min(first, depth - lanes) for first in range(0, depth, lanes)]
    at = 0
    found: list[tuple[int, int, int]] = []
    while at < len(firsts):
        pair = at + 1 < len(firsts) and firsts[at + 1] == firsts[at] + lanes
        found.append((firsts[at], lanes, 1 + pair))
        at += 1 + pair
    return found


@dataclass(frozen=True)
class _Extent:
    """A window inside the image: its first element's number, and how many there are; constant where no window leaves the image."""

    first: Value
    count: Value


class _Emitter:
    """Emits one pool, pixel by pixel."""

    def __init__(self, function: KernelFunction, pool: Pool) -> None:
        self.function, self.pool, self.builder = function, pool, function.builder
        self.simd = Simd(function)
        self.is_sum = pool.instruction.combine == "add"
        self.count, self.rest = quotient(pool)

    def emit(self) -> None:
        pool, function, builder = self.pool, self.function, self.builder
        rows, columns, depth = pool.rows, pool.columns, pool.depth
        source, out = function.pointer(pool.load.buffer), function.pointer(pool.instruction.out)
        with function.loop(0, pool.images) as image, function.loop(function.y0, function.y1) as y:
            down = self._cut(rows, y)
            row = builder.add(builder.mul(image, I32(rows.size)), down.first)
            line = self.simd.at(source, builder.mul(row, I32(columns.size * depth)))
            number = builder.add(builder.mul(image, I32(rows.count)), y)
            target = self.simd.at(out, builder.mul(number, I32(columns.count * depth)))
            with function.loop(0, columns.count) as x:
                across = self._cut(columns, x)
                first = self.simd.at(line, builder.mul(across.first, I32(depth)))
                here = self.simd.at(target, builder.mul(x, I32(depth)))
                sides = ((rows.axis, y), (columns.axis, x))
                self._pixel(
                    first, here, down.count, across.count, {0: image} | {axis: value for axis, value in sides if axis is not None}
                )

    def _cut(self, side: Side, number: Value) -> _Extent:
        builder = self.builder
        start = builder.mul(number, I32(side.stride))
        if not side.leaves:
            return _Extent(start, I32(side.taps))
        start = builder.sub(start, I32(side.pad))
        end = builder.add(start, I32(side.taps))
        first = builder.select(builder.icmp_signed("<", start, I32(0)), I32(0), start)
        last = builder.select(builder.icmp_signed(">", end, I32(side.size)), I32(side.size), end)
        return _Extent(first, builder.sub(last, first))

    def _pixel(self, source: Value, out: Value, rows: Value, columns: Value, axes: dict[int, Value]) -> None:
        """All channels of an output pixel, whose window's first element is at `source`."""
        divisor = None if self.count is None else self._divisor(self.function.value(self.count, axes))
        for first, lanes, vectors in _chunks(self.pool.depth):
            results = self._window(self.simd.at(source, first), rows, columns, lanes, vectors)
            for number in range(vectors):
                found = self._finished(results[number * len(results) // vectors :][: len(results) // vectors], divisor)
                self.simd.store_lanes(found, out, lanes, first + number * lanes)

    def _window(self, source: Value, rows: Value, columns: Value, lanes: int, vectors: int) -> list[Value]:
        """Maxima of bytes, or sums of halfwords, over a window: one or two for each vector."""
        pool, simd = self.pool, self.simd
        type: Any = BYTES16 if lanes == 16 else BYTES8
        accs = [splat(pool.initial, type)] * vectors if not self.is_sum else [splat(0, HALVES8)] * (vectors * max(1, lanes // 8))
        stride, down, across = pool.columns.size * pool.depth, known_integer(rows), known_integer(columns)
        if down is not None and across is not None:
            if across == pool.columns.size:
                down, across = 1, down * across
            if down * across <= _STRAIGHT_TAPS:
                for row in range(down):
                    accs = self._taps(simd.at(source, row * stride), accs, lanes, across)
                return accs
            with repeat(self.function, down, [source, *accs]) as lines:
                here, *accs = lines.values
                accs = self._run(here, accs, lanes, across)
                lines.next = (simd.at(here, stride), *accs)
            return list(lines.results[1:])
        with self.function.carried_loop(0, rows, [source, *accs]) as lines:
            with self.function.carried_loop(0, columns, lines.values) as taps:
                here, *accs = taps.values
                taps.next = (simd.at(here, pool.depth), *self._taps(here, accs, lanes, 1))
            lines.next = (simd.at(lines.values[0], stride), *taps.results[1:])
        return list(lines.results[1:])

    def _run(self, source: Value, accs: Sequence[Value], lanes: int, count: int) -> list[Value]:
        """Neighbouring elements of a window, some at a time."""
        turns, left = divmod(count, _UNROLLED)
        if turns:
            with repeat(self.function, turns, [source, *accs]) as taps:
                here, *accs = taps.values
                taps.next = (self.simd.at(here, _UNROLLED * self.pool.depth), *self._taps(here, accs, lanes, _UNROLLED))
            source, *accs = taps.results
        return self._taps(source, accs, lanes, left)

    def _taps(self, source: Value, accs: Sequence[Value], lanes: int, count: int) -> list[Value]:
        """`count` neighbouring elements of a window."""
        simd, found = self.simd, list(accs)
        for number in range(count):
            inputs: list[Value] = []
            for vector in range(len(accs) if not self.is_sum or lanes < 16 else len(accs) // 2):
                inputs.append(self._load(simd.at(source, number * self.pool.depth + vector * lanes), lanes))
            if not self.is_sum:
                found = [simd.max(acc, x) for acc, x in zip(found, inputs, strict=True)]
                continue
            parts = [part for x in inputs for part in (simd.halves(x) if lanes == 16 else [x])]
            found = [self.builder.add(acc, self.builder.sext(x, HALVES8)) for acc, x in zip(found, parts, strict=True)]
        return found

    def _load(self, source: Value, lanes: int) -> Value:
        if lanes > 4:
            return self.simd.load(source, BYTES16 if lanes == 16 else BYTES8)
        pair = ir.VectorType(ir.IntType(32), 2)
        word = self.simd.load(source, I32)
        return self.simd.cast(self.builder.insert_element(ir.Constant(pair, None), word, I32(0)), BYTES8)

    def _divisor(self, count: Value) -> tuple[Value, Value]:
        """Half of it, and its reciprocal, in all lanes."""
        builder, known = self.builder, known_integer(count)
        if known is not None:
            return splat(known // 2, WORDS4), splat(-(-(1 << _FRACTION) // known), WORDS4)
        reciprocal = builder.udiv(builder.add(count, I32((1 << _FRACTION) - 1)), count)
        return self.simd.dup(builder.lshr(count, I32(1)), 4), self.simd.dup(reciprocal, 4)

    def _finished(self, results: Sequence[Value], divisor: tuple[Value, Value] | None) -> Value:
        """A vector's bytes, from its maxima or sums."""
        simd, builder = self.simd, self.builder
        if not self.is_sum:
            return results[0]
        words = [self._quotient(builder.sext(half, WORDS4), divisor) for sums in results for half in simd.halves(sums)]
        found = _Results(simd, words * (4 // len(words))).bytes(self.rest)
        return found if len(words) == 4 else simd.halves(found)[0]

    def _quotient(self, total: Value, divisor: tuple[Value, Value] | None) -> Value:
        """Four sums, divided if need be, rounding away from zero."""
        builder, simd = self.builder, self.simd
        total = builder.add(total, splat(self.pool.initial, WORDS4)) if self.pool.initial else total
        if divisor is None:
            return total
        half, reciprocal = divisor
        sign = builder.ashr(total, splat(31, WORDS4))
        magnitude = builder.add(builder.sub(builder.xor(total, sign), sign), half)
        found = simd.doubling_high(builder.shl(magnitude, splat(31 - _FRACTION, WORDS4)), reciprocal)
        return builder.sub(builder.xor(found, sign), sign)


class _Results(Vectors):
    """The expression behind quotients, which are its accumulators. words: four vectors of them."""

    def __init__(self, simd: Simd, words: list[Value]) -> None:
        super().__init__(simd, lambda _: words[0])
        self.words = words

    def value(self, expr: Expr) -> list[Value]:
        return self.words if expr == Acc(DType.INT32) else super().value(expr)
