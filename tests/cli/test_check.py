"""`aot check`: a bundle's files are those that were made, and can be made again; what NAME.json says of its origin is a valid SBOM."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aot import artefacts, cli
from aot.driver import Options, compile
from aot.errors import CompileError
from aot.recipe import recall, record
from aot.target import host_target, load_target
from tests import one_operator

OWN_CPU = "name: mine\ntriple: thumbv7em-none-eabihf\ncpu: cortex-m4\nhas: [dsp, divide, long_multiply, saturate, unaligned]\nfloat_abi: hard\n"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("models")
    (folder / "small.tflite").write_bytes(one_operator.conv2d())
    (folder / "other.tflite").write_bytes(one_operator.pool("MAX_POOL_2D"))
    return str(folder / "small.tflite"), str(folder / "other.tflite")


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit code, and of each bundle the files that are not as they should be, with what is wrong."""
    code = cli.run(["check", *arguments, "--json"])
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["passed"] == (code == 0)
    return code, {
        each["name"]: {file["name"]: file["problem"] for file in each["files"] if file["problem"]} for each in found["bundles"]
    }


def test_description_has_the_hash_of_every_other_file(models: tuple[str, str]) -> None:
    bundle = compile(models[0], options=Options(target="cortex-m4", weights="separate"))
    files = artefacts.files(bundle)
    described = json.loads(files.pop("small.json"))
    assert described == artefacts.describe_with_files(bundle)
    assert described["files"] == {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()} for name, content in files.items()
    }
    assert set(files) == {"small.o", "small.h", "small.weights.bin", "CMakeLists.txt"}


def test_what_is_changed_or_missing_is_found(capsys: pytest.CaptureFixture[str], models: tuple[str, str], tmp_path: Path) -> None:
    artefacts.write(compile(models[0], "cortex-m4"), tmp_path)
    (tmp_path / "notes.json").write_text("[1]")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    assert check(capsys, str(tmp_path)) == (0, {"small": {}})
    object_file = bytearray((tmp_path / "small.o").read_bytes())
    object_file[-1] ^= 1
    (tmp_path / "small.o").write_bytes(object_file)
    (tmp_path / "small.h").unlink()
    code, found = check(capsys, str(tmp_path))
    assert code == 1 and set(found["small"]) == {"small.o", "small.h"}
    assert found["small"]["small.h"] == "is missing" and "other content" in found["small"]["small.o"]
    assert cli.run(["check", str(tmp_path / "small.json")]) == 1
    assert "FAIL: 2 files of 3" in capsys.readouterr().out


WAYS: dict[str, Callable[[Path], dict[str, object]]] = {
    "plain": lambda folder: {"target": "cortex-m4"},
    "host": lambda folder: {},
    "target": lambda folder: {"target": host_target()},
    "triple": lambda folder: {"triple": "riscv32-unknown-elf", "backend": "generic", "optimize": "size"},
    "c": lambda folder: {"emit": "c", "backend": "generic", "name": "renamed"},
    "own": lambda folder: {"target": str(folder / "mine.yaml"), "io": "workspace", "regions": {"tcm": 4096, "ram": 65536}},
    "shape": lambda folder: {"target": "cortex-m55", "max_flash_nbytes": 100_000, "position_independent": True, "fuse": False},
}


@pytest.mark.parametrize("way", WAYS)
def test_made_again_byte_for_byte(capsys: pytest.CaptureFixture[str], models: tuple[str, str], tmp_path: Path, way: str) -> None:
    (tmp_path / "mine.yaml").write_text(OWN_CPU)
    bundle = compile(models[0], options=Options(**WAYS[way](tmp_path)))  # type: ignore[arg-type]
    artefacts.write(bundle, tmp_path / "out")
    (tmp_path / "mine.yaml").unlink()
    assert str(tmp_path) not in (tmp_path / "out" / f"{bundle.name}.json").read_text(), "no path of this machine"
    moved = tmp_path / "another-name.tflite"
    moved.write_bytes(Path(models[0]).read_bytes())
    assert check(capsys, str(tmp_path / "out"), "--model", str(moved)) == (0, {bundle.name: {}})


def test_several_models_are_known_by_their_bytes(
    capsys: pytest.CaptureFixture[str], models: tuple[str, str], tmp_path: Path
) -> None:
    small, other = models
    assert cli.run(["bundle", small, other, "--cpu", "cortex-m4", "--share-workspace", "-o", str(tmp_path)]) == 0
    capsys.readouterr()
    assert check(capsys, str(tmp_path), "--model", other, "--model", small) == (0, {"small_other": {}})
    assert cli.run(["check", str(tmp_path), "--model", other]) == 1
    assert "no given model has the SHA-256 of 'small'" in capsys.readouterr().err


def test_a_bundle_that_was_made_otherwise_is_found(
    capsys: pytest.CaptureFixture[str], models: tuple[str, str], tmp_path: Path
) -> None:
    """Hashes that agree with each other, and a recorded version, do not help a file that the model does not compile to."""
    artefacts.write(compile(models[0], "cortex-m4"), tmp_path)
    path = tmp_path / "small.json"
    described = json.loads(path.read_text())
    (tmp_path / "small.h").write_text("// not ours\n")
    content = (tmp_path / "small.h").read_bytes()
    described["files"]["small.h"] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    path.write_text(json.dumps(described, indent=2) + "\n")
    assert check(capsys, str(tmp_path))[0] == 0
    code, found = check(capsys, str(tmp_path), "--model", models[0])
    assert code == 1 and found["small"] == dict.fromkeys(("small.h", "small.json"), "is not what the model compiles to")
    path.write_text(path.read_text().replace('"llvm": "', '"llvm": "1'))
    assert "it was made by aot" in check(capsys, str(tmp_path), "--model", models[0])[1]["small"]["small.h"]
    assert cli.run(["check", str(tmp_path), "--model", models[0], "--model", models[1]]) == 1
    assert "no bundle was made from this model" in capsys.readouterr().err


HOSTILE = {
    "../small.tflite": "NAME.json was tampered with",
    "/etc/passwd": "NAME.json was tampered with",
    "..": "NAME.json was tampered with",
    "\0": "NAME.json was tampered with",
    "link": "is no plain file",
    "folder": "is no plain file",
    "gone": "is missing",
}


def test_description_reaches_no_other_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "target").write_text("")
    os.symlink(tmp_path / "target", tmp_path / "link")
    files = {name: {"bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()} for name in HOSTILE}
    (tmp_path / "evil.json").write_text(json.dumps({"name": "evil", "files": files}))
    code, found = check(capsys, str(tmp_path))
    assert code == 1 and all(text in found["evil"][name] for name, text in HOSTILE.items())


@pytest.mark.parametrize(
    "recorded",
    [
        None,
        {"expose": 1},
        {"target": "/etc/passwd.yaml"},
        {"target": {"triple": 1}},
        {"target": {"triple": "thumbv7m-none-eabi", "surprise": 1}},
        {"shapes": {"x": "1"}},
        {"threads": True},
        {"weights": "elsewhere"},
        {"surprise": 1},
        {"regions": {"tcm": []}},
    ],
)
def test_recorded_options_are_not_trusted(recorded: object) -> None:
    with pytest.raises(CompileError):
        recall(recorded, "name")


def test_options_are_recorded_and_recalled() -> None:
    options = Options(
        target="cortex-m4", name="n", shapes={"x": (1, 2)}, regions={"b": 2, "a": 1}, custom={"Op": "f"}, max_workspace_nbytes=0
    )
    recorded = json.loads(json.dumps(record(options)))
    assert recall(recorded, "n") == options and list(recorded["regions"]) == ["b", "a"]
    assert record(Options()) == {} and recall({}, "n") == Options(name="n")
    own = Options(target=load_target("cortex-m55"))
    recalled = recall(json.loads(json.dumps(record(own))), "n").target
    assert recalled == own.target


@pytest.mark.parametrize(
    "path,text",
    [("nowhere.json", "can't be read"), (".", "there is no bundle in this folder"), ("some.json", "is no NAME.json")],
)
def test_no_bundle(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some.json").write_text('{"name": 1}')
    assert cli.run(["check", path]) == 1
    assert text in capsys.readouterr().err


def test_bill_of_materials_is_cyclonedx(models: tuple[str, str]) -> None:
    validation = pytest.importorskip("cyclonedx.validation.json", reason="needs cyclonedx-python-lib[json-validation]")
    from cyclonedx.schema import SchemaVersion

    for options in (Options(target="cortex-m4", kernels="library"), Options(backend="hifi-ref"), Options(target="cortex-m4")):
        bill = artefacts.describe(compile(list(models), options=options))["sbom"]
        assert validation.JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) is None
        names = [each["name"] for each in bill["components"]]
        assert names[:2] == ["small", "other"] and (len(names) == 3) == (
            options.kernels == "library" or options.backend is not None
        )
        assert [each["name"] for each in bill["metadata"]["tools"]["components"]] == ["aot-bundle", "llvmlite", "LLVM"]


def _describe_again(folder: Path, change: Callable[[dict[str, dict[str, object]]], object]) -> None:
    description = json.loads((folder / "small.json").read_text())
    change(description)
    (folder / "small.json").write_text(json.dumps(description))


@pytest.mark.parametrize(
    "name", ["\ud800", "\0", "x" * 300, "..", "a/b", ""], ids=["surrogate", "nul", "long", "up", "path", "empty"]
)
def test_names_that_no_file_can_have(
    name: str, capsys: pytest.CaptureFixture[str], models: tuple[str, str], tmp_path: Path
) -> None:
    artefacts.write(compile(models[0], "cortex-m4"), tmp_path)
    _describe_again(tmp_path, lambda description: description["files"].update({name: {"bytes": 1, "sha256": ""}}))
    code, found = check(capsys, str(tmp_path))
    assert code == 1 and [("tampered" in problem) for problem in found["small"].values()] == [True]
    _describe_again(tmp_path, lambda description: description.update(models=[{**description["models"][0], "name": name}]))
    assert cli.run(["check", str(tmp_path), "--model", models[0]]) == 1
    assert "no model is called" in capsys.readouterr().err


def test_files_that_have_no_end_are_not_read(capsys: pytest.CaptureFixture[str], models: tuple[str, str], tmp_path: Path) -> None:
    artefacts.write(compile(models[0], "cortex-m4"), tmp_path)
    os.truncate(tmp_path / "small.o", 1 << 40)
    (tmp_path / "small.h").unlink()
    os.mkfifo(tmp_path / "small.h")
    _describe_again(tmp_path, lambda description: description["files"].pop("small.h"))
    code, found = check(capsys, str(tmp_path), "--model", models[0])
    assert code == 1 and found["small"]["small.h"] == "is no plain file" and "other content" in found["small"]["small.o"]
