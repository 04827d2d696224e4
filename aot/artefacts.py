"""Writes a bundle as files: NAME.o (or NAME.c, NAME_weights.c), NAME.h, NAME.json, CMakeLists.txt (and NAME.weights.bin).

Enters: a Bundle and a folder. Leaves: the paths written. Invariant: all files appear, or none: a failure leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import textwrap
from importlib.resources import files as files_of_package
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from aot.bundle import Bundle, Entry, Layer, Load, Port, Variant
from aot.errors import CompileError
from aot.graph.ir import DType
from aot.lower.memory import Memory
from aot.lower.plan import Region
from aot.pointers import Pointer
from aot.version import VERSION

_CPU_CHECKS = (
    ("dsp", "defined(__ARM_FEATURE_DSP)", "DSP extension"),
    ("mve", "defined(__ARM_FEATURE_MVE) || defined(__ARM_ARCH_8_1M_MAIN__)", "Helium (MVE) extension"),
)
"""Abilities whose instructions may stand in an object, and how Arm compilers say that the core has them (ACLE; gcc without float
registers defines the architecture alone)."""
CUSTOM_HEADER = "aot_custom.h"
"""The structs of calls to the firmware's functions; the same for every bundle, so that several can share a folder."""
_C_TYPES = {DType.FLOAT32: "float", DType.BOOL: "uint8_t"}


def write(bundle: Bundle, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Write the bundle's files into `folder` (made if absent). Returns their paths. CompileError if that can't be done."""
    target = Path(folder)
    made = _missing_parents(target)
    try:
        target.mkdir(parents=True, exist_ok=True)
        return _write_all(target, files(bundle))
    except OSError as error:
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()
        reason = error.strerror or str(error)
        raise CompileError(f"can't write the bundle: {reason}", where=str(target), hint="name a writable folder with -o") from error


def _missing_parents(folder: Path) -> list[Path]:
    """The folders that writing will have to make, innermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


def _write_all(folder: Path, contents: dict[str, bytes]) -> tuple[Path, ...]:
    """Write to temporary names first, rename when all are complete."""
    pending: list[tuple[str, Path]] = []
    try:
        for name, content in contents.items():
            handle, temporary = tempfile.mkstemp(prefix=".aot-", dir=folder)
            pending.append((temporary, folder / name))
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
            os.chmod(temporary, 0o644)
        for _, path in pending:
            if path.is_dir():
                raise IsADirectoryError(21, f"{path.name} is a folder")
        for temporary, path in pending:
            os.replace(temporary, path)
    except BaseException:
        for temporary, _ in pending:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise
    return tuple(path for _, path in pending)


def files(bundle: Bundle) -> dict[str, bytes]:
    """The bundle's files by name. Deterministic: the same bundle gives the same bytes."""
    code = {name: text.encode() for name, text in bundle.sources.items()}
    code |= {} if bundle.is_c else {f"{bundle.name}.o": bundle.object}
    contents = {
        **code,
        f"{bundle.name}.h": _render("bundle.h.j2", bundle).encode(),
        f"{bundle.name}.json": (json.dumps(describe(bundle), indent=2) + "\n").encode(),
        "CMakeLists.txt": _render("CMakeLists.txt.j2", bundle).encode(),
    }
    if bundle.functions:
        contents[CUSTOM_HEADER] = (files_of_package("aot") / "templates" / CUSTOM_HEADER).read_bytes()
    if bundle.library_notes is not None:
        contents.update(bundle.library_notes.files)
    if bundle.weights is not None:
        contents[f"{bundle.name}.weights.bin"] = bundle.weights
    if bundle.pages is not None:
        contents[f"{bundle.name}.weights.bin"] = bundle.pages
    return contents


def _render(template: str, bundle: Bundle) -> str:
    environment = Environment(
        loader=PackageLoader("aot"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    models = [
        (
            model,
            [_entry_view(bundle, model, entry) for entry in model.entries],
            [pointer.declaration for pointer in bundle.pointers(model.init)] if model.init else [],
        )
        for model in bundle.parts
    ]
    checks = [check for ability, *check in _CPU_CHECKS if ability in bundle.target.has]
    template_ = environment.get_template(template)
    load = (
        ()
        if bundle.load is None
        else (f"void *{bundle.load.loaded.region}", *["const void *weights"] * (bundle.weights is not None))
    )
    return template_.render(
        bundle=bundle,
        version=VERSION,
        NAME=bundle.name.upper(),
        models=models,
        load=load,
        cpu_checks=checks,
    )


def _entry_view(bundle: Bundle, model: Bundle, entry: Entry) -> dict[str, Any]:
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
        "begin": [*spaces, *rest],
        "push": [*spaces, f"const {ports[0]['c_type']} *rows", "uint32_t n", *rest] if entry.stream else [],
    }


def _content(bundle: Bundle, pointer: Pointer) -> str:
    """What a memory may hold before a run, and holds after it."""
    loaded = None if bundle.load is None else bundle.load.loaded
    if loaded is None or loaded.region != pointer.name or not loaded.nbytes:
        return "any content before and after"
    return f"any content before and after but from byte {loaded.offset} on, which {bundle.load.symbol} has filled"  # type: ignore[union-attr]


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
    """A port as the header template needs it. Scales are given per tensor only; a per-axis port has no macro for them."""
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
        "least": low - zero_point,
        "most": high - zero_point,
        "low_text": f"({low})" if low < 0 else str(low),
        "high": high,
    }


def float_text(value: float) -> str:
    """A float32 as a C literal without suffix, exact on reading back."""
    shortest = str(np.float32(value))
    return shortest if any(char in shortest for char in ".e") else shortest + ".0"


def c_type(dtype: DType) -> str:
    """The C99 type of an element."""
    return _C_TYPES.get(dtype, f"{dtype}_t")


def describe(bundle: Bundle) -> dict[str, Any]:
    """The bundle for machines: what NAME.json holds."""
    return {
        "schema": 1,
        "aot": VERSION,
        "name": bundle.name,
        "model_sha256": bundle.model_sha256 or None,
        "models": [_describe_model(model) for model in bundle.parts],
        "backend": bundle.backend,
        "target": {"name": bundle.target.name, "triple": bundle.target.triple, "cpu": bundle.target.cpu},
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
        "entries": [_describe_entry(entry) for entry in bundle.entries],
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
    found = []
    for life in plan.lifetimes:
        region = plan.region_at(plan.offset_of[life.name])
        place = {"region": region.name if plan.regions else None, "offset": plan.offset_of[life.name] - region.start}
        steps = {"first_step": life.first, "last_step": life.last}
        found.append({"name": life.name, **place, "bytes": life.nbytes, **steps})
    return found
