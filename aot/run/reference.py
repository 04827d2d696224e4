"""Links a bundle with the portable reference of the library that it calls, for running it where the library itself is not.

Enters: a bundle whose library has a reference, for this machine or for a core whose Linux processes QEMU runs. Leaves: the bundle, its
object linked with the compiled reference. Invariant: the bundle's own code and data stay as they are.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from aot.bundle import Bundle, Entry
from aot.errors import CompileError, InternalError
from aot.run.process.program import compiler_options
from aot.target import Target

STACK_NBYTES = 1024
"""Stack that the reference's functions may take below the bundle's own frames."""
_ZIG = (sys.executable, "-m", "ziglang")
_FLAGS = ("-std=c99", "-O2", "-ffreestanding", "-fno-builtin", "-fno-stack-protector")
_SECTIONS = "SECTIONS { .text : { *(.text .text.*) } .rodata : { *(.rodata .rodata.*) } }"


@dataclass(frozen=True)
class _Tools:
    """Commands that compile a file, and that link objects into one."""

    compile: tuple[str, ...]
    link: tuple[str, ...]


def has_reference(bundle: Bundle) -> bool:
    """Whether the functions that the bundle calls are there as C."""
    return bundle.library_notes is not None and bool(bundle.library_notes.reference)


def with_reference(bundle: Bundle, entry: Entry) -> tuple[Bundle, Entry]:
    """The bundle, which calls nothing any more, and one of its entries. CompileError without a C compiler for its target."""
    assert bundle.library_notes is not None
    tools = _host() if bundle.target.is_host else _foreign(bundle.target)
    with tempfile.TemporaryDirectory(prefix="aot-") as name:
        folder = Path(name)
        (folder / "bundle.o").write_bytes(bundle.object)
        (folder / "reference.o").write_bytes(_compiled(tools, bundle.library_notes.reference))
        (folder / "sections").write_text(_SECTIONS)
        _run([*tools.link, "-o", "linked.o", "bundle.o", "reference.o"], folder)
        linked = (folder / "linked.o").read_bytes()
    return replace(bundle, object=linked, library=()), replace(entry, stack_nbytes=(entry.stack_nbytes or 0) + STACK_NBYTES)


def host_compiler() -> tuple[str, ...]:
    """A C compiler of this machine: gcc, clang, cc, or ziglang's."""
    found = next((path for name in ("gcc", "clang", "cc") if (path := shutil.which(name))), None)
    if found is not None:
        return (found,)
    if find_spec("ziglang") is not None:
        return (*_ZIG, "cc")
    raise CompileError("the reference of the library needs a C compiler", hint="install gcc, clang or ziglang; or --kernels native")


def _host() -> _Tools:
    compiler = host_compiler()
    return _Tools((*compiler, "-fPIC"), (*compiler, "-r", "-nostdlib"))


def _foreign(target: Target) -> _Tools:
    if find_spec("ziglang") is None:
        raise CompileError(f"the reference of the library needs a C compiler for {target.name}", hint="pip install ziglang")
    return _Tools((*_ZIG, "cc", *compiler_options(target), "-fno-sanitize=all"), (*_ZIG, "ld.lld", "-r", "-T", "sections"))


@cache
def _compiled(tools: _Tools, sources: tuple[tuple[str, bytes], ...]) -> bytes:
    """The reference as one object."""
    with tempfile.TemporaryDirectory(prefix="aot-") as name:
        folder = Path(name)
        for file, content in sources:
            (folder / file).write_bytes(content)
        (folder / "sections").write_text(_SECTIONS)
        names = [file for file, _ in sources if file.endswith(".c")]
        for file in names:
            _run([*tools.compile, *_FLAGS, "-c", file, "-o", f"{file}.o"], folder)
        _run([*tools.link, "-o", "all.o", *(f"{file}.o" for file in names)], folder)
        return (folder / "all.o").read_bytes()


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise InternalError(f"the reference does not compile: {(done.stderr.strip().splitlines() or [command[0]])[0]}")
