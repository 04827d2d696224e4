"""The fuzzers of the reader: that they run clean, and that they find what is broken."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.hardening import fuzz_reader, reader_target
from tests.shared import ROOT

SWEEP = bool(os.environ.get("AOT_SWEEP"))
needs_atheris = pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason=reader_target.MISSING)


def test_cases_by_number() -> None:
    ((counts, lines),) = fuzz_reader.fuzz(40_000_000, 10_000 if SWEEP else 400, 1)
    assert not lines and not counts["broken"] and counts["read"] > 50 and counts["refused"] > 200


def test_a_case_that_kills_its_process_is_found() -> None:
    def run(first: int, count: int) -> tuple[int, str]:
        dies = first <= 1234 < first + count
        good = f"{count} cases from 47 models: {{'broken': 1, 'read': {count - 1}}}, 1.0 s, 9 MiB"
        return (-9, "") if dies else (1, f"case {first}: ValueError: x\n{good}\n")

    counts, lines = fuzz_reader.chunk(1200, 100, run)
    assert "case 1234: the process ended with -9" in lines and "case 1235: ValueError: x" in lines
    assert counts.total() == 100 and counts["broken"] == len(lines)


@needs_atheris
def test_atheris_finds_nothing() -> None:
    code, text = reader_target.fuzz("-max_total_time", 300) if SWEEP else reader_target.fuzz("-runs", 1500)
    assert code == 0 and "branches reached" in text, text


@needs_atheris
def test_atheris_notices_a_traceback(tmp_path: Path) -> None:
    """A reader that fails on a damaged file identifier: the run ends with its traceback."""
    broken = (
        "from tests.graph import hostile; from tests.hardening import reader_target; genuine = hostile.outcome; "
        "hostile.outcome = lambda data: genuine(data) if data[4:8] == b'TFL3' else 1 // 0; reader_target.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", broken, "-runs=2000", "-seed=1", f"-artifact_prefix={tmp_path}/"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    assert done.returncode != 0 and "ZeroDivisionError" in done.stdout + done.stderr


def test_without_atheris(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert reader_target.fuzz("-runs", 1) == (0, f"no fuzzing by coverage: {reader_target.MISSING}")


def test_counts_are_added() -> None:
    assert fuzz_reader.chunk(0, 7, lambda first, count: (0, f"{count} cases from 2 models: {{'read': {count}}}, 1 s")) == (
        Counter(read=7),
        [],
    )
