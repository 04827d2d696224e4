"""Glow's bundle interface: the flow of its examples, on this machine and on QEMU's Cortex-M4, and what that interface has no place for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import aot
from aot.artefacts import files
from aot.cli import run as aot_command
from aot.driver import Options
from aot.errors import CompileError
from aot.llvm import elf
from tests.integrations.firmware import BUNDLES, link, need, printed, run

DIGITS = BUNDLES / "digits" / "digits.tflite"
PROGRAMS = Path(__file__).parent / "glow"
CLASSES = [f"class {digit}" for digit in range(10)]
APIS = {"static": "glow", "dynamic": "glow-dynamic"}


def bundled(folder: Path, kind: str, *options: str) -> None:
    assert aot_command(["bundle", str(DIGITS), "--api", APIS[kind], *options, "-o", str(folder)]) == 0


@pytest.mark.parametrize("kind", APIS)
def test_program_on_this_machine(tmp_path: Path, kind: str) -> None:
    need("gcc")
    bundled(tmp_path, kind)
    flags = [
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
        "-DFILES",
        "-I.",
        f"-I{BUNDLES}/digits",
        f"-I{BUNDLES}/firmware",
    ]
    run(["gcc", *flags, PROGRAMS / f"{kind}.c", "digits.o", "-o", "program"], tmp_path)
    assert run([tmp_path / "program"], tmp_path).splitlines() == CLASSES


@pytest.mark.parametrize("kind", APIS)
def test_program_on_a_cortex_m4(tmp_path: Path, kind: str) -> None:
    need("arm-none-eabi-gcc")
    bundled(tmp_path, kind, "--cpu", "cortex-m4")
    elf_path = link(
        tmp_path, [PROGRAMS / f"{kind}.c"], [f"-I{tmp_path}", f"-I{BUNDLES}/digits", f"-I{PROGRAMS}"], [tmp_path / "digits.o"]
    )
    assert printed(elf_path, len(CLASSES)) == CLASSES


@pytest.mark.parametrize("api", APIS.values())
def test_object_has_nothing_writable_and_only_these_globals(api: str) -> None:
    made = aot.compile(DIGITS, "cortex-m4", options=Options(api=api))  # type: ignore[arg-type]
    wanted = {"digits", "digits_run"} | ({"digits_config"} if api == "glow-dynamic" else set())
    assert set(elf.exported(made.object)) == wanted
    assert not elf.undefined(made.object)
    elf.sizes(made.object)  # raises for anything writable


def test_blocks_are_what_the_description_says() -> None:
    made = aot.compile(DIGITS, "cortex-m4", options=Options(api="glow"))
    contents = files(made)
    glow = json.loads(contents["digits.json"])["glow"]
    assert len(contents["digits.weights.bin"]) == glow["constant_bytes"]
    assert (
        bytes(int(each, 16) for each in contents["digits.weights.txt"].decode().split(",")[:-1]) == contents["digits.weights.bin"]
    )
    ends = [each["offset"] + each["elements"] for each in glow["placeholders"]]
    assert all(end <= each["offset"] for end, each in zip(ends, glow["placeholders"][1:], strict=False))
    assert ends[-1] <= glow["mutable_bytes"]


def test_native_objects_know_nothing_of_it() -> None:
    assert elf.exported(aot.compile(DIGITS, "cortex-m4").object) == ("digits_run",)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (Options(io="workspace"), "--io workspace"),
        (Options(stream_input=True), "--stream-input"),
        (Options(page_weights_nbytes=4096), "--page-weights"),
        (Options(regions={"fast": 65536}), "--region"),
        (Options(threads=2, target="cortex-a53"), "--threads"),
        (Options(emit="c", backend="generic"), "C files"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refused(options: Options, what: str) -> None:
    with pytest.raises(CompileError, match=f"--api glow has no place for {what}"):
        aot.compile(DIGITS, options=replace(options, api="glow"))


def test_several_models_are_refused() -> None:
    with pytest.raises(CompileError, match="no place for several models"):
        aot.compile([DIGITS, BUNDLES / "sine" / "sine.tflite"], "cortex-m4", options=Options(api="glow"))


@pytest.mark.parametrize("name", ["memcpy", "exp", "expf", "printf"])
def test_name_of_a_library_function_is_refused(name: str) -> None:
    with pytest.raises(CompileError, match="is a function of the C library"):
        aot.compile(DIGITS, options=Options(api="glow", name=name))


def test_packages_are_for_the_native_interface(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert aot_command(["bundle", str(DIGITS), "--api", "glow", "--package", "zephyr", "-o", str(tmp_path)]) == 1
    assert "packages are for --api native" in capsys.readouterr().err
