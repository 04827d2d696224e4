"""Functions given as machine code, for loops that LLVM's register allocation spoils.

Enters: the bytes of a whole function that keeps the calling convention and refers to nothing outside itself. Leaves: a local function
of the bundle, with a symbol and a size like any other.
Invariant: what the bytes push is known to the stack report.

The bytes are LLVM's prologue data: they stand at the function's entry. The body behind them is never reached; its frame is what LLVM
reports. llvmlite's LLVM has no parser for Arm assembly, so that there is no inline assembly. Only for modules of style "ordered": passes
would conclude from the body that the function never returns.
"""

from __future__ import annotations

from llvmlite import ir

from aot.llvm.emission import KernelFunction, string_attribute
from aot.llvm.types import I32


def machine_code(function: KernelFunction, purpose: str, type: ir.FunctionType, code: bytes, stack_nbytes: int) -> ir.Function:
    """The local function of this purpose, made of `code` on first use. stack_nbytes: what it takes of the stack, a multiple of 4."""

    def build(made: ir.Function) -> None:
        words = [int.from_bytes(code[at : at + 2], "little") for at in range(0, len(code), 2)]
        data = ", ".join(f"i16 {word - (word >> 15 << 16)}" for word in words)
        string_attribute(made, f"prologue [{len(words)} x i16] [{data}]")  # the last in LLVM's order, and in the alphabet's
        builder = ir.IRBuilder(made.append_basic_block("unreached"))
        if stack_nbytes:
            builder.alloca(ir.ArrayType(I32, stack_nbytes // 4))
        builder.unreachable()

    return function.helper(purpose, type, build)
