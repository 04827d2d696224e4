"""From plans to C: what `aot.llvm.module` does for objects.

Enters: a name, a target, and for each entry its plan and ports. Leaves: `EmittedObject` with C files in the place of the object.
Invariant: the C is made of the same LLVM IR that objects are made of, before any pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aot.c.module import main_text, weights_text
from aot.c.program import READER
from aot.c.support import CUSTOM_CALL, Foreign
from aot.c.texts import CType, integer
from aot.graph.ir import DType
from aot.llvm.calls import arguments_of, called
from aot.llvm.constants import BLOCK_ALIGN
from aot.llvm.load import load_function
from aot.llvm.module import Assembly, EmittedObject, EntrySource
from aot.pointers import Pointer
from aot.pointers import weights as weights_pointer

if TYPE_CHECKING:
    from aot.bundle import Port
    from aot.lower.loaded import Loaded
    from aot.target import Target

_ELEMENTS = {DType.FLOAT32: "float", DType.BOOL: "uint8_t"}
_CUSTOM = Foreign((CUSTOM_CALL,))
Parameters = Sequence[tuple[str, str, CType]]
"""Of each parameter its declaration, name and type."""


def emit_c(
    name: str,
    target: Target,
    sources: Sequence[EntrySource],
    *,
    weights: str = "embedded",
    io: str = "caller",
    loaded: Loaded | None = None,
    declarations: Mapping[str, Foreign] | None = None,
) -> EmittedObject:
    """The C files of all entries. Arguments as for `emit_bundle`; declarations: of functions of a library that kernels call."""
    separate, in_workspace = weights == "separate", io == "workspace"
    assembly = Assembly(name, target, separate, in_workspace, loaded)
    layers = {source.symbol: assembly.add(source) for source in sources}
    exported: dict[str, tuple[str, list[tuple[str, CType]]]] = {}
    for source in sources:
        for symbol, parameters in _functions(source, separate, in_workspace).items():
            exported[symbol] = _declared(symbol, parameters)
    if loaded is not None:
        symbol = load_function(name)
        assembly.load(symbol, loaded)
        region = Pointer(loaded.region, loaded.nbytes, BLOCK_ALIGN)
        exported[symbol] = _declared(symbol, [_memory(one) for one in (region, *(weights_pointer(1, 1),) * separate)])
    known = {each: _CUSTOM for source in sources for each in _firmware(source)} | dict(declarations or {})
    block = assembly.pool.block()
    embedded = assembly.pool.variable is not None
    files = {f"{name}.c": main_text(name, assembly.parts, exported, target, known, len(block) if embedded else None)}
    if embedded:
        files[f"{name}_weights.c"] = weights_text(name, block, BLOCK_ALIGN)
    return EmittedObject(
        object=b"",
        code_nbytes=0,
        weights_nbytes=len(block),
        weights=block if separate else None,
        pages=assembly.pages(sources),
        loaded=None if loaded is None else block[: loaded.nbytes],
        layer_symbols=layers,
        stack={},
        functions=tuple(sorted(assembly.functions)),
        sources=files,
    )


def _firmware(source: EntrySource) -> list[str]:
    """The firmware's functions that an entry calls; the header declares them."""
    calls = (step for step in source.plan.schedule.program.instructions if arguments_of(step) is not None)
    return [function for call in calls for function in called(call)]


def _declared(symbol: str, parameters: Parameters) -> tuple[str, list[tuple[str, CType]]]:
    head = f"int {symbol}({', '.join(declaration for declaration, _, _ in parameters) or 'void'})"
    return head, [(name, type) for _, name, type in parameters]


def _functions(source: EntrySource, separate: bool, in_workspace: bool) -> dict[str, Parameters]:
    """Each function of an entry in the header, with its parameters."""
    pointers = source.pointers(separate)
    count = len(source.workspaces)
    spaces, rest = [_memory(one) for one in pointers[:count]], [_memory(one) for one in pointers[count:]]
    placed = in_workspace and not source.initialises
    inputs = [] if placed else [_port(port, True) for port in source.inputs]
    outputs = [] if placed else [_port(port, False) for port in source.outputs]
    if not source.pushes:
        return {source.symbol: [*inputs, *outputs, *spaces, *rest]}
    begin, push, end = source.functions
    rows = _port(source.inputs[0], True, "rows")
    number = ("uint32_t n", "n", integer(32, False))
    return {begin: [*spaces, *rest], push: [*spaces, rows, number, *rest], end: [*spaces, *outputs, *rest]}


def _memory(one: Pointer) -> tuple[str, str, CType]:
    if one.role == "read":
        return one.declaration, one.name, READER
    return one.declaration, one.name, CType("pointer", element="void", const=one.role == "weights")


def _port(port: Port, const: bool, name: str | None = None) -> tuple[str, str, CType]:
    element = _ELEMENTS.get(port.dtype, f"{port.dtype}_t")
    type = CType("pointer", element=element, const=const)
    return type.declare(name or port.name), name or port.name, type
