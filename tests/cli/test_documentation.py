"""The generated pages are what the tables say, and the figures in docs/operators.md are good ones."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

import aot
from aot.driver import Options
from aot.graph.ops import OPERATORS
from docs import generate
from docs.pictures import CPU, MODEL, PICTURES
from tests.shared import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("page", generate.PAGES)
def test_the_page_is_up_to_date(page: str) -> None:
    assert (ROOT / "docs" / page).read_text() == generate.PAGES[page](), "run make docs"


@pytest.mark.slow
def test_how_it_works_has_the_plans_figures() -> None:
    text = (ROOT / "docs" / "how.md").read_text()
    for options in (Options(optimize="speed", inplace=False), Options(optimize="speed"), Options(optimize="ram")):
        made = aot.compile(MODEL, CPU, options=replace(options, io="workspace"))
        assert f"{made.workspace_nbytes:,} bytes" in text.replace("\n", " ") or f"instead of {made.workspace_nbytes:,}." in text
    assert all(name in text for name in PICTURES)


def test_every_operator_has_a_line() -> None:
    text = (ROOT / "docs" / "operators.md").read_text()
    assert not [name for name in OPERATORS if f"| `{name}` |" not in text]


def test_wake_words_need_half_of_tflite_micros_arena_at_most() -> None:
    rows = json.loads((ROOT / "docs" / "measured.json").read_text())["wake_words"]
    assert len(rows) == 6
    assert all(2 * (row["state"] + row["workspace"]) <= row["arena"] for row in rows)


@pytest.mark.slow
def test_the_figures_are_those_of_today() -> None:
    """Where the models are: memory is what the page says, and so are the refusals."""
    figures = json.loads(generate.MEASURED.read_text())
    if not generate.MODELS.is_dir():
        pytest.skip("the real models are not beside the repository")
    for row in figures["wake_words"]:
        bundle = generate.aot.compile(generate.MODELS / f"{row['model']}.tflite", generate.CPU)
        assert (bundle.state_nbytes, bundle.workspace_nbytes) == (row["state"], row["workspace"]), "run make docs"
    for row in figures["refused"]:
        assert generate.refusal(row["model"]).replace("|", "/") == row["sentence"], "run make docs"


@pytest.mark.slow
def test_the_arenas_are_tflite_micros() -> None:
    """One of them; all with AOT_SWEEP=1. Its version may change what it allocates by a little."""
    pytest.importorskip("tflite_micro", reason="needs TFLite Micro: pip install tflite-micro")
    if not generate.MODELS.is_dir():
        pytest.skip("the real models are not beside the repository")
    rows = json.loads(generate.MEASURED.read_text())["wake_words"]
    for row in rows if os.environ.get("AOT_SWEEP") else rows[-1:]:
        assert generate.arena(generate.MODELS / f"{row['model']}.tflite").total_nbytes == pytest.approx(row["arena"], rel=0.05), (
            "run make docs"
        )
