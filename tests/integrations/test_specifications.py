"""The packages against what their build systems' published specifications say, as far as that can be checked without them."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

import aot
from aot.artefacts import write
from aot.bundle import Bundle
from aot.cli import run
from aot.driver import Options
from aot.errors import CompileError
from aot.integrations import KINDS, Package, package_files
from aot.integrations.archive import archive
from aot.llvm.elf import exported
from tests.integrations.firmware import BUNDLES, need

DIGITS = BUNDLES / "digits" / "digits.tflite"
HOSTILE = "\"; rm -rf ~ $(id) %s <&>'\n.tflite"


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return aot.compile(DIGITS, "cortex-m4")


@pytest.fixture(scope="module")
def folder(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All packages of digits."""
    folder = tmp_path_factory.mktemp("packages")
    write(bundle, folder, package_files(Package(bundle), KINDS))
    return folder


MODULE = {
    "name": str,
    "build": {"cmake": str, "kconfig": str, "cmake-ext": bool, "kconfig-ext": bool, "depends": list, "settings": dict},
    "tests": list,
    "samples": list,
    "boards": list,
}
"""zephyr/module.yml: keys and their types, those that are of use to us (Zephyr's documentation, Modules)."""


def typed(value: Any, schema: Any) -> bool:
    """Whether a YAML value has only these keys, of these types."""
    if isinstance(schema, dict):
        return isinstance(value, dict) and all(key in schema and typed(each, schema[key]) for key, each in value.items())
    return isinstance(value, schema)


def test_zephyr_module(folder: Path) -> None:
    module = folder / "digits-zephyr"
    described = yaml.safe_load((module / "zephyr" / "module.yml").read_text())
    assert typed(described, MODULE)
    assert (module / described["build"]["cmake"] / "CMakeLists.txt").is_file()
    assert (module / described["build"]["kconfig"]).is_file()
    for samples in described["samples"]:
        sample = yaml.safe_load((module / samples / "digits" / "sample.yaml").read_text())
        assert sample["sample"]["name"] and set(sample["tests"]) == {"sample.aot.digits"}
        (regex,) = sample["tests"]["sample.aot.digits"]["harness_config"]["regex"]
        assert re.fullmatch(regex, "digits: class 7")


ZEPHYR_KCONFIG = """
config CPU_CORTEX_M
	bool "as on a board with this core"

config PRINTK
	bool "printk"

config MAIN_STACK_SIZE
	int "stack"

"""
"""What the sample's configuration and the module's need of Zephyr's own."""


def test_zephyr_kconfig(folder: Path, tmp_path: Path) -> None:
    kconfiglib = pytest.importorskip("kconfiglib", reason="needs kconfiglib: pip install kconfiglib")
    module = folder / "digits-zephyr"
    root = tmp_path / "Kconfig"
    root.write_text(f'{ZEPHYR_KCONFIG}source "{module}/zephyr/Kconfig"\n')
    tree = kconfiglib.Kconfig(str(root), warn_to_stderr=False)
    tree.syms["CPU_CORTEX_M"].set_value(2)
    tree.load_config(str(module / "samples" / "digits" / "prj.conf"), replace=False)
    assert not tree.warnings
    assert tree.syms["AOT_DIGITS"].str_value == "y"
    assert int(tree.syms["MAIN_STACK_SIZE"].str_value) >= 1024
    tree.syms["CPU_CORTEX_M"].set_value(0)
    assert tree.syms["AOT_DIGITS"].str_value == "n"


ZEPHYR_CMAKE = """
foreach(name IN ITEMS zephyr_include_directories zephyr_library_import zephyr_library_sources zephyr_library_named)
  function(${name})
    list(JOIN ARGV " " arguments)
    message("CALL ${CMAKE_CURRENT_FUNCTION} ${arguments}")
  endfunction()
endforeach()
"""


@pytest.mark.parametrize("chosen", [True, False])
def test_zephyr_cmake_names_files_that_exist(folder: Path, tmp_path: Path, chosen: bool) -> None:
    need("cmake")
    module = folder / "digits-zephyr" / "zephyr"
    script = tmp_path / "script.cmake"
    script.write_text(f"{ZEPHYR_CMAKE}set(CONFIG_AOT_DIGITS {chosen})\ninclude({module}/CMakeLists.txt)\n")
    done = subprocess.run(["cmake", "-P", script], capture_output=True, text=True, timeout=60, check=True)
    calls = [line.split()[1:] for line in done.stderr.splitlines() if line.startswith("CALL")]
    assert [name for name, *_ in calls] == (["zephyr_include_directories", "zephyr_library_import"] if chosen else [])
    assert all(Path(argument).exists() for _, *arguments in calls for argument in arguments if "/" in argument)


CATEGORIES = "Display,Communication,Signal Input/Output,Sensors,Device Control,Timing,Data Storage,Data Processing,Other".split(",")
ARDUINO: Mapping[str, Callable[[str], object]] = {
    "name": lambda value: re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,62}", value) and not value.lower().startswith("arduino"),
    "version": lambda value: re.fullmatch(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)", value),
    "author": bool,
    "maintainer": lambda value: value and not value.lower().startswith("arduino"),
    "sentence": bool,
    "paragraph": bool,
    "category": lambda value: value in CATEGORIES,
    "url": lambda value: re.match(r"https?://", value),
    "architectures": bool,
}
"""library.properties: the fields that a library must have, and what they may be (Arduino's library specification)."""
ARDUINO_OPTIONAL = {"includes", "precompiled", "ldflags", "depends", "dot_a_linkage"}


def test_arduino_library(folder: Path) -> None:
    library = folder / "digits-arduino"
    lines = (library / "library.properties").read_text().splitlines()
    fields = dict(line.split("=", 1) for line in lines)
    assert len(fields) == len(lines) and set(ARDUINO) <= set(fields) <= set(ARDUINO) | ARDUINO_OPTIONAL
    assert not [name for name, allowed in ARDUINO.items() if not allowed(fields[name])]
    assert (library / "src" / fields["includes"]).is_file()
    assert fields["precompiled"] == "full" and fields["ldflags"] == "-ldigits"
    assert [path.name for path in (library / "src" / "cortex-m4").iterdir()] == ["libdigits.a"]
    for sketch in (library / "examples").iterdir():
        assert (sketch / f"{sketch.name}.ino").is_file()


def test_arduino_library_of_c_files_is_for_every_board(tmp_path: Path) -> None:
    made = aot.compile(BUNDLES / "sine" / "sine.tflite", options=Options(backend="generic", emit="c"))
    write(made, tmp_path, package_files(Package(made), ["arduino"]))
    library = tmp_path / "sine-arduino"
    assert "precompiled" not in (library / "library.properties").read_text()
    assert sorted(path.name for path in (library / "src").iterdir()) == ["sine.c", "sine.h", "sine_weights.c"]


@pytest.mark.parametrize(
    ("emit", "precompiled", "core"), [("object", "full", "Cortex-M0+"), ("both", "full", None), ("c", None, None)]
)
def test_what_holds_of_an_object_and_of_c(emit: str, precompiled: str | None, core: str | None) -> None:
    """A package of C files is for any core; where there is an object, too, only Arduino's builder can choose."""
    made = aot.compile(BUNDLES / "sine" / "sine.tflite", "cortex-m0plus", options=Options(backend="generic", emit=emit))  # type: ignore[arg-type]
    contents = package_files(Package(made), KINDS)
    properties = contents["sine-arduino/library.properties"].decode().splitlines()
    assert [line for line in properties if line.startswith("precompiled=")] == (
        [f"precompiled={precompiled}"] if precompiled else []
    )
    root = ElementTree.fromstring(contents["sine-cmsis-pack/aot.sine.pdsc"])
    assert [each.get("Dcore") for each in root.iter("require")] == ([core] if core else [])
    categories = {file.attrib["category"] for file in root.iter("file") if file.get("attr") != "template"}
    assert ("library" in categories, "sourceC" in categories) == (emit == "object", emit != "object")
    assert ("depends on CPU_CORTEX_M" in contents["sine-zephyr/zephyr/Kconfig"].decode()) == (emit == "object")
    assert ("flags" in json.loads(contents["sine-platformio/library.json"])["build"]) == (emit == "object")


def test_platformio_library(folder: Path) -> None:
    pytest.importorskip("platformio", reason="needs PlatformIO's core: pip install platformio")
    from platformio.package.manifest.parser import ManifestParserFactory
    from platformio.package.manifest.schema import ManifestSchema

    library = folder / "digits-platformio"
    parsed = ManifestParserFactory.new_from_file(str(library / "library.json")).as_dict()
    manifest = ManifestSchema().load_manifest(parsed)
    assert (manifest["name"], manifest["version"]) == ("aot_digits", "1.0.0")
    build = json.loads((library / "library.json").read_text())["build"]
    assert all((library / "include" / header).is_file() for header in manifest["headers"])
    assert (library / build["flags"][0][2:] / f"lib{build['flags'][1][2:]}.a").is_file()
    for example in manifest["examples"]:
        assert all((library / example["base"] / file).is_file() for file in example["files"])


def test_cmsis_pack(folder: Path) -> None:
    pack = folder / "digits-cmsis-pack"
    root = ElementTree.parse(pack / "aot.digits.pdsc").getroot()
    assert root.tag == "package" and root.attrib["schemaVersion"]
    texts = {tag: root.findtext(tag) for tag in ("vendor", "name", "description", "url")}
    assert all(re.fullmatch(r"[-_A-Za-z0-9]+", texts[tag] or "") for tag in ("vendor", "name")) and texts["description"]
    assert [release.attrib["version"] for release in root.findall("releases/release")] == ["1.0.0"]
    conditions = {condition.attrib["id"]: condition for condition in root.findall("conditions/condition")}
    assert conditions["core"].find("require").attrib == {"Dcore": "Cortex-M4"}  # type: ignore[union-attr]
    (component,) = root.findall("components/component")
    assert component.attrib["condition"] in conditions
    assert {"Cclass", "Cgroup", "Csub", "Cversion"} <= set(component.attrib) and component.findtext("description")
    named = [file.attrib["name"] for file in component.findall("files/file")]
    assert all((pack / name).exists() for name in named)
    with zipfile.ZipFile(pack / "aot.digits.1.0.0.pack") as packed:
        assert packed.testzip() is None
        inside = set(packed.namelist())
        assert {entry.date_time for entry in packed.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert all(packed.read(name) == (pack / name).read_bytes() for name in inside)
    assert {name for name in named if not name.endswith("/")} <= inside


def test_archive_is_that_of_binutils(bundle: Bundle, tmp_path: Path) -> None:
    need("arm-none-eabi-ar")
    for names in (["digits.o"], ["digits.o", "one_whose_name_is_long.o"], ["another_long_name.o", "one_whose_name_is_long.o"]):
        for name in names:
            (tmp_path / name).write_bytes(bundle.object)
        subprocess.run(["arm-none-eabi-ar", "rcsD", f"{len(names)}{names[0]}.a", *names], cwd=tmp_path, check=True, timeout=60)
        objects = dict.fromkeys(names, bundle.object)
        made = archive(objects, {name: exported(bundle.object) for name in names})
        assert made == (tmp_path / f"{len(names)}{names[0]}.a").read_bytes()


def test_packages_are_deterministic(bundle: Bundle) -> None:
    assert package_files(Package(bundle), KINDS) == package_files(Package(bundle), KINDS)


def test_hostile_name_stays_out_of_every_file(tmp_path: Path) -> None:
    model = tmp_path / HOSTILE
    model.write_bytes((BUNDLES / "sine" / "sine.tflite").read_bytes())
    made = aot.compile(model, "cortex-m4")
    contents = package_files(Package(made), KINDS)
    assert all(re.fullmatch(r"[A-Za-z0-9_./-]+", name) and ".." not in name for name in contents)
    assert not [name for name, content in contents.items() if b"rm -rf" in content or b"$(id)" in content]


@pytest.mark.parametrize("version", ["1", "1.0", "01.0.0", "1.0.0-x", "1.0.0\n", "$(id)"])
def test_version_is_three_numbers(bundle: Bundle, version: str) -> None:
    with pytest.raises(CompileError, match=r"--package-version .* is not X.Y.Z"):
        Package(bundle, version)


def test_packages_without_a_way_to_name_cmsis_nn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = ["bundle", str(DIGITS), "--cpu", "cortex-m4", "--kernels", "library", "--package", "arduino", "-o", str(tmp_path)]
    assert run(command) == 1
    assert "this package has no way to name: take --kernels native" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_sample_arrays_that_are_not_the_models(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = [
        "bundle",
        str(DIGITS),
        "--package",
        "zephyr",
        "--sample",
        str(BUNDLES / "digits_float" / "golden.npz"),
        "-o",
        str(tmp_path),
    ]
    assert run(command) == 1
    assert "the model has int8" in capsys.readouterr().err
