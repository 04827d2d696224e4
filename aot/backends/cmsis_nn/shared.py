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
from aot.backends.layers.operands import Layer
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, POINTER, Value


@dataclass(frozen=True)
class Frame:
    """A body under construction. image, out: the input and the output buffer; table: packed weights; y0, y1: output rows."""

    dsp: Dsp
    image: Image
    out: Image
    table: Value
    scratch: Value
    y0: Value
    y1: Value

    @property
    def source(self) -> Value:
        """The first byte of the input buffer, which lies in one piece."""
        assert self.image.offsets is None
        return self.image.base

    @property
    def target(self) -> Value:
        """The first byte of the output buffer; of a scattered one what its rows' offsets count from."""
        return self.out.base


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
    names = layer.instruction.left.buffer, layer.instruction.out
    elements = prod(layer.geometry.input[2:]), layer.out.row
    image, out = (Image.of(function, name, n * function.buffer(name).dtype.nbytes) for name, n in zip(names, elements, strict=True))
    packed = function.pointer(table)
    scratch = ir.Constant(POINTER, None) if function.scratch is None else function.scratch
    if key is None:
        body(Frame(Dsp(function), image, out, packed, scratch, function.y0, function.y1))
        return
    count = len(image.pointers)

    def build(shared: ir.Function) -> None:
        builder = ir.IRBuilder(shared.append_basic_block("entry"))
        *pointers, packed, scratch, y0, y1 = shared.args
        body(Frame(Dsp(function, builder), image.there(pointers[:count]), out.there(pointers[count:]), packed, scratch, y0, y1))
        builder.ret_void()

    pointers = [*image.pointers, *out.pointers]
    type = ir.FunctionType(ir.VoidType(), [POINTER] * (2 + len(pointers)) + [I32, I32])
    found = (key, image.code, out.code) if image.code or out.code else key
    shared = function.helper(f"{kind}_{digest(found)}", type, build)
    function.builder.call(shared, [*pointers, packed, scratch, function.y0, function.y1])


def digest(key: object) -> str:
    """A short name for a key made of numbers, strings and tuples."""
    return hashlib.sha256(repr(key).encode()).hexdigest()[:12]
