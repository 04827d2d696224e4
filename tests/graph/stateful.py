"""Models with variables and sub-graphs, for tests.

Enters: what each sub-graph does, as functions that append to a builder. Leaves: .tflite bytes. Nothing is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from flatbuffers import flexbuffers

from tests.builder import ModelBuilder

Body = Callable[["Sub"], tuple[Sequence[int], Sequence[int]]]
"""Appends to a sub-graph; answers with the tensors that are its inputs and its outputs."""


class Sub:
    """The current sub-graph of a builder, with short names for what these tests write often."""

    def __init__(self, builder: ModelBuilder) -> None:
        self.m = builder
        self.handles: dict[str, int] = {}

    def value(self, shape: Sequence[int] = (1, 4), dtype: str = "float32", **fields) -> int:
        number = len(self.m.graphs[-1].tensors)
        return self.m.tensor(f"v{number}", shape, dtype, **fields)

    def constant(self, data: object, dtype: str = "float32", **fields) -> int:
        return self.m.constant(np.array(data, dtype), name=f"c{len(self.m.graphs[-1].tensors)}", **fields)

    def node(self, op: str, inputs: Sequence[int], out: int, options: Mapping[str, object] | None = None) -> int:
        self.m.operator(op, inputs, [out], {} if options is None else options)
        return out

    def like(self, tensor: int) -> int:
        """Another value of the same type."""
        spec = self.m.graphs[-1].tensors[tensor]
        return self.value(spec.shape or (), spec.dtype, scale=spec.scale, zero_point=spec.zero_point)

    def add(self, a: int, b: int) -> int:
        return self.node("ADD", [a, b], self.like(a))

    def handle(self, name: str = "state") -> int:
        if name not in self.handles:
            self.handles[name] = self.m.tensor(f"handle_{name}", (), "resource")
            self.m.operator("VAR_HANDLE", [], [self.handles[name]], {"container": "", "shared_name": name})
        return self.handles[name]

    def read(self, out: int | None = None, name: str = "state") -> int:
        out = self.value() if out is None else out
        self.m.operator("READ_VARIABLE", [self.handle(name)], [out], {})
        return out

    def assign(self, value: int, name: str = "state") -> None:
        self.m.operator("ASSIGN_VARIABLE", [self.handle(name), value], [], {})

    def call_once(self, number: int, inputs: Sequence[int] = (), outputs: Sequence[int] = ()) -> None:
        self.m.operator("CALL_ONCE", inputs, outputs, {"init_subgraph_index": number})

    def choose(self, condition: int, inputs: Sequence[int], outputs: Sequence[int], first: int, second: int) -> None:
        self.m.operator("IF", [condition, *inputs], outputs, {"then_subgraph_index": first, "else_subgraph_index": second})

    def loop(self, inputs: Sequence[int], outputs: Sequence[int], condition: int, body: int) -> None:
        self.m.operator("WHILE", inputs, outputs, {"cond_subgraph_index": condition, "body_subgraph_index": body})

    def composite(self, number: int, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        self.m.operator(
            "STABLEHLO_COMPOSITE",
            inputs,
            outputs,
            {"decomposition_subgraph_index": number, "name": "test.composite", "composite_attributes": flexbuffers.Dumps({})},
            table="StableHLOCompositeOptions",
        )


def model(*bodies: Body, signatures: Sequence[tuple[str, int]] = ()) -> bytes:
    """A file with these sub-graphs, in order; `signatures`: (key, sub-graph), with arguments x0, x1 ... and y0, y1 ..."""
    m = ModelBuilder()
    sides = []
    for number, body in enumerate(bodies):
        if number:
            m.end_subgraph(*sides[-1])
        sides.append(body(Sub(m)))
    for key, number in signatures:
        inputs, outputs = ({f"{letter}{k}": t for k, t in enumerate(side)} for letter, side in zip("xy", sides[number]))
        m.signature(key, inputs, outputs, number)
    return m.build(*sides[-1])


def adds(amount: float, dtype: str = "float32", shape: Sequence[int] = (1, 4)) -> Body:
    """y = x + amount."""

    def body(s: Sub) -> tuple[list[int], list[int]]:
        x = s.value(shape, dtype)
        return [x], [s.add(x, s.constant(amount, dtype))]

    return body


def nothing(shape: Sequence[int] = (1, 4), dtype: str = "float32") -> Body:
    """y = x, without a node."""

    def body(s: Sub) -> tuple[list[int], list[int]]:
        x = s.value(shape, dtype)
        return [x], [x]

    return body


def accumulator(s: Sub) -> tuple[list[int], list[int]]:
    """y = state + x; state := y."""
    x = s.value()
    y = s.add(s.read(), x)
    s.assign(y)
    return [x], [y]


def initialiser(*numbers: float, name: str = "state") -> Body:
    """state := numbers."""

    def body(s: Sub) -> tuple[list[int], list[int]]:
        s.assign(s.constant([numbers]), name)
        return [], []

    return body
