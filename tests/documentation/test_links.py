"""Every link of the documentation leads somewhere, every page is linked to, and the site builds of them without a warning."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.documentation.links import LINKING, Link, github, linked, links, mkdocs, problem
from tests.documentation.pages import PAGES
from tests.shared import ROOT


def test_links_lead_somewhere() -> None:
    wrong = [f"{link.where}: {why}" for page in LINKING for link in links(page) if (why := problem(link))]
    assert not wrong


def test_every_page_can_be_reached() -> None:
    found = linked(LINKING)
    assert not [page for page in PAGES if page.startswith("docs/") and ROOT / page not in found]


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("memory.md", ""),
        ("memory.md#several-memories", ""),
        ("../bundles/digits/main.c", ""),
        ("https://example.org/x", ""),
        ("http://example.org/x", "https"),
        ("nothing.md", "no such file"),
        ("memory.md#nothing", "no heading"),
        ("generate.py#main", "no heading"),
        ("../../../etc/passwd", "no such file"),
    ],
)
def test_a_link_is_judged(target: str, why: str) -> None:
    found = problem(Link("docs/start.md", 1, target))
    assert why in found and bool(why) == bool(found)


def test_anchors() -> None:
    assert (
        github("Weights that can't be addressed") == mkdocs("Weights that can't be addressed") == "weights-that-cant-be-addressed"
    )
    assert github("A - B") == "a---b" and mkdocs("A - B") == "a-b"


@pytest.mark.slow
def test_the_site(tmp_path: Path) -> None:
    """Builds strictly, has every page, and asks no other host for anything."""
    if find_spec("material") is None:
        pytest.skip("needs MkDocs: pip install mkdocs-material")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    for page in PAGES:
        if page.startswith("docs/"):
            assert (tmp_path / Path(page).name).with_suffix(".html").is_file(), f"{page} is not in the navigation of mkdocs.yml"
    left_out = [line for line in done.stderr.splitlines() if "excluded from the built site" in line]
    assert not left_out
    for path in tmp_path.glob("*.html"):
        fetched = re.findall(
            r"<(?:script|img|iframe)[^>]* src=[\"']?((?:https?:)?//[^\"' >]+)|<link[^>]* href=[\"']?((?:https?:)?//[^\"' >]+)",
            path.read_text(),
        )
        assert not fetched, f"{path.name} asks another host"
