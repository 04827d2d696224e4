"""A bounds-checked reader of FlexBuffers, the schema-less format that custom operators keep their options in.

Enters: the bytes of an options field. Leaves: a read-only mapping of names to int, float, bool, str, bytes, None, tuples and mappings.
Invariant: nothing is read before its place has been checked; depth and the number of values are bounded, whatever the offsets say.
Source: the FlexBuffers binary format (flatbuffers.dev/flatbuffers_internals). Offsets count backwards from where they stand.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import NoReturn

from aot.errors import CompileError

Value = int | float | bool | str | bytes | None | tuple["Value", ...] | Mapping[str, "Value"]

MAX_DEPTH = 8
MAX_VALUES = 4096
"""The most values (items of vectors and maps, at every level) of one options field."""
MAX_TEXT_NBYTES = 4096

_NULL, _INT, _UINT, _FLOAT, _KEY, _STRING = range(6)
_INDIRECT_INT, _INDIRECT_UINT, _INDIRECT_FLOAT, _MAP, _VECTOR = range(6, 11)
_TYPED = {11: _INT, 12: _UINT, 13: _FLOAT, 14: _KEY, 36: 26}
"""Vectors whose items all have one type, which is then not stored: of ints, uints, floats, keys, bools."""
_FIXED_FIRST, _FIXED_LAST = 16, 24
"""Vectors of 2, 3 or 4 ints, uints or floats, whose size is not stored either."""
_BLOB, _BOOL = 25, 26
_INDIRECT = {_INDIRECT_INT: _INT, _INDIRECT_UINT: _UINT, _INDIRECT_FLOAT: _FLOAT}
_SCALARS = {_INT: "bhiq", _UINT: "BHIQ", _BOOL: "BHIQ"}
_REALS = {2: "e", 4: "f", 8: "d"}
_WIDTHS = (1, 2, 4, 8)


def read_map(data: bytes) -> Mapping[str, Value]:
    """The map that these bytes hold; no bytes hold an empty one. CompileError, without a place, where they hold something else."""
    if not data:
        return MappingProxyType({})
    root = _Reader(data).root()
    if not isinstance(root, Mapping):
        raise CompileError("its custom options are not a FlexBuffer map")
    return root


class _Reader:
    """One buffer being read. `left`: how many values may still be read."""

    def __init__(self, data: bytes) -> None:
        self.data, self.left = data, MAX_VALUES

    def root(self) -> Value:
        """The value at the end: its own bytes, its type, its width."""
        if len(self.data) < 3 or self.data[-1] not in _WIDTHS:
            self.fail("are damaged at their end")
        width = self.data[-1]
        return self.value(len(self.data) - 2 - width, width, self.data[-2], 0)

    def value(self, position: int, width: int, packed: int, depth: int) -> Value:
        """The value of a slot of `width` bytes. `packed`: its type, and the width of what it refers to."""
        self.left -= 1
        if self.left < 0 or depth > MAX_DEPTH:
            self.fail(f"have more than {MAX_VALUES} values or {MAX_DEPTH} levels")
        kind, child = packed >> 2, _WIDTHS[packed & 3]
        if kind == _NULL:
            return None
        if kind in (_INT, _UINT, _FLOAT, _BOOL):
            return self.scalar(position, width, kind)
        target = self.target(position, width)
        if kind in _INDIRECT:
            return self.scalar(target, child, _INDIRECT[kind])
        if kind == _KEY:
            return self.key(target)
        if kind in (_STRING, _BLOB):
            found = self.bytes(target, self.size(target, child))
            return found if kind == _BLOB else found.decode("utf-8", errors="replace")
        return self.items(target, child, kind, depth + 1)

    def items(self, target: int, width: int, kind: int, depth: int) -> Value:
        """A map or a vector of any kind."""
        if kind == _MAP:
            return self.map(target, width, depth)
        if kind == _VECTOR:
            return self.mixed(target, width, self.count(target, width), depth)
        if kind in _TYPED:
            return self.uniform(target, width, _TYPED[kind], self.count(target, width), depth)
        if not _FIXED_FIRST <= kind <= _FIXED_LAST:
            self.fail(f"have a value of unknown type {kind}")
        length, item = divmod(kind - _FIXED_FIRST, 3)
        return self.uniform(target, width, (_INT, _UINT, _FLOAT)[item], length + 2, depth)

    def map(self, target: int, width: int, depth: int) -> Mapping[str, Value]:
        """Before the values: their count, the width of the keys, where the keys are."""
        count = self.count(target, width)
        keys, keys_width = self.target(target - 3 * width, width), self.number(target - 2 * width, width)
        if keys_width not in _WIDTHS or self.count(keys, keys_width) != count:
            self.fail("have a map with other than one key for each value")
        names = [self.key(self.target(keys + number * keys_width, keys_width)) for number in range(count)]
        return MappingProxyType(dict(zip(names, self.mixed(target, width, count, depth), strict=True)))

    def mixed(self, target: int, width: int, count: int, depth: int) -> tuple[Value, ...]:
        """Items whose types stand behind them, one byte each."""
        types = self.bytes(target + count * width, count)
        return tuple(self.value(target + number * width, width, types[number], depth) for number in range(count))

    def uniform(self, target: int, width: int, kind: int, count: int, depth: int) -> tuple[Value, ...]:
        return tuple(self.value(target + number * width, width, kind << 2, depth) for number in range(count))

    # Places and numbers.

    def count(self, target: int, width: int) -> int:
        """The size before a vector's items; its items lie inside the buffer, and no vector is larger than may be read."""
        count = self.size(target, width)
        if count > self.left:
            self.fail(f"have more than {MAX_VALUES} values or {MAX_DEPTH} levels")
        self.inside(target, count * width)
        return count

    def size(self, target: int, width: int) -> int:
        return self.number(target - width, width)

    def target(self, position: int, width: int) -> int:
        """Where the offset at a position leads."""
        target = position - self.number(position, width)
        self.inside(target, 0)
        return target

    def number(self, position: int, width: int) -> int:
        return int.from_bytes(self.bytes(position, width), "little")

    def scalar(self, position: int, width: int, kind: int) -> int | float | bool:
        if kind == _FLOAT and width not in _REALS:
            self.fail("have a float of one byte")
        code = _REALS[width] if kind == _FLOAT else _SCALARS[kind][_WIDTHS.index(width)]
        found = struct.unpack("<" + code, self.bytes(position, width))[0]
        return bool(found) if kind == _BOOL else found

    def key(self, position: int) -> str:
        """Text up to a zero byte."""
        end = self.data.find(b"\0", position, position + MAX_TEXT_NBYTES)
        if end < 0:
            self.fail("have a name without an end")
        return self.data[position:end].decode("utf-8", errors="replace")

    def bytes(self, position: int, nbytes: int) -> bytes:
        self.inside(position, nbytes)
        if nbytes > MAX_TEXT_NBYTES:
            self.fail(f"have a text of {nbytes} bytes, more than {MAX_TEXT_NBYTES}")
        return self.data[position : position + nbytes]

    def inside(self, position: int, nbytes: int) -> None:
        if position < 0 or position + nbytes > len(self.data):
            self.fail("refer to bytes outside themselves")

    def fail(self, what: str) -> NoReturn:
        raise CompileError(f"its custom options {what}", hint="they are read as a FlexBuffer")
