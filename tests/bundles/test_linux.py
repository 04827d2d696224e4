"""The samples as static Linux programs for Cortex-A, 32 and 64 bits, under QEMU: they print what they must."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shared import ROOT


@pytest.mark.parametrize(
    ("sample", "cpu", "emulator"),
    [("digits", "cortex-a53", "qemu-aarch64"), ("digits", "cortex-a9", "qemu-arm"), ("digits_float", "cortex-a76", "qemu-aarch64")],
)
def test_prints_what_is_expected(sample: str, cpu: str, emulator: str, tmp_path: Path) -> None:
    for tool in (emulator, "make"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    pytest.importorskip("ziglang", reason="ziglang, whose clang compiles for Linux, is not installed")
    command = ["make", "-C", str(ROOT / "bundles" / "linux"), "run", f"SAMPLE={sample}", f"CPU={cpu}"]
    done = subprocess.run([*command, f"OUT={tmp_path}", f"PYTHON={sys.executable}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{sample}: end" in done.stdout
    assert "warning" not in done.stderr
