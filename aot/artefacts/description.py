"""A bundle for machines: what NAME.json holds.

Enters: a Bundle. Leaves: a dictionary that is JSON. Invariant: sizes are bytes, and say so in their names.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aot.artefacts.layers import layer_names
from aot.artefacts.provenance import bill_of_materials
from aot.bundle import Bundle, Entry, Layer, Load, Port, Variant
from aot.instrument import Tensor
from aot.llvm.llvm import versions
from aot.lower.memory import Memory
from aot.lower.plan import Region
from aot.pointers import Pointer
from aot.version import VERSION


def describe(bundle: Bundle) -> dict[str, Any]:
    """The bundle for machines: what NAME.json holds, but for `files`, the hashes of all other files."""
    return {
        "schema": 1,
        "aot": VERSION,
        **versions(),
        "name": bundle.name,
        "model_sha256": bundle.model_sha256 or None,
        "models": [_describe_model(model) for model in bundle.parts],
        "backend": bundle.backend,
        "target": {"name": bundle.target.name, "triple": bundle.target.triple, "cpu": bundle.target.cpu},
        "options": dict(bundle.options),
        "optimize": bundle.optimize,
        "emit": "c" if bundle.is_c else "both" if bundle.sources else "object",
        "object_bytes": len(bundle.object),
        "code_bytes": bundle.code_nbytes,
        "weights_bytes": bundle.weights_nbytes,
        "weights": "paged" if bundle.pages is not None else "embedded" if bundle.weights is None else "separate",
        **({"pages_bytes": len(bundle.pages)} if bundle.pages is not None else {}),
        "io": "workspace" if bundle.io_in_workspace else "caller",
        "workspace_bytes": bundle.workspace_nbytes,
        "workspace_shared": bundle.shares_workspace,
        "load": _describe_load(bundle.load),
        **_describe_state(bundle),
        "functions": list(bundle.functions),
        "library": _describe_library(bundle),
        **_describe_glow(bundle),
        "entries": [_describe_entry(entry) for entry in bundle.entries],
        "sbom": bill_of_materials(bundle),
    }


def _describe_library(bundle: Bundle) -> dict[str, Any] | None:
    """The library that must be linked, and which functions of it."""
    notes = bundle.library_notes
    if notes is None or not bundle.library:
        return None
    return {"name": notes.name, "versions": notes.versions, "functions": list(bundle.library)}


def _describe_model(model: Bundle) -> dict[str, Any]:
    """One of a bundle's models: what it needs while it runs, and what is kept of it."""
    return {
        "name": model.name,
        "model_sha256": model.model_sha256,
        "entries": [entry.symbol for entry in model.entries],
        "workspace_bytes": model.workspace_nbytes,
        **_describe_state(model),
    }


def _describe_state(model: Bundle) -> dict[str, Any]:
    """The state of a model; of several together only its bytes."""
    return {
        "state_bytes": model.state_nbytes,
        "state_align": max((each.init.state_align for each in model.parts if each.init), default=1),
        "init": model.init.symbol if model.init else None,
        "init_stack_bytes": max((each.init.stack_nbytes or 0 for each in model.parts if each.init), default=0),
    }


def _describe_glow(bundle: Bundle) -> dict[str, Any]:
    """The blocks of Glow's interface; nothing where the bundle has its own."""
    glow = bundle.glow
    if glow is None:
        return {}
    blocks = {
        "symbol": glow.symbol,
        "config": glow.config if glow.dynamic else None,
        "constant_bytes": glow.constant_nbytes,
        "mutable_bytes": glow.mutable_nbytes,
        "activations_bytes": glow.activations_nbytes,
        "align": glow.align,
        "placeholders": [{"name": each.name, "offset": each.offset, "elements": each.elements} for each in glow.placeholders],
    }
    return {"glow": blocks}


def _describe_entry(entry: Entry) -> dict[str, Any]:
    return {
        "symbol": entry.symbol,
        "workspace_bytes": entry.workspace_nbytes,
        "workspace_align": entry.workspace_align,
        "state_bytes": entry.state_nbytes,
        "regions": [_describe_region(region, pointer) for region, pointer in zip(entry.regions, entry.workspaces, strict=False)],
        "stack_bytes": entry.stack_nbytes,
        "scratch_bytes": entry.scratch_nbytes,
        "lower_bound_bytes": entry.lower_bound_nbytes,
        "memory": describe_memory(entry.memory) if entry.memory is not None else None,
        "inputs": [_describe_port(port) for port in entry.inputs],
        "outputs": [_describe_port(port) for port in entry.outputs],
        "layers": [_describe_layer(layer, entry.threads) for layer in entry.layers],
        "buffers": _describe_buffers(entry),
        "stream": _describe_stream(entry),
        **_describe_paging(entry),
        **({"threads": entry.threads} if entry.threads > 1 else {}),
        **_describe_instrument(entry),
    }


def _describe_region(region: Region, pointer: Pointer) -> dict[str, Any]:
    """A memory that a part of the workspace is in; `bytes` is what the caller provides, weights that are loaded there included."""
    return {
        "name": region.name,
        "bytes": pointer.nbytes,
        "align": pointer.align,
        "workspace_bytes": region.nbytes,
        "most_bytes": region.size_nbytes,
    }


def _describe_load(load: Load | None) -> dict[str, Any] | None:
    """What copies weights into a region."""
    if load is None:
        return None
    return {
        "symbol": load.symbol,
        "region": load.loaded.region,
        "offset": load.loaded.offset,
        "bytes": load.loaded.nbytes,
        "stack_bytes": load.stack_nbytes,
    }


def describe_memory(memory: Memory) -> dict[str, Any]:
    """A workspace for machines: its gap to the lower bound, what sets its peak, which layers run by rows."""
    peak = memory.peak
    return {
        "workspace_bytes": memory.workspace_nbytes,
        "lower_bound_bytes": memory.lower_bound_nbytes,
        "gap_bytes": memory.workspace_nbytes - memory.lower_bound_nbytes,
        "regions": [
            {"name": region.name, "workspace_bytes": region.nbytes, "most_bytes": region.size_nbytes} for region in memory.regions
        ],
        "segments": memory.segments,
        "layers_by_rows": memory.layers_by_rows,
        "steps_by_rows": memory.steps,
        "peak": None
        if peak is None
        else {
            "layer": peak.layer,
            "rows": None if peak.rows is None else list(peak.rows),
            "bytes": peak.nbytes,
            "shared_bytes": peak.shared_nbytes,
            "buffers": [
                {"name": one.name, "label": one.label, "bytes": one.nbytes, "rows": one.rows, "of_rows": one.of_rows}
                for one in peak.held
            ],
        },
    }


def _describe_stream(entry: Entry) -> dict[str, Any] | None:
    """The functions of an entry whose input comes row by row."""
    stream = entry.stream
    if stream is None:
        return None
    functions = {"begin": stream.begin, "push_rows": stream.push, "end": stream.end}
    return {**functions, "rows": stream.rows, "row_bytes": stream.row_nbytes}


def _describe_paging(entry: Entry) -> dict[str, Any]:
    """What a run reads of the weights; nothing where they do not come in pages."""
    paging = entry.paging
    if paging is None:
        return {}
    figures = {"pages": paging.pages, "calls": paging.calls, "read_bytes": paging.read_nbytes}
    return {"paging": {"window_bytes": paging.window_nbytes, **figures}}


def _describe_instrument(entry: Entry) -> dict[str, Any]:
    """What the entry tells of its layers; nothing where it tells nothing."""
    if entry.instrument is None:
        return {}
    told: dict[str, Any] = {"kind": entry.instrument.kind, "names": list(layer_names(entry))}
    if entry.instrument.kind == "cycles":
        told["counter"] = entry.instrument.counter
    if entry.instrument.kind == "dump":
        told["tensors"] = [_describe_tensor(tensor) for tensor in entry.tensors]
    return {"instrument": told}


def _describe_tensor(tensor: Tensor) -> dict[str, Any]:
    return {
        "layer": tensor.layer,
        "label": tensor.label,
        "dtype": str(tensor.dtype),
        "shape": list(tensor.shape),
        "argument": tensor.argument,
        "offset": tensor.offset,
        "bytes": tensor.nbytes,
    }


def _describe_port(port: Port) -> dict[str, Any]:
    quantisation = port.quantisation
    return {
        "name": port.name,
        "label": port.label,
        "dtype": str(port.dtype),
        "shape": list(port.shape),
        "bytes": port.nbytes,
        "align": port.align,
        "scales": [float(np.float32(scale)) for scale in quantisation.scales] if quantisation else [],
        "zero_points": list(quantisation.zero_points) if quantisation else [],
        "workspace_offset": port.workspace_offset,
        "region": port.pointer if port.workspace_offset is not None and port.pointer != "workspace" else None,
    }


def _describe_layer(layer: Layer, threads: int) -> dict[str, Any]:
    return {
        "symbol": layer.symbol,
        "kernel": layer.kernel,
        "nodes": list(layer.nodes),
        "operators": list(layer.operators),
        "output_shape": list(layer.out_shape),
        "macs": layer.macs,
        "constant_bytes": layer.constant_nbytes,
        "scratch_bytes": layer.scratch_nbytes,
        "notes": list(layer.notes),
        "declined": [{"kernel": kernel, "why": why} for kernel, why in layer.declined],
        "variants": [_describe_variant(variant) for variant in layer.variants],
        **({"parts": layer.parts, "why_whole": layer.why_whole} if threads > 1 else {}),
    }


def _describe_variant(variant: Variant) -> dict[str, Any]:
    return {
        "kernel": variant.kernel,
        "variant": variant.variant,
        "instructions": variant.instructions,
        "code_bytes": variant.code_nbytes,
        "constant_bytes": variant.constant_nbytes,
        "scratch_bytes": variant.scratch_nbytes,
        "why_not": variant.why_not,
    }


def _describe_buffers(entry: Entry) -> list[dict[str, Any]]:
    """Where each storage lies in the workspace or one of its regions, and during which steps (inclusive)."""
    plan = entry.plan
    if plan is None:
        return []
    found: list[dict[str, str | int | None]] = []
    for life in plan.lifetimes:
        region = plan.region_at(plan.offset_of[life.name])
        place = {"region": region.name if plan.regions else None, "offset": plan.offset_of[life.name] - region.start}
        steps = {"first_step": life.first, "last_step": life.last}
        found.append({"name": life.name, **place, "bytes": life.nbytes, **steps})
    return found
