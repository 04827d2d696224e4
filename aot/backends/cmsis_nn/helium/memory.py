"""Moving bytes with vectors, in machine code: padded rows, and the windows of pixels put together in rows.

Enters: pointers and numbers of bytes. Leaves: functions.
Invariant: `pad_row` reads and writes exactly what it is told; `Patches` may read and write up to 15 bytes behind, in scratch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.cmsis_nn.helium.mve import LR, SP, Helium
from aot.backends.cmsis_nn.shared import digest
from aot.backends.cmsis_nn.swar.m3.thumb2 import NE, PC
from aot.llvm.machine_code import machine_code
from aot.llvm.types import I32, POINTER, Value

VECTOR = 16
_HELD_NBYTES = 8 * VECTOR
_MANY = 8  # vectors of a run that are copied by a loop


def pad_row(dsp: Dsp, to: Value, source: Value, parts: Sequence[Value], value: Value) -> Value:
    """Bytes of `value`, bytes from source, bytes of `value`; parts: how many of each. Returns the byte behind."""
    type = ir.FunctionType(POINTER, [POINTER, POINTER, I32, I32, I32, I32])
    function = machine_code(dsp.function, "pad_row", type, _pad_row(), 8)
    return dsp.builder.call(function, [to, source, *parts, value])


def _pad_row() -> bytes:
    """r0 to, r1 source, r2 before, r3 middle; on the stack after, value."""
    code, at, filling = Helium(), 12, 1
    code.push((4, LR))
    code.ldr(4, SP, 12)
    code.vdup(filling, 4, 8)

    def run(count: int, copies: bool) -> None:
        code.mov(at, 0)
        start = code.while_bytes(count)
        if copies:
            code.vload_post(0, 1, VECTOR)
        code.vstore_post(0 if copies else filling, at, VECTOR)
        code.end_bytes(start)
        code.add(0, count)

    run(2, False)
    run(3, True)
    code.ldr(4, SP, 8)
    run(4, False)
    code.pop((4, PC))
    return code.finish()


@dataclass(frozen=True)
class Repeated:
    """The same `nbytes` bytes for each of some pixels, `step` bytes from one to the next."""

    nbytes: int
    step: int

    @property
    def _parts(self) -> list[range]:
        """The vectors that are held in registers at a time."""
        return [range(first, min(first + _HELD_NBYTES, self.nbytes), VECTOR) for first in range(0, self.nbytes, _HELD_NBYTES)]

    def instructions(self, pixels: int) -> int:
        """For so many pixels."""
        each = sum(len(part) + 2 for part in self._parts) + (self.nbytes % VECTOR > 0)
        return 12 + -(-self.nbytes // VECTOR) + 2 * len(self._parts) + pixels * each

    @property
    def name(self) -> str:
        """Of the function."""
        return f"repeated_{self.nbytes}_{self.step}"

    @property
    def code_nbytes(self) -> int:
        return len(self._code())

    def call(self, dsp: Dsp, to: Value, source: Value, count: Value) -> None:
        """source: the bytes, at words; it is read up to a multiple of 16."""
        type = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, I32])
        dsp.builder.call(machine_code(dsp.function, self.name, type, self._code(), 8 + 64), [to, source, count])

    def _code(self) -> bytes:
        """r0 to, r1 source, r2 count; r3 walks over the pixels."""
        code, tail = Helium(), self.nbytes % VECTOR
        code.push((4, LR))
        code.vpush()
        if tail:
            code.constant(4, tail)
            code.vctp(8, 4)
        for part in self._parts:
            for number in range(len(part)):
                code.vload_post(number, 1, VECTOR, "w")
            code.add_any(3, 0, part.start, 4)
            start = code.begin_loop(2)
            for number, first in enumerate(part):
                if first + VECTOR > self.nbytes:
                    code.vpst()
                code.vstore(number, 3, first - part.start)
            code.add_any(3, 3, self.step, 4)
            code.end_loop(start)
        code.vpop()
        code.pop((4, PC))
        return code.finish()


@dataclass(frozen=True)
class Phases:
    """A row of `columns` of less than 16 bytes, put in order by phases: those of every `stride`-th column from the first on, then those
    from the second on, and so forth, so that what a strided window meets in turn lies side by side."""

    columns: int
    stride: int
    nbytes: int

    @property
    def phase_nbytes(self) -> int:
        return -(-self.columns // self.stride) * self.nbytes

    @property
    def row_nbytes(self) -> int:
        """Of the row in its new order, and what is written behind it."""
        return self.stride * self.phase_nbytes + VECTOR

    def at(self, column: int) -> int:
        """The byte at which a column lies."""
        return column % self.stride * self.phase_nbytes + column // self.stride * self.nbytes

    def call(self, dsp: Dsp, to: Value, source: Value) -> None:
        """One row. Up to 15 bytes behind the source are read."""
        type = ir.FunctionType(ir.VoidType(), [POINTER, POINTER])
        purpose = f"phases_{self.columns}_{self.stride}_{self.nbytes}"
        dsp.builder.call(machine_code(dsp.function, purpose, type, self._code(), 8), [to, source])

    def _code(self) -> bytes:
        """r0 to, r1 source."""
        code = Helium()
        code.push((4, LR))
        for phase in range(min(self.stride, self.columns)):
            code.add_any(2, 1, phase * self.nbytes, 4)
            code.add_any(3, 0, phase * self.phase_nbytes, 4)
            code.constant(4, -(-(self.columns - phase) // self.stride))
            start = code.begin_loop(4)
            code.vload_post(0, 2, self.stride * self.nbytes)
            code.vstore_post(0, 3, self.nbytes)
            code.end_loop(start)
        code.pop((4, PC))
        return code.finish()


@dataclass(frozen=True)
class Patches:
    """Windows of pixels, each contiguous: runs (first byte in the padded rows, bytes) of the first pixel's window, in order;
    in_step: bytes from pixel to pixel in the padded rows; step: in the patches."""

    runs: Sequence[tuple[int, int]]
    in_step: int
    step: int

    @property
    def instructions(self) -> int:
        """For a pixel."""
        return 4 + sum(2 * -(-nbytes // VECTOR) + 1 for _, nbytes in self.runs)

    def call(self, dsp: Dsp, rows: Value, patches: Value, count: Value) -> None:
        """`count` pixels."""
        type = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, I32])
        purpose = f"patches_{digest((tuple(self.runs), self.in_step, self.step))}"
        dsp.builder.call(machine_code(dsp.function, purpose, type, self._code(), 16), [rows, patches, count])

    def _code(self) -> bytes:
        """r0 rows, r1 patches, r2 count; r3 walks over the rows."""
        code = Helium()
        code.push((4, 5, 6, LR))
        again = code.nbytes
        code.mov(3, 0)
        position, written = 0, 0
        for first, nbytes in self.runs:
            code.add_any(3, 3, first - position, 4)
            position = first + self._run(code, nbytes)
            written += nbytes
        code.add_any(1, 1, self.step - written, 4)
        code.add_any(0, 0, self.in_step, 4)
        code.subs_number(2, 1)
        code.branch(NE, again)
        code.pop((4, 5, 6, PC))
        return code.finish()

    def _run(self, code: Helium, nbytes: int) -> int:
        """Copy a run; the bytes that r3 went forward."""
        whole, left = divmod(nbytes, VECTOR)
        if whole > _MANY:
            code.constant(5, whole)
            again = code.nbytes
            code.vload_post(0, 3, VECTOR)
            code.vstore_post(0, 1, VECTOR)
            code.subs_number(5, 1)
            code.branch(NE, again)
        else:
            for _ in range(whole):
                code.vload_post(0, 3, VECTOR)
                code.vstore_post(0, 1, VECTOR)
        if left:
            code.vload(0, 3)
            code.vstore_post(0, 1, left)
        return whole * VECTOR
