"""What a cycle model needs to know of an instruction.

Enters: what the decoder (`thumb.py`) reads out of an encoding. Leaves: `Instruction`.
Invariant: registers are bits of an integer: bit n is Rn, bit 16 the flags. Floating-point registers are not among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

PC, LR, SP, FLAGS = 1 << 15, 1 << 14, 1 << 13, 1 << 16


class Kind(Enum):
    """Groups of instructions that take the same time."""

    ALU = auto()  # moves, additions, logic, comparisons; also with a shifted operand
    SHIFT = auto()  # a shift or rotation alone
    BITS = auto()  # extensions, bit fields, reversals, saturation, additions of several lanes
    MULTIPLY = auto()  # 32-bit results, no accumulator
    ACCUMULATE = auto()  # MLA, MLS, SMLAxy, SMLAD, SMMLA ...
    LONG_MULTIPLY = auto()
    LONG_ACCUMULATE = auto()
    DIVIDE = auto()
    LOAD = auto()
    STORE = auto()
    LOAD_SEVERAL = auto()  # LDM, POP, VLDM, and LDRD
    STORE_SEVERAL = auto()
    BRANCH = auto()  # to an address in the instruction, maybe conditional
    CALL = auto()
    INDIRECT = auto()  # to an address in a register
    TABLE = auto()  # TBB, TBH
    IT = auto()
    NOP = auto()
    SYSTEM = auto()  # MRS, MSR, barriers, traps
    FLOAT = auto()
    FLOAT_ACCUMULATE = auto()
    FLOAT_DIVIDE = auto()  # and square root
    FLOAT_MOVE = auto()  # between the two sets of registers
    UNKNOWN = auto()  # Helium and other coprocessors


@dataclass(frozen=True)
class Instruction:
    """halves: halfwords of the encoding. reads: includes `address`, what forms an address, and `accumulator`.

    early: of `reads`, operands that pass a shifter before they are used. words: registers that a load or store moves. nbytes: of one
    element that it moves. offset: what a load adds to its one base register (None: another register's value). updates: base registers
    that it also writes. conditional: a branch that may fall through. simple: an addition or move without a shifter.
    """

    kind: Kind
    halves: int
    reads: int = 0
    writes: int = 0
    address: int = 0
    accumulator: int = 0
    early: int = 0
    words: int = 1
    nbytes: int = 4
    offset: int | None = None
    updates: int = 0
    conditional: bool = False
    simple: bool = False

    @property
    def jumps(self) -> bool:
        """Whether control may leave by it."""
        return self.kind in _JUMPS or bool(self.writes & PC)


_JUMPS = (Kind.BRANCH, Kind.CALL, Kind.INDIRECT, Kind.TABLE)
