"""A hook of MkDocs: what the pages link to outside docs/ becomes a part of the site.

Enters: the pages. Leaves: `ARCHITECTURE.md`, `CONTRIBUTING.md` and `CHANGELOG.md` as pages, every other file that a page links to
(`../bundles/...`) in the site's folder `source/`. Invariant: the sources stay links that work in the repository, and a link to nothing fails the
build.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
_OUTSIDE = re.compile(r"\]\(\.\./([^)#\s]+)")
_INTO_DOCS = re.compile(r"\]\(docs/")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    linked = {name for file in files.documentation_pages() for name in _OUTSIDE.findall(file.content_string)}
    for name in PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    for name in sorted(linked - {*PAGES, "README.md"}):
        if (ROOT / name).is_file():
            files.append(File.generated(config, f"source/{name}", abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    return _INTO_DOCS.sub("](", _OUTSIDE.sub(_inside, markdown))


def _inside(link: re.Match[str]) -> str:
    """Where a file outside docs/ is in the site."""
    if link[1] in PAGES:
        return f"]({link[1]}"
    return "](index.md" if link[1] == "README.md" else f"](source/{link[1]}"
