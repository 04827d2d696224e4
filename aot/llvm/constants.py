"""The block of constants: every weight, bias and table of a bundle, each content once.

Enters: constant buffers. Leaves: offsets in one block of bytes, and the variable that holds it.
Invariant: an offset once given does not change; equal bytes of equal alignment share it.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np
from llvmlite import ir

from aot.errors import InternalError
from aot.llvm.types import I8, I64, Value
from aot.lower.implementation import Implementation
from aot.lower.loaded import LOADED_ALIGN, Loaded
from aot.lower.pages import page_layout
from aot.lower.program import Buffer

BLOCK_ALIGN = LOADED_ALIGN
"""Alignment of the block in bytes, also where the caller passes it (`Bundle.weights_align`)."""


class Pool:
    """Constants of one bundle, in order of first use; before them those that are loaded into a region, where kernels find them then. paged:
    those that the caller reads for the entries, page by page."""

    def __init__(self, name: str, loaded: Loaded | None = None) -> None:
        self.name, self.loaded = name, loaded
        self.bytes = bytearray()
        self.paged = bytearray()
        self.offsets: dict[tuple[bytes, int], int] = {}
        self.variable: Any = None
        if loaded is not None:
            for constant, start in zip(loaded.constants, loaded.starts, strict=False):
                self.bytes += bytes(start - len(self.bytes))
                self.add(constant)
            self.bytes += bytes(loaded.nbytes - len(self.bytes))

    def place(self, buffer: Buffer, pointers: Container[object]) -> tuple[str, int]:
        """Behind which pointer of an entry, which has these, a kernel finds a constant, and its offset from there."""
        offset = self.add(buffer)
        if self.loaded is not None and self.loaded.region in pointers and offset < self.loaded.nbytes:
            return self.loaded.region, self.loaded.offset + offset
        return "weights", offset

    def add(self, buffer: Buffer) -> int:
        """The offset of a constant's first byte."""
        key = (content(buffer), self.wanted_align(buffer))
        if key not in self.offsets:
            self.bytes += bytes(-len(self.bytes) % key[1])
            self.offsets[key] = len(self.bytes)
            self.bytes += key[0]
        return self.offsets[key]

    def page(self, one: Implementation) -> tuple[int, int]:
        """Where an implementation's page lies in the file of pages: offset and bytes. Equal pages are there once."""
        offsets, nbytes, align = page_layout(one)
        page = bytearray(nbytes)
        for constant in one.constants:
            page[offsets[constant.name] : offsets[constant.name] + constant.nbytes] = content(constant)
        key = (bytes(page), -align)
        if key not in self.offsets:
            self.paged += bytes(-len(self.paged) % align)
            self.offsets[key] = len(self.paged)
            self.paged += page
        return self.offsets[key], nbytes

    def wanted_align(self, buffer: Buffer) -> int:
        align = max(4, buffer.align, buffer.dtype.nbytes)
        if align > BLOCK_ALIGN:
            raise InternalError(f"constant %{buffer.name} asks for an alignment of {align} bytes")
        return align

    def align(self, buffer: Buffer) -> int:
        """The alignment that a constant has at its offset."""
        offset = self.add(buffer)
        return min(BLOCK_ALIGN, offset & -offset) if offset else BLOCK_ALIGN

    def block(self) -> bytes:
        return bytes(self.bytes)

    def reserve(self, module: ir.Module) -> ir.GlobalVariable:
        """The variable that will hold the block (made on first use; `define` gives it its content)."""
        if self.variable is None:
            self.variable = ir.GlobalVariable(module, ir.ArrayType(I8, 0), f"{self.name}_weights")
        return self.variable

    def define(self) -> None:
        """Give the reserved variable its type and content."""
        if self.variable is not None:
            type = ir.ArrayType(I8, len(self.bytes))
            self.variable.value_type = type
            self.variable.initializer = ir.Constant(type, self.bytes)
            self.variable.global_constant = True
            self.variable.section = f".rodata.aot.{self.name}"
            self.variable.align = BLOCK_ALIGN


def content(buffer: Buffer) -> bytes:
    """A constant's bytes as they lie in memory (little-endian)."""
    if buffer.data is None:
        raise InternalError(f"constant %{buffer.name} has no data")
    data = np.ascontiguousarray(buffer.data)
    if data.nbytes != buffer.nbytes:
        raise InternalError(f"constant %{buffer.name}: {data.nbytes} bytes of data for {buffer.nbytes}")
    return data.astype(data.dtype.newbyteorder("<")).tobytes()


def offset_pointer(builder: ir.IRBuilder, pointer: Value, offset: int) -> Value:
    """`pointer` plus a number of bytes."""
    if not offset:
        return pointer
    return builder.gep(pointer, [I64(offset)], inbounds=offset > 0, source_etype=I8)
