"""The scalar expression language: what one element is, as a small typed tree of loads and arithmetic.

Enters: nothing. Leaves: immutable expressions. One evaluator gives their numpy meaning (`evaluate.py`), one emitter their LLVM code.
Invariant: every expression knows its dtype; both sides of a `Binary` have the same one; integers wrap (two's complement).

Axes: a primitive iterates over `space` (axes 0..len(space)-1: the output) and, for reductions, `window` (the axes after those).
Sub-expressions may be shared (the tree is a DAG): walkers memoise by `id`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from typing import Any

from aot.errors import InternalError
from aot.graph.ir import DType


@dataclass(frozen=True)
class Affine:
    """An index: the sum of coefficient * axis, plus `offset`. `terms` is sorted by axis, without zero coefficients."""

    terms: tuple[tuple[int, int], ...] = ()
    offset: int = 0

    def __str__(self) -> str:
        parts = [f"i{axis}" if coefficient == 1 else f"{coefficient}*i{axis}" for axis, coefficient in self.terms]
        return " + ".join([*parts, str(self.offset)] if self.offset or not parts else parts)


@dataclass(frozen=True)
class Table:
    """An index looked up at compile-time: `entries[axis]`."""

    axis: int
    entries: tuple[int, ...]

    def __str__(self) -> str:
        return f"table{len(self.entries)}[i{self.axis}]"


IndexMap = Affine | Table


def axis(number: int, coefficient: int = 1, offset: int = 0) -> Affine:
    """coefficient * axis + offset."""
    return Affine(((number, coefficient),) if coefficient else (), offset)


def affine(terms: dict[int, int], offset: int = 0) -> Affine:
    """The affine index with these coefficients, in normal form."""
    return Affine(tuple(sorted((number, c) for number, c in terms.items() if c)), offset)


def fixed(position: int) -> Affine:
    """A constant index."""
    return Affine((), position)


@dataclass(frozen=True)
class Const:
    """A number of a dtype."""

    value: int | float | bool
    dtype: DType


@dataclass(frozen=True)
class Axis:
    """The value of an iteration axis, as int32."""

    axis: int
    dtype: DType = DType.INT32


@dataclass(frozen=True)
class Load:
    """An element of `buffer`; `fill` is its value where an index lies outside the buffer (None: it never does)."""

    buffer: str
    index: tuple[IndexMap, ...]
    dtype: DType
    fill: Const | None = None


@dataclass(frozen=True)
class Lookup:
    """The element of `buffer` (of any rank, constant or not) at a computed flat row-major int32 `index`, which is always inside."""

    buffer: str
    index: Expr
    dtype: DType


@dataclass(frozen=True)
class Acc:
    """What a reduction accumulated; only in its `result`."""

    dtype: DType


UNARY = ("neg", "abs", "not", "clz", "sqrt", "floor", "ceil", "rint", "trunc")
"""clz: leading zeros of an int32 (32 for 0). floor, ceil, rint (half to even), trunc, sqrt: float only. not: bool, or bitwise."""
ARITHMETIC = ("add", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor", "shl", "shr", "ushr")
"""div, rem: towards zero (C). shr: arithmetic, ushr: logical; a shift count is in [0, bits). min, max: as `a < b ? a : b`."""
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")


@dataclass(frozen=True)
class Unary:
    op: str
    x: Expr

    @cached_property
    def dtype(self) -> DType:
        return self.x.dtype


@dataclass(frozen=True)
class Binary:
    op: str
    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        if self.a.dtype is not self.b.dtype:
            raise InternalError(f"{self.op} of {self.a.dtype} and {self.b.dtype}")

    @cached_property
    def dtype(self) -> DType:
        return DType.BOOL if self.op in COMPARE else self.a.dtype


@dataclass(frozen=True)
class Select:
    """`yes` where `condition`, else `no`; both are evaluated."""

    condition: Expr
    yes: Expr
    no: Expr

    @cached_property
    def dtype(self) -> DType:
        return self.yes.dtype


@dataclass(frozen=True)
class Cast:
    """Conversion: integers wrap or extend, float to integer truncates (the value fits), integer to float rounds to nearest."""

    x: Expr
    dtype: DType


@dataclass(frozen=True)
class Bitcast:
    """The same bits as another type of the same width (int32 <-> float32)."""

    x: Expr
    dtype: DType


@dataclass(frozen=True)
class Requantise:
    """TFLite's MultiplyByQuantizedMultiplier with double rounding (TFLite Micro's reference; gemmlowp).

    `x`: int32. `multiplier`: int32, Q0.31, >= 0. `shift`: int32, positive is left. The result is int32:
    SRDHM(x * 2^max(shift,0) with int32 wrap, multiplier), then RoundingDivideByPOT by max(-shift, 0) (half away from zero).
    """

    x: Expr
    multiplier: Expr
    shift: Expr
    dtype: DType = DType.INT32


Expr = Const | Axis | Load | Lookup | Acc | Unary | Binary | Select | Cast | Bitcast | Requantise


@cache
def _operands(kind: type) -> tuple[str, ...]:
    """Names of the fields that may hold sub-expressions."""
    return () if kind is Load else tuple(f.name for f in fields(kind))


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct sub-expressions, in field order."""
    return tuple(value for name in _operands(type(expr)) if isinstance(value := getattr(expr, name), Expr))


def walk(*roots: Expr) -> Iterator[Expr]:
    """Every sub-expression once (by identity), operands before users."""
    seen: set[int] = set()
    waiting: list[tuple[Expr, bool]] = [(root, False) for root in reversed(roots)]
    while waiting:
        expr, visited = waiting.pop()
        if visited:
            yield expr
        elif id(expr) not in seen:
            seen.add(id(expr))
            waiting.append((expr, True))
            waiting += [(child, False) for child in reversed(children(expr))]


def rewrite(expr: Expr, rule: Callable[[Expr], Expr | None]) -> Expr:
    """`expr` rebuilt bottom-up; `rule` sees each sub-expression and answers with its replacement, or None to keep it."""
    done: dict[int, Expr] = {}

    def visit(node: Expr) -> Expr:
        if id(node) not in done:
            changed: dict[str, Any] = {}
            for name in _operands(type(node)):
                child = getattr(node, name)
                if isinstance(child, Expr):
                    new = visit(child)
                    if new is not child:
                        changed[name] = new
            built = replace(node, **changed) if changed else node
            answer = rule(built)
            done[id(node)] = built if answer is None else answer
        return done[id(node)]

    return visit(expr)


def loads(*roots: Expr) -> tuple[Load, ...]:
    """Every distinct `Load` under these expressions, in order."""
    return tuple(dict.fromkeys(expr for expr in walk(*roots) if isinstance(expr, Load)))


def buffers_read(*roots: Expr) -> tuple[str, ...]:
    """Names of the buffers that loads and lookups read, each once, in order."""
    return tuple(dict.fromkeys(expr.buffer for expr in walk(*roots) if isinstance(expr, Load | Lookup)))


# Short forms for writing expressions.


def integer(value: int, dtype: DType = DType.INT32) -> Const:
    return Const(int(value), dtype)


def real(value: float) -> Const:
    """A float32 constant (rounded to float32 by whoever evaluates it)."""
    return Const(float(value), DType.FLOAT32)


def add(a: Expr, b: Expr) -> Expr:
    return Binary("add", a, b)


def sub(a: Expr, b: Expr) -> Expr:
    return Binary("sub", a, b)


def mul(a: Expr, b: Expr) -> Expr:
    return Binary("mul", a, b)


def clamp(x: Expr, low: int | float, high: int | float) -> Expr:
    """min(max(x, low), high)."""
    return Binary("min", Binary("max", x, Const(low, x.dtype)), Const(high, x.dtype))


def cast(x: Expr, dtype: DType) -> Expr:
    return x if x.dtype is dtype else Cast(x, dtype)


def text(expr: Expr) -> str:
    """One line, stable: for dumps and golden tests. What is used more than once is named where it first stands: `(x1 = ...)`, then `x1`."""
    uses: dict[int, int] = {}
    for user in walk(expr):
        for child in children(user):
            uses[id(child)] = uses.get(id(child), 0) + 1
    names: dict[int, str] = {}

    def show(node: Expr) -> str:
        if id(node) in names:
            return names[id(node)]
        plain = _text(node, show)
        if uses.get(id(node), 0) < 2 or isinstance(node, Const | Axis | Load | Acc):
            return plain
        names[id(node)] = f"x{len(names) + 1}"
        return f"({names[id(node)]} = {plain})"

    return show(expr)


def _text(expr: Expr, show: Callable[[Expr], str]) -> str:
    match expr:
        case Const(value, dtype):
            return f"{value}" if dtype in (DType.INT32, DType.FLOAT32, DType.BOOL) else f"{value}:{dtype}"
        case Axis(number):
            return f"i{number}"
        case Load(buffer, index, _, fill):
            inside = ", ".join(map(str, index))
            return f"%{buffer}[{inside}]" if fill is None else f"%{buffer}[{inside} else {fill.value}]"
        case Lookup(buffer, index):
            return f"%{buffer}[{show(index)}]"
        case Acc():
            return "acc"
        case Cast(x, dtype):
            return f"{dtype}({show(x)})"
        case Bitcast(x, dtype):
            return f"bits_{dtype}({show(x)})"
        case Requantise():
            return f"requantise({show(expr.x)}, {show(expr.multiplier)}, {show(expr.shift)})"
        case Unary(op, x):
            return f"{op}({show(x)})"
        case Binary(op, a, b):
            return f"{op}({show(a)}, {show(b)})"
        case Select(condition, yes, no):
            return f"select({show(condition)}, {show(yes)}, {show(no)})"
