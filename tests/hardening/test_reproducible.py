"""The same model and options give the same files, byte for byte: in every process, hash seed, locale, time zone and folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hardening.features import DIGITS
from tests.shared import ROOT

BUNDLE = """
import locale, sys
locale.setlocale(locale.LC_ALL, "")
from aot.cli import run
code = run(sys.argv[1:])
print(locale.localeconv()["decimal_point"], "I".lower())
sys.exit(code)
"""
"""As in a program that embeds us: the locale's decimal comma holds for C's functions, LLVM's too."""
OPTIONS = ["--cpu", "cortex-m4", "--weights", "separate", "--name", "digits"]
PLAIN = {"PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "UTC", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "HOME": "/nonexistent"}
SWEEP = bool(os.environ.get("AOT_SWEEP"))
I18N = Path("/usr/share/i18n/locales")


def locales(folder: Path, *names: str) -> dict[str, str]:
    """Environment in which these locales are known, made here."""
    folder.mkdir()
    for name in names:
        subprocess.run(["localedef", "-i", name, "-f", "UTF-8", folder / f"{name}.UTF-8"], check=True, capture_output=True)
    return {"LOCPATH": str(folder)}


def files(out: Path, model: str, cwd: Path, environment: dict[str, str]) -> tuple[dict[str, bytes], str]:
    """What a bundle's folder holds, and what the process said of its locale."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
    command = [sys.executable, "-c", BUNDLE, "bundle", model, *OPTIONS, "-o", str(out)]
    done = subprocess.run(command, cwd=cwd, env=kept | {"PYTHONPATH": str(ROOT)} | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}, done.stdout.splitlines()[-1]


@pytest.mark.skipif(
    shutil.which("localedef") is None or not (I18N / "tr_TR").is_file(),
    reason="no sources of locales to make tr_TR and de_DE from (Debian: apt-get install locales)",
)
def test_processes_seeds_locales_and_folders(tmp_path: Path) -> None:
    made = locales(tmp_path / "locales", "tr_TR", "de_DE")
    elsewhere = tmp_path / "with a space, and ü"
    elsewhere.mkdir()
    linked = elsewhere / "digits.tflite"
    linked.symlink_to(DIGITS)
    first, said = files(tmp_path / "a", "bundles/digits/digits.tflite", ROOT, PLAIN)
    assert len(first) == 6 and said.startswith(".")
    turkish = made | {"PYTHONHASHSEED": "4711", "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Kathmandu"}
    second, said = files(tmp_path / "b", str(DIGITS), tmp_path, turkish)
    assert said.startswith(",") and second == first
    if SWEEP:
        german = made | {"PYTHONHASHSEED": "random", "LC_ALL": "de_DE.UTF-8", "TZ": "America/St_Johns", "PYTHONOPTIMIZE": "2"}
        third, said = files(elsewhere / "c", "digits.tflite", elsewhere, german)
        assert said.startswith(",") and third == first
