"""Every real model that can be compiled, against its golden file: on this machine, on a Cortex-M4, M0+ and M55.

Networks are whole models; units are single operators. Small ones and samples of the others are run here, all of them with AOT_SWEEP=1.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import aot
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_file
from aot.samples import golden_samples
from aot.verify import verify
from tests.shared import GOLDEN, MODELS, ROOT

SWEEP = bool(os.environ.get("AOT_SWEEP"))
NETWORKS, UNITS = sorted(GOLDEN.glob("*.npz")), sorted(GOLDEN.glob("unit/*.npz"))
INT16 = [path for path in UNITS if path.stem.startswith(("tflm_seanet__", "litert_test__static_w8_a16_"))]
LARGE = ("mlperf_tiny__pretrainedResnet_large_float", "mlperf_tiny__pretrainedResnet_large_int8")
"""Networks that an emulator takes a minute for."""
SLOW = ("mlperf_tiny__kws_ref_model_float32", "tflm__audio_preprocessor_float")
"""Small files whose compilation takes long."""


def model_of(path: Path) -> Path:
    """The model that a golden file belongs to."""
    folder = MODELS / "unit" if path.parent.name == "unit" else MODELS
    return folder / f"{path.stem.replace('__', '/', 1)}.tflite"


def small(paths: list[Path], nbytes: int) -> list[Path]:
    return [path for path in paths if SWEEP or (model_of(path).stat().st_size <= nbytes and path.stem not in SLOW)]


def some(paths: list[Path], start: int, step: int) -> list[Path]:
    return paths if SWEEP else paths[start::step]


CASES = [
    *((None, path) for path in small(NETWORKS, 80_000)),
    *((None, path) for path in some(UNITS, 0, 4)),
    *(("cortex-m4", path) for path in small(NETWORKS, 20_000) if path.stem not in LARGE),
    *(("cortex-m4", path) for path in some([path for path in UNITS if path not in INT16], 1, 12)),
    *(("cortex-m4", path) for path in some(INT16, 0, 6)),
    *(("cortex-m0plus", path) for path in some(UNITS, 3, 24)),
    *(("cortex-m55", path) for path in some(INT16, 3, 20)),
]

REFUSED = {each["model"]: each["sentence"] for each in json.loads((ROOT / "docs" / "measured.json").read_text())["refused"]}
"""The models that docs/operators.md says can't be compiled, and why: no other may be refused."""


def name_of(path: Path) -> str:
    return str(model_of(path).relative_to(MODELS).with_suffix(""))


@pytest.mark.skipif(not NETWORKS, reason="the real models are not beside the repository")
def test_no_model_is_newly_refused() -> None:
    refused = {}
    for path in (*NETWORKS, *UNITS):
        try:
            read_file(model_of(path), OPERATORS)
        except aot.CompileError as error:
            refused[name_of(path)] = error.what
    assert refused == REFUSED


@pytest.mark.parametrize("cpu,path", CASES, ids=[f"{cpu or 'host'}-{path.stem}" for cpu, path in CASES])
def test_compiled_code_gives_the_golden_bytes(cpu: str | None, path: Path) -> None:
    """Two runs; of a model with state all of them, from its first on."""
    if cpu == "cortex-m55" and shutil.which("qemu-system-arm") is None:
        pytest.skip("qemu-system-arm is not installed")
    if name_of(path) in REFUSED:
        with pytest.raises(aot.CompileError, match=re.escape(REFUSED[name_of(path)])) as refusal:
            aot.compile(model_of(path), cpu)
        assert "\n" not in str(refusal.value)
        return
    bundle = aot.compile(model_of(path), cpu)
    with np.load(path) as archive:
        oracle, samples = golden_samples(bundle.main, {name: archive[name] for name in archive.files}, path.name)
    assert samples
    assert verify(bundle, oracle, samples if bundle.state_nbytes else samples[:2], "auto").mismatches == ()
