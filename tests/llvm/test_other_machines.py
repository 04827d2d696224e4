"""Code for RISC-V (with and without multiplication) and AArch64: linked by lld, called in Unicorn, compared with the numpy meaning."""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from aot.bundle import Bundle
from aot.lower.execute import execute_all
from aot.lower.program import Program
from aot.target import Target, load_target, triple_target
from tests.llvm.compiled import bundle_of, meaning
from tests.llvm.test_objects import sample
from tests.llvm.test_runs import network, streamed
from tests.lower.toy import random_inputs

unicorn = pytest.importorskip("unicorn")
CODE, DATA, STACK, STOP = 0x10000, 0x200000, 0x300000, 0x400000
TARGETS = [
    load_target("riscv32"),
    load_target("riscv64"),
    triple_target("riscv32-unknown-elf"),
    triple_target("riscv64-unknown-elf"),
]
TARGETS.append(triple_target("aarch64-none-elf"))
EMULATION = {"riscv32": "elf32lriscv", "riscv64": "elf64lriscv", "aarch64": "aarch64elf"}


def linked(bundle: Bundle, folder: Path) -> ELFFile:
    """The object as an executable at CODE."""
    (folder / "bundle.o").write_bytes(bundle.object)
    emulation = EMULATION[bundle.target.triple.split("-")[0]]
    command = [sys.executable, "-m", "ziglang", "ld.lld", "-m", emulation, "--image-base", hex(CODE), "-e", "sample_run"]
    built = subprocess.run([*command, "bundle.o", "-o", "out.elf"], cwd=folder, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return ELFFile(io.BytesIO((folder / "out.elf").read_bytes()))


def machine_of(target: Target) -> tuple:
    """An engine, and its registers: arguments, stack pointer, return address, program counter."""
    if target.triple.startswith("aarch64"):
        from unicorn import arm64_const as arm

        engine = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        engine.reg_write(arm.UC_ARM64_REG_CPACR_EL1, 3 << 20)
        return engine, [arm.UC_ARM64_REG_X0 + n for n in range(8)], arm.UC_ARM64_REG_SP, arm.UC_ARM64_REG_LR
    from unicorn import riscv_const as riscv

    mode = unicorn.UC_MODE_RISCV32 if target.pointer_bits == 32 else unicorn.UC_MODE_RISCV64
    engine = unicorn.Uc(unicorn.UC_ARCH_RISCV, mode)
    status = engine.reg_read(riscv.UC_RISCV_REG_MSTATUS)
    engine.reg_write(riscv.UC_RISCV_REG_MSTATUS, status | 1 << 13)
    return engine, [riscv.UC_RISCV_REG_A0 + n for n in range(8)], riscv.UC_RISCV_REG_SP, riscv.UC_RISCV_REG_RA


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang (for lld) is not installed")
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_sample(target: Target, tmp_path: Path) -> None:
    program, arrays = sample()
    check(program, arrays, dict(zip(program.outputs, meaning(program, arrays))), bundle_of(program, target), tmp_path)


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang (for lld) is not installed")
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_steps_of_rows(target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = network(12)
    arrays = random_inputs(program)
    check(program, arrays, execute_all(program, arrays), streamed(program, target, monkeypatch), tmp_path)


def check(program: Program, arrays: dict[str, np.ndarray], expected: dict[str, np.ndarray], bundle: Bundle, folder: Path) -> None:
    """Call the entry: its outputs are as expected, its stack within the bound."""
    file = linked(bundle, folder)
    engine, arguments, stack_pointer, return_address = machine_of(bundle.target)
    engine.mem_map(CODE, 0x100000)
    engine.mem_map(DATA, 0x10000)
    engine.mem_map(STACK, 0x10000)
    engine.mem_map(STOP, 0x1000)
    for segment in file.iter_segments("PT_LOAD"):
        engine.mem_write(segment["p_vaddr"], segment.data())
    places, position = [], DATA
    for name in (*program.inputs, *program.outputs, ""):
        data = arrays[name].tobytes() if name in arrays else bytes(program[name].nbytes if name else bundle.workspace_nbytes)
        engine.mem_write(position, data)
        places.append(position)
        position += -(-len(data) // 16) * 16 + 16
    for register, place in zip(arguments, places):
        engine.reg_write(register, place)
    engine.reg_write(stack_pointer, STACK + 0x8000)
    engine.mem_write(STACK, b"\xa5" * 0x8000)
    engine.reg_write(return_address, STOP)
    engine.emu_start(file["e_entry"], STOP)
    assert engine.reg_read(arguments[0]) == 0
    for name, place in zip(program.outputs, places[len(program.inputs) :]):
        want = expected[name]
        got = np.frombuffer(bytes(engine.mem_read(place, want.nbytes)), want.dtype).reshape(want.shape)
        assert np.array_equal(got, want), name
    used = 0x8000 - next(n for n, byte in enumerate(engine.mem_read(STACK, 0x8000)) if byte != 0xA5)
    assert used <= bundle.main.stack_nbytes
