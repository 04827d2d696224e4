"""What is fused behind float sums, four neighbouring channels at a time.

Enters: a contraction's or reduction's result, or a Map's value. Leaves: `Ending`, or the sentence why its elements can't be vectors.
Invariant: operands are loaded from the very elements that are stored, or are numbers of a channel: pointers that move with the output's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from llvmlite import ir

from aot.backends.neon.simd_float import LANES, Floats
from aot.graph.expr import COMPARE, Acc, Affine, Axis, Binary, Bitcast, Cast, Const, Expr, Load, Select, Unary, loads, walk
from aot.graph.ir import DType
from aot.graph.primitive import Contract, Map, Reduce, store_of
from aot.llvm import arithmetic
from aot.llvm.expressions import uniform
from aot.llvm.types import Value, constant, register_type
from aot.lower.indexing import linear
from aot.lower.inplace import stored_element_loads
from aot.lower.program import Program

_TYPES = (DType.FLOAT32, DType.INT32, DType.BOOL)
_BINARY = ("add", "sub", "mul", "div", "min", "max", "and", "or", "xor", "shl", "shr", "ushr")
_UNARY = ("neg", "abs", "sqrt", "not")
_WIDE_UNARY = ("floor", "ceil", "rint", "trunc")
_COMPARISON = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


@dataclass(frozen=True)
class Ending:
    """result: of the sum (`Acc`). beside: loads of the element that is stored, from activations. channels: loads of constants that
    follow the channel. pixels: loads that follow the pixel, one element for all its channels. scalars: loads of one element for all.
    numbers: loads of constants that are one number."""

    result: Expr
    beside: tuple[Load, ...] = ()
    channels: tuple[Load, ...] = ()
    pixels: tuple[Load, ...] = ()
    scalars: tuple[Load, ...] = ()
    numbers: Mapping[Load, float] | None = None

    @property
    def streams(self) -> tuple[Load, ...]:
        """The loads for which pointers move along: those beside the output, then those of channels, then those of pixels."""
        return (*self.beside, *self.channels, *self.pixels)

    @property
    def instructions(self) -> int:
        """For each vector."""
        return sum(not isinstance(node, Acc | Const) for node in walk(self.result))


def read_ending(
    program: Program,
    instruction: Contract | Reduce | Map,
    result: Expr,
    channel_axes: Sequence[int],
    is_wide: bool,
    positions: bool = False,
) -> Ending | str:
    """The ending, or why it is not one of vectors. channel_axes: those of the space that neighbouring elements of a row differ in.
    positions: whether it may ask for others."""
    if program[instruction.out].dtype is not DType.FLOAT32:
        return f"its output is {program[instruction.out].dtype}"
    for node in walk(result):
        if isinstance(node, Axis) and positions and node.axis not in channel_axes:
            continue
        if reason := refusal(node, is_wide):
            return reason
    stored = stored_element_loads(program, instruction)
    pixels: list[Load] = []
    scalars: list[Load] = []
    beside: list[Load] = []
    channels: list[Load] = []
    numbers: dict[Load, int | float] = {}
    for load in loads(result):
        owner = program[program.storage(load.buffer)]
        is_constant = owner.role == "constant" and owner.data is not None
        if load.dtype not in (DType.FLOAT32, DType.INT32):
            return f"it reads {load.dtype}"
        if is_constant and (number := uniform(owner.data)) is not None:
            numbers[load] = number
        elif load in stored and (not is_constant or isinstance(instruction, Map)):
            beside.append(load)
        elif is_constant and _follows(program, instruction, load, channel_axes):
            channels.append(load)
        elif isinstance(instruction, Map) and (position := linear(load.index, program[load.buffer].shape, instruction.space)):
            if load.fill is not None or not _is_of_pixel(program, instruction, position, channel_axes):
                return f"it reads %{load.buffer} otherwise than the output is stored"
            (pixels if position.terms else scalars).append(load)
        else:
            return f"what is fused behind it reads %{load.buffer} otherwise than the output is stored"
    return Ending(result, tuple(beside), tuple(channels), tuple(pixels), tuple(scalars), numbers)


def refusal(node: Expr, is_wide: bool) -> str:
    """Why vectors can't have this operation; empty if they can."""
    if node.dtype not in _TYPES:
        return f"what is fused behind it is of {node.dtype}"
    match node:
        case Const() | Load() | Acc() | Select() | Bitcast():
            return ""
        case Cast(x, dtype) if dtype is not DType.BOOL and x.dtype is not DType.BOOL:
            return ""
        case Unary(op, x) if op in _UNARY or (is_wide and op in _WIDE_UNARY):
            return "" if op in ("neg", "not") or x.dtype is DType.FLOAT32 else f"{op} of integers"
        case Binary(op, a, _) if op in COMPARE or op in _BINARY:
            return "" if op != "div" or a.dtype is DType.FLOAT32 else "a division of integers"
        case Axis():
            return "what is fused behind it asks for positions"
        case _:
            pass
    return f"{type(node).__name__.lower()} is fused behind it"


def _follows(program: Program, instruction: Contract | Reduce | Map, load: Load, channel_axes: Sequence[int]) -> bool:
    """Whether a constant holds one number for each channel, in order."""
    step = 1
    expected: dict[int, int] = {}
    for number in reversed(channel_axes):
        if instruction.space[number] > 1:
            expected[number] = step
        step *= instruction.space[number]
    found: dict[int, int] = {}
    scale = 1
    for index, extent in zip(reversed(load.index), reversed(program[load.buffer].shape), strict=True):
        if not isinstance(index, Affine) or index.offset or load.fill is not None:
            return False
        for number, coefficient in index.terms:
            if instruction.space[number] > 1:
                found[number] = found.get(number, 0) + coefficient * scale
        scale *= extent
    return found == expected


def _is_of_pixel(program: Program, instruction: Map, position: Affine, channel_axes: Sequence[int]) -> bool:
    """Whether a flat position is that of the pixel, which the output has so many channels of; or no axis changes it."""
    stored = linear(store_of(instruction), program[instruction.out].shape, instruction.space)
    channels = prod(instruction.space[number] for number in channel_axes)
    if stored is None or not position.terms:
        return stored is not None
    around = {number: step for number, step in stored.terms if number not in channel_axes}
    return position.offset == 0 and {number: step * channels for number, step in position.terms} == around


class Lanes:
    """Evaluates an ending's result for four channels. operands: vectors of its streams. axes: values of those that are not of channels."""

    def __init__(
        self, floats: Floats, ending: Ending, acc: Value | None, operands: Mapping[Load, Value], axes: Mapping[int, Value]
    ) -> None:
        self.floats, self.ending, self.acc, self.operands, self.axes = floats, ending, acc, operands, axes
        self.done: dict[int, Value] = {}

    def value(self, expr: Expr) -> Value:
        if id(expr) not in self.done:
            self.done[id(expr)] = self._emit(expr)
        return self.done[id(expr)]

    def _emit(self, expr: Expr) -> Value:
        builder = self.floats.builder
        if _is_of_positions(expr):
            return self.floats.repeated(self.floats.function.value(expr, self.axes))
        match expr:
            case Const(value, dtype):
                return splat(value, dtype)
            case Acc():
                return self.acc
            case Load():
                numbers = self.ending.numbers or {}
                return splat(numbers[expr], expr.dtype) if expr in numbers else self.operands[expr]
            case Cast(x, dtype):
                return self._cast(self.value(x), x.dtype, dtype)
            case Bitcast(x, dtype):
                return builder.bitcast(self.value(x), vector_type(dtype))
            case Select(condition, yes, no):
                return builder.select(self.value(condition), self.value(yes), self.value(no))
            case Binary("max", a, Const(bound, DType.FLOAT32)) if not np.isnan(bound):
                return self.floats.larger(self.value(a), splat(bound, DType.FLOAT32))
            case Binary("min", Const(bound, DType.FLOAT32), b) if not np.isnan(bound):
                return self.floats.smaller(splat(bound, DType.FLOAT32), self.value(b))
            case Binary("min", a, Const(bound, DType.FLOAT32)) if not np.isnan(bound) and self.floats.is_wide:
                return self.floats.smaller_number(self.value(a), splat(bound, DType.FLOAT32))
            case Binary(op, a, b) if op in COMPARE:
                return arithmetic.compare(builder, _COMPARISON[op], self.value(a), self.value(b), a.dtype)
            case Binary(op, a, b):
                return arithmetic.binary(builder, op, self.value(a), self.value(b), a.dtype)
            case Unary("not", x):
                return builder.xor(self.value(x), splat(-1 if x.dtype is DType.INT32 else True, x.dtype))
            case Unary(op, x) if op != "neg":
                return self.floats.unary(op, self.value(x))
            case Unary(op, x):
                return arithmetic.unary(builder, op, self.value(x), x.dtype)
            case _:
                pass
        raise AssertionError(expr)

    def _cast(self, x: Value, source: DType, dtype: DType) -> Value:
        builder = self.floats.builder
        if source is dtype:
            return x
        return builder.fptosi(x, vector_type(dtype)) if source.is_float else builder.sitofp(x, vector_type(dtype))


def _is_of_positions(expr: Expr) -> bool:
    """Whether it depends on positions and nothing else."""
    leaves = [node for node in walk(expr) if isinstance(node, Axis | Acc | Load)]
    return bool(leaves) and all(isinstance(node, Axis) for node in leaves)


def vector_type(dtype: DType) -> ir.VectorType:
    return ir.VectorType(register_type(dtype), LANES)


def splat(value: int | float | bool, dtype: DType) -> Value:
    return ir.Constant(vector_type(dtype), [constant(value, dtype)] * LANES)
