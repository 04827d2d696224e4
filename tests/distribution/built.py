"""The wheel and the source archive, built as for a release, once for all tests that look at them.

Enters: the sources as they are. Leaves: paths of a wheel and an sdist. Invariant: nothing is written into the sources.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.shared import ROOT

EPOCH = "1700000000"
"""A fixed time for what is in the archives, so that building twice gives the same bytes."""


@cache
def distributions(number: int = 0) -> tuple[Path, Path]:
    """(wheel, sdist), built from a copy of what git knows; another number builds again."""
    folder = Path(tempfile.mkdtemp(prefix="aot-dist-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    sources = folder / f"sources-{number}"
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
        sources.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, sources / name)
    shutil.copytree(ROOT / "aot", sources / "aot", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(sources)],
        check=True,
        capture_output=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
    )
    (wheel,) = (folder / "dist").glob("*.whl")
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    return wheel, sdist
