"""Links a bundle with what it calls, for running it in an emulator: CMSIS-NN, or the firmware's functions.

Enters: a bundle, paths of objects and archives. Leaves: the bundle, its object linked with what it needs of them.
Invariant: the bundle's own code and data stay as they are; what is linked has no undefined symbol left.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aot.bundle import Bundle
from aot.errors import CompileError
from aot.llvm import elf

STACK_NBYTES = 4096
"""Stack that functions from elsewhere may take below the bundle's own frames."""
_LINKER = "arm-none-eabi-ld"


def link(bundle: Bundle, paths: Sequence[str | Path]) -> Bundle:
    """The bundle with these objects and archives. CompileError where they can't be linked, or something is missing."""
    if not bundle.target.triple.startswith("thumb"):
        raise CompileError(f"only bundles for a Cortex-M can be linked here, not for {bundle.target.name}")
    if shutil.which(_LINKER) is None:
        raise CompileError(f"linking needs {_LINKER}, which is not installed", hint="it is part of GNU's binutils for Arm")
    entries = (*bundle.entries, *([bundle.init] if bundle.init else []))
    roots = [option for entry in entries for function in entry.functions for option in ("-u", function)]
    with tempfile.TemporaryDirectory(prefix="aot-") as name:
        own, made = Path(name) / "bundle.o", Path(name) / "linked.o"
        own.write_bytes(bundle.object)
        command = [_LINKER, "-r", "--gc-sections", "-e", bundle.main.symbol, *roots, "-o", str(made), str(own), *map(str, paths)]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            raise CompileError(f"can't link {bundle.name}: {lines[0].removeprefix(f'{_LINKER}: ') if lines else _LINKER}")
        linked = made.read_bytes()
    if missing := elf.undefined(linked):
        raise CompileError(
            f"can't link {bundle.name}: nothing defines {', '.join(missing)}", hint="--link the objects or archives that do"
        )
    changed = [replace(entry, stack_nbytes=(entry.stack_nbytes or 0) + STACK_NBYTES) for entry in entries]
    init = changed.pop() if bundle.init else None
    return replace(bundle, object=linked, entries=tuple(changed), init=init, functions=(), library=())
