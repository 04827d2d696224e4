"""`aot init`, `aot build`, `aot schema`: project files, what is made of them and when, what is wrong with them and where."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import yaml

from aot import cli
from aot.commands.bundle import bundle
from aot.errors import CompileError, InternalError
from aot.project import Failed, Made, Product, build, building, keys_of, read, reading, record, schema_of
from aot.project.writing import project_text
from tests import one_operator

KEYS = keys_of(bundle)
SCHEMA = schema_of(KEYS)
Run = Callable[..., tuple[int, dict[str, dict[str, object]], str]]

CPU = "triple: thumbv7em-none-eabi\ncpu: cortex-m4\nsummary: our own\n"
TWO = """\
defaults:
  cpu: own.yaml
bundles:
  one:
    models: small.tflite
    optimize: size
  two:
    models: [models/other.tflite]
    name: second
    cpu:
    output: out/two
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project of two bundles."""
    (tmp_path / "models").mkdir()
    (tmp_path / "small.tflite").write_bytes(one_operator.conv2d())
    (tmp_path / "models" / "other.tflite").write_bytes(one_operator.fully_connected())
    (tmp_path / "own.yaml").write_text(CPU)
    (tmp_path / "bundle.yaml").write_text(TWO)
    return tmp_path


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Builds the project in this process, where a test does not ask for others. Returns exit code, outcomes by name, standard error."""

    def here(make: building.Make, where: Path, arguments: tuple[str, ...]) -> Product:
        before = os.getcwd()
        try:
            return make(where, arguments)
        finally:
            os.chdir(before)

    def run(*arguments: str) -> tuple[int, dict[str, dict[str, object]], str]:
        monkeypatch.setattr(building, "_apart", here)
        code = cli.run(["build", str(folder), "--json", "--jobs", "1", *arguments])
        captured = capsys.readouterr()
        return code, {each["name"]: each for each in json.loads(captured.out)["bundles"]}, captured.err

    return run


def states(outcomes: dict[str, dict[str, object]]) -> dict[str, object]:
    return {name: each.get("why") or each["state"] for name, each in outcomes.items()}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_processes_make_what_the_command_line_makes(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "models")
    assert cli.run(["build", "../bundle.yaml", "--jobs", "2"]) == 0
    printed = capsys.readouterr().out
    assert "one" in printed and "two" in printed and printed.count("made") == 2
    monkeypatch.chdir(folder)
    assert cli.run(["bundle", "small.tflite", "--cpu", "own.yaml", "--optimize", "size", "--name", "one", "-o", "by/one"]) == 0
    assert cli.run(["bundle", "models/other.tflite", "--name", "second", "-o", "by/two"]) == 0
    for made, by_hand in (("build/one", "by/one"), ("out/two", "by/two")):
        found = contents(folder / made)
        assert record.FILE in found
        del found[record.FILE]
        assert found == contents(folder / by_hand)


def test_only_what_changed_is_made(folder: Path, run: Run) -> None:
    code, outcomes, errors = run()
    assert code == 0 and states(outcomes) == {"one": "new", "two": "new"} and "error" not in errors
    described = json.loads((folder / "build/one/one.json").read_text())
    assert outcomes["one"]["flash_bytes"] == described["code_bytes"] + described["weights_bytes"]
    assert outcomes["one"]["workspace_bytes"] == described["workspace_bytes"]
    before = contents(folder)
    code, again, _ = run()
    assert states(again) == {"one": "unchanged", "two": "unchanged"} and contents(folder) == before
    assert again["one"]["flash_bytes"] == outcomes["one"]["flash_bytes"]

    def after(path: str, content: bytes | None) -> dict[str, object]:
        kept = (folder / path).read_bytes()
        (folder / path).unlink() if content is None else (folder / path).write_bytes(content)
        found = states(run()[1])
        if path in TWO or path == "bundle.yaml":
            (folder / path).write_bytes(kept)
            assert "unchanged" in run()[1]["two"]["state"]
        assert contents(folder) == before, "making again gives the same bytes"
        return found

    assert after("build/one/one.o", b"") == {"one": "one.o was altered", "two": "unchanged"}
    assert after("out/two/second.h", None) == {"one": "unchanged", "two": "second.h is missing"}
    assert after("own.yaml", CPU.encode() + b"# a remark\n") == {"one": "own.yaml changed", "two": "unchanged"}
    assert after("small.tflite", one_operator.fully_connected()) == {"one": "small.tflite changed", "two": "unchanged"}
    assert after("bundle.yaml", TWO.replace("size", "speed").encode()) == {"one": "options changed", "two": "unchanged"}
    assert after(f"build/one/{record.FILE}", b"{") == {"one": "new", "two": "unchanged"}
    assert after("bundle.yaml", f"# a remark\n{TWO}".encode()) == {"one": "unchanged", "two": "unchanged"}


def test_only_and_force(folder: Path, run: Run) -> None:
    assert states(run("--only", "two")[1]) == {"two": "new"}
    assert states(run("--force")[1]) == {"one": "new", "two": "forced"}
    assert cli.run(["build", str(folder), "--only", "tow"]) == 1


def test_folders_that_are_links(folder: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """The record has the same paths, and is as good from either side."""
    (folder / "real").mkdir()
    (folder / "build").mkdir()
    (folder / "build" / "one").symlink_to(folder / "real")
    (folder / "bundle.yaml").write_text(TWO)
    run("--only", "one")
    assert set(json.loads((folder / "real" / record.FILE).read_text())["outputs"]) >= {"one.o", "one.h", "CMakeLists.txt"}
    link = folder / "link"
    link.symlink_to(folder, target_is_directory=True)
    assert cli.run(["build", str(link), "--only", "one", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bundles"][0]["state"] == "unchanged"
    assert states(run("--only", "one")[1]) == {"one": "unchanged"}


def test_a_new_aot_makes_all_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run()
    others = {**record.compiler(), "sources": "others"}
    monkeypatch.setattr(record, "compiler", lambda: others)
    assert states(run()[1]) == {"one": "aot changed", "two": "aot changed"}


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("optimize: size", "max-flash: 10", ":6: bundle 'one': small.tflite: "),
        ("small.tflite", "missing.tflite", ":5: bundle 'one': can't read missing.tflite: No such file or directory"),
        ("optimize: size", "sample: missing.npz", ":6: bundle 'one': can't read missing.npz"),
        ("optimize: size", "kernels: native\n    shape: {y: [1, 2]}", ":4: bundle 'one': small.tflite: "),
        ("cpu: own.yaml", "cpu: cortex-m44", ":2: bundle 'one': unknown CPU 'cortex-m44'"),
        ("optimize: size", "region: [fast]", ":6: bundle 'one': --region 'fast' is not NAME=BYTES"),
    ],
)
def test_others_are_made_where_one_fails(folder: Path, run: Run, old: str, new: str, says: str) -> None:
    (folder / "bundle.yaml").write_text(TWO.replace(old, new))
    code, outcomes, errors = run()
    assert code == 1 and {name: each["state"] for name, each in outcomes.items()} == {"one": "failed", "two": "made"}
    (line,) = [line for line in errors.splitlines() if line != "aot: building ..."]
    assert line.startswith(f"aot: error: {folder / 'bundle.yaml'}{says}")
    assert not (folder / "build" / "one").exists()


def _ends(folder: Path, arguments: tuple[str, ...]) -> Product:
    """Stands for a compiler that is killed in one process, and has a fault in another; of a third, all is well."""
    if "--name=killed" in arguments:
        os._exit(9)
    if "--name=broken" in arguments:
        raise InternalError("a fault")
    path = folder / "made.txt"
    path.write_text("made")
    return Product((path,), 1, 2)


def test_processes_that_end(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(b"")
    names = ("killed", "good", "broken")
    text = "bundles:\n" + "".join(f"  {name}: {{models: m.tflite, output: o/{name}}}\n" for name in names)
    (tmp_path / "bundle.yaml").write_text(text)
    project = read(tmp_path, KEYS)
    told: list[str] = []
    killed, good = build(project, project.items[:2], _ends, 2, False, lambda item: told.append(item.name))
    assert isinstance(killed, Failed) and ":2: bundle 'killed': the process that compiled it was ended" in str(killed.error)
    assert good == Made(project.items[1], "new", 1, 2) and sorted(told) == ["good", "killed"]
    with pytest.raises(InternalError, match="a fault"):
        build(project, project.items[2:], _ends, 1, False, lambda item: None)


REFUSED = {
    "": (1, "is empty"),
    "- a\n": (1, "the file is not a mapping"),
    "bundles: [a\n": (2, "is not YAML"),
    "bundles:\n\tx: y\n": (2, "is not YAML"),
    "a: \x01\n": (1, "is not YAML"),
    "bundle:\n": (1, "unknown section 'bundle' (did you mean bundles?"),
    "defaults: {}\n": (1, "there is no section 'bundles'"),
    "\nbundles: {}\n": (2, "no bundle is named"),
    "bundles:\n  - models: m\n": (2, "bundles is not a mapping"),
    "bundles:\n  a b: {models: m}\n": (2, "'a b' can't be the name of a bundle"),
    "bundles:\n  ../a: {models: m}\n": (2, "'../a' can't be the name of a bundle"),
    "bundles:\n  a: {cpu: cortex-m4}\n": (2, "the bundle 'a' has no models"),
    "bundles:\n  a: {models: []}\n": (2, "the bundle 'a' has no models"),
    "bundles:\n  a: {models: m}\n  a: {models: m}\n": (3, "'a' stands twice in bundles, first in line 2"),
    "bundles:\n  a:\n    models: m\n    cpuu: x\n": (4, "unknown key 'cpuu' in the bundle 'a' (did you mean cpu?"),
    "bundles:\n  a:\n    models: m\n    json: true\n": (4, "unknown key 'json'"),
    "bundles:\n  a:\n    models: m\n    threads: two\n": (4, "threads: 'two' is not a whole number of threads."),
    "bundles:\n  a:\n    models: m\n    threads: 0\n": (4, "threads: 0 is not in the range"),
    "bundles:\n  a:\n    models: m\n    optimize: fast\n": (4, "optimize: 'fast' is not one of"),
    "bundles:\n  a:\n    models: m\n    pic: 1\n": (4, "pic is true or false"),
    "bundles:\n  a:\n    models: m\n    name: 1\n": (4, 'name: 1 is not text (write "1")'),
    "bundles:\n  a:\n    models: m\n    package-version: 1.0\n": (4, "package-version: 1.0 is not text"),
    "bundles:\n  a:\n    models: m\n    shape: {x: []}\n": (4, "shape: 'x' has no value"),
    "bundles:\n  a:\n    models: m\n    cpu: [x, y]\n": (4, "cpu takes one value, not a list"),
    "bundles:\n  a:\n    models: m\n    package:\n      - zephyr\n      - zefir\n": (6, "package: 'zefir' is not one of"),
    'bundles:\n  a: {models: "m\\n"}\n': (2, "models is one line of text"),
    "bundles:\n  a: {models: m, output: o}\n  b: {models: m, output: ./o/}\n": (3, "the bundles a, b have the same output"),
    "defaults: {name: x}\nbundles:\n  a: {models: m}\n": (1, "'name' is each bundle's own"),
    "bundles:\n  a: &a {models: m}\n  b: *a\n": (3, "'*a' refers back"),
    "bundles:\n  a: !!python/object/apply:os.getcwd []\n": (
        2,
        "the tag 'tag:yaml.org,2002:python/object/apply:os.getcwd' is not taken",
    ),
    "bundles:\n  " + "[" * 99 + "]" * 99: (2, "is nested too deeply"),
    'bundles: {a: {models: "\\UFFFFFFFF"}}\n': (1, "is not YAML: a character that there is not"),
    "bundles: {a: {models: m}}\n---\nb: c\n": (2, "is not YAML"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_errors_name_the_line(tmp_path: Path, text: str) -> None:
    line, says = REFUSED[text]
    path = tmp_path / "bundle.yaml"
    path.write_text(text)
    with pytest.raises(CompileError) as refused:
        read(path, KEYS)
    assert str(refused.value).startswith(f"{path}:{line}: ") and says in str(refused.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"bundle\.yaml: can't be read: No such file or directory \(aot init writes one\)"):
        read(tmp_path, KEYS)
    path = tmp_path / "bundle.yaml"
    path.write_bytes(b"a:\n\xff")
    with pytest.raises(CompileError, match=r"bundle\.yaml:2: is not UTF-8"):
        read(path, KEYS)
    path.write_bytes(b"#" * (reading.MOST_NBYTES + 1))
    with pytest.raises(CompileError, match=f"has more than {reading.MOST_NBYTES} bytes"):
        read(path, KEYS)


ACCEPTED = """\
defaults: {cpu: cortex-m4, pic: true, region: [fast=1K]}
bundles:
  a:
    models: [m.tflite, n.tflite]
    cpu: null
    target: riscv32-unknown-elf
    no-fuse: true
    pic: false
    region: {fast: 64K, slow: 4096}
    shape: {x: [1, 4], y: "1,8"}
    max-workspace: 2048
    page-weights: 16K
    cycle-counter: 0x40000024
    package: [zephyr, arduino]
    sample: golden.npz
"""


def test_keys_are_options(tmp_path: Path) -> None:
    (tmp_path / "bundle.yaml").write_text(ACCEPTED)
    (item,) = read(tmp_path, KEYS).items
    given = bundle.make_context("bundle", list(item.arguments)).params
    assert given["models"] == ("m.tflite", "n.tflite") and given["cpu"] is None and given["triple"] == "riscv32-unknown-elf"
    assert given["fuse"] is False and given["pic"] is False and given["regions"] == ("fast=64K", "slow=4096")
    assert given["shapes"] == ("x=1,4", "y=1,8") and given["page_weights"] == 16384 and given["cycle_counter"] == 0x40000024
    assert given["max_workspace"] == 2048 and given["kinds"] == ("zephyr", "arduino")
    assert given["name"] == "a" and given["output"] == "build/a"
    assert set(item.files) == {"m.tflite", "n.tflite", "golden.npz"}
    every = {opt.removeprefix("--") for option in bundle.params for opt in option.opts if opt.startswith("--")}
    assert every - set(KEYS) == {"explain", "json", "dump-after", "stop-after"} and set(KEYS) < every


def test_the_schema_takes_what_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for text in (ACCEPTED, TWO, project_text(("m.tflite",), KEYS)):
        validator.validate(yaml.safe_load(text))
    properties = SCHEMA["$defs"]["bundle"]["properties"]
    assert set(properties) == {"models", *KEYS} and all(each["description"] for each in properties.values())


@pytest.mark.parametrize(
    "key", ["cpuu: x", "threads: two", "threads: 0", "optimize: fast", "pic: 1", "name: 1", "cpu: [x]", "package: [zefir]"]
)
def test_the_schema_refuses_what_is_refused(key: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(f"bundles: {{a: {{models: m, {key}}}}}"), SCHEMA)


def test_init(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("on.tflite", "1.tflite", "a b: #x.tflite", "sub/on.tflite", ".hidden/x.tflite", "é'\".tflite", "{m}.tflite"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert cli.run(["init", str(tmp_path)]) == 0
    models = [item.models for item in read(tmp_path, KEYS).items]
    assert models == [("1.tflite",), ("a b: #x.tflite",), ("on.tflite",), ("sub/on.tflite",), ("{m}.tflite",), ("é'\".tflite",)]
    path = tmp_path / "bundle.yaml"
    first, text = path.read_text().splitlines()[0], path.read_text()
    assert first == "# yaml-language-server: $schema=bundle.schema.json"
    assert json.loads((tmp_path / "bundle.schema.json").read_text()) == SCHEMA
    assert all(f"#   {key.name}: " in text for key in KEYS.values())
    path.write_text("mine")
    capsys.readouterr()
    assert cli.run(["init", str(tmp_path)]) == 1 and path.read_text() == "mine"
    assert "is there already (--force writes over it)" in capsys.readouterr().err
    assert cli.run(["init", str(tmp_path), "--force"]) == 0 and path.read_text() == text


def test_init_without_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["init", str(tmp_path)]) == 1 and "there is no .tflite file in it" in capsys.readouterr().err
    assert cli.run(["init", str(tmp_path / "none")]) == 1 and "there is no such folder" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
