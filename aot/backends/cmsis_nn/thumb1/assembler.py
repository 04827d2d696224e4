"""Machine code of Armv6-M's instructions, for the loops that the kernels for Cortex-M0 order by hand.

Enters: calls, one for each instruction, registers by number (sp 13, lr 14, pc 15). Leaves: bytes without literals, for any address.
Invariant: an operand that an encoding has no room for, and a label out of reach, raise; the encodings are those of the Armv6-M
Architecture Reference Manual, chapter A6.7, and the tests compare them with an assembler.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from aot.errors import InternalError

SP, LR, PC = 13, 14, 15
EQ, NE, LS, GE, LE, ALWAYS = 0, 1, 9, 10, 13, 14


class Code:
    """Halfwords, as they come; labels are resolved at the end."""

    def __init__(self) -> None:
        self.halfwords: list[int] = []
        self._labels: dict[str, int] = {}
        self._branches: list[tuple[int, str, int | None]] = []  # position, label, condition (None: BL)
        self._names = 0

    @property
    def nbytes(self) -> int:
        """Bytes so far: where the next instruction stands."""
        return 2 * len(self.halfwords)

    def fresh(self) -> str:
        """A label's name that no other has."""
        self._names += 1
        return f".{self._names}"

    def label(self, name: str) -> None:
        """Name the next instruction."""
        if name in self._labels:
            raise InternalError(f"label {name} stands twice")
        self._labels[name] = self.nbytes

    def finish(self) -> bytes:
        for at, name, condition in self._branches:
            distance = self._labels[name] - (at + 4)
            halfwords = _long_branch(distance) if condition is None else [_branch(distance, condition)]
            self.halfwords[at // 2 : at // 2 + len(halfwords)] = halfwords
        return b"".join(halfword.to_bytes(2, "little") for halfword in self.halfwords)

    def _add(self, *parts: int) -> None:
        self.halfwords.append(sum(parts))

    # Several registers.

    def push(self, registers: Sequence[int]) -> None:
        chosen = _set(registers, 0x40FF)
        self._add(0xB400, chosen & 0xFF, chosen >> 14 << 8)

    def pop(self, registers: Sequence[int]) -> None:
        chosen = _set(registers, 0x80FF)
        self._add(0xBC00, chosen & 0xFF, chosen >> 15 << 8)

    def ldm(self, base: int, registers: Sequence[int]) -> None:
        """LDM base!: the base goes forward."""
        self._add(0xC800, _low(base) << 8, _set(registers, 0xFF & ~(1 << base)))

    def stm(self, base: int, registers: Sequence[int]) -> None:
        """STM base!: the base goes forward."""
        self._add(0xC000, _low(base) << 8, _set(registers, 0xFF & ~(1 << base)))

    # Memory.

    def ldr(self, to: int, base: int, offset: int = 0) -> None:
        self._word(0, to, base, offset)

    def str(self, value: int, base: int, offset: int = 0) -> None:
        self._word(1, value, base, offset)

    def _word(self, stores: int, register: int, base: int, offset: int) -> None:
        if base == SP:
            self._add(0x9800 - 0x800 * stores, _low(register) << 8, _fits(offset, 8, 4))
        else:
            self._add(0x6800 - 0x800 * stores, _fits(offset, 5, 4) << 6, _low(base) << 3, _low(register))

    def ldrh(self, to: int, base: int, offset: int = 0) -> None:
        self._add(0x8800, _fits(offset, 5, 2) << 6, _low(base) << 3, _low(to))

    def ldrb(self, to: int, base: int, offset: int = 0) -> None:
        self._add(0x7800, _fits(offset, 5, 1) << 6, _low(base) << 3, _low(to))

    def ldrsb(self, to: int, base: int, offset: int) -> None:
        """At base + a register."""
        self._add(0x5600, _low(offset) << 6, _low(base) << 3, _low(to))

    def strb(self, value: int, base: int, offset: int = 0) -> None:
        self._add(0x7000, _fits(offset, 5, 1) << 6, _low(base) << 3, _low(value))

    def strb_at(self, value: int, base: int, offset: int) -> None:
        """At base + a register."""
        self._add(0x5400, _low(offset) << 6, _low(base) << 3, _low(value))

    def str_at(self, value: int, base: int, offset: int) -> None:
        """At base + a register."""
        self._add(0x5000, _low(offset) << 6, _low(base) << 3, _low(value))

    # Arithmetic. ADD and MOV that take high registers leave the flags alone; all others set them.

    def mov(self, to: int, value: int) -> None:
        self._add(0x4600, to >> 3 << 7, value << 3, to & 7)

    def add(self, to: int, value: int) -> None:
        """to += value, any registers."""
        self._add(0x4400, to >> 3 << 7, value << 3, to & 7)

    def movs(self, to: int, number: int) -> None:
        self._add(0x2000, _low(to) << 8, _fits(number, 8, 1))

    def adds(self, to: int, a: int, b: int) -> None:
        self._add(0x1800, _low(b) << 6, _low(a) << 3, _low(to))

    def subs(self, to: int, a: int, b: int) -> None:
        self._add(0x1A00, _low(b) << 6, _low(a) << 3, _low(to))

    def add_number(self, to: int, number: int) -> None:
        """to += a number from -255 to 255."""
        self._add(0x3800 if number < 0 else 0x3000, _low(to) << 8, _fits(abs(number), 8, 1))

    def move(self, to: int, nbytes: int, spare: int) -> None:
        """to += any number; a spare register where it is not small."""
        if abs(nbytes) <= 255:
            if nbytes:
                self.add_number(to, nbytes)
            return
        self.number(spare, abs(nbytes))
        if nbytes < 0:
            self.subs(to, to, spare)
        else:
            self.adds(to, to, spare)

    def add_sp(self, to: int, offset: int) -> None:
        """to = sp + offset."""
        self._add(0xA800, _low(to) << 8, _fits(offset, 8, 4))

    def move_sp(self, nbytes: int) -> None:
        """sp += nbytes, a multiple of 4, in as many instructions as that takes."""
        while nbytes:
            step = min(abs(nbytes), 508)
            self._add(0xB080 if nbytes < 0 else 0xB000, _fits(step, 7, 4))
            nbytes -= step if nbytes > 0 else -step

    def number(self, to: int, number: int) -> None:
        """to = any number from 0 to 2^32 - 1: MOVS, then LSLS and ADDS for each further byte."""
        _fits(number, 32, 1)
        parts = number.to_bytes(4, "big").lstrip(b"\0") or b"\0"
        self.movs(to, parts[0])
        shift = 0
        for part in parts[1:]:
            shift += 8
            if part:
                self.lsls(to, to, shift)
                self.add_number(to, part)
                shift = 0
        if shift:
            self.lsls(to, to, shift)

    def sxtb(self, to: int, value: int) -> None:
        self._add(0xB240, _low(value) << 3, _low(to))

    def lsls(self, to: int, a: int, shift: int) -> None:
        self._shift(0x0000, to, a, shift, 31)

    def lsrs(self, to: int, a: int, shift: int) -> None:
        self._shift(0x0800, to, a, shift, 32)

    def asrs(self, to: int, a: int, shift: int) -> None:
        self._shift(0x1000, to, a, shift, 32)

    def _shift(self, opcode: int, to: int, a: int, shift: int, most: int) -> None:
        if not 1 <= shift <= most:
            raise InternalError(f"a shift by {shift}")
        self._add(opcode, (shift & 31) << 6, _low(a) << 3, _low(to))

    def asrs_by(self, to: int, shift: int) -> None:
        """to >>= a register."""
        self._alu(4, to, shift)

    def adcs(self, to: int, value: int) -> None:
        self._alu(5, to, value)

    def ands(self, to: int, value: int) -> None:
        self._alu(0, to, value)

    def muls(self, to: int, value: int) -> None:
        self._alu(13, to, value)

    def mvns(self, to: int, value: int) -> None:
        self._alu(15, to, value)

    def cmp(self, a: int, b: int) -> None:
        self._alu(10, a, b)

    def _alu(self, opcode: int, to: int, value: int) -> None:
        self._add(0x4000, opcode << 6, _low(value) << 3, _low(to))

    def cmp_any(self, a: int, b: int) -> None:
        """CMP of any registers; the encoding is for at least one high one."""
        if a < 8 and b < 8:
            raise InternalError("CMP of two low registers")
        self._add(0x4500, a >> 3 << 7, b << 3, a & 7)

    def cmp_number(self, a: int, number: int) -> None:
        self._add(0x2800, _low(a) << 8, _fits(number, 8, 1))

    # Branches.

    def branch(self, condition: int, to: str) -> None:
        """256 bytes at most; 2048 where it is `ALWAYS` taken."""
        self._branches.append((self.nbytes, to, condition))
        self.halfwords.append(0)

    def bl(self, to: str) -> None:
        """A jump of any distance inside a function; it destroys lr."""
        self._branches.append((self.nbytes, to, None))
        self.halfwords += [0, 0]

    def bx(self, register: int) -> None:
        self._add(0x4700, register << 3)

    def repeat_until_zero(self, counter: int, to: str) -> None:
        """SUBS #1 and BNE."""
        self.add_number(counter, -1)
        self.branch(NE, to)


def _branch(distance: int, condition: int) -> int:
    reach = 2048 if condition == ALWAYS else 256
    if not -reach <= distance <= reach - 2:
        raise InternalError(f"a branch over {distance} bytes, beyond {reach}")
    if condition == ALWAYS:
        return 0xE000 | distance >> 1 & 0x7FF
    return 0xD000 | condition << 8 | distance >> 1 & 0xFF


def _long_branch(distance: int) -> list[int]:
    if not -(1 << 24) <= distance < 1 << 24:
        raise InternalError("a branch too far")
    sign, i1, i2 = distance >> 24 & 1, distance >> 23 & 1, distance >> 22 & 1
    second = 0xD000 | (1 ^ i1 ^ sign) << 13 | (1 ^ i2 ^ sign) << 11 | distance >> 1 & 0x7FF
    return [0xF000 | sign << 10 | distance >> 12 & 0x3FF, second]


def _set(registers: Sequence[int], allowed: int) -> int:
    chosen = sum(1 << number for number in registers)
    if chosen & ~allowed or not registers or any(a >= b for a, b in pairwise(registers)):
        raise InternalError(f"no such list of registers: {registers}")
    return chosen


def _low(register: int) -> int:
    if not 0 <= register < 8:
        raise InternalError(f"r{register} is no low register")
    return register


def _fits(number: int, bits: int, unit: int) -> int:
    """A number in units, where it fits."""
    if not 0 <= number < unit << bits or number % unit:
        raise InternalError(f"{number} does not fit {bits} bits of {unit}")
    return number // unit
