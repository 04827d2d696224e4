"""The back end of docs/porting.md: the files that the page shows, as they stand, and the tests among them pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documentation.pages import fences
from tests.shared import ROOT

PAGE = "docs/porting.md"
_TITLE = re.compile(r'\w+ title="([^"]+)"')


def files() -> dict[str, str]:
    """The page's files: fences with the same title are one."""
    found: dict[str, str] = {}
    for _, mark, content in fences(PAGE):
        if title := _TITLE.fullmatch(mark):
            found[title[1]] = found.get(title[1], "") + content
    return found


def test_it_is_tidy(tmp_path: Path) -> None:
    written(tmp_path)
    options = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    for command in (["check", "--ignore", "I"], ["format", "--diff"]):  # isort can't know that tiny is a neighbour
        done = subprocess.run([sys.executable, "-m", "ruff", *command, *options, "."], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_its_tests_pass(tmp_path: Path) -> None:
    written(tmp_path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path)))}
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def written(folder: Path) -> None:
    for name, content in files().items():
        (folder / name).write_text(content)
    assert {path.name for path in folder.iterdir()} == {"tiny.yaml", "tiny.py", "test_tiny.py"}
