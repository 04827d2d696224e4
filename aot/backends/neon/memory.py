"""Moving bytes with vectors: filling, copying, putting rows by turns; and loops that count down.

Enters: addresses and numbers of bytes known at compile time. Leaves: LLVM instructions.
Invariant: exactly the bytes that are named are read and written.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from aot.backends.neon.simd import BYTES8, BYTES16, Simd, splat
from aot.graph.primitive import Geometry
from aot.llvm.emission import Carried, KernelFunction
from aot.llvm.types import I8, I32, POINTER, Value

_UNROLLED = 4


@dataclass(frozen=True)
class Span:
    """What windows see along rows or columns: so many before the image, inside, and behind it."""

    before: int
    inside: int
    after: int

    @property
    def size(self) -> int:
        return self.before + self.inside + self.after

    @staticmethod
    def of(g: Geometry, axis: int) -> Span:
        """axis: 0 along rows, 1 along columns."""
        size = (g.output[1 + axis] - 1) * g.stride[axis] + (g.kernel[axis] - 1) * g.dilation[axis] + 1
        before = min((g.pad_top, g.pad_left)[axis], size)
        inside = min(g.input[1 + axis], size - before)
        return Span(before, inside, size - before - inside)


@contextmanager
def repeat(function: KernelFunction, count: int, initial: Sequence[Value] = ()) -> Generator[Carried]:
    """The body `count` times (at least one) with carried values; counts down: SUBS and BNE. No loop for a count of 1. Carried pointers
    step on their own: LLVM does not see through them, and uses addresses that they leave behind."""
    builder = function.builder
    if count == 1:
        carried = Carried(I32(0), tuple(initial))
        yield carried
        carried.results = carried.next
        return
    before, body, after = builder.block, builder.append_basic_block("again"), builder.append_basic_block("on")
    builder.branch(body)
    builder.position_at_end(body)
    left = builder.phi(I32)
    left.add_incoming(I32(count), before)
    phis = [builder.phi(value.type) for value in initial]
    for phi, value in zip(phis, initial):
        phi.add_incoming(value, before)
    carried = Carried(left, tuple(phis))
    yield carried
    following = builder.sub(left, I32(1))
    left.add_incoming(following, builder.block)
    carried.next = tuple(_hidden(function, value) for value in carried.next)
    for phi, value in zip(phis, carried.next, strict=True):
        phi.add_incoming(value, builder.block)
    builder.cbranch(builder.icmp_unsigned("!=", following, I32(0)), body, after)
    builder.position_at_end(after)
    carried.results = carried.next


def _hidden(function: KernelFunction, value: Value) -> Value:
    """A pointer that LLVM's loop strength reduction can't see through; costs no instruction."""
    if not isinstance(value.type, ir.PointerType):
        return value
    type = ir.FunctionType(POINTER, [POINTER])
    return function.builder.call(function.intrinsic("llvm.launder.invariant.group.p0", type), [value])


def _pieces(simd: Simd, pointers: Sequence[tuple[Value, int]], nbytes: int, move: Callable[[Sequence[Value], int], None]) -> None:
    """`move` bytes by 32, then what is left by 16, 8 and one. pointers: with the bytes that each goes on for one."""
    here = [pointer for pointer, _ in pointers]
    for step in (32, 16, 8, 1):
        turns, nbytes = divmod(nbytes, step)
        if not turns:
            continue
        if turns > _UNROLLED or step == 32:
            with repeat(simd.function, turns, here) as carried:
                move(carried.values, step)
                carried.next = tuple(simd.at(one, step * each) for one, (_, each) in zip(carried.values, pointers))
            here = list(carried.results)
            continue
        for _ in range(turns):
            move(here, step)
            here = [simd.at(one, step * each) for one, (_, each) in zip(here, pointers)]


def fill(simd: Simd, to: Value, nbytes: int, number: int) -> None:
    """Store a byte so many times."""

    def move(here: Sequence[Value], step: int) -> None:
        for at, type in _vectors(step):
            simd.store(splat(number, type) if type is not I8 else I8(number), here[0], at)

    _pieces(simd, [(to, 1)], nbytes, move)


def copy(simd: Simd, source: Value, to: Value, nbytes: int) -> None:
    """Bytes from one place to another."""

    def move(here: Sequence[Value], step: int) -> None:
        loaded = [(simd.load(here[0], type, at), at) for at, type in _vectors(step)]
        for value, at in loaded:
            simd.store(value, here[1], at)

    _pieces(simd, [(source, 1), (to, 1)], nbytes, move)


def spread(simd: Simd, source: Value, to: Value, nbytes: int, times: int) -> None:
    """Each byte so many times, one copy beside the other."""

    def move(here: Sequence[Value], step: int) -> None:
        for at, type in _vectors(step):
            value = simd.load(here[0], type, at)
            for number in range(times):
                if type is I8:
                    simd.store(value, here[1], number)
                    continue
                lanes = [(number * type.count + lane) // times for lane in range(type.count)]
                simd.store(simd.take(value, lanes), here[1], times * at + number * type.count)

    _pieces(simd, [(source, 1), (to, times)], nbytes, move)


def interleave(simd: Simd, rows: Sequence[Value], to: Value, nbytes: int) -> None:
    """Bytes of rows by turns, four at a time: ST4 (on AArch64). What stands where rows are fewer does not matter."""
    each = 4

    def move(here: Sequence[Value], step: int) -> None:
        *sources, there = here
        loaded = [([simd.load(row, type, at) for row in sources], at) for at, type in _vectors(step)]
        loaded = [((values + [values[-1]] * each)[:each], at) for values, at in loaded]
        for values, at in loaded:
            if step == 1:
                for slot, value in enumerate(values):
                    simd.store(value, there, slot)
                continue
            type = values[0].type
            kind = ir.FunctionType(ir.VoidType(), [type] * each + [POINTER])
            store = simd.function.intrinsic(f"llvm.aarch64.neon.st{each}.v{type.count}i8.p0", kind)
            simd.builder.call(store, [*values, simd.at(there, each * at)])

    _pieces(simd, [*((row, 1) for row in rows), (to, each)], nbytes, move)


def _vectors(step: int) -> list[tuple[int, Any]]:
    """The vectors of so many bytes, and where they are."""
    return [(0, BYTES16), (16, BYTES16)] if step == 32 else [(0, {16: BYTES16, 8: BYTES8, 1: I8}[step])]
