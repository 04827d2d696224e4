"""Runs the C files of a bundle on a real Xtensa instruction set: compiled by GCC for Xtensa, in a process under QEMU's user mode.

Enters: a bundle of C files, an entry, inputs. Leaves: `RunResult` without instructions or stack.
Invariant: two processes, regions at the ends and at the starts of pages between guards, other garbage. There is no memory protection:
what reads or writes further away is not seen here.
"""

from __future__ import annotations

import atexit
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from aot.bundle import Bundle, Entry
from aot.c.routines import routines_file
from aot.errors import CompileError, InternalError
from aot.run import memory
from aot.run.compiled import files_to_compile
from aot.run.memory import ROWS, Call, Placed
from aot.run.result import RunResult

COMPILER, EMULATOR = "xtensa-lx106-elf-gcc", "qemu-xtensa"
ARENA = 0x0200_0000
"""Where regions begin: the linker puts the harness's memory there, far behind the code."""
PAGE, GAP = 4096, 8192
FLAGS = ("-std=c99", "-O2", "-ffreestanding", "-mlongcalls", "-mtext-section-literals")
_FOLDER = Path(__file__).parent
_HARNESS = ("call0.S", "harness.c", "routines.c", "memory.ld")
_SECONDS = 600


def run(bundle: Bundle, entry: Entry, inputs: Sequence[np.ndarray], push_rows: int = 1) -> RunResult:
    """Run the entry in two processes, and compare. CompileError where QEMU or the compiler is missing, or for what needs a callback."""
    if entry.paging or bundle.functions:
        what = "functions of the firmware" if bundle.functions else "weights that come in pages"
        raise CompileError(f"a bundle with {what} can't be run on an Xtensa", hint="use --on host")
    found = {tool: shutil.which(tool) for tool in (COMPILER, EMULATOR)}
    if missing := [tool for tool, path in found.items() if path is None]:
        raise CompileError(f"{missing[0]} is not installed", hint="Debian: gcc-xtensa-lx106, qemu-user")
    first, second = (_run(bundle, entry, inputs, push_rows, seed) for seed in (1, 2))
    memory.same_outputs(entry, first, second)
    return RunResult(first, None, None, None, "qemu")


def _run(bundle: Bundle, entry: Entry, inputs: Sequence[np.ndarray], push_rows: int, seed: int) -> tuple[np.ndarray, ...]:
    regions, calls = memory.arguments(bundle, entry, inputs, seed, push_rows)
    guard = 0xA5 if seed == 1 else 0x3C
    placed = memory.place(regions, ARENA, page=PAGE, gap=GAP, at_end=seed == 1, guard=guard)
    end = placed[-1].end + GAP
    image = bytearray([guard]) * (end - ARENA)
    for one in placed:
        image[one.start - ARENA : one.end - ARENA] = one.image
    by_name = {one.region.name: one for one in placed}
    given = bytes(image) + b"".join(call.rows for call in calls)
    done = _execute(program(bundle, calls, by_name, end - ARENA, seed == 1), given)
    if done.returncode < 0 or len(done.stdout) != 4 + len(image):
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise InternalError(f"{entry.symbol} did not return: {said[-1] if said else f'exit code {done.returncode}'}")
    if code := int.from_bytes(done.stdout[:4], "little", signed=True):
        raise InternalError(f"{entry.symbol} returned {code}")
    held = done.stdout[4:]
    contents: dict[str, bytes] = {}
    for one in placed:
        pages = held[one.start - ARENA : one.end - ARENA]
        before = _with_rows(one, calls, seed == 1)
        before.check(pages)
        contents[one.region.name] = one.content(pages)
    _check_gaps(entry, held, placed, guard)
    return memory.outputs(bundle, entry, contents)


def _with_rows(one: Placed, calls: Sequence[Call], at_end: bool) -> Placed:
    """The region as it is after the last rows were put into it."""
    if one.region.name != ROWS:
        return one
    content = bytearray(one.region.content)
    for call in calls:
        if call.rows:
            start = len(content) - len(call.rows) if at_end else 0
            content[start : start + len(call.rows)] = call.rows
    return one.holding(bytes(content))


def _check_gaps(entry: Entry, held: bytes, placed: Sequence[Placed], guard: int) -> None:
    start = ARENA
    for end, after in [*((one.start, one.end) for one in placed), (ARENA + len(held), 0)]:
        if held[start - ARENA : end - ARENA].strip(bytes([guard])):
            raise InternalError(f"{entry.symbol} wrote between its regions")
        start = after


def _execute(elf: bytes, given: bytes) -> subprocess.CompletedProcess[bytes]:
    with tempfile.TemporaryDirectory(prefix="aot-") as name:
        path = Path(name) / "program"
        path.write_bytes(elf)
        path.chmod(0o755)
        try:
            return subprocess.run(
                [EMULATOR, "-cpu", "test_mmuhifi_c3", str(path)], input=given, capture_output=True, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise InternalError(f"still running after {_SECONDS} seconds") from None


def program(bundle: Bundle, calls: Sequence[Call], placed: dict[str, Placed], nbytes: int, at_end: bool) -> bytes:
    """The ELF file: the bundle, the reference of its library, a harness that makes these calls."""
    kept, objects = _objects(tuple(files_to_compile(bundle).items()))
    with tempfile.TemporaryDirectory(prefix="aot-") as name:
        folder = Path(name)
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        (folder / "calls.c").write_text(_calls(bundle, calls, placed, nbytes, at_end))
        given = [*objects, _compiled(folder, "calls.c")]
        missing = _link(folder, given)
        while missing:
            (folder / "more.c").write_text(routines_file(missing, bundle.target))
            further = _link(folder, [*given, _compiled(folder, "more.c")])
            if further and further <= missing:
                raise InternalError(f"{COMPILER} lacks {', '.join(sorted(further))}")
            missing = missing | further if further else further
        return (folder / "program").read_bytes()


@lru_cache(maxsize=4)
def _objects(made: tuple[tuple[str, bytes], ...]) -> tuple[Path, tuple[str, ...]]:
    """A folder with a bundle's files and the harness, compiled once, and the objects' names."""
    folder = Path(tempfile.mkdtemp(prefix="aot-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for file, content in made:
        (folder / file).write_bytes(content)
    for file in _HARNESS:
        (folder / file).write_bytes((_FOLDER / file).read_bytes())
    sources = [file for file in (*_HARNESS, *(file for file, _ in made)) if file.endswith((".c", ".S"))]
    return folder, tuple(_compiled(folder, file) for file in sources)


def _compiled(folder: Path, source: str) -> str:
    """Compile a file. Returns the object's name."""
    made = f"{source}.o"
    done = _compiler(folder, [*FLAGS, "-c", source, "-o", made])
    if done.returncode:
        raise CompileError(f"{COMPILER} refuses the bundle: {_complaint(done.stderr)}")
    return made


def _link(folder: Path, objects: Sequence[str]) -> set[str]:
    """Link the program; or the names of what is undefined."""
    script = ["-static", "-nostdlib", "-T", "memory.ld", f"-Wl,--defsym=arena={ARENA:#x}"]
    done = _compiler(folder, [*script, *objects, "-lgcc", "-o", "program"])
    missing = set(re.findall(r"undefined reference to `(\w+)'", done.stderr))
    if done.returncode and not missing:
        raise CompileError(f"{COMPILER} does not link the bundle: {_complaint(done.stderr)}")
    return missing


def _compiler(folder: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMPILER, *words], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def _complaint(said: str) -> str:
    lines = said.strip().splitlines() or ["no reason given"]
    return next((line for line in lines if "error" in line), lines[-1])


def _calls(bundle: Bundle, calls: Sequence[Call], placed: dict[str, Placed], nbytes: int, at_end: bool) -> str:
    """The calls as C: rows are read into their place before."""
    lines = [f'#include "{bundle.name}.h"', "extern void read_bytes(void *start, unsigned nbytes);", ""]
    lines += [f"const unsigned arena_nbytes = {nbytes}u;", "int make_calls(void) {", "    int code = 0;"]
    for call in calls:
        values: list[str] = []
        for one in call.arguments:
            address = placed[one].address if isinstance(one, str) else one
            if one == ROWS and at_end:
                address += placed[ROWS].region.nbytes - len(call.rows)
            if one == ROWS:
                lines.append(f"    read_bytes((void *){address:#x}u, {len(call.rows)}u);")
            values.append(f"(void *){address:#x}u" if isinstance(one, str) else f"{one}u")
        lines += [f"    code = {call.symbol}({', '.join(values)});", "    if (code != 0) {", "        return code;", "    }"]
    return "\n".join([*lines, "    return code;", "}", ""])
