# pyright: basic
"""The matrix product on Helium: pixels times channels, sixteen products an instruction (eight of int16), with requantisation and stores;
in machine code, because VMLADAV's sums lie in even registers, of which there are as many as a block needs.

Enters: how a window lies in memory, and the layer's ending. Leaves: a function over any number of pixels, and its table.
Invariant: of each pixel `rows` runs of `chunks` times 16 bytes are read, which must be readable; what lies behind a window meets weights
of zero. Only the output's channels are written, pixel by pixel in order.

A block is two pixels by four channels: for a chunk 2 VLDRB, 4 VLDRW, 8 VMLADAV; a last single pixel has code of its own. The table is
read from its start for every block: for each four channels weights chunk by chunk, then the ending's vectors. Weights that meet int16
are widened as they are loaded (VLDRB.S16). Where sums need 64 bits (VMLALDAV) a block is one pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.cmsis_nn.helium.ending import Ending
from aot.backends.cmsis_nn.helium.mve import GE, LT, REACH, SAVED, SP, Helium
from aot.backends.cmsis_nn.shared import digest
from aot.backends.cmsis_nn.swar.m3.thumb2 import NE, PC
from aot.llvm.machine_code import machine_code
from aot.llvm.types import I32, POINTER, Value

CHUNK = 16
LANES = 4
_TABLE, _OUT = 1, 3  # in low registers, as vectors that are widened or narrowed on their way want
_LOW, _HIGH, _FACTOR, _DOWN = 0, 2, 12, 14  # for sums of 64 bits that end
_FRAME = 20
_AT_X, _AT_TABLE, _AT_COUNT, _AT_END, _AT_SKIP = range(0, _FRAME, 4)
_HELD = 2  # chunks of a window that stay in registers for all channels, in q4 and on
_STRAIGHT = 20  # chunks of a window that are multiplied without a loop
_LONG_ROW = 16  # chunks of a row that are
_TURN = 4  # chunks in a turn of a loop over a longer row


@dataclass(frozen=True)
class _Registers:
    """sums: for each pixel those of four channels; of 64 bits with the registers behind them. x: pointers to pixels. skip: to the next
    row, or the end of a long one; count: of rows, or the table's end where they are not counted."""

    sums: tuple[tuple[int, ...], ...]
    x: tuple[int, ...]
    skip: int
    count: int


_SHORT = _Registers(((0, 2, 4, 6), (8, 10, 12, 14)), (5, 7), 9, 11)
_LONG = _Registers(((4, 6, 8, 10),), (12,), 2, 14)


@dataclass(frozen=True)
class Product:
    """rows: runs of a window; chunks: of 16 bytes in each. in_step, out_step: bytes from pixel to pixel. places: each channel's among a
    pixel's outputs; none: they are stored side by side."""

    rows: int
    chunks: int
    in_step: int
    out_step: int
    ending: Ending
    channels: int
    places: tuple[int, ...] = ()

    def table(self, weights: np.ndarray) -> np.ndarray:
        """The packed table (int32) for weights of (channels, rows, elements of a row)."""
        padded = np.zeros((self.channels, self.rows, self.chunks * self.each), np.int8)
        padded[:, :, : weights.shape[2]] = weights
        found = bytearray()
        for first in range(0, self.channels, LANES):
            chosen = range(first, min(first + LANES, self.channels))
            block = padded[first : first + LANES].reshape(len(chosen), -1, self.each)
            found += block.transpose(1, 0, 2).tobytes() + b"".join(self.ending.table(chosen))
            if self.places:
                offsets = np.zeros(LANES, "<u4")
                offsets[: len(chosen)] = np.array(self.places)[chosen] * self.ending.nbytes
                found += offsets.tobytes()
        return np.frombuffer(bytes(found), np.int32)

    @property
    def each(self) -> int:
        """Products in a chunk, and bytes of a channel's weights for it."""
        return CHUNK // self.ending.input_nbytes

    @property
    def pixels(self) -> int:
        """Of a block."""
        return 1 if self.ending.is_long else 2

    @property
    def key(self) -> tuple[object, ...]:
        """All that the code depends on."""
        return self.rows, self.chunks, self.in_step, self.out_step, self.ending.code, self.channels, bool(self.places)

    def instructions(self, pixels: int) -> int:
        """What `pixels` of them take."""
        groups = -(-self.channels // LANES)
        chunks, end = self.rows * self.chunks, 2 * self.ending.vectors - self.ending.nbytes // 2
        looped = 0 if self._straight else 8 + 3 * self.rows * (1 + self.chunks // _TURN * (self.chunks > _LONG_ROW))
        held = 2 * chunks + 2 if self.holds else 0
        pair = groups * (chunks * 14 + 13 + self.ending.vectors + end + 2 * self.rows + looped - held) + 10 + held
        one = groups * (chunks * 9 + 13 + end + self.rows + looped - held // 2) + 10 + held
        pair, one = (pair + 2 * groups, one + groups) if self.places else (pair, one)
        if self.ending.is_long:
            return 40 + pixels * (one + 6 * self.channels)
        return 40 + pixels // 2 * pair + pixels % 2 * one

    def call(
        self, dsp: Dsp, x: Value, out: Value, table: Value, count: Value, skip: Value, parity: tuple[bool, bool] = (True, True)
    ) -> None:
        """`count` pixels. skip: bytes from the end of a run to the next. parity: whether the count can be odd, and more than one."""
        type = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, POINTER, I32, I32])
        function = machine_code(dsp.function, self.name(parity), type, _Emitter(self, *parity).code(), self._pushed_nbytes)
        dsp.builder.call(function, [x, out, table, count, skip])

    def name(self, parity: tuple[bool, bool]) -> str:
        """Of the function: equal names mean equal code."""
        return f"product_{digest((self.key, *parity))}"

    def code_nbytes(self, parity: tuple[bool, bool]) -> int:
        return len(_Emitter(self, *parity).code())

    @property
    def _straight(self) -> bool:
        return self.rows * self.chunks <= _STRAIGHT

    @property
    def holds(self) -> bool:
        """Whether the windows of a block are loaded once for all channels."""
        return self.rows == 1 and self.chunks <= _HELD and self.channels > LANES

    @property
    def _pushed_nbytes(self) -> int:
        return 4 * len(SAVED) + _FRAME + (64 if self.holds else 0)


def _held(pixel: int, chunk: int) -> int:
    """The q register of a chunk that stays."""
    return 4 + _HELD * pixel + chunk


class _Emitter:
    """Emits the function: r0 x, r1 output, r2 table, r3 count, skip on the stack."""

    def __init__(self, product: Product, odd: bool, even: bool) -> None:
        self.product = product
        self.odd, self.even = (odd, even) if product.pixels > 1 else (False, True)
        self.registers = _LONG if product.ending.is_long else _SHORT
        self.emitted = Helium()

    def code(self) -> bytes:
        code = self.emitted
        code.push(SAVED)
        if self.product.holds:
            code.vpush()
        code.sub_number(SP, SP, _FRAME)
        code.str(0, SP, _AT_X)
        code.str(2, SP, _AT_TABLE)
        code.str(3, SP, _AT_COUNT)
        code.mov(_OUT, 1)
        full = self.product.channels // LANES * LANES
        if full:
            end = self.registers.count
            code.add_any(end, 2, full // LANES * self._group_nbytes, 4)
            code.str(end, SP, _AT_END)
        code.ldr(self.registers.skip, SP, self.product._pushed_nbytes)
        code.str(self.registers.skip, SP, _AT_SKIP)
        if self.even:
            self._pairs()
        if self.odd:
            self._last()
        code.add_number(SP, SP, _FRAME)
        if self.product.holds:
            code.vpop()
        code.pop([*SAVED[:-1], PC])
        return code.finish()

    @property
    def _group_nbytes(self) -> int:
        return LANES * self.product.each * self.product.rows * self.product.chunks + CHUNK * (
            self.product.ending.vectors + bool(self.product.places)
        )

    def _pairs(self) -> None:
        """Blocks of two pixels while there are two (of one where a block has no more)."""
        code, pixels = self.emitted, self.product.pixels
        over = None
        if self.odd:
            code.ldr(0, SP, _AT_COUNT)
            code.compare_number(0, 2)
            over = code.skip(LT)
        again = code.nbytes
        self._block(pixels)
        code.ldr(0, SP, _AT_X)
        code.add_any(0, 0, pixels * self.product.in_step, 2)
        code.str(0, SP, _AT_X)
        code.ldr(0, SP, _AT_COUNT)
        code.subs_number(0, pixels)
        code.str(0, SP, _AT_COUNT)
        if self.odd:
            code.compare_number(0, 2)
            code.branch(GE, again)
        else:
            code.branch(NE, again)
        if over is not None:
            code.land(over)

    def _last(self) -> None:
        """One pixel more, or pixels one by one where there is no code for two."""
        code = self.emitted
        if not self.even:
            self._block(1)
            return
        code.ldr(0, SP, _AT_COUNT)
        code.compare_number(0, 1)
        over = code.skip(NE)
        self._block(1)
        code.land(over)

    def _block(self, pixels: int) -> None:
        """All channels of some pixels; the output then stands at the next."""
        code, product = self.emitted, self.product
        code.ldr(_TABLE, SP, _AT_TABLE)
        self.near = pixels == 1 or product.in_step <= REACH
        if product.holds:
            self._hold(pixels)
        full, left = divmod(product.channels, LANES)
        if full:
            again = code.nbytes
            self._channels(pixels, LANES)
            if full > 1:
                keeps = product._straight and not product.ending.is_long
                end = self.registers.count if keeps else 0
                if not keeps:
                    code.ldr(end, SP, _AT_END)
                code.compare(_TABLE, end)
                code.branch(NE, again)
        if left:
            self._channels(pixels, left)
        stored = 0 if product.places else full * LANES * product.ending.nbytes
        code.add_any(_OUT, _OUT, pixels * product.out_step - stored, 0)

    def _channels(self, pixels: int, channels: int) -> None:
        """Up to four channels of the block."""
        code, product = self.emitted, self.product
        if product.holds:
            for chunk in range(product.chunks):
                self._multiply([_held(pixel, chunk) for pixel in range(pixels)], channels, accumulates=chunk > 0)
            self._end(pixels, channels)
            return
        x = self.registers.x
        code.ldr(x[0], SP, _AT_X)
        if not self.near:
            code.add_any(x[1], x[0], product.in_step, 0)
        if product._straight:
            for row in range(product.rows):
                for chunk in range(product.chunks):
                    self._chunk(pixels, channels, accumulates=row + chunk > 0)
                if row + 1 < product.rows:
                    self._next_row()
        else:
            self._looped(pixels, channels)
        self._end(pixels, channels)

    def _looped(self, pixels: int, channels: int) -> None:
        """The same by loops, over rows and over parts of a long row."""
        code, product, count = self.emitted, self.product, self.registers.count
        for sums in self.registers.sums[:pixels]:
            for low in sums[:channels]:
                code.constant(low, 0)
                if product.ending.is_long:
                    code.constant(low + 1, 0)
        if product.rows > 1:
            code.constant(count, product.rows)
        again = code.nbytes
        self._row(pixels, channels)
        if product.rows > 1:
            self._next_row()
            code.subs_number(count, 1)
            code.branch(NE, again)

    def _row(self, pixels: int, channels: int) -> None:
        code, chunks = self.emitted, self.product.chunks
        x, skip = self.registers.x, self.registers.skip
        turns, left = (divmod(chunks, _TURN)) if chunks > _LONG_ROW else (0, chunks)
        if turns:
            code.add_any(skip, x[0], turns * _TURN * CHUNK, skip)
            again = code.nbytes
            for _ in range(_TURN):
                self._chunk(pixels, channels, accumulates=True)
            code.compare(x[0], skip)
            code.branch(NE, again)
        for _ in range(left):
            self._chunk(pixels, channels, accumulates=True)

    def _next_row(self) -> None:
        code, x, skip = self.emitted, self.registers.x, self.registers.skip
        if self.product.chunks > _LONG_ROW or self.product.ending.is_long:
            code.ldr(skip, SP, _AT_SKIP)
        code.add_registers(x[0], x[0], skip)
        if not self.near:
            code.add_registers(x[1], x[1], skip)

    def _chunk(self, pixels: int, channels: int, accumulates: bool) -> None:
        code, x = self.emitted, self.registers.x
        if pixels == 2:
            if self.near:
                code.vload(1, x[0], self.product.in_step)
            else:
                code.vload_post(1, x[1], CHUNK)
        code.vload_post(0, x[0], CHUNK)
        self._multiply(range(pixels), channels, accumulates)

    def _hold(self, pixels: int) -> None:
        """Load the windows of a block."""
        code, product, x = self.emitted, self.product, self.registers.x
        code.ldr(x[0], SP, _AT_X)
        for pixel in range(pixels):
            for chunk in range(product.chunks):
                code.vload(_held(pixel, chunk), x[0], chunk * CHUNK)
            if pixel + 1 < pixels:
                code.add_any(x[0], x[0], product.in_step, 0)

    def _multiply(self, windows: Sequence[int], channels: int, accumulates: bool) -> None:
        """A chunk of each pixel (in q registers) times that of each channel."""
        code, ending = self.emitted, self.product.ending
        for channel in range(channels):
            weights = 2 + channel % 2
            code.vload_post(weights, _TABLE, self.product.each, "w" if ending.input_nbytes == 1 else "s16")
            for sums, window in zip(self.registers.sums, windows, strict=False):
                if ending.is_long:
                    code.vmlaldav(sums[channel], window, weights, accumulates)
                else:
                    code.vmladav(sums[channel], window, weights, accumulates, 8 * ending.input_nbytes)

    def _end(self, pixels: int, channels: int) -> None:
        """Requantise and store."""
        code, ending = self.emitted, self.product.ending
        if ending.is_long:
            self._scale(channels)
        for pixel in range(pixels):
            a, b, c, d = self.registers.sums[pixel]
            code.vmov_even(pixel, a, c)  # lanes without a channel hold whatever they hold
            if channels > 1:
                code.vmov_odd(pixel, b, d)
        ending.requantise(code, range(pixels), (2, 3), _TABLE, 0)
        for pixel in range(pixels):
            if ending.nbytes < 4:
                ending.halve(code, pixel, pixel)
            if ending.nbytes == 1:
                code.vqmovn(pixel, pixel, 16)
        ending.clamp(code, range(pixels), 2, 0)
        if channels < LANES:
            code.constant(0, channels)
            code.vctp(32, 0)
        if self.product.places:
            self._scatter(pixels, channels)
            return
        if pixels == 2:
            there = self.product.out_step
            if there <= REACH * ending.nbytes:
                self._store(1, _OUT, there, 0, channels)
            else:
                code.add_any(0, _OUT, there, 2)
                self._store(1, 0, 0, 0, channels)
        self._store(0, _OUT, 0, LANES * ending.nbytes, channels)

    def _scatter(self, pixels: int, channels: int) -> None:
        """Store each channel at its place."""
        code, kind = self.emitted, "32" if self.product.ending.nbytes == 1 else "h32"
        code.vload_post(3, _TABLE, CHUNK, "w")
        for pixel in range(pixels):
            base = _OUT if pixel == 0 else 0
            if pixel:
                code.add_any(base, _OUT, self.product.out_step, 2)
            if channels < LANES:
                code.vpst()
            code.vscatter(pixel, base, 3, kind)

    def _scale(self, channels: int) -> None:
        """Sums of 64 bits become what they are scaled, in 32."""
        code = self.emitted
        for low in self.registers.sums[0][:channels]:
            code.ldrd_post(_LOW, _HIGH, _TABLE, 8)
            code.ldrd_post(_FACTOR, _DOWN, _TABLE, 8)
            code.umlal(_LOW, _HIGH, low, _FACTOR)
            code.mla(low + 1, low + 1, _FACTOR, _HIGH)
            code.mov(low, _LOW)
            code.asrl(low, _DOWN)
        code.add_any(_TABLE, _TABLE, 16 * (LANES - channels), _DOWN)

    def _store(self, q: int, base: int, offset: int, step: int, channels: int) -> None:
        code, kind = self.emitted, {1: "32", 2: "h32", 4: "w"}[self.product.ending.nbytes]
        if channels < LANES:
            code.vpst()
        if step and channels == LANES:
            code.vstore_post(q, base, step, kind)
        else:
            code.vstore(q, base, offset, kind)
