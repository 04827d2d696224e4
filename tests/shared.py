"""Where tests find real models and their golden outputs: `../shared` beside the repository, absent for most people."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
MODELS, GOLDEN = SHARED / "models", SHARED / "golden"

SHORT_NAMES = {
    "KWS": "mlperf_tiny/kws_ref_model",
    "IC": "mlperf_tiny/pretrainedResnet_quant",
    "VWW": "mlperf_tiny/vww_96_int8",
    "AD": "mlperf_tiny/model_ToyCar_quant_fullint_micro_intio",
    "PD": "tflm/person_detect",
}
FIVE = tuple(SHORT_NAMES)
INT8 = (
    *FIVE,
    "tflm/micro_speech_quantized",
    "tflm/hello_world_int8",
    "tflm_arduino/magic_wand",
    "tinyengine/detection",
    "mlek/kws_micronet_m",
    "ml_examples/image_recognition_cifar10",
)
FLOAT = ("mlperf_tiny/vww_96_float", "mlperf_tiny/pretrainedResnet", "tflm/sine_float")
"""Models that every target must run."""


def model(name: str) -> Path:
    """Path of a real model ("KWS" or "tflm/sine_float"); skips the test, with the reason, where it is absent."""
    name = SHORT_NAMES.get(name, name)
    return _present(MODELS / f"{name}.tflite", name)


def golden(name: str) -> Path:
    """Path of a real model's golden file; skips the test where it is absent."""
    name = SHORT_NAMES.get(name, name)
    return _present(
        GOLDEN / f"{name.replace('/', '__', 1)}.npz"
        if not name.startswith("unit/")
        else GOLDEN / "unit" / f"{name[5:].replace('/', '__')}.npz",
        name,
    )


def _present(path: Path, name: str) -> Path:
    if not path.is_file():
        pytest.skip(f"model {name} is not beside the repository ({path.relative_to(ROOT.parent)})")
    return path
