"""What a bundle, and `aot inspect --memory`, say of the workspace."""

from __future__ import annotations

import json
import re

import pytest

import aot
from aot import artefacts, cli
from aot.bundle import Bundle
from aot.commands.tables import memory_text
from tests.shared import ROOT

MODEL = ROOT / "bundles" / "digits" / "digits.tflite"
"""A small network of convolutions."""


@pytest.fixture(scope="module")
def by_rows() -> Bundle:
    return aot.compile(MODEL, options=aot.Options("cortex-m4", optimize="ram", io="workspace"))


def test_report(by_rows: Bundle) -> None:
    entry = json.loads(artefacts.files(by_rows)["digits.json"])["entries"][0]
    memory, peak = entry["memory"], entry["memory"]["peak"]
    assert memory["workspace_bytes"] == entry["workspace_bytes"] and memory["lower_bound_bytes"] == entry["lower_bound_bytes"]
    assert memory["gap_bytes"] == entry["workspace_bytes"] - entry["lower_bound_bytes"] >= 0
    assert 1 < memory["layers_by_rows"] <= len(entry["layers"]) and memory["steps_by_rows"] > memory["layers_by_rows"]
    assert f"by rows in {memory['steps_by_rows']} steps]" in memory["segments"]
    assert sum(one["bytes"] for one in peak["buffers"]) - peak["shared_bytes"] == peak["bytes"] <= entry["lower_bound_bytes"]
    assert peak["layer"] < len(entry["layers"])
    assert all(one["rows"] <= one["of_rows"] for one in peak["buffers"])


def test_header_and_summary(by_rows: Bundle) -> None:
    memory = by_rows.main.memory
    assert memory is not None and memory.peak is not None
    header = " ".join(artefacts.files(by_rows)["digits.h"].decode().replace("\n * ", " ").split())
    assert f"/* Workspace: {memory.gap_text}; most is needed in layer {memory.peak.layer}{memory.peak.rows_text}." in header
    assert f"Layers: {memory.segments}. */" in header
    text = memory_text(memory, by_rows.main.layers)
    assert memory.peak.held[0].label in text and "node" in text and memory.gap_text in text


def inspected(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.run(["inspect", str(MODEL), "--memory", "--cpu", "cortex-m4", "--io", "workspace", *arguments]) == 0
    return capsys.readouterr().out


def test_points(capsys: pytest.CaptureFixture[str], by_rows: Bundle) -> None:
    """From layer by layer to the least, and each option takes the point that compiling with it takes."""
    limit = by_rows.workspace_nbytes + 100
    found = json.loads(inspected(capsys, "--json", "--max-workspace", str(limit)))
    (entry,) = found["entries"]
    points = entry["points"]
    assert entry["symbol"] == "digits_run" and not entry["refusals"]
    assert (
        points[0]["layers_by_rows"] == 0
        and points[0]["instructions_rise"] == points[0]["flash_bytes_rise"] == 0
        and len(points) > 3
    )
    assert [point["workspace_bytes"] for point in points] == sorted((p["workspace_bytes"] for p in points), reverse=True)
    taken = {text: point for point in points for text in point["taken_by"]}
    assert set(taken) == {"balanced", "ram", f"--max-workspace {limit}"}
    for text, options in (
        ("balanced", aot.Options("cortex-m4", io="workspace")),
        (f"--max-workspace {limit}", aot.Options("cortex-m4", io="workspace", max_workspace_nbytes=limit)),
    ):
        memory = aot.compile(MODEL, options=options).main.memory
        assert memory is not None and artefacts.describe_memory(memory).items() <= taken[text].items()
    assert by_rows.main.memory is not None
    assert artefacts.describe_memory(by_rows.main.memory).items() <= taken["ram"].items()
    assert taken["ram"]["workspace_bytes"] < taken["balanced"]["workspace_bytes"] < points[0]["workspace_bytes"]


def test_table(capsys: pytest.CaptureFixture[str], by_rows: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    out = inspected(capsys, "--optimize", "speed", "--max-workspace", "5")
    memory = by_rows.main.memory
    assert memory is not None and memory.peak is not None
    (line,) = [line for line in out.splitlines() if " ram " in line]
    assert str(by_rows.workspace_nbytes) in line and f"{memory.layers_by_rows} in {memory.steps} steps" in line
    assert f"layer {memory.peak.layer} (CONV_2D, node" in line and f"{memory.peak.rows_text}: " in line
    assert re.search(r" speed ", out)
    assert "--max-workspace 5: the workspace would be" in out and re.search(r"most is needed by \w+ \d+ \(\d of 8 rows\), ", out)


def test_options_are_for_memory(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["inspect", str(MODEL), "--cpu", "cortex-m4"]) == 1
    assert "--cpu is for --memory: without it nothing is compiled" in capsys.readouterr().err
    assert cli.run(["inspect", str(MODEL), "--memory", "--text"]) == 1
    assert "--memory and --text exclude each other" in capsys.readouterr().err
    assert cli.run(["inspect", str(MODEL), str(MODEL)]) == 1
    assert "inspect takes one model" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [["--cpu", "cortex-m4"], ["--kernels", "library", "--cpu", "cortex-m4"], ["--backend", "generic"]]
)
def test_nothing_to_divide(capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    """Dense layers only: one plan, which every option takes."""
    assert cli.run(["inspect", str(ROOT / "bundles" / "sine" / "sine.tflite"), "--memory", "--json", *options]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["entries"]
    (point,) = entry["points"]
    assert point["taken_by"] == ["balanced", "ram"] and point["layers_by_rows"] == 0 and point["segments"].startswith("0..")
