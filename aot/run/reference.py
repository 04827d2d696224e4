"""Links a bundle with the portable reference of the library that it calls, for running it where the library itself is not.

Enters: a bundle for this machine whose library has a reference. Leaves: the bundle, its object linked with the compiled reference.
Invariant: the bundle's own code and data stay as they are.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from aot.bundle import Bundle
from aot.errors import CompileError, InternalError

COMPILERS = ("gcc", "clang", "cc")


def has_reference(bundle: Bundle) -> bool:
    """Whether the functions that the bundle calls are there as C."""
    return bundle.library_notes is not None and bool(bundle.library_notes.reference)


def with_reference(bundle: Bundle) -> Bundle:
    """The bundle, which calls nothing any more. CompileError without a C compiler."""
    assert bundle.library_notes is not None
    compiler = host_compiler()
    with tempfile.TemporaryDirectory(prefix="aot-") as name:
        folder = Path(name)
        (folder / "bundle.o").write_bytes(bundle.object)
        (folder / "reference.o").write_bytes(_compiled(compiler, bundle.library_notes.reference))
        _run([*compiler, "-r", "-nostdlib", "-o", "linked.o", "bundle.o", "reference.o"], folder)
        return replace(bundle, object=(folder / "linked.o").read_bytes(), library=())


def host_compiler() -> tuple[str, ...]:
    """A C compiler of this machine: gcc, clang, cc, or ziglang's."""
    found = next((path for name in COMPILERS if (path := shutil.which(name))), None)
    if found is not None:
        return (found,)
    if find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    raise CompileError("the reference of the library needs a C compiler", hint="install gcc, clang or ziglang; or --kernels native")


@cache
def _compiled(compiler: Sequence[str], sources: tuple[tuple[str, bytes], ...]) -> bytes:
    """The reference as one object."""
    with tempfile.TemporaryDirectory(prefix="aot-") as name:
        folder = Path(name)
        for file, content in sources:
            (folder / file).write_bytes(content)
        names = [file for file, _ in sources if file.endswith(".c")]
        for file in names:
            _run([*compiler, "-std=c99", "-O2", "-ffreestanding", "-fPIC", "-fno-stack-protector", "-c", file], folder)
        _run([*compiler, "-r", "-nostdlib", "-o", "all.o", *(f"{file[:-2]}.o" for file in names)], folder)
        return (folder / "all.o").read_bytes()


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise InternalError(f"the reference does not compile: {done.stderr.strip().splitlines()[:1] or command[0]}")
