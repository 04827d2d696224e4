"""Volatile accesses, which llvmlite's builder lacks: LLVM neither drops, merges nor moves them.

Enters: a builder and pointers. Leaves: loads and stores at its position.
Invariant: each call is one access.
"""

from __future__ import annotations

from llvmlite import ir

from aot.llvm.types import Builder, Value


class _Load(ir.instructions.LoadInstr):
    align: int | None

    def descr(self, buf: list[str]) -> None:
        pointer = self.operands[0]
        buf.append(f"load volatile {self.type}, ptr {pointer.get_reference()}, align {self.align}\n")


class _Store(ir.instructions.StoreInstr):
    align: int | None

    def descr(self, buf: list[str]) -> None:
        value, pointer = self.operands
        buf.append(f"store volatile {value.type} {value.get_reference()}, ptr {pointer.get_reference()}, align {self.align}\n")


def volatile_load(builder: Builder, pointer: Value, type: ir.Type, align: int) -> Value:
    """The value at `pointer`, aligned to `align` bytes."""
    load = _Load(builder.block, pointer, "", typ=type)
    load.align = align
    builder._insert(load)
    return load


def volatile_store(builder: Builder, value: Value, pointer: Value, align: int) -> None:
    """Store at `pointer`, aligned to `align` bytes."""
    store = _Store(builder.block, value, pointer)
    store.align = align
    builder._insert(store)
