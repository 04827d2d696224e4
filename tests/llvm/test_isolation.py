"""Targets that LLVM can't do: one line, whatever LLVM does to its process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import aot
from aot.driver import Options
from aot.errors import CompileError, InternalError
from aot.llvm.isolation import isolated
from aot.llvm.llvm import Compiler
from aot.target import load_target
from tests.one_operator import conv2d


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "small.tflite"
    path.write_bytes(conv2d())
    return path


@pytest.mark.parametrize("triple", ["msp430", "amdgcn", "ve", "bpf", "nvptx64"])
def test_machines_that_no_object_is_made_for(triple: str, model: Path) -> None:
    """LLVM aborts, exits or raises on these."""
    with pytest.raises(CompileError, match=rf"^small.tflite: .*'{triple}'") as found:
        aot.compile(model, options=Options(triple=triple))
    assert str(found.value).isprintable()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("triple: thumbv7em-none-eabi\ncpu: nonsense", "'nonsense' is not a recognized processor"),
        ("triple: thumbv7em-none-eabi\nfeatures: +nonsense", r"'\+nonsense' is not a recognized feature"),
        ("triple: x86_64-linux-gnu\ncpu: i386", "LLVM can't compile for this target"),
    ],
)
def test_own_targets_that_llvm_does_not_know(text: str, message: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(CompileError, match=message):
        aot.compile(model, str(tmp_path / "mine.yaml"))


def test_what_comes_back() -> None:
    assert isolated(lambda: [1, 2], "riscv32") == [1, 2]
    with pytest.raises(InternalError, match="ZeroDivisionError"):
        isolated(lambda: 1 // 0, "riscv32")
    with pytest.raises(CompileError, match=r"^there: so it is \(do this\)$"):
        isolated(_refuse, "riscv32")
    with pytest.raises(CompileError, match="LLVM can't compile for this target"):
        isolated(os.abort, "riscv32")


def _refuse() -> None:
    raise CompileError("so it is", where="there", hint="do this")


def test_passes_that_end_the_process_run_again_without_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM's loop vectoriser aborts on some loops: the module is then optimised without it, and nothing is printed."""
    compiler, plain = Compiler(load_target("cortex-m55")), Compiler._optimised
    bitcode = compiler.parse("define i32 @f(i32 %x) {\n  %y = add i32 %x, 1\n  ret i32 %y\n}\n")

    def optimised(self: Compiler, given: bytes, vectors: bool) -> bytes:
        if vectors:
            os.abort()
        return plain(self, given, vectors)

    monkeypatch.setattr(Compiler, "_optimised", optimised)
    assert compiler.optimise(bitcode) == plain(compiler, bitcode, False)
