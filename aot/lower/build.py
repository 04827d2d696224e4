"""Graph -> Program: each node becomes primitives over buffers; reshapes become views.

Enters: a verified Graph and the table of operators. Leaves: a verified Program, one primitive an instruction, in the graph's order.
Invariant: a model output owns its bytes (it is never a view, an input or a constant), and bears the name of its graph value, unless
that value is an input, a constant, or an output already: then a copy named `NAME_output` is the output.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aot.errors import CompileError, InternalError
from aot.graph.expr import Load
from aot.graph.operator import Lowering, Window
from aot.graph.primitive import Control, Map, Primitive, identity, reads, writes
from aot.graph.shapes import can_be_compiled
from aot.lower.program import Buffer, Program, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np

    from aot.graph.ir import Graph, Site, Value
    from aot.graph.operator import Operator


def build_program(graph: Graph, operators: Mapping[str, Operator]) -> Program:
    """The Program that computes `graph`. CompileError from an operator's lowering, or for an operator that the table lacks."""
    builder = _Builder(graph, operators)
    for node in graph.nodes:
        builder.lower(graph.site(node), node.index)
    outputs = builder.outputs()
    builder.update_state()
    program = builder.program(outputs)
    program.verify()
    return program


@dataclass
class _Builder:
    """The Program under construction. `base` maps a view to the buffer whose bytes it shares; `starts` a lowering's prefix to its
    first instruction."""

    graph: Graph
    operators: Mapping[str, Operator]
    buffers: dict[str, Buffer] = field(default_factory=dict[str, Buffer])
    base: dict[str, str] = field(default_factory=dict[str, str])
    starts: dict[str, int] = field(default_factory=dict[str, int])
    inlined: int = 0
    instructions: list[Primitive] = field(default_factory=list[Primitive])

    def __post_init__(self) -> None:
        for value in self.graph.values:
            self.add(value, self.role(value))

    def role(self, value: Value) -> Role:
        if value.is_constant:
            return "constant"
        if value.name in self.graph.inputs:
            return "input"
        if value.is_variable:
            return "state"
        return "output" if value.name in self.graph.outputs else "temporary"

    def add(self, value: Value, role: Role) -> None:
        if value.name in self.buffers:
            raise InternalError(f"graph {self.graph.name}: two buffers would be named %{value.name}")
        if not can_be_compiled(value.dtype):
            raise CompileError(f"'{value.title}' is {value.dtype}, which can't be compiled")
        data = None if role == "output" else value.data
        self.buffers[value.name] = Buffer(
            value.name,
            value.dtype,
            value.shape,
            role,
            data=data,
            quantisation=value.quantisation,
            label=value.label,
            initial=value.content if role == "state" else None,
        )

    def root(self, name: str) -> str:
        """The buffer that owns the bytes of `name`."""
        while name in self.base:
            name = self.base[name]
        return name

    def lower(self, site: Site, index: int) -> None:
        """Append the node's primitives; an output that none of them writes is a view of the first input. `index`: of the node that
        the reports name (for one in a sub-graph, that which runs it)."""
        node = site.node
        if node.op not in self.operators:
            raise site.error("this operator is not supported")
        start = len(self.instructions)
        lowering = Lowering(node.outputs[0] if node.outputs else f"node{index}", index, [], [], inline_graph=self.inline)
        self.starts[lowering.prefix] = start
        self.operators[node.op].lower(site, lowering)
        self.take(lowering)
        written = {self.root(name) for primitive in self.instructions[start:] for name in writes(primitive)}
        for output in site.outputs:
            if self.root(output.name) not in written:
                self.alias(output, site.input(0), index)

    def take(self, lowering: Lowering) -> None:
        """Append what a lowering has collected so far."""
        for value in lowering.values:
            if value.name not in self.buffers:
                self.add(value, "constant" if value.is_constant else "temporary")
        for name, window in lowering.windows.items():
            if name not in self.base:
                self.open(name, window, self.repeats(self.starts[lowering.prefix]))
        self.instructions += [replace(primitive, nodes=(lowering.node,)) for primitive in lowering.primitives]
        lowering.primitives.clear()

    def open(self, name: str, window: Window, around: int) -> None:
        """Make a buffer a window on another, or on a copy of a constant. `around`: the loops around the node, whose own slide it."""
        base = self.root(window.base)
        if self.buffers[base].data is not None:
            copy = replace(self.buffers[base], name=self.free(f"{base}_copy"), role="temporary", data=None)
            self.buffers[copy.name] = copy
            self.copy(copy.name, base, ())
            base = copy.name
        self.base[name] = base
        slide = (*[0] * around, *window.slide) if window.slide else ()
        self.buffers[name] = replace(self.buffers[name], offset=window.offset, slide=slide)

    def repeats(self, stop: int) -> int:
        """How many loops are open in front of an instruction."""
        opened: list[bool] = []
        for instruction in self.instructions[:stop]:
            match instruction:
                case Control("repeat" | "if" as kind):
                    opened.append(kind == "repeat")
                case Control("end"):
                    opened.pop()
                case _:
                    pass
        return sum(opened)

    def inline(self, lowering: Lowering, graph: Graph, inputs: Sequence[str]) -> tuple[str, ...]:
        """Append the nodes of a sub-graph that the lowered node runs; see `Lowering.inline`. Its inputs are views of `inputs`."""
        self.take(lowering)
        self.inlined += 1
        inner = renamed(graph, f"{lowering.prefix}_g{self.inlined}_")
        for value in inner.values:
            self.add(value, "constant" if value.is_constant else "temporary")
        for value, outer in zip((inner[name] for name in inner.inputs), inputs, strict=True):
            root = self.buffers[self.root(outer)]
            if root.data is None:
                self.base[value.name] = root.name
            else:
                self.buffers[value.name] = replace(self.buffers[value.name], role="constant", data=_reshaped(root.data, value))
        for node in inner.nodes:
            self.lower(inner.site(node), lowering.node)
        return inner.outputs

    def alias(self, out: Value, source: Value, node: int) -> None:
        """Make `out` the same bytes as `source`, by a view where both may share storage, else by a copy."""
        if out.nbytes != source.nbytes:
            raise InternalError(f"node {node}: nothing writes %{out.name}, and it is no view of %{source.name} (other size)")
        root = self.buffers[self.root(source.name)]
        is_output = self.buffers[out.name].role == "output"
        if root.data is not None and not is_output:
            self.buffers[out.name] = replace(self.buffers[out.name], role="constant", data=_reshaped(root.data, out))
        elif is_output and root.role != "temporary":
            self.copy(out.name, root.name, (node,))
        elif is_output:
            self.base[root.name] = out.name
        else:
            self.base[out.name] = root.name

    def copy(self, out: str, source: str, nodes: tuple[int, ...]) -> None:
        """Append a Map that copies `source` to `out`, which has as many bytes (through a view where the shapes differ)."""
        target, read = self.buffers[out], self.buffers[source]
        if read.shape != target.shape or read.dtype is not target.dtype:
            view = replace(target, name=self.free(f"{out}_source"), role="temporary", data=None)
            if read.data is not None:
                view = replace(view, role="constant", data=_reshaped(read.data, target))
            else:
                self.base[view.name] = source
            self.buffers[view.name] = view
            source = view.name
        value = Load(source, identity(len(target.shape)), target.dtype)
        self.instructions.append(Map(out, target.shape, value, nodes=nodes))

    def update_state(self) -> None:
        """Append, after everything else, copies of the new contents to their variables. What reads a variable reads the old content."""
        changed = [(variable, name) for variable, name in self.graph.updates if self.root(name) != variable]
        moved = dict.fromkeys(self.root(name) for _, name in changed if self.buffers[self.root(name)].role == "state")
        held = {name: self.held(name) for name in moved}
        for variable, name in changed:
            producer = self.graph.producers.get(name)
            self.copy(variable, held.get(self.root(name), name), () if producer is None else (producer.index,))

    def held(self, variable: str) -> str:
        """A temporary copy of a variable's old content, for another variable that takes it."""
        copy = replace(self.buffers[variable], name=self.free(f"{variable}_held"), role="temporary", initial=None)
        self.buffers[copy.name] = copy
        self.copy(copy.name, variable, ())
        return copy.name

    def free(self, name: str) -> str:
        """`name`, or with the first number after it that makes it unique."""
        found, count = name, 1
        while found in self.buffers:
            found, count = f"{name}{count}", count + 1
        return found

    def outputs(self) -> tuple[str, ...]:
        """The output buffers in the model's order, with copies for what can't be an output itself or is one already."""
        found: list[str] = []
        for name in self.graph.outputs:
            if self.buffers[name].role == "output" and name not in found:
                found.append(name)
                continue
            copy = replace(self.buffers[name], name=self.free(f"{name}_output"), role="output", data=None, initial=None)
            self.buffers[copy.name] = copy
            producer = self.graph.producers.get(name)
            self.copy(copy.name, name, () if producer is None else (producer.index,))
            found.append(copy.name)
        return tuple(found)

    def program(self, outputs: tuple[str, ...]) -> Program:
        """The finished Program, without buffers that nothing names."""
        buffers: list[Buffer] = []
        for buffer in self.buffers.values():
            view = buffer.name in self.base
            buffers.append(replace(buffer, base=self.root(buffer.name), role="temporary") if view else buffer)
        return without_unused(Program(self.graph.name, tuple(buffers), tuple(self.instructions), self.graph.inputs, outputs))


def renamed(graph: Graph, prefix: str) -> Graph:
    """The graph with `prefix` before the name of every value."""

    def names(given: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(prefix + name for name in given)

    nodes = tuple(
        replace(node, inputs=tuple(name and prefix + name for name in node.inputs), outputs=names(node.outputs))
        for node in graph.nodes
    )
    values = tuple(replace(value, name=prefix + value.name) for value in graph.values)
    return replace(graph, values=values, nodes=nodes, inputs=names(graph.inputs), outputs=names(graph.outputs))


def _reshaped(data: np.ndarray, like: Value | Buffer) -> np.ndarray:
    """The same bytes with the dtype and shape of `like`."""
    return data.reshape(-1).view(like.dtype.np).reshape(like.shape)


def without_unused(program: Program) -> Program:
    """`program` without buffers that no instruction, input or output names."""
    named = set(program.inputs) | set(program.outputs)
    for instruction in program.instructions:
        named |= {*reads(instruction), *writes(instruction)}
    named |= _bases(program, named)
    return replace(program, buffers=tuple(buffer for buffer in program.buffers if buffer.name in named))


def _bases(program: Program, names: Iterable[str]) -> set[str]:
    return {program.storage(name) for name in names}
