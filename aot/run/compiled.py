"""Compiles the C files of a bundle for this machine, so that they run in process.

Enters: a bundle of C files, and addresses of the firmware's functions. Leaves: addresses of its functions.
Invariant: the compiler is told to take nothing for granted that docs/c.md does not ask of it.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from aot.artefacts import files
from aot.bundle import Bundle
from aot.errors import CompileError

FLAGS = ("-std=c99", "-O1", "-fPIC", "-shared")


def compiler() -> list[str]:
    """The C compiler: what CC says, else cc, gcc, clang, or the one of ziglang. CompileError if there is none."""
    if named := os.environ.get("CC"):
        return named.split()
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return [path]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    raise CompileError("there is no C compiler to run C with", hint="install gcc or clang, or name one in CC")


class Compiled:
    """A loaded library with a bundle's functions; it stays loaded as long as the process runs."""

    def __init__(self, bundle: Bundle, addresses: Mapping[str, int]) -> None:
        with tempfile.TemporaryDirectory(prefix="aot-") as folder:
            self.library = ctypes.CDLL(str(compile_library(bundle, Path(folder), compiler())))
        for name, address in addresses.items():
            ctypes.c_void_p.in_dll(self.library, _address(name)).value = address

    def get_function_address(self, symbol: str) -> int:
        """The address of a function; 0 if there is none of this name."""
        found = getattr(self.library, symbol, None)
        return 0 if found is None else ctypes.cast(found, ctypes.c_void_p).value or 0


def compile_library(bundle: Bundle, folder: Path, command: Sequence[str]) -> Path:
    """Write the bundle's files into a folder, and make a library of them, with what stands for another that they call. CompileError if the
    compiler won't."""
    sources = write_sources(bundle, folder)
    glue = folder / "firmware.c"
    glue.write_text(
        "".join(['#include "aot_custom.h"\n' * bool(bundle.functions), *map(_firmware, bundle.functions), "extern int aot;\n"])
    )
    library = folder / "bundle.so"
    words = [*command, *FLAGS, *sources, glue.name, "-o", library.name]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        complaint = next((line for line in done.stderr.splitlines() if "error" in line), "no reason given")
        raise CompileError(f"the C compiler ({command[0]}) refuses the bundle: {complaint}")
    return library


def files_to_compile(bundle: Bundle) -> dict[str, bytes]:
    """The bundle's files. Those of one of several models have the header under the name, too, by which the C of all includes it."""
    made = files(bundle)
    together = next(iter(bundle.sources)).removesuffix(".c")
    return {f"{together}.h": made[f"{bundle.name}.h"], **made}


def write_sources(bundle: Bundle, folder: Path) -> list[str]:
    """Write the bundle's files into a folder. Returns the names of those to compile, of the library's reference too."""
    for name, content in files_to_compile(bundle).items():
        (folder / name).write_bytes(content)
    names = list(bundle.sources)
    if not (header := folder / f"{names[0][:-2]}.h").exists():  # of several models, of which this is one
        header.write_text("#include <stdint.h>\n" + '#include "aot_custom.h"\n' * bool(bundle.functions) + _declared(bundle))
    reference = bundle.library_notes.reference if bundle.library_notes else ()
    return [name for name in (*names, *(name for name, _ in reference)) if name.endswith(".c")]


def _declared(bundle: Bundle) -> str:
    return "".join(f"int {function}(const aot_custom_call *call);\n" for function in bundle.functions)


def _address(function: str) -> str:
    return f"aot_address_of_{function}"


def _firmware(function: str) -> str:
    """A function of the firmware that calls what its address is set to."""
    pointer = f"int (*{_address(function)})(const aot_custom_call *call);\n"
    return f"{pointer}int {function}(const aot_custom_call *call) {{ return {_address(function)}(call); }}\n"
