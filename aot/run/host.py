# pyright: basic
"""Runs a bundle for this machine in process.

Enters: a bundle, an entry, inputs. Leaves: `RunResult` without instructions or stack: a process can't measure them.
Invariant: every buffer lies between guards that are checked after the run. What reads or writes further away is not seen here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np
from llvmlite import binding

from aot.bundle import Bundle, Entry
from aot.errors import InternalError
from aot.run import memory
from aot.run.callbacks import Callbacks, Function
from aot.run.compiled import Compiled
from aot.run.memory import CONTEXT, OBSERVER, ON_LAYER, PARALLEL_FOR, POOL, READ, ROWS, Call, Placed
from aot.run.observer import OBSERVER as OBSERVER_VALUE
from aot.run.observer import Observer
from aot.run.reader import CONTEXT as CONTEXT_VALUE
from aot.run.reader import Reader
from aot.run.result import RunResult
from aot.run.workers import POOL as POOL_VALUE
from aot.run.workers import Workers

_GUARD_NBYTES = 4096
Engine = binding.ExecutionEngine | Compiled
NO_FUNCTIONS: Mapping[str, Function] = {}


def run(
    bundle: Bundle,
    entry: Entry,
    inputs: Sequence[np.ndarray],
    functions: Mapping[str, Function] = NO_FUNCTIONS,
    push_rows: int = 1,
) -> RunResult:
    """Load the object, run the entry twice with other garbage in outputs and workspace, and compare. Where its layers are in parts, they
    run one after the other in the first run, in any order, and on threads in the second.

    push_rows: rows that are pushed at a time, where the entry takes its input so.
    functions: what the object calls of the firmware, by name. What one of them raises is raised here.
    """
    callbacks = Callbacks({name: functions[name] for name in bundle.functions})
    engine = Compiled(bundle, callbacks.addresses) if bundle.is_c else _load(bundle.object, callbacks.addresses)
    first, second = (_run(bundle, entry, inputs, engine, seed, callbacks, push_rows) for seed in (1, 2))
    memory.same_outputs(entry, first[0], second[0])
    outputs, read_nbytes, contents, told = first
    cycles = memory.cycles_of(entry, contents)
    return RunResult(outputs, None, None, None, "host", read_nbytes=read_nbytes, cycles=cycles, told=told)


def _load(data: bytes, symbols: Mapping[str, int]) -> binding.ExecutionEngine:
    """An engine that holds the object's code. Keep it as long as the code may be called. `symbols`: addresses of what it lacks."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_triple(binding.get_process_triple()).create_target_machine()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    engine.add_object_file(binding.ObjectFileRef.from_data(data))
    for name, address in symbols.items():
        binding.add_symbol(name, address)
    engine.finalize_object()
    return engine


def _run(
    bundle: Bundle,
    entry: Entry,
    inputs: Sequence[np.ndarray],
    engine: Engine,
    seed: int,
    callbacks: Callbacks,
    push_rows: int,
) -> tuple[tuple[np.ndarray, ...], int | None, Mapping[str, bytes], tuple[tuple[int, bool], ...] | None]:
    """One run: the outputs, the bytes of weights that it read, if they do, what regions hold, and what it told of its layers.
    InternalError if a call returned an error, or wrote outside its regions."""
    regions, calls = memory.arguments(bundle, entry, inputs, seed, push_rows)
    keep = [np.empty(region.nbytes + 2 * _GUARD_NBYTES + 2 * region.align, np.uint8) for region in regions]
    placed = {region.name: _placed(region, block, seed) for region, block in zip(regions, keep, strict=True)}
    for one in placed.values():
        ctypes.memmove(one.start, one.image, one.end - one.start)
    addresses: dict[str, int] = {}
    reader = Reader(bundle, entry, placed, seed == 2, _write) if entry.paging else None
    function = reader.c_function() if reader else None
    if function:
        addresses = {READ: ctypes.cast(function, ctypes.c_void_p).value or 0, CONTEXT: CONTEXT_VALUE}
    workers = Workers(entry.threads, threads=seed == 2)
    observer = Observer(entry)
    addresses |= {PARALLEL_FOR: workers.address, POOL: POOL_VALUE, ON_LAYER: observer.address, OBSERVER: OBSERVER_VALUE}
    for call in calls:
        code = _call(engine, call, placed, addresses, at_end=seed == 1)
        if reader is not None and reader.raised is not None:
            raise reader.raised
        if workers.raised is not None:
            raise workers.raised
        if callbacks.raised is not None:
            raise callbacks.raised
        pages = {name: ctypes.string_at(one.start, one.end - one.start) for name, one in placed.items()}
        for name, one in placed.items():
            one.check(pages[name])
        if code:
            raise InternalError(f"{call.symbol} returned {code}")
    if reader is not None:
        reader.check()
    observer.check()
    contents = {name: one.content(pages[name]) for name, one in placed.items()}
    told = tuple(observer.told) if entry.tells else None
    return memory.outputs(bundle, entry, contents), reader.nbytes if reader else None, contents, told


def _write(address: int, content: bytes) -> None:
    ctypes.memmove(address, content, len(content))


def _call(engine: Engine, call: Call, placed: dict[str, Placed], others: Mapping[str, int], at_end: bool) -> int:
    """What a function returns. others: what is passed beside regions.
    Rows are put in their place before: at the end of their region or at its start."""
    function = engine.get_function_address(call.symbol)
    if not function:
        raise InternalError(f"the object has no function {call.symbol}")
    addresses = {**{name: one.address for name, one in placed.items()}, **others}
    if ROWS in call.arguments:
        placed[ROWS], addresses[ROWS] = placed[ROWS].with_rows(call.rows, at_end)
        ctypes.memmove(placed[ROWS].start, placed[ROWS].image, placed[ROWS].end - placed[ROWS].start)
    types = [ctypes.c_void_p if isinstance(one, str) else ctypes.c_uint32 for one in call.arguments]
    values = [addresses[one] if isinstance(one, str) else one for one in call.arguments]
    return ctypes.CFUNCTYPE(ctypes.c_int, *types)(function)(*values)


def _placed(region: memory.Region, block: np.ndarray, seed: int) -> Placed:
    """The region within `block`, at an address that is a multiple of its alignment but not of twice that."""
    double = 2 * region.align
    address = -(-(block.ctypes.data + _GUARD_NBYTES) // double) * double + region.align
    end = address + region.nbytes + _GUARD_NBYTES - double
    return Placed(region, address, address - _GUARD_NBYTES, end, 0xA5 if seed == 1 else 0x3C)
