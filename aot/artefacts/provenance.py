"""Where a bundle comes from: hashes of its files, what made them, what is in them.

Enters: a Bundle, the content of its files. Leaves: dictionaries that are JSON. Invariant: nothing of the machine or the time is in them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from aot.bundle import Bundle
from aot.llvm.llvm import versions
from aot.version import VERSION

_LICENCES = {"CMSIS-NN": "Apache-2.0"}
"""Those of libraries that a bundle may call, where they have a name in SPDX's list."""


def describe_files(contents: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """Bytes and SHA-256 of each file."""
    return {name: {"bytes": len(content), "sha256": sha256(content)} for name, content in contents.items()}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def bill_of_materials(bundle: Bundle) -> dict[str, Any]:
    """The bundle's SBOM, in CycloneDX 1.6: what made it, the models that are in it, the library that it needs.

    A model's licence is not known to a compiler, and is left out.
    """
    made_by = versions()
    tools = [
        _component("application", "aot-bundle", VERSION, "Apache-2.0", purl=f"pkg:pypi/aot-bundle@{VERSION}"),
        _component("library", "llvmlite", made_by["llvmlite"], "BSD-2-Clause", purl=f"pkg:pypi/llvmlite@{made_by['llvmlite']}"),
        _component("library", "LLVM", made_by["llvm"], "Apache-2.0 WITH LLVM-exception"),
    ]
    inside = [
        _component("machine-learning-model", part.name, reference=f"model:{part.name}")
        | ({"hashes": [{"alg": "SHA-256", "content": part.model_sha256}]} if part.model_sha256 else {})
        for part in bundle.parts
    ]
    if (notes := bundle.library_notes) is not None and bundle.library:
        needed = _component("library", notes.name, "", _LICENCES.get(notes.name, ""), reference=f"library:{notes.name}")
        inside.append({**needed, "scope": "required", "description": f"not in the bundle: the firmware links {notes.versions}"})
    root = f"bundle:{bundle.name}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"tools": {"components": tools}, "component": _component("library", bundle.name, reference=root)},
        "components": inside,
        "dependencies": [{"ref": root, "dependsOn": [each["bom-ref"] for each in inside]}],
    }


def _component(
    kind: str, name: str, version: str = "", licence: str = "", *, reference: str = "", purl: str = ""
) -> dict[str, Any]:
    """A part of the bill; what is not known of it is left out."""
    licences = [{"expression": licence}] if " " in licence else [{"license": {"id": licence}}] if licence else []
    known = {"version": version, "bom-ref": reference, "purl": purl, "licenses": licences}
    return {"type": kind, "name": name, **{key: value for key, value in known.items() if value}}
