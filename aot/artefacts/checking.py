# pyright: basic
"""Whether a bundle's files are those that were made, and whether they can be made again.

Enters: a folder or a NAME.json; models. Leaves: a `Checked` for each bundle. Invariant: what a NAME.json says is not trusted: it names no
file outside its folder, and nothing of it is executed.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aot.artefacts.contents import files
from aot.artefacts.provenance import sha256
from aot.driver import compile
from aot.errors import CompileError
from aot.llvm.llvm import versions
from aot.recipe import recall
from aot.version import VERSION

_LARGEST_NBYTES = 1 << 27
"""Of a NAME.json: that of a model of thousands of layers has a few million."""

_LONGEST_NAME = 240
"""Bytes of a file's name: what file systems have room for, 255, less an ending."""


@dataclass(frozen=True)
class Checked:
    """A bundle: its NAME.json, what it holds, and each file with what is wrong with it ("" if nothing)."""

    path: Path
    description: Mapping[str, Any]
    files: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        return self.description["name"]

    @property
    def passed(self) -> bool:
        return not any(problem for _, problem in self.files)


def check_files(where: str | os.PathLike[str]) -> tuple[Checked, ...]:
    """Every bundle in a folder, or the one of a NAME.json: are all files there, and have they the recorded hashes? CompileError if there is none."""
    return tuple(Checked(path, description, _compare(path.parent, description)) for path, description in _descriptions(Path(where)))


def check_models(checked: Checked, models: Sequence[str]) -> tuple[Checked, tuple[str, ...]]:
    """The bundle with each file compared with what these models compile to; and those of the models that are of this bundle.

    CompileError where a model of the bundle is not among them.
    """
    contents = {path: _read(Path(path)) for path in models}
    by_hash = {sha256(content): path for path, content in contents.items()}
    named = []
    for part in _parts(checked):
        if (path := by_hash.get(part["model_sha256"])) is None:
            raise CompileError(
                f"no given model has the SHA-256 of '{part['name']}', {part['model_sha256']}",
                where=str(checked.path),
                hint="--model names the file that it was made from",
            )
        named.append((part["name"], path))
    made = _make_again(checked, [(name, contents[path]) for name, path in named])
    found = {name: problem or _difference(checked, name, made.get(name)) for name, problem in checked.files}
    for name in (checked.path.name, *made):
        found.setdefault(name, _difference(checked, name, made.get(name)))
    return Checked(checked.path, checked.description, tuple(found.items())), tuple(path for _, path in named)


def _descriptions(where: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Each NAME.json with its content."""
    if not where.is_dir():
        found = _description(_read(where))
        if found is None:
            raise CompileError(
                "is no NAME.json with the hashes of a bundle's files", where=str(where), hint="make the bundle again"
            )
        return [(where, found)]
    read = ((path, _description(_read(path))) for path in sorted(where.glob("*.json")) if path.is_file())
    if not (bundles := [(path, found) for path, found in read if found is not None]):
        raise CompileError(
            "there is no bundle in this folder", where=str(where), hint="name the folder that -o made, or a NAME.json"
        )
    return bundles


def _description(content: bytes) -> dict[str, Any] | None:
    """What a NAME.json says, if it is one that has hashes."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    known = isinstance(found, dict) and isinstance(found.get("name"), str) and isinstance(found.get("files"), dict)
    return found if known and all(isinstance(each, dict) for each in found["files"].values()) and found["files"] else None


def _read(path: Path) -> bytes:
    try:
        if path.suffix == ".json" and path.stat().st_size > _LARGEST_NBYTES:
            raise CompileError(f"has more than {_LARGEST_NBYTES} bytes", where=str(path), hint="NAME.json is never so large")
        return path.read_bytes()
    except OSError as error:
        raise CompileError(
            f"can't be read: {error.strerror or error}", where=str(path), hint="name a file that exists and may be read"
        ) from error


def _compare(folder: Path, description: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Each file of a bundle with what is wrong with it."""
    return tuple((name, _problem(folder, name, recorded)) for name, recorded in description["files"].items())


def _problem(folder: Path, name: str, recorded: Mapping[str, Any]) -> str:
    if not _is_file_name(name):
        return "is not the name of a file in this folder: NAME.json was tampered with"
    path = folder / name
    if problem := _not_plain(path):
        return problem
    nbytes = path.stat().st_size
    if nbytes != recorded.get("bytes") or sha256(_read(path)) != recorded.get("sha256"):
        shared = "; several bundles in one folder write it: give each a folder" if name == "CMakeLists.txt" else ""
        return f"has other content than was made ({nbytes} bytes, {recorded.get('bytes')} were){shared}"
    return ""


def _is_file_name(name: str) -> bool:
    """Whether any file system has room for a file of this name, and it lies in the folder that it is put after."""
    return name == Path(name).name and name not in ("", ".", "..") and name.isprintable() and len(name.encode()) <= _LONGEST_NAME


def _not_plain(path: Path) -> str:
    """What is wrong with the kind of file that this is, if something is: others may have no end, or lie elsewhere."""
    if path.is_symlink() or not path.is_file():
        return "is missing" if not path.exists() else "is no plain file"
    return ""


def _parts(checked: Checked) -> list[dict[str, Any]]:
    """Name and hash of each model."""
    parts: Any = checked.description.get("models")
    good = isinstance(parts, list) and parts and all(isinstance(part, dict) for part in parts)
    if not good or not all(isinstance(part.get(key), str) for part in parts for key in ("name", "model_sha256")):
        raise CompileError("does not say which models the bundle is made of", where=str(checked.path), hint="make the bundle again")
    if bad := [part["name"] for part in parts if not _is_file_name(part["name"])]:
        raise CompileError(f"no model is called {ascii(bad[0])[:40]}", where=str(checked.path), hint="make the bundle again")
    return parts


def _make_again(checked: Checked, models: Sequence[tuple[str, bytes]]) -> dict[str, bytes]:
    """The files that the models, under their recorded names, compile to with the recorded options."""
    options = recall(checked.description.get("options"), checked.name)
    with tempfile.TemporaryDirectory(prefix="aot-") as folder:
        paths = []
        for number, (name, content) in enumerate(models):
            path = Path(folder, str(number), f"{name}.tflite")
            path.parent.mkdir()
            path.write_bytes(content)
            paths.append(path)
        return files(compile(paths, options=options))


def _difference(checked: Checked, name: str, made: bytes | None) -> str:
    if made is None:
        return "is not made of the model"
    path = checked.path.parent / name
    if path != checked.path and (problem := _not_plain(path)):
        return problem
    if path.stat().st_size == len(made) and _read(path) == made:
        return ""
    here = {"aot": VERSION, **versions()}
    there = {key: checked.description.get(key) for key in here}
    why = "" if here == there else f": it was made by {_text(there)}, this is {_text(here)}"
    return f"is not what the model compiles to{why}"


def _text(made_by: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in made_by.items())
