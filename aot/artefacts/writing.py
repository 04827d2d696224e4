"""Puts a bundle's files, and those of its packages, into a folder.

Enters: a Bundle and further files by path, or files alone, and a folder. Leaves: the paths written.
Invariant: all files appear, or none: a failure leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from aot.artefacts.contents import files
from aot.bundle import Bundle
from aot.errors import CompileError


def write(bundle: Bundle, folder: str | os.PathLike[str], further: Mapping[str, bytes] | None = None) -> tuple[Path, ...]:
    """Write the bundle's files, and those further ones, whose paths may have folders, into `folder` (made if absent). Returns their paths.
    CompileError if that can't be done."""
    return write_files(files(bundle) | dict(further or {}), folder)


def write_files(contents: Mapping[str, bytes], folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Write files by path into `folder`, as `write` does."""
    target = Path(folder)
    inside = {(target / name).parent for name in contents}
    missing = {path for each in inside for path in _missing_parents(each)}
    made = sorted(missing, key=lambda path: len(path.parts), reverse=True)
    try:
        for each in sorted(inside | {target}):
            each.mkdir(parents=True, exist_ok=True)
        return _write_all(target, contents)
    except OSError as error:
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()
        reason = error.strerror or str(error)
        what, how = ("the bundle", " with -o") if len(contents) > 1 else ("the file", "")
        raise CompileError(f"can't write {what}: {reason}", where=str(target), hint=f"name a writable folder{how}") from error


def _missing_parents(folder: Path) -> list[Path]:
    """The folders around a file that writing will have to make, innermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


def _write_all(folder: Path, contents: Mapping[str, bytes]) -> tuple[Path, ...]:
    """Write to temporary names first, rename when all are complete."""
    pending: list[tuple[str, Path]] = []
    try:
        for name, content in contents.items():
            handle, temporary = tempfile.mkstemp(prefix=".aot-", dir=(folder / name).parent)
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
