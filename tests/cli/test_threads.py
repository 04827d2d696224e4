"""--threads: what the header, NAME.json and --explain say of it, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import aot
from aot import artefacts, cli
from aot.bundle import Bundle
from aot.errors import CompileError
from aot.lower import parts
from aot.run import run_bundle
from aot.samples import random_inputs
from tests.shared import ROOT

MODEL = ROOT / "bundles" / "digits" / "digits.tflite"


def test_one_thread_changes_nothing() -> None:
    plain, one = (artefacts.files(aot.compile(MODEL, options=options)) for options in (aot.Options(), aot.Options(threads=1)))
    assert plain == one
    assert "parallel_for" not in plain["digits.h"].decode() and '"threads"' not in plain["digits.json"].decode()


@pytest.fixture(scope="module")
def divided() -> Bundle:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "LEAST_WORK", 5000)
        return aot.compile(MODEL, options=aot.Options(threads=3))


def test_header(divided: Bundle) -> None:
    header = " ".join(artefacts.files(divided)["digits.h"].decode().split())
    assert (
        "void *workspace, void (*parallel_for)(void *pool, uint32_t parts, void (*body)(void *arg, uint32_t part), void *arg), void *pool);"
        in header
    )
    assert "once for each part below parts (at most 3)" in header and "and parallel_for on top" in header


def test_report(divided: Bundle) -> None:
    entry = json.loads(artefacts.files(divided)["digits.json"])["entries"][0]
    assert entry["threads"] == 3
    kinds = {(layer["parts"], bool(layer["why_whole"])) for layer in entry["layers"]}
    assert kinds == {(3, False), (1, True)}


def test_explanation(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LEAST_WORK", 5000)
    monkeypatch.setenv("COLUMNS", "300")
    assert cli.run(["bundle", str(MODEL), "--threads", "3", "--explain", "-o", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "in 3 parts" in said and "operations are too few" in said and "layers in up to 3 parts, for parallel_for to run" in said


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"threads": 0}, "--threads 0 is not a number of threads"),
        ({"threads": 10**23}, "is not a number of threads .*1 to 1024"),
        ({"stream_input": True}, "--threads divides the rows of one layer, and --stream-input makes a few rows of a layer after"),
        ({"optimize": "ram"}, "--threads divides the rows of one layer, and --optimize ram makes a few rows of a layer after"),
        ({"regions": {"pool": 100000}}, "--region pool: an entry has a parameter of this name"),
    ],
)
def test_refusals(changes: dict, text: str) -> None:
    with pytest.raises(CompileError, match=text):
        aot.compile(MODEL, options=replace(aot.Options(threads=2), **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"page_weights_nbytes": 4096},
        {"regions": {"fast": 1024, "slow": 10000}, "weights_in": "slow"},
        {"weights": "separate", "io": "workspace"},
        {"max_workspace_nbytes": 4096},
        {"target": "cortex-m4"},
        {"target": "cortex-m55"},
        {"target": "cortex-a9", "max_stack_nbytes": 4096},
        {"target": "cortex-a53", "max_stack_nbytes": 4096},
    ],
)
def test_what_it_can_be_combined_with(changes: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LEAST_WORK", 1)
    bundles = [aot.compile(MODEL, options=replace(aot.Options(threads=threads), **changes)) for threads in (1, 4)]
    inputs = random_inputs(bundles[0].main, 3)
    want, got = (run_bundle(bundle, inputs).outputs[0] for bundle in bundles)
    assert any(layer.parts == 4 for layer in bundles[1].main.layers) and got.tobytes() == want.tobytes()
