"""The decoder of a cycle model: a Thumb instruction's kind and registers.

Enters: the two halfwords at an address. Leaves: `Instruction`.
Invariant: every encoding has an answer; one that is not known here (Helium, other coprocessors) is `UNKNOWN`, with the right length.
Source: Armv7-M Architecture Reference Manual (DDI 0403), chapters A5 and A6. Checked against a disassembler's text in the tests.
"""

from __future__ import annotations

from functools import lru_cache

from aot.profile.instruction import FLAGS, LR, PC, SP, Instruction, Kind


@lru_cache(maxsize=65536)
def decode(first: int, second: int) -> Instruction:
    """The instruction whose halfwords these are; `second` is not looked at where the first is a whole instruction."""
    return _wide(first, second) if first >= 0xE800 else _narrow(first)


def _low(half: int, shift: int) -> int:
    return 1 << (half >> shift & 7)


def _any(half: int, shift: int) -> int:
    return 1 << (half >> shift & 15)


def _narrow(half: int) -> Instruction:
    """16-bit encodings (A5.2)."""
    top = half >> 10
    if top < 0b010000:
        return _narrow_arithmetic(half)
    if top == 0b010000:
        return _narrow_processing(half)
    if top == 0b010001:
        return _narrow_special(half)
    if half >> 11 == 0b01001:
        return Instruction(Kind.LOAD, 1, PC, _low(half, 8), PC, offset=(half & 255) * 4)
    if half >> 12 == 0b0101:
        operation, register, address = half >> 9 & 7, _low(half, 0), _low(half, 3) | _low(half, 6)
        nbytes = (4, 2, 1, 1, 4, 2, 1, 2)[operation]
        return _transfer(operation >= 3, 1, register, address, nbytes, None)
    if half >> 13 == 0b011 or half >> 12 in (0b1000, 0b1001):
        return _narrow_offset(half)
    if half >> 12 == 0b1010:  # ADR, ADD to SP
        return Instruction(Kind.ALU, 1, SP if half & 1 << 11 else PC, _low(half, 8), simple=True)
    if half >> 12 == 0b1011:
        return _narrow_miscellaneous(half)
    if half >> 12 == 0b1100:
        return _several(bool(half & 1 << 11), 1, half & 255, _low(half, 8), not (half & 1 << 11 and half & _low(half, 8)))
    if half >> 12 == 0b1101:
        condition = half >> 8 & 15
        return Instruction(Kind.BRANCH, 1, FLAGS, conditional=True) if condition < 14 else Instruction(Kind.SYSTEM, 1)
    return Instruction(Kind.BRANCH, 1)


def _narrow_arithmetic(half: int) -> Instruction:
    """Shifts by a constant, ADD, SUB, MOV, CMP."""
    operation = half >> 11
    if operation < 3:
        moves = half >> 6 == 0  # LSL by 0 is MOV
        kind = Kind.ALU if moves else Kind.SHIFT
        return Instruction(kind, 1, _low(half, 3), _low(half, 0) | FLAGS, simple=moves)
    if operation == 3:
        other = 0 if half & 1 << 10 else _low(half, 6)
        return Instruction(Kind.ALU, 1, _low(half, 3) | other, _low(half, 0) | FLAGS, simple=True)
    register = _low(half, 8)
    reads, writes = (0, register) if operation == 4 else (register, 0 if operation == 5 else register)
    return Instruction(Kind.ALU, 1, reads, writes | FLAGS, simple=operation != 5)


def _narrow_processing(half: int) -> Instruction:
    """Two low registers."""
    operation, other, register = half >> 6 & 15, _low(half, 3), _low(half, 0)
    if operation in (2, 3, 4, 7):
        return Instruction(Kind.SHIFT, 1, register | other, register | FLAGS)
    if operation == 13:
        return Instruction(Kind.MULTIPLY, 1, register | other, register | FLAGS)
    reads = other if operation in (9, 15) else register | other  # RSB, MVN
    reads |= FLAGS if operation in (5, 6) else 0
    return Instruction(Kind.ALU, 1, reads, FLAGS if operation in (8, 10, 11) else register | FLAGS)


def _narrow_special(half: int) -> Instruction:
    """ADD, CMP, MOV of any registers, BX, BLX."""
    operation, other, register = half >> 8 & 3, _any(half, 3), 1 << (half & 7 | half >> 4 & 8)
    if operation == 3:
        call = half & 1 << 7
        return Instruction(Kind.CALL if call else Kind.INDIRECT, 1, other, LR if call else 0)
    if operation == 1:
        return Instruction(Kind.ALU, 1, register | other, FLAGS)
    if operation == 2 and register == other:  # what assemblers give for NOP on an Armv6-M
        return Instruction(Kind.NOP, 1, register, register)
    reads = other if operation == 2 else register | other
    return Instruction(Kind.INDIRECT if register == PC else Kind.ALU, 1, reads, register, simple=True)


def _narrow_offset(half: int) -> Instruction:
    """LDR, STR and the like with a constant offset."""
    load = bool(half & 1 << 11)
    if half >> 12 == 0b1001:
        return _transfer(load, 1, _low(half, 8), SP, 4, (half & 255) * 4)
    nbytes = 2 if half >> 12 == 0b1000 else 1 if half & 1 << 12 else 4
    return _transfer(load, 1, _low(half, 0), _low(half, 3), nbytes, (half >> 6 & 31) * nbytes)


def _narrow_miscellaneous(half: int) -> Instruction:
    operation = half >> 8 & 15
    if operation == 0:
        return Instruction(Kind.ALU, 1, SP, SP, simple=True)
    if operation in (1, 3, 9, 11):
        return Instruction(Kind.BRANCH, 1, _low(half, 0), conditional=True)
    if operation in (2, 10):  # SXTH ..., REV ...
        return Instruction(Kind.BITS, 1, _low(half, 3), _low(half, 0))
    if operation in (4, 5):
        return _several(False, 1, half & 255 | (LR if operation == 5 else 0), SP, True)
    if operation in (12, 13):
        return _several(True, 1, half & 255 | (PC if operation == 13 else 0), SP, True)
    if operation == 15:
        return Instruction(Kind.IT, 1, FLAGS) if half & 15 else Instruction(Kind.NOP, 1)
    return Instruction(Kind.SYSTEM, 1)


def _transfer(
    load: bool, halves: int, register: int, address: int, nbytes: int, offset: int | None, updates: int = 0
) -> Instruction:
    """One register to or from memory."""
    if load:
        writes = register | updates
        return Instruction(Kind.LOAD, halves, address, writes, address, nbytes=nbytes, offset=offset, updates=updates)
    reads = address | register
    return Instruction(Kind.STORE, halves, reads, updates, address, nbytes=nbytes, offset=offset, updates=updates)


def _several(load: bool, halves: int, registers: int, base: int, updates: bool) -> Instruction:
    """Registers to or from memory."""
    words, moved = registers.bit_count(), base if updates else 0
    if load:
        return Instruction(Kind.LOAD_SEVERAL, halves, base, registers | moved, base, words=words, updates=moved)
    return Instruction(Kind.STORE_SEVERAL, halves, base | registers, moved, base, words=words, updates=moved)


def _wide(first: int, second: int) -> Instruction:
    """32-bit encodings (A5.3)."""
    if first & 0xFE40 == 0xE800:
        load, updates = bool(first & 1 << 4), bool(first & 1 << 5)
        return _several(load, 2, second & 0xFFFF, _any(first, 0), updates)
    if first & 0xFE40 == 0xE840:
        return _double_or_exclusive(first, second)
    if first & 0xFE00 == 0xEA00:
        return _shifted_register(first, second)
    if first & 0xFC00 in (0xEC00, 0xFC00):
        return _coprocessor(first, second)
    if first & 0xF800 == 0xF000:
        if second & 1 << 15:
            return _branch_or_system(first, second)
        return _plain_immediate(first, second) if first & 1 << 9 else _modified_immediate(first, second)
    if first & 0xFE00 == 0xF800:
        return _single(first, second)
    if first & 0xFF00 == 0xFA00:
        return _register_processing(first, second)
    return _multiply(first, second)


def _double_or_exclusive(first: int, second: int) -> Instruction:
    """LDRD, STRD; TBB, TBH; LDREX, STREX and their kin."""
    base, load = _any(first, 0), bool(first & 1 << 4)
    index, updates = first >> 7 & 3, bool(first & 1 << 5)
    if index & 2 or updates:
        registers = _any(second, 12) | _any(second, 8)
        moved, offset = base if updates else 0, (second & 255) * 4
        if load:
            return Instruction(Kind.LOAD_SEVERAL, 2, base, registers | moved, base, words=2, offset=offset, updates=moved)
        return Instruction(Kind.STORE_SEVERAL, 2, base | registers, moved, base, words=2, offset=offset, updates=moved)
    if first & 0xFFF0 == 0xE8D0 and second & 0x00E0 == 0:
        return Instruction(Kind.TABLE, 2, base | _any(second, 0), 0, base | _any(second, 0))
    if load:
        return Instruction(Kind.LOAD, 2, base, _any(second, 12), base)
    return Instruction(Kind.STORE, 2, base | _any(second, 12), _any(second, 8) & ~PC, base)


_TESTS = (0, 4, 8, 13)  # operations that with Rd = PC and flags are TST, TEQ, CMN, CMP


def _processing(operation: int, sets: bool, first: int, second: int, other: int) -> tuple[int, int, bool]:
    """What a data-processing operation reads and writes, and whether it is an addition or a move."""
    base, to = _any(first, 0), _any(second, 8)
    flags = FLAGS if sets else 0
    reads = other | (base if operation not in (2, 3) or base != PC else 0)
    reads |= FLAGS if operation in (10, 11) else 0
    if to == PC and sets and operation in _TESTS:
        return reads, FLAGS, False
    return reads, to | flags, operation in (8, 13) or (operation == 2 and base == PC)


def _shifted_register(first: int, second: int) -> Instruction:
    operation, other = first >> 5 & 15, _any(second, 0)
    amount, kind = second >> 12 & 7, second >> 4 & 3
    shifts = bool(amount or second >> 6 & 3 or kind)
    reads, writes, simple = _processing(operation, bool(first & 1 << 4), first, second, other)
    if operation == 6:  # PKHBT, PKHTB
        return Instruction(Kind.BITS, 2, reads, writes & ~FLAGS, early=other)
    if operation == 2 and _any(first, 0) == PC and shifts:
        return Instruction(Kind.SHIFT, 2, reads, writes)
    return Instruction(Kind.ALU, 2, reads, writes, early=other if shifts else 0, simple=simple and not shifts)


def _modified_immediate(first: int, second: int) -> Instruction:
    reads, writes, simple = _processing(first >> 5 & 15, bool(first & 1 << 4), first, second, 0)
    return Instruction(Kind.ALU, 2, reads, writes, simple=simple)


def _plain_immediate(first: int, second: int) -> Instruction:
    """ADDW, SUBW, MOVW, MOVT; SSAT, USAT, bit fields."""
    operation, base, to = first >> 4 & 31, _any(first, 0), _any(second, 8)
    if operation in (0, 10):
        return Instruction(Kind.ALU, 2, base, to, simple=True)
    if operation in (4, 12):
        return Instruction(Kind.ALU, 2, to if operation == 12 else 0, to, simple=True)
    reads = (0 if base == PC else base) | (to if operation == 22 else 0)  # BFI, BFC
    return Instruction(Kind.BITS, 2, reads, to, early=reads & base)


def _branch_or_system(first: int, second: int) -> Instruction:
    if second & 1 << 14:
        return Instruction(Kind.CALL, 2, 0, LR)
    if second & 1 << 12:
        return Instruction(Kind.BRANCH, 2)
    if first >> 6 & 15 < 14:
        return Instruction(Kind.BRANCH, 2, FLAGS, conditional=True)
    if first & 0xFFF0 == 0xF3A0:
        return Instruction(Kind.NOP, 2)
    if first & 0xFFE0 == 0xF3E0:  # MRS
        return Instruction(Kind.SYSTEM, 2, 0, _any(second, 8))
    return Instruction(Kind.SYSTEM, 2)


def _single(first: int, second: int) -> Instruction:
    """LDR, STR and the like, all addressing modes; PLD."""
    base, register, load = _any(first, 0), _any(second, 12), bool(first & 1 << 4)
    nbytes = (1, 2, 4, 4)[first >> 5 & 3]
    if load and register == PC and nbytes < 4:
        return Instruction(Kind.NOP, 2, base, 0, base)
    if (load and base == PC) or first & 1 << 7:
        return _transfer(load, 2, register, base, nbytes, second & 0xFFF)
    if not second & 1 << 11:
        return _transfer(load, 2, register, base | _any(second, 0), nbytes, None)
    updates = base if second & 1 << 8 else 0
    before = second & 1 << 10
    offset = (second & 255) * (1 if second & 1 << 9 else -1) if before else 0
    return _transfer(load, 2, register, base, nbytes, offset, updates)


def _register_processing(first: int, second: int) -> Instruction:
    """Shifts by a register; extensions; lanes; reversals."""
    operation, base, other, to = first >> 4 & 15, _any(first, 0), _any(second, 0), _any(second, 8)
    if operation < 8 and not second & 1 << 7:
        return Instruction(Kind.SHIFT, 2, base | other, to | (FLAGS if operation & 1 else 0))
    if operation < 8:  # SXTAH ...; Rn = PC: SXTH ...
        return Instruction(Kind.BITS, 2, other | (0 if base == PC else base), to, early=0 if base == PC else other)
    if second & 0x80 and operation in (9, 11):  # REV ..., CLZ
        return Instruction(Kind.BITS, 2, other, to, early=other)
    return Instruction(Kind.BITS, 2, base | other | (FLAGS if operation == 10 and second & 0x80 else 0), to)


def _multiply(first: int, second: int) -> Instruction:
    operation, base, other = first >> 4 & 15, _any(first, 0), _any(second, 0)
    low, high = _any(second, 12), _any(second, 8)
    if first & 1 << 7:
        if operation in (9, 11):
            return Instruction(Kind.DIVIDE, 2, base | other, high)
        if operation in (8, 10):
            return Instruction(Kind.LONG_MULTIPLY, 2, base | other, low | high)
        return Instruction(Kind.LONG_ACCUMULATE, 2, base | other | low | high, low | high, accumulator=low | high)
    if low == PC:
        return Instruction(Kind.MULTIPLY, 2, base | other, high)
    return Instruction(Kind.ACCUMULATE, 2, base | other | low, high, accumulator=low)


def _coprocessor(first: int, second: int) -> Instruction:
    """The floating-point extension, which is coprocessors 10 and 11; Helium and others are unknown."""
    if second >> 9 & 7 != 5 or first & 0xFF00 in (0xFC00, 0xFD00):
        return Instruction(Kind.UNKNOWN, 2)
    base, register, double = _any(first, 0), _any(second, 12), bool(second & 1 << 8)
    load = bool(first & 1 << 4)
    if first & 0xFFE0 == 0xEC40:
        both = base | register
        return Instruction(Kind.FLOAT_MOVE, 2, 0 if load else both, both if load else 0, words=2)
    if first & 0xFE00 == 0xEC00:
        before, updates = first & 1 << 8, base if first & 1 << 5 else 0
        single = before and not updates
        words = (2 if double else 1) if single else second & 255
        kinds = (Kind.LOAD, Kind.STORE) if single and not double else (Kind.LOAD_SEVERAL, Kind.STORE_SEVERAL)
        return Instruction(kinds[0 if load else 1], 2, base, updates, base, words=words, updates=updates)
    if first & 0xFF00 == 0xFE00 or not second & 1 << 4:
        return Instruction(_float_kind(first, second), 2)
    if register == PC:  # VMRS to the flags
        return Instruction(Kind.FLOAT_MOVE, 2, 0, FLAGS)
    return Instruction(Kind.FLOAT_MOVE, 2, 0 if load else register, register if load else 0)


def _float_kind(first: int, second: int) -> Kind:
    operation = first >> 4 & 0b1011
    if first & 0xFF00 == 0xFE00:
        return Kind.FLOAT
    if operation in (0, 1, 9, 10):
        return Kind.FLOAT_ACCUMULATE
    root = operation == 11 and first & 15 == 1 and second & 0xC0 == 0xC0
    return Kind.FLOAT_DIVIDE if operation == 8 or root else Kind.FLOAT
