"""One row times int8 weights on Cortex-M3: four channels' weights in a word, two products a multiplication, in machine code.

Enters: how many words of four channels a block has. Leaves: a function, and the layout of a block's weights.
Invariant: a group's products are summed in lanes that were proven for the weights of every channel; groups are those of the layer.

A word holds bytes w + 128 of channels 0, 2, 1, 3 (from the lowest). Its even bytes, E' = word & 0x00FF00FF, are the lanes of channels
0 and 1, plus 0x00800080; its odd bytes those of 2 and 3. The sum of x * E' over a group is the lanes' sum plus 0x00800080 times the
sum of x, modulo 2^32: that is the same for all channels, so that the layer computes it once for each group, and sums start from
32768 - 0x00800080 * (sum of x). A k takes LDRSB, LDM, 4 AND and 4 MLA for 8 products; a group LDRD (start and jump), TST, ADD pc,
STM, BEQ, and 11 instructions afterwards. As in `product`, a group enters the unrolled code where as many k's are left as it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.cmsis_nn.swar import lanes
from aot.backends.cmsis_nn.swar.m3.product import starts
from aot.backends.cmsis_nn.swar.m3.thumb2 import EQ, LR, NE, PC, SP, Code
from aot.errors import InternalError
from aot.llvm.machine_code import machine_code
from aot.llvm.types import POINTER, Value

MOST = 12
"""The largest group."""
MASK = 0x00FF00FF
OFFSET = 0x00800080
_ORDER = (0, 2, 1, 3)  # the channel of each byte
_SUMS: Sequence[int] = range(4, 8)
_PARTS: Sequence[int] = (1, 2, 3, 12)
_X, _EVEN, _WEIGHTS, _INPUT, _GROUPS, _SUM_AT, _MASK, _JUMP = 3, 9, 0, 10, 11, 12, 8, LR
_SAVED = (*range(1, 12), LR)  # r1 to r3 only for the places: input, work, starts
_PUSHED_NBYTES = 4 * len(_SAVED)


@dataclass(frozen=True)
class Quads:
    """`words` (1 or 2) of four channels."""

    words: int

    @property
    def channels(self) -> int:
        return 4 * self.words

    @property
    def purpose(self) -> str:
        """The function's name."""
        return f"quads_{self.words}"

    @property
    def unit(self) -> int:
        """Bytes of code for a k."""
        return 4 + (4 if self.words == 1 else 2) + 16 * self.words

    def weights(self, weights: np.ndarray) -> bytes:
        """The words of all k's, for weights (channels, depth); missing channels are 0."""
        filled = np.zeros((self.channels, weights.shape[1]), np.int64)
        filled[: len(weights)] = weights
        ordered = filled.reshape(self.words, 4, -1)[:, _ORDER].reshape(self.channels, -1)
        return (ordered.T + 128).astype(np.uint8).tobytes()

    def starts(self, bias: Sequence[int], groups: int) -> list[int]:
        """What the lanes start from, pair by pair of channels."""
        filled = [*map(int, bias), *[0] * (self.channels - len(bias))]
        return [word for n in range(0, self.channels, 2) for word in (starts(filled[n], groups, filled[n + 1]))]

    def call(self, dsp: Dsp, weights: Value, source: Value, work: Value, first: Value, groups: Value) -> None:
        """Accumulate a block. first: its `starts`. groups: the start and the jump of each group (of a block of 2 words); bit 0 of the
        last one's jump is set. work: the accumulators are left at its beginning, the sums of groups lie behind them."""
        type = ir.FunctionType(ir.VoidType(), [POINTER] * 5)
        function = machine_code(dsp.function, self.purpose, type, self.code(), _PUSHED_NBYTES)
        dsp.builder.call(function, [weights, source, work, first, groups])

    def code(self) -> bytes:
        """The function: r0 weights, r1 source, r2 work, r3 starts; on the stack the groups."""
        code = Code()
        code.push(_SAVED)
        code.mov(_INPUT, 1)
        code.add_number(_SUM_AT, 2, 4 * self.channels)
        code.ldr(_GROUPS, SP, _PUSHED_NBYTES)
        code.movw(_MASK, MASK & 0xFFFF)
        code.movt(_MASK, MASK >> 16)
        self._multiply(code)
        self._combine(code)
        code.pop([*_SAVED[:-1], PC])
        return code.finish()

    def _multiply(self, code: Code) -> None:
        again = code.nbytes
        code.ldrd_post(_EVEN, _JUMP, _GROUPS, 8)
        self._step(code, _EVEN)
        code.tst(_JUMP, 1)
        if self.unit != Quads(2).unit:
            code.movw(1, Quads(2).unit)
            code.udiv(_JUMP, _JUMP, 1)
            code.movw(1, self.unit)
            code.mul(_JUMP, _JUMP, 1)
        code.jump(_JUMP)
        for _ in range(MOST - 1):
            start = code.nbytes
            self._step(code, None)
            if code.nbytes - start != self.unit:
                raise InternalError(f"a step of {code.nbytes - start} bytes")
        code.stm(_SUM_AT, _SUMS[: 2 * self.words])
        code.branch(EQ, again)

    def _step(self, code: Code, initial: int | None) -> None:
        """One k. `initial`: what sums start from, which only the first of them overwrites at its end."""
        code.ldrsb_post(_X, _INPUT)
        words = range(1, 1 + self.words)
        if self.words == 2:
            code.ldm(_WEIGHTS, words)
        else:
            code.ldr_post(1, _WEIGHTS)
        spare = 2 if self.words == 1 else _EVEN
        for number, word in enumerate(words):
            even, odd = _SUMS[2 * number : 2 * number + 2]
            if initial is None:
                code.and_(spare, word, _MASK)
                code.mla(even, _X, spare, even)
                code.and_lsr(word, _MASK, word, 8)
                code.mla(odd, _X, word, odd)
            else:  # the register of the start is the spare one: the word's even half goes to its sum first
                code.and_(even, word, _MASK)
                code.mla(even, _X, even, initial)
                code.and_lsr(word, _MASK, word, 8)
                code.mla(odd, _X, word, initial)

    def _combine(self, code: Code) -> None:
        """The accumulators, channel by channel: as in `product`, for all sums of a group at once."""
        accs = range(4, 4 + 4 * self.words)
        parts = _PARTS[: 2 * self.words]
        code.mov(LR, _SUM_AT)
        code.ldr(0, SP, 8)
        code.ldm(0, accs)
        code.ldr(0, SP, 4)
        code.add_number(0, 0, 4 * self.channels)
        again = code.nbytes
        code.ldm(0, parts)
        for low, high, part in zip(accs[::2], accs[1::2], parts):
            code.add(low, part)
            code.add_asr(high, high, part, 16)
        code.cmp(0, LR)
        code.branch(NE, again)
        for low, high in zip(accs[::2], accs[1::2]):
            code.sub_lsl(low, low, high, 16)
        code.ldr(0, SP, 4)
        code.stm(0, accs, writes_back=False)


def group_lengths(weights: np.ndarray) -> tuple[int, ...]:
    """Groups that fit all channels (channels, depth)."""
    return lanes.cuts(weights, most=MOST)
