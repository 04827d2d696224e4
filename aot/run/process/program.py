"""A Linux program that calls a bundle's functions: the harness and the bundle's object, linked.

Enters: a bundle, where its read-only data is to lie in its page. Leaves: `Program`.
Invariant: the bundle's code and data are alone on their pages, as the object has them, with unmapped memory around.
"""

from __future__ import annotations

import atexit
import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import util
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from aot.bundle import Bundle
from aot.errors import CompileError
from aot.run.image import Image, Symbol
from aot.target import Target

SOURCES = Path(__file__).parent
PAGE = 0x1_0000
"""A multiple of every emulated core's pages: a Hexagon's have 64 KiB."""
_BASE, _MOST = 0x10_0000, 0xC00_0000
"""Where the bundle's code is, and what its constants may take."""
_OPTIONS = (
    *("-c", "-O1", "-ffreestanding", "-fno-builtin", "-fno-stack-protector", "-fno-sanitize=all"),
    *("-fno-unwind-tables", "-fno-asynchronous-unwind-tables"),
)
_MACHINES = {  # how ziglang's Clang calls an architecture, and a core that has what its calling convention needs
    "aarch64": "aarch64-freestanding-none -mcpu=generic",
    "armv7": "arm-freestanding-eabihf -mcpu=cortex_a7",
    "armv7a": "arm-freestanding-eabihf -mcpu=cortex_a7",
    "riscv32": "riscv32-freestanding-none -mcpu=generic_rv32",
    "riscv64": "riscv64-freestanding-none -mcpu=generic_rv64",
    "hexagon": "hexagon-freestanding-none -mcpu=hexagonv68",
}
_RISCV = ("+m", "+a", "+f", "+d", "+c")
"""What RISC-V's calling convention, or whether code may be compressed, depends on."""
_SCRIPT = """
ENTRY(_start)
SECTIONS {{
  .bundle.code {code:#x} : {{ bundle.o(.text .text.*) }}
  .bundle.rodata {rodata:#x} : {{ bundle.o(.rodata .rodata.*) }}
  .text {harness:#x} : {{ *(.text .text.*) }}
  .rodata ALIGN({page:#x}) : {{ *(.rodata .rodata.*) }}
  .data ALIGN({page:#x}) : {{ *(.data .data.* .sdata .sdata.*) }}
  .bss : {{ *(.bss .bss.* .sbss .sbss.* COMMON) }}
  /DISCARD/ : {{ *(.eh_frame .ARM.exidx* .note.* .comment) }}
}}
"""


@dataclass(frozen=True)
class Program:
    """A static ELF file. image: the bundle's part. symbols: the harness's functions."""

    elf: bytes
    image: Image
    symbols: dict[str, int]


def linked(bundle: Bundle, at_end: bool) -> Program:
    """The program. at_end: read-only data end where their last page ends; otherwise they start where a page starts.
    CompileError where ziglang is missing, or nothing is known of the architecture."""
    harness = _harness(compiler_options(bundle.target))
    code_nbytes, align = _extents(bundle.object)
    first = -(-(_BASE + code_nbytes) // PAGE) * PAGE + PAGE
    program = _linked(bundle.object, harness, first, first + _MOST)
    if not at_end:
        return program
    nbytes = len(program.image.rodata)
    return _linked(bundle.object, harness, first + (-nbytes % PAGE) // align * align, first + _MOST)


@lru_cache(maxsize=4)
def _linked(data: bytes, harness: Sequence[Path], rodata: int, own: int) -> Program:
    """rodata: where the bundle's constants are; own: where what is the harness's own is."""
    with tempfile.TemporaryDirectory(prefix="aot-") as name:
        folder = Path(name)
        (folder / "bundle.o").write_bytes(data)
        (folder / "script").write_text(_SCRIPT.format(code=_BASE, rodata=rodata, harness=own, page=PAGE))
        command = ["ld.lld", "-static", "--no-relax", "-z", "max-page-size=65536", "-T", "script", "-o", "program", "bundle.o"]
        _zig([*command, *map(str, harness)], folder, "can't link the bundle")
        return _read((folder / "program").read_bytes())


def compiler_options(target: Target) -> tuple[str, ...]:
    """What makes ziglang's Clang compile for a target, with the target's calling convention."""
    architecture = target.triple.split("-")[0]
    if architecture not in _MACHINES:
        raise CompileError(f"no harness is there for {architecture}, which '{target.name}' is", hint="run it on its own machine")
    machine, core = _MACHINES[architecture].split()
    given = target.features.split(",") if architecture.startswith("riscv") else []
    return ("-target", machine, core + "".join(one for one in given if one in _RISCV))


@cache
def _harness(options: Sequence[str]) -> tuple[Path, ...]:
    """The harness's objects, compiled once in a process."""
    folder = Path(tempfile.mkdtemp(prefix="aot-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made: list[Path] = []
    for source in ("harness.c", "call.S"):
        made.append(folder / f"{source}.o")
        _zig(["cc", *options, *_OPTIONS, "-o", str(made[-1]), str(SOURCES / source)], folder, "can't compile the harness")
    return tuple(made)


def _zig(command: Sequence[str], folder: Path, what: str) -> None:
    """Run a tool of ziglang's. CompileError where it is missing or fails."""
    if util.find_spec("ziglang") is None:
        raise CompileError("running code in a Linux process needs ziglang's compiler and linker", hint="pip install ziglang")
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", *command], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise CompileError(f"{what}: {lines[0] if lines else command[0]}")


def _extents(data: bytes) -> tuple[int, int]:
    """(bytes that code takes at most, the strictest alignment of read-only data) of an object."""
    sections = [one for one in ELFFile(io.BytesIO(data)).iter_sections() if one["sh_size"] and one["sh_flags"] & 2]
    code = sum(one["sh_size"] + one["sh_addralign"] for one in sections if one.name.startswith(".text"))
    return code, max((one["sh_addralign"] for one in sections if one.name.startswith(".rodata")), default=1)


def _section(file: ELFFile, name: str) -> tuple[int, bytes]:
    """Address and content of a section; nothing if there is none."""
    section = file.get_section_by_name(name)
    return (section["sh_addr"], section.data()) if section else (0, b"")


def _read(elf: bytes) -> Program:
    """The program's parts, of its file."""
    file = ELFFile(io.BytesIO(elf))
    table = file.get_section_by_name(".symtab")
    assert isinstance(table, SymbolTableSection)
    (code, text), (rodata, data) = _section(file, ".bundle.code"), _section(file, ".bundle.rodata")
    thumb = 1 if file["e_machine"] == "EM_ARM" else 0
    found = [one for one in table.iter_symbols() if one["st_info"]["type"] == "STT_FUNC"]
    functions = sorted((one["st_value"] & ~thumb, one.name, one["st_size"]) for one in found)
    own = tuple(Symbol(name, at, nbytes) for at, name, nbytes in functions if code <= at < code + len(text))
    symbols = {one.name: one["st_value"] for one in table.iter_symbols() if one.name}
    return Program(elf, Image(code, text, rodata, data, own, ()), symbols)
