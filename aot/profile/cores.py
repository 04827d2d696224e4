"""What instructions cost on each core, in cycles, where memory has no wait states.

Enters: an instruction and what the core remembers of those before it. Leaves: cycles, and what it remembers then.
Invariant: a core's memory is a small hashable value, the same after equal instructions, so that a loop's body has few of them.

These are models, from Arm's tables where there are some; data-dependent times are one number, and no bus, no cache, no unaligned
access, no interrupt is in them. Sources: Cortex-M0 TRM (DDI 0432C) and Cortex-M0+ TRM (DDI 0484C), table 3-1; Cortex-M3 TRM (DDI 0337I)
and Cortex-M4 TRM (100166 r0p1), sections 3.3.1 to 3.3.3 and 7 (floating point). The Cortex-M7 is in `dual_issue.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from aot.profile.dual_issue import DualIssue
from aot.profile.instruction import PC, Instruction, Kind


class Core(Protocol):
    """A core's costs. `fresh`: what it remembers after a jump."""

    @property
    def name(self) -> str: ...

    @property
    def note(self) -> str:
        """What people should know of this model, in a sentence."""
        ...

    @property
    def fresh(self) -> Hashable: ...

    def step(self, state: Hashable, instruction: Instruction) -> tuple[int, Hashable]:
        """Cycles until the next instruction can start, where this one does not jump; and what is remembered then."""
        ...

    def jump(self, instruction: Instruction) -> int:
        """Cycles more where it jumps."""
        ...

    @property
    def mispredicted(self) -> int:
        """Cycles more where a conditional branch goes the rarer one of its two ways."""
        ...


@dataclass(frozen=True)
class Simple:
    """Armv6-M and Armv8-M Baseline: each instruction takes its time, whatever was before it.

    times: by kind, where it is not 1; a load or store of several registers takes one more for each. jumps: cycles more by kind, where
    it jumps; `returns`: where a POP loads the program counter.
    """

    name: str
    note: str
    times: Mapping[Kind, int]
    jumps: Mapping[Kind, int]
    returns: int
    fresh: Hashable = None
    mispredicted: int = 0

    def step(self, state: Hashable, instruction: Instruction) -> tuple[int, Hashable]:
        several = instruction.kind in (Kind.LOAD_SEVERAL, Kind.STORE_SEVERAL)
        return self.times.get(instruction.kind, 1) + (instruction.words if several else 0), None

    def jump(self, instruction: Instruction) -> int:
        return self.returns if instruction.writes & PC and instruction.kind is Kind.LOAD_SEVERAL else self.jumps[instruction.kind]


@dataclass(frozen=True)
class _Before:
    """What a Cortex-M3 or M4 remembers of the instruction before: could a load or store follow it without a gap, what did it write?"""

    load: bool = False
    loaded: int = 0
    computed: int = 0


_START = _Before()
_PROCESSING = (
    Kind.ALU,
    Kind.SHIFT,
    Kind.BITS,
    Kind.MULTIPLY,
    Kind.ACCUMULATE,
    Kind.LONG_MULTIPLY,
    Kind.LONG_ACCUMULATE,
    Kind.DIVIDE,
)


@dataclass(frozen=True)
class ThreeStage:
    """Cortex-M3 and M4: one instruction after the other, but loads and stores that follow a load overlap with it (TRM, 3.3.3).

    times: by kind, where it is not 1. update_blocks: whether a load with write-back overlaps with none before it (Cortex-M3).
    """

    name: str
    note: str
    times: Mapping[Kind, int]
    update_blocks: bool = False
    fresh: Hashable = field(default=_START)
    mispredicted: int = 0

    def step(self, state: Hashable, instruction: Instruction) -> tuple[int, Hashable]:
        assert isinstance(state, _Before)
        kind, address = instruction.kind, instruction.address
        # An address from the data-processing instruction before waits a cycle for the register bank.
        wait = int(bool(address & state.computed))
        overlaps = state.load and not address & state.loaded
        if kind is Kind.LOAD:
            overlaps &= not (self.update_blocks and instruction.updates)
            return wait + (1 if overlaps else 2), _Before(True, instruction.writes)
        if kind is Kind.STORE:  # with a constant offset its data goes while the next instruction is executed
            return wait + (1 if overlaps or instruction.offset is not None else 2), _START
        if kind in (Kind.LOAD_SEVERAL, Kind.STORE_SEVERAL):
            return wait + 1 + instruction.words, _START
        computed = instruction.writes if kind in _PROCESSING else 0
        return wait + self.times.get(kind, 1), _Before(computed=computed)

    def jump(self, instruction: Instruction) -> int:
        """P, the refill of the pipeline, is 1 to 3 cycles; here 2, and 3 after a load of the program counter (3.3.3)."""
        if instruction.kind is Kind.TABLE:
            return 5
        return 3 if instruction.kind is Kind.LOAD else 2


_BASELINE = {Kind.LOAD: 2, Kind.STORE: 2}
_FLOATS = {Kind.FLOAT_ACCUMULATE: 3, Kind.FLOAT_DIVIDE: 14}
_M0 = Simple(
    "Cortex-M0",
    "MULS in one cycle (the fast multiplier)",
    {**_BASELINE, Kind.SYSTEM: 4},
    {Kind.BRANCH: 2, Kind.CALL: 3, Kind.INDIRECT: 2},
    returns=3,
)
_M0PLUS = Simple(
    "Cortex-M0+",
    "MULS in one cycle (the fast multiplier)",
    {**_BASELINE, Kind.SYSTEM: 3},
    {Kind.BRANCH: 1, Kind.CALL: 2, Kind.INDIRECT: 1},
    returns=2,
)
_M23 = Simple(
    "Cortex-M23",
    "as a Cortex-M0+, with 17 cycles for a division; Arm's table for it was not used",
    {**_BASELINE, Kind.SYSTEM: 3, Kind.DIVIDE: 17},
    {Kind.BRANCH: 1, Kind.CALL: 2, Kind.INDIRECT: 1},
    returns=2,
)
_M3 = ThreeStage(
    "Cortex-M3",
    "long multiplications take 4 cycles, 5 with an accumulator (3 to 7 on silicon), divisions 7 (2 to 12), jumps 3 (2 to 4)",
    {Kind.ACCUMULATE: 2, Kind.LONG_MULTIPLY: 4, Kind.LONG_ACCUMULATE: 5, Kind.DIVIDE: 7},
    update_blocks=True,
)
_M4 = ThreeStage("Cortex-M4", "divisions take 7 cycles (2 to 12 on silicon), jumps 3 (2 to 4)", {Kind.DIVIDE: 7, **_FLOATS})
_M33 = ThreeStage(
    "Cortex-M33",
    "as a Cortex-M4: Arm publishes no table; its pairs of 16-bit instructions and faster loads are left out, so this is an upper bound",
    {Kind.DIVIDE: 7, **_FLOATS},
)

CORES: Mapping[str, Core] = {
    "cortex-m0": _M0,
    "cortex-m0plus": _M0PLUS,
    "cortex-m23": _M23,
    "cortex-m3": _M3,
    "cortex-m4": _M4,
    "cortex-m33": _M33,
    "cortex-m7": DualIssue(),
}
"""By LLVM's name of the CPU."""
