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

from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32
from aot.llvm.volatile import volatile_store


class _Given(ir.Function):
    """A function with prologue data, which LLVM's text has behind attributes and section."""

    prologue: bytes = b""

    def descr_prototype(self, buf: list[str]) -> None:
        super().descr_prototype(buf)
        words = [int.from_bytes(self.prologue[at : at + 2], "little") for at in range(0, len(self.prologue), 2)]
        data = ", ".join(f"i16 {word - (word >> 15 << 16)}" for word in words)
        buf[-1] = f"{buf[-1].rstrip()} prologue [{len(words)} x i16] [{data}]\n"


def machine_code(function: KernelFunction, purpose: str, type: ir.FunctionType, code: bytes, stack_nbytes: int) -> ir.Function:
    """The local function of this purpose, made of `code` on first use. stack_nbytes: what it takes of the stack, a multiple of 4."""

    def build(made: ir.Function) -> None:
        assert isinstance(made, _Given)
        made.prologue = code
        builder = ir.IRBuilder(made.append_basic_block("unreached"))
        if stack_nbytes:
            slot = builder.alloca(ir.ArrayType(I32, stack_nbytes // 4))
            volatile_store(builder, I32(0), slot, 4)  # keeps the slot in the frame
        builder.unreachable()

    return function.helper(purpose, type, build, _Given)
