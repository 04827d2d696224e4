"""What a release holds: a wheel for every machine, with everything that the package reads, and nothing else."""

from __future__ import annotations

import email
import tarfile
import zipfile
from importlib.metadata import version

import pytest

from tests.distribution.built import distributions
from tests.shared import ROOT

pytest.importorskip("build", reason="the package 'build' is not installed")


def files() -> set[str]:
    """The package's files, but those that Python makes."""
    found = (path for path in (ROOT / "aot").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in found}


@pytest.mark.slow
def test_the_wheel_holds_the_package() -> None:
    wheel, _ = distributions()
    assert wheel.name.endswith("-py3-none-any.whl"), "it installs without a compiler"
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = email.message_from_bytes(next(archive.read(name) for name in archive.namelist() if name.endswith("/METADATA")))
    assert names == files(), "[tool.setuptools.package-data] in pyproject.toml names what is no Python"
    assert metadata["Name"] == "aot-bundle" and metadata["License-Expression" if metadata["License-Expression"] else "License"]
    assert metadata["Requires-Python"] == ">=3.10"


@pytest.mark.slow
def test_the_sdist_holds_the_package() -> None:
    _, sdist = distributions()
    with tarfile.open(sdist) as archive:
        names = {member.name.split("/", 1)[1] for member in archive if member.isfile()}
    assert files() <= names and {"pyproject.toml", "README.md", "LICENSE"} <= names


@pytest.mark.slow
def test_building_twice_gives_the_same_wheel() -> None:
    assert distributions(0)[0].read_bytes() == distributions(1)[0].read_bytes()


def test_the_change_log_tells_of_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    released = next(line for line in text.splitlines() if line.startswith("## ") and "Unreleased" not in line)
    wanted = next(line.split('"')[1] for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("version"))
    assert released.split()[1] == wanted
    assert version("aot-bundle") == wanted, "installed from other sources: pip install -e . again"
