"""Packages that several tests use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aot.cli import run as aot
from aot.integrations import KINDS
from tests.integrations.firmware import BUNDLES


@pytest.fixture(scope="session")
def seven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packages of every kind of digits for a Cortex-M4, whose sample is the picture of a 7."""
    folder = tmp_path_factory.mktemp("packages")
    golden = np.load(BUNDLES / "digits" / "golden.npz")
    np.savez(folder / "seven.npz", in0=golden["in0_7"], out0=golden["out0_7"])
    kinds = [f"--package={kind}" for kind in KINDS]
    model = str(BUNDLES / "digits" / "digits.tflite")
    assert aot(["bundle", model, "--cpu", "cortex-m4", *kinds, "--sample", str(folder / "seven.npz"), "-o", str(folder)]) == 0
    return folder
