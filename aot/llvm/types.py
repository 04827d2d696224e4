"""LLVM types of the compiler's dtypes, and constants of them.

Enters: dtypes and numbers. Leaves: `llvmlite.ir` types and constants.
Invariant: bool is i1 in registers and a byte, 0 or 1, in memory; int4 is held as int8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from aot.errors import InternalError
from aot.graph.ir import DType

Value = Any
"""An `ir.Value`. llvmlite's builder is made of decorators that a type checker can't follow, hence no closer type; so too:"""
Builder = Any

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
POINTER = ir.PointerType()
_FLOATS: dict[DType, ir.Type] = {DType.FLOAT16: ir.HalfType(), DType.FLOAT32: ir.FloatType(), DType.FLOAT64: ir.DoubleType()}


@dataclass(frozen=True)
class Callee:
    """A pointer that is called as a function of this type: llvmlite takes none without."""

    pointer: Value
    function_type: ir.FunctionType
    type: ir.PointerType = POINTER

    def get_reference(self) -> str:
        return self.pointer.get_reference()


def register_type(dtype: DType) -> Any:
    """The LLVM type of a value in a register."""
    return I1 if dtype is DType.BOOL else memory_type(dtype)


def memory_type(dtype: DType) -> Any:
    """The LLVM type of an element in memory."""
    if dtype in _FLOATS:
        return _FLOATS[dtype]
    if dtype.is_integer or dtype is DType.BOOL:
        return ir.IntType(8 * dtype.nbytes)
    raise InternalError(f"{dtype} has no LLVM type here")


def constant(value: int | float | bool, dtype: DType) -> ir.Constant:
    """A number as an LLVM constant; integers wrap, floats round to nearest."""
    if dtype.is_float:
        with np.errstate(over="ignore"):
            return ir.Constant(register_type(dtype), float(dtype.np.type(value)))
    bits = register_type(dtype).width  # type: ignore[attr-defined]
    wrapped = int(value) & ((1 << bits) - 1)
    signed = wrapped - (1 << bits) if bits > 1 and wrapped >> (bits - 1) else wrapped
    return ir.Constant(register_type(dtype), signed)


def known_integer(value: Value) -> int | None:
    """The integer behind an LLVM constant, None for anything else."""
    return int(value.constant) if isinstance(value, ir.Constant) and isinstance(value.type, ir.IntType) else None
