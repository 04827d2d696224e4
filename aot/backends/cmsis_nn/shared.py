"""Bodies of kernels that layers alike share: one local function in the bundle for all layers that need the same code.

Enters: a kernel's function and a key that says all that its code depends on. Leaves: `Frame`, what a body works with.
Invariant: equal keys mean equal code: weights, tables and activations come in through pointers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, POINTER, Value


@dataclass(frozen=True)
class Frame:
    """A body under construction. source, target: first bytes of input and output buffer; table: packed weights; y0, y1: output
    rows."""

    dsp: Dsp
    source: Value
    target: Value
    table: Value
    scratch: Value
    y0: Value
    y1: Value


def emit_body(function: KernelFunction, names: tuple[str, str, str], body: Callable[[Frame], None], kind: str, key: object) -> None:
    """Emit a kernel through `body`. `names`: input, output and table buffer. Without a key (None) the body stands in the kernel's
    own function: what is fused behind it reads the function's other arguments."""
    source, target, table = (function.pointer(name) for name in names)
    scratch = ir.Constant(POINTER, None) if function.scratch is None else function.scratch
    if key is None:
        body(Frame(Dsp(function), source, target, table, scratch, function.y0, function.y1))
        return

    def build(shared: ir.Function) -> None:
        builder = ir.IRBuilder(shared.append_basic_block("entry"))
        body(Frame(Dsp(function, builder), *shared.args))  # type: ignore[call-arg]
        builder.ret_void()

    type = ir.FunctionType(ir.VoidType(), [POINTER] * 4 + [I32, I32])
    shared = function.helper(f"{kind}_{digest(key)}", type, build)
    function.builder.call(shared, [source, target, table, scratch, function.y0, function.y1])


def digest(key: object) -> str:
    """A short name for a key made of numbers, strings and tuples."""
    return hashlib.sha256(repr(key).encode()).hexdigest()[:12]
