"""Small graphs for tests of lowering: a builder, and toy operators whose only part is `lower`. Values are int8 unless stated.

Arithmetic wraps, so that a wrong element is very likely to change the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from aot.graph.expr import Acc, Affine, Axis, Const, Expr, Load, Table, add, affine, axis, cast, fixed, integer, mul
from aot.graph.ir import DType, Graph, Node, Shape, Site, Value
from aot.graph.operator import Lowering, Operator, load
from aot.graph.primitive import Contract, Geometry, Map, Primitive, Reduce, reads, writes
from aot.lower.build import build_program
from aot.lower.implementation import Choice, Implementation
from aot.lower.inplace import elementwise_overwrites
from aot.lower.program import Program

INT8, INT32 = DType.INT8, DType.INT32


def wide(expr: Expr) -> Expr:
    return cast(expr, INT32)


def narrow(expr: Expr) -> Expr:
    return cast(expr, INT8)


def lower_unary(site: Site, lowering: Lowering) -> None:
    """out = 3 * x + 1."""
    x = site.input(0)
    lowering.append(Map(site.output.name, x.shape, narrow(add(mul(wide(load(x)), integer(3)), integer(1)))))


def lower_add(site: Site, lowering: Lowering) -> None:
    """out = 2 * a + b; b may be the same value, or broadcast along dimensions of 1."""
    a, b = site.input(0), site.input(1)
    index = tuple(axis(number) if size != 1 else fixed(0) for number, size in enumerate(b.shape))
    lowering.append(Map(site.output.name, a.shape, narrow(add(mul(wide(load(a)), integer(2)), wide(load(b, index))))))


def lower_widen(site: Site, lowering: Lowering) -> None:
    """int8 -> int32."""
    lowering.append(Map(site.output.name, site.output.shape, wide(load(site.input(0)))))


def lower_narrow(site: Site, lowering: Lowering) -> None:
    """int32 -> int8."""
    lowering.append(Map(site.output.name, site.output.shape, narrow(load(site.input(0)))))


def lower_position(site: Site, lowering: Lowering) -> None:
    """out = x + position along the last axis."""
    x = site.input(0)
    lowering.append(Map(site.output.name, x.shape, narrow(add(wide(load(x)), Axis(len(x.shape) - 1)))))


def lower_pad(site: Site, lowering: Lowering) -> None:
    """attributes: (before and after of each axis, fill)."""
    before, _, fill = site.node.attributes  # type: ignore[misc]
    x = site.input(0)
    index = tuple(axis(number, 1, -amount) for number, amount in enumerate(before))
    lowering.append(Map(site.output.name, site.output.shape, load(x, index, Const(fill, x.dtype))))


def lower_slice(site: Site, lowering: Lowering) -> None:
    """attributes: (begin, step) of each axis; a step may be negative."""
    index = tuple(axis(number, step, begin) for number, (begin, step) in enumerate(site.node.attributes))  # type: ignore[arg-type]
    lowering.append(Map(site.output.name, site.output.shape, load(site.input(0), index)))


def lower_transpose(site: Site, lowering: Lowering) -> None:
    """attributes: output axis k is input axis permutation[k]."""
    permutation: tuple[int, ...] = site.node.attributes  # type: ignore[assignment]
    index = tuple(axis(permutation.index(number)) for number in range(len(permutation)))
    lowering.append(Map(site.output.name, site.output.shape, load(site.input(0), index)))


def lower_gather(site: Site, lowering: Lowering) -> None:
    """attributes: (axis, positions)."""
    along, positions = site.node.attributes  # type: ignore[misc]
    x = site.input(0)
    index = tuple(Table(along, positions) if number == along else axis(number) for number in range(len(x.shape)))
    lowering.append(Map(site.output.name, site.output.shape, load(x, index)))


def lower_concat(site: Site, lowering: Lowering) -> None:
    """attributes: the axis. One copying Map an input."""
    at = 0
    for value in filter(None, site.inputs):
        store = tuple(axis(number, 1, at if number == site.node.attributes else 0) for number in range(len(value.shape)))
        lowering.append(Map(site.output.name, value.shape, load(value), store))
        at += value.shape[site.node.attributes]  # type: ignore[call-overload]


def lower_view(site: Site, lowering: Lowering) -> None:
    """A reshape: nothing to compute."""


@dataclass(frozen=True)
class Window:
    """Of a convolution or pool: kernel size, stride and padding of both spatial axes, and the input's zero point."""

    size: int
    stride: int = 1
    pad: int = 0
    zero_point: int = 0

    def geometry(self, kind: Literal["conv", "depthwise"], source: Shape, out: Shape, multiplier: int = 1) -> Geometry:
        sizes = {"kernel": (self.size,) * 2, "stride": (self.stride,) * 2, "pad_top": self.pad, "pad_left": self.pad}
        return Geometry(kind, source, out, multiplier=multiplier, **sizes)  # type: ignore[arg-type]


def _window_index(window: Window, y: int, x: int, ky: int, kx: int) -> tuple[Affine, Affine]:
    return affine({y: window.stride, ky: 1}, -window.pad), affine({x: window.stride, kx: 1}, -window.pad)


def lower_conv(site: Site, lowering: Lowering) -> None:
    """NHWC, weights OHWI made up from the shapes."""
    window: Window = site.node.attributes  # type: ignore[assignment]
    x, out = site.input(0), site.output
    weights = lowering.constant("weights", made_up((out.shape[3], window.size, window.size, x.shape[3])))
    bias = lowering.constant("bias", made_up((out.shape[3],)).astype(np.int32))
    rows, columns = _window_index(window, 1, 2, 4, 5)
    fill = Const(window.zero_point, INT8) if window.pad else None
    geometry = window.geometry("conv", x.shape, out.shape)
    lowering.append(
        Contract(
            out.name,
            out.shape,
            (window.size, window.size, x.shape[3]),
            load(x, (axis(0), rows, columns, axis(6)), fill),
            Load(weights, (axis(3), axis(4), axis(5), axis(6)), INT8),
            window.zero_point,
            0,
            Load(bias, (axis(3),), INT32),
            narrow(Acc(INT32)),
            geometry=geometry,
        )
    )


def lower_depthwise(site: Site, lowering: Lowering) -> None:
    """Space (N, H, W, C, M); output channel c * M + m."""
    window: Window = site.node.attributes  # type: ignore[assignment]
    x, out = site.input(0), site.output
    channels, multiplier = x.shape[3], out.shape[3] // x.shape[3]
    weights = lowering.constant("weights", made_up((1, window.size, window.size, out.shape[3])))
    rows, columns = _window_index(window, 1, 2, 5, 6)
    channel = affine({3: multiplier, 4: 1})
    fill = Const(window.zero_point, INT8) if window.pad else None
    geometry = window.geometry("depthwise", x.shape, out.shape, multiplier)
    lowering.append(
        Contract(
            out.name,
            (*out.shape[:3], channels, multiplier),
            (window.size, window.size),
            load(x, (axis(0), rows, columns, axis(3)), fill),
            Load(weights, (fixed(0), axis(5), axis(6), channel), INT8),
            window.zero_point,
            0,
            integer(5),
            narrow(Acc(INT32)),
            (axis(0), axis(1), axis(2), channel),
            geometry,
        )
    )


def lower_pool(site: Site, lowering: Lowering) -> None:
    """Maximum; padding is skipped."""
    window: Window = site.node.attributes  # type: ignore[assignment]
    x, out = site.input(0), site.output
    rows, columns = _window_index(window, 1, 2, 4, 5)
    term = load(x, (axis(0), rows, columns, axis(3)), Const(-128, INT8) if window.pad else None)
    lowering.append(
        Reduce(out.name, out.shape, (window.size, window.size), "max", Const(-128, INT8), term, Acc(INT8), skip_fill=True)
    )


def lower_sum(site: Site, lowering: Lowering) -> None:
    """Over rows and columns; out (N, 1, 1, C)."""
    x, out = site.input(0), site.output
    term = wide(load(x, (axis(0), axis(4), axis(5), axis(3))))
    lowering.append(Reduce(out.name, out.shape, x.shape[1:3], "add", integer(7), term, narrow(Acc(INT32))))


def made_up(shape: Shape) -> np.ndarray:
    """int8 content that differs from place to place."""
    return ((np.arange(int(np.prod(shape)), dtype=np.int64) * 37 + 11) % 251 - 125).astype(np.int8).reshape(shape)


def _operator(name: str, lower: Callable[[Site, Lowering], None]) -> Operator:
    return Operator(name, None, lambda options: None, lambda site: (), lambda site: None, lambda *arrays: (), lower)


_LOWERINGS = {name: value for name, value in list(globals().items()) if name.startswith("lower_")}
TOYS: dict[str, Operator] = {name.removeprefix("lower_").upper(): _operator(name, lower) for name, lower in _LOWERINGS.items()}


@dataclass
class GraphBuilder:
    """Builds a Graph node by node; each method answers with the new value's name."""

    values: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)

    def shape(self, name: str) -> Shape:
        return next(value.shape for value in self.values if value.name == name)

    def value(self, shape: Shape, dtype: DType = INT8, data: np.ndarray | None = None) -> str:
        name = f"t{len(self.values)}"
        self.values.append(Value(name, dtype, tuple(shape), data=data))
        return name

    def input(self, *shape: int) -> str:
        self.inputs.append(self.value(shape))
        return self.inputs[-1]

    def constant(self, *shape: int) -> str:
        return self.value(shape, data=made_up(shape))

    def node(self, op: str, *inputs: str, shape: Shape | None = None, attributes: object = None, dtype: DType = INT8) -> str:
        out = self.value(self.shape(inputs[0]) if shape is None else shape, dtype)
        self.nodes.append(Node(op, inputs, (out,), attributes, len(self.nodes)))
        return out

    def pad(self, x: str, before: tuple[int, ...], after: tuple[int, ...], fill: int = 0) -> str:
        shape = tuple(b + size + a for b, size, a in zip(before, self.shape(x), after))
        return self.node("PAD", x, shape=shape, attributes=(before, after, fill))

    def transpose(self, x: str, *permutation: int) -> str:
        return self.node("TRANSPOSE", x, shape=tuple(self.shape(x)[number] for number in permutation), attributes=permutation)

    def concat(self, along: int, *inputs: str) -> str:
        shape = list(self.shape(inputs[0]))
        shape[along] = sum(self.shape(name)[along] for name in inputs)
        return self.node("CONCAT", *inputs, shape=tuple(shape), attributes=along)

    def conv(
        self, x: str, channels: int, size: int = 1, stride: int = 1, pad: int = 0, zero_point: int = 0, op: str = "CONV"
    ) -> str:
        n, h, w, c = self.shape(x)
        height, width = ((side + 2 * pad - size) // stride + 1 for side in (h, w))
        out = {"CONV": channels, "DEPTHWISE": channels * c, "POOL": c}[op]
        return self.node(op, x, shape=(n, height, width, out), attributes=Window(size, stride, pad, zero_point))

    def depthwise(self, x: str, multiplier: int = 1, size: int = 3, pad: int = 1) -> str:
        return self.conv(x, multiplier, size, 1, pad, 3, "DEPTHWISE")

    def pool(self, x: str, size: int = 2, stride: int = 1, pad: int = 0) -> str:
        return self.conv(x, 0, size, stride, pad, 0, "POOL")

    def sum(self, x: str) -> str:
        n, _, _, c = self.shape(x)
        return self.node("SUM", x, shape=(n, 1, 1, c))

    def view(self, x: str, *shape: int) -> str:
        return self.node("VIEW", x, shape=shape)

    def graph(self, *outputs: str) -> Graph:
        graph = Graph("toy", tuple(self.values), tuple(self.nodes), tuple(self.inputs), outputs)
        graph.verify()
        return graph

    def program(self, *outputs: str) -> Program:
        return build_program(self.graph(*outputs), TOYS)


def random_inputs(program: Program, seed: int = 0) -> dict[str, np.ndarray]:
    """Full-range content for each input."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for name in program.inputs:
        dtype, shape = program[name].dtype, program[name].shape
        if dtype.is_float:
            arrays[name] = rng.standard_normal(shape).astype(dtype.np)
        else:
            arrays[name] = rng.integers(*dtype.limits, shape, dtype.np, endpoint=True)
    return arrays


def choices(program: Program, scratch: dict[int, int] | None = None, overwrites: bool = True) -> tuple[Choice, ...]:
    """A dummy implementation of each instruction, in place wherever its elements allow it. `scratch`: bytes by position."""
    return tuple(
        Choice(dummy(program, instruction, (scratch or {}).get(position, 0), overwrites))
        for position, instruction in enumerate(program.instructions)
    )


def dummy(program: Program, instruction: Primitive, scratch: int = 0, overwrites: bool = True) -> Implementation:
    return Implementation(
        kernel="dummy",
        instruction=instruction,
        reads=tuple(name for name in reads(instruction) if program[program.storage(name)].role != "constant"),
        writes=writes(instruction),
        constants=(),
        emit=lambda function: None,
        scratch_nbytes=scratch,
        overwrites=elementwise_overwrites(program, instruction) if overwrites else (),
    )
