"""From plans to one object file.

Enters: a name, a target, and for each entry its plan and ports. Leaves: `EmittedObject`.
Invariant: the object holds one global function an entry (three, where it takes its input row by row), local functions and one block of
constants; nothing writable. Undefined are the firmware's functions that custom operators call, or a library's that layers call, and
nothing else.
Generic and hand-ordered functions are separate LLVM modules until the passes have run; they are then linked and emitted once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from llvmlite import ir

from aot.errors import InternalError
from aot.glow import Api, Glow, lay_out
from aot.llvm import elf
from aot.llvm.calls import called
from aot.llvm.constants import BLOCK_ALIGN, Pool
from aot.llvm.emission import KernelFunction, declare_kernel, local_attributes, parameter_names
from aot.llvm.entry import build_entry
from aot.llvm.glow import build_glow
from aot.llvm.layout import Layout
from aot.llvm.llvm import Compiler
from aot.llvm.load import build_load, load_function
from aot.llvm.parallel import part_calls
from aot.llvm.routines import complete
from aot.llvm.stack import Depth, deepest
from aot.llvm.stream import build_stream, stream_functions
from aot.lower.pushed import pushed_buffer
from aot.pointers import Pointer, ordered, reader, state, weights, workers, workspaces

if TYPE_CHECKING:
    from aot.bundle import Port
    from aot.instrument import Instrument
    from aot.lower.implementation import Style
    from aot.lower.loaded import Loaded
    from aot.lower.plan import Plan
    from aot.lower.program import Buffer
    from aot.lower.state import StateLayout
    from aot.target import Target

STYLES: tuple[Style, ...] = ("generic", "ordered")


@dataclass(frozen=True)
class EntrySource:
    """An entry to emit: its symbol (NAME_run), plan, and ports in the order of its parameters.

    state: where the bundle's variables lie, if there are any. initialises: the entry fills the state, and needs no workspace.
    loaded: the constants that are in one of its regions. instrument: what it tells of its layers.
    """

    symbol: str
    plan: Plan
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    state: StateLayout | None = None
    initialises: bool = False
    loaded: Loaded | None = None
    instrument: Instrument | None = None

    @property
    def prefix(self) -> str:
        """What the names of its functions begin with."""
        return self.symbol.removesuffix("_run")

    @property
    def pushes(self) -> bool:
        """Whether it takes its input row by row, through several functions."""
        return pushed_buffer(self.plan.schedule.program) is not None

    @property
    def functions(self) -> tuple[str, ...]:
        """Its global functions."""
        return stream_functions(self.prefix) if self.pushes else (self.symbol,)

    @property
    def has_pages(self) -> bool:
        """Whether the entry takes a function that reads weights, and its context."""
        return self.plan.schedule.window is not None

    @property
    def has_state(self) -> bool:
        """Whether the entry takes a pointer to the state: if its Program has a variable."""
        return self.initialises or any(buffer.role == "state" for buffer in self.plan.schedule.program.buffers)

    @property
    def workspaces(self) -> tuple[Pointer, ...]:
        """The memory that its plan places buffers in."""
        return () if self.initialises else workspaces(self.plan.workspace_nbytes, self.plan.align, self.plan.regions, self.loaded)

    def pointers(self, separate: bool) -> tuple[Pointer, ...]:
        """What it is passed besides its ports. separate: the weights are not in the object."""
        kept = (state(self.state.nbytes, self.state.align),) if self.has_state and self.state else ()
        pages = reader() if self.has_pages else ()
        helpers = workers() if self.plan.schedule.threads > 1 else ()
        told = () if self.instrument is None else self.instrument.pointers(len(self.plan.schedule.kernel_positions))
        return ordered((*self.workspaces, *kept, *(weights(1, BLOCK_ALIGN),) * separate, *pages, *helpers, *told))


@dataclass(frozen=True)
class EmittedObject:
    """The object and what was measured on it. `layer_symbols`: by entry symbol; `stack`: by global function.

    code_nbytes, weights_nbytes: what code, and weights with tables, take in flash. weights: the block, if it is not in the object.
    pages: the file that the caller reads weights from; None where they do not come in pages.
    function_nbytes: code size of each function. stack: bound over all call paths of the entry, its own frame included.
    functions: C functions that the firmware, or a library, must provide, sorted (their stack is not counted). loaded: what NAME_load copies.
    sources: C files by name, which take the place of the object; sizes of code and stack are not known then (0, none).
    glow: the blocks of Glow's interface, if it has that.
    """

    object: bytes
    code_nbytes: int
    weights_nbytes: int
    weights: bytes | None
    pages: bytes | None
    layer_symbols: Mapping[str, tuple[str, ...]]
    stack: Mapping[str, Depth]
    functions: tuple[str, ...] = ()
    function_nbytes: Mapping[str, int] = field(default_factory=dict[str, int])
    loaded: bytes | None = None
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    glow: Glow | None = None

    def __str__(self) -> str:
        lines = [f"object {len(self.object)} bytes: code {self.code_nbytes}, weights {self.weights_nbytes}"]
        lines += [f"  {symbol}: stack {depth.nbytes}" for symbol, depth in self.stack.items()]
        lines += [f"  {name}: {nbytes} bytes" for name, nbytes in sorted(self.function_nbytes.items())]
        return "\n".join(lines)


def emit_bundle(
    name: str,
    target: Target,
    sources: Sequence[EntrySource],
    *,
    weights: str = "embedded",
    io: str = "caller",
    position_independent: bool = False,
    loaded: Loaded | None = None,
    api: Api = "native",
) -> EmittedObject:
    """One object for all entries.

    name: a C identifier that every symbol starts with. weights: embedded or separate. io: caller or workspace. loaded: constants that
    NAME_load copies into a region. api: whose interface it has; Glow's is for one entry with separate weights.
    """
    assembly = Assembly(name, target, weights == "separate", io == "workspace", loaded)
    layers = {source.symbol: assembly.add(source) for source in sources}
    compiler = Compiler(target, position_independent)
    exported = [function for source in sources for function in source.functions]
    if loaded is not None:
        exported.append(load_function(name))
        assembly.load(exported[-1], loaded)
    glow = None if api == "native" else assembly.glow(sources[0], api, compiler.position_independent)
    exported += [] if glow is None else [glow.symbol]
    symbols = [*exported, *([glow.config] if glow is not None and glow.dynamic else [])]
    linked = compiler.link(assembly.modules(compiler), symbols)
    finished = complete(compiler, linked, symbols, assembly.ordered, name, assembly.functions)
    code = elf.finish(finished.emission.object, bare_metal=not (target.is_host or "linux" in target.triple))
    functions = tuple(sorted(assembly.functions))
    if (missing := elf.undefined(code)) != functions:
        raise InternalError(f"the object has undefined symbols: {', '.join(missing)}, not those of: {', '.join(functions)}")
    text_nbytes, data_nbytes = elf.sizes(code, relocated=glow is not None and glow.dynamic)
    block = assembly.pool.block().ljust(0 if glow is None else glow.constant_nbytes, b"\0")
    calls = {**finished.calls, **part_calls(assembly.main, name)}
    return EmittedObject(
        object=code,
        code_nbytes=text_nbytes,
        weights_nbytes=data_nbytes + (len(block) if assembly.separate else 0),
        weights=block if assembly.separate else None,
        pages=assembly.pages(sources),
        loaded=None if loaded is None else block[: loaded.nbytes],
        layer_symbols=layers,
        stack={symbol: deepest(symbol, calls, finished.emission.frames, target) for symbol in exported},
        functions=functions,
        function_nbytes=elf.functions(code),
        glow=glow,
    )


class Assembly:
    """The LLVM modules of one bundle, while they grow."""

    def __init__(self, name: str, target: Target, separate: bool, io_in_workspace: bool, loaded: Loaded | None) -> None:
        self.name, self.target, self.separate, self.io_in_workspace = name, target, separate, io_in_workspace
        self.main = ir.Module(name)
        self.styles = {style: ir.Module(f"{name}_{style}") for style in STYLES}
        self.pool = Pool(name, loaded)
        self.functions: set[str] = set()
        self.count = 0

    def add(self, source: EntrySource) -> tuple[str, ...]:
        """Emit the kernels of one entry and the entry itself. Returns the symbols of the kernels, in the order in which they begin."""
        io_in_workspace = self.io_in_workspace and not source.initialises
        layout = Layout(source.plan, source.inputs, source.outputs, io_in_workspace, self.target.pointer_bits, source.state)
        symbols: dict[int, str] = {}
        for position in source.plan.schedule.kernel_positions:
            symbols[position] = f"{self.name}_k{self.count:02d}"
            self.count += 1
            self._kernel(symbols[position], position, source.plan, layout)
        build = build_stream if source.pushes else build_entry
        build(self.main, source, layout, symbols, self.pool, self.separate)
        return tuple(symbols.values())

    def load(self, symbol: str, loaded: Loaded) -> None:
        """Define the function that copies constants into a region."""
        build_load(self.main, symbol, loaded, self.pool, self.separate, self.target.pointer_bits)

    def glow(self, source: EntrySource, api: Api, position_independent: bool) -> Glow:
        """Define what Glow's interface has for the entry; its constants must all have been added."""
        (workspace,) = source.workspaces
        ports = (*source.inputs, *source.outputs)
        weights_ = len(self.pool.block()), BLOCK_ALIGN
        glow = lay_out(self.name, ports, (workspace.nbytes, workspace.align), weights_, api == "glow-dynamic")
        section = elf.RELOCATED if position_independent else ".rodata"
        build_glow(self.main, glow, source.symbol, f"{section}.aot.{self.name}")
        return glow

    def pages(self, sources: Sequence[EntrySource]) -> bytes | None:
        """The file of weights that come in pages."""
        return bytes(self.pool.paged) if any(source.has_pages for source in sources) else None

    def _kernel(self, symbol: str, position: int, plan: Plan, layout: Layout) -> None:
        implementation = layout.implementations[position]
        for constant in implementation.constants:
            if layout.in_page(position, constant) is None:
                self.pool.add(constant)
        function = KernelFunction(
            self.styles[implementation.style],
            symbol,
            implementation,
            plan.schedule.program,
            self.target,
            prefix=self.name,
            alignment=self._alignment(position, layout),
            distinct=layout.distinct(position),
        )
        self.functions |= called(implementation.instruction)
        implementation.emit(function)
        function.finish()
        declare_kernel(self.main, symbol, implementation)

    def _alignment(self, position: int, layout: Layout) -> dict[str, int]:
        implementation = layout.implementations[position]
        known = {constant.name: self._constant_align(position, layout, constant) for constant in implementation.constants}
        return {name: known.get(name) or layout.align(name, position) for name in parameter_names(implementation)}

    def _constant_align(self, position: int, layout: Layout, constant: Buffer) -> int:
        place = layout.in_page(position, constant)
        if place is None:
            return self.pool.align(constant)
        return min(layout.plan.align, place.offset & -place.offset) if place.offset else layout.plan.align

    @property
    def parts(self) -> list[ir.Module]:
        """The modules, the entries' last."""
        return [*self.styles.values(), self.main]

    @property
    def ordered(self) -> bool:
        return bool(list(self.styles["ordered"].functions))

    def modules(self, compiler: Compiler) -> list[bytes]:
        """Bitcode of each module, ready for linking: passes run on the generic one."""
        self.pool.define()
        for module in (self.main, *self.styles.values()):
            for function in module.functions:
                if function.blocks:
                    function.section = f".text.aot.{self.name}"
                    local_attributes(function)
        made = [compiler.parse(_text(self.main))]
        if list(self.styles["generic"].functions):
            made.append(compiler.optimise(compiler.parse(_text(self.styles["generic"]))))
        if self.ordered:
            made.append(compiler.parse(_text(self.styles["ordered"])))
        return made


def _text(module: ir.Module) -> str:
    return f'source_filename = "{module.name}"\n{module}'
