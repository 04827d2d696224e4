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
from aot.run.memory import Placed
from aot.run.result import RunResult

_GUARD_NBYTES = 4096
NO_FUNCTIONS: Mapping[str, Function] = {}


def run(bundle: Bundle, entry: Entry, inputs: Sequence[np.ndarray], functions: Mapping[str, Function] = NO_FUNCTIONS) -> RunResult:
    """Load the object, call the entry twice with other garbage in outputs and workspace, and compare.

    functions: what the object calls of the firmware, by name. What one of them raises is raised here.
    """
    callbacks = Callbacks({name: functions[name] for name in bundle.functions})
    engine = _load(bundle.object, callbacks.addresses)
    address = engine.get_function_address(entry.symbol)
    if not address:
        raise InternalError(f"the object has no function {entry.symbol}")
    first, second = (_call(bundle, entry, inputs, address, seed, callbacks) for seed in (1, 2))
    memory.same_outputs(entry, first, second)
    return RunResult(first, None, None, None, "host")


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


def _call(
    bundle: Bundle, entry: Entry, inputs: Sequence[np.ndarray], address: int, seed: int, callbacks: Callbacks
) -> tuple[np.ndarray, ...]:
    """One call: the outputs. InternalError if it returned an error, or wrote outside its regions."""
    regions = memory.arguments(bundle, entry, inputs, seed)
    keep = [np.empty(region.nbytes + 2 * _GUARD_NBYTES + 2 * region.align, np.uint8) for region in regions]
    placed = [_placed(region, block, seed) for region, block in zip(regions, keep, strict=True)]
    for one in placed:
        ctypes.memmove(one.start, one.image, one.end - one.start)
    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * len(placed))(address)
    code = function(*(one.address for one in placed))
    if callbacks.raised is not None:
        raise callbacks.raised
    pages = [ctypes.string_at(one.start, one.end - one.start) for one in placed]
    for one, held in zip(placed, pages, strict=True):
        one.check(held)
    if code:
        raise InternalError(f"{entry.symbol} returned {code}")
    return memory.outputs(bundle, entry, [one.content(held) for one, held in zip(placed, pages, strict=True)])


def _placed(region: memory.Region, block: np.ndarray, seed: int) -> Placed:
    """The region within `block`, at an address that is a multiple of its alignment but not of twice that."""
    double = 2 * region.align
    address = -(-(block.ctypes.data + _GUARD_NBYTES) // double) * double + region.align
    end = address + region.nbytes + _GUARD_NBYTES - double
    return Placed(region, address, address - _GUARD_NBYTES, end, 0xA5 if seed == 1 else 0x3C)
