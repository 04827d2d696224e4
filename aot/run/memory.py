"""The memory that a caller gives to an entry, and how a runner lays it out.

Enters: a bundle, an entry, inputs. Leaves: `Region`s in argument order, `Placed` regions, outputs.
Invariant: a region is never closer to another than a gap, and every byte around it within its pages holds a known guard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from aot.bundle import Bundle, Entry, Load, Port
from aot.errors import CompileError, InternalError
from aot.pointers import Pointer


@dataclass(frozen=True)
class Region:
    """Memory behind one pointer. `content`: its first `nbytes` bytes; what is not given to the entry is garbage."""

    name: str
    align: int
    writable: bool
    content: bytes

    @property
    def nbytes(self) -> int:
        return len(self.content)


@dataclass(frozen=True)
class Call:
    """One call of a function: `arguments` are regions by their names, and numbers. rows: what the region of rows holds meanwhile.
    prepares: it is none of the run, but comes once before the first."""

    symbol: str
    arguments: tuple[str | int, ...]
    rows: bytes = b""
    prepares: bool = False


WEIGHTS = "the weights"
PAGES = "the file of weights"
"""Name of the region that a function which runs on the board itself reads pages from."""
READ, CONTEXT = "the read", "the ctx"
"""Arguments that are no regions: the function that reads weights, and its context."""
PARALLEL_FOR, POOL = "the parallel_for", "the pool"
"""Also: the function that runs the parts of a layer, and what it is passed."""
ON_LAYER, OBSERVER = "the on_layer", "the observer"
"""Also: the function that is told of layers, and what it is passed."""
CYCLES = "the cycles"
"""Name of the region that counters of layers lie in."""
NO_FUNCTIONS = {PARALLEL_FOR: 0, POOL: 0, ON_LAYER: 0, OBSERVER: 0}
"""What emulators pass where they have no such function: an entry that is passed null runs the parts itself, and tells nobody."""
ROWS = "the rows"
"""Name of the region that rows of a pushed input lie in."""


@dataclass(frozen=True)
class Placed:
    """A region at `address`, within whole pages [start, end) that hold nothing else but the guard."""

    region: Region
    address: int
    start: int
    end: int
    guard: int

    @property
    def image(self) -> bytes:
        """Contents of the pages before the run."""
        before, after = self.address - self.start, self.end - self.address - self.region.nbytes
        return bytes([self.guard]) * before + self.region.content + bytes([self.guard]) * after

    def holding(self, content: bytes) -> Placed:
        """The same place with other contents of the same size."""
        return replace(self, region=replace(self.region, content=content))

    def with_rows(self, rows: bytes, at_end: bool) -> tuple[Placed, int]:
        """The same place with rows at its end, or at its start, and nothing else of what it held before; and their address."""
        rest = bytes(byte ^ 0xFF for byte in self.region.content[: self.region.nbytes - len(rows)])
        held = self.holding(rest + rows if at_end else rows + rest)
        return held, self.address + (len(rest) if at_end else 0)

    def content(self, pages: bytes) -> bytes:
        """The region's bytes, of those of its pages."""
        return pages[self.address - self.start : self.address - self.start + self.region.nbytes]

    def check(self, pages: bytes) -> None:
        """InternalError if the run changed a byte of the guard, or of a region that it may only read."""
        before = np.frombuffer(self.image, np.uint8)
        changed = np.flatnonzero(before != np.frombuffer(pages, np.uint8)) - (self.address - self.start)
        outside = changed[(changed < 0) | (changed >= self.region.nbytes)]
        if outside.size:
            raise InternalError(f"the code wrote {relation(int(outside[0]), self.region)} ({self.region.nbytes} bytes)")
        if changed.size and not self.region.writable:
            raise InternalError(f"the code wrote {relation(int(changed[0]), self.region)}, which is read-only")


def relation(offset: int, region: Region) -> str:
    """Where `offset` lies, relative to the region's first byte."""
    if offset < 0:
        return f"{_counted(-offset)} before the start of {region.name}"
    if offset >= region.nbytes:
        return f"{_counted(offset - region.nbytes + 1)} past the end of {region.name}"
    return f"at offset {offset} of {region.name}"


def _counted(nbytes: int) -> str:
    return "1 byte" if nbytes == 1 else f"{nbytes} bytes"


def arguments(
    bundle: Bundle, entry: Entry, inputs: Sequence[np.ndarray], seed: int, push_rows: int = 1, loads: bool = True
) -> tuple[tuple[Region, ...], tuple[Call, ...]]:
    """The regions behind the entry's pointers, in argument order, and the calls of a run. Outputs and workspace hold garbage that depends
    on `seed`.

    `inputs`: an array for each port; for an entry with state its bytes after them (none, where the entry initialises it: garbage).
    push_rows: rows that are pushed at a time, where the entry takes its input so; the first regions are the workspaces then.
    loads: NAME_load is the first call, if there is one; otherwise what it leaves is there.
    CompileError where they do not fit the entry.
    """
    regions, image = _regions(bundle, entry, inputs, seed, push_rows, loads)
    names = [region.name for region in regions if region.name != CYCLES]
    if entry.paging:
        names += [READ, CONTEXT]
    if entry.threads > 1:
        names += [PARALLEL_FOR, POOL]
    if entry.instrument is not None:
        names += [CYCLES] if entry.instrument.kind == "cycles" else [ON_LAYER, OBSERVER]
    before = [_load_call(bundle.load, names)] if bundle.load and loads and not entry.initialises else []
    if entry.stream is None:
        return regions, (*before, Call(entry.symbol, tuple(names)))
    stream, at = entry.stream, names.index(ROWS)
    first, rest = names[: len(entry.workspaces)], names[at + 1 :]
    calls = [*before, Call(stream.begin, (*first, *rest))]
    for row in range(0, stream.rows, push_rows):
        rows = image[row * stream.row_nbytes : (row + push_rows) * stream.row_nbytes]
        calls.append(Call(stream.push, (*first, ROWS, len(rows) // stream.row_nbytes, *rest), rows))
    return regions, (*calls, Call(stream.end, tuple(name for name in names if name != ROWS)))


def _load_call(load: Load, names: Sequence[str]) -> Call:
    return Call(load.symbol, (f"the {load.loaded.region}", *(name for name in names if name == WEIGHTS)), prepares=True)


def _regions(
    bundle: Bundle, entry: Entry, inputs: Sequence[np.ndarray], seed: int, push_rows: int, loads: bool
) -> tuple[tuple[Region, ...], bytes]:
    """The regions, and the bytes of the first input."""
    given = inputs[: len(inputs) - takes_state(entry)]
    contents = [_input_bytes(port, array) for port, array in zip(_expected(entry, given), given, strict=True)]
    garbage = np.random.default_rng(seed)
    held = {one.name: bytearray(garbage.bytes(one.nbytes)) for one in bundle.pointers(entry)}
    ports, stream = list[Region](), entry.stream
    if bundle.io_in_workspace and stream is None:
        for port, content in zip(entry.inputs, contents, strict=True):
            held[port.pointer][_offset(port) : _offset(port) + port.nbytes] = content
    elif stream is None:
        ports += [
            Region(port_name("input", entry, port), port.align, False, content)
            for port, content in zip(entry.inputs, contents, strict=True)
        ]
    if not bundle.io_in_workspace:
        ports += [Region(port_name("output", entry, port), port.align, True, garbage.bytes(port.nbytes)) for port in entry.outputs]
    if bundle.load and not loads and not entry.initialises:
        loaded = bundle.load.loaded
        held[loaded.region][loaded.offset : loaded.offset + loaded.nbytes] = bundle.load.image
    if takes_state(entry):
        held["state"][:] = inputs[-1].tobytes()
    if bundle.weights is not None:
        held["weights"][:] = bundle.weights
    own = [
        Region(region_name(one), one.align, one.role != "weights", bytes(held[one.name]))
        for one in bundle.pointers(entry)
        if one.role in ("workspace", "state", "weights", "cycles")
    ]
    if stream is None:
        return (*ports, *own), b"".join(contents)
    rows = Region(ROWS, entry.inputs[0].align, False, garbage.bytes(min(push_rows, stream.rows) * stream.row_nbytes))
    count = len(entry.workspaces)
    return (*own[:count], *ports, rows, *own[count:]), b"".join(contents)


def outputs(bundle: Bundle, entry: Entry, contents: Mapping[str, bytes]) -> tuple[np.ndarray, ...]:
    """The outputs, of what the regions of `arguments` hold after the run; after them the bytes of the state, if the entry has one."""
    found: list[np.ndarray] = []
    for port in () if entry.initialises else entry.outputs:
        if bundle.io_in_workspace:
            part = contents[f"the {port.pointer}"][_offset(port) : _offset(port) + port.nbytes]
        else:
            part = contents[port_name("output", entry, port)]
        found.append(np.frombuffer(part, port.dtype.np).reshape(port.shape).copy())
    if entry.state_nbytes:
        found.append(np.frombuffer(contents["the state"], np.uint8).copy())
    return tuple(found)


def cycles_of(entry: Entry, contents: Mapping[str, bytes]) -> tuple[int, ...] | None:
    """What each layer took, of what the regions hold after the run; None for an entry that does not count."""
    if entry.instrument is None or entry.instrument.kind != "cycles":
        return None
    return tuple(map(int, np.frombuffer(contents[CYCLES], "<u4")))


def region_name(pointer: Pointer) -> str:
    """What messages call the memory behind a pointer."""
    return f"the {pointer.name}"


def takes_state(entry: Entry) -> bool:
    """Whether a run of the entry goes on from a state."""
    return bool(entry.state_nbytes) and not entry.initialises


def same_outputs(entry: Entry, first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> None:
    """InternalError if two runs differ: then the code read what nobody had written."""
    names = [port_name("output", entry, port) for port in entry.outputs] + ["the state"] * bool(entry.state_nbytes)
    for name, a, b in zip(names, first, second, strict=True):
        if a.tobytes() != b.tobytes():
            raise InternalError(f"{name} depends on what memory held before the run: two runs that differ in that alone disagree")


def place(
    regions: Sequence[Region], base: int, *, page: int, gap: int, at_end: bool, guard: int, astray: bool = False
) -> tuple[Placed, ...]:
    """Each region on pages of its own, from `base` (page-aligned) on, `gap` bytes (a multiple of `page`) before each.

    at_end: the region ends where its last page ends (but for its alignment); otherwise it starts where its first page starts.
    astray: the region is aligned no better than it has to be, up to its alignment before that.
    """
    placed: list[Placed] = []
    for region in regions:
        start = base + gap
        spare = region.align if astray and region.nbytes else 0
        end = start + -(-(region.nbytes + spare) // page) * page
        address = (end - region.nbytes) // region.align * region.align if at_end else start
        if spare and address % (2 * spare) == 0:
            address -= spare
        placed.append(Placed(region, address, start, end, guard))
        base = end
    return tuple(placed)


def port_name(kind: str, entry: Entry, port: Port) -> str:
    """How messages call a port. Its label is the model's text, so it is left out."""
    ports = entry.inputs if kind == "input" else entry.outputs
    return f"{kind} {ports.index(port)} '{port.name}'"


def _expected(entry: Entry, inputs: Sequence[np.ndarray]) -> tuple[Port, ...]:
    if len(inputs) != len(entry.inputs):
        raise CompileError(f"{entry.symbol} has {len(entry.inputs)} inputs, and {len(inputs)} were given")
    return entry.inputs


def _input_bytes(port: Port, array: np.ndarray) -> bytes:
    """The array's bytes; CompileError if it is not what the port takes."""
    array = np.asarray(array)
    if array.shape != port.shape or array.dtype != port.dtype.np:
        got, wanted = f"{array.dtype}{list(array.shape)}", f"{port.dtype.np}{list(port.shape)}"
        raise CompileError(f"the input is {got}, and the model takes {wanted}", where=f"input '{port.name}'")
    return np.ascontiguousarray(array).tobytes()


def _offset(port: Port) -> int:
    if port.workspace_offset is None:
        raise InternalError(f"port {port.name} has no offset in the workspace")
    return port.workspace_offset
