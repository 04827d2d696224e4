# pyright: basic
"""KernelFunction: the function that an implementation fills, one for each step's code.

Enters: an implementation, its Program and target. Leaves: a function of an `llvmlite.ir` module,
`void NAME_k07(reads..., writes..., constants..., [scratch], y0, y1)`, pointers opaque, `y0` and `y1` int32 (output rows [y0, y1)).
That of a Call returns an int32: 0, or else the run must end.
Invariant: `noalias` stands only on pointers whose bytes no other pointer of the function reaches.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llvmlite import ir

from aot.errors import InternalError
from aot.graph.expr import axis
from aot.graph.ir import DType
from aot.graph.primitive import Call, Control
from aot.llvm.expressions import Scalars
from aot.llvm.scattered import table_of_rows
from aot.llvm.types import I1, I8, I32, POINTER, Builder, Value, known_integer, memory_type
from aot.lower.rows import row_nbytes

if TYPE_CHECKING:
    from aot.graph.expr import Expr, IndexMap, Load
    from aot.lower.implementation import Implementation
    from aot.lower.program import Buffer, Program
    from aot.target import Target

Index = int | Value


def string_attribute(function: ir.Function, text: str) -> None:
    """Add an attribute that llvmlite's list of known ones lacks (`"no-builtins"`)."""
    set.add(function.attributes, text)


@dataclass
class Carried:
    """A loop with values carried from one turn to the next. In the body: read `values`, set `next`; after it: read `results`."""

    index: Value
    values: tuple[Value, ...]
    next: tuple[Value, ...] = ()
    results: tuple[Value, ...] = ()


class KernelFunction:
    """A function under construction. See the module's docstring for its signature.

    builder: positioned in the body. y0, y1: the rows to compute. scratch: pointer, or None.
    scattered: the buffers whose rows lie anywhere; of those only `row` gives an address.
    prefix: the bundle's name; local helper functions start with it.
    alignment: known alignment in bytes of each pointer (default 4). distinct: names whose bytes no other parameter reaches
    (default: from the Program's storages and `overwrites`).
    """

    def __init__(
        self,
        module: ir.Module,
        symbol: str,
        implementation: Implementation,
        program: Program,
        target: Target,
        prefix: str = "aot",
        alignment: Mapping[str, int] | None = None,
        distinct: frozenset[str] | None = None,
    ) -> None:
        self.module, self.implementation, self.program, self.target, self.prefix = module, implementation, program, target, prefix
        self.constants = {buffer.name: buffer for buffer in implementation.constants}
        activations = (*implementation.reads, *implementation.writes)
        self.scattered = frozenset(name for name in activations if table_of_rows(name) in self.constants)
        self.alignment = dict(alignment or {})
        names = parameter_names(implementation)
        self.function = declare_kernel(module, symbol, implementation)
        self.function.linkage = ""
        self._qualify(names, distinct_names(implementation, program) if distinct is None else distinct)
        self.pointers: dict[str, Value] = {}
        for name, argument in zip(names, self.function.args):
            self.pointers.setdefault(name, argument)
        self.scratch: Value | None = self.function.args[-3] if implementation.scratch_nbytes else None
        self.y0, self.y1 = self.function.args[-2:]
        self.y0.name, self.y1.name = "y0", "y1"
        self.builder: Builder = ir.IRBuilder(self.function.append_basic_block("entry"))

    def _qualify(self, names: tuple[str, ...], distinct: frozenset[str]) -> None:
        for position, (name, argument) in enumerate(zip(names, self.function.args)):
            argument.name = f"p{position}"
            argument.attributes.align = self.align_of(name)
            if isinstance(self.implementation.instruction, Call):
                continue  # its structs hand the pointers on
            argument.add_attribute("captures(none)")
            if name in distinct:
                argument.add_attribute("noalias")
        if self.implementation.scratch_nbytes:
            scratch = self.function.args[-3]
            scratch.name = "scratch"
            scratch.attributes.align = self.implementation.scratch_align
            scratch.add_attribute("noalias")

    @property
    def extents(self) -> tuple[int, ...]:
        """How far each axis of the instruction runs: its space, then its window."""
        instruction = self.implementation.instruction
        if isinstance(instruction, Call | Control):
            return ()
        return (*instruction.space, *getattr(instruction, "window", ()))

    def buffer(self, name: str) -> Buffer:
        """The buffer behind a name: one of the implementation's constants, else the Program's."""
        return self.constants[name] if name in self.constants else self.program[name]

    def align_of(self, name: str) -> int:
        """Known alignment in bytes of a buffer's first byte; of every row's, if it lies scattered."""
        if name in self.alignment:
            return self.alignment[name]
        return max(4, self.constants[name].align) if name in self.constants else 4

    def pointer(self, name: str) -> Value:
        """The first byte of a buffer of `reads`, `writes` or `constants`."""
        if name not in self.pointers:
            raise InternalError(f"{self.implementation.kernel}: %{name} is not a parameter of the function")
        return self.pointers[name]

    def row(self, name: str, number: Value, builder: Builder = None) -> Value:
        """The first byte of a row (int32) that the buffer has."""
        builder = self.builder if builder is None else builder
        if name in self.scattered:
            table = self.constants[table_of_rows(name)]
            etype = memory_type(table.dtype)
            slot = builder.gep(self.pointer(table.name), [number], inbounds=True, source_etype=etype)
            offset = builder.load(slot, align=table.dtype.nbytes, typ=etype)
            offset = offset if etype == I32 else builder.zext(offset, I32)
        else:
            offset = builder.mul(number, I32(row_nbytes(self.buffer(name))), flags=("nsw",))
        return builder.gep(self.pointer(name), [offset], inbounds=True, source_etype=I8)

    def value(
        self, expr: Expr, axes: Mapping[int, Value], acc: Value | None = None, loaded: Mapping[Load, Value] | None = None
    ) -> Value:
        """Emit a scalar expression at the builder's position.

        `axes`: the value of each axis, int32 (an axis of extent 1 may be absent); `acc` stands for `Acc`; `loaded`: loads done already.
        A shared sub-expression is emitted once within one call. No control flow is emitted: the block stays the same.
        """
        return Scalars(self, axes, acc, loaded=loaded).value(expr)

    def address(self, name: str, indices: Sequence[Index]) -> Value:
        """Address of the element at `indices` (one for each dimension; no checks)."""
        values = {number: I32(index) if isinstance(index, int) else index for number, index in enumerate(indices)}
        return self.mapped_address(name, tuple(map(axis, values)), values)

    def mapped_address(self, name: str, maps: Sequence[IndexMap], axes: Mapping[int, Value]) -> Value:
        """Address of the element that index maps name (always inside the buffer)."""
        return Scalars(self, axes, None).address(name, maps)

    def element(self, name: str, offset: Value, row: Value | None = None) -> Value:
        """Address of the element at a flat offset, in elements, from the buffer's first byte, or from that of a row."""
        if row is None and name in self.scattered:
            raise InternalError(f"{self.implementation.kernel}: %{name} lies scattered, and is addressed as a whole")
        etype = memory_type(self.buffer(name).dtype)
        return self.builder.gep(self.pointer(name) if row is None else row, [offset], inbounds=True, source_etype=etype)

    def load(self, name: str, indices: Sequence[Index]) -> Value:
        """The element at `indices`, as a register value."""
        return self.load_at(name, self.address(name, indices))

    def load_at(self, name: str, address: Value) -> Value:
        """An element of `name` from its address; bool becomes i1."""
        dtype = self.buffer(name).dtype
        loaded = self.builder.load(address, align=self._access_align(name), typ=memory_type(dtype))
        return self.builder.icmp_unsigned("!=", loaded, I8(0)) if dtype is DType.BOOL else loaded

    def store(self, name: str, indices: Sequence[Index], value: Value) -> None:
        """Store a register value at `indices`."""
        self.store_at(name, self.address(name, indices), value)

    def store_at(self, name: str, address: Value, value: Value) -> None:
        if value.type == I1:
            value = self.builder.zext(value, I8)
        self.builder.store(value, address, align=self._access_align(name))

    def _access_align(self, name: str) -> int:
        return min(self.align_of(name), self.buffer(name).dtype.nbytes)

    @contextmanager
    def loop(self, start: Index, stop: Index, step: int = 1) -> Generator[Value]:
        """`for index in range(start, stop, step)`, step > 0; yields the int32 index. Bottom-tested where start < stop is known."""
        with self.carried_loop(start, stop, (), step) as carried:
            yield carried.index

    @contextmanager
    def carried_loop(self, start: Index, stop: Index, initial: Sequence[Value], step: int = 1) -> Generator[Carried]:
        """As `loop`, with values (phi nodes) that start as `initial`; see `Carried`."""
        builder = self.builder
        first, last = (I32(bound) if isinstance(bound, int) else bound for bound in (start, stop))
        low, high = known_integer(first), known_integer(last)
        known = low is not None and high is not None and low < high
        before = builder.block
        body = builder.append_basic_block("loop")
        after = builder.append_basic_block("done")
        if known:
            builder.branch(body)
        else:
            builder.cbranch(builder.icmp_signed("<", first, last), body, after)
        builder.position_at_end(body)
        index = builder.phi(I32)
        index.add_incoming(first, before)
        phis = [builder.phi(value.type) for value in initial]
        for phi, value in zip(phis, initial):
            phi.add_incoming(value, before)
        carried = Carried(index, tuple(phis))
        yield carried
        if len(carried.next) != len(phis):
            raise InternalError("a carried loop's body must set `next`")
        latch = builder.block
        following = builder.add(index, I32(step), flags=("nsw",))
        index.add_incoming(following, latch)
        for phi, value in zip(phis, carried.next):
            phi.add_incoming(value, latch)
        builder.cbranch(builder.icmp_signed("<", following, last), body, after)
        builder.position_at_end(after)
        carried.results = carried.next if known else self._merge({before: initial, latch: carried.next})

    def _merge(self, arms: Mapping[ir.Block, Sequence[Value]]) -> tuple[Value, ...]:
        """A phi for each value that the arms agree on in number."""
        merged: list[Value] = []
        for values in zip(*arms.values()):
            phi = self.builder.phi(values[0].type)
            for value, block in zip(values, arms):
                phi.add_incoming(value, block)
            merged.append(phi)
        return tuple(merged)

    def helper(
        self,
        purpose: str,
        type: ir.FunctionType,
        build: Callable[[ir.Function], None],
        make: Callable[[ir.Module, ir.FunctionType, str], ir.Function] = ir.Function,
    ) -> ir.Function:
        """A local function of the bundle, made by `build` on first use. One copy stays when modules are linked."""
        name = f"{self.prefix}_{purpose}"
        found = self.module.globals.get(name)
        if found is None:
            found = make(self.module, type, name)
            found.linkage = "linkonce_odr"
            local_attributes(found)
            build(found)
        return found

    def intrinsic(self, name: str, type: ir.FunctionType) -> ir.Function:
        """The LLVM intrinsic of this full name (`llvm.arm.smlad`), declared on first use."""
        found = self.module.globals.get(name)
        return ir.Function(self.module, type, name) if found is None else found

    def finish(self) -> None:
        """Close the body."""
        if not self.builder.block.is_terminated:
            self.builder.ret_void()


def local_attributes(function: ir.Function) -> None:
    """What every function of a bundle carries: no unwinding, no calls into a C library made up by LLVM,
    no tables outside the code, a symbol of its own, and a report of its frame size.
    """
    function.attributes.add("nounwind")
    function.attributes.add("noinline")
    string_attribute(function, '"no-builtins"')
    string_attribute(function, '"no-jump-tables"="true"')
    string_attribute(function, '"warn-stack-size"="0"')


def parameter_names(implementation: Implementation) -> tuple[str, ...]:
    """Buffers behind the pointer parameters, in order (scratch and rows follow)."""
    return (*implementation.reads, *implementation.writes, *(buffer.name for buffer in implementation.constants))


def kernel_type(implementation: Implementation) -> ir.FunctionType:
    """The type of an implementation's function: it returns nothing, or for a Call, which may fail, 0 where it did not."""
    pointers = len(parameter_names(implementation)) + bool(implementation.scratch_nbytes)
    returns = I32 if isinstance(implementation.instruction, Call) else ir.VoidType()
    return ir.FunctionType(returns, [POINTER] * pointers + [I32, I32])


def declare_kernel(module: ir.Module, symbol: str, implementation: Implementation) -> ir.Function:
    """Declare an implementation's function in a module."""
    function = ir.Function(module, kernel_type(implementation), symbol)
    local_attributes(function)
    return function


def distinct_names(implementation: Implementation, program: Program) -> frozenset[str]:
    """Parameters whose bytes no other parameter reaches, whatever the plan: not shared storages, and not in-place pairs."""
    constants = {buffer.name for buffer in implementation.constants}
    activations = [name for name in parameter_names(implementation) if name not in constants]
    owners = [program.storage(name) for name in activations]
    shared = {name for name, owner in zip(activations, owners) if owners.count(owner) > 1}
    if implementation.overwrites:
        taken = {program.storage(name) for name in implementation.overwrites}
        shared |= {name for name, owner in zip(activations, owners) if owner in taken}
        shared.add(implementation.writes[0])
    return frozenset(parameter_names(implementation)) - shared
