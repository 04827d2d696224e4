"""Graph: what is computed. Values with dtype, shape and quantisation; nodes in topological order.

Enters: nothing. Leaves: the immutable types `Value`, `Node`, `Graph`, `Model`, with `Graph.verify()` and `str(graph)`.
Invariant: every name a node reads is a graph input, a constant, a variable, or the output of an earlier node. Nodes are pure: what a
run leaves behind for the next one is said by `Graph.updates`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from aot.errors import CompileError, InternalError

if TYPE_CHECKING:
    from collections.abc import Mapping

Shape = tuple[int, ...]
_LONGEST_TITLE = 60


class DType(enum.Enum):
    """An element type. The value is TFLite's name for it, in lower case."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT64 = "float64"
    INT4 = "int4"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    BOOL = "bool"
    STRING = "string"
    COMPLEX64 = "complex64"
    COMPLEX128 = "complex128"
    RESOURCE = "resource"
    VARIANT = "variant"

    @property
    def is_float(self) -> bool:
        return self.value.startswith(("float", "bfloat"))

    @property
    def is_integer(self) -> bool:
        return self.value.startswith(("int", "uint"))

    @property
    def is_signed(self) -> bool:
        return self.value.startswith("int")

    @property
    def np(self) -> np.dtype:
        """The numpy dtype of one unpacked element (int4 is held as int8); TypeError for types without one."""
        return np.dtype({"int4": "int8"}.get(self.value, self.value))

    @property
    def nbytes(self) -> int:
        """Bytes of one unpacked element."""
        return self.np.itemsize

    @property
    def bits(self) -> int:
        return 4 if self is DType.INT4 else 1 if self is DType.BOOL else 8 * self.nbytes

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type."""
        if self is DType.INT4:
            return -8, 7
        info = np.iinfo(self.np)
        return int(info.min), int(info.max)

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Quantisation:
    """real = scale * (q - zero_point). One scale, or one for each index of `axis`."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int = 0

    @property
    def per_axis(self) -> bool:
        return len(self.scales) > 1

    @property
    def scale(self) -> float:
        """The single scale; the first one where there are several."""
        return self.scales[0]

    @property
    def zero_point(self) -> int:
        return self.zero_points[0]

    def __str__(self) -> str:
        if self.per_axis:
            return f"q({len(self.scales)} scales on axis {self.axis})"
        return f"q({self.scale:.9g}, {self.zero_point})"


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor. `name` is ours and unique in its graph; `label` is the model's own, untrusted text.

    A variable keeps its content from one run to the next; `initial` is what it holds before the first.
    """

    name: str
    dtype: DType
    shape: Shape
    quantisation: Quantisation | None = None
    data: np.ndarray | None = None
    label: str = ""
    is_variable: bool = False
    initial: np.ndarray | None = None

    def __post_init__(self) -> None:
        for data in (self.data, self.initial):
            if data is not None:
                if data.shape != self.shape:
                    raise InternalError(f"{self.name}: data of shape {data.shape} for a value of shape {self.shape}")
                data.flags.writeable = False

    @property
    def content(self) -> np.ndarray:
        """What a variable holds before the first run: `initial`, or else zeros, which for int8 are real ones (as in TFLite)."""
        if self.initial is not None:
            return self.initial
        real = self.dtype is DType.INT8 and self.quantisation and self.quantisation.zero_points
        zero = self.quantisation.zero_point if real and self.quantisation else 0
        return np.full(self.shape, zero, self.dtype.np)

    @property
    def title(self) -> str:
        """The label for messages, or else the name: of a label that joins fused names by `;` the last one, at most 60 characters."""
        title = self.label.rpartition(";")[2] or self.label or self.name
        return title if len(title) <= _LONGEST_TITLE else f"...{title[-_LONGEST_TITLE:]}"

    @property
    def is_constant(self) -> bool:
        return self.data is not None

    @property
    def size(self) -> int:
        """Elements."""
        return int(np.prod(self.shape, dtype=np.int64)) if self.shape else 1

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.nbytes

    def __str__(self) -> str:
        dims = "x".join(map(str, self.shape))
        kind = "const " if self.is_constant else "variable " if self.is_variable else ""
        quantisation = f" {self.quantisation}" if self.quantisation else ""
        return f"%{self.name}: {kind}{self.dtype}[{dims}]{quantisation}"


@dataclass(frozen=True)
class Node:
    """An operator applied to values. `index` is its number in the model file (of the node it came from, after rewriting).

    `graphs`: what the node runs, for operators with sub-graphs (the branches of an IF, condition and body of a WHILE).
    """

    op: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    attributes: object = None
    index: int = -1
    graphs: tuple[Graph, ...] = ()

    def __str__(self) -> str:
        reads = ", ".join("none" if name is None else f"%{name}" for name in self.inputs)
        attributes = "" if self.attributes is None else f" {self.attributes}"
        return f"{', '.join('%' + name for name in self.outputs)} = {self.op}({reads}){attributes}"


@dataclass(frozen=True)
class Graph:
    """One (sub)graph; `values` and `nodes` in topological order.

    `updates`: (variable, value) pairs: what each variable holds after a run. A node that reads a variable sees what it held before.
    """

    name: str
    values: tuple[Value, ...]
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    updates: tuple[tuple[str, str], ...] = ()

    @cached_property
    def results(self) -> tuple[str, ...]:
        """What the graph computes for others: its outputs and the new contents of its variables, each once."""
        return tuple(dict.fromkeys((*self.outputs, *(value for _, value in self.updates))))

    @cached_property
    def nesting(self) -> int:
        """Levels of graphs below this one."""
        return max((1 + graph.nesting for node in self.nodes for graph in node.graphs), default=0)

    @cached_property
    def weight(self) -> int:
        """Nodes, those of sub-graphs counted as often as a node runs them."""
        return sum(1 + sum(graph.weight for graph in node.graphs) for node in self.nodes)

    @cached_property
    def computed_nbytes(self) -> int:
        """Bytes of everything that nodes compute, in sub-graphs too, each turn of a loop counted once."""
        own = sum(self[name].nbytes for node in self.nodes for name in node.outputs)
        return own + sum(graph.computed_nbytes for node in self.nodes for graph in node.graphs)

    @cached_property
    def by_name(self) -> Mapping[str, Value]:
        return {value.name: value for value in self.values}

    def __getitem__(self, name: str) -> Value:
        return self.by_name[name]

    @cached_property
    def producers(self) -> Mapping[str, Node]:
        """The node that computes each computed value."""
        return {name: node for node in self.nodes for name in node.outputs}

    @cached_property
    def readers(self) -> Mapping[str, tuple[Node, ...]]:
        """The nodes that read each value, in order, once each. Graph outputs are not readers."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(filter(None, node.inputs)):
                found.setdefault(name, []).append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    def site(self, node: Node) -> Site:
        return Site(
            node, tuple(None if name is None else self[name] for name in node.inputs), tuple(self[name] for name in node.outputs)
        )

    def verify(self) -> None:
        """Raise InternalError if an invariant is broken (the reader has refused what a bad file can cause)."""
        if len(self.by_name) != len(self.values):
            raise InternalError(f"graph {self.name}: two values share a name")
        known = set(self.inputs) | {value.name for value in self.values if value.is_constant or value.is_variable}
        for node in self.nodes:
            for name in filter(None, node.inputs):
                if name not in known:
                    raise InternalError(f"graph {self.name}: node {node.index} {node.op} reads %{name} before it is written")
            for name in node.outputs:
                if name not in self.by_name or name in known:
                    raise InternalError(f"graph {self.name}: node {node.index} {node.op} writes %{name} twice, or it is unknown")
                known.add(name)
        for name in self.outputs:
            if name not in known:
                raise InternalError(f"graph {self.name}: output %{name} is never written")
        for variable, name in self.updates:
            if name not in known or not self[variable].is_variable or self[variable].nbytes != self[name].nbytes:
                raise InternalError(f"graph {self.name}: %{name} can't be the new content of %{variable}")

    def __str__(self) -> str:
        lines = [f"graph {self.name}({', '.join(str(self[name]) for name in self.inputs)})"]
        lines += [
            f"  {value}" for value in self.values if value.is_constant or (value.is_variable and value.name not in self.inputs)
        ]
        for node in self.nodes:
            lines.append(f"  {node}  # " + ", ".join(str(self[name]).partition(": ")[2] for name in node.outputs))
            lines += ["    " + line for graph in node.graphs for line in str(graph).splitlines()]
        lines += [f"  update %{name} := %{value}" for name, value in self.updates]
        lines.append("  return " + ", ".join(f"%{name}" for name in self.outputs))
        return "\n".join(lines)


@dataclass(frozen=True)
class Site:
    """A node with its values resolved: what an operator's rule, meaning and lowering get to see."""

    node: Node
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]

    def input(self, position: int) -> Value:
        """A required input; CompileError if it is absent."""
        value = self.optional(position)
        if value is None:
            raise self.error(f"input {position} is missing")
        return value

    def optional(self, position: int) -> Value | None:
        return self.inputs[position] if position < len(self.inputs) else None

    @property
    def output(self) -> Value:
        return self.outputs[0]

    @property
    def where(self) -> str:
        """`node 3 CONV_2D 'label of its output'`."""
        label = f" '{self.outputs[0].title}'" if self.outputs else ""
        return f"node {self.node.index} {self.node.op}{label}"

    def error(self, what: str, hint: str = "") -> CompileError:
        return CompileError(what, where=self.where, hint=hint)


@dataclass(frozen=True)
class Signature:
    """A named entry of the model: which graph, and its argument names (untrusted text) in the graph's own order."""

    key: str
    graph: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Model:
    """A model file as read: its graphs (the first is the main one) and signatures. custom_codes: of the custom operators it uses."""

    name: str
    graphs: tuple[Graph, ...]
    signatures: tuple[Signature, ...] = ()
    sha256: str = ""
    description: str = ""
    constant_nbytes: int = 0
    metadata: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    custom_codes: tuple[str, ...] = ()

    @property
    def main(self) -> Graph:
        return self.graphs[0]
