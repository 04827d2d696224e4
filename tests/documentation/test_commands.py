"""Every command in the documentation runs: those of a page in their order, in one folder, as a reader would type them.

README.md by default; all with AOT_SWEEP=1, as `make test-docs` does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aot.cli import cli
from aot.commands import COMMANDS
from tests.documentation.folder import furnish
from tests.documentation.newcomer import MOST_COMMANDS, commands
from tests.documentation.pages import PAGES, Script, fences, outside_fences, scripts
from tests.shared import ROOT

SCRIPTS = scripts()
WITH_SCRIPTS = tuple(dict.fromkeys(script.page for script in SCRIPTS))
SAMPLE = ("README.md",)
NOT_RUN = {
    "make ": "it is for the repository's own folder; tests/bundles run what it runs",
    "sudo ": "make newcomer tries it",
    "python3 -m venv": "make newcomer tries it",
    "venv/bin/": "make newcomer tries it",
    "xt-clang": "Cadence's compiler is not free",
    "aot verify model.tflite --cpu cortex-m4 --kernels library": "tests/backends/test_library.py runs it where CMSIS-NN is",
    "aot run model.tflite --cpu cortex-m4 --kernels library": "tests/backends/test_library.py runs it where CMSIS-NN is",
    "aot profile model.tflite --cpu cortex-m4 --kernels library": "tests/backends/test_library.py runs it where CMSIS-NN is",
}
"""Lines that are left out, by how they begin, and why."""


def test_every_fence_says_what_it_holds() -> None:
    """Else a command could be left out unnoticed: `sh` what is to be typed, `text` what is printed."""
    bare = [f"{page}:{line}" for page in PAGES for line, mark, _ in fences(page) if not mark]
    assert not bare
    typed = [
        f"{page}:{line}" for page in PAGES for line, mark, content in fences(page) if mark != "sh" and content.startswith("aot ")
    ]
    assert not typed, "commands stand in fences marked sh"
    indented = [f"{page}: {line}" for page in PAGES for line in outside_fences(page).splitlines() if line.startswith("    aot ")]
    assert not indented, "commands stand in fences marked sh"


def test_what_the_text_names_exists() -> None:
    """Commands and options in inline code; capitals stand for any."""
    options = {name for command in (cli, *COMMANDS) for param in command.params for name in (*param.opts, *param.secondary_opts)}
    codes = [(page, code) for page in PAGES for code in re.findall(r"`([^`\n]*)`", outside_fences(page))]
    named = [(page, name, name[4:]) for page, code in codes for name in re.findall(r"^aot [a-z-]+", code)]
    unknown = [(page, name) for page, name, word in named if word not in options | {command.name for command in COMMANDS}]
    unknown += [
        (page, name)
        for page, code in codes
        for name in re.findall(r"(?:^|\s)(--[a-z][a-z-]*)", code)
        if name not in options | {"--help"}
    ]
    assert not unknown


def test_what_is_left_out_is_there() -> None:
    lines = [line.strip() for script in SCRIPTS for line in script.text.splitlines()]
    assert not [begin for begin in NOT_RUN if not any(line.startswith(begin) for line in lines)]


def test_a_newcomer_types_little() -> None:
    assert 3 < len(commands()) <= MOST_COMMANDS


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_SCRIPTS if os.environ.get("AOT_SWEEP") else SAMPLE)
def test_commands_of(page: str, tmp_path: Path) -> None:
    furnish(tmp_path, page)
    for script in SCRIPTS:
        if script.page == page:
            _type(script, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if any(mark == "python" for _, mark, _ in fences(page))])
def test_python_of(page: str, tmp_path: Path) -> None:
    furnish(tmp_path, page)
    for line, mark, content in fences(page):
        if mark == "python" and "import aot" in content:
            _type(Script(page, line, f"python - <<'END'\n{content}\nEND"), tmp_path)


def _type(script: Script, folder: Path) -> None:
    """Run the lines of a script that can be run here, the others with a printed reason."""
    lines: list[str] = []
    for line in script.text.splitlines():
        why = next((why for begin, why in NOT_RUN.items() if line.strip().startswith(begin)), None)
        if why:
            print(f"{script.where}: left out, for {why}: {line.strip()}")
        else:
            lines.append(line)
    done = subprocess.run(
        ["bash", "-e", "-u", "-o", "pipefail", "-c", "\n".join(lines)],
        cwd=folder,
        capture_output=True,
        text=True,
        env=_environment(folder),
    )
    assert done.returncode == 0, f"{script.where}\n{script.text}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def _environment(folder: Path) -> dict[str, str]:
    """With the `aot` of these sources, and the interpreter that runs the tests, first on the path."""
    tools = folder / ".tools"
    if not tools.exists():
        tools.mkdir()
        (tools / "aot").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aot "$@"\n')
        (tools / "aot").chmod(0o755)
        python = shutil.which(sys.executable) or sys.executable
        (tools / "python").write_text(f'#!/bin/sh\nexec "{python}" "$@"\n')
        (tools / "python").chmod(0o755)
    path = os.pathsep.join((str(tools), os.environ.get("PATH", "")))
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(folder)}
