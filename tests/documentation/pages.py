"""What the documentation tells its readers to type.

Enters: README.md, docs/*.md, the examples that `aot COMMAND --help` prints. Leaves: `Script`s. Invariant: a fence of Markdown that is to
be typed is marked `sh`, every fence is marked with something, and a complete command in the running text counts as a script, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from aot.commands import COMMANDS
from tests.shared import ROOT

PAGES = tuple(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "bundles" / "README.md")
)
OF_HELP = "docs/cli.md"
"""The page that is made of `--help`, whose examples are scripts anyway."""
_FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^ *```\s*?$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(aot [^`\n]+)`")
_PLACEHOLDER = re.compile(r"\b(NAME|FOLDER|FILE|N|TRIPLE|BYTES|COMMAND|PASS|SHELL|KEY)\b|\.\.\. |[<>|]")
_EXAMPLE = re.compile(r"^ +(aot .*?)(?: {3,}.*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Script:
    """Lines for a shell. `where`: its page and line, or the command whose help shows it."""

    page: str
    line: int
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def fences(page: str) -> list[tuple[int, str, str]]:
    """(line, mark, content) of each fenced block of a page."""
    text = (ROOT / page).read_text()
    return [(text.count("\n", 0, found.start()) + 1, found[2].strip(), found[3]) for found in _FENCE.finditer(text)]


def outside_fences(page: str) -> str:
    """A page's text, each fenced block an equal number of empty lines."""
    return _FENCE.sub(lambda block: "\n" * block[0].count("\n"), (ROOT / page).read_text())


def scripts() -> tuple[Script, ...]:
    """Everything that is there to be typed, each text once a page."""
    found: dict[tuple[str, str], Script] = {}
    for page in PAGES:
        if page == OF_HELP:
            continue
        plain = outside_fences(page)
        every = [(line, content) for line, mark, content in fences(page) if mark == "sh"]
        every += [
            (plain.count("\n", 0, inline.start()) + 1, _with_model(inline[1]))
            for inline in _INLINE.finditer(plain)
            if _is_complete(inline[1])
        ]
        for line, content in sorted(every):
            found.setdefault((page, content), Script(page, line, content))
    for command in COMMANDS:
        page = f"aot {command.name} --help"
        for number, example in enumerate(_EXAMPLE.finditer(command.epilog or ""), 1):
            found.setdefault((page, example[1]), Script(page, number, example[1]))
    return tuple(found.values())


def _with_model(command: str) -> str:
    """MODEL stands for a model's file."""
    return re.sub(r"\bMODEL(\.\.\.)?(?=\s|$)", "model.tflite", command)


def _is_complete(command: str) -> bool:
    """Whether a command in the text can be typed as it is: it has what its command must have, and no placeholder but MODEL."""
    known = {each.name: each for each in COMMANDS}
    words = command.split()
    if words[1] not in known or _PLACEHOLDER.search(_with_model(command)):
        return False
    needs_model = any(param.param_type_name == "argument" and param.required for param in known[words[1]].params)
    return not needs_model or any(word.endswith(".tflite") or word.startswith("MODEL") for word in words)
