"""Hostile files: each is read or refused in one line, whatever its bytes. `AOT_SWEEP=1` runs many more, in bounded memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import one_operator as one
from tests.graph.hostile import everything, mutation, outcome
from tests.shared import ROOT

BATCHES, BATCH = 16, 40


def test_the_good_files_are_read():
    assert outcome(everything()) == outcome(one.conv2d()) == "read"


@pytest.mark.parametrize("batch", range(BATCHES))
def test_mutations(batch):
    found = {outcome(mutation(case)) for case in range(batch * BATCH, (batch + 1) * BATCH)}
    assert found == {"read", "refused"}


@pytest.mark.parametrize("build", [everything, one.conv2d])
def test_truncation_at_every_64th_byte(build):
    data = build()
    found = {length: outcome(data[:length]) for length in range(0, len(data), 64)}
    assert len(found) > 15 and set(found.values()) == {"refused"}


def test_mutations_are_repeatable():
    assert [mutation(case) for case in range(20)] == [mutation(case) for case in range(20)]


def test_many_mutations_in_bounded_memory():
    cases = "20000" if os.environ.get("AOT_SWEEP") else "200"
    command = [sys.executable, "-m", "tests.graph.hostile", cases, "100000"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.startswith(f"{cases} cases from ") and "broken" not in result.stdout
