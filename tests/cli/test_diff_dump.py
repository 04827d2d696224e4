"""aot diff-dump: dumps that are right pass, a changed byte names the layer, damaged ones are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aot
from aot import cli
from aot.dump import compare, read_dump
from aot.errors import CompileError
from aot.samples import random_inputs
from tests.builder import ModelBuilder
from tests.run.dumping import dump
from tests.shared import ROOT

MODEL = ROOT / "bundles" / "digits" / "digits.tflite"
GOLDEN = ROOT / "bundles" / "digits" / "golden.npz"


@pytest.fixture(scope="module")
def text() -> str:
    """A dump of two runs on the first pictures of the golden file."""
    made = aot.compile(MODEL, options=aot.Options(instrument="dump"))
    with np.load(GOLDEN) as golden:
        return dump(made, [[golden["in0_0"]], [golden["in0_1"]]])


def diff(text: str, tmp_path: Path, *options: str, golden: bool = True) -> int:
    path = tmp_path / "dump.txt"
    path.write_text(text)
    inputs = ["--inputs", str(GOLDEN)] if golden else []
    return cli.run(["diff-dump", str(MODEL), str(path), *inputs, *options])


def test_a_run_that_is_right(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noisy = "\n".join(f"{line}\r\nbooting ..." if number % 5 else line for number, line in enumerate(text.splitlines()))
    assert diff(noisy, tmp_path) == 0
    said = capsys.readouterr().out
    assert "PASS" in said and "not dumped" not in said


def test_a_changed_byte_names_the_layer(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("@tensor 00000003")) + 2
    value = int(lines[at][2:4], 16)
    lines[at] = f"@ {value ^ 4:02x}{lines[at][4:]}"
    assert diff("\n".join(lines), tmp_path, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    wrong = [one for one in found["tensors"] if one["differing"]]
    assert [(one["run"], one["layer"], one["tensor"], one["differing"], one["largest"]) for one in wrong] == [
        (0, 3, "averagepool_6", 1, 4)
    ]
    assert diff("\n".join(lines), tmp_path) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "first layer that differs, in run 0: layer 3 (" in said and "AVERAGE_POOL_2D), tensor 'averagepool_6': 1 of 256" in said


def test_other_inputs_differ_from_the_first_layer_on(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert diff(text, tmp_path, golden=False) == 1
    assert "first layer that differs, in run 0: layer 0" in capsys.readouterr().out


def test_a_part_of_a_dump_is_compared(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = text.splitlines()
    first = [number for number, line in enumerate(lines) if line.startswith("@tensor")][1]
    assert diff("\n".join([*lines[:first], "@end"]), tmp_path) == 0
    assert "not dumped: 8 tensors, from 'depthwise_2' on" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@dump digits_run ", "@dump other_run ", "the dump is of other_run, and the bundle has digits_run"),
        ("@end", "", "`@dump` is out of place: @end should have come"),
        ("@tensor 00000001 00000200", "@tensor 00000001 00000201", "should have come"),
        ("@tensor 00000001 00000200", "@tensor 00000001 000001ff", "tensor 1 has 1 bytes too many"),
        ("@tensor 00000001 ", "@tensor 00000077 ", "there is no tensor 119"),
        ("@tensor 00000001 ", "@tensor 0000000z ", "'0000000z' is no hexadecimal number"),
        ("@tensor 00000001 ", "@tensor ", "a record has 1 fields instead of 2"),
        ("@ ", "@ x", "are not pairs of hexadecimal digits"),
        ("@tensor 00000008", "@tensor 00000004", "tensor 4 comes more than 1 times"),
        ("@", "#", "there is no dump in it"),
    ],
)
def test_damaged_dumps(text: str, old: str, new: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert old in text
    assert diff(text.replace(old, new), tmp_path) == 1
    assert message in capsys.readouterr().err


def test_a_dump_without_end(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert diff(text.rpartition("@end")[0], tmp_path) == 1
    assert "the dump has no end" in capsys.readouterr().err


def test_a_dump_of_another_bundle(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert diff(text, tmp_path, "--io", "workspace") == 1
    assert "its tables differ" in capsys.readouterr().err


def test_more_runs_than_inputs(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with np.load(GOLDEN) as golden:
        np.savez(tmp_path / "one.npz", in0=golden["in0_0"])
    assert diff(text, tmp_path, "--inputs", str(tmp_path / "one.npz"), golden=False) == 1
    assert "1 sample for 2 runs in the dump" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [{}, {"io": "workspace"}, {"weights": "separate"}, {"fuse": False}, {"inplace": False}, {"optimize": "ram"}]
)
def test_every_way_of_compiling(options: dict[str, Any]) -> None:
    made = aot.compile(MODEL, options=aot.Options(instrument="dump", **options))
    samples = [random_inputs(made.main, seed) for seed in range(2)]
    state: dict[str, np.ndarray] = {}
    for run, sample in zip(read_dump(dump(made, samples)), samples, strict=True):
        found = compare(made.main, run, sample, state)
        assert len(found) == len(made.main.tensors) == len(made.main.layers)
        assert not any(one.differing for one in found)


def test_joined_branches_are_whole_after_the_last(tmp_path: Path) -> None:
    m = ModelBuilder()
    x = m.tensor("x", (1, 6), "float32")
    parts = [m.tensor(f"p{number}", (1, 6), "float32") for number in range(3)]
    y, z = m.tensor("y", (1, 18), "float32"), m.tensor("z", (1, 18), "float32")
    for name, part in zip(("EXP", "SIN", "COS"), parts, strict=True):
        m.operator(name, [x], [part])
    m.operator("CONCATENATION", parts, [y], {"axis": 1, "fused_activation_function": "NONE"})
    m.operator("SOFTMAX", [y], [z], {"beta": 1.0})
    (tmp_path / "m.tflite").write_bytes(m.build([x], [z]))
    made = aot.compile(tmp_path / "m.tflite", options=aot.Options(instrument="dump"))
    sample = random_inputs(made.main, 1)
    found = compare(made.main, read_dump(dump(made, [sample]))[0], sample, {})
    assert "y" in {one.tensor.label for one in found} and not any(one.differing for one in found)


@pytest.mark.parametrize("number", ["-1", "+1", "0_1", "f" * 5000], ids=["minus", "plus", "underscore", "long"])
@pytest.mark.parametrize("record", ["@dump e {}", "@dump e 1\n@tensor {} 1", "@dump e 1\n@tensor 0 {}"])
def test_numbers_that_no_firmware_prints(record: str, number: str) -> None:
    with pytest.raises(CompileError, match="is no hexadecimal number of at most 16 digits"):
        read_dump(record.format(number) + "\n@ 00\n@end\n")
