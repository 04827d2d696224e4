"""What is installed of the tools that aot can use, what each is for, and how to get it.

Enters: the search path, the Python environment. Leaves: `Finding`s. Invariant: a tool that hangs, fails or prints anything at all is a
finding, never an error.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from aot.target import load_target, target_names

SECONDS = 10.0
"""How long a tool may take to tell its version."""
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)+[0-9A-Za-z.+-]*")


@dataclass(frozen=True)
class Tool:
    """Something to look for. package: of Python, by its distribution's name; else programs, of which any one will do."""

    kind: str
    name: str
    use: str
    get: str
    package: str = ""
    programs: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ("--version",)


@dataclass(frozen=True)
class Finding:
    """A tool, and what there is of it. where: its path; empty for a package of Python. problem: why its version is not known."""

    tool: Tool
    found: bool
    version: str = ""
    where: str = ""
    problem: str = ""


def tools() -> tuple[Tool, ...]:
    """Everything that commands of aot use, in the order of a table."""
    return (
        Tool("compiler", "llvmlite", "LLVM: makes the objects", "pip install llvmlite", package="llvmlite"),
        *_emulators(),
        Tool("compiler", "ziglang", "links what runs under QEMU; plugin of QEMU", "pip install ziglang", package="ziglang"),
        Tool("compiler", "gcc or clang", "runs C bundles on this machine", "apt install gcc", programs=("gcc", "clang", "cc")),
        Tool(
            "compiler",
            "arm-none-eabi-gcc",
            "the samples' firmware (or ziglang)",
            "apt install gcc-arm-none-eabi",
            programs=("arm-none-eabi-gcc",),
        ),
        Tool(
            "compiler",
            "xtensa-lx106-elf-gcc",
            "HiFi bundles on an Xtensa, --on qemu",
            "apt install gcc-xtensa-lx106",
            programs=("xtensa-lx106-elf-gcc",),
        ),
        Tool("oracle", "tflite-micro", "what `aot verify` compares with", "pip install tflite-micro", package="tflite-micro"),
        Tool(
            "oracle", "ai-edge-litert", "the same, where TFLite Micro can't", "pip install ai-edge-litert", package="ai-edge-litert"
        ),
    )


def _emulators() -> tuple[Tool, ...]:
    """One for each way in which a CPU of the package runs, with the CPUs that it is for."""
    cpus: dict[str, list[str]] = {}
    for name in target_names():
        for emulator, parameters in load_target(name).run.items():
            program = parameters.get("program", "qemu-system-arm") if emulator == "qemu" else emulator
            cpus.setdefault(str(program), []).append(name)
    found = [
        Tool("emulator", "unicorn", f"runs {_listed(cpus.pop('unicorn', []))}", "pip install unicorn", package="unicorn"),
    ]
    for program, names in cpus.items():
        get = {"renode": "https://renode.io", "qemu-system-arm": "apt install qemu-system-arm"}.get(
            program, "apt install qemu-user"
        )
        found.append(Tool("emulator", program, f"runs {_listed(names)}", get, programs=(program, f"{program}-static")))
    return tuple(found)


def _listed(names: Sequence[str]) -> str:
    """A few names in full, more by the first and their number."""
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"


def examine(all_tools: Sequence[Tool] | None = None, seconds: float = SECONDS) -> tuple[Finding, ...]:
    """Look for every tool, and ask those that are there for their version; each may take so many seconds."""
    return tuple(_package(tool) if tool.package else _program(tool, seconds) for tool in all_tools or tools())


def _package(tool: Tool) -> Finding:
    try:
        found: str | None = version(tool.package)
    except PackageNotFoundError:
        return Finding(tool, False)
    return Finding(tool, True, found or "", problem="" if found else "names no version: install it again")


def _program(tool: Tool, seconds: float) -> Finding:
    path = next((found for program in tool.programs if (found := shutil.which(program))), None)
    if path is None:
        return Finding(tool, False)
    where = str(Path(path))
    try:
        done = subprocess.run([path, *tool.arguments], capture_output=True, timeout=seconds, stdin=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        return Finding(tool, True, where=where, problem=f"says nothing within {seconds:g} s")
    except OSError as error:
        return Finding(tool, False, where=where, problem=f"can't be started: {error.strerror or error}")
    said = (done.stdout + done.stderr)[:10_000].decode(errors="replace")
    match = _VERSION.search(said)
    problem = "" if match else "names no version"
    if done.returncode:
        problem = f"--version ends with code {done.returncode}"
    return Finding(tool, True, match[0] if match else "", where, problem)
