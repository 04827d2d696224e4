"""Machine code of the few Thumb-2 instructions that the kernels for Cortex-M3 order by hand.

Enters: calls, one for each instruction, registers by number (sp 13, lr 14, pc 15). Leaves: bytes.
Invariant: an operand that an encoding has no room for raises; the encodings are those of the Armv7-M Architecture Reference Manual,
chapter A7.7, and the tests compare them with an assembler.
"""

from __future__ import annotations

from collections.abc import Sequence

from aot.errors import InternalError

SP, LR, PC = 13, 14, 15
EQ, NE = 0, 1


class Code:
    """Halfwords, as they come."""

    def __init__(self) -> None:
        self.halfwords: list[int] = []

    @property
    def nbytes(self) -> int:
        """Bytes so far: where the next instruction stands."""
        return 2 * len(self.halfwords)

    def finish(self) -> bytes:
        return b"".join(halfword.to_bytes(2, "little") for halfword in self.halfwords)

    def _wide(self, first: int, second: int) -> None:
        self.halfwords += [first, second]

    # Several registers.

    def push(self, registers: Sequence[int]) -> None:
        self._wide(0xE92D, _set(registers, 0x5FFF))

    def pop(self, registers: Sequence[int]) -> None:
        self._wide(0xE8BD, _set(registers, 0xDFFF))

    def ldm(self, base: int, registers: Sequence[int]) -> None:
        """LDM base!, 2 bytes long for low registers."""
        chosen = _set(registers, 0xDFFF & ~(1 << base))
        if base < 8 and chosen < 1 << 8:
            self.halfwords.append(0xC800 | base << 8 | chosen)
        else:
            self._wide(0xE8B0 | base, chosen)

    def stm(self, base: int, registers: Sequence[int], writes_back: bool = True) -> None:
        self._wide(0xE880 | writes_back << 5 | base, _set(registers, 0x5FFF & ~(1 << base)))

    # Memory. Post-indexed: at the base, which then goes forward.

    def ldrsb_post(self, to: int, base: int, step: int = 1) -> None:
        self._wide(0xF910 | base, to << 12 | 0xB00 | _fits(step, 8))

    def ldrb_post(self, to: int, base: int, step: int = 1) -> None:
        self._wide(0xF810 | base, to << 12 | 0xB00 | _fits(step, 8))

    def ldr_post(self, to: int, base: int, step: int = 4) -> None:
        self._wide(0xF850 | base, to << 12 | 0xB00 | _fits(step, 8))

    def str_post(self, value: int, base: int, step: int = 4) -> None:
        self._wide(0xF840 | base, value << 12 | 0xB00 | _fits(step, 8))

    def ldrd_post(self, low: int, high: int, base: int, step: int) -> None:
        self._wide(0xE8F0 | base, low << 12 | high << 8 | _fits(step // 4, 8))

    def ldrd(self, low: int, high: int, base: int, offset: int) -> None:
        self._wide(0xE9D0 | base, low << 12 | high << 8 | _fits(offset // 4, 8))

    def ldr(self, to: int, base: int, offset: int) -> None:
        self._wide(0xF8D0 | base, to << 12 | _fits(offset, 12))

    def str(self, value: int, base: int, offset: int) -> None:
        self._wide(0xF8C0 | base, value << 12 | _fits(offset, 12))

    # Arithmetic; no instruction but TST and CMP touches the flags.

    def mla(self, to: int, a: int, b: int, acc: int) -> None:
        self._wide(0xFB00 | a, acc << 12 | to << 8 | b)

    def mul(self, to: int, a: int, b: int) -> None:
        self._wide(0xFB00 | a, 0xF000 | to << 8 | b)

    def udiv(self, to: int, a: int, b: int) -> None:
        self._wide(0xFBB0 | a, 0xF0F0 | to << 8 | b)

    def mov(self, to: int, value: int) -> None:
        self.halfwords.append(0x4600 | to >> 3 << 7 | value << 3 | to & 7)

    def movw(self, to: int, number: int) -> None:
        n = _fits(number, 16)
        self._wide(0xF240 | (n >> 11 & 1) << 10 | n >> 12, (n >> 8 & 7) << 12 | to << 8 | n & 0xFF)

    def movt(self, to: int, number: int) -> None:
        """The upper half."""
        n = _fits(number, 16)
        self._wide(0xF2C0 | (n >> 11 & 1) << 10 | n >> 12, (n >> 8 & 7) << 12 | to << 8 | n & 0xFF)

    def and_(self, to: int, a: int, b: int) -> None:
        self._wide(0xEA00 | a, to << 8 | b)

    def and_lsr(self, to: int, a: int, b: int, shift: int) -> None:
        """a & (b >> shift), unsigned."""
        self._wide(0xEA00 | a, _shifted(to, b, shift, 1))

    def add(self, to: int, value: int) -> None:
        """to += value."""
        self.halfwords.append(0x4400 | to >> 3 << 7 | value << 3 | to & 7)

    def add_number(self, to: int, a: int, number: int) -> None:
        n = _fits(number, 12)
        self._wide(0xF200 | (n >> 11) << 10 | a, (n >> 8 & 7) << 12 | to << 8 | n & 0xFF)

    def add_asr(self, to: int, a: int, b: int, shift: int) -> None:
        """a + (b >> shift)."""
        self._wide(0xEB00 | a, _shifted(to, b, shift, 2))

    def sub_lsl(self, to: int, a: int, b: int, shift: int) -> None:
        """a - (b << shift)."""
        self._wide(0xEBA0 | a, _shifted(to, b, shift, 0))

    def bic(self, to: int, a: int, mask: int) -> None:
        self._wide(0xF020 | a, to << 8 | _fits(mask, 8))

    def tst(self, a: int, mask: int) -> None:
        self._wide(0xF010 | a, 0x0F00 | _fits(mask, 8))

    def cmp(self, a: int, b: int) -> None:
        """CMP; the encoding is for at least one high register."""
        if a < 8 and b < 8:
            raise InternalError("CMP of two low registers")
        self.halfwords.append(0x4500 | a >> 3 << 7 | b << 3 | a & 7)

    # Branches.

    def jump(self, offset: int) -> None:
        """ADD pc: over `offset` (a register) bytes of what follows, bit 0 ignored."""
        self.halfwords += [0x4487 | offset << 3, 0xBF00]

    def branch(self, condition: int, to: int) -> None:
        """To a position, 4 bytes long."""
        distance = to - (self.nbytes + 4)
        if not -(1 << 20) <= distance < 1 << 20:
            raise InternalError("a branch too far")
        n = distance >> 1 & 0xFFFFF
        j1, j2 = n >> 17 & 1, n >> 18 & 1
        self._wide(0xF000 | (n >> 19) << 10 | condition << 6 | n >> 11 & 0x3F, 0x8000 | j1 << 13 | j2 << 11 | n & 0x7FF)


def _set(registers: Sequence[int], allowed: int) -> int:
    chosen = sum(1 << number for number in registers)
    if chosen & ~allowed or len(set(registers)) != len(registers) or len(registers) < 2 or list(registers) != sorted(registers):
        raise InternalError(f"no such list of registers: {registers}")
    return chosen


def _fits(number: int, bits: int) -> int:
    if not 0 <= number < 1 << bits:
        raise InternalError(f"{number} does not fit {bits} bits")
    return number


def _shifted(to: int, b: int, shift: int, kind: int) -> int:
    n = _fits(shift, 5)
    return (n >> 2) << 12 | to << 8 | (n & 3) << 6 | kind << 4 | b
