"""`--custom`: what it refuses, what it writes, and firmware that computes an operator, linked and run."""

from __future__ import annotations

import ctypes
import importlib.util
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

import aot
from aot.driver import Options
from aot.run import run_bundle
from tests import one_operator
from tests.builder import ModelBuilder
from tests.cli.test_cli import fails, run
from tests.llvm.test_calls import CHECK, C, between_layers
from tests.shared import ROOT

LIMIT = np.float32(1.25)
BOTH = ("--custom", "First=first", "--custom", "Second=second")
M4 = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Two custom operators, First and Second, between other layers."""
    (tmp_path / "model.tflite").write_bytes(between_layers())
    return str(tmp_path / "model.tflite")


def test_refusals(capsys: pytest.CaptureFixture[str], model: str) -> None:
    def line(*arguments: str) -> str:
        return fails(capsys, "bundle", model, *arguments)

    assert "custom operator 'First' is not supported (`aot ops` lists" in line() and "--custom NAME=c_function" in line()
    assert "custom operator 'Second' is not supported" in line("--custom", "First=first")
    assert "--custom 'First' is not NAME=c_function" in line("--custom", "First")
    assert "--custom '=first' names no operator" in line("--custom", "=first")
    for name in ("1st", "a-b", "", "für", "int", "a b", "main", "x" * 64):
        assert f"--custom First: '{name}' can't be the name of a C function" in line("--custom", f"First={name}")
    for name in ("_Bool", "uintptr_t", "uint_fast8_t", "INT32_C", "UINT8_MAX"):
        assert f"--custom First: the name '{name}' is the C language's own" in line("--custom", f"First={name}")
    for name in ("aot_first", "__first", "AOT_FLOAT32"):
        assert f"--custom First: names like '{name}' are not the firmware's" in line("--custom", f"First={name}")
    assert "the model has no custom operator 'Third' (its custom operators: First, Second)" in line(
        *BOTH, "--custom", "Third=third"
    )
    known = "the model has no custom operator 'first' (did you mean First? its custom operators: First, Second)"
    assert known in line("--custom", "first=f"), "before it is said that First is not supported"
    assert "--custom gives 'First' two functions, first and second" in line("--custom", "First=first", "--custom", "First=second")
    begin = "the names that begin with 'model_', such as 'model_first', are the bundle's own"
    assert begin in line("--custom", "First=model_first", "--custom", "Second=second")
    assert "'memcpy' is a routine of the compiler" in line("--custom", "First=memcpy", "--custom", "Second=second")


def test_refusal_where_the_model_has_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "conv.tflite"
    path.write_bytes(one_operator.conv2d())
    assert "no custom operator 'CONV_2D' (it has no custom operators)" in fails(
        capsys, "bundle", str(path), "--custom", "CONV_2D=conv"
    )


@pytest.mark.parametrize("command", ["run", "verify"])
@pytest.mark.parametrize("target", [[], ["--cpu", "cortex-m4"]], ids=["host", "cortex-m4"])
def test_runs_only_in_the_firmware(capsys: pytest.CaptureFixture[str], model: str, command: str, target: list[str]) -> None:
    line = fails(capsys, command, model, *BOTH, *target)
    assert "model calls functions of the firmware (first, second), so that it runs only there" in line


def test_one_function_may_compute_several(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    code, out, _ = run(capsys, "bundle", model, "--custom", "First=both", "--custom", "Second=both", "--json", "-o", str(tmp_path))
    assert code == 0 and json.loads(out)["functions"] == ["both"]


def test_what_is_written(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    code, out, _ = run(capsys, "bundle", model, *BOTH, "--cpu", "cortex-m4", "--explain", "-o", str(tmp_path / "out"))
    assert code == 0 and "the firmware provides int first(const aot_custom_call *call)" in out
    assert re.search(r"1 .*CUSTOM .*firmware first .*custom operator First", out)
    names = ["CMakeLists.txt", "aot_custom.h", "model.h", "model.json", "model.o", "model.report.html"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    described = json.loads((tmp_path / "out" / "model.json").read_text())
    assert described["functions"] == ["first", "second"]
    assert [each["kernel"] for each in described["entries"][0]["layers"] if each["operators"] == ["CUSTOM"]] == [
        "firmware first",
        "firmware second",
    ]
    header = (tmp_path / "out" / "model.h").read_text()
    assert "#define MODEL_ERROR_CUSTOM (-3)" in header and "int second(const aot_custom_call *call);" in header


def test_without_functions_nothing_changes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "conv.tflite"
    path.write_bytes(one_operator.conv2d())
    code, out, _ = run(capsys, "bundle", str(path), "-o", str(tmp_path / "out"))
    assert code == 0 and "firmware" not in out and not (tmp_path / "out" / "aot_custom.h").exists()
    assert "CUSTOM" not in (tmp_path / "out" / "conv.h").read_text()


def test_inspect_names_them(capsys: pytest.CaptureFixture[str], model: str) -> None:
    code, out, _ = run(capsys, "inspect", model)
    assert code == 0 and "custom operator 'Second' is not supported" in out and "--custom NAME=c_function" in " ".join(out.split())
    assert re.search(r"CUSTOM First +│ +1 ", out) and re.search(r"CUSTOM Second +│ +1 ", out)
    counts = json.loads(run(capsys, "inspect", model, "--json")[1])["graphs"][0]["operators"]
    assert counts["CUSTOM First"] == counts["CUSTOM Second"] == 1 and "CUSTOM" not in counts


# The example of docs/custom.md.


def example(language: str) -> str:
    (block,) = re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / "custom.md").read_text(), re.DOTALL)
    return block


def hard_shrink(dtype: str) -> bytes:
    """RELU, HardShrink."""
    m = ModelBuilder()
    fields = {"scale": 0.25, "zero_point": 7} if dtype == "int8" else {}
    x, a, y = (m.tensor(name, (1, 9), dtype, **fields) for name in "xay")
    m.operator("RELU", [x], [a])
    m.operator("CUSTOM", [a], [y], custom_code="HardShrink", custom_options=LIMIT.tobytes())
    return m.build([x], [y])


def shrunk(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """An input of `hard_shrink`, and its output."""
    if dtype == "float32":
        x = np.array([[-3, -1.25, 0, 1, 1.25, 1.5, 2, 9, np.inf]], np.float32)
        return x, np.where(x > LIMIT, x, 0).astype(np.float32)
    x = np.array([[-128, 0, 7, 8, 11, 12, 13, 14, 127]], np.int8)
    return x, np.where((x.astype(np.float32) - 7) * np.float32(0.25) > LIMIT, x, 7).astype(np.int8)


@pytest.mark.parametrize("compiler", ["gcc", "g++", "arm-none-eabi-gcc", "arm-none-eabi-g++"])
def test_the_example_compiles_clean(tmp_path: Path, compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    two_bundles(tmp_path)
    (tmp_path / "hard_shrink.c").write_text('#include "f.h"\n#include "q.h"\n' + example("c"))
    flags = ["-std=c++11", "-x", "c++"] if compiler.endswith("++") else ["-std=c99", "-x", "c"]
    command = [compiler, *flags, "-Wall", "-Wextra", "-pedantic", "-Werror", "-c", "hard_shrink.c", "-o", "hard_shrink.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def two_bundles(folder: Path) -> None:
    """Bundles `f` and `q` for this machine, which share the function and the folder."""
    for name, dtype in (("f", "float32"), ("q", "int8")):
        (folder / f"{name}.tflite").write_bytes(hard_shrink(dtype))
        options = Options(custom={"HardShrink": "hard_shrink"}, position_independent=True)
        aot.write(aot.compile(folder / f"{name}.tflite", options=options), folder)


def test_the_example_linked_with_two_bundles(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    two_bundles(tmp_path)
    (tmp_path / "hard_shrink.c").write_text(example("c"))
    command = ["gcc", "-O2", "-shared", "-fPIC", "hard_shrink.c", "f.o", "q.o", "-o", "both.so"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    library = ctypes.CDLL(str(tmp_path / "both.so"))
    workspace = np.zeros(64, np.uint64)
    for name, dtype in (("f", "float32"), ("q", "int8")):
        x, expected = shrunk(dtype)
        y = np.zeros_like(x)
        code = getattr(library, f"{name}_run")(*(ctypes.c_void_p(array.ctypes.data) for array in (x, y, workspace)))
        assert code == 0 and np.array_equal(y, expected)


def test_the_python_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    m = ModelBuilder()
    x, y = m.tensor("x", (1, 4), "float32"), m.tensor("y", (1, 4), "float32")
    m.operator("CUSTOM", [x], [y], custom_code="HardShrink", custom_options=LIMIT.tobytes())
    Path("model.tflite").write_bytes(m.build([x], [y]))
    scope: dict = {}
    exec(example("python"), scope)
    given = np.array([[1, -2, 3, 0]], np.float32)
    result = run_bundle(scope["bundle"], [given], functions={"hard_shrink": scope["hard_shrink"]})
    assert np.array_equal(result.outputs[0], [[0, -2, 3, 0]])


# Firmware for a Cortex-M4.

START = r"""
void reset(void);
extern char stack_top[];
__attribute__((section(".vectors"), used)) static const void *const vectors[] = {stack_top, (const void *)reset};
void reset(void) {
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* the FPU on */
    __asm volatile("dsb\n isb");
    {
        const uint32_t why[2] = {0x20026u, (uint32_t)check()}; /* ADP_Stopped_ApplicationExit, the exit code */
        register uint32_t operation __asm("r0") = 0x20u;
        register const uint32_t *block __asm("r1") = why;
        __asm volatile("bkpt 0xab" : : "r"(operation), "r"(block) : "memory");
    }
    for (;;) {}
}
"""
SCRIPT = """
SECTIONS {
    .text 0x0 : { KEEP(*(.vectors)) *(.text*) *(.rodata*) }
    .bss 0x20000000 (NOLOAD) : { *(.data*) *(.bss*) *(COMMON) }
    /DISCARD/ : { *(.ARM.exidx*) }
    stack_top = 0x20010000;
}
"""


def toolchains() -> list[str]:
    return ["gcc", "zig"]


def firmware(folder: Path, toolchain: str, *options: str) -> Path:
    """The checks of tests/llvm/test_calls.py as a Cortex-M4's firmware."""
    compiler = ["arm-none-eabi-gcc"]
    if toolchain == "gcc" and shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("arm-none-eabi-gcc is not installed")
    flags = [*M4]
    if toolchain == "zig":
        if importlib.util.find_spec("ziglang") is None:
            pytest.skip("ziglang is not installed")
        compiler, flags = (
            [sys.executable, "-m", "ziglang", "cc"],
            ["-target", "thumb-freestanding-eabihf", "-mcpu=cortex_m4+vfp4d16sp"],
        )
    (folder / "model.tflite").write_bytes(between_layers())
    custom = {"First": "first", "Second": "second"}
    pic = "pic" in options
    aot.write(aot.compile(folder / "model.tflite", "cortex-m4", options=Options(custom=custom, position_independent=pic)), folder)
    (folder / "main.c").write_text(C + CHECK + START)
    (folder / "link.ld").write_text(SCRIPT)
    command = [*compiler, *flags, "-O1", "-ffreestanding", "-fno-builtin", "-nostdlib", "-Wall", "-Werror", "main.c", "model.o"]
    done = subprocess.run([*command, "-T", "link.ld", "-Wl,-e,reset", "-o", "fw.elf"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "fw.elf"


@pytest.mark.parametrize("options", [(), ("pic",)], ids=["static", "pic"])
@pytest.mark.parametrize("toolchain", toolchains())
def test_firmware_in_qemu(tmp_path: Path, toolchain: str, options: tuple[str, ...]) -> None:
    if shutil.which("qemu-system-arm") is None:
        pytest.skip("qemu-system-arm is not installed")
    elf = firmware(tmp_path, toolchain, *options)
    command = ["qemu-system-arm", "-M", "mps2-an386", "-display", "none", "-monitor", "none", "-serial", "null"]
    command += ["-semihosting-config", "enable=on,target=native", "-kernel", str(elf)]
    assert subprocess.run(command, stdin=subprocess.DEVNULL, timeout=60).returncode == 0


@pytest.mark.parametrize("options", [(), ("pic",)], ids=["static", "pic"])
@pytest.mark.parametrize("toolchain", toolchains())
def test_firmware_in_unicorn(tmp_path: Path, toolchain: str, options: tuple[str, ...]) -> None:
    unicorn = pytest.importorskip("unicorn")
    from unicorn import arm_const as arm

    file = ELFFile(io.BytesIO(firmware(tmp_path, toolchain, *options).read_bytes()))
    engine = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)
    engine.ctl_set_cpu_model(arm.UC_CPU_ARM_CORTEX_M4)
    engine.mem_map(0, 0x20000)
    engine.mem_map(0x20000000, 0x10000)
    engine.mem_map(0xE0000000, 0x100000)
    for segment in file.iter_segments("PT_LOAD"):
        engine.mem_write(segment["p_paddr"], segment.data())
    engine.mem_write(0xE000ED88, (0xF << 20).to_bytes(4, "little"))
    table = file.get_section_by_name(".symtab")
    assert isinstance(table, SymbolTableSection)
    (check,) = (symbol["st_value"] for symbol in table.iter_symbols() if symbol.name == "check")
    engine.reg_write(arm.UC_ARM_REG_SP, 0x20010000)
    engine.reg_write(arm.UC_ARM_REG_LR, 0xFF01)
    engine.emu_start(check | 1, 0xFF00)
    assert engine.reg_read(arm.UC_ARM_REG_R0) == 0
