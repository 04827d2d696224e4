"""Tensors of a TFLite file: dtype, shape, quantisation, constant data.

Enters: checked tables of the file. Leaves: `Tensor`s (a `Value` and what of its shape is dynamic).
Invariant: constants have as many bytes as their shape and dtype say; scales are finite, zero points inside their dtype.
"""

from __future__ import annotations

import itertools
import math
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tflite.TensorType import TensorType

from aot.errors import CompileError
from aot.graph.flatbuffer import Table, enumerators
from aot.graph.ir import DType, Quantisation, Shape, Value
from aot.graph.shapes import MAX_RANK, has_elements, require_sane
from aot.graph.tflite_sparsity import positions

DTYPES = {code: DType(name.lower()) for name, code in enumerators(TensorType).items()}
ACTIVATION_DTYPES = (DType.INT4, DType.INT8, DType.UINT8, DType.INT16, DType.UINT16)
"""Integer types that mean quantised numbers when they have a scale; the wider ones are mostly counts and indices."""

MAX_DENSIFIED = 1 << 24
"""The most elements of all sparse tensors together, once they are dense: what a few bytes of a file can ask for has an end."""


@dataclass(frozen=True)
class Tensor:
    """A tensor as the file has it. Dynamic: the file leaves its shape open (dimensions left open are 1 in `value`).

    dims: the shape as the file says it; buffer: the number of its buffer.
    """

    value: Value
    dynamic: bool
    dims: Shape
    buffer: int

    def as_empty_constant(self) -> Tensor | None:
        """The constant that a tensor with a dimension of 0 is when nothing writes it (the shape of a scalar, for one)."""
        if 0 not in self.dims or -1 in self.dims or not has_elements(self.value.dtype):
            return None
        data = np.zeros(self.dims, self.value.dtype.np)
        return Tensor(replace(self.value, shape=self.dims, data=data), False, self.dims, self.buffer)


class Buffers:
    """The file's buffers: bytes by number, decoded once however many tensors share them. densified: elements of sparse tensors so far."""

    def __init__(self, tables: list[Table]) -> None:
        self.tables = tables
        self._decoded: dict[tuple[int, DType], np.ndarray] = {}
        self.densified = 0

    def extent(self, number: int) -> tuple[int, int]:
        """(position in the file, bytes) of a buffer; 0 bytes where it holds nothing. Buffer 0 is empty by convention."""
        table = self.tables[number]
        position, nbytes = table.extent(0, "data")
        offset, size = table.number(1, "Q"), table.number(2, "Q")
        if offset > 1:
            position, nbytes = offset, size
        if position + nbytes > len(table.source.data):
            table.fail(f"its {nbytes} bytes at {position} lie outside the file")
        return (position, nbytes) if number else (0, 0)

    def bytes(self, number: int) -> bytes:
        position, nbytes = self.extent(number)
        source = self.tables[number].source
        source.spend(nbytes, self.tables[number].path)
        return source.data[position : position + nbytes]

    def elements(self, number: int, dtype: DType, count: int) -> np.ndarray:
        """The buffer's content as a flat, read-only array of `count` elements. CompileError if it has not that many."""
        if (number, dtype) not in self._decoded:
            self._decoded[number, dtype] = self._decode(number, dtype)
        found = self._decoded[number, dtype]
        if dtype is DType.INT4:
            found = found[:count] if (count + 1) // 2 * 2 == found.size else found
        if found.size != count:
            raise CompileError(f"its shape has {count} elements of {dtype}, its buffer {number} has {found.size}")
        return found

    def _decode(self, number: int, dtype: DType) -> np.ndarray:
        position, nbytes = self.extent(number)
        data = self.tables[number].source.data
        if dtype is DType.STRING:
            return _strings(memoryview(data)[position : position + nbytes])
        if not has_elements(dtype):
            raise CompileError(f"constants of type {dtype} are not supported")
        if nbytes % dtype.nbytes:
            raise CompileError(f"its buffer {number} has {nbytes} bytes, not a multiple of {dtype.nbytes}")
        if dtype is DType.BOOL:
            return np.frombuffer(data, np.uint8, nbytes, position) != 0
        if dtype is DType.INT4:
            return _nibbles(np.frombuffer(data, np.uint8, nbytes, position))
        if sys.byteorder == "big":
            return np.frombuffer(data, dtype.np.newbyteorder("<"), nbytes // dtype.nbytes, position).astype(dtype.np)
        return np.frombuffer(data, dtype.np, nbytes // dtype.nbytes, position)


def _nibbles(packed: np.ndarray) -> np.ndarray:
    """int4 elements as int8, the low nibble first."""
    low, high = (packed << 4).view(np.int8) >> 4, packed.view(np.int8) >> 4
    return np.stack([low, high], axis=-1).reshape(-1)


def _strings(data: memoryview) -> np.ndarray:
    """A string buffer: int32 count, count + 1 offsets, the characters. Source: TFLite's string_util.h."""
    head = np.frombuffer(data, "<i4", len(data) // 4)
    count = int(head[0]) if head.size else 0
    ends = head[1 : count + 2].astype(np.int64)
    if count < 0 or ends.size != count + 1 or (np.diff(ends) < 0).any() or ends[0] < 4 * count + 8 or ends[-1] > len(data):
        raise CompileError("its strings are damaged")
    found = np.empty(count, object)
    found[:] = [bytes(data[start:end]) for start, end in itertools.pairwise(ends)]
    return found


def read_tensor(table: Table, name: str, buffers: Buffers) -> Tensor:
    """A tensor's value. CompileError, with the tensor's number and label, where the file contradicts itself."""
    label = table.text(3, "name")
    try:
        return _read(table, name, label, buffers)
    except CompileError as error:
        where = f"{table.path} '{label}'" if error.where in ("", table.path) else error.where
        raise CompileError(error.what, where=where, hint=error.hint) from None


def _read(table: Table, name: str, label: str, buffers: Buffers) -> Tensor:
    dtype = DTYPES.get(code := table.number(1, "b"))
    if dtype is None:
        raise CompileError(f"its type has the unknown code {code}")
    buffer = table.number(2, "I")
    if buffer >= len(buffers.tables):
        raise CompileError(f"its buffer {buffer} is not in the file, which has {len(buffers.tables)}")
    constant, variable = buffers.extent(buffer)[1] > 0, bool(table.number(5, "B"))
    if constant and variable:
        raise CompileError("is a variable but has constant data")
    dims = _dims(table, 0, "shape")
    shape, dynamic = _shape(table, dims, constant)
    require_sane(dtype, shape)
    quantisation = _quantisation(table.table(4, "quantisation"), dtype, shape, constant)
    sparsity = table.table(6, "sparsity")
    if sparsity is not None:
        data = _dense(sparsity, buffers, buffer, dtype, shape)
    else:
        data = buffers.elements(buffer, dtype, math.prod(shape)).reshape(shape) if constant else None
    return Tensor(Value(name, dtype, shape, quantisation, data, label, variable), dynamic, dims, buffer)


def _dense(sparsity: Table, buffers: Buffers, buffer: int, dtype: DType, shape: Shape) -> np.ndarray:
    """A sparse constant, spread out: 0 where the file stores nothing."""
    if not buffers.extent(buffer)[1] or not has_elements(dtype):
        raise CompileError(f"is sparse without being a constant of numbers ({dtype})")
    buffers.densified += math.prod(shape)
    if buffers.densified > MAX_DENSIFIED:
        raise CompileError(f"the sparse tensors of the file have more than {MAX_DENSIFIED} elements")
    where = positions(sparsity, shape)
    data = np.zeros(math.prod(shape), dtype.np)
    data[where] = buffers.elements(buffer, dtype, where.size)
    return data.reshape(shape)


def _shape(table: Table, dims: Shape, constant: bool) -> tuple[Shape, bool]:
    """The shape with 1 for each dimension left open, and whether the file leaves any open."""
    signature = _dims(table, 7, "shape signature")
    if constant:
        if -1 in dims:
            raise CompileError(f"is constant but its shape is {list(dims)}")
        return dims, False
    ranked = bool(dims or signature or table.number(8, "B"))
    dynamic = not ranked or any(dim < 1 for dim in dims) or -1 in signature
    return tuple(dim if dim > 0 else 1 for dim in dims), dynamic


def _dims(table: Table, slot: int, what: str) -> Shape:
    array = table.numbers(slot, "i4", what)
    if array is None:
        return ()
    if array.size > MAX_RANK:
        raise CompileError(f"its {what} has {array.size} dimensions, more than {MAX_RANK}")
    dims = tuple(array.tolist())
    if any(dim < -1 for dim in dims):
        raise CompileError(f"its {what} has a negative dimension: {list(dims)}")
    return dims


def _quantisation(table: Table | None, dtype: DType, shape: Shape, constant: bool) -> Quantisation | None:
    """Scales and zero points; None for what is not quantised (wide integers whose scale is 0, floats but see `_of_float`)."""
    if table is None:
        return None
    if table.number(4, "B"):
        raise CompileError(
            "has custom or blockwise quantisation, which is not supported", hint="quantise per tensor or per channel"
        )
    scales, points = _list(table.numbers(2, "f4", "scales")), _list(table.numbers(3, "i8", "zero points"))
    if dtype is DType.FLOAT32:
        return _of_float(scales, points)
    if not scales or not dtype.is_integer:
        return None
    if not any(scales) and dtype not in ACTIVATION_DTYPES and not constant:
        return None
    _require_scales(scales, dtype, constant)
    zero_points = points or [0] * len(scales)
    _require_zero_points(zero_points, len(scales), dtype)
    axis = 0 if len(scales) == 1 else _axis(table.number(6, "i"), shape, len(scales))
    return Quantisation(tuple(scales), tuple(zero_points), axis)


def _of_float(scales: list[float], points: list[int]) -> Quantisation | None:
    """What a file says of a float: kept until shapes are settled, as TFLite takes some of these for quantised; None if unusable."""
    usable = len(scales) == len(points) == 1 and math.isfinite(scales[0]) and scales[0] > 0 and abs(points[0]) < 1 << 15
    return Quantisation(tuple(scales), tuple(points)) if usable else None


def _list(array: np.ndarray | None) -> list[Any]:
    """Plain numbers: numpy warns about some kinds of NaN."""
    return [] if array is None else array.tolist()


def _require_scales(scales: list[float], dtype: DType, constant: bool) -> None:
    for scale in scales:
        if not math.isfinite(scale):
            raise CompileError(f"has a scale that is not a finite number: {scale}")
        if scale < 0:
            raise CompileError(f"has a negative scale: {scale:.6g}")
        # Weights and biases of a pruned output channel have scale 0; an activation can't.
        if scale == 0 and not constant:
            raise CompileError(f"has scale 0, which no {dtype} activation can have")


def _require_zero_points(zero_points: list[int], count: int, dtype: DType) -> None:
    if len(zero_points) != count:
        raise CompileError(f"has {count} scales but {len(zero_points)} zero points")
    low, high = dtype.limits
    for zero_point in zero_points:
        if not low <= zero_point <= high:
            raise CompileError(f"has zero point {zero_point}, outside {dtype}'s {low} to {high}")


def _axis(axis: int, shape: Shape, count: int) -> int:
    """The quantised dimension. Converters give one-dimensional biases the axis of their weights: there it can only be 0."""
    if len(shape) == 1:
        axis = 0
    if not 0 <= axis < len(shape):
        raise CompileError(f"has scales along dimension {axis}, but {len(shape)} dimensions")
    if shape[axis] != count:
        raise CompileError(f"has {count} scales for the {shape[axis]} indices of dimension {axis}")
    return axis
