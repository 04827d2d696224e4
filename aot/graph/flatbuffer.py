"""A bounds-checked view of a flatbuffer, for files that nobody vouches for.

Enters: bytes. Leaves: `Table`s whose fields, strings and vectors lie inside those bytes; CompileError where they do not.
Invariant: nothing is read before its place has been checked, and the work done is bounded by the file's size (tables that a file
lists many times over use up the budget), so that no file makes the reader hang or fill the memory.
Source: the FlatBuffers binary format (flatbuffers.dev/internals).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NoReturn

import numpy as np
import tflite

from aot.errors import CompileError

MAX_TABLES = 100_000
"""The most tables (tensors, nodes, buffers ...) of a file: a model for a microcontroller has some hundreds."""
MAX_OPTION_ITEMS = 4096
"""The most items (a list of dimensions, a name) that an option may have: operators read them one by one."""

MAIN = "main table"
"""What messages call a table without a path: the root, and the only subgraph of a file."""


class Source:
    """The bytes of one file and what may still be read from it (sharing of tables and vectors is legal, within limits)."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.budget_nbytes = 2 * len(data) + 65536
        self.tables = 0

    def spend(self, nbytes: int, path: str) -> None:
        """Count bytes that are about to be read; CompileError once they are far more than the file has."""
        self.budget_nbytes -= nbytes
        if self.budget_nbytes < 0:
            raise CompileError("more content than the file has bytes: its tables refer to the same bytes over and over", where=path)

    def count_table(self, path: str) -> None:
        self.spend(8, path)
        self.tables += 1
        if self.tables > MAX_TABLES:
            raise CompileError(f"the file has more than {MAX_TABLES} tables", where=path)

    def uint16(self, position: int) -> int:
        return struct.unpack_from("<H", self.data, position)[0]

    def uint32(self, position: int) -> int:
        return struct.unpack_from("<I", self.data, position)[0]


@dataclass(frozen=True, slots=True)
class Table:
    """A table: `vtable` and `position` are checked positions; `path` says in words where in the model it is.

    A slot is the number of a field in the schema. Absent fields have their default.
    """

    source: Source
    position: int
    vtable: int
    vtable_nbytes: int
    nbytes: int
    path: str

    def offset(self, slot: int, width: int) -> int | None:
        """Position of a field of `width` bytes; None if it is absent."""
        entry = 4 + 2 * slot
        relative = self.source.uint16(self.vtable + entry) if entry + 2 <= self.vtable_nbytes else 0
        if relative == 0:
            return None
        if relative < 4 or relative + width > self.nbytes:
            self.fail(f"field {slot} lies outside its table")
        return self.position + relative

    def number(self, slot: int, code: str, default: int = 0) -> int:
        """A scalar; `code` is its `struct` format character."""
        position = self.offset(slot, struct.calcsize("<" + code))
        return default if position is None else struct.unpack_from("<" + code, self.source.data, position)[0]

    def table(self, slot: int, path: str) -> Table | None:
        position = self.offset(slot, 4)
        return None if position is None else table_at(self.source, position + self.source.uint32(position), self._inside(path))

    def tables(self, slot: int, path: str) -> list[Table]:
        """A vector of tables, each known as `path` and its number."""
        return [
            table_at(self.source, position, self._inside(f"{path} {number}"))
            for number, position in enumerate(self._targets(slot, path))
        ]

    def _targets(self, slot: int, path: str) -> list[int]:
        start, count = self._vector(slot, 4, path)
        self.source.spend(4 * count, self._inside(path))
        return [position + self.source.uint32(position) for position in range(start, start + 4 * count, 4)]

    def numbers(self, slot: int, dtype: str, what: str) -> np.ndarray | None:
        """A vector of scalars as a read-only array over the file; None if it is absent."""
        if self.offset(slot, 4) is None:
            return None
        item = np.dtype(dtype).newbyteorder("<")
        start, count = self._vector(slot, item.itemsize, what)
        self.source.spend(item.itemsize * count, self._inside(what))
        return np.frombuffer(self.source.data, item, count, start)

    def extent(self, slot: int, what: str) -> tuple[int, int]:
        """(position, length) of a byte vector, (0, 0) if it is absent. Costs nothing: its bytes have not been read."""
        return self._vector(slot, 1, what)

    def text(self, slot: int, what: str) -> str:
        """A string, "" if it is absent; what is not UTF-8 becomes U+FFFD."""
        start, count = self._vector(slot, 1, what)
        self.source.spend(count, self._inside(what))
        return self.source.data[start : start + count].decode("utf-8", errors="replace")

    def _vector(self, slot: int, item_nbytes: int, what: str) -> tuple[int, int]:
        """(position of the first item, items) of a vector; (0, 0) if it is absent."""
        position = self.offset(slot, 4)
        if position is None:
            return 0, 0
        start = position + self.source.uint32(position)
        if start + 4 > len(self.source.data):
            self.fail(f"its {what} can't be read: outside the file")
        count = self.source.uint32(start)
        if start + 4 + count * item_nbytes > len(self.source.data):
            self.fail(f"its {what} can't be read: past the end of the file")
        return start + 4, count

    def measure(self, slot: int, item_nbytes: int, what: str) -> None:
        """Check that a vector or string of an options table lies inside the file and is of a sane length."""
        _, count = self._vector(slot, item_nbytes, what)
        self.source.spend(item_nbytes * count, self._inside(what))
        if count > MAX_OPTION_ITEMS:
            self.fail(f"its {what} has {count} items, more than {MAX_OPTION_ITEMS}")

    def fail(self, what: str) -> NoReturn:
        raise CompileError(what, where=self.path or MAIN)

    def _inside(self, path: str) -> str:
        return f"{self.path}, {path}" if self.path else path


def root(data: bytes, identifier: bytes, path: str) -> Table:
    """The root table of a file that carries this identifier (4 bytes at position 4)."""
    if len(data) < 8 or data[4:8] != identifier:
        seen = "it is empty" if not data else f"bytes 4 to 7 are not '{identifier.decode()}'"
        raise CompileError(f"not a TFLite model: {seen}", hint="expected a .tflite file")
    source = Source(data)
    return table_at(source, source.uint32(0), path)


def table_at(source: Source, position: int, path: str) -> Table:
    """The table at a position, once it and its vtable are known to lie inside the file."""
    size = len(source.data)
    path_or_main = path or MAIN
    source.count_table(path_or_main)
    if position < 4 or position + 4 > size:
        raise CompileError("lies outside the file", where=path_or_main)
    vtable = position - struct.unpack_from("<i", source.data, position)[0]
    if vtable < 0 or vtable + 4 > size:
        raise CompileError("its field table lies outside the file", where=path_or_main)
    vtable_nbytes, nbytes = source.uint16(vtable), source.uint16(vtable + 2)
    if vtable_nbytes < 4 or vtable_nbytes % 2 or vtable + vtable_nbytes > size:
        raise CompileError("its field table is damaged", where=path_or_main)
    if nbytes < 4 or position + nbytes > size:
        raise CompileError("runs past the end of the file", where=path_or_main)
    return Table(source, position, vtable, vtable_nbytes, nbytes, path)


# Options tables, which operators read through the generated classes of the `tflite` package. Those check nothing.


@dataclass(frozen=True)
class _Field:
    """A field of an options table. `item_nbytes` is 0 for a scalar, else the item size of its vector or string."""

    name: str
    slot: int
    nbytes: int
    item_nbytes: int


class _Recorder:
    """Stands in for a flatbuffers builder, to learn a field's slot and size from the function that would write it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[int, ...]]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(*arguments: int) -> None:
            self.calls.append((name, arguments))

        return call


_SCALAR_NBYTES = {
    "Bool": 1,
    "Int8": 1,
    "Uint8": 1,
    "Int16": 2,
    "Uint16": 2,
    "Int32": 4,
    "Uint32": 4,
    "Float32": 4,
    "Int64": 8,
    "Uint64": 8,
    "Float64": 8,
}


@cache
def _fields(kind: str) -> tuple[_Field, ...]:
    """The fields of a table of the schema, as the `tflite` package would write them."""
    prefix = f"{kind}Add"
    return tuple(_field(kind, name[len(prefix) :]) for name in sorted(vars(tflite)) if name.startswith(prefix))


def _field(kind: str, name: str) -> _Field:
    recorder = _Recorder()
    getattr(tflite, f"{kind}Add{name}")(recorder, 0)
    method, (slot, *_) = recorder.calls[0]
    scalar = method.removeprefix("Prepend").removesuffix("Slot")
    if scalar in _SCALAR_NBYTES:
        return _Field(name, slot, _SCALAR_NBYTES[scalar], 0)
    start_vector = getattr(tflite, f"{kind}Start{name}Vector", None)
    if start_vector is None:
        return _Field(name, slot, 4, 1)
    start_vector(recorder, 0)
    return _Field(name, slot, 4, recorder.calls[1][1][0])


def options_object(table: Table, kind: str) -> object:
    """The generated object (`tflite.Conv2DOptions`, for one) of an options table, all of whose fields lie inside the file."""
    for field in _fields(kind):
        if field.item_nbytes:
            table.measure(field.slot, field.item_nbytes, field.name)
        else:
            table.offset(field.slot, field.nbytes)
    made = getattr(tflite, kind)()
    made.Init(table.source.data, table.position)
    return made


def enumerators(enumeration: type) -> dict[str, int]:
    """The names and numbers of an enumeration of the schema; not what Python itself keeps in a class (as 3.13 its first line)."""
    return {name: number for name, number in vars(enumeration).items() if isinstance(number, int) and not name.startswith("__")}
