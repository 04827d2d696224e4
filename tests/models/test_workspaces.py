"""docs/workspaces.md: it is made of the committed figures, its medians are good ones, and the figures are those of today (a sample; all
with AOT_SWEEP=1)."""

from __future__ import annotations

import os
from statistics import median

import pytest

from bench import workspaces
from bench.arena import arena
from tests.shared import MODELS, model

ROWS = workspaces.load()
SAMPLE = ("tflm/test_conv_model", "tflm_arduino/magic_wand", "tflm/keyword_scrambled", "esphome_mww/vad")
AGAIN = "`make bench`, or `python -m bench.workspaces`, writes it again"


def test_page_is_made_of_the_figures() -> None:
    assert workspaces.PAGE.read_text() == workspaces.page(ROWS), f"{AGAIN} (--page: without measuring)"


def test_medians() -> None:
    large = workspaces.ratios(each for each in ROWS.values() if each.is_large)
    every = workspaces.ratios(ROWS.values())
    assert len(large) >= 10 and len(every) >= 30
    assert median(large) <= workspaces.MOST_OF_LARGE
    assert median(every) <= workspaces.MOST_OF_ALL


@pytest.mark.skipif(not MODELS.is_dir(), reason="the real models are not beside the repository")
def test_no_network_is_left_out() -> None:
    """One that appears has no figures yet; whether it is an int8 network is known only when it is measured."""
    assert not set(ROWS) - set(workspaces.names())
    assert all(workspaces.row(name) is None for name in ("tflm/sine_float", "mlperf_tiny/model_ToyCar"))


@pytest.mark.parametrize("name", sorted(ROWS) if os.environ.get("AOT_SWEEP") else SAMPLE)
def test_no_workspace_rises(name: str) -> None:
    model(name)
    pytest.importorskip("tflite_micro", reason="needs TFLite Micro: pip install tflite-micro")
    now, before = workspaces.row(name), ROWS[name]
    assert now is not None
    assert now.ram_nbytes <= before.ram_nbytes, AGAIN
    assert (now.streamed_nbytes is None) == (before.streamed_nbytes is None), AGAIN
    assert (now.streamed_nbytes or 0) <= (before.streamed_nbytes or 0), AGAIN
    assert now.arena_nbytes == pytest.approx(before.arena_nbytes, rel=0.05), AGAIN


def test_a_model_that_tflite_micro_does_not_run() -> None:
    pytest.importorskip("tflite_micro", reason="needs TFLite Micro: pip install tflite-micro")
    with pytest.raises(workspaces.NoArena, match="Hybrid models are not supported"):
        arena(model("coral/mobilenet_v1_0.25_128_quant"))
