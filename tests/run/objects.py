"""Small objects with a bundle's interface, made with arm-none-eabi-gcc or LLVM, for tests of the runners."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import util
from pathlib import Path

import numpy as np
import pytest
from llvmlite import binding

from aot.bundle import Bundle, Entry, Layer, Port
from aot.graph.ir import DType
from aot.run.process.program import compiler_options
from aot.target import host_target, load_target

FLAGS = {
    "cortex-m0": "-mcpu=cortex-m0",
    "cortex-m0plus": "-mcpu=cortex-m0plus",
    "cortex-m3": "-mcpu=cortex-m3",
    "cortex-m4": "-mcpu=cortex-m4 -mfloat-abi=hard -mfpu=fpv4-sp-d16",
    "cortex-m7": "-mcpu=cortex-m7 -mfloat-abi=hard -mfpu=fpv5-sp-d16",
    "cortex-m23": "-mcpu=cortex-m23",
    "cortex-m33": "-mcpu=cortex-m33 -mfloat-abi=hard -mfpu=fpv5-sp-d16",
    "cortex-m55": "-mcpu=cortex-m55 -mfloat-abi=hard",
    "cortex-m85": "-march=armv8.1-m.main+mve.fp+fp.dp -mfloat-abi=hard",
}
PROCESSES = ("cortex-a9", "cortex-a53", "rv32imc", "rv64gc", "hexagonv68")
"""Targets whose code runs in a Linux process under QEMU: one of each instruction set."""
X = np.arange(490).astype(np.int8)


def arm_object(source: str, cpu: str, language: str = "c", options: str = "") -> bytes:
    """Compile C or assemble; skips the test where the compiler is missing."""
    if shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("arm-none-eabi-gcc is not installed")
    with tempfile.TemporaryDirectory() as folder:
        path, target = Path(folder, f"code.{'c' if language == 'c' else 's'}"), Path(folder, "code.o")
        path.write_text(source)
        command = f"arm-none-eabi-gcc -mthumb {FLAGS[cpu]} -O2 -ffreestanding -ffunction-sections -fno-unwind-tables {options}"
        subprocess.run([*command.split(), "-c", path, "-o", target], check=True)
        return target.read_bytes()


def process_object(source: str, cpu: str) -> bytes:
    """Compile C for a target whose code runs in a Linux process; skips the test where ziglang or the emulator is missing."""
    target = load_target(cpu)
    if shutil.which(str(target.run["qemu"]["program"])) is None:
        pytest.skip(f"{target.run['qemu']['program']} is not installed")
    if util.find_spec("ziglang") is None:
        pytest.skip("ziglang is not installed")
    with tempfile.TemporaryDirectory() as folder:
        path, made = Path(folder, "code.c"), Path(folder, "code.o")
        path.write_text(source)
        options = [*compiler_options(target), "-O2", "-ffreestanding", "-fno-sanitize=all", "-fno-unwind-tables", "-fno-builtin"]
        subprocess.run([sys.executable, "-m", "ziglang", "cc", *options, "-c", path, "-o", made], check=True)
        return made.read_bytes()


def host_object(body: str, parameters: str = "ptr %x, ptr %y, ptr %w") -> bytes:
    """Compile `body`, LLVM IR of test_run, for this machine."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = host_target()
    machine = binding.Target.from_triple(target.triple).create_target_machine(cpu=target.cpu, reloc="pic")
    source = f'target triple = "{target.triple}"\ndefine i32 @test_run({parameters}) {{\n{body}\n}}\n'
    return machine.emit_object(binding.parse_assembly(source))


def needs_qemu() -> None:
    """Skip the test where QEMU is missing."""
    if shutil.which("qemu-system-arm") is None:
        pytest.skip("qemu-system-arm is not installed")


def bundle(
    data: bytes,
    cpu: str,
    *,
    inputs: Sequence[Port] = (),
    outputs: Sequence[Port] = (),
    layers: Sequence[str] = ("layer_0",),
    workspace_nbytes: int = 64,
    stack_nbytes: int = 0,
    weights: bytes | None = None,
    io_in_workspace: bool = False,
) -> Bundle:
    """A bundle around an object whose entry is `test_run`."""
    described = tuple(Layer(symbol, "test kernel", (number,), ("TEST",), (1,), 0, 0, 0) for number, symbol in enumerate(layers))
    entry = Entry("test_run", tuple(inputs), tuple(outputs), workspace_nbytes, 8, stack_nbytes, 0, 0, described)
    target = host_target() if cpu == "host" else load_target(cpu)
    return Bundle("test", "generic", target, data, (entry,), 0, 0, weights, 8, io_in_workspace)


def port(name: str, shape: tuple[int, ...], dtype: DType = DType.INT8, align: int = 4, workspace_offset: int | None = None) -> Port:
    return Port(name, name, dtype, shape, None, align, workspace_offset)


def one_layer(body: str, cpu: str, *, stack_nbytes: int = 0, result: str = "0") -> Bundle:
    """A bundle from 490 bytes `x` to 12 bytes `y` with 64 bytes `w` of workspace: its layer does `body`, then y[i] = i."""
    parameters = "const volatile signed char *x, volatile signed char *y, volatile signed char *w"
    source = f"""
        static __attribute__((noipa)) void layer_0({parameters}) {{ {body}; for (int i = 0; i < 12; i++) y[i] = i; }}
        int test_run({parameters}) {{ layer_0(x, y, w); return {result}; }}
    """
    data = process_object(source.replace("noipa", "noinline"), cpu) if cpu in PROCESSES else arm_object(source, cpu)
    return bundle(data, cpu, inputs=[port("x", (490,))], outputs=[port("y", (12,))], stack_nbytes=stack_nbytes)


def assembled(body: str, cpu: str, layers: Sequence[str] = ("layer_0",)) -> Bundle:
    """A bundle without inputs, one byte of output, around functions written in assembly."""
    source = f".syntax unified\n.thumb\n{body}\n"
    return bundle(arm_object(source, cpu, "s"), cpu, outputs=[port("y", (1,))], layers=layers)


def function(name: str, body: str, visible: bool = False) -> str:
    """Assembly of one function in its own section."""
    linkage = f".global {name}\n" if visible else ""
    head = f'.section .text.{name},"ax",%progbits\n{linkage}.thumb_func\n.type {name},%function\n'
    return f"{head}{name}:\n{body}\n.size {name}, .-{name}\n"
