"""`aot verify` as the user's proof: own data, labels, layers, several places, a report for a CI."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from junitparser import JUnitXml

from aot import verify as verification
from aot.accuracy import Accuracy, accuracy
from aot.bundle import Bundle, Entry, Port
from aot.commands import verify as command
from aot.dataset import load_dataset, load_labels
from aot.errors import CompileError, InternalError
from aot.graph.ir import DType, Quantisation
from aot.histogram import Bin, histograms
from aot.run import RunResult
from tests.cli.test_cli import fails, run
from tests.shared import ROOT

DIGITS, GOLDEN = str(ROOT / "bundles/digits/digits.tflite"), str(ROOT / "bundles/digits/golden.npz")
M4 = ("--cpu", "cortex-m4")
IMAGE = Port("image", "image", DType.INT8, (1, 2, 3, 1), Quantisation((0.5,), (-3,)), 1)
REAL = Port("real", "real", DType.FLOAT32, (2,), None, 4)
ONE, TWO = (Entry("m_run", inputs, (), 0, 4, 0, 0, 0, ()) for inputs in ((IMAGE,), (IMAGE, REAL)))
PICTURES = np.arange(-6, 6).astype(np.int8).reshape(2, 1, 2, 3, 1)


def folder(path: Path, **files: np.ndarray | dict[str, np.ndarray] | str | bytes) -> str:
    """A folder of such files, named `name_suffix`, in the order of their names."""
    path.mkdir()
    for name, content in files.items():
        stem, _, suffix = name.rpartition("_")
        target = path / f"{stem}.{suffix}"
        if isinstance(content, np.ndarray):
            np.save(target, content)
        elif isinstance(content, dict):
            np.savez(target, **content)  # type: ignore[arg-type]
        else:
            target.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def written(path: Path, content: str) -> str:
    path.write_text(content)
    return str(path)


def test_every_form_of_one_input(tmp_path: Path) -> None:
    whole, rows = tmp_path / "whole.npz", "\n".join(",".join(map(str, one.reshape(-1))) for one in PICTURES)
    np.savez(whole, in0=PICTURES)
    golden, squeezed = tmp_path / "golden.npz", tmp_path / "squeezed.npz"
    np.savez(golden, in0_0=PICTURES[0], in0_1=PICTURES[1], out0_0=PICTURES[0])
    np.savez(squeezed, in0=PICTURES.reshape(2, 2, 3))
    forms = [
        str(whole),
        str(golden),
        str(squeezed),
        written(tmp_path / "rows.csv", rows),
        written(tmp_path / "headed.csv", f"{','.join('abcdef')}\n\n{rows}\n"),
        folder(tmp_path / "mixed", a_npy=PICTURES[0], b_bin=PICTURES[1].tobytes(), c_md="not data"),
        folder(tmp_path / "others", a_npz={"in0": PICTURES[0, 0]}, b_csv=rows.split("\n")[1].replace(",", "\n")),
    ]
    for path in forms:
        found = load_dataset(ONE, path)
        assert [one[0].tolist() for one in found.inputs] == PICTURES.tolist(), path
        assert found.quantised == () and len(set(found.names)) == 2


def test_two_inputs(tmp_path: Path) -> None:
    real = np.array([[1, -2], [0.5, 1e10]], np.float64)
    np.savez(tmp_path / "data.npz", in0=PICTURES, in1=real)
    rows = "\n".join(",".join(map(str, (*one.reshape(-1), *two))) for one, two in zip(PICTURES, real))
    both = PICTURES[0].tobytes() + real[0].astype(np.float32).tobytes()
    for path in (
        str(tmp_path / "data.npz"),
        written(tmp_path / "data.csv", rows),
        folder(tmp_path / "data", a_bin=both, b_npz={"in0": PICTURES[1], "in1": real[1]}),
    ):
        found = load_dataset(TWO, path)
        assert [[each.tolist() for each in one] for one in found.inputs] == [
            [image.tolist(), two.astype(np.float32).tolist()] for image, two in zip(PICTURES, real)
        ]
        assert found.quantised == () and found.inputs[0][1].dtype == np.float32


def test_real_numbers_are_quantised(tmp_path: Path) -> None:
    """Halves away from zero, then the zero point, then saturation."""
    real = np.array([[0.25, -0.25, 0.24, 1000, -1000, -62.5]])
    np.savez(tmp_path / "real.npz", in0=real.reshape(1, 2, 3))
    for path in (str(tmp_path / "real.npz"), written(tmp_path / "real.csv", ",".join(map(str, real[0])))):
        found = load_dataset(ONE, path)
        assert found.quantised == (0,) and found.inputs[0][0].reshape(-1).tolist() == [-2, -4, -3, 127, -128, -128]


BAD = {
    "none.csv": (None, "can't be read: No such file"),
    "none": (None, "No such file or folder"),
    "text.txt": ("1", "data is a folder, an .npz or a .csv file"),
    "empty.csv": ("", "there is no sample in it"),
    "short.csv": ("1,2,3,4,5", "short.csv: row 1: there are 5 numbers; the model's inputs take 6"),
    "word.csv": ("1,2,3,4,5,6\n1,2,x,4,5,6", "word.csv: line 2, column 3: 'x' is not a number"),
    "high.csv": ("1,2,3,4,5,200", "200 is no int8, which input 'image' takes (-128 to 127) (real numbers, which the input's scale"),
    "nan.csv": ("1,2,3,4,5,nan", "the data has numbers that are not finite; input 'image' takes int8"),
    "bytes.csv": (b"\xff\xfe", "can't be read"),
    "text.npz": ("no archive", "is no .npz file"),
    "other.npz": ({"x": PICTURES}, "array `in0` is missing (it holds x)"),
    "shape.npz": (
        {"in0": PICTURES[:, :, :1]},
        "int8[2, 1, 1, 3, 1]; with an axis of samples first it would be [samples, 1, 2, 3, 1]",
    ),
    "dtype.npz": ({"in0": PICTURES.astype(np.uint8)}, "sample 0: the data is uint8; input 'image' takes int8"),
    "zero.npz": ({"in0": PICTURES[:0]}, "there is no sample in it"),
    "run.npz": ({"in0_0": PICTURES[0, 0, 0]}, "run 0: the data is int8[3, 1]; input 'image' takes int8[1, 2, 3, 1]"),
}


@pytest.mark.parametrize("name", BAD)
def test_data_that_does_not_fit(name: str, tmp_path: Path) -> None:
    content, message = BAD[name]
    path = tmp_path / name
    if isinstance(content, dict):
        np.savez(path, **content)  # type: ignore[arg-type]
    elif content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CompileError) as raised:
        load_dataset(ONE, str(path))
    assert message in str(raised.value) and str(path) in str(raised.value)


def test_folders_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"the folder holds no .npy, .npz, .csv or .bin file"):
        load_dataset(ONE, folder(tmp_path / "none", a_md="text"))
    with pytest.raises(CompileError, match=r"b.bin: the file has 5 bytes; the model's inputs take 6"):
        load_dataset(ONE, folder(tmp_path / "bin", a_bin=b"123456", b_bin=b"12345"))
    with pytest.raises(CompileError, match=r"a.npy: an .npy file holds one array, and the model has 2 inputs \(use .npz\)"):
        load_dataset(TWO, folder(tmp_path / "npy", a_npy=PICTURES[0]))
    with pytest.raises(CompileError, match=r"a.npy: is no .npy file"):
        load_dataset(ONE, folder(tmp_path / "broken", a_npy="text"))
    np.savez(tmp_path / "uneven.npz", in0=PICTURES, in1=np.zeros((3, 2), np.float32))
    with pytest.raises(CompileError, match=r"the inputs have 2, 3 samples: their first axes must be equally long"):
        load_dataset(TWO, str(tmp_path / "uneven.npz"))
    with pytest.raises(CompileError, match="the model has no inputs, so that no data is for it"):
        load_dataset(replace(ONE, inputs=()), str(tmp_path))
    plain = replace(ONE, inputs=(replace(IMAGE, quantisation=None),))
    with pytest.raises(CompileError, match="the data are real numbers; input 'image' takes int8, and has no scale for them"):
        load_dataset(plain, folder(tmp_path / "real", a_npy=PICTURES[0] / 2))


def test_labels(tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", np.array([[3], [1]], np.uint8))
    np.savez(tmp_path / "labels.npz", labels=np.array([3, 1]))
    for path in (
        str(tmp_path / "labels.npy"),
        str(tmp_path / "labels.npz"),
        written(tmp_path / "labels.txt", "3\n1\n"),
        written(tmp_path / "labels.csv", "label\n3\n1\n"),
    ):
        assert load_labels(path, 2).tolist() == [3, 1]
    np.savez(tmp_path / "none.npz", x=np.array([3, 1]))
    for path, message in (
        (str(tmp_path / "none.npz"), r"array `labels` is missing \(it holds x\)"),
        (written(tmp_path / "few.txt", "3"), "there are 1 labels, and 2 samples"),
        (written(tmp_path / "real.txt", "3.0,1.0"), r"labels are class numbers, one for each sample; these are float64\[2\]"),
        (written(tmp_path / "word.txt", "1\ncat"), "word.txt: line 2, column 1: 'cat' is not a number"),
        (written(tmp_path / "labels.xml", "1"), "labels are a .csv, .txt, .npy or .npz file"),
        (str(tmp_path / "gone.txt"), "can't be read: No such file"),
    ):
        with pytest.raises(CompileError, match=message):
            load_labels(path, 2)


def test_accuracy_counts_ties_as_argmax_does() -> None:
    scores = [np.array([[5, 7, 7, 1]], np.int8)] * 4
    assert accuracy(scores, np.arange(4), (1, 2, 3)) == Accuracy(4, ((1, 1), (2, 2), (3, 3)))
    with pytest.raises(CompileError, match="sample 0 has label 4, and there are 4 classes"):
        accuracy(scores[:1], np.array([4]), (1,))
    for wrong in (np.zeros((1, 1)), np.zeros((2, 3))):
        with pytest.raises(CompileError, match="labels need a score for each class in the first output"):
            accuracy([wrong], np.array([0]), (1,))


def test_histograms_count_every_element() -> None:
    want = [[np.array([0, 0, 0, 0, 0], np.int8)], [np.array([0, 0, 0, 0, -128], np.int8)]]
    got = [[np.array([0, 1, -2, 3, -4], np.int8)], [np.array([0, 0, 0, 5, 127], np.int8)]]
    (found,) = histograms(want, got)
    assert (found.elements, found.equal, found.relative) == (10, 4, False)
    assert [(each.low, each.high, each.count) for each in found.bins if each.count] == [
        (0, 0, 4),
        (0, 1, 1),
        (1, 2, 1),
        (2, 4, 2),
        (4, 8, 1),
        (128, 256, 1),
    ]
    real = np.array([2, 2, 2, np.nan, np.nan, 2], np.float32)
    (found,) = histograms([[real]], [[np.array([2, 2 + 1e-5, 2.5, np.nan, 0, np.inf], np.float32)]])
    assert found.relative and [each for each in found.bins if each.count] == [
        Bin(0, 0, 2),
        Bin(pytest.approx(1e-6), pytest.approx(1e-5), 1),  # type: ignore[arg-type]
        Bin(pytest.approx(0.1), 1, 1),  # type: ignore[arg-type]
        Bin(1, None, 2),
    ]


def test_own_data_with_labels(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Pictures as real numbers: the compiled bundle is right as often as the model."""
    golden = np.load(GOLDEN)
    pictures = np.stack([(golden[f"in0_{k}"].astype(np.float32) + 128) / 256 for k in range(10)])
    np.savez(tmp_path / "data.npz", in0=pictures)
    labels = written(tmp_path / "labels.txt", "\n".join(map(str, [*golden["labels"][:8], 0, 0])))
    arguments = ("verify", DIGITS, *M4, "--data", str(tmp_path / "data.npz"), "--labels", labels, "--top", "3")
    code, out, _ = run(capsys, *arguments)
    assert (
        code == 0 and "input 0 'image': the data are real numbers, quantised to int8 with scale 0.00390625, zero point -128" in out
    )
    assert "accuracy: top-1 80.00% (8 of 10), top-3" in out and "output 0: 100 elements, all equal" in out
    described = json.loads(run(capsys, *arguments, "--json")[1])
    assert described["quantised_inputs"] == [0] and described["samples"] == 10
    assert described["accuracy"]["top_1"] == described["accuracy"]["oracle"]["top_1"] == 0.8


def test_all_places_and_layers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    arguments = ("verify", DIGITS, *M4, "--samples", "1", "--on", "all", "--layers", "--json", "--junit", str(report))
    code, out, _ = run(capsys, *arguments)
    found = json.loads(out)
    assert code == 0 and found["passed"] and found["on"] == "unicorn"
    ran = [each["on"] for each in found["places"]]
    reasons = {each["on"]: each["reason"] for each in found["missing"]}
    assert sorted([*ran, *reasons]) == ["host", "qemu", "renode", "unicorn"] and "can't run on host" in reasons["host"]
    assert all("not installed" in reason for place, reason in reasons.items() if place != "host")
    assert ("qemu" in ran) == bool(shutil.which("qemu-system-arm"))
    assert found["layer_differences"][0] == {
        "symbol": "digits_k00",
        "kernel": "depthwise 3x3",
        "nodes": [0],
        "operators": ["CONV_2D"],
        "elements": 512,
        "differing": 0,
        "largest": 0.0,
    }
    suites = list(JUnitXml.fromfile(str(report)))
    assert [suite.name for suite in suites] == [f"digits on {place}" for place in (*ran, *reasons)] + [
        "digits, layer by layer, on unicorn"
    ]
    assert [(suite.tests, suite.failures, suite.skipped) for suite in suites] == [
        *[(1, 0, 0)] * len(ran),
        *[(1, 0, 1)] * len(reasons),
        (len(found["layer_differences"]), 0, 0),
    ]


@pytest.fixture
def wrong_on_qemu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Element 0 of every output is one off on QEMU."""
    genuine = verification.run_bundle

    def changed(bundle: Bundle, inputs: Sequence[np.ndarray], where: str, **more) -> RunResult:
        result = replace(genuine(bundle, inputs, "unicorn" if where == "qemu" else where, **more), where=where)
        if where == "qemu":
            outputs = [output.copy() for output in result.outputs]
            for output in outputs:
                output.reshape(-1)[0] ^= 1
            result = replace(result, outputs=tuple(outputs))
        return result

    monkeypatch.setattr(verification, "run_bundle", changed)
    monkeypatch.setattr(command, "where_names", lambda: ("host", "unicorn", "qemu"))


def test_a_failure_is_said_everywhere(capsys: pytest.CaptureFixture[str], tmp_path: Path, wrong_on_qemu: None) -> None:
    report = tmp_path / "report.xml"
    arguments = ("verify", DIGITS, *M4, "--golden", GOLDEN, "--on")
    code, out, _ = run(capsys, *arguments, "all", "--junit", str(report))
    assert code == 1 and "FAIL" in out and "first layer that differs: layer digits_k00" in out
    assert "on qemu, output 0 of run 0 has other bytes than on unicorn" in out
    failing = {suite.name: [case.name for case in suite if case.result] for suite in JUnitXml.fromfile(str(report))}
    assert failing["digits on unicorn"] == [] and failing["digits on qemu"] == [f"run {k}" for k in range(10)]
    assert "first layer that differs" in report.read_text()
    code, out, _ = run(capsys, *arguments, "qemu", "--layers", "--json", "--junit", str(report))
    found = json.loads(out)
    assert code == 1 and not found["passed"] and len(found["mismatches"]) == 10
    assert found["histogram"][0]["bins"][:2] == [{"low": 0.0, "high": 0.0, "count": 90}, {"low": 0.0, "high": 1.0, "count": 10}]
    assert found["layer_differences"][0]["differing"] == 10 and found["layer_differences"][0]["largest"] == 1
    assert "10 of 5120 elements differ, by 1 at most" in report.read_text()
    code, out, _ = run(capsys, *arguments, "qemu")
    assert code == 1 and "output 0: differences, in steps of the output" in out and "and" not in out.splitlines()[-2]


def test_floats_that_are_close(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = verification.run_bundle

    def close(*arguments: Any, **more: Any) -> RunResult:
        result = genuine(*arguments, **more)
        return replace(result, outputs=tuple(output * np.float32(1 + 2e-6) for output in result.outputs))

    monkeypatch.setattr(verification, "run_bundle", close)
    code, out, _ = run(capsys, "verify", str(ROOT / "bundles/digits_float/digits_float.tflite"), "--samples", "1")
    assert code == 0 and "PASS: all outputs are within 1e-05 of their largest" in out and "up to 1e-05" in out


def test_layers_of_weights_in_pages(capsys: pytest.CaptureFixture[str]) -> None:
    """The bundle whose layers can be seen has its weights in the object: a page is no layer, and has no meaning of its own."""
    code, out, _ = run(capsys, "verify", DIGITS, *M4, "--samples", "1", "--page-weights", "4K", "--layers")
    assert code == 0 and "digits_k00" in out and "PASS" in out


def test_a_fault_of_ours_is_in_the_report(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that accesses memory outside its buffers: a traceback, and an error for the CI."""

    def faulty(*_: object, **more: object) -> RunResult:
        raise InternalError("layer k00: writes 1 byte at 0x20000000, 1 byte past the end of the workspace \x07")

    monkeypatch.setattr(verification, "run_bundle", faulty)
    report = tmp_path / "report.xml"
    with pytest.raises(InternalError, match="past the end of the workspace"):
        run(capsys, "verify", DIGITS, *M4, "--samples", "1", "--junit", str(report))
    (suite,) = JUnitXml.fromfile(str(report))
    assert (suite.tests, suite.failures, suite.errors) == (1, 0, 1)
    assert "past the end of the workspace ?" in report.read_text()


def test_what_verify_refuses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    verify = ("verify", DIGITS, *M4)
    assert "--golden and --data exclude each other" in fails(capsys, *verify, "--golden", GOLDEN, "--data", GOLDEN)
    assert "--labels needs --data or --golden" in fails(capsys, *verify, "--labels", GOLDEN)
    assert "--top needs --labels" in fails(capsys, *verify, "--data", GOLDEN, "--top", "5")
    assert "--layers compiles the model once more" in fails(capsys, *verify, "--layers", "--link", "x.o")
    line = fails(capsys, "verify", DIGITS, "--cpu", "hifi4", "--layers")
    assert "the layers of digits call a library, so that there is no reference of each by itself (--kernels native" in line
    assert "can't write the report: No such file" in fails(
        capsys, *verify, "--samples", "1", "--junit", str(tmp_path / "none" / "x.xml")
    )
    line = fails(capsys, "verify", DIGITS, "--target", "riscv32-unknown-none-elf", "--on", "all", "--samples", "1")
    assert "the bundle runs at no place: host: no emulator runs code of target" in line and "; renode: no emulator" in line
