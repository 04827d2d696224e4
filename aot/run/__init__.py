"""Running bundles: in process, in Unicorn, on QEMU's boards or in its Linux processes, under Renode.

Enters: a bundle and inputs. Leaves: `RunResult`. Invariant: what is executed is the bundle's object, byte for byte.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from aot.bundle import Bundle, Entry
from aot.errors import CompileError, InternalError
from aot.run.callbacks import Function
from aot.run.memory import takes_state
from aot.run.reference import has_reference, with_reference
from aot.run.result import RunResult
from aot.run.trace import Tracing
from aot.target import Target

__all__ = [
    "RunResult",
    "default_where",
    "initial_state",
    "place_for",
    "place_of",
    "place_of_c",
    "require_functions",
    "require_pushes",
    "run_bundle",
    "where_names",
]

_WHERE = ("host", "unicorn", "qemu", "renode")
_REFERENCE = ("host", "qemu")
"""Places where a library's reference is compiled beside the bundle."""
_PUSHES = ("host", "unicorn")


def where_names() -> tuple[str, ...]:
    """The places to run that `run_bundle` knows, besides auto."""
    return _WHERE


def default_where(target: Target) -> str:
    """Where a target's code runs when nobody says: in process, in Unicorn, else on QEMU. CompileError if nowhere."""
    if target.is_host:
        return "host"
    for name in ("unicorn", "qemu", "renode"):
        if name in target.run:
            return name
    raise CompileError(f"no emulator runs code of target '{target.name}'", hint="bundle it, and run it on its own machine")


def place_for(target: Target, where: str) -> str:
    """`where`, or the default for auto. CompileError if there is no such place, or the target's code can't run there."""
    place = default_where(target) if where == "auto" else where
    if place not in _WHERE:
        raise CompileError(f"there is no place to run called '{place}'", hint=f"known: {', '.join(_WHERE)}")
    if (place == "host") != target.is_host or (place != "host" and place not in target.run):
        hint = "name an emulated CPU with --cpu" if target.is_host else f"use --on {default_where(target)}"
        raise CompileError(f"code of target '{target.name}' can't run on {place}", hint=hint)
    return place


def place_of(bundle: Bundle, where: str) -> str:
    """As `place_for`, or for C as `place_of_c`. CompileError where it does not run."""
    return place_of_c(bundle.target, where) if bundle.is_c else place_for(bundle.target, where)


def place_of_c(target: Target, where: str) -> str:
    """Where C for a target runs: on this machine; or under QEMU, where the target has nothing but C."""
    places = ("host", "qemu") if target.emits == "c" and "qemu" in target.run else ("host",)
    if where not in ("auto", *places):
        known = "this machine" if places == ("host",) else "this machine, and under QEMU"
        raise CompileError(f"C files are compiled and run on {known}, not on {where}", hint=f"use --on {' or '.join(places)}")
    return "host" if where == "auto" else where


def run_bundle(
    bundle: Bundle,
    inputs: Sequence[np.ndarray],
    where: str = "auto",
    entry: Entry | None = None,
    *,
    limit: int | None = None,
    state: bytes | None = None,
    functions: Mapping[str, Function] | None = None,
    tracing: Tracing = "none",
    push_rows: int = 1,
) -> RunResult:
    """Run an entry (the main one) once, on the inputs in the entry's order, each with its port's shape and dtype.

    where: auto, host, unicorn, qemu, renode. limit: instructions after which the code counts as hung.
    state: what the run before left (`RunResult.state`); None: NAME_init is run first, at the same place.
    functions: Python functions in the place of the firmware's, by their C names; on the host alone.
    push_rows: rows that are pushed at a time, where the entry takes its input row by row.
    tracing: what else Unicorn is to record of the run (`RunResult.trace`); on QEMU it asks for instructions layer by layer.
    CompileError: firmware functions that are missing here, inputs that do not fit, a place that does not suit the target or is not installed.
    InternalError: the code accessed memory outside its buffers, broke the call standard, hung, or returned an error.
    """
    entry = entry or bundle.main
    bundle = bundle.model_of(entry)
    place = place_of(bundle, where)
    if bundle.library and place in _REFERENCE and has_reference(bundle) and not bundle.is_c:
        bundle, entry = with_reference(bundle, entry)
    require_functions(bundle, place, functions or {})
    if entry.stream:
        require_pushes(place, bundle.target)
    limit = limit or 1_000_000_000 + 2_000 * sum(layer.macs for layer in entry.layers)
    if takes_state(entry):
        held = initial_state(bundle, where, functions) if state is None else state
        if len(held) != entry.state_nbytes:
            raise CompileError(f"the state given has {len(held)} bytes, that of {bundle.name} has {entry.state_nbytes}")
        inputs = [*inputs, np.frombuffer(held, np.uint8)]
    result = _run(place, bundle, entry, inputs, limit, functions or {}, tracing, push_rows)
    if not entry.state_nbytes:
        return result
    return replace(result, outputs=result.outputs[:-1], state=result.outputs[-1].tobytes())


def require_pushes(place: str, target: Target) -> None:
    """CompileError if rows of an input can't be pushed at this place."""
    if place not in _PUSHES and not _is_process(place, target):
        raise CompileError(f"an input that comes row by row can't be pushed on {place}", hint=f"use --on {' or '.join(_PUSHES)}")


def _is_process(place: str, target: Target) -> bool:
    """Whether code of the target runs in a Linux process there, not on a board."""
    return place == "qemu" and "program" in target.run["qemu"]


def require_functions(bundle: Bundle, place: str, functions: Collection[str] = ()) -> None:
    """CompileError if the object calls a library, or functions of the firmware that are not among these or can't be called at this place.
    A library whose reference is C of our own is called where that runs."""
    if bundle.library and not (place in _REFERENCE and has_reference(bundle)):
        name = "a library" if bundle.library_notes is None else bundle.library_notes.name
        what = f"{bundle.name} calls {name} ({', '.join(bundle.library)}): it must be linked with it to run"
        raise CompileError(what, hint="--link its archive; or --kernels native, which computes the same bytes")
    if missing := [name for name in bundle.functions if place != "host" or name not in functions]:
        what = f"{bundle.name} calls functions of the firmware ({', '.join(missing)}), so that it runs only there"
        raise CompileError(what, hint="--link their objects; from Python, Python functions can stand for them: docs/custom.md")


def initial_state(bundle: Bundle, where: str = "auto", functions: Mapping[str, Function] | None = None) -> bytes:
    """What NAME_init writes. InternalError for a bundle without state."""
    if bundle.init is None:
        raise InternalError(f"{bundle.name} has no state")
    state = run_bundle(bundle, [], where, bundle.init, functions=functions).state
    assert state is not None
    return state


def _run(
    place: str,
    bundle: Bundle,
    entry: Entry,
    inputs: Sequence[np.ndarray],
    limit: int,
    functions: Mapping[str, Function],
    tracing: Tracing,
    push_rows: int,
) -> RunResult:
    """Run an entry at a place; for one with state its bytes are the last of the inputs, and of the outputs."""
    if place == "host":
        from aot.run import host

        return host.run(bundle, entry, inputs, functions, push_rows)
    if place == "unicorn":
        from aot.run import emulate

        return emulate.run(bundle, entry, inputs, limit, tracing, push_rows)
    if place == "qemu" and bundle.is_c:
        from aot.run import xtensa

        return xtensa.run(bundle, entry, inputs, push_rows)
    if _is_process(place, bundle.target):
        from aot.run import process

        return process.run(bundle, entry, inputs, limit, push_rows)
    if place == "qemu":
        from aot.run import qemu

        return qemu.run(bundle, entry, inputs, limit, tracing)
    from aot.run import renode

    return renode.run(bundle, entry, inputs, limit)
