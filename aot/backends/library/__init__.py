"""Libraries that a bundle may call: whole layers by functions that the firmware links.

Enters: the table of operators, a target, a back end, a `Library`. Leaves: the table with lowerings that call the library where it computes
TFLite Micro's bytes; the back end with a kernel that emits such calls, and otherwise says why a node is none.
Invariant: what is lowered to a call and what is said to be none come from the same rows, `Library.functions`. The choice is made for each
node of the graph, before anything is fused: a library's functions do whole operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from aot.backends.library.call import Draft, LibraryCall, append_call, claim_call, library_call
from aot.bundle import LibraryNotes
from aot.c.support import Foreign
from aot.errors import CompileError
from aot.graph.ir import Graph, Site
from aot.graph.operator import Lowering, Operator
from aot.graph.primitive import Call, Primitive
from aot.lower.implementation import Backend, Implementation, Kernel
from aot.lower.program import Program
from aot.target import Target

_NAME = "library"


@dataclass(frozen=True)
class Function:
    """A row: how nodes of an operator become calls. draft(site, target): the call, or the calls in order of which each reads what the one
    before left in the node's output, or the sentence why there is none."""

    operator: str
    names: tuple[str, ...]
    draft: Callable[[Site, Target], Draft | tuple[Draft, ...] | str]


@dataclass(frozen=True)
class Library:
    """A library: what is to be said of it (its releases are those whose functions have the parameters and take the scratch that calls
    count on), and the rows that decide. check(name, instructions): the file of `LibraryNotes.check`, for a bundle of this name.
    declarations: of its functions, for C files that call them; of what has none here they are made from LLVM's types."""

    notes: LibraryNotes
    functions: tuple[Function, ...]
    check: Callable[[str, Sequence[Primitive]], tuple[str, bytes]] | None = None
    declarations: Mapping[str, Foreign] = field(default_factory=dict[str, Foreign])

    @property
    def name(self) -> str:
        return self.notes.name

    def notes_for(self, name: str, instructions: Sequence[Primitive]) -> LibraryNotes | None:
        """What is to be said of it to the user of a bundle; None where the bundle does not call it."""
        if not library_functions(instructions):
            return None
        return self.notes if self.check is None else replace(self.notes, check=self.check(name, instructions))

    def row(self, operator: str) -> Function | None:
        return next((row for row in self.functions if row.operator == operator), None)


def with_library(library: Library, operators: Mapping[str, Operator], target: Target) -> Mapping[str, Operator]:
    """The operators, of which those with a row lower to calls where they can."""

    def lower(original: Operator, row: Function, site: Site, lowering: Lowering) -> None:
        drafts = row.draft(site, target)
        if isinstance(drafts, str):
            original.lower(site, lowering)
            return
        for draft in drafts if isinstance(drafts, tuple) else (drafts,):
            append_call(draft, lowering)

    changed = {
        row.operator: replace(operators[row.operator], lower=partial(lower, operators[row.operator], row))
        for row in library.functions
    }
    return {**operators, **changed}


def library_backend(library: Library, backend: Backend, graph: Graph, target: Target) -> Backend:
    """The back end, asked after the library, for a graph that was lowered by `with_library`'s table."""
    refusals = {node.index: _refusal(library, graph.site(node), target) for node in graph.nodes}

    def claim(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
        if library_call(instruction) is not None:
            return claim_call(program, instruction, target)
        found = [refusals[number] for number in instruction.nodes if refusals.get(number)]
        return found[0] if found else f"no function of {library.name} is called for it"

    return replace(backend, kernels=(Kernel(_NAME, claim, f"calls of {library.name}"), *backend.kernels))


def _refusal(library: Library, site: Site, target: Target) -> str:
    row = library.row(site.node.op)
    if row is None:
        return f"no function of {library.name} is called for {site.node.op}"
    draft = row.draft(site, target)
    return draft if isinstance(draft, str) else ""


def require_free(library: Library, name: str, custom: Iterable[str]) -> None:
    """CompileError for a bundle whose own names could be the library's, and for functions of the firmware that have its names."""
    names = {function for row in library.functions for function in row.names}
    if any(function.lower().startswith(f"{name.lower()}_") for function in names):
        raise CompileError(f"a bundle that calls {library.name} can't be called '{name}'", hint="--name gives it another")
    if taken := sorted(names & set(custom)):
        raise CompileError(f"'{taken[0]}' is a function of {library.name}", hint="give the firmware's function another name")


def library_functions(instructions: Iterable[Primitive]) -> tuple[str, ...]:
    """The library's functions that instructions call, sorted."""
    calls = (each for each in instructions if isinstance(each, Call) and library_call(each) is not None)
    return tuple(sorted({call.kernel for call in calls}))


__all__ = [
    "Draft",
    "Function",
    "Library",
    "LibraryCall",
    "library_backend",
    "library_call",
    "library_functions",
    "require_free",
    "with_library",
]
