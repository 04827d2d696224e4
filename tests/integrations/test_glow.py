"""Glow's bundle interface: the flow of its examples, on this machine and on QEMU's Cortex-M4, and what that interface has no place for."""

from __future__ import annotations

import ctypes
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import aot
from aot.artefacts import files
from aot.cli import run as aot_command
from aot.driver import Options
from aot.errors import CompileError
from aot.llvm import elf
from aot.run import run_bundle
from aot.samples import random_inputs
from tests.builder import ModelBuilder
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


def two_by_two() -> bytes:
    """Two inputs, two outputs, of different types and sizes that are no multiples of four bytes."""
    m = ModelBuilder()
    x, y = m.tensor("x", (1, 5), "float32"), m.tensor("y", (1, 7), "int8", scale=0.5, zero_point=3)
    total, rectified = m.tensor("total", (1, 5), "float32"), m.tensor("rectified", (1, 7), "int8", scale=0.5, zero_point=3)
    m.operator("ADD", [x, x], [total])
    m.operator("RELU", [y], [rectified])
    return m.build([y, x], [rectified, total])


def test_every_placeholder_is_where_it_should_be(tmp_path: Path) -> None:
    """In process: the bytes of a native bundle; other bytes of the mutable block stay; errors come before anything is touched."""
    need("gcc")
    path = tmp_path / "two.tflite"
    path.write_bytes(two_by_two())
    made = aot.compile(path, options=Options(api="glow"))
    glow = made.glow
    assert glow is not None and glow.constant_nbytes >= 1
    inputs = random_inputs(made.main, 5)
    wanted = [*inputs, *run_bundle(aot.compile(path), inputs).outputs]
    sizes = (glow.constant_nbytes, glow.mutable_nbytes, glow.activations_nbytes)
    blocks = [np.full(nbytes + 4 * glow.align, 0xA5, np.uint8) for nbytes in sizes]
    starts = [-block.ctypes.data % glow.align + glow.align for block in blocks]
    addresses = [block.ctypes.data + start for block, start in zip(blocks, starts, strict=True)]
    blocks[0][starts[0] : starts[0] + sizes[0]] = np.frombuffer(made.weights or b"", np.uint8)
    for array, placeholder in zip(inputs, glow.placeholders, strict=False):
        start = starts[1] + placeholder.offset
        blocks[1][start : start + array.nbytes] = array.view(np.uint8).reshape(-1)
    expected = blocks[1].copy()
    (tmp_path / "two.o").write_bytes(made.object)
    run(["gcc", "-shared", "two.o", "-o", "two.so"], tmp_path)
    function = ctypes.CDLL(str(tmp_path / "two.so")).two
    function.argtypes = [ctypes.c_void_p] * 3
    assert function(addresses[0], None, addresses[2]) == -1
    assert function(addresses[0], addresses[1] + 1, addresses[2]) == -2
    assert np.array_equal(blocks[1], expected)
    assert function(*addresses) == 0
    for array, placeholder in zip(wanted, glow.placeholders, strict=True):
        start = starts[1] + placeholder.offset
        expected[start : start + array.nbytes] = array.view(np.uint8).reshape(-1)
    assert np.array_equal(blocks[1], expected)
    for block, start, nbytes in zip(blocks, starts, sizes, strict=True):
        assert (block[:start] == 0xA5).all() and (block[start + nbytes :] == 0xA5).all()


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
