"""The layers hold, every file is listed in ARCHITECTURE.md, and nothing of a host leaks into the sources."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.shared import ROOT

PACKAGE = ROOT / "aot"
FORBIDDEN = {
    "aot.graph": ("aot.lower", "aot.llvm", "aot.backends", "aot.run", "aot.driver", "aot.commands"),
    "aot.lower": ("aot.llvm", "aot.backends", "aot.run", "aot.driver", "aot.commands"),
    "aot.c.": ("aot.backends", "aot.run", "aot.driver", "aot.commands"),
    "aot.llvm": ("aot.c.", "aot.backends", "aot.run", "aot.driver", "aot.commands"),
    "aot.backends": ("aot.run", "aot.driver", "aot.commands"),
    "aot.run": ("aot.backends", "aot.driver", "aot.commands"),
}
ONLY_HERE = {
    "llvmlite": ("aot/llvm", "aot/run/host.py", "aot/run/hooks.py", "aot/target.py", "aot/backends", "aot/c"),
    "llvmlite.binding": ("aot/llvm/llvm.py", "aot/run/host.py", "aot/run/hooks.py", "aot/target.py"),
    "unicorn": ("aot/run/emulate.py",),
}


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def imports(path: Path) -> set[str]:
    """Every module that a file imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("path", sources(), ids=module)
def test_layers(path: Path) -> None:
    for layer, forbidden in FORBIDDEN.items():
        if module(path).startswith(layer):
            wrong = sorted(name for name in imports(path) if name.startswith(forbidden))
            assert not wrong, f"{module(path)} may not import {wrong}"


@pytest.mark.parametrize("library", ONLY_HERE)
def test_wrapped_libraries(library: str) -> None:
    users = {
        str(path.relative_to(ROOT))
        for path in sources()
        if any(name == library or name.startswith(library + ".") for name in imports(path))
    }
    assert all(user.startswith(ONLY_HERE[library]) for user in users), f"{library} is wrapped in {ONLY_HERE[library]}"


def test_every_file_is_in_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    missing = [name for path in sources() if path.name != "__init__.py" and (name := str(path.relative_to(ROOT))) not in text]
    assert not missing, "ARCHITECTURE.md has no line for these"


def test_architecture_names_no_file_that_is_gone() -> None:
    import re

    text = (ROOT / "ARCHITECTURE.md").read_text()
    gone = [name for name in re.findall(r"`((?:aot|tests|bundles|renode)/[\w/.]+\.\w+)`", text) if not (ROOT / name).exists()]
    assert not gone


def test_every_module_says_what_it_is_for() -> None:
    silent = [module(path) for path in sources() if not ast.get_docstring(ast.parse(path.read_text())) and path.read_text().strip()]
    assert not silent
