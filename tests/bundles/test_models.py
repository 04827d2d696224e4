"""The sample models: the committed files are what the scripts make, their accuracy is what the READMEs say, other engines agree."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from aot.graph import tflite
from aot.graph.ops import OPERATORS
from tests.oracle import tflm_runs
from tests.shared import ROOT

if importlib.util.find_spec("sklearn") is None:
    pytest.skip("needs scikit-learn, which ships the digits: pip install scikit-learn", allow_module_level=True)

from bundles import handwriting
from bundles.digits import make as digits
from bundles.digits_float import make as digits_float
from bundles.reference import interpret, output_quantisation
from bundles.sine import make as sine

SAMPLES = {"digits": digits, "digits_float": digits_float, "sine": sine}


def path_of(name: str) -> Path:
    return ROOT / "bundles" / name / f"{name}.tflite"


def contents(data: bytes) -> tuple[str, dict[str, bytes]]:
    """A model's text and the bytes of its constants: all that matters, but not how the file is laid out."""
    graph = tflite.read_model(data, "sample.tflite", OPERATORS).main
    return str(graph), {value.name: value.data.tobytes() for value in graph.values if value.data is not None}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_script_makes_the_committed_model(name: str) -> None:
    """Trains again: the weights must be the same on whatever machine this is."""
    assert contents(SAMPLES[name].model()) == contents(path_of(name).read_bytes())


@pytest.mark.parametrize("name", SAMPLES)
def test_files_are_small_and_say_their_licence(name: str) -> None:
    assert path_of(name).stat().st_size < 100_000
    readme = (ROOT / "bundles" / name / "README.md").read_text()
    assert "Apache-2.0" in readme and f"{path_of(name).stat().st_size:,} bytes" in readme


@pytest.mark.parametrize("make", [digits, digits_float], ids=["digits", "digits_float"])
def test_accuracy_is_what_the_readme_says(make: ModuleType) -> None:
    _, held_out = handwriting.load()
    name = Path(make.__file__ or "").parent.name
    inputs = digits.quantised(held_out.inputs) if make is digits else held_out.inputs.astype(np.float32)
    right = int((interpret(path_of(name), inputs).argmax(axis=-1) == held_out.labels).sum())
    assert right / len(held_out.labels) > 0.95
    assert f"{right} of {len(held_out.labels)}" in (ROOT / "bundles" / name / "README.md").read_text()


def test_sine_is_a_sine() -> None:
    every = np.arange(-128, 124, dtype=np.int8)
    output = output_quantisation(path_of("sine"))
    found = output.scale * (interpret(path_of("sine"), every[:, None]).reshape(-1).astype(np.int32) - output.zero_point)
    assert np.abs(found - np.sin((every.astype(np.int32) + 128) / 40)).max() < 0.033


def test_training_and_held_out_pictures_are_apart() -> None:
    training, held_out = handwriting.load()
    assert len(training.labels) + len(held_out.labels) == 1797
    seen = {pixels.tobytes() for pixels in training.pixels}
    assert not any(pixels.tobytes() in seen for pixels in held_out.pixels)


@pytest.mark.parametrize("name", ["digits", "sine"])
def test_int8_outputs_are_tflite_micros(name: str) -> None:
    """On everything: all held-out pictures, all values of x."""
    _, held_out = handwriting.load()
    every = np.arange(-128, 128, dtype=np.int8)[:, None]
    inputs = digits.quantised(held_out.inputs) if name == "digits" else every
    theirs = tflm_runs(path_of(name).read_bytes(), [[array[None]] for array in inputs])
    np.testing.assert_array_equal(interpret(path_of(name), inputs), np.concatenate([outputs[0] for outputs in theirs]))


def test_float_outputs_are_tflite_micros() -> None:
    _, held_out = handwriting.load()
    inputs = held_out.inputs.astype(np.float32)
    theirs = tflm_runs(path_of("digits_float").read_bytes(), [[array[None]] for array in inputs])
    np.testing.assert_allclose(interpret(path_of("digits_float"), inputs), np.concatenate([o[0] for o in theirs]), atol=1e-5)


@pytest.mark.parametrize("name", SAMPLES)
def test_golden_files_are_the_interpreters(name: str) -> None:
    golden = np.load(ROOT / "bundles" / name / "golden.npz")
    runs = [key for key in golden if key.startswith("in0_")]
    inputs = np.concatenate([golden[f"in0_{k}"] for k in range(len(runs))])
    outputs = np.concatenate([golden[f"out0_{k}"] for k in range(len(runs))])
    np.testing.assert_allclose(interpret(path_of(name), inputs), outputs, rtol=0, atol=1e-5 if name == "digits_float" else 0)


@pytest.mark.parametrize(("name", "make"), [("digits", digits), ("digits_float", digits_float)])
def test_expected_lines_follow_from_the_golden_file(name: str, make: ModuleType) -> None:
    folder = ROOT / "bundles" / name
    golden = np.load(folder / "golden.npz")
    _, held_out = handwriting.load()
    shown = held_out.one_of_each()
    outputs = np.concatenate([golden[f"out0_{k}"] for k in range(len(shown.labels))])
    lines = handwriting.expected_lines(name, shown, list(make.percents(outputs)))
    assert (folder / "expected.txt").read_text().splitlines() == lines
    assert (folder / "inputs.h").read_text() == handwriting.header(f"{name.upper()}_INPUTS_H", shown)
    assert shown.labels.tolist() == golden["labels"].tolist() == list(range(10))


def test_expected_sine_lines_are_near_the_sine() -> None:
    lines = (ROOT / "bundles" / "sine" / "expected.txt").read_text().splitlines()
    points = [re.match(r"([ -]\d\.\d\d) ([ -]\d\.\d\d)  \|", line) for line in lines[1:-1]]
    assert len(points) == 21
    for point in points:
        assert point is not None
        assert abs(float(point[2]) - np.sin(float(point[1]))) < 0.04
