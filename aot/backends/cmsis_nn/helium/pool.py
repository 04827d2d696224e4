"""Average and maximum pools on Helium, and means over rows and columns: sixteen channels at a time for maxima, eight for sums.

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

from aot.backends.cmsis_nn.helium.vectors import WORDS, Vectors, everywhere, narrowed, refusal, splat
from aot.backends.cmsis_nn.pooling import PoolEmitter
from aot.backends.layers.pools import MOST_TAPS, Pool, implementation_of, pool_of, quotient
from aot.graph.expr import Acc, Load, walk
from aot.graph.ir import DType
from aot.graph.primitive import Primitive, Reduce
from aot.llvm.types import I1, I8, I16, I32, Value, known_integer
from aot.lower.implementation import Cost, Implementation
from aot.lower.program import Program
from aot.target import Target

_AT_ONCE = (4, 2, 1)  # vectors of a pixel that one walk over its window sums up
_STRAIGHT_TAPS = 9  # of windows that never leave the image: without loops
_FRACTION = 24
"""Bits of a reciprocal: the quotient of a number below 2^16 by one up to 256 is exact."""


def claim_pool(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Pools whose channels lie side by side."""
    if "mve" not in target.has:
        return f"{target.name} has no Helium (MVE)"
    if not isinstance(instruction, Reduce):
        return "not a reduction"
    pool = pool_of(program, instruction)
    if isinstance(pool, str):
        return pool
    if pool.rows.taps * pool.columns.taps > MOST_TAPS:
        return f"windows of {pool.rows.taps * pool.columns.taps} elements (at most {MOST_TAPS})"
    count, rest = quotient(pool)
    if instruction.combine == "max" and rest != Acc(DType.INT8):
        return "something is fused behind the maximum"
    why = refusal(rest, ())
    if why or rest.dtype is not DType.INT8:
        return why or f"its results are {rest.dtype}"
    taps, pixels = pool.rows.taps * pool.columns.taps, prod(instruction.space) // pool.depth
    vectors = -(-pool.depth // _lanes(pool))
    if instruction.combine == "max":
        each = vectors * (2 * taps + 1)
    else:
        each = vectors * (2 * taps + 4 + 2 * (len(list(walk(rest))) + (8 if count is not None else 2)))
    walks = -(-vectors // _AT_ONCE[0])
    looped = 0 if taps <= _STRAIGHT_TAPS and not pool.leaves else 8 + walks * (8 + 6 * pool.rows.taps + 3 * taps)
    cost = Cost(20 + pixels * (4 + each + looped), 500)
    return implementation_of(
        program, pool, lambda function: _Emitter(function, pool).emit(), cost, f"{_lanes(pool)} channels at a time"
    )


def _lanes(pool: Pool) -> int:
    """Channels of a vector."""
    if pool.depth < 8:
        return 4
    return 16 if pool.instruction.combine == "max" and pool.depth >= 16 else 8


@dataclass
class _Emitter(PoolEmitter):
    """Emits one pool."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.lanes = _lanes(self.pool)
        self.type = ir.VectorType({16: I8, 8: I16, 4: I32}[self.lanes], self.lanes)
        self.count, self.rest = quotient(self.pool)

    def pixel(self, source: Value, out: Value, rows: tuple[Value, Value], columns: Value, axes: dict[int, Value]) -> Value:
        dsp, lanes = self.dsp, self.lanes
        divisor = None if self.count is None else self._divisor(self.function.value(self.count, axes))
        here, there, left = source, out, self.pool.depth // lanes
        for several in _AT_ONCE:
            turns, left = divmod(left, several)
            if not turns:
                continue
            with dsp.repeat(turns, [here, there]) as carried:
                self._vectors(carried.values[0], carried.values[1], rows[1], columns, several, divisor)
                carried.next = tuple(dsp.at(pointer, several * lanes) for pointer in carried.values)
            here, there = carried.results
        if self.pool.depth % lanes:
            last = self.pool.depth - lanes
            self._vectors(dsp.at(source, last), dsp.at(out, last), rows[1], columns, 1, divisor)
        return dsp.at(out, self.pool.depth)

    def _vectors(
        self, source: Value, out: Value, rows: Value, columns: Value, several: int, divisor: tuple[Any, ...] | None
    ) -> None:
        """Some vectors of a pixel's channels."""
        for number, acc in enumerate(self._window(source, rows, columns, several)):
            self._finish(acc, self.dsp.at(out, number * self.lanes), divisor)

    def _window(self, source: Value, rows: Value, columns: Value, several: int) -> list[Value]:
        """Sums or maxima over a window."""
        pool, dsp = self.pool, self.dsp
        row_nbytes = pool.columns.size * pool.depth
        accs: list[Value] = [ir.Constant(self.type, [0 if self.is_sum else pool.initial] * self.lanes)] * several
        if not pool.leaves and pool.rows.taps * pool.columns.taps <= _STRAIGHT_TAPS:
            for row in range(pool.rows.taps):
                for column in range(pool.columns.taps):
                    accs = self._tap(dsp.at(source, row * row_nbytes + column * pool.depth), accs)
            return accs
        with dsp.repeat(rows, [source, *accs]) as lines:
            line, *accs = lines.values
            with dsp.repeat(columns, [line, *accs]) as taps:
                here, *accs = taps.values
                taps.next = (dsp.at(here, pool.depth), *self._tap(here, accs))
            lines.next = (dsp.at(line, row_nbytes), *taps.results[1:])
        return list(lines.results[1:])

    def _tap(self, source: Value, accs: Sequence[Value]) -> list[Value]:
        dsp, builder = self.dsp, self.dsp.builder
        found: list[Value] = []
        for number, acc in enumerate(accs):
            x = builder.load(dsp.at(source, number * self.lanes), align=1, typ=ir.VectorType(I8, self.lanes))
            x = x if self.lanes == 16 else builder.sext(x, self.type)
            found.append(builder.add(acc, x) if self.is_sum else self._call(f"llvm.smax.v{self.lanes}i{128 // self.lanes}", acc, x))
        return found

    def _call(self, name: str, *arguments: Value) -> Value:
        type = ir.FunctionType(arguments[0].type, [argument.type for argument in arguments])
        return self.dsp.builder.call(self.function.intrinsic(name, type), arguments)

    def _divisor(self, count: Value) -> tuple[Value, Value]:
        """Half of it, and its reciprocal, in all lanes."""
        builder, known = self.dsp.builder, known_integer(count)
        if known is not None:
            return splat(known // 2), splat(-(-(1 << _FRACTION) // known))
        reciprocal = builder.udiv(builder.add(count, I32((1 << _FRACTION) - 1)), count)
        return everywhere(self.dsp, builder.lshr(count, I32(1))), everywhere(self.dsp, reciprocal)

    def _finish(self, acc: Value, out: Value, divisor: tuple[Value, Value] | None) -> None:
        """Store a vector's results."""
        builder = self.dsp.builder
        if not self.is_sum:
            narrow = acc if self.lanes == 16 else builder.trunc(acc, ir.VectorType(I8, self.lanes))
            builder.store(narrow, out, align=1)
            return
        if self.lanes == 4:
            builder.store(builder.trunc(self._result(acc, divisor), ir.VectorType(I8, 4)), out, align=1)
            return
        pairs, half = builder.bitcast(acc, WORDS), splat(16)
        even = self._result(builder.ashr(builder.shl(pairs, half), half), divisor)
        odd = self._result(builder.ashr(pairs, half), divisor)
        joined = builder.or_(builder.shl(odd, half), builder.and_(even, splat(0xFFFF)))
        builder.store(builder.trunc(builder.bitcast(joined, self.type), ir.VectorType(I8, 8)), out, align=1)

    def _result(self, total: Value, divisor: tuple[Value, Value] | None) -> Value:
        """Four sums' results, of which the low bytes count."""
        builder = self.dsp.builder
        if self.pool.initial:
            total = builder.add(total, splat(self.pool.initial))
        if divisor is not None:
            half, reciprocal = divisor
            magnitude = builder.add(self._magnitude(total), half)
            type = ir.FunctionType(WORDS, [WORDS, WORDS, I32])
            product = self.function.intrinsic("llvm.arm.mve.vmulh.v4i32", type)
            quotient = builder.call(product, [builder.shl(magnitude, splat(32 - _FRACTION)), reciprocal, I32(0)])
            sign = builder.ashr(total, splat(31))
            total = builder.sub(builder.xor(quotient, sign), sign)

        def load(which: Load | None, unsigned: bool) -> Value:
            return total

        return Vectors(self.dsp, load).value(narrowed(self.rest))

    def _magnitude(self, x: Value) -> Value:
        type = ir.FunctionType(WORDS, [WORDS, I1])
        return self.dsp.builder.call(self.function.intrinsic("llvm.abs.v4i32", type), [x, ir.Constant(I1, 0)])
