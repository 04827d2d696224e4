"""Layers of one dimension, turned: an image of one row as one of one column, whose rows kernels count.

Enters: what claims an instruction; an instruction on images of one row. Leaves: the claim with implementations of the turned instruction
beside the usual ones; each is one of the instruction as it was.
Invariant: [1, 1, W, C] and [1, W, 1, C] are the same bytes, so the turned instruction reads and writes the same elements.

Whole images are faster to go over along a row. But what is made column by column can run while the network's input still comes, and needs a
few columns of it at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from aot.graph.expr import Expr, IndexMap, Load, axis, loads, rewrite
from aot.graph.ir import Shape
from aot.graph.primitive import Contract, Geometry, Primitive, Reduce, loads_of, store_of
from aot.lower.implementation import Answer, Implementation
from aot.lower.indexing import Index, compose_all, rebase
from aot.lower.inplace import stored_element_loads
from aot.lower.program import Buffer, Program
from aot.target import Target

Each = TypeVar("Each")

Claim = Callable[[Program, Primitive, Target], Answer]


def either_way(claim: Claim) -> Claim:
    """`claim`, of the instruction as it is and turned."""

    def claim_either(program: Program, instruction: Primitive, target: Target) -> Answer:
        answer = claim(program, instruction, target)
        found = turned(program, instruction)
        if found is None:
            return answer
        again = claim(found, found.instructions[found_at(program, instruction)], target)
        if isinstance(again, str):
            return answer
        others = [_as_it_was(one, instruction) for one in _every(again) if one.rows.count > 1 and not one.is_frugal]
        return (*(() if isinstance(answer, str) else _every(answer)), *others) or answer

    return claim_either


def found_at(program: Program, instruction: Primitive) -> int:
    return next(position for position, each in enumerate(program.instructions) if each is instruction)


def _every(answer: Implementation | tuple[Implementation, ...]) -> tuple[Implementation, ...]:
    return (answer,) if isinstance(answer, Implementation) else answer


def _as_it_was(one: Implementation, instruction: Primitive) -> Implementation:
    return replace(one, instruction=instruction, variant=", ".join(text for text in (one.variant, "column by column") if text))


def turned(program: Program, instruction: Primitive) -> Program | None:
    """The Program with the instruction turned, and the buffers that it touches; None where it is not on images of one row."""
    if not isinstance(instruction, Contract | Reduce) or not _is_on_a_row(program, instruction):
        return None
    moved = frozenset(
        name for name in (*(load.buffer for load in loads_of(instruction)), instruction.out) if not _is_constant(program, name)
    )
    if any(not _is_row(program[name].shape) for name in moved):
        return None
    new = _Turn(instruction, moved).instruction()
    if new is None:
        return None
    buffers = tuple(_turned_buffer(buffer) if buffer.name in moved else buffer for buffer in program.buffers)
    instructions = tuple(new if each is instruction else each for each in program.instructions)
    return replace(program, buffers=buffers, instructions=instructions)


def _is_on_a_row(program: Program, instruction: Contract | Reduce) -> bool:
    """Whether space and window begin with (1, 1, columns, ...) and (1, columns), and what is fused behind reads only beside the output."""
    if not _is_row(instruction.space[:4]) or len(instruction.window) < 2 or instruction.window[0] != 1:
        return False
    geometry = instruction.geometry if isinstance(instruction, Contract) else None
    if isinstance(instruction, Contract) and (geometry is None or geometry.kind == "dense" or geometry.input[1] != 1):
        return False
    beside = stored_element_loads(program, instruction)
    return all(load in beside or _is_constant(program, load.buffer) for load in loads(instruction.result))


def _is_row(shape: Shape) -> bool:
    return len(shape) == 4 and shape[:2] == (1, 1) and shape[2] > 1


def _is_constant(program: Program, name: str) -> bool:
    return program[program.storage(name)].role == "constant"


def _turned_buffer(buffer: Buffer) -> Buffer:
    return replace(buffer, shape=_swapped(buffer.shape))


def _swapped(each: tuple[Each, ...]) -> tuple[Each, ...]:
    """With the second and the third entry in each other's place."""
    return (each[0], each[2], each[1], *each[3:])


class _Turn:
    """An instruction with rows for columns. moved: the buffers whose shapes are turned with it."""

    def __init__(self, instruction: Contract | Reduce, moved: frozenset[str]) -> None:
        self.old, self.moved = instruction, moved
        rank = len(instruction.space)
        self.space, self.window = (
            _swapped(instruction.space),
            (instruction.window[1], instruction.window[0], *instruction.window[2:]),
        )
        order = [*_swapped(tuple(range(rank))), rank + 1, rank, *range(rank + 2, rank + len(self.window))]
        self.by: Index = tuple(map(axis, order))

    def instruction(self) -> Contract | Reduce | None:
        old, extents = self.old, (*self.space, *self.window)
        store = compose_all(store_of(old), self.by, extents)
        names = ("initial", "result", "left", "right") if isinstance(old, Contract) else ("initial", "result", "term")
        parts = {name: self._expr(getattr(old, name), extents) for name in names}
        if store is None or any(part is None for part in parts.values()):
            return None
        if isinstance(old, Contract):
            assert old.geometry is not None
            parts["geometry"] = _turned_geometry(old.geometry)  # type: ignore[assignment]
        new = {**parts, "space": self.space, "window": self.window, "store": self._position(old.out, store) if old.store else ()}
        return replace(old, **new)  # type: ignore[arg-type]

    def _expr(self, expr: Expr, extents: Shape) -> Expr | None:
        found = rebase(expr, self.by, extents)
        if found is None:
            return None
        return rewrite(found, self._loaded)

    def _loaded(self, node: Expr) -> Expr | None:
        return replace(node, index=self._position(node.buffer, node.index)) if isinstance(node, Load) else None

    def _position(self, name: str, index: tuple[IndexMap, ...]) -> tuple[IndexMap, ...]:
        return _swapped(index) if name in self.moved else index


def _turned_geometry(g: Geometry) -> Geometry:
    pairs = {name: getattr(g, name)[::-1] for name in ("kernel", "stride", "dilation")}
    return replace(g, input=_swapped(g.input), output=_swapped(g.output), pad_top=g.pad_left, pad_left=g.pad_top, **pairs)
