"""Scalar expressions to LLVM instructions: what `aot.graph.evaluate` means, one instruction at a time, without control flow.

Enters: an expression, the value of each axis, the accumulator. Leaves: instructions at the builder's position.
Invariant: equal to `evaluate.py` bit for bit; float operations are never contracted or reordered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from llvmlite import ir

from aot.errors import InternalError
from aot.graph.expr import (
    COMPARE,
    Acc,
    Affine,
    Axis,
    Binary,
    Bitcast,
    Cast,
    Const,
    Expr,
    IndexMap,
    Load,
    Lookup,
    Requantise,
    Select,
    Table,
    Unary,
    fixed,
)
from aot.graph.ir import DType
from aot.llvm import arithmetic
from aot.llvm.types import I32, Builder, Value, constant, known_integer, register_type
from aot.lower.indexing import strides
from aot.lower.rows import row_axis

if TYPE_CHECKING:
    from aot.llvm.emission import KernelFunction

_COMPARISON = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


class Scalars:
    """Emits expressions for one position of the iteration space; each shared sub-expression once.

    `unchecked`: loads known to be inside their buffers, so that no bounds are tested (by identity). `loaded`: loads done already.
    """

    def __init__(
        self,
        function: KernelFunction,
        axes: Mapping[int, Value],
        acc: Value | None,
        unchecked: Sequence[Load] = (),
        loaded: Mapping[Load, Value] | None = None,
    ) -> None:
        self.function, self.axes, self.acc, self.loaded = function, axes, acc, loaded or {}
        self.builder: Builder = function.builder
        self.unchecked = {id(load) for load in unchecked}
        self.done: dict[int, Value] = {}

    def value(self, expr: Expr) -> Value:
        if id(expr) not in self.done:
            self.done[id(expr)] = self._emit(expr)
        return self.done[id(expr)]

    def _emit(self, expr: Expr) -> Value:
        match expr:
            case Const(value, dtype):
                return constant(value, dtype)
            case Axis(number):
                return self.axis(number)
            case Load():
                return self.loaded[expr] if expr in self.loaded else self._load(expr)
            case Lookup(buffer, index):
                return self._lookup(buffer, self.value(index), expr.dtype)
            case Acc():
                if self.acc is None:
                    raise InternalError("acc outside the result of a reduction")
                return self.acc
            case Cast(x, dtype):
                return arithmetic.cast(self.builder, self.value(x), x.dtype, dtype)
            case Bitcast(x, dtype):
                return self.builder.bitcast(self.value(x), register_type(dtype))
            case Requantise():
                return self._requantise(expr)
            case Select(condition, yes, no):
                return self.builder.select(self.value(condition), self.value(yes), self.value(no))
            case Unary(op, x):
                return arithmetic.unary(self.builder, op, self.value(x), x.dtype)
            case Binary("min", Binary("max", x, Const(low)), Const(high)) if self._saturates(x.dtype, low, high):
                return self._saturate(self.value(x), int(high).bit_length() + 1)
            case Binary(op, a, b) if op in COMPARE:
                return arithmetic.compare(self.builder, _COMPARISON[op], self.value(a), self.value(b), a.dtype)
            case Binary(op, a, b):
                return arithmetic.binary(self.builder, op, self.value(a), self.value(b), a.dtype)

    def _saturates(self, dtype: DType, low: float, high: float) -> bool:
        """Whether the core clamps an int32 to this range in one instruction: -2^n .. 2^n - 1."""
        whole = dtype is DType.INT32 and low == -high - 1 and int(-low) & int(high) == 0
        return whole and "saturate" in self.function.target.has

    def _saturate(self, x: Value, bits: int) -> Value:
        intrinsic = self.function.intrinsic("llvm.arm.ssat", ir.FunctionType(I32, [I32, I32]))
        return self.builder.call(intrinsic, [x, I32(bits)])

    def axis(self, number: int) -> Value:
        """The value of an axis; one of extent 1 is 0."""
        if number in self.axes:
            return self.axes[number]
        if self.function.extents[number] != 1:
            raise InternalError(f"axis {number} has no value here")
        return I32(0)

    def _lookup(self, buffer: str, index: Value, dtype: DType) -> Value:
        single = uniform(self.function.buffer(buffer).data)
        return self.function.load_at(buffer, self.function.element(buffer, index)) if single is None else constant(single, dtype)

    # Addresses.

    def scaled(self, value: Value, factor: int) -> Value:
        if (known := known_integer(value)) is not None:
            return I32(known * factor)
        return value if factor == 1 else I32(0) if factor == 0 else self.builder.mul(value, I32(factor), flags=("nsw",))

    def sum(self, a: Value, b: Value) -> Value:
        left, right = known_integer(a), known_integer(b)
        if left is not None and right is not None:
            return I32(left + right)
        if left is not None:
            a, b, right = b, a, left
        return a if right == 0 else self.builder.add(a, b, flags=("nsw",))

    def index(self, index: IndexMap) -> Value:
        """The value of an index map, int32."""
        if isinstance(index, Table):
            return self._table(index)
        return self._linear(dict(index.terms), index.offset)

    def _linear(self, terms: Mapping[int, int], offset: int) -> Value:
        total: Value = I32(0)
        for number, coefficient in sorted(terms.items()):
            total = self.sum(total, self.scaled(self.axis(number), coefficient))
        return self.sum(total, I32(offset))

    def _table(self, table: Table) -> Value:
        simpler = straighten(table)
        if isinstance(simpler, Affine):
            return self.index(simpler)
        name = table_name(table)
        loaded = self.function.load_at(name, self.function.element(name, self.axis(table.axis)))
        return loaded if loaded.type == I32 else self.builder.sext(loaded, I32)

    def address(self, buffer: str, maps: Sequence[IndexMap], condition: Value | None = None) -> Value:
        """The address of the element that index maps name; where `condition` does not hold, of the first one."""

        def safe(offset: Value) -> Value:
            return offset if condition is None else self.builder.select(condition, offset, I32(0))

        if buffer not in self.function.scattered:
            return self.function.element(buffer, safe(self.flat_offset(buffer, maps)))
        number = row_axis(self.function.buffer(buffer).shape)
        row = I32(0) if number is None else safe(self.index(maps[number]))
        within = [fixed(0) if at == number else index for at, index in enumerate(maps)]
        return self.function.element(buffer, safe(self.flat_offset(buffer, within)), self.function.row(buffer, row))

    def flat_offset(self, buffer: str, maps: Sequence[IndexMap]) -> Value:
        """The flat element offset that index maps name. Affine parts are summed axis by axis, so that LLVM sees one linear form."""
        terms: dict[int, int] = {}
        offset = 0
        rest: list[Value] = []
        for index, stride in zip(maps, strides(self.function.buffer(buffer).shape), strict=True):
            simple = straighten(index) if isinstance(index, Table) else index
            if isinstance(simple, Affine):
                offset += simple.offset * stride
                for number, coefficient in simple.terms:
                    terms[number] = terms.get(number, 0) + coefficient * stride
            else:
                rest.append(self.scaled(self._table(simple), stride))
        total = self._linear(terms, offset)
        for part in rest:
            total = self.sum(total, part)
        return total

    # Loads.

    def _load(self, load: Load) -> Value:
        buffer = self.function.buffer(load.buffer)
        if len(load.index) != len(buffer.shape):
            raise InternalError(f"load of %{load.buffer}: {len(load.index)} indices for shape {buffer.shape}")
        condition = self.inside(load)
        if load.fill is None or condition is None:
            return self._element(load, None)
        fill = constant(load.fill.value, load.dtype)
        return fill if buffer.size == 0 else self.builder.select(condition, self._element(load, condition), fill)

    def inside(self, load: Load) -> Value | None:
        """Whether a load falls inside its buffer, as i1; None where it always does."""
        if load.fill is None or id(load) in self.unchecked:
            return None
        checks = self._checks(load, self.function.buffer(load.buffer).shape)
        return self._all(checks) if checks else None

    def _element(self, load: Load, condition: Value | None) -> Value:
        """The element itself; where `condition` does not hold, the buffer's first one (never an access outside)."""
        single = uniform(self.function.buffer(load.buffer).data)
        if single is not None:
            return constant(single, load.dtype)
        return self.function.load_at(load.buffer, self.address(load.buffer, load.index, condition))

    def _checks(self, load: Load, shape: Sequence[int]) -> list[Value]:
        """One condition for each index that may fall outside."""
        checks: list[Value] = []
        for index, size in zip(load.index, shape):
            low, high = index_range(index, self.function.extents)
            if low < 0 or high >= size:
                checks.append(self.builder.icmp_unsigned("<", self.index(index), I32(size)))
        return checks

    def _all(self, conditions: Sequence[Value]) -> Value:
        total = conditions[0]
        for condition in conditions[1:]:
            total = self.builder.and_(total, condition)
        return total

    # Requantisation.

    def _requantise(self, expr: Requantise) -> Value:
        x, multiplier, shift = (self.value(part) for part in (expr.x, expr.multiplier, expr.shift))
        if arithmetic.has_long_multiply(self.function.target):
            return arithmetic.requantise(self.builder, x, multiplier, shift, self._shift_range(expr.shift))
        type = ir.FunctionType(I32, [I32, I32, I32])
        return self.builder.call(self.function.helper("requantise", type, arithmetic.build_requantise), [x, multiplier, shift])

    def _shift_range(self, shift: Expr) -> tuple[int, int]:
        if isinstance(shift, Const):
            return int(shift.value), int(shift.value)
        data = self.function.buffer(shift.buffer).data if isinstance(shift, Load) and shift.fill is None else None
        return (-31, 30) if data is None or not data.size else (int(data.min()), int(data.max()))


def uniform(data: np.ndarray | None) -> int | float | None:
    """The value that all elements of constant data share, if they do."""
    if data is None or not data.size:
        return None
    bits = np.ascontiguousarray(data).reshape(-1).view(f"u{data.itemsize}")
    return data.reshape(-1)[0].item() if bool((bits == bits[0]).all()) else None


def index_range(index: IndexMap, extents: Sequence[int]) -> tuple[int, int]:
    """Smallest and largest value of an index map over the iteration space."""
    if isinstance(index, Table):
        entries = index.entries[: extents[index.axis]]
        return (min(entries), max(entries)) if entries else (0, 0)
    low = high = index.offset
    for number, coefficient in index.terms:
        reach = coefficient * (extents[number] - 1)
        low, high = low + min(reach, 0), high + max(reach, 0)
    return low, high


def straighten(table: Table) -> IndexMap:
    """A table whose entries lie on a line, as an affine index."""
    entries = table.entries
    step = entries[1] - entries[0] if len(entries) > 1 else 0
    if entries and all(b - a == step for a, b in pairwise(entries)):
        return Affine(((table.axis, step),) if step else (), entries[0])
    return table


def table_name(table: Table) -> str:
    """The name of the constant buffer that holds a table's entries: one for equal tables."""
    return f"table{len(table.entries)}.{hashlib.sha256(table_data(table).tobytes()).hexdigest()[:16]}"


def table_data(table: Table) -> np.ndarray:
    """A table's entries as int16, or int32 where they do not fit."""
    wide = np.asarray(table.entries, np.int32)
    return wide.astype(np.int16) if wide.size and wide.min() >= -(1 << 15) and wide.max() < 1 << 15 else wide
