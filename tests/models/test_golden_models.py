"""Every real model that can be compiled, against its golden file: all on this machine, samples of them on a Cortex-M4 and M0+."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import aot
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_file
from aot.run import run_bundle
from aot.samples import differences, golden_samples
from tests.shared import GOLDEN, MODELS

FILES = sorted((*GOLDEN.glob("*.npz"), *GOLDEN.glob("unit/*.npz")))
EVERY = 1 if os.environ.get("AOT_SWEEP") else 4
CASES = [
    *((None, path) for path in FILES),
    *(("cortex-m4", path) for path in FILES[::EVERY]),
    *(("cortex-m0plus", path) for path in FILES[1 :: 2 * EVERY]),
]


def model_of(path: Path) -> Path:
    """The model that a golden file belongs to."""
    folder = MODELS / "unit" if path.parent.name == "unit" else MODELS
    return folder / f"{path.stem.replace('__', '/', 1)}.tflite"


COMPILED = 132
"""Models that can be compiled, at the least: one that is newly refused must not pass as a skip."""


@pytest.mark.skipif(not FILES, reason="the real models are not beside the repository")
def test_no_model_is_newly_refused() -> None:
    accepted = 0
    for path in FILES:
        try:
            read_file(model_of(path), OPERATORS)
            accepted += 1
        except aot.CompileError:
            continue
    assert accepted >= COMPILED


@pytest.mark.parametrize("cpu,path", CASES, ids=[f"{cpu or 'host'}-{path.stem}" for cpu, path in CASES])
def test_compiled_code_gives_the_golden_bytes(cpu: str | None, path: Path) -> None:
    try:
        bundle = aot.compile(model_of(path), cpu)
    except aot.CompileError as error:
        assert "\n" not in str(error)
        pytest.skip(f"refused: {error}")
    with np.load(path) as archive:
        _, samples = golden_samples(bundle.main, {name: archive[name] for name in archive.files}, path.name)
    assert samples
    for sample in samples[:2]:
        assert differences(sample.outputs, run_bundle(bundle, sample.inputs).outputs) == []
