"""What an entry is passed besides its inputs and outputs, in the order of its C parameters.

Enters: the memory that an entry needs of its caller. Leaves: `Pointer`s.
Invariant: the emitted function, the header and the runners take names, order, sizes and alignments from here, and from nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from aot.lower.loaded import LOADED_ALIGN

if TYPE_CHECKING:
    from aot.lower.loaded import Loaded
    from aot.lower.plan import Region

Role = Literal["workspace", "state", "weights", "read", "context", "parallel", "pool", "hook", "observer", "cycles"]
"""workspace: of any content before and after a run. state: kept between runs. weights: read only. read: a function that reads weights;
context: what it is passed. parallel: a function that runs the parts of a layer; pool: what it is passed. hook: a function that is told of
layers; observer: what it is passed. cycles: counters, one for each layer."""
READER = "int (*read)(void *ctx, uint32_t offset, uint32_t size, void *dst)"
"""The function that reads weights, as a parameter in C."""
PARALLEL_FOR = "void (*parallel_for)(void *pool, uint32_t parts, void (*body)(void *arg, uint32_t part), void *arg)"
"""The function that runs the parts of a layer, as a parameter in C."""
ON_LAYER = "void (*on_layer)(void *observer, int layer, int before)"
"""The function that is told of layers, as a parameter in C."""
_DECLARED: Mapping[Role, str] = {"read": READER, "parallel": PARALLEL_FOR, "hook": ON_LAYER, "cycles": "uint32_t *cycles"}


@dataclass(frozen=True)
class Pointer:
    """A pointer to `nbytes` bytes of the caller's, aligned to `align` (to no bytes: it may be anything). `name` is the C parameter's."""

    name: str
    nbytes: int
    align: int
    role: Role = "workspace"

    @property
    def declaration(self) -> str:
        """The parameter in C."""
        return _DECLARED.get(self.role) or f"{'const ' if self.role == 'weights' else ''}void *{self.name}"


def workspaces(nbytes: int, align: int, regions: Sequence[Region] = (), loaded: Loaded | None = None) -> tuple[Pointer, ...]:
    """The workspace, or the regions that it is in; loaded: constants that are in one of them, too."""
    if not regions:
        return (Pointer("workspace", nbytes, align),)
    found: list[Pointer] = []
    for region in regions:
        holds = loaded is not None and loaded.region == region.name
        size, least = (loaded.offset + loaded.nbytes, max(align, LOADED_ALIGN)) if loaded and holds else (region.nbytes, align)
        found.append(Pointer(region.name, size, least))
    return tuple(found)


def state(nbytes: int, align: int) -> Pointer:
    return Pointer("state", nbytes, align, "state")


def weights(nbytes: int, align: int) -> Pointer:
    return Pointer("weights", nbytes, align, "weights")


def reader() -> tuple[Pointer, Pointer]:
    """The function that reads weights, and its context, which may be anything."""
    return Pointer("read", 1, 1, "read"), Pointer("ctx", 0, 1, "context")


def workers() -> tuple[Pointer, Pointer]:
    """The function that runs the parts of a layer, and what it is passed; both may be anything, null included."""
    return Pointer("parallel_for", 0, 1, "parallel"), Pointer("pool", 0, 1, "pool")


def hooks() -> tuple[Pointer, Pointer]:
    """The function that is told of layers, and what it is passed; both may be anything, null included."""
    return Pointer("on_layer", 0, 1, "hook"), Pointer("observer", 0, 1, "observer")


def counters(layers: int) -> tuple[Pointer]:
    """What each layer takes, 32 bits each."""
    return (Pointer("cycles", 4 * layers, 4, "cycles"),)


def ordered(pointers: Sequence[Pointer]) -> tuple[Pointer, ...]:
    """The pointers of an entry as its parameters are: workspaces, the state, the weights or what reads them, what runs parts, what is told."""
    roles: tuple[Role, ...] = get_args(Role)
    return tuple(sorted(pointers, key=lambda pointer: roles.index(pointer.role)))
