# pyright: basic
"""The matrix product on Cortex-M0: one pixel's inputs times all channels' weights, two channels in a word, in machine code.

Enters: the sizes of the groups that are summed in lanes, the blocks of channels, the requantisation. Leaves: a function.
Invariant: registers and flags are where the comments say; the code depends on nothing but this value.

A k takes LDR of the input (a word on the stack), LDM of up to 3 words of weights, and MULS and ADD for each: 8 instructions for 6
products. LDM makes the copy that MULS destroys; ADD takes high registers. At the end of a group the sum P is split in three
instructions: S += P; ASRS #16 of P, whose carry is P's bit 15; ADCS to H, the sum of the high lanes rounded to nearest. At last the
low lanes' sum is S - (H << 16).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from llvmlite import ir

from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.cmsis_nn.thumb1.assembler import ALWAYS, EQ, GE, LE, LR, LS, NE, PC, SP, Code
from aot.backends.cmsis_nn.thumb1.rescale import Rescaling
from aot.llvm.machine_code import machine_code
from aot.llvm.types import POINTER, Value

_X, _TABLE = 3, 6
_HIGHS: Sequence[int] = (4, 5, 7)
_PARTIAL: Sequence[int] = (8, 9, 10)
_KEPT_MASK = 10  # where blocks have at most 2 words
_SUMS: Sequence[int] = (11, 12, LR)
_OUT, _COUNT, _CHUNKS, _SOURCE, _OFFSETS, _STREAM, _PARTS, _FIRST = range(0, 32, 4)  # slots at the stack pointer
_INPUTS = 32  # bytes from the stack pointer to the inputs' words
PUSHED_NBYTES = 36
_MOST_FRAME = 800  # bytes: what calls it has 1 KiB of stack with it; loads reach 1024 from the stack pointer
_MASK = 0x00FF00FF
_UNROLL = 16  # inputs that are gathered without a loop


@dataclass(frozen=True)
class Product:
    """sizes: of a chunk's groups; blocks: (words, how many). rescaling: None leaves the sums, int32 each, else int8 are left.
    offset_nbytes: of the places of inputs, 1 or 2.

    is_small: the table has bytes: a word has two k's of two channels, each weight more by 128: v = u0 + (u1 << 8), where u0 and
    u1 have two lanes each. u0 * x0 + u1 * x1 is v * x0 + u1 * (x1 - 256 * x0), so that only u1 is taken out: 15 instructions for two k's of
    two words. What 128 adds, the sum of a group's inputs times 128 in both lanes, is made once for a pixel and taken off before a split.
    """

    sizes: tuple[int, ...]
    chunks: int
    blocks: tuple[tuple[int, int], ...]
    channels: int
    rescaling: Rescaling | None
    is_small: bool = False
    offset_nbytes: int = 2

    @property
    def depth(self) -> int:
        """k's of a chunk."""
        return sum(self.sizes)

    @cached_property
    def pairs(self) -> frozenset[int]:
        """The first k's of words of two k's that are in one group, where the table has bytes."""
        found: set[int] = set()
        k = 0
        for size in self.sizes:
            found |= {first for first in range(k, k + size - 1) if first % 2 == 0}
            k += size
        return frozenset(found)

    @property
    def words(self) -> int:
        return sum(width * count for width, count in self.blocks)

    @property
    def parts_nbytes(self) -> int:
        """Scratch for the sums between chunks."""
        return 8 * self.words if self.chunks > 1 else 0

    @property
    def frame_nbytes(self) -> int:
        return self.excess_at + (4 * len(self.sizes) if self.is_small else 0)

    @property
    def excess_at(self) -> int:
        """Bytes from the stack pointer to what 128 adds to each group."""
        return _INPUTS + 4 * self.depth

    @property
    def is_within_reach(self) -> bool:
        return self.frame_nbytes <= _MOST_FRAME

    @property
    def element_nbytes(self) -> int:
        return 4 if self.rescaling is None else 1

    def call(self, dsp: Dsp, source: Value, offsets: Value, table: Value, out: Value, parts: Value) -> None:
        """One pixel. offsets: of `offset_nbytes` each, where in `source` each k's input lies. out: an element for each channel, of
        `element_nbytes`."""
        code = self.code
        type = ir.FunctionType(ir.VoidType(), [POINTER] * 5)
        purpose = f"lanes_{hashlib.sha256(code).hexdigest()[:12]}"
        function = machine_code(dsp.function, purpose, type, code, PUSHED_NBYTES + self.frame_nbytes)
        dsp.builder.call(function, [source, offsets, table, out, parts])

    @cached_property
    def code(self) -> bytes:
        return _Assembly(self).function()

    @property
    def instructions(self) -> int:
        """For a pixel, where nothing saturates."""
        found = 40 + self.chunks * (12 + round(2.45 * self.depth))
        found += self.chunks * (4 * self.depth + 3 * len(self.sizes)) if self.is_small else 0
        per_output = 1 if self.rescaling is None else self.rescaling.instructions + 4
        for width, count in self.blocks:
            core = self.depth * (2 + 2 * width) + len(self.sizes) * 3 * width + width + 7
            if self.is_small:
                core = (
                    self.depth * (3 + 8 * width) // 2 - 2 * width * len(self.pairs) + len(self.sizes) * (1 + 5 * width) + width + 8
                )
            found += count * (self.chunks * core + width * 6 + 6)
            if self.chunks > 1:
                found += count * (self.chunks * (12 + 2 * width) + 2 * width)
        return found + self.channels * per_output


class _Assembly:
    def __init__(self, product: Product) -> None:
        self.product, self.code = product, Code()
        self.splits = product.chunks > 1

    def function(self) -> bytes:
        """r0 source, r1 offsets, r2 table, r3 out, on the stack: parts."""
        product, code = self.product, self.code
        enter(code)
        if self.splits:
            code.ldr(4, SP, PUSHED_NBYTES)
        code.move_sp(-product.frame_nbytes)
        code.str(3, SP, _OUT)
        if self.splits:
            code.str(4, SP, _FIRST)
            self._clear()
            code.str(0, SP, _SOURCE)
            code.number(3, product.chunks)
            code.str(3, SP, _CHUNKS)
            code.str(2, SP, _STREAM)
            code.label("chunk")
            code.ldr(3, SP, _FIRST)
            code.str(3, SP, _PARTS)
            code.ldr(0, SP, _SOURCE)
        else:
            code.str(2, SP, _STREAM)
        self._gather()
        if product.is_small:
            self._excess()
        code.ldr(_TABLE, SP, _STREAM)
        for number, (width, count) in enumerate(product.blocks):
            self._blocks(number, width, count)
        if self.splits:
            code.str(_TABLE, SP, _STREAM)
            code.ldr(1, SP, _OFFSETS)
            self._again(_CHUNKS, "chunk")
        code.move_sp(product.frame_nbytes)
        leave(code)
        return code.finish()

    def _clear(self) -> None:
        """The sums start from 0. Keeps r0 to r2."""
        code = self.code
        code.movs(5, 0)
        code.movs(6, 0)
        code.number(7, self.product.words)
        code.label("clear")
        code.stm(4, (5, 6))
        code.repeat_until_zero(7, "clear")

    def _gather(self) -> None:
        """The chunk's inputs, each a word: r0 source, r1 offsets."""
        code = self.code
        code.add_sp(7, _INPUTS)
        turns, rest = divmod(self.product.depth, _UNROLL)
        if turns > 1:
            code.movs(_TABLE, turns)
            code.label("inputs")
        if turns:
            self._gather_some(_UNROLL)
        if turns > 1:
            code.repeat_until_zero(_TABLE, "inputs")
        self._gather_some(rest)
        if self.splits:
            code.str(1, SP, _OFFSETS)

    def _gather_some(self, count: int) -> None:
        code = self.code
        for first in range(0, count, 4):
            registers = range(2, 2 + min(4, count - first))
            for number, register in enumerate(registers):
                load = code.ldrb if self.product.offset_nbytes == 1 else code.ldrh
                load(register, 1, self.product.offset_nbytes * (first + number))
                code.ldrsb(register, 0, register)
            code.stm(7, registers)
        if count:
            code.add_number(1, self.product.offset_nbytes * count)

    def _excess(self) -> None:
        """For each group 128 times the sum of its inputs, in both lanes. Of pairs the second input becomes x1 - 256 * x0. And the
        mask."""
        code, k = self.code, 0
        for number, size in enumerate(self.product.sizes):
            for place in range(k, k + size):
                register = 0 if place == k else 1
                code.ldr(register, SP, _INPUTS + 4 * place)
                if place - 1 in self.product.pairs:
                    code.lsls(2, 2, 8)
                    code.subs(2, 1, 2)
                    code.str(2, SP, _INPUTS + 4 * place)
                if place in self.product.pairs:
                    code.mov(2, register)
                if register:
                    code.adds(0, 0, 1)
            k += size
            code.lsls(1, 0, 7)
            code.lsls(0, 0, 23)
            code.adds(0, 0, 1)
            code.str(0, SP, self.product.excess_at + 4 * number)
        code.number(0, _MASK)
        code.mov(_KEPT_MASK, 0)

    def _again(self, slot: int, label: str) -> None:
        """Count a slot down, and jump to `label` until it is 0."""
        code, done = self.code, self.code.fresh()
        code.ldr(0, SP, slot)
        code.add_number(0, -1)
        code.str(0, SP, slot)
        code.branch(EQ, done)
        code.bl(label)
        code.label(done)

    # A block of channels.

    def _blocks(self, number: int, width: int, count: int) -> None:
        code, block, ending, done = self.code, f"block{number}", f"ending{number}", f"done{number}"
        if count > 1:
            code.number(0, count)
            code.str(0, SP, _COUNT)
        code.label(block)
        registers = (*range(width), *_HIGHS[:width])
        if self.splits:
            code.ldr(_X, SP, _PARTS)
            code.ldm(_X, registers)
            code.str(_X, SP, _PARTS)
            for j in range(width):
                code.mov(_SUMS[j], j)
        else:
            for j in range(width):
                code.movs(_HIGHS[j], 0)
        if self.product.is_small:
            self._small_core(width)
        else:
            self._core(width)
        if self.splits:
            code.ldr(_X, SP, _CHUNKS)
            code.cmp_number(_X, 1)
            code.branch(EQ, ending)
            code.ldr(_X, SP, _PARTS)
            code.add_number(_X, -8 * width)
            for j in range(width):
                code.mov(j, _SUMS[j])
            code.stm(_X, registers)
            code.bl(done)
        code.label(ending)
        last = number + 1 == len(self.product.blocks)
        odd = self.product.channels % 2 if last else 0
        if odd and count > 1:
            self._odd(width, count)
        else:
            self._ending(width, 2 * width - odd)
        code.label(done)
        if count > 1:
            self._again(_COUNT, block)

    def _odd(self, width: int, count: int) -> None:
        """An ending for all blocks but the last, and one for the last, which has a channel less."""
        code, full, shorter, after = self.code, self.code.fresh(), self.code.fresh(), self.code.fresh()
        code.ldr(0, SP, _COUNT)
        code.cmp_number(0, 1)
        code.branch(NE, full)
        code.branch(ALWAYS, shorter)  # BL would destroy a sum
        code.label(full)
        self._ending(width, 2 * width)
        code.branch(ALWAYS, after)
        code.label(shorter)
        self._ending(width, 2 * width - 1)
        code.label(after)

    def _core(self, width: int) -> None:
        """All groups. Leaves S in high registers, H in low ones."""
        code, k = self.code, 0
        for number, size in enumerate(self.product.sizes):
            for place in range(size):
                code.ldr(_X, SP, _INPUTS + 4 * k)
                code.ldm(_TABLE, range(width))
                k += 1
                for j in range(width):
                    code.muls(j, _X)
                if size == 1:
                    continue
                for j in range(width):
                    if place == 0:
                        code.mov(_PARTIAL[j], j)
                    elif place + 1 < size:
                        code.add(_PARTIAL[j], j)
                    else:
                        code.add(j, _PARTIAL[j])
            for j in range(width):
                if number == 0 and not self.splits:
                    code.mov(_SUMS[j], j)
                else:
                    code.add(_SUMS[j], j)
                code.asrs(j, j, 16)
                code.adcs(_HIGHS[j], j)

    def _small_core(self, width: int) -> None:
        """The same from bytes: r0 and r1 are words of two k's, r2 a product, r7 the mask."""
        code, k = self.code, 0
        code.mov(7, _KEPT_MASK)
        inside = self.product.pairs
        for number, size in enumerate(self.product.sizes):
            first, end = k, k + size
            while k < end:
                is_pair, is_last = k in inside, k + 1 + (k in inside) == end
                if k % 2 == 0:
                    code.ldm(_TABLE, range(width))
                if is_pair:
                    self._pair(k, width, k == first, is_last)
                else:
                    self._half(k, width, k == first)
                k += 1 + is_pair
            code.ldr(_X, SP, self.product.excess_at + 4 * number)
            for j in range(width):
                total = j if is_pair else 2
                if not is_pair:
                    code.mov(2, _PARTIAL[j])
                code.subs(total, total, _X)
                (code.mov if number == 0 and not self.splits else code.add)(_SUMS[j], total)
                code.asrs(total, total, 16)
                code.adcs(_HIGHS[j], total)

    def _pair(self, k: int, width: int, is_first: bool, is_last: bool) -> None:
        """Both k's of a word, in one group: the second's bytes times x1 - 256 * x0, the whole word times x0. The last pair's sum is left
        in r0 and r1."""
        code = self.code
        code.ldr(_X, SP, _INPUTS + 4 * (k + 1))
        for j in range(width):
            code.lsrs(2, j, 8)
            code.ands(2, 7)
            code.muls(2, _X)
            (code.mov if is_first else code.add)(_PARTIAL[j], 2)
        code.ldr(_X, SP, _INPUTS + 4 * k)
        for j in range(width):
            code.muls(j, _X)
            if is_last:
                code.add(j, _PARTIAL[j])
            else:
                code.add(_PARTIAL[j], j)

    def _half(self, k: int, width: int, is_first: bool) -> None:
        """One k of a word whose other one is in another group."""
        code = self.code
        code.ldr(_X, SP, _INPUTS + 4 * k)
        for j in range(width):
            result = j if k % 2 else 2
            if k % 2:
                code.lsrs(j, j, 8)
            else:
                code.mov(2, j)
            code.ands(result, 7)
            code.muls(result, _X)
            (code.mov if is_first else code.add)(_PARTIAL[j], result)

    def _ending(self, width: int, live: int) -> None:
        """Sums of `live` channels to outputs: r0 the low, r4 the high channel's, r5 where they go."""
        code, nbytes = self.code, self.product.element_nbytes
        for j in range(1, width):
            code.mov(_PARTIAL[j], _HIGHS[j])
        code.ldr(5, SP, _OUT)
        for j in range(width):
            if j:
                code.mov(4, _PARTIAL[j])
            code.mov(0, _SUMS[j])
            code.lsls(1, 4, 16)
            code.subs(0, 0, 1)
            for number, register in ((2 * j, 0), (2 * j + 1, 4)):
                if number >= live:
                    continue
                if self.product.rescaling is None:
                    code.str(register, 5, nbytes * number)
                else:
                    rescale(code, self.product.rescaling, register, _TABLE)
                    code.strb(1, 5, number)
        code.add_number(5, nbytes * live)
        code.str(5, SP, _OUT)


def enter(code: Code) -> None:
    """Save all registers that a function must keep: `PUSHED_NBYTES`. Destroys r4 to r7."""
    code.push((4, 5, 6, 7, LR))
    for register in range(4, 8):
        code.mov(register, register + 4)
    code.push((4, 5, 6, 7))


def leave(code: Code) -> None:
    code.pop((4, 5, 6, 7))
    for register in range(4, 8):
        code.mov(register + 4, register)
    code.pop((4, 5, 6, 7, PC))


def rescale(code: Code, rescaling: Rescaling, sum: int, table: int) -> None:
    """r1 = the int8 of a sum (r0 or r4), from the constants at `table`, which goes on. Destroys r2, r3, r7 and the sum."""
    if rescaling.limits is not None:
        code.ldm(table, (1, 2))
        for limit, condition in ((1, GE), (2, LE)):
            inside = code.fresh()
            code.cmp(sum, limit)
            code.branch(condition, inside)
            code.mov(sum, limit)
            code.label(inside)
    own = [] if isinstance(rescaling.right, int) else [7]
    if rescaling.shift is None:
        code.ldm(table, [1, 3, *own])
        code.muls(1, sum)
    else:
        code.ldm(table, [1, 2, 3, *own])
        code.muls(1, sum)
        code.muls(2, sum)
        if rescaling.shift:
            code.asrs(1, 1, rescaling.shift)
        code.adds(1, 1, 2)
    code.adds(1, 1, 3)
    if rescaling.correction is not None:
        code.ldm(table, (2, 3))
        code.adds(2, 2, sum)
        code.asrs(2, 2, 31)
        code.ands(2, 3)
        code.adds(1, 1, 2)
    if isinstance(rescaling.right, int):
        code.asrs(1, 1, rescaling.right)
    else:
        code.asrs_by(1, 7)
    inside = code.fresh()
    code.cmp_number(1, rescaling.span)
    code.branch(LS, inside)
    code.mvns(1, 1)
    code.asrs(1, 1, 31)
    code.movs(2, rescaling.span)
    code.ands(1, 2)
    code.label(inside)
    if rescaling.low:
        code.add_number(1, rescaling.low)
