"""The function that a Glow bundle has instead of an entry, and the constant that describes it to a program while it runs.

Enters: a bundle's `Glow`, and its entry. Leaves: the function `int NAME(uint8_t *constantWeight, uint8_t *mutableWeight,
uint8_t *activations)`, which calls the entry, and where the interface is dynamic `BundleConfig NAME_config`.
Invariant: the entry makes all checks; the constant is never written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir

from aot.llvm.constants import offset_pointer
from aot.llvm.types import I8, I32, I64, POINTER

if TYPE_CHECKING:
    from aot.glow import Glow

_SYMBOL = ir.LiteralStructType([POINTER, I64, I64, I8])
"""SymbolTableEntry: name, offset and elements of a variable; 1 if it is a placeholder, which a run reads or writes."""
_CONFIG = ir.LiteralStructType([I64, I64, I64, I64, I64, POINTER])
"""BundleConfig: bytes of the three blocks, their alignment, the number of symbols, and their table."""
_PLACEHOLDER = 1


def build_glow(module: ir.Module, glow: Glow, entry: str, section: str) -> None:
    """Define what `glow` says in the module that has the entry. section: for constants that hold addresses."""
    function = ir.Function(module, ir.FunctionType(I32, [POINTER] * 3), glow.symbol)
    function.attributes.add("nounwind")
    constants, mutable, activations = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    ports = [offset_pointer(builder, mutable, placeholder.offset) for placeholder in glow.placeholders]
    builder.ret(builder.call(module.globals[entry], [*ports, activations, constants]))
    if glow.dynamic:
        _config(module, glow, section)


def _config(module: ir.Module, glow: Glow, section: str) -> None:
    rows: list[ir.Constant] = []
    for number, placeholder in enumerate(glow.placeholders):
        text = ir.Constant(ir.ArrayType(I8, len(placeholder.name) + 1), bytearray(placeholder.name.encode() + b"\0"))
        name = _constant(module, f"{glow.symbol}_name{number}", text, "")
        rows.append(ir.Constant(_SYMBOL, [name, I64(placeholder.offset), I64(placeholder.elements), I8(_PLACEHOLDER)]))
    table = _constant(module, f"{glow.symbol}_symbols", ir.Constant(ir.ArrayType(_SYMBOL, len(rows)), rows), section)
    sizes = (glow.constant_nbytes, glow.mutable_nbytes, glow.activations_nbytes, glow.align, len(rows))
    _constant(module, glow.config, ir.Constant(_CONFIG, [*map(I64, sizes), table]), section)


def _constant(module: ir.Module, name: str, value: ir.Constant, section: str) -> ir.GlobalVariable:
    variable: Any = ir.GlobalVariable(module, value.type, name)
    variable.initializer, variable.global_constant, variable.section = value, True, section
    return variable
