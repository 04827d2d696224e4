"""Targets: what the code is compiled for. Named CPUs are YAML files in `aot/targets/`; users may pass their own.

Enters: a CPU name, a YAML path or an LLVM triple. Leaves: `Target`.
Invariant: a Target says all that code generation and running need; no other file knows CPU names.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from aot.errors import CompileError

_FOLDER = Path(__file__).parent / "targets"
_FIELDS = {"name", "summary", "triple", "cpu", "features", "has", "float_abi", "pointer_bits", "memory", "run"}


@dataclass(frozen=True)
class Target:
    """One CPU.

    triple, cpu, features: LLVM's. has: abilities that kernels ask for (dsp, mve, mve.fp, fpu, fp64, divide, long_multiply, unaligned).
    float_abi: hard, soft or "" (not Arm). run: for each emulator its parameters (unicorn: model; qemu: machine, board memory map).
    """

    name: str
    triple: str
    cpu: str = ""
    features: str = ""
    has: frozenset[str] = frozenset()
    float_abi: str = ""
    pointer_bits: int = 32
    summary: str = ""
    memory: Mapping[str, int] = field(default_factory=dict)
    run: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    @property
    def is_host(self) -> bool:
        return self.name == "host"


def target_names() -> tuple[str, ...]:
    """The CPUs that come with the package."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def load_target(name: str) -> Target:
    """The target of a CPU name or of a YAML file's path. CompileError for an unknown name or a bad file."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else _FOLDER / f"{name}.yaml"
    if not path.is_file():
        close = difflib.get_close_matches(name, target_names(), 1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise CompileError(f"unknown CPU '{name}'", hint=f"{hint}known: {', '.join(target_names())}; or the path of a .yaml file")
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CompileError(f"can't be read as YAML: {error}", where=str(path)) from error
    if not isinstance(content, dict) or not isinstance(content.get("triple"), str):
        raise CompileError("a target file is a YAML mapping with at least a triple", where=str(path))
    if unknown := sorted(map(str, set(content) - _FIELDS)):
        raise CompileError(f"unknown field '{unknown[0]}'", where=str(path), hint=f"fields: {', '.join(sorted(_FIELDS))}")
    content["has"] = frozenset(content.get("has", ()))
    return Target(**{"name": path.stem, **content})
