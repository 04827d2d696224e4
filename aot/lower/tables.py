"""What the passes that make tables share: what an expression depends on, its values, and the constants that hold them.

Enters: expressions of a Program. Leaves: `Lookup`s and the buffers behind them.
Invariant: entries are the expression's own numpy meaning, in the order of the unsigned byte that indexes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from aot.graph.evaluate import execute
from aot.graph.expr import Cast, Const, Expr, Load, Lookup, axis, cast, children, rewrite, walk
from aot.graph.ir import DType
from aot.graph.primitive import Call, Contract, Control, Map, Primitive, Reduce
from aot.lower.program import Buffer, Program

BYTES = (DType.INT8, DType.UINT8)
_USES_PER_BYTE = 2
"""A table must be read at least this often per inference for each byte of flash that it takes."""


class ByteArguments:
    """Answers on which 8-bit number an expression depends; shared sub-expressions are looked at once."""

    def __init__(self) -> None:
        self.done: dict[int, tuple[Expr, Expr | None]] = {}  # the expression too: its id is taken as long as it lives

    def __call__(self, expr: Expr) -> Expr | None:
        """The one 8-bit sub-expression on which `expr` depends; None if there is none, or something else."""
        if id(expr) not in self.done:
            below = [child for child in children(expr) if not isinstance(child, Const)]
            found = [child if child.dtype in BYTES else self(child) for child in below]
            same = bool(found) and all(leaf is not None and (leaf is found[0] or leaf == found[0]) for leaf in found)
            self.done[id(expr)] = expr, found[0] if same else None
        return self.done[id(expr)][1]


def byte_values(dtype: DType) -> np.ndarray:
    """All values of an 8-bit type, in the order of their unsigned bytes: 0..127, then -128..-1 for int8."""
    return np.arange(256, dtype=np.uint8).view(dtype.np)


@dataclass
class Tables:
    """Collects the tables of one program; equal ones are stored once."""

    program: Program
    made: dict[bytes, Buffer] = field(default_factory=dict[bytes, Buffer])
    byte_argument: ByteArguments = field(default_factory=ByteArguments)

    def lookup(self, entries: np.ndarray, index: Expr) -> Lookup:
        """entries[unsigned byte of `index`]; `index` is 8 bits wide."""
        key = f"{entries.dtype}".encode() + entries.tobytes()
        if key not in self.made:
            taken = sum(name.startswith("table") for name in self.program.by_name) + len(self.made)
            dtype = DType(entries.dtype.name)
            self.made[key] = Buffer(f"table{taken}", dtype, entries.shape, "constant", data=entries)
        buffer = self.made[key]
        return Lookup(buffer.name, Cast(cast(index, DType.UINT8), DType.INT32), buffer.dtype)

    def values(self, expr: Expr, arguments: Sequence[Expr]) -> np.ndarray:
        """`expr` for all values of its 8-bit arguments, one axis for each, in the order of `byte_values`."""
        variables = [Load(f"x{k}", (axis(k),), argument.dtype) for k, argument in enumerate(arguments)]
        value = rewrite(expr, lambda each: next((v for v, a in zip(variables, arguments, strict=True) if each == a), None))
        arrays = {variable.buffer: byte_values(variable.dtype) for variable in variables}
        for each in walk(value):
            if isinstance(each, Lookup) and (data := self.program[each.buffer].data) is not None:
                arrays[each.buffer] = data
        shape = (256,) * len(arguments)
        execute(Map("y", shape, value), arrays | (result := {"y": np.empty(shape, expr.dtype.np)}))
        return result["y"]

    def rewritten(self, change: Callable[[Expr, int], Expr]) -> Program:
        """The program with `change(expression, its evaluations per inference)` applied to what its loops compute, tables added."""
        instructions = tuple(_rewritten(instruction, change) for instruction in self.program.instructions)
        if instructions == self.program.instructions:
            return self.program
        return replace(self.program, buffers=(*self.program.buffers, *self.made.values()), instructions=instructions)


def often_enough(uses: int, nbytes: int) -> bool:
    """Whether a table of `nbytes` is read often enough to be worth its flash."""
    return uses >= _USES_PER_BYTE * nbytes


def _rewritten(instruction: Primitive, change: Callable[[Expr, int], Expr]) -> Primitive:
    match instruction:
        case Map():
            return replace(instruction, value=change(instruction.value, prod(instruction.space)))
        case Reduce():
            often = prod(instruction.space) * prod(instruction.window)
            result = change(instruction.result, prod(instruction.space))
            return replace(instruction, term=change(instruction.term, often), result=result)
        case Contract():
            return replace(instruction, result=change(instruction.result, prod(instruction.space)))
        case Call() | Control():
            return instruction


def with_children(expr: Expr, visit: Callable[[Expr], Expr]) -> Expr:
    """`expr` with each direct sub-expression replaced by what `visit` answers."""
    below = {id(child) for child in children(expr)}
    changed = {name: new for name, child in vars(expr).items() if id(child) in below and (new := visit(child)) is not child}
    return replace(expr, **changed) if changed else expr
