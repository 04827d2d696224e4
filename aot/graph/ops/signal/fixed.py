"""Arithmetic of the FFTs, twice: on arrays and as expressions, so that a butterfly is written once.

Enters: numbers of an FFT's dtype (int16, int32, float32). Leaves: the same, as the fixed-point kissfft computes them.
Invariant: `Arrays` and `Expressions` are the same functions. A number of an int16 transform is an int32 whose low 16 bits count until
it is wrapped; `scale`, `turn` and `half` wrap what they are given where kissfft has stored it before.
Source: kissfft v130, _kiss_fft_guts.h, with TFLite Micro's patch (third_party/kissfft/kissfft.patch).
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np

from aot.graph.expr import Binary, Expr, IndexMap, Load, Unary, add, cast, integer, mul, real, sub
from aot.graph.expr import Cast as CastExpr
from aot.graph.ir import DType

Number = TypeVar("Number")
Pair = tuple[Number, Number]
"""Real and imaginary part."""
FRACTION_BITS = {DType.INT16: 15, DType.INT32: 31}


def largest(dtype: DType) -> int:
    """kissfft's 1.0: the largest number of the type."""
    return (1 << FRACTION_BITS[dtype]) - 1


class Algebra(Protocol[Number]):
    """What butterflies are made of."""

    dtype: DType

    def add(self, a: Number, b: Number) -> Number: ...

    def sub(self, a: Number, b: Number) -> Number: ...

    def negative(self, x: Number) -> Number: ...

    def wrap(self, x: Number) -> Number:
        """`x` as a variable of the transform's type holds it."""
        ...

    def scale(self, x: Number, factor: float) -> Number:
        """x * factor, where integers have `FRACTION_BITS` fractional bits: half up, rounded once."""
        ...

    def half(self, x: Number) -> Number:
        """x / 2 of a sum in C's int: integers are rounded down."""
        ...

    def turn(self, x: Pair[Number], by: Pair[Number]) -> Number:
        """x[0] * by[0] + x[1] * by[1], rounded once."""
        ...


def divide(algebra: Algebra[Number], x: Number, radix: int) -> Number:
    """What keeps fixed-point butterflies from overflowing: x / radix. Float transforms do without."""
    return x if algebra.dtype is DType.FLOAT32 else algebra.scale(x, largest(algebra.dtype) // radix)


class Arrays:
    """Arithmetic on arrays: int32 for the integer transforms, float32."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a + b

    def sub(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a - b

    def negative(self, x: np.ndarray) -> np.ndarray:
        return -x

    def wrap(self, x: np.ndarray) -> np.ndarray:
        return x.astype(np.int16).astype(np.int32) if self.dtype is DType.INT16 else x

    def scale(self, x: np.ndarray, factor: float) -> np.ndarray:
        if self.dtype is DType.FLOAT32:
            return x * np.float32(factor)
        return self._rounded(self.wrap(x).astype(np.int64) * int(factor))

    def half(self, x: np.ndarray) -> np.ndarray:
        return x * np.float32(0.5) if self.dtype is DType.FLOAT32 else x >> 1

    def turn(self, x: Pair[np.ndarray], by: Pair[np.ndarray]) -> np.ndarray:
        if self.dtype is DType.FLOAT32:
            return x[0] * by[0] + x[1] * by[1]
        parts = [self.wrap(part).astype(np.int64) * factor for part, factor in zip(x, by, strict=True)]
        return self._rounded(parts[0] + parts[1])

    def _rounded(self, product: np.ndarray) -> np.ndarray:
        bits = FRACTION_BITS[self.dtype]
        return ((product + (1 << (bits - 1))) >> bits).astype(np.int32)


class Expressions:
    """The same as expressions: int32 for the integer transforms (products of the int32 one in int64), float32."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self.product = {DType.INT16: DType.INT32, DType.INT32: DType.INT64, DType.FLOAT32: DType.FLOAT32}[dtype]

    def load(self, buffer: str, index: tuple[IndexMap, ...], fill: bool = False) -> Expr:
        """A number of a buffer of the transform's type; `fill`: 0 where the index is outside."""
        zero = real(0.0) if self.dtype is DType.FLOAT32 else integer(0, self.dtype)
        loaded = Load(buffer, index, self.dtype, zero if fill else None)
        return loaded if self.dtype is DType.FLOAT32 else cast(loaded, DType.INT32)

    def stored(self, x: Expr) -> Expr:
        """A number as an element of such a buffer."""
        return cast(x, self.dtype)

    def add(self, a: Expr, b: Expr) -> Expr:
        return add(a, b)

    def sub(self, a: Expr, b: Expr) -> Expr:
        return sub(a, b)

    def negative(self, x: Expr) -> Expr:
        return Unary("neg", x)

    def wrap(self, x: Expr) -> Expr:
        return cast(cast(x, DType.INT16), DType.INT32) if self.dtype is DType.INT16 and not _is_int16(x) else x

    def scale(self, x: Expr, factor: float) -> Expr:
        if self.dtype is DType.FLOAT32:
            return mul(x, real(factor))
        return self._rounded(mul(cast(self.wrap(x), self.product), integer(int(factor), self.product)))

    def half(self, x: Expr) -> Expr:
        return mul(x, real(0.5)) if self.dtype is DType.FLOAT32 else Binary("shr", x, integer(1))

    def turn(self, x: Pair[Expr], by: Pair[Expr]) -> Expr:
        parts = [mul(cast(self.wrap(part), self.product), cast(factor, self.product)) for part, factor in zip(x, by, strict=True)]
        return parts_sum if (parts_sum := add(*parts)).dtype is DType.FLOAT32 else self._rounded(parts_sum)

    def _rounded(self, product: Expr) -> Expr:
        bits = FRACTION_BITS[self.dtype]
        nudged = add(product, integer(1 << (bits - 1), self.product))
        return cast(Binary("shr", nudged, integer(bits, self.product)), DType.INT32)


def _is_int16(x: Expr) -> bool:
    return isinstance(x, CastExpr) and x.x.dtype is DType.INT16
