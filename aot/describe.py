"""Descriptions: what there is to say about an entry once it is emitted.

Enters: an entry's plan, the emitted object, the model's nodes. Leaves: `Entry`, `Layer`, `Load`; or a CompileError where an entry takes more of
the stack than it may.
Invariant: every figure is the plan's or was read off the object; nothing is estimated here.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from aot.backends.library import library_call
from aot.bundle import Entry, Layer, Load, Paging, Stream, Variant
from aot.errors import CompileError
from aot.graph.primitive import Contract
from aot.instrument import tensors_of
from aot.llvm.layout import Layout
from aot.llvm.load import load_function
from aot.llvm.stream import steps_function
from aot.lower.implementation import request_of
from aot.lower.memory import memory_of
from aot.lower.pages import page_nbytes
from aot.lower.parts import why_whole
from aot.lower.pushed import pushed_buffer
from aot.lower.rows import row_count, row_nbytes

if TYPE_CHECKING:
    from aot.driver import Options
    from aot.graph.ir import Graph, Node
    from aot.graph.primitive import Primitive
    from aot.instrument import Tensor
    from aot.llvm.module import EmittedObject, EntrySource
    from aot.lower.implementation import Choice, Implementation
    from aot.lower.loaded import Loaded
    from aot.lower.plan import Plan
    from aot.lower.program import Program


def describe_entry(source: EntrySource, emitted: EmittedObject, graph: Graph | None, options: Options) -> Entry:
    """The finished entry: sizes, stack bound and one Layer an instruction. graph: the model's, as read."""
    plan = source.plan
    nodes = () if graph is None else graph.nodes
    schedule_ = plan.schedule
    layers = tuple(
        describe_layer(nodes, schedule_.program, schedule_.choices[position], symbol, schedule_.threads)
        for position, symbol in zip(schedule_.kernel_positions, emitted.layer_symbols[source.symbol], strict=True)
    )
    stream = _stream(source)
    return Entry(
        symbol=source.symbol if stream is None else stream.push,
        inputs=source.inputs,
        outputs=source.outputs,
        workspace_nbytes=plan.workspace_nbytes,
        workspace_align=plan.align,
        stack_nbytes=max(emitted.stack[each].nbytes for each in _functions(source, emitted)) if emitted.stack else None,
        scratch_nbytes=max((layer.scratch_nbytes for layer in layers), default=0),
        lower_bound_nbytes=plan.lower_bound_nbytes,
        layers=layers,
        nodes=nodes,
        graph=graph,
        plan=plan,
        state_nbytes=source.state.nbytes if source.state and source.has_state else 0,
        state_align=source.state.align if source.state and source.has_state else 1,
        initialises=source.initialises,
        memory=memory_of(plan, options.io, options.inplace),
        stream=stream,
        paging=_paging(plan),
        regions=plan.regions,
        loaded=source.loaded,
        threads=schedule_.threads,
        instrument=source.instrument,
        tensors=_tensors(source, options),
    )


def _tensors(source: EntrySource, options: Options) -> tuple[Tensor, ...]:
    """What layers leave, if that can be dumped."""
    if source.instrument is None or source.instrument.kind != "dump":
        return ()
    layout = Layout(source.plan, source.inputs, source.outputs, options.io == "workspace", 32, source.state)
    return tensors_of(layout, source.pointers(options.weights == "separate"))


def describe_load(name: str, loaded: Loaded | None, emitted: EmittedObject) -> Load | None:
    """The finished function that copies constants into a region, if there is one."""
    if loaded is None or emitted.loaded is None:
        return None
    symbol = load_function(name)
    return Load(symbol, loaded, emitted.loaded, emitted.stack[symbol].nbytes if emitted.stack else None)


def check_stack(source: EntrySource, entry: Entry, emitted: EmittedObject, options: Options) -> None:
    """CompileError if a function may take more of the stack than --max-stack allows; names what takes most of it."""
    function = max(_functions(source, emitted), key=lambda each: emitted.stack[each].nbytes)
    depth = emitted.stack[function]
    if depth.nbytes > options.max_stack_nbytes and not options.expose:
        symbol, nbytes = depth.largest
        kernels = [
            f" ({layer.kernel}, node {', '.join(map(str, layer.nodes))})" for layer in entry.layers if layer.symbol == symbol
        ]
        raise CompileError(
            f"{function} would take up to {depth.nbytes} bytes of stack, over --max-stack {options.max_stack_nbytes}; "
            f"most, {nbytes}, is for {symbol}{''.join(kernels)}",
            hint="allow more with --max-stack, or try another --optimize or --backend",
        )


def _functions(source: EntrySource, emitted: EmittedObject) -> tuple[str, ...]:
    """The functions by which firmware calls an entry."""
    return source.functions if emitted.glow is None else (*source.functions, emitted.glow.symbol)


def _paging(plan: Plan) -> Paging | None:
    """What a run reads, if its weights come in pages."""
    schedule_ = plan.schedule
    if schedule_.window is None:
        return None
    nbytes = [page_nbytes(schedule_.choices[position].implementation) for position in schedule_.pages]
    calls = sum(request_of(instruction) is not None for instruction in schedule_.instructions)
    return Paging(schedule_.window.nbytes, len(nbytes), calls, sum(nbytes))


def _stream(source: EntrySource) -> Stream | None:
    image = pushed_buffer(source.plan.schedule.program)
    if image is None:
        return None
    begin, push, end = source.functions
    return Stream(begin, push, end, steps_function(source.prefix), row_count(image), row_nbytes(image))


def describe_layer(nodes: tuple[Node, ...], program: Program, choice: Choice, symbol: str = "", threads: int = 1) -> Layer:
    """What there is to say about a layer; the model's nodes give it its operators."""
    chosen = choice.implementation
    names = {node.index: node.op for node in nodes}
    return Layer(
        symbol=symbol,
        kernel=chosen.kernel,
        nodes=chosen.instruction.nodes,
        operators=tuple(names.get(index, "?") for index in chosen.instruction.nodes),
        out_shape=program[chosen.writes[0]].shape,
        macs=macs(chosen.instruction),
        constant_nbytes=chosen.constants_nbytes,
        scratch_nbytes=chosen.scratch_nbytes,
        notes=chosen.notes,
        declined=choice.declined,
        variants=tuple(_variant(one, why) for one, why in choice.variants),
        parts=chosen.parts,
        why_whole=why_whole(program, chosen) if chosen.parts == 1 < threads else "",
    )


def _variant(one: Implementation, why: str) -> Variant:
    assert one.cost is not None
    shared = sum(nbytes for _, nbytes in one.cost.shared)
    return Variant(
        kernel=one.kernel,
        variant=one.variant,
        instructions=one.cost.instructions,
        code_nbytes=one.cost.code_nbytes + shared,
        constant_nbytes=one.constants_nbytes,
        scratch_nbytes=one.scratch_nbytes,
        why_not=why,
    )


def macs(instruction: Primitive) -> int:
    """Multiply-accumulates, borders counted as full."""
    if (call := library_call(instruction)) is not None:
        return call.macs
    if not isinstance(instruction, Contract):
        return 0
    return prod((*instruction.space, *instruction.window))
