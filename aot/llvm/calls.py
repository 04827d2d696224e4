"""Calls of the firmware's C functions: `int function(const aot_custom_call *call)`, whose structs the kernel fills on its stack.

Enters: a KernelFunction of a `Call` with `Arguments`. Leaves: its body, which returns what the function returns.
Invariant: the structs are those of `aot/templates/aot_custom.h`; dims and options are constants, nothing else is kept anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from llvmlite import ir

from aot.errors import CompileError, InternalError
from aot.graph.ir import DType
from aot.graph.primitive import Argument, Arguments, Call
from aot.llvm.constants import offset_pointer
from aot.llvm.routines import table
from aot.llvm.types import I8, I32, POINTER, Value
from aot.lower.program import Buffer

if TYPE_CHECKING:
    from aot.graph.ir import Shape
    from aot.graph.primitive import Primitive
    from aot.llvm.emission import KernelFunction
    from aot.target import Target

TYPE_CODES = {
    DType.FLOAT32: 0,
    DType.FLOAT16: 1,
    DType.INT32: 2,
    DType.UINT8: 3,
    DType.INT64: 4,
    DType.BOOL: 6,
    DType.INT16: 7,
    DType.INT8: 9,
    DType.FLOAT64: 10,
    DType.UINT64: 12,
    DType.UINT32: 15,
    DType.UINT16: 16,
}
"""TensorType of TFLite's schema.fbs."""
_OPTIONS = "custom.options"
_OPTIONS_ALIGN = 8


def require_foreign(functions: Iterable[str], name: str, target: Target) -> None:
    """CompileError for a function whose name the object of the bundle `name` may give to one of its own."""
    for function in functions:
        if name.lower() == "aot_custom":
            raise CompileError(f"a bundle with functions of the firmware can't be called '{name}'", hint="--name gives it another")
        if function.lower().startswith(f"{name.lower()}_"):
            hint = "give the function another name, or the bundle with --name"
            raise CompileError(f"the names that begin with '{name}_', such as '{function}', are the bundle's own", hint=hint)
        if function in table(target.pointer_bits):
            raise CompileError(f"'{function}' is a routine of the compiler", hint="give the function another name")


def arguments_of(instruction: Primitive) -> Arguments | None:
    """What the firmware's function is told; None for an instruction that calls none."""
    return instruction.attributes if isinstance(instruction, Call) and isinstance(instruction.attributes, Arguments) else None


def called(instruction: Primitive) -> set[str]:
    """The C functions that an instruction calls: one, the firmware's or a library's, or none."""
    return {instruction.kernel} if isinstance(instruction, Call) else set()


def call_constants(arguments: Arguments) -> tuple[Buffer, ...]:
    """The dims of every tensor and the options, as constants."""
    shapes = dict.fromkeys(each.shape for each in (*arguments.inputs, *arguments.outputs) if each is not None and each.shape)
    found = [Buffer(_dims(shape), DType.INT32, (len(shape),), "constant", data=np.array(shape, np.int32)) for shape in shapes]
    if arguments.options:
        data = np.frombuffer(arguments.options, np.uint8)
        found.append(Buffer(_OPTIONS, DType.UINT8, data.shape, "constant", data=data, align=_OPTIONS_ALIGN))
    return tuple(found)


def _dims(shape: Shape) -> str:
    return f"custom.dims.{'x'.join(map(str, shape))}"


def emit_call(function: KernelFunction) -> None:
    """Fill the structs, call the function, return its result."""
    call = function.implementation.instruction
    arguments = arguments_of(call)
    if arguments is None or not isinstance(call, Call):
        raise InternalError(f"{function.implementation.kernel} calls no function of the firmware")
    writer = _Structs(function)
    inputs, outputs = writer.tensors(arguments.inputs, call.ins), writer.tensors(arguments.outputs, call.outs)
    options = function.pointer(_OPTIONS) if arguments.options else _null()
    counts = [I32(len(arguments.inputs)), I32(len(arguments.outputs)), I32(len(arguments.options))]
    record = writer.block(writer.nbytes(3, 3))
    writer.fill(record, [inputs, outputs, options], counts)
    function.builder.ret(function.builder.call(_declared(function.module, call.kernel), [record]))


def _declared(module: ir.Module, name: str) -> ir.Function:
    """The firmware's function, declared on first use."""
    if name not in module.globals:
        ir.Function(module, ir.FunctionType(I32, [POINTER]), name).attributes.add("nounwind")
    return module.globals[name]


def _null() -> Value:
    return ir.Constant(POINTER, None)


class _Structs:
    """Structs on the stack: pointers first, then fields of 4 bytes, so that no compiler pads between them."""

    def __init__(self, function: KernelFunction) -> None:
        self.function, self.builder = function, function.builder
        self.pointer_nbytes = function.target.pointer_bits // 8

    def nbytes(self, pointers: int, words: int) -> int:
        """The size of a struct: a multiple of its alignment, a pointer's."""
        return -(-(pointers * self.pointer_nbytes + 4 * words) // self.pointer_nbytes) * self.pointer_nbytes

    def block(self, nbytes: int) -> Value:
        """Bytes on the stack, aligned for pointers."""
        block = self.builder.alloca(ir.ArrayType(I8, nbytes))
        block.align, block.type = self.pointer_nbytes, POINTER  # llvmlite's alloca still has a typed pointer
        return block

    def fill(self, start: Value, pointers: Sequence[Value], words: Sequence[Value]) -> None:
        """Store a struct at `start`."""
        for number, value in enumerate(pointers):
            place = offset_pointer(self.builder, start, number * self.pointer_nbytes)
            self.builder.store(value, place, align=self.pointer_nbytes)
        for number, value in enumerate(words):
            place = offset_pointer(self.builder, start, len(pointers) * self.pointer_nbytes + 4 * number)
            self.builder.store(value, place, align=4)

    def tensors(self, arguments: Sequence[Argument | None], names: Sequence[str]) -> Value:
        """An array of `aot_custom_tensor`, one for each argument; null for none."""
        if not arguments:
            return _null()
        size = self.nbytes(2, 5)
        array = self.block(size * len(arguments))
        for number, argument in enumerate(arguments):
            pointers, words = self.tensor(argument, names)
            self.fill(offset_pointer(self.builder, array, number * size), pointers, words)
        return array

    def tensor(self, argument: Argument | None, names: Sequence[str]) -> tuple[list[Value], list[Value]]:
        """The fields of one tensor: data, dims; nbytes, rank, type, scale, zero_point. An absent one is all 0."""
        if argument is None:
            return [_null(), _null()], [I32(0)] * 5
        name = names[argument.position]
        data = self.function.pointer(name)
        dims = self.function.pointer(_dims(argument.shape)) if argument.shape else _null()
        scale = I32(int(np.float32(argument.scale).view(np.int32)))
        code = TYPE_CODES[argument.dtype]
        nbytes = self.function.buffer(name).nbytes
        return [data, dims], [I32(nbytes), I32(len(argument.shape)), I32(code), scale, I32(argument.zero_point)]
