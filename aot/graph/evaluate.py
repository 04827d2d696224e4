"""The numpy meaning of expressions and primitives: slow, exact, the yardstick of every emitter.

Enters: primitives and an environment of arrays by buffer name. Leaves: the arrays they write.
Invariant: integers wrap in two's complement; float32 operations round after each operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence

import numpy as np

from aot.errors import InternalError
from aot.graph.expr import (
    Acc,
    Affine,
    Axis,
    Binary,
    Bitcast,
    Cast,
    Const,
    Expr,
    IndexMap,
    Load,
    Lookup,
    Requantise,
    Select,
    Unary,
    loads,
)
from aot.graph.ir import Shape
from aot.graph.primitive import Call, Contract, Control, Map, Primitive, Reduce, describe, store_of

Arrays = Mapping[str, np.ndarray]

_BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "min": lambda a, b: np.where(a < b, a, b),
    "max": lambda a, b: np.where(a < b, b, a),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "neg": np.negative,
    "abs": np.abs,
    "not": np.invert,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "rint": np.rint,
    "trunc": np.trunc,
}


def requantise(x: np.ndarray, multiplier: np.ndarray | int, shift: np.ndarray | int) -> np.ndarray:
    """int32 arrays -> int32: TFLite's MultiplyByQuantizedMultiplier, double rounding.

    Source: tflite-micro, tensorflow/lite/kernels/internal/common.cc, and gemmlowp's SaturatingRoundingDoublingHighMul.
    """
    shift = np.asarray(shift, np.int64)
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    shifted = (np.asarray(x, np.int64) << left).astype(np.int32).astype(np.int64)
    multiplier = np.asarray(multiplier, np.int64)
    product = shifted * multiplier
    nudge = np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    high = np.where((product + nudge) >= 0, (product + nudge) >> 31, -((-(product + nudge)) >> 31))
    high = np.where((shifted == -(1 << 31)) & (multiplier == -(1 << 31)), (1 << 31) - 1, high)
    mask = (np.int64(1) << right) - 1
    remainder = high & mask
    threshold = (mask >> 1) + (high < 0)
    return ((high >> right) + (remainder > threshold)).astype(np.int32)


def _divide(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return a / b if op == "div" else np.fmod(a, b)
    quotient = _integer_quotient(a, b)
    return quotient if op == "div" else a - quotient * b


def _integer_quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    safe = np.where(b == 0, 1, b)
    floor = a // safe
    return floor + ((a % safe != 0) & ((a < 0) != (safe < 0)))


def _clz(x: np.ndarray) -> np.ndarray:
    unsigned = np.asarray(x).astype(np.uint32)
    bits = np.zeros(unsigned.shape, np.int32)
    for shift in (16, 8, 4, 2, 1):
        upper = (unsigned >> np.uint32(shift)) != 0
        bits += np.where(upper, shift, 0).astype(np.int32)
        unsigned = np.where(upper, unsigned >> np.uint32(shift), unsigned)
    return np.where(unsigned == 0, 32, 31 - bits).astype(np.int32)


class _Evaluation:
    """Evaluates expressions over a whole iteration space at once; results broadcast to `space`."""

    def __init__(self, arrays: Arrays, space: Shape) -> None:
        self.arrays, self.space = arrays, space
        self.done: dict[int, np.ndarray] = {}
        self.keep: list[Expr] = []  # ids stay valid while their expressions live
        self.acc: np.ndarray | None = None

    def index(self, index: IndexMap) -> np.ndarray:
        """The index map over the space, in broadcastable form."""
        rank = len(self.space)
        if isinstance(index, Affine):
            total = np.full((1,) * rank, index.offset, np.int64)
            for number, coefficient in index.terms:
                total = total + coefficient * self.axis(number)
            return total
        return np.asarray(index.entries, np.int64)[self.axis(index.axis)]

    def axis(self, number: int) -> np.ndarray:
        shape = [1] * len(self.space)
        shape[number] = self.space[number]
        return np.arange(self.space[number], dtype=np.int64).reshape(shape)

    def load(self, load: Load) -> np.ndarray:
        array = self.arrays[load.buffer]
        if len(load.index) != array.ndim:
            raise InternalError(f"load of %{load.buffer}: {len(load.index)} indices for shape {array.shape}")
        if not load.index:
            return array.reshape((1,) * len(self.space))
        alone = tuple(self.index(index) for index in load.index)
        if all(index.min() >= 0 and index.max() < size for index, size in zip(alone, array.shape, strict=True)):
            return array[alone]
        indices = np.broadcast_arrays(*alone)
        outside = np.zeros(indices[0].shape, bool)
        for position, size in zip(indices, array.shape, strict=True):
            outside |= (position < 0) | (position >= size)
        if outside.any():
            if load.fill is None:
                raise InternalError(f"load of %{load.buffer} outside its shape {array.shape}")
            inside = [np.clip(position, 0, max(size - 1, 0)) for position, size in zip(indices, array.shape, strict=True)]
            fill = np.asarray(load.fill.value, array.dtype)
            return np.where(outside, fill, array[tuple(inside)]) if array.size else np.full(outside.shape, fill)
        return array[tuple(indices)]

    def lookup(self, buffer: str, index: np.ndarray) -> np.ndarray:
        array = self.arrays[buffer].reshape(-1)
        if index.size and not (index.min() >= 0 and index.max() < array.size):
            raise InternalError(f"lookup in %{buffer} outside its {array.size} elements")
        return array[index]

    def __call__(self, expr: Expr) -> np.ndarray:
        if id(expr) not in self.done:
            with np.errstate(all="ignore"):
                self.done[id(expr)] = np.asarray(self.compute(expr)).astype(expr.dtype.np)
            self.keep.append(expr)
        return self.done[id(expr)]

    def compute(self, expr: Expr) -> np.ndarray:
        match expr:
            case Const(value, dtype):
                return np.full((1,) * len(self.space), value, dtype.np)
            case Axis(number):
                return self.axis(number)
            case Load():
                return self.load(expr)
            case Lookup(buffer, index):
                return self.lookup(buffer, self(index))
            case Acc():
                if self.acc is None:
                    raise InternalError("acc outside the result of a reduction")
                return self.acc
            case Cast(x, dtype):
                return self(x) != 0 if dtype.value == "bool" else self(x).astype(dtype.np)
            case Bitcast(x, dtype):
                return np.ascontiguousarray(self(x)).view(dtype.np)
            case Requantise(x, multiplier, shift):
                return requantise(self(x), self(multiplier), self(shift))
            case Select(condition, yes, no):
                return np.where(self(condition), self(yes), self(no))
            case Unary("clz", x):
                return _clz(self(x))
            case Unary(op, x):
                return _UNARY[op](self(x))
            case Binary(("div" | "rem") as op, a, b):
                return _divide(op, self(a), self(b))
            case Binary("ushr", a, b):
                unsigned = self(a).view(np.dtype(f"uint{8 * self(a).itemsize}"))
                return (unsigned >> self(b).astype(unsigned.dtype)).view(self(a).dtype)
            case Binary(op, a, b):
                return _BINARY[op](self(a), self(b))


def _store(out: np.ndarray, store: tuple[IndexMap, ...], space: Shape, value: np.ndarray) -> None:
    evaluation = _Evaluation({}, space)
    if out.ndim == 0:
        out[...] = value.reshape(())
        return
    indices = np.broadcast_arrays(*(evaluation.index(index) for index in store), np.empty(space, np.int8))[:-1]
    out[tuple(indices)] = np.broadcast_to(value, space)


_AT_ONCE = 1 << 15
"""Terms of a reduction that are computed at once, of as many positions of the window as that makes."""


def _reduce(primitive: Reduce | Contract, arrays: Arrays) -> np.ndarray:
    """The result over the output space. Walks the window by a few positions at a time: little memory, float sums in loop order."""
    space, window = primitive.space, primitive.window or (1,)
    acc = np.broadcast_to(_Evaluation(arrays, space)(primitive.initial), space).copy()
    combine = "add" if isinstance(primitive, Contract) else primitive.combine
    count, step = math.prod(window), max(1, _AT_ONCE // math.prod(space))
    for start in range(0, count, step):
        positions = np.unravel_index(np.arange(start, min(start + step, count)), window)
        here = _Evaluation(arrays, (*space, len(positions[0])))
        here.axis = _pinned(here.axis, len(space), positions)  # type: ignore[method-assign]
        terms, outside = _terms(primitive, here, acc.dtype)
        for number in range(len(positions[0])):
            with np.errstate(all="ignore"):
                new = _BINARY[combine](acc, terms[..., number]).astype(acc.dtype)
            acc = new if outside is None else np.where(outside[..., number], acc, new)
    final = _Evaluation(arrays, space)
    final.acc = acc
    return final(primitive.result)


def _terms(primitive: Reduce | Contract, here: _Evaluation, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray | None]:
    """What is added (or else combined) at each position of the space and of the window, and where that is left out."""
    if isinstance(primitive, Contract):
        left = here(primitive.left).astype(dtype) - dtype.type(primitive.left_zero_point)
        right = here(primitive.right).astype(dtype) - dtype.type(primitive.right_zero_point)
        with np.errstate(all="ignore"):
            return np.broadcast_to(left * right, here.space), None
    outside = np.broadcast_to(_outside(here, primitive), here.space) if primitive.skip_fill else None
    return np.broadcast_to(here(primitive.term), here.space), outside


def _pinned(axis: Callable[[int], np.ndarray], rank: int, positions: Sequence[np.ndarray]) -> Callable[[int], np.ndarray]:
    """Axes of the space as they are; those of the window at these positions, which are the evaluation's last axis."""

    def pinned(number: int) -> np.ndarray:
        return axis(number) if number < rank else positions[number - rank].astype(np.int64).reshape((1,) * rank + (-1,))

    return pinned


def _outside(here: _Evaluation, primitive: Reduce) -> np.ndarray:
    """Where a load of the term falls outside its buffer."""
    outside = np.zeros((1,) * len(here.space), bool)
    for load in loads(primitive.term):
        if load.fill is not None:
            for index, size in zip(load.index, here.arrays[load.buffer].shape, strict=True):
                position = here.index(index)
                outside = outside | (position < 0) | (position >= size)
    return outside


def execute(primitive: Primitive, arrays: MutableMapping[str, np.ndarray]) -> None:
    """Run one primitive: reads from and writes into `arrays`, whose outputs must already exist (any content)."""
    if isinstance(primitive, Call | Control):
        raise InternalError(f"{describe(primitive)} has no numpy meaning of its own")
    if 0 in primitive.space:
        return
    value = _Evaluation(arrays, primitive.space)(primitive.value) if isinstance(primitive, Map) else _reduce(primitive, arrays)
    _store(arrays[primitive.out], store_of(primitive), primitive.space, value)
