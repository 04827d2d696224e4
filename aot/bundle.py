"""Bundle: what compilation leaves, in memory. `aot/artefacts.py` writes it as files; `aot/run` executes it.

Enters: emitted objects and plans (from the driver). Leaves: `Port`, `Entry`, `Layer`, `Bundle`.
Invariant: sizes are what the firmware must provide, not estimates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from aot.graph.ir import DType, Graph, Node, Quantisation, Shape
from aot.pointers import Pointer, ordered, reader, state, weights, workers, workspaces

if TYPE_CHECKING:
    from aot.glow import Glow
    from aot.instrument import Instrument, Tensor
    from aot.lower.loaded import Loaded
    from aot.lower.memory import Memory
    from aot.lower.plan import Plan, Region
    from aot.target import Target


@dataclass(frozen=True)
class Port:
    """An input or output of an entry. `name` is a C identifier; `workspace_offset` (bytes) only with `--io workspace`: from which of the
    entry's pointers on, `pointer` says."""

    name: str
    label: str
    dtype: DType
    shape: Shape
    quantisation: Quantisation | None
    align: int
    workspace_offset: int | None = None
    pointer: str = "workspace"

    @property
    def nbytes(self) -> int:
        size = self.dtype.nbytes
        for dim in self.shape:
            size *= dim
        return size


@dataclass(frozen=True)
class Variant:
    """A way to compute a layer, with what its kernel expects of it (code: shared code counts in full), and why it was not taken ("" if it
    was)."""

    kernel: str
    variant: str
    instructions: int
    code_nbytes: int
    constant_nbytes: int
    scratch_nbytes: int
    why_not: str = ""


@dataclass(frozen=True)
class Layer:
    """One step's kernel function: `symbol` is its local symbol in the object; `nodes` are numbers of model nodes it computes.

    variants: what there was to choose from, where there was a choice. parts: how many calls make its rows, which may run at once; why_whole:
    why it is not divided, where layers are.
    """

    symbol: str
    kernel: str
    nodes: tuple[int, ...]
    operators: tuple[str, ...]
    out_shape: Shape
    macs: int
    constant_nbytes: int
    scratch_nbytes: int
    notes: tuple[str, ...] = ()
    declined: tuple[tuple[str, str], ...] = ()
    variants: tuple[Variant, ...] = ()
    parts: int = 1
    why_whole: str = ""


@dataclass(frozen=True)
class Stream:
    """How an entry takes its input row by row: `rows` rows of `row_nbytes` bytes.

    `int BEGIN(void *workspace[, const void *weights])` starts anew, `int PUSH(void *workspace, const T *rows, uint32_t n[, weights])` takes
    the next n rows, `int END(void *workspace, outputs...[, weights])` leaves the outputs, once all have come. Errors are those of `Entry`,
    and -4 for rows too many or too few, before anything is touched. local: the function that runs the steps.
    """

    begin: str
    push: str
    end: str
    local: str
    rows: int
    row_nbytes: int


@dataclass(frozen=True)
class Paging:
    """How an entry's weights come: in `pages` pages, of which at most `window_nbytes` bytes are in the workspace at once. A run asks for
    `read_nbytes` bytes in `calls` calls, those included that only wait."""

    window_nbytes: int
    pages: int
    calls: int
    read_nbytes: int


@dataclass(frozen=True)
class Load:
    """`int SYMBOL(void *REGION[, const void *weights])` copies `image` into a region, once before the first run. Errors are those of
    `Entry`."""

    symbol: str
    loaded: Loaded
    image: bytes
    stack_nbytes: int | None


@dataclass(frozen=True)
class Entry:
    """A function of the bundle.

    `int SYMBOL(inputs..., outputs..., void *workspace[, void *state][, const void *weights][, read, ctx][, parallel_for, pool]
    [, on_layer, observer][, cycles])`;
    inputs and outputs are absent with `--io workspace`, the state where `state_nbytes` is 0. The one that `initialises` is
    `int SYMBOL(void *state[, const void *weights])`.
    Returns 0; -1 for a null pointer; -2 for a misaligned one, before anything is touched; -3 at once if a function of the firmware
    failed. stack_nbytes: None where it is not known, as of C. `nodes` are the model's, as read, and so is `graph`. memory: what its
    workspace is needed for; it numbers `layers`. stream: its functions instead,
    where the input comes row by row; `symbol` is `PUSH` then. paging: how its weights come, where they are read page by page through
    `int read(void *ctx, uint32_t offset, uint32_t size, void *dst)`; after another answer than 0 it returns -5 at once. regions: the
    memories that the workspace is in, if there are several: there is a pointer to each of them instead. loaded: the constants that are in
    one of them. threads: in how many parts layers are divided at most; where there are several, `parallel_for` runs them.
    instrument: what it tells of its layers; tensors: what they leave, for `--instrument dump`.
    """

    symbol: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    workspace_nbytes: int
    workspace_align: int
    stack_nbytes: int | None
    scratch_nbytes: int
    lower_bound_nbytes: int
    layers: tuple[Layer, ...]
    nodes: tuple[Node, ...] = ()
    graph: Graph | None = None
    plan: Plan | None = None
    state_nbytes: int = 0
    state_align: int = 1
    initialises: bool = False
    memory: Memory | None = None
    stream: Stream | None = None
    paging: Paging | None = None
    regions: tuple[Region, ...] = ()
    loaded: Loaded | None = None
    threads: int = 1
    instrument: Instrument | None = None
    tensors: tuple[Tensor, ...] = ()

    @property
    def tells(self) -> bool:
        """Whether it calls a function before and after each layer."""
        return self.instrument is not None and self.instrument.kind != "cycles"

    @property
    def prefix(self) -> str:
        """What the names of its functions begin with."""
        return self.symbol.removesuffix("_run") if self.stream is None else self.stream.begin.removesuffix("_begin")

    @property
    def functions(self) -> tuple[str, ...]:
        """Its global functions."""
        return (self.symbol,) if self.stream is None else (self.stream.begin, self.stream.push, self.stream.end)

    @property
    def workspaces(self) -> tuple[Pointer, ...]:
        """The memory that it works in."""
        return () if self.initialises else workspaces(self.workspace_nbytes, self.workspace_align, self.regions, self.loaded)


@dataclass(frozen=True)
class LibraryNotes:
    """What is to be said of a library that a bundle calls: its name, the releases that serve, how it is to be built, where its page is.

    reference: files that stand for the library where it is not at hand, by name: C99 of our own, with the same functions.
    check: a file by which the firmware asks the library whether the scratch planned for its functions is enough.
    """

    name: str
    versions: str
    build: str
    page: str
    reference: tuple[tuple[str, bytes], ...] = ()
    check: tuple[str, bytes] | None = None

    @property
    def files(self) -> tuple[tuple[str, bytes], ...]:
        """What comes with the bundle."""
        return (*self.reference, *([self.check] if self.check else []))


@dataclass(frozen=True, repr=False)
class Bundle:
    """An object file and what its user must know. `weights`: their bytes, with `--weights separate` (else they are in the object).
    pages: what `read` reads, with `--page-weights`.

    functions: C functions that the object calls and the firmware must provide: `int FUNCTION(const aot_custom_call *call)`.
    library: functions of a library that it calls, sorted, and what is to be said of it (`docs/library.md`, `docs/hifi.md`).
    models: where the object holds several models, each as a bundle of its own with the same object; `entries` are those of all.
    sources: C files by name, in the place of the object.
    shares_workspace: the models run one after another in one workspace. load: what brings weights into a region.
    glow: the blocks of Glow's interface, if the object has that instead.
    options: what it was compiled with, as `aot/recipe.py` records it.
    """

    name: str
    backend: str
    target: Target
    object: bytes
    entries: tuple[Entry, ...]
    code_nbytes: int
    weights_nbytes: int
    weights: bytes | None = None
    weights_align: int = 8
    io_in_workspace: bool = False
    model_sha256: str = ""
    init: Entry | None = None
    functions: tuple[str, ...] = ()
    optimize: str = "balanced"
    library: tuple[str, ...] = ()
    library_notes: LibraryNotes | None = None
    models: tuple[Bundle, ...] = ()
    shares_workspace: bool = False
    pages: bytes | None = None
    load: Load | None = None
    glow: Glow | None = None
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    options: Mapping[str, object] = field(default_factory=dict[str, Any])

    @property
    def is_c(self) -> bool:
        """Whether there is no object, but C files."""
        return bool(self.sources) and not self.object

    @property
    def parts(self) -> tuple[Bundle, ...]:
        """The models in the object, one or several."""
        return self.models or (self,)

    def model_of(self, entry: Entry) -> Bundle:
        """The model that an entry is of."""
        return next((model for model in self.models if entry in (*model.entries, model.init)), self)

    def pointers(self, entry: Entry) -> tuple[Pointer, ...]:
        """What an entry is passed besides its inputs and outputs, in order."""
        kept = (state(entry.state_nbytes, entry.state_align),) if entry.state_nbytes else ()
        constants = () if self.weights is None else (weights(len(self.weights), self.weights_align),)
        functions = (*(reader() if entry.paging else ()), *(workers() if entry.threads > 1 else ()))
        told = () if entry.instrument is None else entry.instrument.pointers(len(entry.layers))
        return ordered((*entry.workspaces, *kept, *constants, *functions, *told))

    @property
    def streams(self) -> bool:
        """Whether an entry takes its input row by row."""
        return any(entry.stream for entry in self.entries)

    @property
    def main(self) -> Entry:
        return self.entries[0]

    def __repr__(self) -> str:
        sizes = f"{self.code_nbytes} bytes of code, {self.weights_nbytes} of weights, workspace {self.workspace_nbytes}"
        return f"<Bundle {self.name} for {self.target.name}, back end {self.backend}: {sizes}>"

    @property
    def state_nbytes(self) -> int:
        """What the caller keeps for an instance of each model from one run to the next."""
        return sum(model.state_nbytes for model in self.models) + (0 if self.init is None else self.init.state_nbytes)

    @property
    def workspace_nbytes(self) -> int:
        """What the entries need: each model on its own, unless they share it."""
        if self.models and not self.shares_workspace:
            return sum(model.workspace_nbytes for model in self.models)
        return max(entry.workspace_nbytes for entry in self.entries)

    @property
    def workspace_align(self) -> int:
        return max(entry.workspace_align for entry in self.entries)

    @property
    def shared(self) -> tuple[Pointer, ...]:
        """The memory that models which share it need: of each workspace or region what the entry needs that needs most."""
        found: dict[str, Pointer] = {}
        for pointer in (pointer for entry in self.entries for pointer in entry.workspaces):
            other = found.setdefault(pointer.name, pointer)
            align = max(pointer.align, other.align)
            found[pointer.name] = replace(pointer, nbytes=max(pointer.nbytes, other.nbytes), align=align)
        return tuple(found.values())
