"""What the header says of each entry.

Enters: a Bundle and an Entry. Leaves: the dictionaries that `templates/bundle.h.j2` prints.
"""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np

from aot.bundle import Bundle, Entry, Port
from aot.graph.ir import DType
from aot.instrument import CYCCNT
from aot.pointers import Pointer

_C_TYPES = {DType.FLOAT32: "float", DType.BOOL: "uint8_t"}


def entry_view(bundle: Bundle, model: Bundle, entry: Entry) -> dict[str, Any]:
    """An entry of one of the bundle's models as the header template needs it."""
    prefix = entry.prefix
    ports = [_port_view(prefix, "input", i, port) for i, port in enumerate(entry.inputs)]
    ports += [_port_view(prefix, "output", i, port) for i, port in enumerate(entry.outputs)]
    parameters = (
        [] if bundle.io_in_workspace else [_parameter(port) for port in ports if not entry.stream or port["role"] == "output"]
    )
    spaces = [pointer.declaration for pointer in entry.workspaces]
    rest = [pointer.declaration for pointer in bundle.pointers(entry)[len(spaces) :]]
    parameters = [*spaces, *parameters, *rest] if entry.stream else [*parameters, *spaces, *rest]
    owner, whose = (bundle.name, "the models' own, of ") if bundle.shares_workspace else (prefix, "")
    comments = [
        f"{pointer.name}: {whose}{owner.upper()}_{pointer.name.upper()}_SIZE bytes, {_content(bundle, pointer)}."
        for pointer in entry.workspaces
    ]
    memories = comments
    if entry.stream:
        comments = ["No other model may run between begin and end: the workspace is shared."] if bundle.shares_workspace else []
    elif bundle.io_in_workspace:
        comments.append("Inputs are read from, and outputs left in, the workspace at the offsets above; inputs do not survive.")
        if bundle.shares_workspace:
            comments.append("A run of another model overwrites both: write inputs after it, and read outputs before it.")
    else:
        comments.append("Inputs are only read; the buffers must not overlap.")
    if entry.state_nbytes:
        comments.append(f"state: {model.name.upper()}_STATE_SIZE bytes that {model.name}_init has filled; the run changes them.")
    if entry.paging:
        what = f"read brings {entry.paging.read_nbytes} bytes of weights in {entry.paging.calls} calls"
        comments.append(f"{what}; it is passed ctx, which may be anything.")
    if entry.threads > 1:
        comments += [
            f"parallel_for: calls body(arg, part) once for each part below parts (at most {entry.threads}), in any order and on any threads, and",
            "returns when all have returned; it is passed pool, which may be anything. Null: the entry makes all parts itself.",
        ]
    comments += _instrument_comments(bundle, entry)
    if bundle.functions or bundle.library:
        macro = "CUSTOM" if bundle.functions else "LIBRARY"
        lost = f"outputs and state (call {model.name}_init)" if entry.state_nbytes else "outputs"
        comments.append(f"After {bundle.name.upper()}_ERROR_{macro} {lost} hold nothing useful.")
    return {
        "symbol": entry.symbol,
        "prefix": prefix,
        "PREFIX": prefix.upper(),
        "inputs": entry.inputs,
        "outputs": entry.outputs,
        "memory": _memory_comment(entry),
        "workspaces": entry.workspaces,
        "memories": memories,
        "stack_nbytes": entry.stack_nbytes,
        "ports": ports,
        "parameters": parameters,
        "comments": comments,
        "stream": entry.stream,
        "paging": entry.paging,
        "threads": entry.threads,
        "layers": len(entry.layers) if entry.instrument else None,
        "tells": entry.tells,
        "counter": entry.instrument.counter if entry.instrument and not entry.tells else None,
        "begin": [*spaces, *rest],
        "push": [*spaces, f"const {ports[0]['c_type']} *rows", "uint32_t n", *rest] if entry.stream else [],
    }


def _instrument_comments(bundle: Bundle, entry: Entry) -> list[str]:
    """What there is to say of what an entry tells of its layers."""
    if entry.instrument is None:
        return []
    prefix, table = entry.prefix, f"{bundle.name}_layers.h"
    if entry.tells:
        return [
            f"on_layer: called with before = 1 before and with 0 after each step of a layer, on this call's thread; layer numbers {prefix}_layers",
            f"({table}). A layer that runs by rows has several steps, between those of others. It is passed observer, which may be anything, and may",
            "read all memory of the run, but change none. Null: nothing is called.",
        ]
    counter = (
        "the cycle counter of the DWT unit" if entry.instrument.counter == CYCCNT else f"the word at {entry.instrument.counter:#x}"
    )
    said = [
        f"cycles: {prefix.upper()}_LAYERS counters, any content before; each then holds what its layer took, in all its steps, by {counter}, and",
        f"what reading that takes. {prefix}_layers says what they are ({table}). An interrupt's cycles are those of the layer that it comes in.",
    ]
    if entry.instrument.counter == CYCCNT:
        said += [
            "The counter must run: set bit 24 (TRCENA) of DEMCR, the word at 0xE000EDFC, then on a Cortex-M7 write 0xC5ACCE55 to DWT_LAR at",
            "0xE0001FB0, then set bit 0 (CYCCNTENA) of DWT_CTRL at 0xE0001000. It may go past zero at any time: differences are taken modulo 2^32,",
            "so that only a single step of a layer must take less than 2^32 cycles.",
        ]
    return said


def _content(bundle: Bundle, pointer: Pointer) -> str:
    """What a memory may hold before a run, and holds after it."""
    load = bundle.load
    if load is None or load.loaded.region != pointer.name or not load.loaded.nbytes:
        return "any content before and after"
    return f"any content before and after but from byte {load.loaded.offset} on, which {load.symbol} has filled"


def _memory_comment(entry: Entry) -> list[str]:
    """The lines that say what the workspace is needed for; names of tensors are left to NAME.json."""
    memory = entry.memory
    if memory is None or memory.peak is None:
        return []
    peak = memory.peak
    text = f"Workspace: {memory.gap_text}; most is needed in layer {peak.layer}{peak.rows_text}. Layers: {memory.segments}."
    if memory.regions:
        text += f" Regions: {memory.regions_text}."
    return textwrap.wrap(text, 110)


def _parameter(port: dict[str, Any]) -> str:
    const = "const " if port["role"] == "input" else ""
    return f"{const}{port['c_type']} *{port['name']}"


def _port_view(prefix: str, role: str, index: int, port: Port) -> dict[str, Any]:
    """A port as the header template needs it. Scales are given per tensor only; a per-axis port has no macro for them.
    converts: whether there is a function between it and real numbers; it reckons in 32 bits."""
    quantised = port.quantisation is not None and not port.quantisation.per_axis and port.dtype.is_integer
    low, high = port.dtype.limits if port.dtype.is_integer else (0, 0)
    zero_point = port.quantisation.zero_point if quantised and port.quantisation else 0
    return {
        "role": role,
        "index": index,
        "name": port.name,
        "dtype": str(port.dtype),
        "c_type": c_type(port.dtype),
        "shape": list(port.shape),
        "elements": port.nbytes // port.dtype.nbytes,
        "nbytes": port.nbytes,
        "align": port.align,
        "workspace_offset": port.workspace_offset,
        "pointer": port.pointer,
        "MACRO": f"{prefix}_{role}_{index}".upper(),
        "scale": float_text(port.quantisation.scale) if quantised and port.quantisation else None,
        "zero_point": zero_point if quantised else None,
        "converts": quantised and low - zero_point >= -(1 << 31) and high - zero_point < 1 << 31,
        "least": low - zero_point,
        "most": high - zero_point,
    }


def float_text(value: float) -> str:
    """A float32 as a C literal without suffix, exact on reading back."""
    shortest = str(np.float32(value))
    return shortest if any(char in shortest for char in ".e") else shortest + ".0"


def c_type(dtype: DType) -> str:
    """The C99 type of an element."""
    return _C_TYPES.get(dtype, f"{dtype}_t")
