"""The matrix product on Cortex-M3: pixels two in a word times int8 weights, in machine code, because it needs every register.

Enters: how many pairs of pixels and channels a block has. Leaves: a function, and the layout of the stream of weights.
Invariant: a group's products are summed in lanes that were proven for its weights (see `lanes`); its sums leave by one STM.

Words X[k][pair] lie k by k; a block's stream of weights is group by group: for the group's first k the weight of each channel, a header,
then the weights of the other k's. The code of the other k's stands unrolled, `most - 1` times, and the header says how many bytes of it
to jump over; its bit 0 marks the last group. For 3 pairs by 2 channels a k takes LDM, 2 LDRSB and 6 MLA for 12 products, a group
LDRB, TST, ADD pc, STM, BEQ, and 3 instructions for each of its 6 sums afterwards (`combine`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.cmsis_nn.swar import lanes
from aot.backends.cmsis_nn.swar.m3.thumb2 import EQ, LR, NE, PC, SP, Code
from aot.errors import InternalError
from aot.llvm.machine_code import machine_code
from aot.llvm.types import POINTER, Value

_SUMS: Sequence[int] = range(4, 10)
_PARTS: Sequence[int] = (1, 2, 3, 10, 11, 12)
_WEIGHT, _BIAS, _STREAM = 10, 11, 12
_SAVED = (*range(1, 12), LR)  # r1 to r3 only for the places: stream, work, table
_PUSHED_NBYTES = 4 * len(_SAVED)
_FARTHEST = 254  # a header's jump, in bytes


@dataclass(frozen=True)
class Block:
    """`pairs` of pixels times `channels`, at most 3 by 2; `stride` is the pairs that slots have room for."""

    pairs: int
    channels: int
    stride: int

    @property
    def unit(self) -> int:
        """Bytes of code for a k."""
        return (2 if self._loads_all else 4) + 4 * self.channels * (1 + self.pairs)

    @property
    def full(self) -> Block:
        """The block that uses all of a slot: streams are laid out for it."""
        return Block(self.stride, self.channels, self.stride)

    @property
    def most(self) -> int:
        """The largest group."""
        return 1 + _FARTHEST // self.full.unit

    @property
    def sums(self) -> int:
        return self.pairs * self.channels

    @property
    def purpose(self) -> str:
        """The function's name."""
        return f"pairs_{self.pairs}x{self.channels}_of_{self.stride}"

    @property
    def accs_nbytes(self) -> int:
        return 8 * self.sums

    @property
    def _loads_all(self) -> bool:
        return self.pairs == self.stride > 1

    def stream(self, weights: np.ndarray) -> tuple[bytes, int]:
        """The bytes for weights (channels, depth), and the number of groups."""
        lengths = lanes.cuts(weights, most=self.most)
        found, at = bytearray(), 0
        for number, length in enumerate(lengths):
            rows = weights[:, at : at + length].T.astype(np.int8)
            found += rows[0].tobytes()
            found.append((self.most - length) * self.full.unit | (number + 1 == len(lengths)))
            found += rows[1:].tobytes()
            at += length
        return bytes(found), len(lengths)

    def call(self, dsp: Dsp, slots: Value, stream: Value, work: Value, table: Value) -> Value:
        """Accumulate a stream. Returns the word-aligned end of the stream.

        table: two words for each channel (see `starts`). work: scratch; the accumulators are left at its beginning, for each channel
        those of its pixels; the sums of groups lie behind them.
        """
        type = ir.FunctionType(POINTER, [POINTER] * 4)
        function = machine_code(dsp.function, self.purpose, type, self.code(), _PUSHED_NBYTES)
        return dsp.builder.call(function, [slots, stream, work, table])

    def code(self) -> bytes:
        """The function: r0 slots, r1 stream, r2 work, r3 table."""
        code = Code()
        code.push(_SAVED)
        code.mov(_STREAM, 1)
        code.add_number(LR, 2, self.accs_nbytes)
        code.movw(_BIAS, lanes.BIAS)
        self._multiply(code)
        code.str(_STREAM, SP, 0)
        for channel in range(self.channels):
            self._combine(code, channel)
        code.ldr(0, SP, 0)
        code.add_number(0, 0, 3)
        code.bic(0, 0, 3)
        code.pop([*_SAVED[:-1], PC])
        return code.finish()

    def _multiply(self, code: Code) -> None:
        """All groups: r0 walks over the slots, lr over the sums."""
        again = code.nbytes
        self._step(code, _BIAS)
        code.ldrb_post(_WEIGHT, _STREAM)
        code.tst(_WEIGHT, 1)
        if self.unit != self.full.unit:  # the header counts the full block's bytes
            code.movw(1, self.full.unit)
            code.udiv(_WEIGHT, _WEIGHT, 1)
            code.movw(1, self.unit)
            code.mul(_WEIGHT, _WEIGHT, 1)
        code.jump(_WEIGHT)
        for _ in range(self.most - 1):
            start = code.nbytes
            self._step(code, None)
            if code.nbytes - start != self.unit:
                raise InternalError(f"a step of {code.nbytes - start} bytes")
        if self.sums > 1:
            code.stm(LR, _SUMS[: self.sums])
        else:
            code.str_post(_SUMS[0], LR)
        code.branch(EQ, again)

    def _step(self, code: Code, initial: int | None) -> None:
        """One k: its sums start from a register, or go on."""
        nbytes = 4 * self.stride
        if self._loads_all:
            code.ldm(0, range(1, 1 + self.pairs))
        elif self.pairs == 2:
            code.ldrd_post(1, 2, 0, nbytes)
        else:
            code.ldr_post(1, 0, nbytes)
        for channel in range(self.channels):
            code.ldrsb_post(_WEIGHT, _STREAM)
            for pair in range(self.pairs):
                acc = _SUMS[channel * self.pairs + pair]
                code.mla(acc, 1 + pair, _WEIGHT, acc if initial is None else initial)

    def _combine(self, code: Code, channel: int) -> None:
        """A channel's accumulators. The upper half of a sum is its high lane, as 32768 is in it; lr is where the sums end."""
        lows, highs = _SUMS[: 2 * self.pairs : 2], _SUMS[1 : 2 * self.pairs : 2]
        parts = _PARTS[: self.sums]
        code.ldr(0, SP, 8)
        code.ldrd(lows[0], highs[0], 0, 8 * channel)
        for low, high in zip(lows[1:], highs[1:]):
            code.mov(low, lows[0])
            code.mov(high, highs[0])
        code.ldr(0, SP, 4)
        code.add_number(0, 0, self.accs_nbytes)
        again = code.nbytes
        if len(parts) > 1:
            code.ldm(0, parts)
        else:
            code.ldr_post(parts[0], 0)
        for low, high, part in zip(lows, highs, parts[channel * self.pairs :]):
            code.add(low, part)
            code.add_asr(high, high, part, 16)
        code.cmp(0, LR)
        code.branch(NE, again)
        for low, high in zip(lows, highs):
            code.sub_lsl(low, low, high, 16)
        code.ldr(0, SP, 4)
        code.add_number(0, 0, 8 * self.pairs * channel)
        code.stm(0, _SUMS[: 2 * self.pairs], writes_back=False)


def starts(low: int, groups: int, high: int | None = None) -> tuple[int, int]:
    """What S and the sum of high lanes start from, so that both lanes end with their bias in them (the same, if there is one) and
    without the groups' 32768."""
    high = low if high is None else high
    return low + (high << 16) - groups * lanes.BIAS, high
