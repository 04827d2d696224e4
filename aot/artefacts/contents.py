"""What the files of a bundle hold.

Enters: a Bundle. Leaves: bytes by file name. Invariant: deterministic: the same bundle gives the same bytes.
"""

from __future__ import annotations

import json
from importlib.resources import files as files_of_package
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from aot.artefacts.description import describe
from aot.artefacts.header import entry_view
from aot.artefacts.layers import layers_view
from aot.artefacts.provenance import describe_files
from aot.bundle import Bundle
from aot.version import VERSION

_CPU_CHECKS = (
    ("dsp", "defined(__ARM_FEATURE_DSP)", "DSP extension"),
    ("mve", "defined(__ARM_FEATURE_MVE) || defined(__ARM_ARCH_8_1M_MAIN__)", "Helium (MVE) extension"),
)
"""Abilities whose instructions may stand in an object, and how Arm compilers say that the core has them (ACLE; gcc without float
registers defines the architecture alone)."""
_PER_LINE = 16
CUSTOM_HEADER = "aot_custom.h"
"""The structs of calls to the firmware's functions; the same for every bundle, so that several can share a folder."""


def files(bundle: Bundle) -> dict[str, bytes]:
    """The bundle's files by name. Deterministic: the same bundle gives the same bytes."""
    contents = _described_files(bundle)
    return {**contents, f"{bundle.name}.json": (json.dumps(_describe_with(bundle, contents), indent=2) + "\n").encode()}


def describe_with_files(bundle: Bundle) -> dict[str, Any]:
    """All that NAME.json holds."""
    return _describe_with(bundle, _described_files(bundle))


def _describe_with(bundle: Bundle, contents: dict[str, bytes]) -> dict[str, Any]:
    return {**describe(bundle), "files": describe_files(contents)}


def _described_files(bundle: Bundle) -> dict[str, bytes]:
    """All files but NAME.json, which has their hashes."""
    code = {name: text.encode() for name, text in bundle.sources.items()}
    code |= {} if bundle.is_c else {f"{bundle.name}.o": bundle.object}
    contents = {
        **code,
        f"{bundle.name}.h": _render("bundle.h.j2" if bundle.glow is None else "glow.h.j2", bundle).encode(),
        "CMakeLists.txt": _render("CMakeLists.txt.j2", bundle).encode(),
    }
    if described := layers_view(bundle):
        contents[f"{bundle.name}_layers.h"] = _render_layers(bundle, described)
    if bundle.functions:
        contents[CUSTOM_HEADER] = (files_of_package("aot") / "templates" / CUSTOM_HEADER).read_bytes()
    if bundle.library_notes is not None:
        contents.update(bundle.library_notes.files)
    if bundle.weights is not None:
        contents[f"{bundle.name}.weights.bin"] = bundle.weights
    if bundle.glow is not None and bundle.weights is not None:
        contents[f"{bundle.name}.weights.txt"] = bytes_text(bundle.weights).encode()
    if bundle.pages is not None:
        contents[f"{bundle.name}.weights.bin"] = bundle.pages
    return contents


def bytes_text(content: bytes) -> str:
    """Bytes as the initialisers of a C array, which a program includes."""
    rows = [content[start : start + _PER_LINE] for start in range(0, len(content), _PER_LINE)]
    return "".join(" ".join(f"0x{byte:02X}," for byte in row) + "\n" for row in rows)


def environment() -> Environment:
    """How the templates in `aot/templates` are read; what they do not know is an error."""
    return Environment(
        loader=PackageLoader("aot"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )


def _render_layers(bundle: Bundle, entries: list[dict[str, Any]]) -> bytes:
    """NAME_layers.h."""
    rank, dumps = max(entry["rank"] for entry in entries), any(entry["tensors"] for entry in entries)
    template = environment().get_template("layers.h.j2")
    text = template.render(bundle=bundle, NAME=bundle.name.upper(), version=VERSION, entries=entries, rank=rank, dumps=dumps)
    return text.encode()


def _render(template: str, bundle: Bundle) -> str:
    models = [
        (
            model,
            [entry_view(bundle, model, entry) for entry in model.entries],
            [pointer.declaration for pointer in bundle.pointers(model.init)] if model.init else [],
        )
        for model in bundle.parts
    ]
    checks = [check for ability, *check in _CPU_CHECKS if ability in bundle.target.has]
    template_ = environment().get_template(template)
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
