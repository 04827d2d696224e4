"""Bodies of kernels that layers alike share: one local function in the bundle for all layers that need the same code.

Enters: a kernel's function and a key that says all that its code depends on. Leaves: `Frame`, what a body works with.
Invariant: equal keys mean equal code: weights, tables and activations come in through pointers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Generic, Protocol, TypeVar

from llvmlite import ir

from aot.backends.cmsis_nn.dsp.ending import Output
from aot.backends.cmsis_nn.dsp.instructions import Dsp, Image
from aot.backends.cmsis_nn.operands import Layer
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, POINTER, Value


@dataclass(frozen=True)
class Frame:
    """A body under construction. image, target: the input and the output buffer's first byte; table: packed weights; y0, y1: output
    rows."""

    dsp: Dsp
    image: Image
    target: Value
    table: Value
    scratch: Value
    y0: Value
    y1: Value

    @property
    def source(self) -> Value:
        """The first byte of the input buffer, which lies in one piece."""
        assert self.image.offsets is None
        return self.image.base


class Planned(Protocol):
    """A kernel's decisions for a layer."""

    @property
    def layer(self) -> Layer: ...


Plan = TypeVar("Plan", bound=Planned)


class Body(Generic[Plan]):
    """What emits a layer's body: the frame and plan at hand."""

    def __init__(self, frame: Frame, plan: Plan) -> None:
        self.frame, self.plan, self.dsp = frame, plan, frame.dsp
        self.output = Output(self.dsp, plan.layer)

    def each_image(self, start: Value, image: Callable[[Value, Value, Value], None]) -> None:
        """`image(source, out, number)` for each image; `start`: `out` of the first; source: its first byte, or what rows' offsets count
        from."""
        layer, dsp = self.plan.layer, self.dsp
        images, in_step = layer.geometry.input[0], prod(layer.geometry.input[1:]) * layer.dtype.nbytes
        with dsp.repeat(images, [self.frame.image.base, start]) as carried:
            number = I32(0) if images == 1 else dsp.builder.sub(I32(images), carried.index)
            source, out = carried.values
            image(source, out, number)
            carried.next = (dsp.at(source, in_step), dsp.at(out, layer.out.image * self.output.nbytes))


def emit_body(function: KernelFunction, layer: Layer, table: str, body: Callable[[Frame], None], kind: str, key: object) -> None:
    """Emit a layer's kernel through `body`. `table`: the buffer of packed weights. Without a key (None) the body stands in the kernel's
    own function: what is fused behind it reads the function's other arguments."""
    source = layer.instruction.left.buffer
    image = Image.of(function, source, prod(layer.geometry.input[2:]) * function.buffer(source).dtype.nbytes)
    target, packed = function.pointer(layer.instruction.out), function.pointer(table)
    scratch = ir.Constant(POINTER, None) if function.scratch is None else function.scratch
    if key is None:
        body(Frame(Dsp(function), image, target, packed, scratch, function.y0, function.y1))
        return

    def build(shared: ir.Function) -> None:
        builder = ir.IRBuilder(shared.append_basic_block("entry"))
        *pointers, target, packed, scratch, y0, y1 = shared.args
        body(Frame(Dsp(function, builder), image.there(pointers), target, packed, scratch, y0, y1))
        builder.ret_void()

    type = ir.FunctionType(ir.VoidType(), [POINTER] * (3 + len(image.pointers)) + [I32, I32])
    shared = function.helper(f"{kind}_{digest((key, *image.code) if image.code else key)}", type, build)
    function.builder.call(shared, [*image.pointers, target, packed, scratch, function.y0, function.y1])


def digest(key: object) -> str:
    """A short name for a key made of numbers, strings and tuples."""
    return hashlib.sha256(repr(key).encode()).hexdigest()[:12]
