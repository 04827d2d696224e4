"""Vectors of four float32 of Advanced SIMD.

Enters: pointers, distances in bytes, LLVM vectors. Leaves: LLVM vectors.
Invariant: memory is touched only where the elements asked for lie.
"""

from __future__ import annotations

from llvmlite import ir

from aot.llvm.emission import KernelFunction
from aot.llvm.types import I8, I32, Builder, Value

LANES = 4
NBYTES = 4 * LANES
FLOAT = ir.FloatType()
FLOATS = ir.VectorType(FLOAT, LANES)


class Floats:
    """Emits at the function's builder."""

    def __init__(self, function: KernelFunction) -> None:
        self.function = function
        self.is_wide = function.target.triple.startswith(("aarch64", "arm64"))

    @property
    def builder(self) -> Builder:
        return self.function.builder

    def at(self, pointer: Value, nbytes: Value | int) -> Value:
        """The address so many bytes behind a pointer."""
        if isinstance(nbytes, int):
            if nbytes == 0:
                return pointer
            nbytes = I32(nbytes)
        return self.builder.gep(pointer, [nbytes], inbounds=True, source_etype=I8)

    def load(self, pointer: Value, nbytes: int = 0, count: int = LANES) -> Value:
        """`count` floats as the first lanes of a vector; the others are undefined."""
        if count >= LANES:
            return self.builder.load(self.at(pointer, nbytes), align=4, typ=FLOATS)
        vector: Value = ir.Constant(FLOATS, ir.Undefined)
        if count >= 2:
            pair = self.builder.load(self.at(pointer, nbytes), align=4, typ=ir.VectorType(FLOAT, 2))
            undefined = ir.Constant(pair.type, ir.Undefined)
            vector = self.builder.shuffle_vector(pair, undefined, ir.Constant(ir.VectorType(I32, 4), [0, 1, 2, 3]))
        if count % 2:
            single = self.builder.load(self.at(pointer, nbytes + 4 * (count - 1)), align=4, typ=FLOAT)
            vector = self.builder.insert_element(vector, single, I32(count - 1))
        return vector

    def store(self, vector: Value, pointer: Value, nbytes: int = 0, count: int = LANES) -> None:
        """The first `count` lanes."""
        if count >= LANES:
            self.builder.store(vector, self.at(pointer, nbytes), align=4)
            return
        if count >= 2:
            undefined = ir.Constant(FLOATS, ir.Undefined)
            pair = self.builder.shuffle_vector(vector, undefined, ir.Constant(ir.VectorType(I32, 2), [0, 1]))
            self.builder.store(pair, self.at(pointer, nbytes), align=4)
        if count % 2:
            single = self.builder.extract_element(vector, I32(count - 1))
            self.builder.store(single, self.at(pointer, nbytes + 4 * (count - 1)), align=4)

    def splat(self, pointer: Value, nbytes: int = 0) -> Value:
        """One float in all lanes."""
        return self.repeated(self.builder.load(self.at(pointer, nbytes), align=4, typ=FLOAT))

    def repeated(self, number: Value) -> Value:
        """A number of any type in all lanes."""
        undefined = ir.Constant(ir.VectorType(number.type, LANES), ir.Undefined)
        first = self.builder.insert_element(undefined, number, I32(0))
        return self.builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, LANES), [0] * LANES))

    def lane(self, vector: Value, number: int) -> Value:
        """One lane in all: free as the operand of a multiplication."""
        mask = ir.Constant(ir.VectorType(I32, LANES), [number] * LANES)
        return self.builder.shuffle_vector(vector, ir.Constant(FLOATS, ir.Undefined), mask)

    def multiply_add(self, sums: Value, a: Value, b: Value) -> Value:
        """sums + a * b: FMLA rounds once, VMLA of Armv7 twice."""
        if self.is_wide:
            return self._call("llvm.fma", a, b, sums)
        return self.builder.fadd(sums, self.builder.fmul(a, b))

    def larger(self, a: Value, b: Value) -> Value:
        """The larger of each pair; NaN where one is."""
        return self._call("llvm.maximum", a, b)

    def smaller(self, a: Value, b: Value) -> Value:
        return self._call("llvm.minimum", a, b)

    def larger_number(self, a: Value, b: Value) -> Value:
        """The larger of each pair; the other where one is NaN (but NaN on Armv7)."""
        return self._call("llvm.maxnum", a, b) if self.is_wide else self.larger(a, b)

    def smaller_number(self, a: Value, b: Value) -> Value:
        return self._call("llvm.minnum", a, b) if self.is_wide else self.smaller(a, b)

    def unary(self, op: str, x: Value) -> Value:
        """abs, sqrt; floor, ceil, rint, trunc not on Armv7."""
        return self._call({"abs": "llvm.fabs"}.get(op, f"llvm.{op}"), x)

    def _call(self, name: str, *operands: Value) -> Value:
        type = ir.FunctionType(FLOATS, [FLOATS] * len(operands))
        return self.builder.call(self.function.intrinsic(f"{name}.v{LANES}f32", type), operands)


def constant_floats(number: float) -> Value:
    """A number in all lanes."""
    return ir.Constant(FLOATS, [FLOAT(number)] * LANES)


def zipped(floats: Floats, vector: Value) -> list[Value]:
    """Two vectors that hold each lane twice."""
    undefined = ir.Constant(FLOATS, ir.Undefined)
    masks = [ir.Constant(ir.VectorType(I32, LANES), lanes) for lanes in ([0, 0, 1, 1], [2, 2, 3, 3])]
    return [floats.builder.shuffle_vector(vector, undefined, mask) for mask in masks]
