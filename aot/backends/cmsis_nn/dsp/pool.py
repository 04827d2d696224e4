"""Average and maximum pools, and means over rows and columns: four or eight channels at a time.

Enters: reductions of int8 over windows of rows and columns. Leaves: `Implementation`s, or the sentence why not.
Invariant: sums stay inside 16 bits, as a window has at most 256 elements.

A word holds four channels. Sums: SXTAB16 adds two of them at once; maxima: SSUB8 compares four, SEL takes the larger ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.cmsis_nn.pooling import PoolEmitter
from aot.backends.layers.pools import MOST_TAPS, Pool, implementation_of, pool_of
from aot.graph.expr import Acc
from aot.graph.ir import DType
from aot.graph.primitive import Primitive, Reduce
from aot.llvm.types import I8, I32, Value
from aot.lower.implementation import Cost, Implementation
from aot.lower.program import Program
from aot.target import Target

_STRAIGHT_TAPS = 9  # of windows that never leave the image: without loops


def claim_pool(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Pools whose channels lie side by side."""
    pool = read_pool(program, instruction, target)
    if isinstance(pool, str):
        return pool
    if pool.rows.taps * pool.columns.taps > MOST_TAPS:
        return f"windows of {pool.rows.taps * pool.columns.taps} elements (at most {MOST_TAPS})"
    taps, outputs = pool.rows.taps * pool.columns.taps, prod(pool.instruction.space)
    cost = Cost(int(outputs * (1.4 * taps + 12)), 500, step_instructions=20 + 6 * pool.columns.count * -(-pool.depth // 8))
    made = implementation_of(program, pool, lambda function: _Emitter(function, pool).emit(), cost, "eight channels at a time")
    return replace(
        made,
        scatters=(pool.load.buffer,) if pool.images == 1 and pool.rows.size > 1 and pool.rows.count > 1 else (),
        overlap=((pool.load.buffer, "forward"),) if pool.runs_forward and program[pool.instruction.out].dtype.nbytes == 1 else (),
    )


def sums_up(program: Program, instruction: Reduce) -> bool:
    """Whether it stores its sums as they are."""
    return instruction.combine == "add" and instruction.result == Acc(program[instruction.out].dtype)


def read_pool(program: Program, instruction: Primitive, target: Target) -> Pool | str:
    """The pool that an instruction is, or why it is none."""
    if "dsp" not in target.has:
        return f"{target.name} has no DSP extension (SXTAB16, SEL)"
    if "mve" in target.has:
        return "Helium has vectors for it"
    return pool_of(program, instruction) if isinstance(instruction, Reduce) else "not a reduction"


@dataclass
class _Emitter(PoolEmitter):
    """Emits one pool."""

    def pixel(self, source: Value, out: Value, rows: tuple[Value, Value], columns: Value, axes: dict[int, Value]) -> Value:
        """All channels of an output pixel. rows: the first and their number; source: in the first row, or from where rows count."""
        dsp, depth = self.dsp, self.pool.depth
        for width, turns in ((8, depth // 8), (4, depth % 8 // 4), (1, depth % 4)):
            if not turns:
                continue
            with dsp.repeat(turns, [source, out]) as carried:
                here, there = carried.values
                self._finish(self._window(here, rows, columns, width), width, there, axes)
                carried.next = (dsp.at(here, width), dsp.at(there, width * self.nbytes))
            source, out = carried.results
        return out

    def _window(self, source: Value, rows: tuple[Value, Value], columns: Value, width: int) -> list[Value]:
        """Sums or maxima of `width` channels over a window: of four channels two words of halves, or a word; of one itself."""
        pool, dsp = self.pool, self.dsp
        image, row_nbytes = self.image.at(source), pool.columns.size * pool.depth
        splat = int.from_bytes(bytes([pool.initial & 0xFF]) * 4, "little", signed=True)
        start = 0 if self.is_sum else (splat if width > 1 else pool.initial)
        accs: list[Value] = [I32(start)] * (1 if width == 1 else width // (2 if self.is_sum else 4))
        if not pool.leaves and pool.rows.taps * pool.columns.taps <= _STRAIGHT_TAPS:
            for row in range(pool.rows.taps):
                line, skipped = source, row * row_nbytes
                if self.is_scattered:
                    line, skipped = image.row(dsp, dsp.builder.add(rows[0], I32(row))), 0
                for column in range(pool.columns.taps):
                    accs = self._tap(line, skipped + column * pool.depth, width, accs)
            return accs
        with dsp.repeat(rows[1], [rows[0] if self.is_scattered else source, *accs]) as lines:
            at, *accs = lines.values
            line = image.row(dsp, at) if self.is_scattered else at
            with dsp.repeat(columns, [line, *accs]) as taps:
                here, *accs = taps.values
                taps.next = (dsp.at(here, pool.depth), *self._tap(here, 0, width, accs))
            following = dsp.builder.add(at, I32(1)) if self.is_scattered else dsp.at(at, row_nbytes)
            lines.next = (following, *taps.results[1:])
        return list(lines.results[1:])

    def _tap(self, source: Value, offset: int, width: int, accs: Sequence[Value]) -> list[Value]:
        dsp, builder = self.dsp, self.dsp.builder
        if width == 1:
            x = dsp.byte(source, offset)
            if self.is_sum:
                return [builder.add(accs[0], x)]
            return [builder.select(builder.icmp_signed(">", x, accs[0]), x, accs[0])]
        found: list[Value] = []
        for number in range(width // 4):
            word = dsp.any_word(source, offset + 4 * number)
            if self.is_sum:
                found += [dsp.sxtab16(accs[2 * number], word), dsp.sxtab16_odd(accs[2 * number + 1], word)]
            else:
                found.append(dsp.larger_bytes(accs[number], word))
        return found

    def _finish(self, accs: Sequence[Value], width: int, out: Value, axes: dict[int, Value]) -> None:
        """Store the channels' results."""
        dsp, instruction = self.dsp, self.pool.instruction
        if instruction.result == Acc(DType.INT8) and width > 1:
            for number, acc in enumerate(accs):
                dsp.builder.store(acc, dsp.at(out, 4 * number), align=1)
            return
        for number, acc in enumerate(self._channels(accs, width)):
            value = self.function.value(instruction.result, axes, acc=acc)
            self.function.store_at(instruction.out, dsp.at(out, number * self.nbytes), value)

    def _channels(self, accs: Sequence[Value], width: int) -> list[Value]:
        """Each channel's accumulator, in its own type."""
        builder = self.dsp.builder
        if not self.is_sum:
            return [builder.trunc(builder.lshr(acc, I32(8 * byte)), I8) for acc in accs for byte in range(min(4, width))]
        sums = channel_sums(self.dsp, accs, width)
        return [each if not self.pool.initial else builder.add(each, I32(self.pool.initial)) for each in sums]


def channel_sums(dsp: Dsp, words: Sequence[Value], width: int) -> list[Value]:
    """The sums of `width` channels in their order, from words of halves; or that of a single one."""
    if width == 1:
        return list(words)
    builder = dsp.builder
    low = [builder.ashr(builder.shl(word, I32(16)), I32(16)) for word in words]
    high = [builder.ashr(word, I32(16)) for word in words]
    return [half for two in range(0, len(words), 2) for half in (*low[two : two + 2], *high[two : two + 2])]
