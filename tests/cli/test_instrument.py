"""--instrument: nothing without it; what the headers and NAME.json say with it; what it refuses."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import aot
from aot import artefacts, cli
from aot.errors import CompileError
from tests.builder import ModelBuilder
from tests.shared import ROOT

MODEL = ROOT / "bundles" / "digits" / "digits.tflite"


def files(**options: Any) -> dict[str, bytes]:
    return artefacts.files(aot.compile(MODEL, options=aot.Options(target="cortex-m4", **options)))


def test_without_it_nothing_remains() -> None:
    plain = files()
    assert plain == files(instrument=None) and "digits_layers.h" not in plain
    for content in plain.values():
        for word in (b"on_layer", b"observer", b"cycles", b"LAYERS", b"_tell", b"instrument"):
            assert word not in content.replace(b"library", b"")
    instrumented = files(instrument="hooks")
    assert plain["digits.o"] != instrumented["digits.o"] and b"digits_tell" in instrumented["digits.o"]


def test_the_layers_themselves_are_the_same_code() -> None:
    """Only the entry differs: each kernel has its bytes."""
    from aot.llvm import elf

    plain, hooks = (elf.functions(files(**options)["digits.o"]) for options in ({}, {"instrument": "hooks"}))
    assert set(hooks) - set(plain) == {"digits_tell"}
    assert {name for name in plain if plain[name] != hooks[name]} == {"digits_run"}


@pytest.mark.parametrize(
    ("kind", "parameters", "words"),
    [
        ("hooks", "void (*on_layer)(void *observer, int layer, int before), void *observer);", "and on_layer on top"),
        ("dump", "void (*on_layer)(void *observer, int layer, int before), void *observer);", "Null: nothing is called."),
        ("cycles", "void *workspace, uint32_t *cycles);", "#define DIGITS_CYCLE_COUNTER (0xE0001004u)"),
    ],
)
def test_headers(kind: str, parameters: str, words: str, tmp_path: Path) -> None:
    made = files(instrument=kind)
    header = " ".join(made["digits.h"].decode().split())
    assert parameters in header and words in header
    entry = json.loads(made["digits.json"])["entries"][0]
    assert f"#define DIGITS_LAYERS ({len(entry['layers'])}u)" in header
    assert entry["instrument"]["kind"] == kind and len(entry["instrument"]["names"]) == len(entry["layers"])
    layers = made["digits_layers.h"].decode()
    for name, layer in zip(entry["instrument"]["names"], entry["layers"], strict=True):
        assert f'{{"{name}", "{layer["kernel"]}", "{"+".join(layer["operators"])}", {layer["macs"]}u' in layers
    assert ("digits_dump_layer" in layers) == (kind == "dump")
    for name, content in made.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "main.c").write_text('#include "digits_layers.h"\nint main(void) { return digits_layers[0].rank != 4u; }\n')
    for compiler, options in (("gcc", "-std=c99 -pedantic -Wconversion"), ("g++", "-x c++")):
        if shutil.which(compiler) is None:
            pytest.skip(f"needs {compiler}")
        command = f"{compiler} {options} -Wall -Wextra -Werror main.c -o main"
        subprocess.run(command.split(), check=True, cwd=tmp_path)
        subprocess.run([tmp_path / "main"], check=True)


def test_cycle_counters_are_started_as_the_header_says() -> None:
    header = files(instrument="cycles")["digits.h"].decode()
    assert all(address in header for address in ("0xE000EDFC", "0xE0001000", "0xE0001FB0"))
    timer = files(instrument="cycles", cycle_counter=0x40000024)["digits.h"].decode()
    assert "the word at 0x40000024" in timer and "0xE000EDFC" not in timer and "(0x40000024u)" in timer


def test_names_of_the_model_can_not_end_a_string(tmp_path: Path) -> None:
    m = ModelBuilder()
    x = m.tensor('in"', (1, 4), "float32")
    y = m.tensor('out"}; int evil; /*\\\n??/', (1, 4), "float32")
    m.operator("RELU", [x], [y])
    (tmp_path / "evil.tflite").write_bytes(m.build([x], [y]))
    made = artefacts.files(aot.compile(tmp_path / "evil.tflite", options=aot.Options(instrument="dump")))
    assert '"out__; int evil; /_____/"' in made["evil_layers.h"].decode()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"instrument": "cycles", "target": "cortex-m0"}, "cortex-m0 has no cycle counter of a DWT unit"),
        ({"instrument": "cycles", "target": "cortex-a53"}, "cortex-a53 has no cycle counter of a DWT unit"),
        ({"instrument": "cycles"}, "host has no cycle counter"),
        ({"instrument": "hooks", "emit": "c", "backend": "generic"}, "--instrument is for objects, not for C files"),
        ({"instrument": "hooks", "api": "glow"}, "--api glow has no place for --instrument"),
        ({"instrument": "dump", "stream_input": True}, "--instrument dump is for tensors in one piece"),
        ({"instrument": "hooks", "cycle_counter": 64}, "--cycle-counter is for --instrument cycles"),
        ({"cycle_counter": 64}, "--cycle-counter is for --instrument cycles"),
        ({"instrument": "cycles", "cycle_counter": 66, "target": "cortex-m4"}, "--cycle-counter 0x42 is no address of a 32-bit"),
        ({"instrument": "cycles", "regions": {"cycles": 9999}, "target": "cortex-m4"}, "--region cycles: an entry has a parameter"),
        ({"instrument": "all"}, "unknown instrument 'all'"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        aot.compile(MODEL, options=aot.Options(**options))


def test_an_address_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bundle", str(MODEL), "--cpu", "cortex-m4", "--instrument", "cycles", "--cycle-counter", "timer"]
    assert cli.run(arguments) == 1
    assert "'timer' is not an address" in capsys.readouterr().err


def test_a_run_prints_what_the_counters_hold(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", str(MODEL), "--cpu", "cortex-m4", "--instrument", "cycles"]
    assert cli.run([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["cycles"]) == 9 and min(found["cycles"]) > 0
    assert cli.run(arguments) == 0
    said = capsys.readouterr().out
    assert "what the entry's counters hold" in said and str(found["cycles"][0]) in said
