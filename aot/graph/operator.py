"""What an operator is: one `Operator` value says how it is read, checked, computed and lowered.

Enters: sites (a node with its values). Leaves: output shapes, arrays, primitives. The table of all operators is `ops/__init__.py`.
Invariant: `compute` is the definition (exact integers, TFLite Micro's); `lower` must mean the same, and tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from aot.errors import InternalError
from aot.graph.expr import Const, Expr, IndexMap, Load
from aot.graph.ir import DType, Graph, Node, Shape, Site, Value
from aot.graph.primitive import Map, Primitive, identity
from aot.graph.support import Support


@dataclass(frozen=True)
class Memory:
    """What a node keeps from one run to the next, beyond its tensors. `purpose` is part of its name. `initial` None: zeros."""

    purpose: str
    dtype: DType
    shape: Shape
    initial: np.ndarray | None = None


@dataclass(frozen=True)
class FirmwareCall:
    """A custom operator: its code in the model, the C function that computes it ("": none was named), its options as in the file."""

    name: str
    function: str
    options: bytes = b""

    def __str__(self) -> str:
        return f"{self.name}={self.function} with {len(self.options)} bytes of options"


@dataclass(frozen=True)
class Operator:
    """An operator in one place.

    name: TFLite's builtin name. options: the class of `tflite` that holds its options (None: it has none).
    read(options) -> frozen attributes; `options` is None where the file has none (use the schema's defaults).
    infer(site) -> output shapes, from input shapes, attributes and constant inputs; raises `site.error(...)` for what does not fit.
    check(site): dtypes and quantisation; raises `site.error(...)` with a sentence for what is not supported.
    compute(site, *arrays) -> one array for each output (arrays of absent inputs are None).
    lower(site, lowering): appends primitives to `lowering` that compute the outputs.

    State. variables: positions of inputs that are variables which the node changes. memories(attributes, inputs): what else it keeps.
    Nodes stay pure: the reader gives such a node one more input for each memory (its old content, after the file's inputs), and one
    more output for each variable, then for each memory (the new content, after the file's outputs). infer, compute and lower treat
    them as any other.

    subgraphs(attributes): numbers of the sub-graphs that the node runs; the reader puts the graphs into `node.graphs`.
    dtype(site): the only output's type, where TFLite decides on it whatever the file says.
    folds: whether `compute` may be asked at compile time, and equal nodes may become one.

    support: the types that it takes, by the oracle whose results they equal. notes: one sentence: where results differ from an
    oracle's and why, the bound of float results, what is refused.
    """

    name: str
    options: str | None
    read: Callable[[Any], object]
    infer: Callable[[Site], tuple[Shape, ...]]
    check: Callable[[Site], None]
    compute: Callable[..., tuple[np.ndarray, ...]]
    lower: Callable[[Site, Lowering], None]
    variables: tuple[int, ...] = ()
    memories: Callable[[Any, tuple[Value | None, ...]], tuple[Memory, ...]] = lambda attributes, inputs: ()
    subgraphs: Callable[[Any], tuple[int, ...]] = lambda attributes: ()
    dtype: Callable[[Site], DType] = lambda site: site.output.dtype
    folds: bool = True
    support: tuple[Support, ...] = ()
    notes: str = ""

    def supports(self, *support: Support, notes: str = "") -> Operator:
        """The operator with what it says about its types."""
        return replace(self, support=support, notes=notes)


MAX_FOLDED_NBYTES = 1 << 16
"""Bytes that the sub-graphs of a node may compute to be run at compile time."""


def may_fold(node: Node, operators: Mapping[str, Operator]) -> bool:
    """Whether a node, with all that it runs, may be computed at compile time: it ends, and sub-graphs compute little."""
    return operators[node.op].folds and all(
        graph.computed_nbytes <= MAX_FOLDED_NBYTES and all(may_fold(inner, operators) for inner in graph.nodes)
        for graph in node.graphs
    )


@dataclass(frozen=True)
class Window:
    """A part of a buffer: bytes [offset, offset + the value's nbytes) of `base`, moved by `slide[k]` bytes with each turn of the k-th
    `repeat` of this node around it (the outermost first)."""

    base: str
    offset: int = 0
    slide: tuple[int, ...] = ()


@dataclass
class Lowering:
    """Collects the primitives of one node, and the constants and temporaries they need. Names are unique by `prefix`.

    inline_graph(graph, inputs) -> outputs: appends what computes a sub-graph; the names are buffers'.
    """

    prefix: str
    node: int
    primitives: list[Primitive]
    values: list[Value]
    windows: dict[str, Window] = field(default_factory=dict[str, Window])
    inline_graph: Callable[[Lowering, Graph, Sequence[str]], tuple[str, ...]] | None = None

    def constant(self, purpose: str, data: np.ndarray, dtype: DType | None = None) -> str:
        """A constant buffer (`purpose` is part of its name: bias, multiplier, exp_table ...). Returns its name."""
        array = np.ascontiguousarray(data)
        return self._new(purpose, dtype or DType(array.dtype.name), array.shape, array)

    def temporary(self, purpose: str, dtype: DType, shape: Shape) -> str:
        """A buffer that lives between this node's primitives. Returns its name."""
        return self._new(purpose, dtype, shape, None)

    def window(self, purpose: str, base: Value, shape: Shape, offset: int = 0, slide: tuple[int, ...] = ()) -> Value:
        """A buffer that is a part of `base`'s bytes; see `Window`. Returns it as a value."""
        name = self._new(purpose, base.dtype, shape, None)
        self.windows[name] = Window(base.name, offset, slide)
        return self.values[-1]

    def inline(self, graph: Graph, inputs: Sequence[str]) -> tuple[str, ...]:
        """Append what computes a sub-graph from these buffers. Returns the buffers that hold its outputs."""
        if self.inline_graph is None:
            raise InternalError(f"{self.prefix}: no sub-graph can be lowered here")
        return self.inline_graph(self, graph, inputs)

    def copy(self, out: Value, source: str) -> None:
        """Append a Map that copies a buffer of the same shape and dtype."""
        self.append(Map(out.name, out.shape, Load(source, identity(len(out.shape)), out.dtype)))

    def _new(self, purpose: str, dtype: DType, shape: Shape, data: np.ndarray | None) -> str:
        taken = sum(value.name.startswith(f"{self.prefix}_{purpose}") for value in self.values)
        name = f"{self.prefix}_{purpose}{taken or ''}"
        self.values.append(Value(name, dtype, shape, None, data))
        return name

    def append(self, primitive: Primitive) -> None:
        self.primitives.append(primitive)


def load(value: Value, index: tuple[IndexMap, ...] | None = None, fill: Const | None = None) -> Load:
    """A load of a value's element; without `index`, the one at the iteration position itself."""
    return Load(value.name, identity(len(value.shape)) if index is None else index, value.dtype, fill)


def constant_element(name: str, dtype: DType, index: tuple[IndexMap, ...]) -> Expr:
    """A load from a constant made by `Lowering.constant`."""
    return Load(name, index, dtype)
