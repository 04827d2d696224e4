"""What a bundle, and `aot inspect --memory`, say of the workspace."""

from __future__ import annotations

import json
import re
from pathlib import Path

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


REGIONS = ["--region", "fast=600", "--region", "slow=2k"]


def test_regions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes used of each region: in the summary, NAME.json, the header, and in the figures of a run."""
    options = ["--cpu", "cortex-m4", *REGIONS, "--weights-in", "slow"]
    assert cli.run(["bundle", str(MODEL), *options, "-o", str(tmp_path)]) == 0
    out, header = capsys.readouterr().out, (tmp_path / "digits.h").read_text()
    found = json.loads((tmp_path / "digits.json").read_text())
    (entry,) = found["entries"]
    fast, slow = entry["regions"]
    assert (fast["name"], fast["most_bytes"], slow["name"], slow["most_bytes"]) == ("fast", 600, "slow", 2048)
    assert entry["memory"]["regions"] == [
        {key: each[key] for key in ("name", "workspace_bytes", "most_bytes")} for each in (fast, slow)
    ]
    assert 0 < fast["workspace_bytes"] == fast["bytes"] <= 600
    assert 0 < slow["workspace_bytes"] <= found["load"]["offset"]
    assert slow["bytes"] == found["load"]["offset"] + found["load"]["bytes"] <= 2048 and found["load"]["bytes"] > 100
    assert {each["region"] for each in entry["buffers"]} == {"fast", "slow"}
    for each in (fast, slow):
        assert re.search(rf"of it in {each['name']}, which has {each['most_bytes']} +│ +{each['workspace_bytes']} ", out)
        assert f"#define DIGITS_{each['name'].upper()}_SIZE ({each['bytes']}u)" in header
        assert f"#define DIGITS_{each['name'].upper()}_ALIGN ({each['align']}u)" in header
    assert f"Regions: fast {fast['bytes']} of 600 bytes, slow {slow['workspace_bytes']} of 2048." in header.replace("\n * ", " ")
    assert "WORKSPACE_SIZE" not in header and "int digits_load(void *slow);" in header
    assert cli.run(["run", str(MODEL), *options, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["region_fast_bytes"], figures["region_slow_bytes"]) == (fast["bytes"], slow["bytes"])
    assert cli.run(["verify", str(MODEL), *options, "--samples", "2"]) == 0


def test_points_in_regions(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    narrow = ["--region", "fast=500", "--region", "slow=500"]
    (entry,) = json.loads(inspected(capsys, *narrow, "--json"))["entries"]
    for point in entry["points"]:
        fits = all(each["workspace_bytes"] <= each["most_bytes"] for each in point["regions"])
        assert fits or not point["taken_by"]
        assert sum(each["workspace_bytes"] for each in point["regions"]) == point["workspace_bytes"]
    assert {text for point in entry["points"] for text in point["taken_by"]} == {"balanced", "ram"}
    out = inspected(capsys, *narrow)
    assert "fast bytes" in out and "slow bytes" in out and "(too many)" in out


@pytest.mark.parametrize(
    "options,text",
    [
        (["--region", "fast"], "--region 'fast' is not NAME=BYTES (64K and 1M stand for 65536 and 1048576 bytes)"),
        (["--region", "fast=1.5K"], "--region 'fast=1.5K' is not NAME=BYTES"),
        (["--region", "fast=-1"], "--region 'fast=-1' is not NAME=BYTES"),
        (["--region", "=64"], "'' can't be the name of a parameter in C"),
        (["--region", "a=1K", "--region", "a=2K"], "--region names 'a' twice"),
        (["--region", "a=1K", "--weights-in", "b"], "unknown region 'b' (known: a)"),
        (["--weights-in", "a"], "--weights-in a needs regions, which --region NAME=BYTES names"),
    ],
)
def test_regions_that_make_no_sense(options: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["bundle", str(MODEL), *options]) == 1
    assert text in capsys.readouterr().err
