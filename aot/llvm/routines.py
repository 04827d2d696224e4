"""Routines for what a core lacks."""

from __future__ import annotations

from dataclasses import dataclass

from aot.llvm.llvm import Compiler, Emission


@dataclass(frozen=True)
class Finished:
    emission: Emission
    calls: dict[str, set[str]]


def complete(compiler: Compiler, module: bytes, ordered: bool, name: str) -> Finished:
    emission = compiler.emit(module, ordered)
    return Finished(emission, compiler.calls(module))
