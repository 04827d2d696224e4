"""The shape of a function: which blocks dominate which, its loops, and those that C's `for` says.

Enters: a function of LLVM IR as llvmlite holds it. Leaves: `Shape`.
Invariant: the control flow is reducible, as everything that `aot.llvm` builds is; InternalError otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from llvmlite import ir

from aot.errors import InternalError

Block = Any
Value = Any
Instructions = ir.instructions
_STEPS = {"slt": True, "ult": False}
"""Comparisons that end a counted loop, and whether they are signed."""


@dataclass(eq=False)
class Loop:
    """A natural loop: its header, its blocks, the block that goes back if there is only one, the loop around it.

    counted: what makes it a `for` loop.
    """

    header: Block
    blocks: set[Block]
    latches: list[Block]
    parent: Loop | None = None
    counted: Counted | None = None

    @property
    def depth(self) -> int:
        return 0 if self.parent is None else self.parent.depth + 1


@dataclass(frozen=True, eq=False)
class Counted:
    """`for (index = start; index < bound; index += step)`, after which control goes to `exit`.

    guard: the block that skips the loop, by the same test, where it has no turn; None where it always has one.
    following: the value that the index has in the next turn.
    """

    index: Value
    start: Value
    bound: Value
    step: int
    signed: bool
    exit: Block
    guard: Block | None
    following: Value


@dataclass(eq=False)
class Shape:
    """order: the blocks in reverse postorder. before: predecessors. idom: immediate dominators. loops: by their header."""

    function: Any
    order: list[Block] = field(default_factory=list[Block])
    number: dict[Block, int] = field(default_factory=dict[Block, int])
    before: dict[Block, list[Block]] = field(default_factory=dict[Block, list[Block]])
    idom: dict[Block, Block] = field(default_factory=dict[Block, Block])
    children: dict[Block, list[Block]] = field(default_factory=dict[Block, list[Block]])
    loops: dict[Block, Loop] = field(default_factory=dict[Block, Loop])
    inside: dict[Block, Loop | None] = field(default_factory=dict[Block, Loop | None])

    def dominates(self, a: Block, b: Block) -> bool:
        while b is not a and b in self.idom:
            b = self.idom[b]
        return a is b

    def forward(self, block: Block) -> list[Block]:
        """Predecessors that do not go back."""
        return [each for each in self.before[block] if self.number[each] < self.number[block]]

    def loops_of(self, block: Block) -> list[Loop]:
        """The loops around a block, the innermost first."""
        loop = self.inside[block]
        found: list[Loop] = []
        while loop is not None:
            found.append(loop)
            loop = loop.parent
        return found


def successors(block: Block) -> list[Block]:
    """Where control may go from a block, each once."""
    last = block.instructions[-1]
    if isinstance(last, Instructions.SwitchInstr):
        return list(dict.fromkeys([*(target for _, target in last.cases), last.default]))
    if isinstance(last, Instructions.Branch | Instructions.ConditionalBranch):
        return list(dict.fromkeys(each for each in last.operands if isinstance(each, ir.Block)))
    return []


def shape_of(function: Any, known: Callable[[Value], int | None]) -> Shape:
    """known: the number that a value is, if that is known."""
    shape = Shape(function)
    _order(shape)
    _dominators(shape)
    _loops(shape)
    for loop in shape.loops.values():
        loop.counted = _counted(shape, loop, known)
    return shape


def _order(shape: Shape) -> None:
    entry = shape.function.blocks[0]
    done: list[Block] = []
    seen = {entry}
    stack = [(entry, iter(successors(entry)))]
    while stack:
        block, rest = stack[-1]
        following = next((each for each in rest if each not in seen), None)
        if following is None:
            done.append(block)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(successors(following))))
    shape.order = done[::-1]
    shape.number = {block: at for at, block in enumerate(shape.order)}
    shape.before = {block: [] for block in shape.order}
    for block in shape.order:
        for target in successors(block):
            shape.before[target].append(block)


def _dominators(shape: Shape) -> None:
    idom: dict[Block, Block] = {}

    def meet(a: Block, b: Block) -> Block:
        while a is not b:
            if shape.number[a] > shape.number[b]:
                a = idom[a]
            else:
                b = idom[b]
        return a

    entry = shape.order[0]
    idom[entry] = entry
    changed = True
    while changed:
        changed = False
        for block in shape.order[1:]:
            known = [each for each in shape.before[block] if each in idom]
            new = known[0]
            for other in known[1:]:
                new = meet(new, other)
            changed |= idom.get(block) is not new
            idom[block] = new
    del idom[entry]
    shape.idom = idom
    shape.children = {block: [] for block in shape.order}
    for block in shape.order[1:]:
        shape.children[idom[block]].append(block)


def _loops(shape: Shape) -> None:
    for block in shape.order:
        for header in successors(block):
            if shape.number[header] > shape.number[block]:
                continue
            if not shape.dominates(header, block):
                raise InternalError(f"{shape.function.name}: control flow that no loop has")
            loop = shape.loops.setdefault(header, Loop(header, {header}, []))
            loop.latches.append(block)
            stack = [block]
            while stack:
                each = stack.pop()
                if each not in loop.blocks:
                    loop.blocks.add(each)
                    stack += shape.before[each]
    for block in shape.order:
        around = [loop for loop in shape.loops.values() if block in loop.blocks]
        shape.inside[block] = min(around, key=lambda loop: len(loop.blocks), default=None)
    for loop in shape.loops.values():
        around = [other for other in shape.loops.values() if other is not loop and loop.header in other.blocks]
        loop.parent = min(around, key=lambda other: len(other.blocks), default=None)


def _counted(shape: Shape, loop: Loop, known: Callable[[Value], int | None]) -> Counted | None:
    """How a loop counts, if it does and nothing else leaves it but functions that end."""
    if len(loop.latches) != 1:
        return None
    latch = loop.latches[0]
    last = latch.instructions[-1]
    if not isinstance(last, Instructions.ConditionalBranch) or last.operands[1] is not loop.header:
        return None
    test, exit = last.operands[0], last.operands[2]
    if not isinstance(test, Instructions.ICMPInstr) or test.op not in _STEPS or exit in loop.blocks:
        return None
    following, bound = test.operands
    if getattr(following, "opname", "") != "add" or _defined_in(loop, bound):
        return None
    index, step = following.operands
    if not isinstance(index, Instructions.PhiInstr) or index.parent is not loop.header or (known(step) or 0) <= 0:
        return None
    starts = [value for value, block in index.incomings if block is not latch]
    if len(starts) != 1 or not any(value is following and block is latch for value, block in index.incomings):
        return None
    if any(
        exit_ is not exit and not _ends(exit_) for block in loop.blocks for exit_ in successors(block) if exit_ not in loop.blocks
    ):
        return None
    if any(exit in successors(block) for block in loop.blocks if block is not latch):
        return None
    start = starts[0]
    guard = _guard(shape, loop, test.op, start, bound, exit, known)
    low, high = known(start), known(bound)
    if guard is None and (low is None or high is None or low >= high):
        return None
    return Counted(index, start, bound, known(step) or 0, _STEPS[test.op], exit, guard, following)


def _defined_in(loop: Loop, value: Value) -> bool:
    return isinstance(value, Instructions.Instruction) and value.parent in loop.blocks


def _ends(block: Block) -> bool:
    return not successors(block)


def _guard(
    shape: Shape, loop: Loop, op: str, start: Value, bound: Value, exit: Block, known: Callable[[Value], int | None]
) -> Block | None:
    """The block that goes to the loop, or past it, by the test with which the loop ends."""

    def same(a: Value, b: Value) -> bool:
        return a is b or (known(a) is not None and known(a) == known(b))

    for block in shape.forward(loop.header):
        last = block.instructions[-1]
        if (
            not isinstance(last, Instructions.ConditionalBranch)
            or last.operands[1] is not loop.header
            or last.operands[2] is not exit
        ):
            return None
        test = last.operands[0]
        if (
            isinstance(test, Instructions.ICMPInstr)
            and test.op == op
            and same(test.operands[0], start)
            and same(test.operands[1], bound)
        ):
            return block
    return None
