"""Every function of a bundle answers null and misaligned pointers by an error code, before it touches anything."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.hardening.core import Core
from tests.hardening.features import FEATURES, bundle_of
from tests.hardening.pointers import Wrong, functions, wrong_calls
from tests.hardening.task import Task
from tests.shared import ROOT

SAMPLED = ("weights in a region, from separate ones", "state")


def answer(task: Task, wrong: Wrong) -> int:
    """What the function returns where no pointer leads to any memory."""
    core = Core(task.bundle.target)
    task.map(core, memory=False)
    task.begin(core, wrong.call, wrong.put)
    core.go(1000)
    assert core.done, "still running"
    return core["r0"] - (1 << 32 if core["r0"] >> 31 else 0)


@pytest.mark.parametrize(("feature", "cpu"), [*((feature, "cortex-m4") for feature in FEATURES), ("plain", "cortex-m0")])
def test_in_an_emulated_core(feature: str, cpu: str) -> None:
    checked = 0
    for model, entry, inputs in functions(bundle_of(feature, cpu)):
        task = Task(model, inputs, entry)
        for wrong in wrong_calls(model, entry, inputs):
            assert answer(task, wrong) == wrong.answer, wrong
            checked += 1
    assert checked > 1


def test_on_this_machine() -> None:
    """Pointers of 64 bits; C as well as an object."""
    features = [name for name in FEATURES if os.environ.get("AOT_SWEEP") or name in SAMPLED]
    command = [sys.executable, "-m", "tests.hardening.pointers", *features]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and int(done.stdout.split()[0]) > 30, (done.returncode, done.stdout, done.stderr[-2000:])
