"""The wheel on every supported Python that is on this machine: it installs, and compiles to the same bytes.

Looked for on the path and among pyenv's versions; those that are missing are named in the skips.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.distribution.built import distributions
from tests.shared import ROOT

pytest.importorskip("build", reason="the package 'build' is not installed")
SUPPORTED = ("3.10", "3.11", "3.12", "3.13")
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
SCRIPT = """
import hashlib, sys, aot
from aot.artefacts import files
for options in ({"target": "cortex-m4"}, {"target": "cortex-a53"}, {"target": "cortex-m0plus", "optimize": "ram"}, {"emit": "c"}):
    made = files(aot.compile(sys.argv[1], options=aot.Options(**options)))
    print(*(hashlib.sha256(name.encode() + made[name]).hexdigest() for name in sorted(made)))
"""


def interpreter(version: str) -> str | None:
    """A Python of this version that works."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for path in (*sorted(pyenv.glob(f"{version}.*/bin/python")), shutil.which(f"python{version}")):
        if path and subprocess.run([path, "-c", "import venv, ssl"], capture_output=True).returncode == 0:
            return str(path)
    return None


@cache
def hashes(python: str) -> str:
    """Of all files of the digits' bundles, made in several ways."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python, "-c", SCRIPT, str(ROOT / "bundles" / "digits" / "digits.tflite")]
    cwd = ROOT if python == sys.executable else ROOT.parent
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("version", [version for version in SUPPORTED if version != OWN])
def test_another_python(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"Python {version} is not on this machine")
    wheel, _ = distributions()
    subprocess.run([python, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    theirs = str(tmp_path / "venv" / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", theirs, "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "install", "--no-compile", str(wheel)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert hashes(theirs) == hashes(sys.executable)
