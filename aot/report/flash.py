# pyright: basic
"""What a bundle takes of flash: code by function, constants by layer.

Enters: a Bundle. Leaves: a dictionary that is JSON.
Invariant: the parts of code add up to `code_bytes`; those of constants, less what is stored once for several layers, to `weights_bytes`
(and `pages_bytes`): what no symbol or layer has is a part of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aot.graph.primitive import Contract
from aot.llvm import elf
from aot.llvm.constants import content

if TYPE_CHECKING:
    from aot.bundle import Bundle, Entry


def function_sizes(bundle: Bundle) -> dict[str, int]:
    """Bytes of each function in the object; of none, where another compiler makes it."""
    return elf.functions(bundle.object) if bundle.object else {}


def flash(bundle: Bundle) -> dict[str, Any]:
    """`code`: functions, the largest first; `constants`: layers in their order; each with what is left over."""
    constants = [one for number, entry in enumerate(bundle.entries) for one in _constants(number, entry)]
    stored = bundle.weights_nbytes + (0 if bundle.pages is None else len(bundle.pages))
    shared = _shared_nbytes(bundle)
    return {
        "code": _code(bundle),
        "constants": constants,
        "shared_constants_bytes": shared,
        "other_constants_bytes": stored + shared - sum(one["bytes"] for one in constants),
    }


def _shared_nbytes(bundle: Bundle) -> int:
    """Bytes of constants that are those of another one, and not stored again."""
    plans = [entry.plan for entry in bundle.entries if entry.plan is not None]
    found = [
        content(constant)
        for plan in plans
        for position in plan.schedule.kernel_positions
        for constant in plan.schedule.choices[position].implementation.constants
    ]
    return sum(map(len, found)) - sum(map(len, set(found)))


def _code(bundle: Bundle) -> list[dict[str, Any]]:
    """kind: layer (a layer's own function), entry (what the firmware calls), shared (called by several), other (literals, padding)."""
    sizes = function_sizes(bundle)
    layers = {layer.symbol: (at, number) for at, entry in enumerate(bundle.entries) for number, layer in enumerate(entry.layers)}
    called = {function for entry in bundle.entries for function in entry.functions}
    called |= {part.init.symbol for part in bundle.parts if part.init} | ({bundle.load.symbol} if bundle.load else set())
    found = []
    for symbol, nbytes in sorted(sizes.items(), key=lambda one: (-one[1], one[0])):
        kind = "layer" if symbol in layers else "entry" if symbol in called else "shared"
        at, number = layers.get(symbol, (None, None))
        found.append({"symbol": symbol, "kind": kind, "entry": at, "layer": number, "bytes": nbytes})
    if sizes and (rest := bundle.code_nbytes - sum(sizes.values())):
        found.append({"symbol": None, "kind": "other", "entry": None, "layer": None, "bytes": rest})
    return found


def _constants(number: int, entry: Entry) -> list[dict[str, Any]]:
    """Each layer that has constants: weights where it multiplies by them, else tables."""
    found = []
    for at, layer in enumerate(entry.layers):
        if not layer.constant_nbytes:
            continue
        weights = layer.macs > 0
        if entry.plan is not None:
            chosen = entry.plan.schedule.choices[entry.plan.schedule.kernel_positions[at]].implementation
            weights = weights or isinstance(chosen.instruction, Contract)
        found.append({"entry": number, "layer": at, "kind": "weights" if weights else "tables", "bytes": layer.constant_nbytes})
    return found
