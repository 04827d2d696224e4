"""An assembler for the few Armv6-M instructions that the emulators' firmware is made of.

Enters: calls, one an instruction. Leaves: machine code with its literals.
Invariant: every literal and label is within reach, or InternalError.
Source: Armv6-M Architecture Reference Manual, chapter A6.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from aot.errors import InternalError

EQ, NE, HS, ALWAYS = 0, 1, 2, 14
SP = 13


class Thumb:
    """Code from `address` (a multiple of 4) on. Registers are numbers; a value may be the name of a label."""

    def __init__(self, address: int) -> None:
        self._address = address
        self._code: list[int] = []
        self._labels: dict[str, int] = {}
        self._branches: list[tuple[int, int, str]] = []
        self._literals: list[tuple[int, int, int | str]] = []
        self._data: list[tuple[str, Sequence[int | str]]] = []

    def __len__(self) -> int:
        """Halfwords so far."""
        return len(self._code)

    def label(self, name: str) -> None:
        """Name the next instruction."""
        self._labels[name] = self._address + 2 * len(self._code)

    def words(self, name: str, values: Sequence[int | str]) -> None:
        """Words of data behind the code, named. They may be labels too."""
        self._data.append((name, values))

    def load(self, register: int, value: int | str) -> None:
        """Any 32-bit value, or a label's address."""
        self._literals.append((len(self._code), register, value))
        self._code.append(0)

    def read(self, register: int, base: int, word: int = 0) -> None:
        """register = the word at base + 4 * word."""
        self._code.append(0x6800 | word << 6 | base << 3 | register)

    def write(self, register: int, base: int, word: int = 0) -> None:
        self._code.append(0x6000 | word << 6 | base << 3 | register)

    def read_byte(self, register: int, base: int) -> None:
        self._code.append(0x7800 | base << 3 | register)

    def read_next(self, base: int, registers: Sequence[int]) -> None:
        """Load words into `registers` (ascending) and move `base` past them."""
        self._code.append(0xC800 | base << 8 | sum(1 << register for register in registers))

    def move(self, to: int, source: int) -> None:
        self._code.append(0x4600 | (to >> 3) << 7 | source << 3 | to & 7)

    def add(self, register: int, value: int) -> None:
        self._code.append(0x3000 | register << 8 | value)

    def sum(self, to: int, one: int, other: int) -> None:
        self._code.append(0x1800 | other << 6 | one << 3 | to)

    def subtract(self, register: int, value: int) -> None:
        self._code.append(0x3800 | register << 8 | value)

    def read_at(self, register: int, base: int, offset: int) -> None:
        """register = the word at base + offset, of which both are registers."""
        self._code.append(0x5800 | offset << 6 | base << 3 | register)

    def write_at(self, register: int, base: int, offset: int) -> None:
        self._code.append(0x5000 | offset << 6 | base << 3 | register)

    def and_(self, register: int, other: int) -> None:
        self._code.append(0x4000 | other << 3 | register)

    def or_(self, register: int, other: int) -> None:
        self._code.append(0x4300 | other << 3 | register)

    def compare(self, register: int, other: int) -> None:
        self._code.append(0x4280 | other << 3 | register)

    def call(self, register: int) -> None:
        self._code.append(0x4780 | register << 3)

    def leave(self) -> None:
        """Return to the address in lr."""
        self._code.append(0x4770)

    def branch(self, label: str, condition: int = ALWAYS) -> None:
        self._branches.append((len(self._code), condition, label))
        self._code.append(0)

    def semihost(self) -> None:
        """BKPT 0xAB: the operation is in r0, its parameter in r1, the result goes to r0."""
        self._code.append(0xBEAB)

    def wait(self) -> None:
        """WFI."""
        self._code.append(0xBF30)

    def barrier(self) -> None:
        """DSB and ISB."""
        self._code += [0xF3BF, 0x8F4F, 0xF3BF, 0x8F6F]

    def assemble(self) -> bytes:
        """The code, its literals, its data."""
        code = self._code + [0xBF00] * (len(self._code) % 2)
        pool = list(dict.fromkeys(value for _, _, value in self._literals))
        end = self._address + 2 * len(code) + 4 * len(pool)
        data: list[int | str] = []
        for name, values in self._data:
            self._labels[name] = end + 4 * len(data)
            data += values
        for position, register, value in self._literals:
            target = self._address + 2 * len(code) + 4 * pool.index(value)
            code[position] = 0x4800 | register << 8 | self._within((target - (self._pc(position) & ~3)) // 4, 0, 255)
        for position, condition, label in self._branches:
            distance = (self._labels[label] - self._pc(position)) // 2
            always = condition == ALWAYS
            limit = 1 << 10 if always else 1 << 7
            field = self._within(distance, -limit, limit - 1) & (2 * limit - 1)
            code[position] = (0xE000 if always else 0xD000 | condition << 8) | field
        words = [self._labels[value] if isinstance(value, str) else value & 0xFFFFFFFF for value in (*pool, *data)]
        return struct.pack(f"<{len(code)}H{len(words)}I", *code, *words)

    def address_of(self, label: str) -> int:
        """Address of a label; of data only after `assemble`."""
        return self._labels[label]

    def _pc(self, position: int) -> int:
        """What the instruction at `position` reads as the program counter."""
        return self._address + 2 * position + 4

    @staticmethod
    def _within(value: int, first: int, last: int) -> int:
        if not first <= value <= last:
            raise InternalError("the emulator's firmware outgrew an instruction's reach")
        return value
