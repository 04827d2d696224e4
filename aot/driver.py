"""The pipeline on one screen: a model file in, a Bundle out.

    file --read--> Model --fix shapes, graph passes--> Graph --build, fuse--> Program --select, schedule--> Schedule --plan--> Plan --emit--> object

Enters: a path and `Options`. Leaves: a `Bundle`. Invariant: each stage's checker has passed before the next stage begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from aot.backends import BACKENDS, LIBRARIES
from aot.backends.library import library_backend, library_functions, require_free, with_library
from aot.bundle import Bundle, Port
from aot.c.bundle import emit_c
from aot.c.support import Foreign
from aot.describe import check_stack, describe_entry, describe_load
from aot.errors import CompileError, located
from aot.fitting import Attempt, fit
from aot.glow import APIS, Api, require_glow, require_one_entry
from aot.graph import tflite
from aot.graph.ir import Graph, Model, Shape
from aot.graph.operator import Operator
from aot.graph.ops import OPERATORS
from aot.graph.ops.firmware import require_declared_shapes, require_functions
from aot.graph.passes import PASSES, run_passes
from aot.graph.passes.memory import widen_variables
from aot.graph.shapes import fix_shapes
from aot.instrument import KINDS, Kind, instrument_of, require_instrument
from aot.llvm.calls import require_foreign
from aot.llvm.isolation import isolated
from aot.llvm.module import EmittedObject, EntrySource, emit_bundle
from aot.lower.build import build_program
from aot.lower.expose import expose
from aot.lower.fuse import LOWER_PASSES, LowerPasses, fuse
from aot.lower.implementation import Backend
from aot.lower.lifetime import Io, in_workspace
from aot.lower.loaded import Loaded, choose_loaded
from aot.lower.plan import Plan
from aot.lower.program import Program
from aot.lower.pushed import push_input
from aot.lower.state import StateLayout, initial_program, lay_out_state
from aot.lower.tradeoff import OPTIMIZE, Goal, Optimize
from aot.models import names_of, read_files, require_distinct, require_distinct_regions, with_models
from aot.names import choose, require_regions, unique_identifiers
from aot.offers import offers
from aot.paging import require_pages
from aot.planning import plan_program, plan_programs, require_threads
from aot.pointers import reader, workers
from aot.recipe import record
from aot.target import Target, host_target, is_packaged, load_target, triple_target

Observer = Callable[[str, object], None]
Emit = Literal["object", "c", "both"]
EMIT: tuple[Emit, ...] = ("object", "c", "both")
MAX_COMPUTED_NBYTES = 1 << 27
MAX_STACK_NBYTES = 1024


@dataclass(frozen=True)
class Options:
    """What to compile for, and how.

    target: CPU name, path of a .yaml, or a Target; triple: any LLVM triple instead; neither: this machine.
    backend: name (default: cmsis-nn for a Cortex-M, else generic). name: of the bundle (default: the file's). shapes: by input label.
    weights: embedded or separate. io: caller or workspace. optimize: speed, balanced, size or ram. max_flash_nbytes: the most that code,
    weights and tables may take together. max_workspace_nbytes: the most the workspace may have.
    max_stack_nbytes: the most stack that an entry may take (by default nothing is asked of code for this machine or a Cortex-A, which have plenty).
    custom: the firmware's C functions by the custom code that they compute (`docs/custom.md`).
    kernels: native (code of our own) or library (calls of the back end's library where it computes the same bytes: CMSIS-NN for cmsis-nn,
    `docs/library.md`; Cadence's for hifi-ref, `docs/hifi.md`). None: library for hifi-ref, native for all others.
    share_workspace: several models run one after another in one workspace, as large as the one that needs most.
    page_weights_nbytes: constants come in pages, of which so many bytes are there at once, through a function of the caller's.
    stream_input: the input comes row by row (`NAME_begin`, `NAME_push_rows`, `NAME_end` instead of `NAME_run`), and is not stored as a whole.
    regions: sizes in bytes of the memories that the workspace is in, by name, the fastest first: entries take a pointer to each of them.
    weights_in: the region that constants are copied into before the first run, those that are read most, as many as fit.
    threads: layers are divided in so many parts, which a function of the caller's may run at once.
    api: native, or that of Glow's bundles: one function over three blocks, whose sizes are macros (glow) or in a constant (glow-dynamic);
    weights are separate then.
    emit: an object, or C files of the same meaning for any compiler (`docs/c.md`), or both. None: an object; for a CPU that LLVM has no
    code generator for C, and where a triple is named beside it both.
    instrument: what entries tell of their layers while they run (`docs/instrument.md`); cycle_counter: address of a 32-bit counter instead
    of the DWT unit's, for `cycles`.
    expose: every intermediate buffer becomes a further output (for finding the layer that differs).
    """

    target: str | Target | None = None
    triple: str | None = None
    backend: str | None = None
    name: str | None = None
    shapes: Mapping[str, Shape] = field(default_factory=dict[str, Shape])
    weights: Literal["embedded", "separate"] = "embedded"
    io: Io = "caller"
    optimize: Optimize = "balanced"
    max_flash_nbytes: int | None = None
    max_workspace_nbytes: int | None = None
    max_stack_nbytes: int = MAX_STACK_NBYTES
    position_independent: bool = False
    fuse: bool = True
    inplace: bool = True
    custom: Mapping[str, str] = field(default_factory=dict[str, str])
    kernels: Literal["native", "library"] | None = None
    share_workspace: bool = False
    stream_input: bool = False
    page_weights_nbytes: int | None = None
    regions: Mapping[str, int] = field(default_factory=dict[str, int])
    weights_in: str | None = None
    threads: int = 1
    api: Api = "native"
    emit: Emit | None = None
    instrument: Kind | None = None
    cycle_counter: int | None = None
    expose: bool = False


@dataclass(frozen=True)
class Lowered:
    """A model as Programs, one for each of its entries (symbol, graph as read), and what else emitting it needs.

    backends: for each Program. state: where the variables lie.
    """

    name: str
    model: Model
    entries: tuple[tuple[str, Graph], ...]
    programs: tuple[Program, ...]
    backends: tuple[Backend, ...]
    state: StateLayout


def compile(
    path: str | Path | Sequence[str | Path],
    target: str | Target | None = None,
    *,
    options: Options | None = None,
    observer: Observer | None = None,
) -> Bundle:
    """Compile the model at `path`, or several models into one object (`Bundle.models`). `target` is short for `options.target`.
    `observer(stage, result)` sees each stage's result.

    Raises CompileError (the model or the options) or InternalError (a fault of ours).
    """
    options = options or Options()
    options = replace(options, target=target) if target is not None else options
    asked = options
    choose("weights", options.weights, ("embedded", "separate"))
    choose("io", options.io, ("caller", "workspace"))
    choose("optimize", options.optimize, OPTIMIZE)
    if options.kernels is not None:
        choose("kernels", options.kernels, ("native", "library"))
    if options.emit is not None:
        choose("emit", options.emit, EMIT)
    choose("api", options.api, APIS)
    if options.instrument is not None:
        choose("instrument", options.instrument, KINDS)
    observe: Observer = observer or (lambda stage, result: None)
    chosen, backend = resolve_target(options)
    options = replace(options, kernels=kernels_of(options, backend), emit=emission_of(options, chosen))
    if options.stream_input and options.kernels == "library":
        raise CompileError("--stream-input is for --kernels native: functions of a library need the whole image")
    require_pages(options)
    require_threads(options)
    require_functions(options.custom)
    require_regions(options.regions)
    if options.weights_in is not None:
        if not options.regions:
            raise CompileError(f"--weights-in {options.weights_in} needs regions, which --region NAME=BYTES names")
        choose("region", options.weights_in, options.regions)
    require_c(options, backend)
    if options.api != "native":
        require_glow(options)
        options = replace(options, weights="separate")
    require_instrument(options, chosen)
    paths = [path] if isinstance(path, str | Path) else list(path)
    models = read_files(paths, OPERATORS, options.custom)
    for model in models:
        observe("read", model.main)
    bundle = compile_models(models, [Path(each).name for each in paths], chosen, backend, options, observe)
    return replace(bundle, options=record(asked))


def compile_model(model: Model, target: Target, backend: Backend, options: Options, observe: Observer) -> Bundle:
    """Compile a model that has been read: every entry, then one object."""
    return compile_models([model], [""], target, backend, options, observe)


def compile_models(
    models: Sequence[Model], files: Sequence[str], target: Target, backend: Backend, options: Options, observe: Observer
) -> Bundle:
    """Compile models that have been read into one object. files: what errors call them."""
    options = replace(options, kernels=kernels_of(options, backend), emit=emission_of(options, target))
    name, names = names_of(models, options.name)
    with located(files[0] if len(files) == 1 else ""):
        for each in dict.fromkeys((name, *names)):
            require_foreign(options.custom.values(), each, target)
            if calls_library(options, backend):
                require_free(LIBRARIES[backend.name], each, options.custom.values())
    graphs = [graph for model in models for graph in model.graphs]
    lowered: list[Lowered] = []
    for file, model, each in zip(files, models, names, strict=True):
        with located(file):
            lowered.append(lower_model(each, model, graphs, target, backend, options, observe))
    require_together(options, len(models))
    if options.api != "native":
        entries, state_nbytes = sum(len(each.entries) for each in lowered), sum(each.state.nbytes for each in lowered)
        require_one_entry(options, name, entries, state_nbytes)
    symbols = {each.name: [symbol for symbol, _ in each.entries] for each in lowered}
    require_distinct(name, symbols, options.weights_in is not None)
    require_distinct_regions([name, *(symbol for each in symbols.values() for symbol in each)], options.regions)
    with located(files[0] if len(files) == 1 else ""):
        return emit_models(name, lowered, target, backend, options, observe)


def require_c(options: Options, backend: Backend) -> None:
    """CompileError for what C files can't have: kernels that are no C, limits on what only an object shows."""
    if options.emit == "object":
        return
    if not backend.portable:
        raise CompileError(f"kernels of {backend.name} are not C", hint="--backend generic is")
    if options.threads > 1:
        raise CompileError("--threads is for objects: C files have no parts of layers")
    if options.emit == "both":
        return
    if options.max_flash_nbytes is not None:
        raise CompileError("--max-flash is for objects: how large code is that another compiler makes is not known")
    if options.max_stack_nbytes != MAX_STACK_NBYTES:
        raise CompileError("--max-stack is for objects: how much stack code takes that another compiler makes is not known")
    if options.position_independent:
        raise CompileError("--pic is for objects: whether C is position-independent, its compiler is told")


def require_together(options: Options, models: int) -> None:
    """CompileError if several models can't have what only one has a place for."""
    if options.weights_in is not None and models > 1 and not options.share_workspace:
        raise CompileError(
            "--weights-in is for one model, or for several that share their regions", hint="--share-workspace lets them share"
        )


def lower_model(
    name: str, model: Model, graphs: Sequence[Graph], target: Target, backend: Backend, options: Options, observe: Observer
) -> Lowered:
    """A model as Programs. graphs: those of all models, whose inputs the shapes in the options are for."""
    library = LIBRARIES[backend.name] if calls_library(options, backend) else None
    operators = OPERATORS if library is None else with_library(library, OPERATORS, target)
    entries = entry_graphs(model, name, options.weights_in is not None)
    several = len(entries) > 1
    prepared = [prepare(graph, shapes_of(graph, graphs, options), observe, several) for _, graph in entries]
    programs = [lower(graph, options, observe, operators, backend.passes) for graph in prepared]
    backends = [backend if library is None else library_backend(library, backend, graph, target) for graph in prepared]
    return Lowered(name, model, entries, tuple(programs), tuple(backends), lay_out_state(programs))


def emit_models(
    name: str, lowered: Sequence[Lowered], target: Target, backend: Backend, options: Options, observe: Observer
) -> Bundle:
    """Choose kernels, plan and emit the entries of all models together."""
    programs = [program for each in lowered for program in each.programs]
    backends = [chosen for each in lowered for chosen in each.backends]
    offered = offers(programs, backends, target, options)

    declarations = LIBRARIES[backend.name].declarations if calls_library(options, backend) else None

    def attempt(goal: Goal) -> Attempt:
        """The bundle with the kernels that are best for this goal; where what is wanted does not fit, of all that there are."""
        plans, estimate_nbytes = plan_programs(offered, goal, options, observe)
        loaded = None if options.weights_in is None else choose_loaded(plans, options.weights_in)
        rest = iter(plans)
        sources = [source for each in lowered for source in entry_sources(each, rest, target, backend, options, loaded)]
        return Attempt(sources, emit(name, target, sources, options, loaded, declarations), estimate_nbytes, loaded)

    advice = "--backend generic may take less" if backend.kernels and not calls_library(options, backend) else ""
    made = fit(attempt, offered.goal, options.max_flash_nbytes, advice)
    emitted = made.emitted
    observe("emit", emitted)
    graphs = {symbol: graph for each in lowered for symbol, graph in each.entries}
    entries = [describe_entry(source, emitted, graphs.get(source.symbol), options) for source in made.sources]
    plenty = target.is_host or "neon" in target.has
    if emitted.stack and not (plenty and options.max_stack_nbytes == MAX_STACK_NBYTES):
        for source, entry in zip(made.sources, entries, strict=True):
            check_stack(source, entry, emitted, options)
    instructions = [instruction for program in offered.programs for instruction in program.instructions]
    library = library_functions(instructions)
    bundle = Bundle(
        name=name,
        backend=backend.name,
        target=target,
        optimize=options.optimize,
        object=emitted.object,
        sources=emitted.sources,
        entries=tuple(entry for entry in entries if not entry.initialises),
        code_nbytes=emitted.code_nbytes,
        weights_nbytes=emitted.weights_nbytes,
        weights=emitted.weights,
        pages=emitted.pages,
        io_in_workspace=options.io == "workspace",
        functions=tuple(function for function in emitted.functions if function not in library),
        library=library,
        library_notes=LIBRARIES[backend.name].notes_for(name, instructions) if library else None,
        glow=emitted.glow,
        load=describe_load(name, made.loaded, emitted),
    )
    return with_models(bundle, lowered, entries, options.share_workspace)


def entry_sources(
    lowered: Lowered, plans: Iterator[Plan], target: Target, backend: Backend, options: Options, loaded: Loaded | None
) -> list[EntrySource]:
    """The entries of a model; the plans of its Programs are the next ones."""
    state = lowered.state
    sources: list[EntrySource] = []
    for symbol, _ in lowered.entries:
        plan = next(plans)
        given = ports(plan.schedule.program, plan, target, options)
        sources.append(EntrySource(symbol, plan, *given, state, loaded=loaded, instrument=instrument_of(options)))
    if state.nbytes:
        plain = replace(options, regions={}, page_weights_nbytes=None, threads=1)
        first = plan_program(initial_program(state), target, backend, plain, lambda stage, result: None)
        laid_out = replace(state, offsets={"state": 0})
        sources.append(EntrySource(f"{lowered.name}_init", first, (), (), laid_out, initialises=True))
    return sources


def prepare(graph: Graph, shapes: Mapping[str, Shape], observe: Observer, shares_variables: bool = False) -> Graph:
    """Fix dynamic shapes, then run the graph passes. `shapes`: by input label or name. Variables that several entries share stay as they are."""
    without = (widen_variables,) if shares_variables else ()
    fixed = fix_shapes(graph, shapes, OPERATORS)
    require_declared_shapes(graph, fixed)
    return run_passes(fixed, OPERATORS, observe, without)


def shapes_of(graph: Graph, graphs: Sequence[Graph], options: Options) -> Mapping[str, Shape]:
    """The shapes in the options that are for this graph, of all graphs; the first also gets those that are for none, and refuses them."""
    mine = _input_names(graph)
    others = {name for each in graphs if each is not graph for name in _input_names(each)}
    return {name: shape for name, shape in options.shapes.items() if name in mine or (graph is graphs[0] and name not in others)}


def _input_names(graph: Graph) -> set[str]:
    return {text for name in graph.inputs for text in (name, graph[name].label)}


def lower(
    graph: Graph,
    options: Options,
    observe: Observer,
    operators: Mapping[str, Operator] = OPERATORS,
    passes: LowerPasses = LOWER_PASSES,
) -> Program:
    """Graph -> Program of groups."""
    program = build_program(graph, operators)
    program.verify()
    observe("build_program", program)
    fused = fuse(program, observe, passes) if options.fuse else program
    check_size(fused)
    fused = push_input(fused) if options.stream_input else fused
    return expose(fused) if options.expose else fused


def emit(
    name: str,
    target: Target,
    sources: Sequence[EntrySource],
    options: Options,
    loaded: Loaded | None = None,
    declarations: Mapping[str, Foreign] | None = None,
) -> EmittedObject:
    """The object, in a process of its own for a target that is not one of the package's; or C files, or both. declarations: of functions
    of a library that these may call."""
    files: EmittedObject | None = None
    if options.emit in ("c", "both"):
        files = emit_c(name, target, sources, weights=options.weights, io=options.io, loaded=loaded, declarations=declarations)
        if options.emit == "c":
            return files
    emitting = partial(
        emit_bundle,
        name,
        target,
        sources,
        weights=options.weights,
        io=options.io,
        position_independent=options.position_independent,
        loaded=loaded,
        api=options.api,
    )
    made = emitting() if is_packaged(target) else isolated(emitting, target.triple)
    return made if files is None else replace(made, sources=files.sources)


def stage_names() -> tuple[str, ...]:
    """Every name that an observer is called with, in order: what --dump-after and --stop-after take."""
    longest = max((backend.passes for backend in BACKENDS.values()), key=len)
    passes = tuple(entry[0].__name__ for entry in (*PASSES, *longest))
    return (
        "read",
        *dict.fromkeys(passes[: len(PASSES)]),
        "build_program",
        *dict.fromkeys(passes[len(PASSES) :]),
        "schedule",
        "plan",
        "emit",
    )


def resolve_target(options: Options) -> tuple[Target, Backend]:
    """The target and back end that the options mean. CompileError where they do not fit together."""
    if options.backend is not None:
        choose("back end", options.backend, BACKENDS)
    if options.triple is not None:
        target = triple_target(options.triple)
        target = replace(target, has=target.has | _dsp(options))
    elif isinstance(options.target, Target):
        target = options.target
    elif options.target is not None:
        target = load_target(options.target)
    elif options.backend and (cpu := BACKENDS[options.backend].default_cpu):
        target = load_target(cpu)
    else:
        target = host_target()
    cortex_m = target.cpu.startswith("cortex-m")
    neon = "neon" in target.has
    usual = "cmsis-nn" if cortex_m else "neon" if neon else "hifi-ref" if "hifi" in target.has else "generic"
    backend = BACKENDS[options.backend or usual]
    if backend.name == "cmsis-nn" and not cortex_m:
        raise CompileError(f"back end cmsis-nn is for Cortex-M CPUs, not {target.name}", hint="use --backend generic")
    if backend.name == "neon" and not neon:
        raise CompileError(
            f"back end neon is for Cortex-A CPUs with Advanced SIMD, not {target.name}", hint="use --backend generic"
        )
    if backend.name not in LIBRARIES and options.kernels == "library":
        known = " or ".join(LIBRARIES)
        raise CompileError(f"--kernels library is for the back end {known}, not {backend.name}", hint="name a Cortex-M with --cpu")
    return target, backend.on(target)


def _dsp(options: Options) -> frozenset[str]:
    """What is asked of code for a triple by the DSP that is named beside it, whose library it calls. CompileError for another CPU."""
    if not isinstance(options.target, str):
        return frozenset()
    dsp = load_target(options.target)
    if dsp.emits == "object":
        raise CompileError("--cpu and --target exclude each other", hint="a CPU implies its triple")
    return dsp.has & {"hifi", "hifi5"}


def emission_of(options: Options, target: Target) -> Emit:
    """What is to be written, where nothing is said. CompileError for an object that LLVM can't make."""
    if target.emits == "c":
        if options.emit not in (None, "c"):
            hint = "--emit c; or --target TRIPLE beside --cpu, for an object that calls the same functions"
            raise CompileError(f"LLVM has no code generator for {target.name}", hint=hint)
        return "c"
    return options.emit or ("both" if "hifi" in target.has else "object")


def kernels_of(options: Options, backend: Backend) -> Literal["native", "library"]:
    """Whose kernels: where nothing is said, the library's for a back end that has none of its own."""
    return options.kernels or ("library" if backend.name in LIBRARIES and not backend.kernels else "native")


def calls_library(options: Options, backend: Backend) -> bool:
    return kernels_of(options, backend) == "library"


def entry_graphs(model: Model, name: str, loads: bool = False) -> tuple[tuple[str, Graph], ...]:
    """(symbol, graph) of each entry: NAME_run for the main graph, NAME_SIGNATURE_run for each further signature's own graph."""
    entries = [(f"{name}_run", model.main)]
    further = [signature for signature in model.signatures if signature.graph != 0]
    # taken: NAME_INIT_STACK_SIZE is NAME_init's, and NAME_LOAD_STACK_SIZE NAME_load's
    keys = unique_identifiers((signature.key for signature in further), "signature", taken=("init", "load") if loads else ("init",))
    for key, signature in zip(keys, further, strict=True):
        entries.append((f"{name}_{key}_run", model.graphs[signature.graph]))
    return tuple(entries)


def check_size(program: Program) -> None:
    """CompileError if the values that are computed take more bytes together than can be planned, and checked, in reasonable time."""
    computed = [buffer for buffer in program.buffers if buffer.base is None and buffer.role != "constant"]
    if (nbytes := sum(buffer.nbytes for buffer in computed)) > MAX_COMPUTED_NBYTES:
        largest = max(computed, key=lambda buffer: buffer.nbytes)
        raise CompileError(
            f"inputs and results of all layers would take {nbytes} bytes together, more than {MAX_COMPUTED_NBYTES}",
            hint=f"the largest is '{largest.label or largest.name}' with {largest.nbytes}",
        )


def ports(program: Program, plan: Plan, target: Target, options: Options) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    """The program's inputs and outputs as C parameters; no two share a name."""
    buffers = [program[name] for name in (*program.inputs, *program.outputs)]
    roles = ["input"] * len(program.inputs) + ["output"] * len(program.outputs)
    texts = [re.sub(r":0$", "", buffer.label) or role for buffer, role in zip(buffers, roles, strict=True)]
    instrument = instrument_of(options)
    told = () if instrument is None else instrument.pointers(1)
    callers = (*reader() * (options.page_weights_nbytes is not None), *workers() * (options.threads > 1), *told)
    taken = [*options.regions, *(pointer.name for pointer in callers)]
    made: list[Port] = []
    for name, buffer in zip(unique_identifiers(texts, "tensor", taken), buffers, strict=True):
        placed = in_workspace(program[program.storage(buffer.name)], options.io)
        offset = plan.offset_of[program.storage(buffer.name)] if placed else 0
        region = plan.region_at(offset)
        align = buffer.dtype.nbytes if target.pointer_bits == 64 else min(4, buffer.dtype.nbytes)
        port = Port(name, buffer.label, buffer.dtype, buffer.shape, buffer.quantisation, align)
        made.append(replace(port, workspace_offset=offset - region.start, pointer=region.name) if placed else port)
    return tuple(made[: len(program.inputs)]), tuple(made[len(program.inputs) :])


def read_main_graph(path: str | Path, options: Options) -> Graph:
    """The model's main graph as read, with its shapes fixed: what the interpreter runs."""
    model = tflite.read_file(path, OPERATORS, options.custom, must_use=False)
    return fix_shapes(model.main, shapes_of(model.main, model.graphs, options), OPERATORS)
