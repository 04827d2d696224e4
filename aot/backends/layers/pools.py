"""Pools: reading one from a reduction.

Enters: reductions of int8 over windows of rows and columns. Leaves: `Pool`, or the sentence why it is none; what its sums are divided by.
Invariant: windows are cut at the image's borders, where the instruction says that what lies outside does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from aot.backends.generic import activations, generic_constants
from aot.graph.expr import Acc, Affine, Axis, Binary, Cast, Const, Expr, Load, Select, add, integer, rewrite, sub, walk
from aot.graph.ir import DType
from aot.graph.primitive import Reduce
from aot.llvm.emission import KernelFunction
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.program import Program

MOST_TAPS = 256
"""Of windows whose sums fit 16 bits."""


@dataclass(frozen=True)
class Side:
    """One direction: `count` windows of `taps` elements, from number * stride - pad on, in an image of `size`. axis: of the space."""

    size: int
    count: int
    taps: int
    stride: int
    pad: int
    axis: int | None

    @property
    def leaves(self) -> bool:
        """Whether some window leaves the image."""
        return self.pad > 0 or (self.count - 1) * self.stride - self.pad + self.taps > self.size

    @property
    def is_covered(self) -> bool:
        """Whether every window has an element inside the image."""
        return all(-self.taps < number * self.stride - self.pad < self.size for number in range(self.count))


@dataclass(frozen=True)
class Pool:
    """initial: what sums or maxima start from."""

    instruction: Reduce
    load: Load
    images: int
    rows: Side
    columns: Side
    depth: int
    initial: int

    @property
    def leaves(self) -> bool:
        return self.rows.leaves or self.columns.leaves

    @property
    def runs_forward(self) -> bool:
        """Whether no window reads rows or columns before its own output's: those may have been overwritten."""
        return self.rows.pad < self.rows.stride and self.columns.pad < self.columns.stride


def pool_of(program: Program, instruction: Reduce) -> Pool | str:
    """The pool that a reduction is, or why it is none."""
    load = instruction.term.x if isinstance(instruction.term, Cast) else instruction.term
    wanted = {"add": DType.INT32, "max": DType.INT8}.get(instruction.combine)
    if not isinstance(load, Load) or load.dtype is not DType.INT8 or instruction.term.dtype is not wanted:
        return "not a sum or maximum of int8"
    if len(load.index) != 4 or not isinstance(instruction.initial, Const) or instruction.store:
        return "not a pool"
    if load.fill is not None and not instruction.skip_fill:
        return "elements outside the image count"
    if program[program.storage(load.buffer)].role == "constant" or activations(program, instruction) != (load.buffer,):
        return "it reads more than its image"
    images, height, width, depth = program[load.buffer].shape
    channel = len(instruction.space) - 1
    sides: list[Side] = []
    for size, index in ((height, load.index[1]), (width, load.index[2])):
        side = _side(instruction, size, index)
        if side is None:
            return "its windows are not rows of neighbours"
        sides.append(side)
    rows, columns = sides
    taken = (load.index[0] == Affine(((0, 1),), 0), load.index[3] == Affine(((channel, 1),), 0))
    if not all(taken) or prod(instruction.space) != images * rows.count * columns.count * depth or depth < 4:
        return "its channels are not side by side, or fewer than four"
    if (rows.axis or 0) > (columns.axis or len(instruction.space)) or prod(instruction.window) != rows.taps * columns.taps:
        return "its axes are in another order"
    if not (rows.is_covered and columns.is_covered):
        return "windows outside the image"
    if _asks(instruction.result, channel):
        return "its result depends on the channel"
    return Pool(instruction, load, images, rows, columns, depth, int(instruction.initial.value))


def _side(instruction: Reduce, size: int, index: object) -> Side | None:
    """One direction of the windows."""
    if not isinstance(index, Affine):
        return None
    rank = len(instruction.space)
    outer = [(axis, step) for axis, step in index.terms if axis < rank]
    inner = [(axis, step) for axis, step in index.terms if axis >= rank]
    if len(outer) > 1 or len(inner) > 1 or any(step != 1 for _, step in inner) or any(step < 1 for _, step in outer):
        return None
    axis, stride = outer[0] if outer else (None, 1)
    taps = instruction.window[inner[0][0] - rank] if inner else 1
    count = 1 if axis is None else instruction.space[axis]
    return Side(size, count, taps, stride, -index.offset, axis) if index.offset <= 0 else None


def _asks(result: Expr, channel: int) -> bool:
    return any(isinstance(expr, Load) or (isinstance(expr, Axis) and expr.axis == channel) for expr in walk(result))


def implementation_of(
    program: Program, pool: Pool, emit: Callable[[KernelFunction], None], cost: Cost, note: str
) -> Implementation:
    """A kernel's answer to a pool."""
    instruction = pool.instruction
    return Implementation(
        kernel="average pool" if instruction.combine == "add" else "maximum pool",
        instruction=instruction,
        reads=activations(program, instruction),
        writes=(instruction.out,),
        constants=generic_constants(program, instruction),
        emit=emit,
        rows=Rows(pool.rows.count, 1, images=pool.images),
        style="ordered",
        cost=cost,
        notes=(note,),
    )


def quotient(pool: Pool) -> tuple[Expr | None, Expr]:
    """What sums are divided by, rounding away from zero, and what is done with the quotient (`Acc`); None: nothing."""
    result, acc = pool.instruction.result, Acc(DType.INT32)
    for expr in walk(result):
        match expr:
            case Binary("div", Select(Binary("gt", first, Const(0)), up, down), count) if first == acc and not pool.initial:
                half = integer(int(count.value) >> 1) if isinstance(count, Const) else Binary("shr", count, integer(1))
                inside = rewrite(result, lambda node, found=expr: Const(0, DType.INT32) if node == found else None)
                alone = not any(isinstance(node, Acc) for node in walk(inside))
                if (
                    (up, down) == (add(acc, half), sub(acc, half))
                    and alone
                    and not any(isinstance(node, Acc) for node in walk(count))
                ):
                    return count, rewrite(result, lambda node, found=expr: acc if node == found else None)
            case _:
                pass
    return None, result
