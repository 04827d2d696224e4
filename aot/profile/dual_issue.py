"""The Cortex-M7's costs: two instructions in a cycle, in order, where they fit together.

Enters: an instruction and the results that are on their way. Leaves: cycles, and what is on its way then.
Invariant: a pair never breaks a rule below. What is not known of an address counts against the pair.

Arm publishes no timings of this core. The rules are those that measurements on silicon agree about (Mark Owen, "Cortex-M7 instruction
cycle counts, timings, and dual-issue combinations"; Jan Oleksiewicz's pipeline tests), which LLVM's scheduling model states too:
- operands are used in the second of two execution stages; addresses, and operands that pass a shifter, in the first: a cycle earlier;
- a word's load can be used in the next cycle, a byte's or halfword's in the one after that; by a multiplication never in the next;
- a product can be used in the cycle after the next, or in the next as another multiplication's accumulator; stores never wait for data;
- not in one cycle: two multiplications, a multiplication and a store, two stores, two shifted operands, two of the `BITS` kind or one of
  them second, two loads unless from the same base with words of different parity (the two banks), a result and its use;
- loads and stores of several registers are alone and move two words a cycle; divisions are alone, 7 cycles;
- a jump costs nothing where it was predicted: that is, where a conditional branch goes the more frequent of its ways. Else 8 cycles,
  as to an address in a register.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from aot.profile.instruction import PC, Instruction, Kind


class _Use(IntEnum):
    """Where an operand is used: by arithmetic, early (shifters), as an address, multiplied, accumulated."""

    LATE, EARLY, ADDRESS, FACTOR, ACCUMULATOR = range(5)


_Latency = tuple[int, int, int, int, int]
"""For each `_Use`: cycles from an instruction's start to that of one that uses its result."""

_SIMPLE: _Latency = (1, 1, 1, 1, 1)
_LOGIC: _Latency = (1, 2, 2, 1, 1)
_PRODUCT: _Latency = (2, 3, 3, 2, 1)
_WORD: _Latency = (1, 2, 2, 2, 1)
_BYTE: _Latency = (2, 3, 3, 2, 1)
_MULTIPLIES = (Kind.MULTIPLY, Kind.ACCUMULATE, Kind.LONG_MULTIPLY, Kind.LONG_ACCUMULATE)
_FLOATS = (Kind.FLOAT, Kind.FLOAT_ACCUMULATE, Kind.FLOAT_DIVIDE, Kind.FLOAT_MOVE)
_ALONE = {Kind.DIVIDE: 7, Kind.SYSTEM: 3, Kind.UNKNOWN: 1, Kind.FLOAT_DIVIDE: 16, Kind.TABLE: 2}
_SEVERAL = (Kind.LOAD_SEVERAL, Kind.STORE_SEVERAL)
_MISPREDICTED = 8


@dataclass(frozen=True)
class _State:
    """first: an instruction that started in the current cycle and may have a partner. pending: (register, cycles for each `_Use`)."""

    first: Instruction | None = None
    pending: tuple[tuple[int, _Latency], ...] = ()


@dataclass(frozen=True)
class DualIssue:
    """The core; see the module's text for its rules."""

    name: str = "Cortex-M7"
    note: str = "no published table: pairing rules as measured on silicon with code and data in tightly coupled memory"
    fresh: Hashable = _State()
    mispredicted: int = _MISPREDICTED

    def step(self, state: Hashable, instruction: Instruction) -> tuple[int, Hashable]:
        assert isinstance(state, _State)
        return _step(state, instruction)

    def jump(self, instruction: Instruction) -> int:
        direct = instruction.kind is Kind.BRANCH or (instruction.kind is Kind.CALL and not instruction.reads)
        return 0 if direct else _MISPREDICTED


@lru_cache(maxsize=1 << 18)
def _step(state: _State, instruction: Instruction) -> tuple[int, _State]:
    waits = _wait(state, instruction)
    length = _length(instruction)
    if state.first is not None and not waits and not length and _pairs(state.first, instruction):
        return 0, _State(None, _later(state.pending, 0, instruction))
    passed = max(1, waits)
    partner = None if length else instruction
    # A long instruction's last cycle is the one that counts as its start.
    return passed + max(0, length - 1), _State(partner, _later(state.pending, passed + max(0, length - 1), instruction))


def _length(instruction: Instruction) -> int:
    """Cycles of an instruction that is alone in them; 0: it may have a partner."""
    if instruction.kind in _SEVERAL:
        return (instruction.words + 1) // 2
    return _ALONE.get(instruction.kind, 0)


def _wait(state: _State, instruction: Instruction) -> int:
    """Cycles until all operands are there."""
    needed = 0
    for register, latency in state.pending:
        if not instruction.reads & register:
            continue
        for use in _uses(instruction, register):
            needed = max(needed, latency[use])
    return needed


def _uses(instruction: Instruction, register: int) -> list[_Use]:
    """How the instruction uses a register that it reads. A store's data is no use: it is never waited for."""
    if instruction.address & register:
        return [_Use.ADDRESS]
    if instruction.kind in (Kind.STORE, Kind.STORE_SEVERAL):
        return []
    if instruction.kind in _MULTIPLIES:
        return [_Use.ACCUMULATOR if instruction.accumulator & register else _Use.FACTOR]
    if instruction.kind is Kind.BRANCH:  # predicted
        return []
    return [_Use.EARLY if instruction.early & register else _Use.LATE]


def _latency(instruction: Instruction) -> _Latency:
    if instruction.kind in (Kind.LOAD, Kind.LOAD_SEVERAL):
        return _WORD if instruction.nbytes == 4 else _BYTE
    if instruction.kind in _MULTIPLIES:
        return _PRODUCT
    return _SIMPLE if instruction.simple or instruction.kind is Kind.SHIFT else _LOGIC


def _later(pending: tuple[tuple[int, _Latency], ...], passed: int, instruction: Instruction) -> tuple[tuple[int, _Latency], ...]:
    """What is on its way after `passed` cycles, in the last of which the instruction has started."""
    made = instruction.writes & (PC - 1)
    kept: list[tuple[int, tuple[int, int, int, int, int]]] = []
    for register, latency in pending:
        if not register & made and (aged := _aged(latency, passed)) is not None:
            kept.append((register, aged))
    own = _latency(instruction)
    for number in range(15):
        if made >> number & 1:
            kept.append((1 << number, _SIMPLE if instruction.updates >> number & 1 else own))
    return tuple(sorted(kept))


def _aged(latency: _Latency, passed: int) -> _Latency | None:
    """What is left of it after some cycles; None: nothing."""
    left = tuple(max(0, cycles - passed) for cycles in latency)
    return left if any(left) else None  # type: ignore[return-value]


def _pairs(first: Instruction, second: Instruction) -> bool:
    """Whether the second can start in the cycle of the first. Results that it needs have been looked at."""
    kinds = (first.kind, second.kind)
    if first.jumps or first.kind is Kind.IT or second.kind is Kind.IT or first.writes & second.writes & (PC - 1):
        return False
    multiplies = sum(kind in _MULTIPLIES for kind in kinds)
    stores = sum(kind is Kind.STORE for kind in kinds)
    if multiplies + stores > 1 or second.kind is Kind.BITS or all(kind in _FLOATS for kind in kinds):
        return False
    if _shifts(first) and _shifts(second):
        return False
    if first.kind is Kind.LOAD and second.kind is Kind.LOAD:
        return _other_bank(first, second)
    return True


def _shifts(instruction: Instruction) -> bool:
    return instruction.kind is Kind.BITS or (instruction.kind is Kind.ALU and bool(instruction.early))


def _other_bank(first: Instruction, second: Instruction) -> bool:
    """Whether two loads are known to go to different ones of the two banks, of even and odd words."""
    if first.offset is None or second.offset is None or first.address != second.address or first.updates:
        return False
    return bool((first.offset ^ second.offset) & 4)
