"""The products of a depthwise convolution on Cortex-M0: two output rows in a word, channel by channel, in machine code.

Enters: geometry, the groups of taps that are summed in lanes, the requantisation. Leaves: a function.
Invariant: registers are where the comments say; the code depends on nothing but this value.

For each channel the columns of the input are gathered, words V[column][ky] = x[upper row's] + (x[lower row's] << 16); one column's
taps are neighbours. An output takes LDM of up to 3 words and LDM of their weights, MULS and ADDS for each. 32768 is added to a
group's sum P, so that P >> 16 is the sum of the high lane; S, the sum of all P, is less 32768 for each group at last.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from llvmlite import ir

from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.cmsis_nn.swar import lanes
from aot.backends.cmsis_nn.thumb1.assembler import ALWAYS, EQ, LR, NE, SP, Code
from aot.backends.cmsis_nn.thumb1.product import PUSHED_NBYTES, enter, leave, rescale
from aot.backends.cmsis_nn.thumb1.rescale import Rescaling
from aot.graph.primitive import Geometry
from aot.llvm.machine_code import machine_code
from aot.llvm.types import I32, POINTER, Value

_WEIGHTS, _COLUMNS = 5, 6
_END, _BIAS, _OUT, _PARTIAL, _SUM, _HIGH = 8, 9, 10, 11, 12, LR
_OUT_SLOT, _STRIDE, _COLUMNS_SLOT, _COUNT, _TABLE_SLOT = range(0, 20, 4)
_ROWS = 20  # bytes from the stack pointer to the rows' addresses
_PIECE = 3  # taps that are loaded together
_LOOP_NBYTES = 240


@dataclass(frozen=True)
class Taps:
    """classes: (sizes of the groups of taps, column by column; how many channels), in the order of the table.

    out_pixel: bytes from an output to its neighbour. rescaling: None leaves the sums, int32 each. is_small: the table has bytes, which
    are unpacked to the stack for each channel of a pair of rows, else words.
    """

    geometry: Geometry
    classes: tuple[tuple[tuple[int, ...], int], ...]
    out_pixel: int
    rescaling: Rescaling | None
    is_small: bool = False

    @property
    def offsets(self) -> tuple[int, ...]:
        """The input rows of a pair of output rows, from the upper one's first on."""
        g = self.geometry
        upper = {ky * g.dilation[0] for ky in range(g.kernel[0])}
        return tuple(sorted(upper | {offset + g.stride[0] for offset in upper}))

    @property
    def columns(self) -> int:
        """Gathered columns, with padding."""
        g = self.geometry
        return (g.output[2] - 1) * g.stride[1] + (g.kernel[1] - 1) * g.dilation[1] + 1

    @property
    def inside(self) -> tuple[int, int]:
        """The first gathered column that lies in the image, and how many do."""
        g = self.geometry
        first = min(g.pad_left, self.columns)
        return first, min(self.columns, g.pad_left + g.input[2]) - first

    @property
    def columns_nbytes(self) -> int:
        return 4 * self.columns * self.geometry.kernel[0]

    @property
    def frame_nbytes(self) -> int:
        return self.unpacked_at + (4 * (self.taps + 3 + self.constants) if self.is_small else 0)

    @property
    def unpacked_at(self) -> int:
        """Bytes from the stack pointer to the unpacked weights of a channel, and its constants."""
        return _ROWS + 4 * len(self.offsets)

    @property
    def can_be_small(self) -> bool:
        """Whether a channel's places fit halfwords, and unpacked weights are within reach."""
        g = self.geometry
        return g.output[3] * self.element_nbytes < 1 << 16 and self.unpacked_at <= 1020

    def words(self, channel: tuple[int, int], weights: Sequence[int]) -> list[int]:
        """The table's words of a channel, at bytes (input, output) of its pixels, before its constants."""
        if not self.is_small:
            return [*channel, *weights]
        raw = bytes(weight & 0xFF for weight in weights) + bytes(-len(weights) % 4)
        return [channel[0] | channel[1] << 16, *(int.from_bytes(raw[at : at + 4], "little") for at in range(0, len(raw), 4))]

    @property
    def taps(self) -> int:
        return self.geometry.kernel[0] * self.geometry.kernel[1]

    @property
    def constants(self) -> int:
        """Words of a channel behind its weights."""
        return 0 if self.rescaling is None else len(self.rescaling.words(0))

    @property
    def element_nbytes(self) -> int:
        return 4 if self.rescaling is None else 1

    def call(self, dsp: Dsp, rows: Value, table: Value, out: Value, stride: Value, columns: Value) -> None:
        """A pair of output rows. rows: addresses of the input rows at `offsets`. table: for each channel `words`, with its weights column
        by column, and its constants. stride: bytes from the upper output row to the lower; 0
        where only the upper one is wanted. columns: scratch of `columns_nbytes`, padding filled in."""
        type = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, POINTER, I32, POINTER])
        purpose = f"taps_{hashlib.sha256(self.code).hexdigest()[:12]}"
        function = machine_code(dsp.function, purpose, type, self.code, PUSHED_NBYTES + self.frame_nbytes)
        dsp.builder.call(function, [rows, table, out, stride, columns])

    @cached_property
    def code(self) -> bytes:
        return _Assembly(self).function()

    @property
    def instructions(self) -> int:
        """For a pair of rows, where nothing saturates."""
        height, width = self.geometry.kernel
        pieces = width * -(-height // _PIECE)
        column = 2 * len(self.offsets) + 2 * height + -(-height // _PIECE) + 3
        ending = 2 * (2 if self.rescaling is None else self.rescaling.instructions + 3) + 18
        found = 60
        for sizes, count in self.classes:
            output = 2 * pieces + 2 * self.taps + 4 * len(sizes) + ending
            found += count * (self.inside[1] * column + self.geometry.output[2] * output + 30)
            found += count * (12 + round(2.6 * self.taps)) if self.is_small else 0
        return found


class _Assembly:
    def __init__(self, taps: Taps) -> None:
        self.taps, self.code, self.geometry = taps, Code(), taps.geometry

    def function(self) -> bytes:
        """r0 rows, r1 table, r2 out, r3 stride, on the stack: columns."""
        taps, code = self.taps, self.code
        enter(code)
        code.ldr(4, SP, PUSHED_NBYTES)
        code.move_sp(-taps.frame_nbytes)
        for register, slot in ((2, _OUT_SLOT), (3, _STRIDE), (4, _COLUMNS_SLOT)):
            code.str(register, SP, slot)
        for number in range(len(taps.offsets)):
            code.ldm(0, (4,))
            code.str(4, SP, _ROWS + 4 * number)
        code.number(4, lanes.BIAS)
        code.mov(_BIAS, 4)
        code.mov(_WEIGHTS, 1)
        for number, (sizes, count) in enumerate(taps.classes):
            self._class(number, sizes, count)
        code.move_sp(taps.frame_nbytes)
        leave(code)
        code.label("gather")
        self._gather()
        return code.finish()

    def _class(self, number: int, sizes: Sequence[int], count: int) -> None:
        """Channels whose taps are grouped alike: r5 walks over the table."""
        taps, code, channel, column, done = self.taps, self.code, f"channel{number}", f"column{number}", self.code.fresh()
        code.number(0, count)
        code.str(0, SP, _COUNT)
        code.label(channel)
        if taps.is_small:
            code.ldm(_WEIGHTS, (0,))
            code.lsrs(1, 0, 16)
            code.lsls(0, 0, 16)
            code.lsrs(0, 0, 16)
        else:
            code.ldm(_WEIGHTS, (0, 1))
        code.ldr(2, SP, _OUT_SLOT)
        code.adds(1, 1, 2)
        code.mov(_OUT, 1)
        if taps.is_small:
            self._unpack(number)
        code.str(_WEIGHTS, SP, _TABLE_SLOT)
        if taps.inside[1]:
            code.bl("gather")
        if not taps.is_small:
            code.ldr(_WEIGHTS, SP, _TABLE_SLOT)
        code.ldr(_COLUMNS, SP, _COLUMNS_SLOT)
        code.number(0, self.geometry.output[2] * self._step)
        code.adds(0, 0, _COLUMNS)
        code.mov(_END, 0)
        code.label(column)
        if taps.is_small:
            code.add_sp(_WEIGHTS, taps.unpacked_at)
        self._products(sizes)
        self._ending()
        code.cmp_any(_COLUMNS, _END)
        code.branch(EQ, done)
        code.bl(column)
        code.label(done)
        if taps.is_small:
            code.ldr(_WEIGHTS, SP, _TABLE_SLOT)
        else:
            code.move(_WEIGHTS, 4 * (taps.taps + taps.constants), 0)
        after = code.fresh()
        code.ldr(0, SP, _COUNT)
        code.add_number(0, -1)
        code.str(0, SP, _COUNT)
        code.branch(EQ, after)
        code.bl(channel)
        code.label(after)

    def _unpack(self, number: int) -> None:
        """A channel's weights and constants to the stack. Keeps r0."""
        taps, code, again = self.taps, self.code, f"unpack{number}"
        words = -(-taps.taps // 4)
        code.add_sp(7, taps.unpacked_at)
        if words > 1:
            code.movs(6, words)
            code.label(again)
        code.ldm(_WEIGHTS, (4,))
        code.sxtb(1, 4)
        for register, shift in ((2, 16), (3, 8)):
            code.lsls(register, 4, shift)
            code.asrs(register, register, 24)
        code.asrs(4, 4, 24)
        code.stm(7, (1, 2, 3, 4))
        if words > 1:
            code.repeat_until_zero(6, again)
        code.move(7, 4 * (taps.taps - 4 * words), 1)
        for first in range(0, taps.constants, 4):
            registers = range(1, 1 + min(4, taps.constants - first))
            code.ldm(_WEIGHTS, registers)
            code.stm(7, registers)

    @property
    def _step(self) -> int:
        """Bytes from an output's first column to the next one's."""
        return 4 * self.geometry.kernel[0] * self.geometry.stride[1]

    # Gathering.

    def _gather(self) -> None:
        """The columns of the channel at byte r0 of a pixel. r7 walks over the columns, r0 over the rows; values in r2 to r5."""
        taps, code, g = self.taps, self.code, self.geometry
        first, count = taps.inside
        if not count:
            return
        code.ldr(7, SP, _COLUMNS_SLOT)
        code.move(7, 4 * first * g.kernel[0], 1)
        one = Code()
        self._column(one)
        unroll = max(n for n in range(1, 7) if count % n == 0 and (n == 1 or n * one.nbytes <= _LOOP_NBYTES))
        if count > unroll:
            code.number(1, 4 * count * g.kernel[0])
            code.adds(1, 1, 7)
            code.mov(_PARTIAL, 1)
            code.label("columns")
        for _ in range(unroll):
            self._column(code)
        if count > unroll:
            done = code.fresh()
            code.cmp_any(7, _PARTIAL)
            if unroll * one.nbytes <= _LOOP_NBYTES:
                code.branch(NE, "columns")
            else:
                code.branch(EQ, done)
                code.branch(ALWAYS, "columns")
            code.label(done)
        code.bx(LR)

    def _column(self, code: Code) -> None:
        """A column's words, up to three at once."""
        g = self.geometry
        for first in range(0, g.kernel[0], _PIECE):
            rows = [ky * g.dilation[0] for ky in range(first, min(first + _PIECE, g.kernel[0]))]
            registers = {row: 2 + number for number, row in enumerate(rows)}
            for row, register in registers.items():
                self._load(code, row, register)
            apart = None  # the row in r5
            for row in rows:
                lower = row + g.stride[0]
                if lower not in registers and lower != apart:
                    self._load(code, lower, 5)
                    apart = lower
                code.lsls(6, registers.get(lower, 5), 16)
                code.adds(registers[row], registers[row], 6)
            code.stm(7, list(registers.values()))
        code.move(0, g.input[3], 1)

    def _load(self, code: Code, offset: int, register: int) -> None:
        code.ldr(1, SP, _ROWS + 4 * self.taps.offsets.index(offset))
        code.ldrsb(register, 1, 0)

    # Multiplying.

    def _products(self, sizes: Sequence[int]) -> None:
        """One output of both rows: r0 = the upper sum, r4 = the lower one. r6 goes on to the next output's columns, r5 to constants."""
        code, (height, width) = self.code, self.geometry.kernel
        ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
        starts = [0, *ends]
        tap = 0
        for kx in range(width):
            for first in range(0, height, _PIECE):
                count = min(_PIECE, height - first)
                code.ldm(_COLUMNS, range(count))
                code.ldm(_WEIGHTS, (3, 4, 7)[:count])
                for number, weight in zip(range(count), (3, 4, 7)):
                    code.muls(number, weight)
                for number in range(count):
                    is_last = tap + 1 in ends
                    begun = tap - number not in starts and not any(tap - number < start <= tap for start in starts)
                    if number + 1 < count and not is_last:
                        code.adds(number + 1, number + 1, number)
                    elif is_last:
                        if begun:
                            code.add(number, _PARTIAL)
                        self._split(number, ends.index(tap + 1), len(ends))
                    elif begun:
                        code.add(_PARTIAL, number)
                    else:
                        code.mov(_PARTIAL, number)
                    tap += 1
            if kx + 1 < width:
                code.move(_COLUMNS, 4 * height * (self.geometry.dilation[1] - 1), 3)
        code.move(_COLUMNS, self._step - 4 * height * ((width - 1) * self.geometry.dilation[1] + 1), 3)

    def _split(self, register: int, group: int, groups: int) -> None:
        """A group's sum to S and H; the last one leaves r0 and r4."""
        code = self.code
        is_last = group + 1 == groups
        high = 4 if is_last else register
        if is_last:
            code.mov(4, register)
        elif group:
            code.add(_SUM, register)
        else:
            code.mov(_SUM, register)
        code.add(high, _BIAS)
        code.asrs(high, high, 16)
        if not is_last:
            if group:
                code.add(_HIGH, high)
            else:
                code.mov(_HIGH, high)
            return
        if group:
            code.add(register, _SUM)
            code.add(4, _HIGH)
        code.lsls(7, 4, 16)
        code.subs(0, register, 7)

    def _ending(self) -> None:
        """Sums to outputs, the lower row's first: a stride of 0 leaves the upper one's."""
        taps, code, rescaling = self.taps, self.code, self.taps.rescaling
        if rescaling is not None:
            rescale(code, rescaling, 4, _WEIGHTS)
            code.move(_WEIGHTS, -4 * taps.constants, 3)
        code.mov(2, _OUT)
        code.ldr(3, SP, _STRIDE)
        if rescaling is None:
            code.str_at(4, 2, 3)
            code.str(0, 2)
        else:
            code.strb_at(1, 2, 3)
            rescale(code, rescaling, 0, _WEIGHTS)
            code.mov(2, _OUT)
            code.strb(1, 2)
        code.move(2, taps.out_pixel, 3)
        code.mov(_OUT, 2)
        if not taps.is_small:
            code.move(_WEIGHTS, -4 * (taps.taps + taps.constants), 3)
