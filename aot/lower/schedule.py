"""Scheduling: an order of the steps in which little memory is alive at once.

Enters: a Program and the implementations chosen for it. Leaves: a Schedule, layer by layer: one step an instruction.
Invariant: an instruction runs after everything that it depends on, and the peak (bytes alive during a step) is never above file
order's. Searches are limited by a count of states, never by time, so that the same Program always gets the same order.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from aot.graph.primitive import reads, writes
from aot.lower.blocks import blocks, parts
from aot.lower.draft import disjoint
from aot.lower.lifetime import use_of
from aot.lower.plan import Schedule, Step

if TYPE_CHECKING:
    from aot.lower.implementation import Choice
    from aot.lower.lifetime import Io
    from aot.lower.program import Program

MAX_STATES = 60_000
"""Instructions tried, over all states of a search."""
BEAM = 48
"""States kept at each depth once the exact search is out of budget."""


def schedule(program: Program, choices: tuple[Choice, ...], io: Io = "caller", inplace: bool = True) -> Schedule:
    """The steps in an order that minimises peak memory: exactly if the graph branches little, by beam search otherwise.

    `io` and `inplace` as for `plan`: they decide what counts as memory. Ties go to file order. Control flow stays where it is: each
    straight-line block is ordered by itself.
    """
    order: list[int] = []
    found = blocks(program.instructions)
    for positions, inner in zip(found, parts(program) if len(found) > 1 else (program,)):
        found = _best_order(inner, choices[positions.start : positions.stop], io, inplace)
        order += [positions.start + position for position in found]
        order += range(positions.stop, min(positions.stop + 1, len(program.instructions)))
    steps = tuple(Step(position, 0, choices[position].implementation.rows.count) for position in order)
    return Schedule(program, choices, steps)


def _best_order(program: Program, choices: tuple[Choice, ...], io: Io, inplace: bool) -> tuple[int, ...]:
    """Positions of straight-line instructions in the order with the smallest peak that is found."""
    problem = _Problem.of(program, choices, io, inplace)
    best = tuple(range(len(program.instructions)))
    for search in (_exact, _beam):
        peak = problem.peak(best)
        if peak <= problem.least_peak:
            break
        found, finished = search(problem, peak)
        best = found or best
        if finished:
            break
    return best


def dependencies(program: Program) -> tuple[tuple[int, ...], ...]:
    """For each instruction the earlier ones that it must follow.

    Those are: writers of what it reads, readers of what it writes, and other writers of it, unless both provably write different
    elements (the parts of a concatenation).
    """
    writers: dict[str, list[int]] = {}
    readers: dict[str, list[int]] = {}
    found: list[tuple[int, ...]] = []
    for position, instruction in enumerate(program.instructions):
        read, written = set(map(program.storage, reads(instruction))), set(map(program.storage, writes(instruction)))
        before = {earlier for storage in read for earlier in writers.get(storage, ())}
        before |= {earlier for storage in written for earlier in readers.get(storage, ())}
        for storage in sorted(written):
            before |= {one for one in writers.get(storage, ()) if not disjoint(program.instructions[one], instruction, program)}
        found.append(tuple(sorted(before)))
        for storage in read:
            readers.setdefault(storage, []).append(position)
        for storage in written:
            writers.setdefault(storage, []).append(position)
    return tuple(found)


class _State(NamedTuple):
    """A set of instructions that have run (`done`, a bit mask), those that may run next, and the bytes alive between two steps."""

    done: int
    ready: int
    live: int


@dataclass(frozen=True)
class _Item:
    """A storage in the scheduler's eyes: its bytes, the instructions that touch it, and whether it lives before and after them."""

    nbytes: int
    touchers: int
    from_start: bool
    to_end: bool


@dataclass(frozen=True)
class _Problem:
    """What searches need: dependencies as bit masks, and each instruction's storages."""

    before: tuple[int, ...]
    after: tuple[tuple[int, ...], ...]
    touched: tuple[tuple[_Item, ...], ...]
    exchanges: tuple[tuple[tuple[_Item, _Item], ...], ...]
    scratch: tuple[int, ...]
    live_at_start: int

    @staticmethod
    def of(program: Program, choices: tuple[Choice, ...], io: Io, inplace: bool) -> _Problem:
        uses = [use_of(program, choice.implementation, io) for choice in choices]
        masks: dict[str, int] = {}
        for position, use in enumerate(uses):
            for name in use.touched:
                masks[name] = masks.get(name, 0) | 1 << position
        items = {
            name: _Item(-(-program[name].nbytes // 4) * 4, mask, program[name].role == "input", program[name].role == "output")
            for name, mask in masks.items()
        }
        exchanges: list[tuple[tuple[_Item, _Item], ...]] = []
        for use in uses:
            pairs = [(items[use.writes[0]], items[name]) for name in use.overwrites] if inplace and len(use.writes) == 1 else []
            exchanges.append(tuple((new, old) for new, old in pairs if new.nbytes == old.nbytes and not old.to_end))
        earlier = dependencies(program)
        after: list[list[int]] = [[] for _ in earlier]
        for position, before in enumerate(earlier):
            for one in before:
                after[one].append(position)
        return _Problem(
            before=tuple(sum(1 << one for one in before) for before in earlier),
            after=tuple(map(tuple, after)),
            touched=tuple(tuple(items[name] for name in use.touched) for use in uses),
            exchanges=tuple(exchanges),
            scratch=tuple(choice.implementation.scratch_nbytes for choice in choices),
            live_at_start=sum(item.nbytes for item in items.values() if item.from_start),
        )

    @property
    def count(self) -> int:
        return len(self.before)

    @cached_property
    def everything(self) -> int:
        return (1 << self.count) - 1

    @cached_property
    def start(self) -> _State:
        return _State(0, sum(1 << position for position, before in enumerate(self.before) if not before), self.live_at_start)

    @cached_property
    def least_peak(self) -> int:
        """What some single step needs in any order: its own storages and scratch."""
        peaks = [self.live_at_start]
        for position in range(self.count):
            own = sum(item.nbytes for item in self.touched[position]) + self.scratch[position]
            peaks.append(own - max((new.nbytes for new, _ in self.exchanges[position]), default=0))
        return max(peaks)

    def run(self, state: _State, position: int) -> tuple[int, _State]:
        """(bytes alive during the step, the state after it)."""
        bit, live, dying = 1 << position, state.live, 0
        done = state.done | bit
        for item in self.touched[position]:
            if not item.touchers & state.done and not item.from_start:
                live += item.nbytes
            if not item.touchers & ~done and not item.to_end:
                dying += item.nbytes
        saved = 0
        for new, old in self.exchanges[position]:
            if not new.touchers & state.done and not old.touchers & ~done:
                saved = new.nbytes
        ready = state.ready & ~bit
        for other in self.after[position]:
            if not self.before[other] & ~done:
                ready |= 1 << other
        return live - saved + self.scratch[position], _State(done, ready, live - dying)

    def peak(self, order: Sequence[int]) -> int:
        """Bytes alive at the worst step of an order."""
        state, worst = self.start, self.live_at_start
        for position in order:
            during, state = self.run(state, position)
            worst = max(worst, during)
        return worst


def _positions(mask: int) -> Iterator[int]:
    """The set bits, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


_Found = tuple[tuple[int, ...] | None, bool]
"""An order with a lower peak than asked for, if one was found, and whether the search has settled the question."""
_Search = Callable[[_Problem, int], _Found]


def _exact(problem: _Problem, limit: int) -> _Found:
    """Best-first over sets of instructions that have run: the first complete set has the smallest peak."""
    came: dict[int, tuple[int, int]] = {}
    heap: list[tuple[int, int, int, _State]] = [(problem.live_at_start, 0, 0, problem.start)]
    closed: set[int] = set()
    tried = 0
    while heap:
        peak, _, _, state = heapq.heappop(heap)
        if state.done == problem.everything:
            return _trace(came, state.done), True
        if state.done in closed:
            continue
        closed.add(state.done)
        for position in _positions(state.ready):
            tried += 1
            during, after = problem.run(state, position)
            worst = max(peak, during)
            if worst >= limit or (after.done in came and came[after.done][0] <= worst):
                continue
            came[after.done] = (worst, position)
            heapq.heappush(heap, (worst, -after.done.bit_count(), tried, after))
        if tried > MAX_STATES:
            return None, False
    return None, True


def _trace(came: dict[int, tuple[int, int]], done: int) -> tuple[int, ...]:
    order: list[int] = []
    while done:
        position = came[done][1]
        order.append(position)
        done &= ~(1 << position)
    return tuple(reversed(order))


def _beam(problem: _Problem, limit: int) -> _Found:
    """Depth by depth, keeping the states with the smallest peaks so far (then the fewest bytes alive).

    How many are kept is such that the budget lasts to the end: in a very wide graph, only the best.
    """
    states: list[tuple[int, _State, _Order]] = [(problem.live_at_start, problem.start, None)]
    tried, budget = 0, 5 * MAX_STATES
    for depth in range(problem.count):
        reached: dict[int, tuple[int, _State, _Order]] = {}
        for peak, state, order in states:
            for position in _positions(state.ready):
                tried += 1
                during, after = problem.run(state, position)
                worst = max(peak, during)
                if worst < limit and (after.done not in reached or worst < reached[after.done][0]):
                    reached[after.done] = (worst, after, (order, position))
        if not reached or tried > budget:
            return None, False
        ready = max(state.ready.bit_count() for _, state, _ in reached.values())
        width = min(BEAM, (budget - tried) // ((problem.count - depth) * max(ready, 1)))
        states = sorted(reached.values(), key=lambda entry: (entry[0], entry[1].live))[: max(width, 1)]
    return _unrolled(min(states, key=lambda entry: entry[0])[2]), False


_Order = tuple[Any, int] | None
"""The last position of an order, after the order before it."""


def _unrolled(order: _Order) -> tuple[int, ...]:
    found: list[int] = []
    while order is not None:
        order, position = order
        found.append(position)
    return tuple(reversed(found))
