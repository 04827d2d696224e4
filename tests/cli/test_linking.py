"""Two bundles and a firmware link by GNU ld, hard- and soft-float; the objects need nothing and show only their entries."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import aot
from tests import one_operator
from tests.graph.stateful import Sub, accumulator, initialiser, model

MAIN = """
#include "one.h"
#include "two.h"
static unsigned char workspace[(ONE_WORKSPACE_SIZE > TWO_WORKSPACE_SIZE ? ONE_WORKSPACE_SIZE : TWO_WORKSPACE_SIZE) + 4u]
    __attribute__((aligned(8)));
static int8_t in1[ONE_INPUT_0_SIZE], out1[ONE_OUTPUT_0_SIZE], in2[TWO_INPUT_0_SIZE], out2[TWO_OUTPUT_0_SIZE];
float scale(float x) { return x * ONE_INPUT_0_SCALE; }
int main(void) { return one_run(in1, out1, workspace) + two_run(in2, out2, workspace); }
"""
FLOATS = {
    "hard": ["-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"],
    "soft": ["-mfloat-abi=soft"],
    "softfp": ["-mfloat-abi=softfp", "-mfpu=fpv4-sp-d16"],
}


def tool(name: str) -> str:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    return name


def sh(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles `one` (a convolution) and `two` (a dense layer) for a Cortex-M4."""
    path = tmp_path_factory.mktemp("two-bundles")
    (path / "one.tflite").write_bytes(one_operator.conv2d())
    (path / "two.tflite").write_bytes(one_operator.depthwise())
    for name in ("one", "two"):
        aot.write(aot.compile(path / f"{name}.tflite", "cortex-m4"), path)
    return path


@pytest.mark.parametrize("abi", FLOATS)
def test_links_with_firmware(folder: Path, tmp_path: Path, abi: str) -> None:
    gcc = tool("arm-none-eabi-gcc")
    (tmp_path / "main.c").write_text(MAIN)
    flags = [
        "-mcpu=cortex-m4",
        "-mthumb",
        *FLOATS[abi],
        "-Wall",
        "-Wextra",
        "-Werror",
        "-nostdlib",
        "-Wl,--fatal-warnings",
        "-Wl,--no-warn-rwx-segments",
        "-Wl,-e,main",
    ]
    elf = str(tmp_path / "fw.elf")
    sh(gcc, *flags, f"-I{folder}", str(tmp_path / "main.c"), str(folder / "one.o"), str(folder / "two.o"), "-lgcc", "-o", elf)
    assert "one_run" in sh(tool("arm-none-eabi-nm"), elf)


@pytest.mark.parametrize("name", ["one", "two"])
def test_symbols(folder: Path, name: str) -> None:
    nm = tool("arm-none-eabi-nm")
    assert sh(nm, "-u", str(folder / f"{name}.o")).split() == []
    assert sh(nm, "-g", str(folder / f"{name}.o")).split()[1:] == ["T", f"{name}_run"]


@pytest.mark.parametrize("name", ["one", "two"])
def test_sections(folder: Path, name: str) -> None:
    from elftools.elf.elffile import ELFFile

    with open(folder / f"{name}.o", "rb") as stream:
        allocated = {s.name: s["sh_flags"] for s in ELFFile(stream).iter_sections() if s["sh_flags"] & 2 and s["sh_size"]}
    assert set(allocated) == {f".text.aot.{name}", f".rodata.aot.{name}"}
    assert all(not flags & 1 for flags in allocated.values()), "nothing is writable"


STATEFUL = """
#include "keeper.h"
static unsigned char workspace[KEEPER_WORKSPACE_SIZE + 4u] __attribute__((aligned(8)));
static unsigned char states[2][(KEEPER_STATE_SIZE + 7u) / 8u * 8u] __attribute__((aligned(KEEPER_STATE_ALIGN < 8u ? 8u : KEEPER_STATE_ALIGN)));
static float x[KEEPER_INPUT_0_SIZE / sizeof(float)], y[KEEPER_OUTPUT_0_SIZE / sizeof(float)];
int main(void)
{
    int wrong = 0;
    for (int i = 0; i < 4; i++)
        x[i] = (float)(i + 1);
    wrong |= keeper_init(states[0]) | keeper_init(states[1]);
    for (int number = 1; number <= 3; number++) { /* states[0] sums three times x, states[1] once */
        wrong |= keeper_run(x, y, workspace, states[0]);
        for (int i = 0; i < 4; i++)
            wrong |= y[i] != 5.0f + (float)number * x[i];
    }
    wrong |= keeper_run(x, y, workspace, states[1]);
    for (int i = 0; i < 4; i++)
        wrong |= y[i] != 5.0f + x[i];
    wrong |= keeper_init(states[0]);
    wrong |= keeper_run(x, y, workspace, states[0]);
    for (int i = 0; i < 4; i++)
        wrong |= y[i] != 5.0f + x[i];
    wrong |= keeper_init(0) != KEEPER_ERROR_NULL;
    return wrong;
}
"""


def keeper(folder: Path, cpu: str | None) -> None:
    """state := state + x, from 5; y = state."""

    def main(s: Sub):
        s.call_once(1)
        return accumulator(s)

    (folder / "keeper.tflite").write_bytes(model(main, initialiser(5, 5, 5, 5)))
    aot.write(aot.compile(folder / "keeper.tflite", cpu), folder)
    (folder / "main.c").write_text(STATEFUL)


@pytest.mark.parametrize("abi", FLOATS)
def test_links_a_model_with_state(tmp_path: Path, abi: str) -> None:
    gcc = tool("arm-none-eabi-gcc")
    keeper(tmp_path, "cortex-m4")
    warnings = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-std=c99", "-nostdlib", "-Wl,--no-warn-rwx-segments", "-Wl,-e,main"]
    elf = str(tmp_path / "fw.elf")
    flags = ["-mcpu=cortex-m4", "-mthumb", *FLOATS[abi], *warnings, f"-I{tmp_path}"]
    sh(gcc, *flags, str(tmp_path / "main.c"), str(tmp_path / "keeper.o"), "-lgcc", "-o", elf)
    symbols = sh(tool("arm-none-eabi-nm"), "-g", str(tmp_path / "keeper.o")).split()
    assert [name for name in symbols if name.startswith("keeper")] == ["keeper_init", "keeper_run"]


def test_a_program_of_this_machine_runs_two_instances(tmp_path: Path) -> None:
    cc = tool("gcc")
    keeper(tmp_path, None)
    program = str(tmp_path / "program")
    flags = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-std=c99", f"-I{tmp_path}"]
    sh(cc, *flags, str(tmp_path / "main.c"), str(tmp_path / "keeper.o"), "-o", program)
    sh(program)
