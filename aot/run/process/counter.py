"""Counts instructions in QEMU's user mode, by a plugin that is compiled here.

Enters: a program, the functions whose instructions are counted by themselves. Leaves: QEMU's options, `Counts`.
Invariant: what is counted is the bundle's own code, from the first call of a run on; a routine counts for the layer that calls it.
On a Hexagon packets are counted, which is what its QEMU translates as one.
"""

from __future__ import annotations

import atexit
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import util
from pathlib import Path

from aot.run.process.program import SOURCES, Program

HUNG = 98
"""Exit code of a process that has executed as many instructions as it may."""


@dataclass(frozen=True)
class Counts:
    """Instructions of each owner; stopped_at: where the process was at the limit (0: it did not get there)."""

    stopped_at: int
    per_layer: tuple[tuple[str, int], ...]
    total: int


def options(plugin: Path, folder: Path, program: Program, owners: Sequence[str], limit: int) -> list[str]:
    """What makes QEMU count. folder: for files."""
    numbers = {name: number for number, name in enumerate(owners, 1)}
    image = program.image
    starts = [symbol.address for symbol in image.functions] + [image.code_address + len(image.code)]
    lines = [
        f"{symbol.address:x} {end:x} {numbers.get(symbol.name, 0)}\n"
        for symbol, end in zip(image.functions, starts[1:])
        if end > symbol.address
    ]
    (folder / "ranges").write_text("".join(lines))
    start = program.symbols["aot_start"] & ~1
    given = {"ranges": folder / "ranges", "out": folder / "counts", "start": f"{start:x}", "limit": limit}
    return ["-plugin", ",".join([f"file={plugin}", *(f"{name}={value}" for name, value in given.items())])]


def read_counts(folder: Path, owners: Sequence[str]) -> Counts | None:
    """What the plugin has written; None if it has not."""
    path = folder / "counts"
    if not path.is_file():
        return None
    stopped_at, *counts = path.read_text().split()
    found = dict(zip(("", *owners), map(int, counts)))
    return Counts(int(stopped_at, 16), tuple((name, found.get(name, 0)) for name in owners), sum(found.values()))


@cache
def compiled_plugin(qemu: str) -> tuple[Path | None, str]:
    """The plugin for this QEMU, or None and the reason why not: no compiler for this machine, or a QEMU without plugins."""
    said = subprocess.run([qemu, "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout
    if "-plugin" not in said:
        return None, f"{qemu} was built without plugins"
    version = re.search(r"version (\d+)", said + _version(qemu))
    compiler = next(([found] for name in ("gcc", "cc", "clang") if (found := shutil.which(name))), None)
    if compiler is None and util.find_spec("ziglang"):
        compiler = [sys.executable, "-m", "ziglang", "cc", "-fno-sanitize=all"]
    if compiler is None:
        return None, "there is no C compiler for QEMU's plugin"
    folder = Path(tempfile.mkdtemp(prefix="aot-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = folder / "counter.so"
    number = 2 if version and int(version[1]) >= 9 else 1
    flags = ["-shared", "-fPIC", "-O2", f"-DPLUGIN_VERSION={number}", "-o", str(made), str(SOURCES / "counter.c")]
    done = subprocess.run([*compiler, *flags], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return (made, "") if made.is_file() else (None, f"QEMU's plugin does not compile: {done.stderr.strip().splitlines()[:1]}")


def _version(qemu: str) -> str:
    return subprocess.run([qemu, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout
