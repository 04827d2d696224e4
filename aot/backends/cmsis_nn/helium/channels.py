"""The depthwise product on Helium: sixteen channels at a time (eight of int16), in machine code.

Enters: weights, the layer's ending, and how pixels follow each other in rows. Leaves: a function over any number of pixels, its table.
Invariant: products are summed in lanes of 16 bits only as far as the weights prove that no input makes them overflow; then in 32 bits.

A block is a pixel's channels, or as many pixels of less than sixteen channels as follow each other within 16 bytes (`pixels` > 1): then
each vector holds several pixels and the table has their channels several times. For sixteen channels a tap takes 2 VLDR, 2 VMULL, 2
VADD; emptying the lanes of 16 bits 4 VMOVL and 4 VADD. Products of int16 are summed in 32 bits at once. Vectors may be read up to 31
bytes beyond a row of pixels; bytes are stored exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.cmsis_nn.helium.ending import Ending
from aot.backends.cmsis_nn.helium.mve import GT, REACH, SAVED, SP, Helium
from aot.backends.cmsis_nn.shared import digest
from aot.backends.cmsis_nn.swar.m3.thumb2 import NE, PC
from aot.llvm.machine_code import machine_code
from aot.llvm.types import I32, POINTER, Value

VECTOR = 16
_CAPACITY = 255  # of weights' magnitudes: times 128 they fit 16 bits
_ROWS, _X, _AT, _TABLE, _OUT, _LEFT, _COUNT, _NUMBER, _START, _TURN = range(10)
_INPUT, _WEIGHTS, _EVEN, _ODD = range(4)
_SPARE = 7  # for products, where its sum waits on the stack or has not begun
_MANY_TAPS = 40  # whose code may be longer than a loop of LE
_PARTS = {1: ((0, 4, 8, 12), (2, 6, 10, 14), (1, 5, 9, 13), (3, 7, 11, 15)), 2: ((0, 2, 4, 6), (1, 3, 5, 7))}
"""The lanes of a vector whose sums each register has: of bytes even ones (widened bottom, top), then odd ones; of halfwords even, odd."""
_FRAME = VECTOR
_PUSHED_NBYTES = 4 * len(SAVED) + 64 + _FRAME


@dataclass(frozen=True)
class Channels:
    """weights: (channels, rows, columns). pixels: in a vector. columns_at: bytes from the window's first byte in a row to each column of
    the kernel. in_step, out_step: bytes from block to block."""

    weights: np.ndarray
    ending: Ending
    pixels: int
    columns_at: tuple[int, ...]
    in_step: int
    out_step: int

    @property
    def channels(self) -> int:
        return len(self.weights)

    @property
    def lanes(self) -> int:
        """Results of a block."""
        return self.pixels * self.channels

    @property
    def nbytes(self) -> int:
        """Of a block."""
        return self.lanes * self.ending.nbytes

    @property
    def each(self) -> int:
        """Lanes of a vector, and bytes of a tap's weights for it."""
        return VECTOR // self.ending.nbytes

    @property
    def sums(self) -> range:
        """q registers."""
        return range(4, 4 + len(_PARTS[self.ending.nbytes]))

    @property
    def vectors(self) -> int:
        return -(-self.nbytes // VECTOR)

    @property
    def near(self) -> bool:
        """Whether loads reach all columns from a row's first byte."""
        return max(self.columns_at) <= REACH

    @property
    def is_predicated(self) -> bool:
        return self.pixels > 1 or self.nbytes % VECTOR > 0

    @property
    def cuts(self) -> list[int]:
        """How many taps, row by row, are summed in 16 bits before that is added to 32; none of int16."""
        if self.ending.nbytes > 1:
            return []
        magnitudes = np.abs(self.weights.reshape(self.channels, -1))
        first = 0
        found: list[int] = []
        for tap in range(1, magnitudes.shape[1] + 1):
            if tap == magnitudes.shape[1] or magnitudes[:, first : tap + 1].sum(1).max() > _CAPACITY:
                found.append(tap - first)
                first = tap
        return found

    @property
    def reloads(self) -> bool:
        """Whether a tap's input is loaded twice, as no register is free for its products: behind the first cut, all four sums have one.
        Else one of them waits on the stack."""
        return not self.cuts or sum(self.cuts[1:]) - (len(self.cuts) - 1) <= 2 * (len(self.cuts) - 1)

    def table(self) -> np.ndarray:
        """int32: for each vector the weights tap by tap, the biases where sums first leave 16 bits, and what the ending takes."""
        taps = self.weights.reshape(self.channels, -1).astype(np.int8).T
        found = bytearray()
        for first in range(0, self.lanes, self.each):
            lanes = range(first, min(first + self.each, self.lanes))
            rows = np.zeros((len(taps), self.each), np.int8)
            rows[:, : len(lanes)] = taps[:, [lane % self.channels for lane in lanes]]
            parts = [
                self.ending.table([lanes[lane] % self.channels for lane in some if lane < len(lanes)])
                for some in _PARTS[self.ending.nbytes]
            ]
            first_cut = self.cuts[0] if self.cuts else 0
            found += rows[:first_cut].tobytes() + b"".join(part[0] for part in parts) + rows[first_cut:].tobytes()
            found += b"".join(vector for part in parts for vector in part[1:])
        return np.frombuffer(bytes(found), np.int32)

    @property
    def key(self) -> tuple[object, ...]:
        """All that the code depends on."""
        shape = self.weights.shape
        return shape, tuple(self.cuts), self.ending.code, self.pixels, self.columns_at, self.in_step, self.out_step

    def instructions(self, pixels: int) -> int:
        """What `pixels` of them take."""
        _, rows, columns = self.weights.shape
        cuts = len(self.cuts)
        taps = rows * (2 + columns * 6 + (0 if self.near else columns - 1)) - 2 * cuts + 8 * cuts
        if cuts:
            taps += sum(self.cuts[1:]) - (cuts - 1) if self.reloads else 2 * (cuts - 1)
        vector = 4 + taps + len(self.sums) * (2 * self.ending.vectors - 1) + (7 if cuts else 2) + 2 + 3 * self.is_predicated
        return 30 + -(-pixels // self.pixels) * (self.vectors * vector + 8)

    def call(self, dsp: Dsp, rows: Value, out: Value, table: Value, count: Value, first: Value) -> None:
        """`count` pixels. rows: pointers to the kernel's rows; first: bytes from there to the first window."""
        type = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, POINTER, I32, I32])
        function = machine_code(dsp.function, self.name, type, _Emitter(self).code(), _PUSHED_NBYTES)
        dsp.builder.call(function, [rows, out, table, count, first])

    @property
    def name(self) -> str:
        """Of the function: equal names mean equal code."""
        return f"channels_{digest(self.key)}"

    @property
    def code_nbytes(self) -> int:
        return len(_Emitter(self).code())


class _Emitter:
    """Emits the function: r0 rows, r1 output, r2 table, r3 count, first on the stack."""

    def __init__(self, product: Channels) -> None:
        self.product = product
        self.emitted = Helium()

    def code(self) -> bytes:
        code, product = self.emitted, self.product
        code.push(SAVED)
        code.vpush()
        code.sub_number(SP, SP, _FRAME)
        code.mov(_OUT, 1)
        code.mov(_START, 2)
        code.mov(_COUNT, 3)
        code.ldr(_AT, SP, _PUSHED_NBYTES)
        if product.pixels > 1:
            code.constant(_NUMBER, product.nbytes // product.pixels)
            code.mul(_LEFT, _COUNT, _NUMBER)
        again = code.nbytes
        self._block()
        if product.pixels > 1:
            code.subs_number(_LEFT, product.nbytes)
            code.branch(GT, again)
        else:
            code.subs_number(_COUNT, 1)
            code.branch(NE, again)
        code.add_number(SP, SP, _FRAME)
        code.vpop()
        code.pop([*SAVED[:-1], PC])
        return code.finish()

    def _block(self) -> None:
        code, product = self.emitted, self.product
        code.mov(_TABLE, _START)
        if product.is_predicated and product.pixels == 1:
            code.constant(_LEFT, product.nbytes)
        if product.vectors > 1:
            self._vectors()
        else:
            self._vector()
            code.add_number(_AT, _AT, VECTOR)
        nbytes = product.vectors * VECTOR
        code.add_any(_AT, _AT, product.in_step - nbytes, _NUMBER)
        code.add_any(_OUT, _OUT, product.out_step - nbytes, _NUMBER)

    def _vectors(self) -> None:
        """A loop over vectors: LE reaches 4 kB."""
        code, product = self.emitted, self.product
        is_long = product.weights[0].size > _MANY_TAPS
        code.constant(_TURN, product.vectors)
        start = code.nbytes if is_long else code.begin_loop(_TURN)
        self._vector()
        code.add_number(_AT, _AT, VECTOR)
        if is_long:
            code.subs_number(_TURN, 1)
            code.branch(NE, start)
        else:
            code.end_loop(start)

    def _vector(self) -> None:
        self._taps()
        self._end()

    def _taps(self) -> None:
        """All taps of the kernel, row by row."""
        code, product = self.emitted, self.product
        _, rows, columns = product.weights.shape
        ends = set(np.cumsum(product.cuts).tolist())
        starts, tap = True, 0
        if not product.cuts:
            for total in product.sums:
                code.vload_post(total, _TABLE, VECTOR, "w")
        for row in range(rows):
            code.ldr(_X, _ROWS, 4 * row)
            code.add_registers(_X, _X, _AT)
            for column in range(columns):
                at = product.columns_at[column]
                offset = at if product.near else 0
                if product.cuts:
                    self._tap(starts, tap < product.cuts[0], offset)
                else:
                    self._wide_tap(offset)
                if not product.near and column + 1 < columns:
                    code.add_any(_X, _X, product.columns_at[column + 1] - at, _NUMBER)
                tap += 1
                starts = tap in ends
                if starts:
                    self._empty(tap)

    def _tap(self, starts: bool, is_first_cut: bool, offset: int) -> None:
        """A tap's products start sums in 16 bits, or go on with them."""
        code = self.emitted
        code.vload(_INPUT, _X, offset)
        code.vload_post(_WEIGHTS, _TABLE, VECTOR, "w")
        if starts:
            code.vmull(_EVEN, _INPUT, _WEIGHTS, False, 8)
            code.vmull(_ODD, _INPUT, _WEIGHTS, True, 8)
            return
        reloads = self.product.reloads and not is_first_cut
        product = _INPUT if reloads else _SPARE
        code.vmull(product, _INPUT, _WEIGHTS, False, 8)
        code.vadd(_EVEN, _EVEN, product, 16)
        if reloads:
            code.vload(_INPUT, _X, offset)
        code.vmull(product, _INPUT, _WEIGHTS, True, 8)
        code.vadd(_ODD, _ODD, product, 16)

    def _wide_tap(self, offset: int) -> None:
        """A tap's products of halfwords go on with sums in 32 bits."""
        code = self.emitted
        code.vload(_INPUT, _X, offset)
        code.vload_post(_WEIGHTS, _TABLE, self.product.each, "s16")
        for top, total in enumerate(self.product.sums):
            code.vmull(_EVEN, _INPUT, _WEIGHTS, bool(top), 16)
            code.vadd(total, total, _EVEN)

    def _empty(self, taps: int) -> None:
        """Lanes of 16 bits into those of 32, after so many taps."""
        code, cuts = self.emitted, self.product.cuts
        for number, total in enumerate(self.product.sums):
            if taps == cuts[0]:
                code.vload_post(total, _TABLE, VECTOR, "w")
            elif total == _SPARE and not self.product.reloads:
                code.vload(total, SP, 0, "w")
            code.vmovl16(_INPUT, (_EVEN, _ODD)[number // 2], bool(number % 2))
            code.vadd(total, total, _INPUT)
        if taps < sum(cuts) and not self.product.reloads:
            code.vstore(_SPARE, SP, 0, "w")

    def _end(self) -> None:
        """Requantise, narrow, store."""
        code, ending, product = self.emitted, self.product.ending, self.product
        for total in product.sums:
            ending.requantise(code, (total,), (0, 1), _TABLE, _NUMBER, is_biased=True)
        halves = (_EVEN, _ODD) if product.cuts else (_INPUT,)
        for number, total in enumerate(product.sums):
            ending.halve(code, halves[number // 2], total, bool(number % 2))
        if product.cuts:
            code.vqmovn(_INPUT, _EVEN, 16)
            code.vqmovn(_INPUT, _ODD, 16, True)
        ending.clamp(code, (_INPUT,), _WEIGHTS, _NUMBER)
        if not product.is_predicated:
            code.vstore_post(_INPUT, _OUT, VECTOR)
            return
        code.vctp(8, _LEFT)
        code.vpst()
        code.vstore(_INPUT, _OUT)
        code.add_number(_OUT, _OUT, VECTOR)
        if product.pixels == 1:
            code.sub_number(_LEFT, _LEFT, VECTOR)
