"""A sample for a bundle: C that runs its model once on a given input, and says which output is largest.

Enters: a Bundle, and inputs (or none: zeros). Leaves: NAME_sample.c and NAME_sample.h, with the weights beside them where they are
separate.
Invariant: C99 that is C++ as well, but for NAME_sample.c; arrays hold exactly the given bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aot.artefacts.contents import environment
from aot.artefacts.header import c_type, float_text
from aot.bundle import Bundle, Port
from aot.errors import CompileError
from aot.graph.ir import DType
from aot.pointers import Pointer

_PER_LINE = 16
_SUFFIXES = {DType.INT64: "ll", DType.UINT64: "ull", DType.UINT32: "u"}


def sample_files(bundle: Bundle, inputs: Sequence[np.ndarray], expected: int | None) -> dict[str, str]:
    """The sample's files by name. expected: the class that it must find, if that is known."""
    entry = bundle.main
    model = bundle.model_of(entry)
    pointers = bundle.pointers(entry)
    memories = {pointer.name: f"memory_{number}" for number, pointer in enumerate(entry.workspaces)}
    view: dict[str, Any] = {
        "bundle": bundle,
        "name": bundle.name,
        "NAME": bundle.name.upper(),
        "PREFIX": entry.prefix.upper(),
        "entry": entry,
        "inputs": [
            _port(port, array_text(array, port.dtype))
            for port, array in zip(entry.inputs, inputs or _zeros(entry.inputs), strict=True)
        ],
        "outputs": [_port(port, "") for port in entry.outputs],
        "input_names": [f"input_{i}" for i in range(len(entry.inputs))],
        "output_names": [] if bundle.io_in_workspace else [f"output_{i}" for i in range(len(entry.outputs))],
        "memories": list(zip(memories.values(), entry.workspaces, strict=True)),
        "memory_of": {port.name: memories.get(port.pointer, "") for port in (*entry.inputs, *entry.outputs)},
        "spaces": [_argument(pointer, memories) for pointer in entry.workspaces],
        "rest": [_argument(pointer, memories) for pointer in pointers[len(entry.workspaces) :]],
        "init": model.init,
        "init_arguments": [_argument(pointer, memories) for pointer in bundle.pointers(model.init)] if model.init else [],
        "loads": _loads(bundle, memories),
        "weights": bundle.weights if bundle.weights is not None else bundle.pages,
        "counts": entry.instrument is not None and not entry.tells,
        "pages": bundle.pages is not None,
        "expected": expected,
    }
    files = {f"{bundle.name}_sample.{ending}": _render(f"sample.{ending}.j2", view) for ending in ("c", "h")}
    if view["weights"] is not None:
        files[f"{bundle.name}_weights.h"] = array_text(np.frombuffer(view["weights"], np.uint8), DType.UINT8) + "\n"
    return files


def array_text(array: np.ndarray, dtype: DType) -> str:
    """The elements of an array as C initialisers, some on each line; never none."""
    texts = [_number(value, dtype) for value in array.reshape(-1).tolist()] or ["0"]
    lines = [", ".join(texts[start : start + _PER_LINE]) for start in range(0, len(texts), _PER_LINE)]
    return ",\n".join(lines)


def _number(value: float, dtype: DType) -> str:
    if dtype.is_float:
        if not np.isfinite(value):
            raise CompileError("the sample's input is not finite, and has no name in C")
        return float_text(value) + "f"
    if value == -(1 << 63):
        return f"{value + 1}ll - 1"
    return f"{int(value)}{_SUFFIXES.get(dtype, '')}"


def _zeros(ports: Sequence[Port]) -> list[np.ndarray]:
    """What stands for the real number 0 in each."""
    return [np.full(port.shape, port.quantisation.zero_point if port.quantisation else 0, port.dtype.np) for port in ports]


def _port(port: Port, values: str) -> dict[str, Any]:
    elements = port.nbytes // port.dtype.nbytes
    return {
        "name": port.name,
        "c_type": c_type(port.dtype),
        "elements": elements,
        "room": max(elements, 1),
        "align": port.align,
        "values": values,
    }


def _argument(pointer: Pointer, memories: dict[str, str]) -> str:
    """What the sample passes for a pointer."""
    if pointer.role == "workspace":
        return memories[pointer.name]
    return {"state": "state", "weights": "weights", "read": "read_weights", "cycles": "cycles"}.get(pointer.role, "0")


def _loads(bundle: Bundle, memories: dict[str, str]) -> list[str]:
    """The arguments of NAME_load."""
    if bundle.load is None:
        return []
    return [memories[bundle.load.loaded.region], *(["weights"] if bundle.weights is not None else [])]


def _render(template: str, view: dict[str, Any]) -> str:
    return environment().get_template(f"packages/{template}").render(view)
