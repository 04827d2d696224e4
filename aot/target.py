# pyright: basic
"""Targets: what the code is compiled for. Named CPUs are YAML files in `aot/targets/`; users may pass their own.

Enters: a CPU name, a YAML path or an LLVM triple. Leaves: `Target`.
Invariant: a Target says all that code generation and running need; no other file knows CPU names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from aot.errors import CompileError
from aot.names import suggestion

_FOLDER = Path(__file__).parent / "targets"
_FIELDS = {
    "name",
    "summary",
    "triple",
    "cpu",
    "features",
    "has",
    "float_abi",
    "pointer_bits",
    "memory",
    "l1d_nbytes",
    "l2_nbytes",
    "emits",
    "run",
}
ABILITIES = frozenset(
    {
        "dsp",
        "mve",
        "mve.fp",
        "fpu",
        "fp64",
        "divide",
        "long_multiply",
        "saturate",
        "unaligned",
        "neon",
        "dotprod",
        "i8mm",
        "hifi",
        "hifi5",
    }
)
_FULL = frozenset({"fpu", "fp64", "divide", "long_multiply", "unaligned"})
_MAINLINE = ("thumbv8m.main", "thumbv8.1m.main")
_ONLY_ON = {
    "saturate": ("thumbv7m", "thumbv7em", *_MAINLINE),
    "dsp": ("thumbv7em", *_MAINLINE),
    "mve": ("thumbv8.1m.main",),
    "neon": ("armv7", "armv7a", "thumbv7", "thumbv7a", "aarch64"),
    "dotprod": ("aarch64",),
    "i8mm": ("aarch64",),
}
"""Instructions that kernels use by name: LLVM ends the process where the architecture lacks them."""
_EMULATORS = {
    "unicorn": ({"model": str},),
    "qemu": ({"machine": str, "instructions_per_tick": (int, float)}, {"program": str, "cpu": str}),
    "renode": ({"cpu": str},),
}
"""For each emulator its parameters, in one way or another: QEMU has boards, or a program that runs Linux processes."""
_BOARD = ("code", "code_nbytes", "ram", "ram_nbytes")
_OF_ARCHITECTURE = {
    "thumbv6m": "cortex-m0",
    "thumbv7m": "cortex-m3",
    "thumbv7em": "cortex-m4",
    "thumbv8m.base": "cortex-m23",
    "thumbv8m.main": "cortex-m33",
    "thumbv8.1m.main": "cortex-m55",
}
_BASELINE = {"x86_64": "x86-64", "i686": "pentium4"}


@dataclass(frozen=True)
class Target:
    """One CPU.

    triple, cpu, features: LLVM's. has: what kernels ask for (dsp, mve, fpu, fp64, divide, long_multiply,
    saturate: clamps to 2^n in one instruction, unaligned; neon: Advanced SIMD, of which aarch64 has 32 registers; dotprod: SDOT; i8mm: SMMLA;
    hifi: a Tensilica HiFi DSP; hifi5: the fifth).
    float_abi: hard, soft or "" (not Arm). memory: addresses and bytes of the emulated board's code memory, RAM and vector table.
    l1d_nbytes, l2_nbytes: its data caches, of the sizes that are made most often (0: it has none, or nobody knows).
    emits: object; or c, where LLVM has no code generator: its triple is then that of a core with the same sizes and alignments of data.
    run: for each emulator its parameters (unicorn: model; qemu: machine, instructions_per_tick, or for a Linux process program, cpu;
    renode: cpu).
    """

    name: str
    triple: str
    cpu: str = ""
    features: str = ""
    has: frozenset[str] = frozenset()
    float_abi: str = ""
    pointer_bits: int = 32
    summary: str = ""
    memory: Mapping[str, int] = field(default_factory=dict[str, int])
    l1d_nbytes: int = 0
    l2_nbytes: int = 0
    emits: str = "object"
    run: Mapping[str, Mapping[str, object]] = field(default_factory=dict[str, Mapping[str, object]])

    @property
    def is_host(self) -> bool:
        return self.name == "host"


def target_names() -> tuple[str, ...]:
    """The CPUs that come with the package."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def is_packaged(target: Target) -> bool:
    """Whether it is this machine or one of the package's CPUs, unchanged: what has been tried."""
    return target.is_host or (target.name in target_names() and target == load_target(target.name))


def load_target(name: str) -> Target:
    """The target of a CPU name or of a YAML file's path. CompileError for an unknown name or a bad file."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else _FOLDER / f"{name}.yaml"
    if path.suffix in (".yaml", ".yml") and str(path) == name and not path.is_file():
        raise CompileError("there is no such file", where=name)
    if not path.is_file():
        raise CompileError(f"unknown CPU '{name}'", hint=f"{suggestion(name, target_names())}; or the path of a .yaml file")
    return _packaged(path) if path.parent == _FOLDER else _read(path)


@cache
def _packaged(path: Path) -> Target:
    """A CPU that comes with the package: read once, as every compilation asks for it."""
    return _read(path)


def _read(path: Path) -> Target:
    """The target that a YAML file describes. CompileError for a bad file."""
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, ValueError, OverflowError, RecursionError, yaml.YAMLError) as error:  # the middle three are PyYAML's, too
        raise CompileError(f"can't be read as YAML: {_reason(error)}", where=str(path)) from error
    return target_from(content, str(path), path.stem)


def target_from(content: object, where: str, name: str = "") -> Target:
    """The target that a file's content describes. name: where it says none. CompileError, which names `where`, if it describes none."""
    if unknown := sorted(map(str, set(content) - _FIELDS)) if isinstance(content, dict) else []:
        raise CompileError(f"unknown field '{unknown[0]}'", where=where, hint=f"fields: {', '.join(sorted(_FIELDS))}")
    if not isinstance(content, dict) or not isinstance(content.get("triple"), str):
        raise CompileError("a target file is a YAML mapping with at least a triple", where=where)
    if problem := _problem({"name": name, **content}):
        raise CompileError(problem, where=where)
    content["has"] = frozenset(content.get("has") or ())
    pointer_bits = _pointer_bits(content["triple"])
    if content.setdefault("pointer_bits", pointer_bits) != pointer_bits:
        raise CompileError(f"a pointer of {content['triple']} has {pointer_bits} bits", where=where)
    return Target(**{"name": name, **content})


def _reason(error: Exception) -> str:
    """What is wrong with a file, in one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _problem(content: Mapping[str, Any]) -> str:
    """What is wrong with a target file's fields; "" if nothing."""
    for name in ("name", "summary", "triple", "cpu", "features", "float_abi"):
        if not isinstance(content.get(name, ""), str):
            return f"{name} is not text"
    if not content["name"].isprintable() or content["name"] in ("", "host"):
        return "name is one line of text, and not host, which is this machine"
    if not re.fullmatch(r"([+-][\w.-]+(,[+-][\w.-]+)*)?", content.get("features", "")):
        return "features are like +m,-c"
    abilities = content.get("has") or ()
    if not isinstance(abilities, (list, tuple)) or not set(map(str, abilities)) <= ABILITIES:
        return f"has is a list of some of {', '.join(sorted(ABILITIES))}"
    architecture = content["triple"].split("-")[0]
    if wrong := [name for name in sorted(map(str, abilities)) if name in _ONLY_ON and architecture not in _ONLY_ON[name]]:
        return f"{architecture} has no {wrong[0]}, which needs {' or '.join(_ONLY_ON[wrong[0]])}"
    if content.get("float_abi", "") not in ("", "hard", "soft"):
        return "float_abi is hard or soft"
    if content.get("emits", "object") not in ("object", "c"):
        return "emits is object or c"
    if content.get("pointer_bits", 32) not in (16, 32, 64):
        return "pointer_bits is 16, 32 or 64"
    memory, runs = content.get("memory", {}), content.get("run", {})
    if not isinstance(memory, dict) or not all(isinstance(value, int) and value >= 0 for value in memory.values()):
        return "memory is a mapping of names to addresses and sizes"
    for name in ("l1d_nbytes", "l2_nbytes"):
        if not isinstance(content.get(name, 0), int) or content.get(name, 0) < 0:
            return f"{name} is a number of bytes"
    if (
        not isinstance(runs, dict)
        or not set(runs) <= set(_EMULATORS)
        or not all(isinstance(value, dict) for value in runs.values())
    ):
        return f"run is a mapping of {', '.join(_EMULATORS)} to their parameters"
    for emulator, parameters in runs.items():
        ways = _EMULATORS[emulator]
        wanted = next((way for way in ways if not set(way).isdisjoint(parameters)), ways[0])
        if missing := [name for name in wanted if not isinstance(parameters.get(name), wanted[name])]:
            return f"run of {emulator} lacks {missing[0]}"
        if emulator != "unicorn" and "program" not in wanted and (missing := [name for name in _BOARD if name not in memory]):
            return f"run of {emulator} needs memory's {missing[0]}"
    return ""


@cache
def host_target() -> Target:
    """This machine, as the oldest CPU of its architecture, so that equal machines give equal bytes."""
    from llvmlite import binding

    triple = binding.get_process_triple()
    architecture = triple.split("-")[0]
    cpu = _BASELINE.get(architecture, "generic")
    return Target("host", triple, cpu, has=_FULL, pointer_bits=_pointer_bits(triple), summary="this machine, in process")


def triple_target(triple: str, cpu: str = "", features: str = "") -> Target:
    """The target of an LLVM triple. CompileError for a triple that LLVM does not know.

    A microcontroller's triple takes emulators and abilities from the named CPU of its architecture; a soft-float one has no FPU.
    """
    pointer_bits = _pointer_bits(triple)
    architecture = triple.split("-")[0]
    named = next((load_target(name) for name in target_names() if name == cpu), None)
    if named is None and architecture in _OF_ARCHITECTURE:
        named = load_target(_OF_ARCHITECTURE[architecture])
    if named is None:
        has = _FULL if architecture in ("x86_64", "aarch64", "arm64", "i686") else _abilities(features)
        return Target(
            triple,
            triple,
            cpu or _BASELINE.get(architecture, ""),
            features,
            has,
            pointer_bits=pointer_bits,
            summary="an LLVM triple",
        )
    hard = triple.endswith("hf")
    if hard and not named.float_abi == "hard":
        raise CompileError(
            f"{named.cpu} has no FPU, so it can't pass floats in registers as '{triple}' asks", hint=f"use {named.triple}"
        )
    if not (cpu or features or hard):
        kept = {"divide", "long_multiply", "saturate", "unaligned"} | ({"dsp"} if architecture == "thumbv7em" else set())
        return replace(
            named, name=triple, triple=triple, cpu="", features="", has=named.has & kept, float_abi="soft", summary="an LLVM triple"
        )
    features = ",".join(filter(None, (named.features, features)))
    return replace(
        named, name=triple, triple=triple, features=features, float_abi="hard" if hard else "soft", summary="an LLVM triple"
    )


def _abilities(features: str) -> frozenset[str]:
    """What RISC-V features promise. Nothing for other architectures: what a core may lack is then emitted as code."""
    given = {part.strip() for part in features.split(",")}
    granted = {"+m": {"divide", "long_multiply"}, "+f": {"fpu"}, "+d": {"fpu", "fp64"}}
    return frozenset(ability for feature, abilities in granted.items() if feature in given for ability in abilities)


def _pointer_bits(triple: str) -> int:
    """Bits of a data pointer, from LLVM's data layout. CompileError for a triple that LLVM does not know."""
    from llvmlite import binding

    binding.initialize_all_targets()
    try:
        if not re.fullmatch(r"[A-Za-z0-9._-]+", triple):
            raise RuntimeError("a triple has no other characters")
        layout = str(binding.Target.from_triple(triple).create_target_machine().target_data)
    except RuntimeError as error:
        raise CompileError(
            f"LLVM has no target '{triple}'", hint="a triple is like thumbv7em-none-eabihf, riscv32-unknown-none-elf"
        ) from error
    pointer = re.search(r"(?:^|-)p:(\d+)", layout)
    return int(pointer.group(1)) if pointer else 64
