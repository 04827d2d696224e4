"""Tables for what depends on one 8-bit number: 256 answers computed now instead of arithmetic for every element.

Enters: a Program of groups. Leaves: the same Program in which such expressions are `Lookup`s in new constants.
Invariant: the table is the expression's own numpy meaning at all 256 values, so no byte changes.

ADD of int8 rescales each operand by itself before the sum: each becomes one load. Wide multiplications cost most on the smallest cores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from aot.graph.evaluate import execute
from aot.graph.expr import Binary, Cast, Const, Expr, Load, Lookup, Requantise, add, axis, cast, children, integer, rewrite, walk
from aot.graph.ir import DType
from aot.graph.primitive import Call, Contract, Map, Primitive, Reduce
from aot.lower.program import Buffer, Program

_BYTES = (DType.INT8, DType.UINT8)
_LEAST_COST = 6
_USES_PER_BYTE = 2
"""A table must be read at least this often per inference for each byte of flash that it takes."""


def tabulate(program: Program) -> Program:
    """expr(x) -> table[x], where x is 8 bits wide, expr reads nothing else that varies, costs more than a load, and is evaluated often."""
    tables: dict[bytes, Buffer] = {}
    instructions = tuple(_tabulated(program, instruction, tables) for instruction in program.instructions)
    return replace(program, buffers=(*program.buffers, *tables.values()), instructions=instructions) if tables else program


def _tabulated(program: Program, instruction: Primitive, tables: dict[bytes, Buffer]) -> Primitive:
    match instruction:
        case Map():
            return replace(instruction, value=_Rewriting(program, prod(instruction.space), tables)(instruction.value))
        case Reduce():
            often = prod(instruction.space) * prod(instruction.window)
            term = _Rewriting(program, often, tables)(instruction.term)
            return replace(instruction, term=term, result=_Rewriting(program, prod(instruction.space), tables)(instruction.result))
        case Contract():
            return replace(instruction, result=_Rewriting(program, prod(instruction.space), tables)(instruction.result))
        case Call():
            return instruction


@dataclass
class _Rewriting:
    """Replaces the largest sub-expressions that qualify."""

    program: Program
    uses: int
    tables: dict[bytes, Buffer]

    def __call__(self, root: Expr) -> Expr:
        chosen = self._choose(root)
        return self._replace(root, chosen) if chosen else root

    def _choose(self, root: Expr) -> dict[int, Expr]:
        """The expressions to replace, by id, each with the 8-bit expression that it depends on; the outermost only."""
        chosen: dict[int, Expr] = {}
        pending = [root]
        while pending:
            expr = pending.pop()
            argument = self._argument(expr)
            if argument is not None and self._worth(expr, argument):
                chosen[id(expr)] = argument
                pending.append(argument)
            else:
                pending += children(expr)
        return chosen

    def _argument(self, expr: Expr) -> Expr | None:
        """The one 8-bit sub-expression on which `expr` depends; None if there is none, or something else."""
        below = [child for child in children(expr) if not isinstance(child, Const)]
        found = [child if child.dtype in _BYTES else self._argument(child) for child in below]
        return found[0] if found and all(leaf is not None and leaf == found[0] for leaf in found) else None

    def _worth(self, expr: Expr, argument: Expr) -> bool:
        size = 256 * expr.dtype.nbytes
        return expr.dtype is not DType.BOOL and self.uses >= _USES_PER_BYTE * size and _cost(expr, argument) >= _LEAST_COST

    def _replace(self, root: Expr, chosen: dict[int, Expr]) -> Expr:
        done: dict[int, Expr] = {}

        def visit(expr: Expr) -> Expr:
            if id(expr) not in done:
                if id(expr) in chosen:
                    argument = chosen[id(expr)]
                    done[id(expr)] = self._lookup(expr, argument, visit(argument))
                else:
                    done[id(expr)] = _with_children(expr, visit)
            return done[id(expr)]

        return visit(root)

    def _lookup(self, expr: Expr, argument: Expr, index: Expr) -> Lookup:
        entries = self._entries(expr, argument)
        key = f"{entries.dtype}".encode() + entries.tobytes()
        if key not in self.tables:
            name = f"table{len(self.tables)}"
            self.tables[key] = Buffer(name, expr.dtype, entries.shape, "constant", data=entries)
        low = argument.dtype.limits[0]
        position = cast(index, DType.INT32)
        return Lookup(self.tables[key].name, add(position, integer(-low)) if low else position, expr.dtype)

    def _entries(self, expr: Expr, argument: Expr) -> np.ndarray:
        """The 256 values of `expr`, for its argument's values in order."""
        low, high = argument.dtype.limits
        values = np.arange(low, high + 1).astype(argument.dtype.np)
        variable = Load("x", (axis(0),), argument.dtype)
        value = rewrite(expr, lambda each: variable if each == argument else None)
        constants = {e.buffer: self.program[e.buffer].data for e in walk(value) if isinstance(e, Lookup)}
        arrays = {
            "x": values,
            "y": np.empty(256, expr.dtype.np),
            **{name: data for name, data in constants.items() if data is not None},
        }
        execute(Map("y", (256,), value), arrays)
        return arrays["y"]


def _with_children(expr: Expr, visit) -> Expr:
    """`expr` with each direct sub-expression replaced by what `visit` answers."""
    below = {id(child) for child in children(expr)}
    changed = {name: new for name, child in vars(expr).items() if id(child) in below and (new := visit(child)) is not child}
    return replace(expr, **changed) if changed else expr


def _cost(expr: Expr, argument: Expr) -> int:
    """Instructions, roughly, between the argument and the expression."""
    below = {id(each) for each in walk(argument)}
    return sum(_instructions(each) for each in walk(expr) if id(each) not in below)


def _instructions(expr: Expr) -> int:
    match expr:
        case Const() | Cast():
            return 0
        case Requantise():
            return 12
        case Binary(op=("div" | "rem")):
            return 8
        case Lookup():
            return 2
    return 1
