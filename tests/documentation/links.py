"""The links of the documentation, and the anchors of its headings.

Enters: Markdown files of the repository. Leaves: for each link where it leads.
Invariant: anchors are those of GitHub and of MkDocs, where the two agree;
a heading for which they do not has none that may be linked to.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.documentation.pages import PAGES, outside_fences
from tests.shared import ROOT

LINKING = (
    *PAGES,
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    *sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("bundles/*/README.md")),
)
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_CODE = re.compile(r"`[^`\n]*`")


@dataclass(frozen=True)
class Link:
    page: str
    line: int
    target: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}: {self.target}"


def links(page: str) -> list[Link]:
    """The links of a page, those in code left out."""
    text = _CODE.sub(lambda code: "`" + "." * (len(code[0]) - 2) + "`", outside_fences(page))
    return [Link(page, text.count("\n", 0, found.start()) + 1, found[1]) for found in _LINK.finditer(text)]


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings."""
    titles = [_HEADING_MARKS.sub("", title) for title in _HEADING.findall(outside_fences(page))]
    found = Counter(github(title) for title in titles)
    return {github(title) for title in titles if found[github(title)] == 1 and github(title) == mkdocs(title)}


_HEADING_MARKS = re.compile(r"[`*]|\]\([^)]*\)|\[")


def github(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def mkdocs(title: str) -> str:
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())


def problem(link: Link) -> str:
    """Why a link leads nowhere; "" if it does not, or if it leaves the repository."""
    if re.match(r"[a-z]+:", link.target):
        return "" if link.target.startswith("https://") else "links that leave are https"
    name, _, anchor = link.target.partition("#")
    path = ((ROOT / link.page).parent / name).resolve() if name else ROOT / link.page
    if not path.is_relative_to(ROOT) or not path.exists():
        return "there is no such file"
    if anchor and (path.suffix != ".md" or anchor not in anchors(path.relative_to(ROOT).as_posix())):
        return f"{path.name} has no heading #{anchor}"
    return ""


def linked(pages: tuple[str, ...]) -> set[Path]:
    """The files of the repository that pages link to."""
    names = [(page, link.target.partition("#")[0]) for page in pages for link in links(page) if ":" not in link.target]
    return {((ROOT / page).parent / name).resolve() for page, name in names if name}
