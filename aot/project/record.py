# pyright: basic
"""What a bundle was made of, and what it is: `.aot-build.json` beside its files.

Enters: the bundle's arguments and files. Leaves: `Inputs` and `Record`, and why a record no longer holds.
Invariant: deterministic: hashes and relative paths, no time, nothing of the machine but what code for it depends on.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from aot.artefacts import write_files
from aot.version import VERSION

FILE = ".aot-build.json"
SCHEMA = 1
_LIBRARIES = ("jinja2", "llvmlite", "numpy", "tflite")
"""Packages whose versions the files of a bundle may depend on."""


@dataclass(frozen=True)
class Inputs:
    """All that decides a bundle's bytes. arguments: of `aot bundle`; files: SHA-256 by path; compiler: aot itself, by part."""

    arguments: tuple[str, ...]
    files: Mapping[str, str]
    compiler: Mapping[str, str]


@dataclass(frozen=True)
class Record:
    """A bundle that was made: of what, its files (SHA-256 by path in its folder), and its figures."""

    inputs: Inputs
    outputs: Mapping[str, str]
    flash_nbytes: int | None
    workspace_nbytes: int


def inputs_of(arguments: Sequence[str], files: Mapping[str, Path]) -> Inputs:
    """What a bundle would be made of now. files: by the names that the record has for them. OSError if one can't be read."""
    return Inputs(tuple(arguments), {name: sha256(files[name]) for name in sorted(files)}, compiler())


@cache
def compiler() -> dict[str, str]:
    """aot: its version and sources, the packages that it makes files with, and this machine's architecture."""
    digest = hashlib.sha256()
    package = Path(__file__).parent.parent
    for path in sorted(package.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(f"{path.relative_to(package).as_posix()} {sha256(path)}\n".encode())
    return {
        "aot": VERSION,
        "sources": digest.hexdigest(),
        "machine": platform.machine(),
        **{name: _version(name) for name in _LIBRARIES},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def load(folder: Path) -> Record | None:
    """The record in a folder; None if there is none, or none that can be read."""
    try:
        content = json.loads((folder / FILE).read_bytes())
        if content["schema"] != SCHEMA:
            return None
        inputs = Inputs(tuple(content["inputs"]["arguments"]), content["inputs"]["files"], content["inputs"]["compiler"])
        record = Record(inputs, content["outputs"], content["flash_nbytes"], int(content["workspace_nbytes"]))
        complete = record.outputs and all(isinstance(each, Mapping) for each in (record.outputs, inputs.files, inputs.compiler))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return record if complete else None


def store(record: Record, folder: Path) -> None:
    """Write the record. CompileError if that can't be done."""
    content: dict[str, Any] = {"schema": SCHEMA, **asdict(record)}
    write_files({FILE: (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()}, folder)


def why_stale(record: Record | None, wanted: Inputs, folder: Path) -> str:
    """Why what is in the folder is not what is wanted; "" if it is."""
    if record is None:
        return "new"
    if changed := [name for name in wanted.files if record.inputs.files.get(name) != wanted.files[name]]:
        return f"{changed[0]} changed"
    if record.inputs.arguments != wanted.arguments:
        return "options changed"
    if record.inputs != wanted:
        return "aot changed"
    for name, digest in record.outputs.items():
        try:
            if sha256(folder / name) != digest:
                return f"{name} was altered"
        except OSError:
            return f"{name} is missing"
    return ""
