"""A Program while a pass edits it: instructions in slots, with the readers and writers of each storage kept up to date.

Enters: a Program. Leaves: the edited Program (`finish`).
Invariant: slot order is execution order; `readers` and `writers` list slots in order.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from aot.graph.expr import Const, Expr, Load, Lookup, children, loads, walk
from aot.graph.primitive import Call, Contract, Control, Map, Primitive, Reduce, expressions, identity, reads, store_of, writes
from aot.lower.build import without_unused
from aot.lower.indexing import bounds, linear, same

if TYPE_CHECKING:
    from aot.graph.expr import IndexMap
    from aot.graph.ir import Shape
    from aot.lower.program import Program

MAX_EXPRESSIONS, MAX_DEPTH = 600, 80
"""Fusion stops before one instruction has more sub-expressions than this, or a deeper nesting (chains in a model have no end)."""


class Draft:
    """Slots hold primitives, or None where fusion has removed one."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.slots: list[Primitive | None] = [None] * len(program.instructions)
        self.readers: dict[str, list[int]] = {}
        self.writers: dict[str, list[int]] = {}
        for position, instruction in enumerate(program.instructions):
            self.put(position, instruction)

    def put(self, position: int, instruction: Primitive | None) -> None:
        """Replace what is in a slot."""
        old = self.slots[position]
        if old is not None:
            for table, names in ((self.readers, reads(old)), (self.writers, writes(old))):
                for storage in self.storages(names):
                    table[storage].remove(position)
        self.slots[position] = instruction
        if instruction is not None:
            for table, names in ((self.readers, reads(instruction)), (self.writers, writes(instruction))):
                for storage in self.storages(names):
                    insort(table.setdefault(storage, []), position)

    def storages(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The storages of some buffers, each once, in order."""
        return tuple(dict.fromkeys(map(self.program.storage, names)))

    def settled(self, storage: str) -> bool:
        """Whether every write of a storage comes before every read, so that a read may move to any later slot."""
        written, read = self.writers.get(storage, []), self.readers.get(storage, [])
        return not written or not read or written[-1] < read[0]

    def private(self, storage: str, reader: int) -> bool:
        """Whether a storage is a temporary that only one slot reads, after it is complete."""
        return self.program[storage].role == "temporary" and self.readers.get(storage) == [reader] and self.settled(storage)

    def written_by(self, storage: str, limit: int) -> bool:
        """Whether the storage is complete before slot `limit`."""
        written = self.writers.get(storage, [])
        return not written or written[-1] < limit

    def writes_apart(self, position: int) -> bool:
        """Whether what the slot writes may be written at any earlier slot: no reader or other writer comes between."""
        instruction = self.slots[position]
        if not isinstance(instruction, Map | Reduce | Contract):
            return False
        storage = self.program.storage(instruction.out)
        others = (self.slots[slot] for slot in self.writers[storage] if slot != position)
        return self.settled(storage) and all(other is not None and disjoint(instruction, other, self.program) for other in others)

    def may_wait(self, producer: int, consumer: int) -> bool:
        """Whether `producer` may run as late as `consumer`, and then keeps no more bytes alive than its result would."""
        instruction = self.slots[producer]
        if instruction is None or not all(map(self.settled, self.storages(reads(instruction)))):
            return False
        if not any(self.slots[producer + 1 : consumer]):
            return True
        kept = 0
        for storage in self.storages(reads(instruction)):
            if self.program[storage].role in ("input", "temporary") and self.readers[storage][-1] < consumer:
                kept += self.program[storage].nbytes
        return kept <= sum(self.program[storage].nbytes for storage in self.storages(writes(instruction)))

    def may_hurry(self, producer: int, consumer: int) -> bool:
        """Whether the consumer's result may stand in for the producer's from then on, without more bytes between the two."""
        early, late = self.slots[producer], self.slots[consumer]
        if not isinstance(early, Map | Reduce | Contract) or not isinstance(late, Map | Reduce | Contract):
            return False
        result = self.program[self.program.storage(late.out)]
        larger = self.program[late.out].nbytes > self.program[early.out].nbytes
        return not (larger and result.role == "temporary" and any(self.slots[producer + 1 : consumer]))

    def finish(self) -> Program:
        """The Program of the slots that are left, without buffers that nothing names."""
        left = tuple(instruction for instruction in self.slots if instruction is not None)
        return without_unused(replace(self.program, instructions=left))


def reads_at_position(load: Load, space: Shape, program: Program) -> bool:
    """Whether iteration i of `space` loads the i-th element of the storage, in row-major order, and so each element once."""
    shape = program[load.buffer].shape
    if prod(space) != prod(shape) or 0 in space or load.fill is not None:
        return False
    position = linear(load.index, shape, space)
    return position is not None and position == linear(identity(len(space)), space, space)


def writes_at_position(instruction: Map, program: Program) -> bool:
    """Whether iteration i of the space writes the i-th element of the buffer, in row-major order."""
    return reads_at_position(
        Load(instruction.out, store_of(instruction), program[instruction.out].dtype), instruction.space, program
    )


def normal_store(store: tuple[IndexMap, ...], space: Shape, shape: Shape) -> tuple[IndexMap, ...] | None:
    """The store, as the empty shorthand where that means the same; None for a scalar with a space of axes, where the shorthand would
    be taken for its index."""
    if not store and space:
        return None
    return () if space == shape and same(store, identity(len(space)), space) else store


def disjoint(a: Primitive, b: Primitive, program: Program) -> bool:
    """Whether two instructions provably write different elements of the storage that they share."""
    if isinstance(a, Call | Control) or isinstance(b, Call | Control) or program[a.out].shape != program[b.out].shape:
        return False
    if 0 in a.space or 0 in b.space:
        return True
    if a.out != b.out and (program[a.out].is_window or program[b.out].is_window):
        return False
    ranges = ((bounds(one, a.space), bounds(other, b.space)) for one, other in zip(store_of(a), store_of(b), strict=True))
    return any(one[1] < other[0] or other[1] < one[0] for one, other in ranges)


def looks_up(instruction: Primitive, storage: str, program: Program) -> bool:
    """Whether the instruction reads the storage at an index that it computes."""
    found = (expr for expr in walk(*expressions(instruction)) if isinstance(expr, Lookup))
    return any(program.storage(expr.buffer) == storage for expr in found)


def loads_from(storage: str, program: Program, *roots: Expr) -> tuple[Load, ...]:
    """The distinct loads of a storage, through whichever view."""
    return tuple(load for load in loads(*roots) if program.storage(load.buffer) == storage)


def moderate(*roots: Expr) -> bool:
    """Whether the expressions are within the limits of what fusion may build."""
    depth: dict[int, int] = {}
    for expr in walk(*roots):
        depth[id(expr)] = 1 + max((depth[id(child)] for child in children(expr)), default=0)
    return len(depth) <= MAX_EXPRESSIONS and max(depth.values(), default=0) <= MAX_DEPTH


def is_remap(instruction: Map) -> bool:
    """Whether a Map only moves data (or stores one number everywhere): reading through it costs no arithmetic."""
    return isinstance(instruction.value, Load | Const)


def merged_nodes(*instructions: Primitive) -> tuple[int, ...]:
    """The model's nodes that instructions compute together."""
    return tuple(sorted({node for instruction in instructions for node in instruction.nodes}))


def is_loop_nest(instruction: Primitive | None) -> bool:
    """Whether the instruction is made of expressions over a space that is not empty."""
    return instruction is not None and not isinstance(instruction, Call | Control) and 0 not in instruction.space
