"""Nothing depends on what memory holds that nobody has written: outputs, workspaces, the bytes around every region."""

from __future__ import annotations

import os

import numpy as np
import pytest

from aot.driver import Options, compile
from aot.run import run_bundle
from aot.samples import random_inputs
from tests.hardening.core import Core
from tests.hardening.features import DIGITS, FEATURES, bundle_of
from tests.hardening.task import FILLS, Task, filled
from tests.shared import FIVE, model

SWEEP = bool(os.environ.get("AOT_SWEEP"))
CPUS = ("cortex-m0", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33") if SWEEP else ("cortex-m4",)
NAMES = ("digits", *(FIVE if SWEEP else ("AD",)))


@pytest.mark.parametrize("feature", FEATURES)
def test_every_kind_of_interface(feature: str) -> None:
    """Each run is two, with regions at the ends and at the starts of pages, in an emulator that faults outside of them."""
    for part in bundle_of(feature).parts:
        inputs, found = random_inputs(part.main, 5), []
        for fill in FILLS:
            with filled(fill):
                result = run_bundle(part, inputs)
            found.append((*(output.tobytes() for output in result.outputs), result.state))
        assert found == found[:1] * len(FILLS)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("name", NAMES)
def test_what_lies_around(name: str, cpu: str) -> None:
    """Also the rest of each region's pages, which the code could read without a fault, is full of it."""
    bundle = compile(DIGITS if name == "digits" else model(name), options=Options(target=cpu))
    inputs = random_inputs(bundle.main, 6)
    found = set()
    for fill in FILLS:
        for at_end in (True, False):
            core, task = Core(bundle.target), Task(bundle, inputs, fill=fill, at_end=at_end)
            task.map(core)
            found.add(b"".join(output.tobytes() for output in task.run(core)))
    assert found == {b"".join(output.tobytes() for output in run_bundle(bundle, inputs).outputs)}


def test_what_nobody_wrote_is_noticed() -> None:
    """A run without its last layer leaves in the output what that happened to hold."""
    bundle = bundle_of("plain")
    found = set()
    for fill in (0x00, 0xFF):
        core, task = Core(bundle.target), Task(bundle, random_inputs(bundle.main, 6), fill=fill)
        task.map(core)
        last = task.layout.image.by_name[bundle.main.layers[-1].symbol].address
        core.engine.mem_protect(task.layout.code.start, task.layout.code.end - task.layout.code.start, 7)
        core.engine.mem_write(last, b"\x70\x47")  # bx lr
        while task.left:
            task.go(core)
        output = task.placed[next(name for name in task.placed if name.startswith("output"))]
        found.add(output.content(core.pages(output)))
    assert len(found) == 2


def test_fills_are_what_they_say() -> None:
    with filled(0xAA):
        assert np.random.default_rng(1).bytes(3) == b"\xaa\xaa\xaa"
    assert np.random.default_rng(1).bytes(3) != b"\xaa\xaa\xaa"
