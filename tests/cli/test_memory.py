"""What a bundle, and `aot inspect --memory`, say of the workspace."""

from __future__ import annotations

import json

import pytest

import aot
from aot import artefacts
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
