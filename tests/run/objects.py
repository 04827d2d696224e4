"""Small objects with a bundle's interface, made with arm-none-eabi-gcc, for tests of the runners."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from aot.bundle import Bundle, Entry, Layer, Port
from aot.graph.ir import DType
from aot.target import load_target

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
    return Bundle("test", "generic", load_target(cpu), data, (entry,), 0, 0, weights, 8, io_in_workspace)


def port(name: str, shape: tuple[int, ...], dtype: DType = DType.INT8, align: int = 4, workspace_offset: int | None = None) -> Port:
    return Port(name, name, dtype, shape, None, align, workspace_offset)
