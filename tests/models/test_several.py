"""Several models in one object: each computes what it computes alone, in a workspace that they share or in their own."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import aot
from aot import artefacts, cli
from aot.graph.interpreter import run
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_file
from aot.lower.lifetime import Io
from aot.run import run_bundle
from aot.samples import random_inputs
from tests.builder import ModelBuilder
from tests.graph.stateful import Sub, model
from tests.models.callers import Caller
from tests.shared import model as real_model

Q = {"scale": 0.05, "zero_point": -3}
TURNS = 100
SWEEP = bool(os.environ.get("AOT_SWEEP"))
WAYS = list(
    itertools.product(
        ({}, {"weights": "separate"}, {"optimize": "ram"}), (None, "cortex-m4", "cortex-m0plus"), ("caller", "workspace")
    )
)
"""More options, CPU, inputs and outputs; half of them by default."""


def images(size: int, classes: int = 0, seed: int = 0) -> bytes:
    """int8[1, size, size, 3] -> two convolutions 3x3, the first with stride 2; with `classes`, a dense layer behind them. The filters
    depend on `seed` alone."""
    m, rng = ModelBuilder(), np.random.default_rng(seed)
    half = -(-size // 2)
    x = m.tensor("image", (1, size, size, 3), **Q)
    first, second = m.tensor("a", (1, half, half, 8), **Q), m.tensor("b", (1, half, half, 16), **Q)
    for source, out, shape, stride in ((x, first, (8, 3, 3, 3), 2), (first, second, (16, 3, 3, 8), 1)):
        filters = m.constant(rng.integers(-127, 128, shape).astype(np.int8), scale=0.01)
        bias = m.constant(rng.integers(-999, 999, shape[:1]).astype(np.int32), scale=0.01 * Q["scale"])
        options = {"padding": "SAME", "stride_w": stride, "stride_h": stride}
        m.operator("CONV_2D", [source, filters, bias], [out], options)
    if not classes:
        return m.build([x], [second])
    flat = m.tensor("flat", (1, half * half * 16), **Q)
    m.operator("RESHAPE", [second, m.constant(np.array([1, half * half * 16], np.int32))], [flat], {})
    rows = m.constant(rng.integers(-127, 128, (classes, half * half * 16)).astype(np.int8), scale=0.01)
    scores = m.tensor("scores", (1, classes), scale=1.0, zero_point=0)
    m.operator("FULLY_CONNECTED", [flat, rows, -1], [scores], {})
    return m.build([x], [scores])


def counter() -> bytes:
    """y = what it was before + x, from [5, 6, 7, 8] on."""

    def body(s: Sub) -> tuple[list[int], list[int]]:
        s.call_once(1)
        x = s.value((1, 4), "int32")
        total = s.add(s.read(s.value((1, 4), "int32")), x)
        s.assign(total)
        return [x], [total]

    def first(s: Sub) -> tuple[list[int], list[int]]:
        s.assign(s.constant([[5, 6, 7, 8]], "int32"))
        return [], []

    return model(body, first)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    contents = {
        "eye": images(24, classes=4),
        "scan": images(11),
        "copy": images(11),
        "other": images(11, seed=1),
        "count": counter(),
    }
    contents["head"] = images(11, classes=3)
    for name, content in contents.items():
        (folder / f"{name}.tflite").write_bytes(content)
    return folder


def several(folder: Path, *names: str, cpu: str | None = "cortex-m4", **options) -> aot.Bundle:
    return aot.compile([folder / f"{name}.tflite" for name in names], cpu, options=aot.Options(**options))


def in_turn(bundle: aot.Bundle, paths: Sequence[Path], turns: int = TURNS) -> None:
    """All models in turn, in one memory, with the interpreter's outputs. What is in the workspace stays, or becomes garbage."""
    graphs, rng = [read_file(path, OPERATORS).main for path in paths], np.random.default_rng(1)
    samples = [[random_inputs(part.main, seed) for seed in range(4)] for part in bundle.models]
    states: list[dict] = [{} for _ in graphs]
    stateless = [[run(graph, each) for each in inputs] for graph, inputs in zip(graphs, samples)]
    caller = Caller(bundle)
    for part in bundle.models:
        if part.init:
            caller.init(part)
    for turn in range(turns):
        for number, part in enumerate(bundle.models):
            inputs = samples[number][turn % 4]
            wanted = run(graphs[number], inputs, states[number]) if part.init else stateless[number][turn % 4]
            if turn % 2:
                caller.poison(rng)
            for got, want in zip(caller.run(part.main, inputs), wanted, strict=True):
                np.testing.assert_array_equal(got, want)
    caller.check()


@pytest.mark.parametrize(
    ("more", "cpu", "io"), WAYS if SWEEP else [way for number, way in enumerate(WAYS) if number % 4 in (0, 3)], ids=str
)
def test_models_called_in_turn_in_one_workspace(folder: Path, more: dict[str, str], cpu: str | None, io: str) -> None:
    bundle = several(folder, "eye", "count", "scan", cpu=cpu, io=io, share_workspace=True, **more)
    assert bundle.workspace_nbytes == max(part.workspace_nbytes for part in bundle.models)
    in_turn(bundle, [folder / f"{name}.tflite" for name in ("eye", "count", "scan")])


@pytest.mark.parametrize("io", ["caller", "workspace"] if SWEEP else ["workspace"])
def test_real_models_in_turn(io: Io) -> None:
    paths = [real_model("KWS"), real_model("AD")]
    in_turn(aot.compile(paths, "cortex-m4", options=aot.Options(io=io, share_workspace=True)), paths, TURNS)


def test_a_workspace_of_their_own_each(folder: Path) -> None:
    alone = [several(folder, name) for name in ("eye", "scan")]
    assert several(folder, "eye", "scan").workspace_nbytes == sum(each.workspace_nbytes for each in alone)


def test_models_take_what_the_largest_needs_if_that_is_faster() -> None:
    paths, options = [real_model("IC"), real_model("KWS")], aot.Options(optimize="ram", io="workspace", share_workspace=True)
    large, small = (aot.compile(path, "cortex-m4", options=options) for path in paths)
    shared = aot.compile(paths, "cortex-m4", options=options)
    assert shared.workspace_nbytes == large.workspace_nbytes >= shared.models[1].workspace_nbytes > small.workspace_nbytes
    inputs = random_inputs(small.main, 0)
    streamed, roomy = (run_bundle(each, inputs) for each in (small, shared.models[1]))
    assert (roomy.instructions or 0) < (streamed.instructions or 0)
    np.testing.assert_array_equal(roomy.outputs[0], streamed.outputs[0])


def test_run_with_each_model(folder: Path) -> None:
    bundle = several(folder, "scan", "count")
    for part in bundle.models:
        inputs = random_inputs(part.main, 3)
        alone = run_bundle(several(folder, part.name), inputs)
        for result in (run_bundle(part, inputs), run_bundle(bundle, inputs, entry=part.main)):
            np.testing.assert_array_equal(result.outputs[0], alone.outputs[0])
            assert result.state == alone.state


@pytest.mark.parametrize("weights", ["embedded", "separate"])
def test_equal_weights_are_stored_once(folder: Path, weights: str) -> None:
    alone = several(folder, "scan", weights=weights).weights_nbytes
    assert several(folder, "scan", "copy", weights=weights).weights_nbytes == alone
    assert several(folder, "scan", "other", weights=weights).weights_nbytes > 1.8 * alone
    assert (
        several(folder, "scan", "head", weights=weights).weights_nbytes == several(folder, "head", weights=weights).weights_nbytes
    )


def test_files_of_all(folder: Path, tmp_path: Path) -> None:
    bundle = several(folder, "eye", "count", io="workspace", share_workspace=True, name="both")
    aot.write(bundle, tmp_path)
    header, report = (tmp_path / "both.h").read_text(), json.loads((tmp_path / "both.json").read_text())
    assert f"#define BOTH_WORKSPACE_SIZE ({bundle.workspace_nbytes}u)" in header
    for part in bundle.models:
        assert f"#define {part.name.upper()}_WORKSPACE_SIZE ({part.workspace_nbytes}u)" in header
        assert f"int {part.name}_run(void *workspace" in header
    assert "int count_init(void *state);" in header and "COUNT_STATE_SIZE (16u)" in header and "count_init has filled" in header
    assert report["workspace_shared"] and report["workspace_bytes"] == bundle.workspace_nbytes and report["state_bytes"] == 16
    assert [each["name"] for each in report["models"]] == ["eye", "count"]
    assert [each["init"] for each in report["models"]] == [None, "count_init"]
    assert [entry["symbol"] for entry in report["entries"]] == ["eye_run", "count_run"]
    if shutil.which("arm-none-eabi-gcc"):
        (tmp_path / "use.c").write_text('#include "both.h"\n#include "both.h"\nint use = BOTH_OK + EYE_INPUT_0_OFFSET;\n')
        flags = ["-std=c99", "-mcpu=cortex-m4", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
        subprocess.run(["arm-none-eabi-gcc", *flags, str(tmp_path / "use.c")], check=True)


def test_models_that_take_rows_are_not_to_be_interrupted(folder: Path) -> None:
    for share in (True, False):
        bundle = several(folder, "scan", "other", stream_input=True, io="workspace", share_workspace=share)
        header = artefacts.files(bundle)["scan_other.h"].decode()
        assert "int scan_begin(" in header and "int other_push_rows(" in header
        assert ("No other model may run between begin and end" in header) == share


def test_the_same_bytes_again(folder: Path) -> None:
    made = [artefacts.files(several(folder, "eye", "count", share_workspace=True)) for _ in range(2)]
    assert made[0] == made[1] and "eye_count.o" in made[0]


def test_names_that_clash(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "Scan.tflite").write_bytes(images(11))
    scan = folder / "scan.tflite"
    with pytest.raises(aot.CompileError, match="two models would be called 'Scan' in one bundle"):
        aot.compile([scan, tmp_path / "Scan.tflite"], "cortex-m4")
    with pytest.raises(aot.CompileError, match="the bundle 'eye' and of the model 'eye' would both begin with 'eye_'"):
        several(folder, "eye", "scan", name="eye")
    (tmp_path / "scan_init.tflite").write_bytes(images(11))
    with pytest.raises(aot.CompileError, match="would both begin with 'scan_init_'"):
        aot.compile([scan, tmp_path / "scan_init.tflite"], "cortex-m4")
    with pytest.raises(aot.CompileError, match="no model is given"):
        aot.compile([], "cortex-m4")


def test_shapes_and_functions_for_one_of_the_models(folder: Path) -> None:
    bundle = several(folder, "count", "scan", shapes={"image": (1, 13, 11, 3)})
    assert bundle.models[1].main.inputs[0].shape == (1, 13, 11, 3)
    with pytest.raises(aot.CompileError, match="nowhere"):
        several(folder, "count", "scan", shapes={"nowhere": (1, 4)})
    with pytest.raises(aot.CompileError, match="no model has a custom operator 'Twist'"):
        several(folder, "count", "scan", custom={"Twist": "twist"})


def test_commands(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = [str(folder / "scan.tflite"), str(folder / "count.tflite"), "--cpu", "cortex-m4", "--share-workspace"]

    def command(name: str, *arguments: str, code: int = 0) -> str:
        assert cli.run([name, *models, *arguments]) == code
        caught = capsys.readouterr()
        return caught.err if code else caught.out

    assert "the models share" in command("bundle", "-o", str(tmp_path))
    assert (tmp_path / "scan_count.o").is_file()
    assert json.loads(command("run", "--json"))["input_bytes"] == 11 * 11 * 3
    assert json.loads(command("run", "--model", "count", "--json"))["state_bytes"] == 16
    assert "count: 5 runs" in command("verify", "--model", "count")
    assert json.loads(command("profile", "--model", "count", "--json"))["layers"]
    assert "unknown model 'eye' (known: count, scan)" in command("run", "--model", "eye", code=1)
