"""The packages as their build systems build them: firmware that prints the right class on QEMU, and that follows its model."""

from __future__ import annotations

import os
import shlex
import shutil
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from aot.commands.where import where as where_command
from bundles import qemu
from tests.integrations.firmware import AOT, BUNDLES, CPU, link, need, printed, run

MODEL = BUNDLES / "digits" / "digits.tflite"
EXPECTED = BUNDLES / "digits" / "expected.txt"
PROJECT = Path(__file__).parent / "project"


def prints_what_it_should(elf: Path) -> bool:
    need("qemu-system-arm")
    return not qemu.run(elf, "stm32f405", EXPECTED, show=lambda line: None)


def where(system: str) -> str:
    """What `aot where` prints."""
    return CliRunner().invoke(where_command, [system]).output.strip()


def newer(path: Path, than: Path) -> None:
    """Make a file look changed after another."""
    stamp = than.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(stamp, stamp))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of the model that may be changed."""
    return Path(shutil.copy(MODEL, tmp_path / "the model.tflite"))


PROJECTS = [("Ninja", "ninja", "cmsis-nn", "object"), ("Unix Makefiles", "make", "generic", "c")]


@pytest.mark.parametrize(("generator", "tool", "backend", "emit"), PROJECTS if os.environ.get("AOT_SWEEP") else PROJECTS[:1])
def test_cmake_builds_the_firmware_and_follows_the_model(
    tmp_path: Path, model: Path, generator: str, tool: str, backend: str, emit: str
) -> None:
    need("cmake", tool, "arm-none-eabi-gcc")
    package = where("cmake")
    settings = {
        "CMAKE_SYSTEM_NAME": "Generic",
        "CMAKE_TRY_COMPILE_TARGET_TYPE": "STATIC_LIBRARY",
        "CMAKE_C_COMPILER": "arm-none-eabi-gcc",
        "CMAKE_C_FLAGS": " ".join(CPU),
        "aot_DIR": package,
        "AOT_COMMAND": ";".join(AOT),
        "BUNDLES": BUNDLES,
        "MODEL": model,
        "BACKEND": backend,
        "EMIT": emit,
    }
    build = tmp_path / "build"
    run(
        ["cmake", "-G", generator, "-S", PROJECT, "-B", build, *(f"-D{name}={value}" for name, value in settings.items())], tmp_path
    )
    elf, header = build / "firmware.elf", build / "digits-bundle" / "digits.h"
    run(["cmake", "--build", build], tmp_path)
    assert prints_what_it_should(elf)
    before = elf.stat().st_mtime_ns, header.stat().st_mtime_ns
    assert "Compiling digits with aot" not in run(["cmake", "--build", build], tmp_path)
    assert before == (elf.stat().st_mtime_ns, header.stat().st_mtime_ns)
    newer(model, elf)
    assert "Compiling digits with aot" in run(["cmake", "--build", build], tmp_path)
    assert elf.stat().st_mtime_ns > before[0] and header.stat().st_mtime_ns > before[1]


def test_make_builds_the_firmware_and_follows_the_model(tmp_path: Path) -> None:
    need("make", "arm-none-eabi-gcc")
    model = Path(shutil.copy(MODEL, tmp_path / "model.tflite"))
    fragment = where("make")
    command = [
        "make",
        "-f",
        PROJECT / "Makefile",
        f"AOT={shlex.join(AOT)}",
        f"AOT_MK_FILE={fragment}",
        f"BUNDLES={BUNDLES}",
        f"MODEL={model}",
    ]
    run(command, tmp_path)
    elf = tmp_path / "firmware.elf"
    assert prints_what_it_should(elf)
    assert "aot bundle" not in run(command, tmp_path)
    newer(model, elf)
    before = elf.stat().st_mtime_ns
    assert "aot bundle" in run(command, tmp_path)
    assert elf.stat().st_mtime_ns > before
    (tmp_path / "build" / "aot" / "digits" / "digits.h").unlink()
    run(command, tmp_path)


def test_arduino_example_with_the_object_prints_the_right_class(tmp_path: Path, seven: Path) -> None:
    """With the flags that an Arduino builder makes of a precompiled library (tests/integrations/test_arduino.py has an older one)."""
    need("arm-none-eabi-gcc")
    library = seven / "digits-arduino"
    sources = [library / "examples" / "digits" / name for name in ("digits.ino", "digits_sample.c")]
    elf = link(tmp_path, sources, [f"-I{library}/src", f"-L{library}/src/cortex-m4", "-ldigits"])
    assert printed(elf, 1) == ["digits: class 7"]


def test_program_out_of_a_cmsis_pack_prints_the_right_class(tmp_path: Path, seven: Path) -> None:
    """As a pack manager has it: unpacked, with the component's files in their roles."""
    need("arm-none-eabi-gcc")
    with zipfile.ZipFile(seven / "digits-cmsis-pack" / "aot.digits.1.0.0.pack") as packed:
        packed.extractall(tmp_path / "pack")
    roles: dict[str, list[Path]] = {}
    for file in ElementTree.parse(tmp_path / "pack" / "aot.digits.pdsc").getroot().findall(".//component/files/file"):
        role = "template" if file.get("attr") == "template" else file.attrib["category"]
        roles.setdefault(role, []).append(tmp_path / "pack" / file.attrib["name"])
    for template in roles["template"]:
        shutil.copy(template, tmp_path)
    main = tmp_path / "main.c"
    main.write_text(
        '#include "stdio.h"\n#include "digits_sample.h"\nint main(void) { return printf("class %d\\n", digits_sample()); }\n'
    )
    includes = [f"-I{folder}" for folder in (*roles["include"], tmp_path)]
    elf = link(tmp_path, [main, tmp_path / "digits_sample.c"], includes, roles["library"])
    assert printed(elf, 1) == ["class 7"]
