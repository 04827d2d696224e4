"""What NAME_layers.h says of an instrumented bundle: its layers, and the tensors that they leave.

Enters: a Bundle whose entries have an instrument. Leaves: the dictionaries that `templates/layers.h.j2` prints.
Invariant: no text of the model's stands in the file but as letters, digits and a few signs that end no string of C.
"""

from __future__ import annotations

import re
from typing import Any

from aot.bundle import Bundle, Entry
from aot.instrument import Tensor, fingerprint

_MOST_CHARACTERS = 80


def layers_view(bundle: Bundle) -> list[dict[str, Any]]:
    """Each instrumented entry as the template needs it."""
    return [_entry_view(entry) for entry in bundle.entries if entry.instrument is not None]


def layer_names(entry: Entry) -> tuple[str, ...]:
    """What each layer is called: the tensor that it leaves first."""
    if entry.plan is None:
        return tuple(layer.symbol for layer in entry.layers)
    schedule, program = entry.plan.schedule, entry.plan.schedule.program
    written = (schedule.choices[position].implementation.writes[0] for position in schedule.kernel_positions)
    owners = [program[program.storage(name)] for name in written]
    return tuple(owner.label or owner.name for owner in owners)


def _entry_view(entry: Entry) -> dict[str, Any]:
    layers = [
        {
            "name": string(name),
            "kernel": string(layer.kernel),
            "operators": string("+".join(layer.operators)),
            "macs": layer.macs,
            "shape": layer.out_shape,
        }
        for name, layer in zip(layer_names(entry), entry.layers, strict=True)
    ]
    tensors = [_tensor_view(tensor) for tensor in entry.tensors]
    return {
        "symbol": entry.symbol,
        "prefix": entry.prefix,
        "PREFIX": entry.prefix.upper(),
        "layers": layers,
        "tensors": tensors,
        "arguments": 1 + max((tensor.argument for tensor in entry.tensors), default=0),
        "rank": max(1, *(len(layer.out_shape) for layer in entry.layers), *(len(tensor.shape) for tensor in entry.tensors)),
        "fingerprint": f"{fingerprint(entry.tensors):08x}",
    }


def _tensor_view(tensor: Tensor) -> dict[str, Any]:
    return {
        "name": string(tensor.label),
        "layer": tensor.layer,
        "argument": tensor.argument,
        "offset": tensor.offset,
        "nbytes": tensor.nbytes,
        "dtype": str(tensor.dtype),
        "shape": tensor.shape,
    }


def string(text: str) -> str:
    """A text as a string of C."""
    return '"' + re.sub(r"[^A-Za-z0-9_.:;/+ -]", "_", text)[:_MOST_CHARACTERS] + '"'
