"""Primitives: the few instructions that operators lower to, as data.

Enters: expressions. Leaves: `Map`, `Reduce`, `Contract`, `Call` over named buffers. They state what is computed, not where bytes lie:
`aot/lower` fuses, schedules and places them; `evaluate.py` runs them in numpy; `aot/llvm` emits them; a back end's kernel claims them.
Invariant: a primitive writes only its outputs, every element that `store` reaches exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from aot.graph.expr import Affine, Expr, IndexMap, Load, Lookup, axis, buffers_read, loads, text, walk
from aot.graph.ir import DType, Shape


class _Accesses:
    """What the expressions of a primitive read, found once: planning asks again for each row."""

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        """Every distinct load, in order."""
        return loads(*self._roots)

    @cached_property
    def lookups(self) -> tuple[Lookup, ...]:
        """Every distinct lookup, in order."""
        return tuple(dict.fromkeys(node for node in walk(*self._roots) if isinstance(node, Lookup)))

    @property
    def _roots(self) -> tuple[Expr, ...]:
        assert isinstance(self, Map | Reduce | Contract)
        return expressions(self)


@dataclass(frozen=True)
class Map(_Accesses):
    """out[store(i)] = value(i) for every i in `space`. Empty `store`: i itself (the space is the buffer's shape)."""

    out: str
    space: Shape
    value: Expr
    store: tuple[IndexMap, ...] = ()
    nodes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Reduce(_Accesses):
    """For every i in `space`: acc = initial(i); for every j in `window`: acc = combine(acc, term(i, j)); out[store(i)] = result(i, acc).

    `combine` is a name from expr.ARITHMETIC: add, min, max, mul, and, or.
    `skip_fill`: a term whose load falls outside its buffer does not change the accumulator (its fill is neutral), so an emitter may
    shorten the window at the borders instead of loading fills.
    """

    out: str
    space: Shape
    window: Shape
    combine: str
    initial: Expr
    term: Expr
    result: Expr
    store: tuple[IndexMap, ...] = ()
    skip_fill: bool = False
    nodes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Geometry:
    """What a convolution-like kernel needs to know beyond the index maps. Sizes in elements; NHWC.

    conv: input (N, H, W, Ci), weights OHWI (Co, KH, KW, Ci/groups), output (N, Ho, Wo, Co).
    depthwise: weights (1, KH, KW, Ci*multiplier), output channel c*multiplier + m.
    dense: input (N, 1, 1, Ci), weights (Co, 1, 1, Ci), output (N, 1, 1, Co); the buffers may have other shapes of the same size.
    """

    kind: Literal["conv", "depthwise", "dense"]
    input: tuple[int, int, int, int]
    output: tuple[int, int, int, int]
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    pad_top: int = 0
    pad_left: int = 0
    groups: int = 1
    multiplier: int = 1

    @property
    def macs(self) -> int:
        """Multiply-accumulates, borders counted as full."""
        per_output = self.kernel[0] * self.kernel[1] * (1 if self.kind == "depthwise" else self.input[3] // self.groups)
        n, h, w, c = self.output
        return n * h * w * c * per_output


@dataclass(frozen=True)
class Contract(_Accesses):
    """acc = initial(i) + sum over j in `window` of (left - left_zero_point) * (right - right_zero_point); out[store(i)] = result(i, acc).

    `left` is the activation, `right` the weights. `left.fill` is the zero point: padding adds nothing.
    The accumulator has `initial`'s dtype. `geometry` is None for contractions that no convolution kernel can claim.
    """

    out: str
    space: Shape
    window: Shape
    left: Load
    right: Load
    left_zero_point: int
    right_zero_point: int
    initial: Expr
    result: Expr
    store: tuple[IndexMap, ...] = ()
    geometry: Geometry | None = None
    nodes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Argument:
    """A tensor that a C function is told of: number `position` of the Call's `ins` or `outs`. Not quantised: scale 0."""

    position: int
    dtype: DType
    shape: Shape
    scale: float = 0.0
    zero_point: int = 0


@dataclass(frozen=True)
class Arguments:
    """What a C function is told (None: an absent input), and the operator of the model that it computes."""

    operator: str
    inputs: tuple[Argument | None, ...]
    outputs: tuple[Argument, ...]
    options: bytes = b""


@dataclass(frozen=True)
class Call:
    """An opaque kernel: `kernel` is its name, `attributes` its frozen arguments. Reads and writes whole buffers.

    With `Arguments` it is a C function of the firmware, which may fail: the run then ends at once.
    """

    kernel: str
    outs: tuple[str, ...]
    ins: tuple[str, ...]
    attributes: object = None
    scratch_nbytes: int = 0
    nodes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Control:
    """Where a part of the Program begins or ends that runs several times, or only sometimes. Parts nest; each has its `end`.

    repeat: what follows, up to its end, runs `count` times (0: until left). leave: ends the innermost repeat if `condition` is false.
    if: what follows runs if `condition` is true, else what stands between `else` and `end`. `condition`: a bool buffer of one element.
    """

    kind: Literal["repeat", "leave", "if", "else", "end"]
    condition: str | None = None
    count: int = 0
    nodes: tuple[int, ...] = ()


MAX_TURNS = 1_000_000
"""Turns of a loop after which the reference meanings (of the operator, of a Program) take it for endless."""

Loop = Map | Reduce | Contract
"""Primitives made of expressions over an iteration space."""
Primitive = Loop | Call | Control


def identity(rank: int) -> tuple[Affine, ...]:
    """The index map that reads or writes position i at i."""
    return tuple(axis(number) for number in range(rank))


def store_of(primitive: Map | Reduce | Contract) -> tuple[IndexMap, ...]:
    """The store index map, with the empty shorthand spelt out."""
    return primitive.store or identity(len(primitive.space))


def expressions(primitive: Primitive) -> tuple[Expr, ...]:
    """Every expression of a primitive."""
    match primitive:
        case Map():
            return (primitive.value,)
        case Reduce():
            return (primitive.initial, primitive.term, primitive.result)
        case Contract():
            return (primitive.left, primitive.right, primitive.initial, primitive.result)
        case Call() | Control():
            return ()


def reads(primitive: Primitive) -> tuple[str, ...]:
    """Buffers read, each once, in order."""
    match primitive:
        case Call():
            return primitive.ins
        case Control():
            return () if primitive.condition is None else (primitive.condition,)
        case _:
            return buffers_read(*expressions(primitive))


def writes(primitive: Primitive) -> tuple[str, ...]:
    match primitive:
        case Call():
            return primitive.outs
        case Control():
            return ()
        case _:
            return (primitive.out,)


def loads_of(primitive: Primitive) -> tuple[Load, ...]:
    return () if isinstance(primitive, Call | Control) else primitive.loads


def describe(primitive: Primitive) -> str:
    """One line, stable: for dumps, golden tests and error context."""
    if isinstance(primitive, Control):
        return " ".join(
            [primitive.kind, *([str(primitive.count)] if primitive.count else []), *("%" + name for name in reads(primitive))]
        )
    if isinstance(primitive, Call):
        reads_text = ", ".join("%" + name for name in primitive.ins)
        return f"{', '.join('%' + name for name in primitive.outs)} = call {primitive.kernel}({reads_text})"
    space = "x".join(map(str, primitive.space))
    store = f"[{', '.join(map(str, primitive.store))}]" if primitive.store else ""
    head = f"%{primitive.out}{store} = {type(primitive).__name__.lower()} {space}"
    if isinstance(primitive, Map):
        return f"{head}: {text(primitive.value)}"
    window = "x".join(map(str, primitive.window))
    if isinstance(primitive, Reduce):
        return f"{head} over {window}: {primitive.combine}({text(primitive.initial)}; {text(primitive.term)}) -> {text(primitive.result)}"
    left = f"({text(primitive.left)} - {primitive.left_zero_point})"
    right = f"({text(primitive.right)} - {primitive.right_zero_point})"
    kind = f" {primitive.geometry.kind}" if primitive.geometry else ""
    return f"{head}{kind} over {window}: sum({text(primitive.initial)}; {left} * {right}) -> {text(primitive.result)}"
