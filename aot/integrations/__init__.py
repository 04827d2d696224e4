"""A bundle as other build systems want it: a Zephyr module, an Arduino or PlatformIO library, a CMSIS-Pack.

Enters: a Bundle, the names of `KINDS`. Leaves: files by path, each kind in a folder NAME-KIND of its own.
Invariant: deterministic; every name in them is an identifier, a version or a number, whatever the model and its file are called.
"""

from __future__ import annotations

from collections.abc import Iterable

from aot.integrations.kinds import KINDS
from aot.integrations.package import Files, Package, within
from aot.names import choose

__all__ = ["KINDS", "Package", "package_files"]


def package_files(package: Package, kinds: Iterable[str]) -> Files:
    """The files of packages of these kinds, each in a folder NAME-KIND."""
    found: Files = {}
    for kind in kinds:
        make = KINDS[choose("package", kind, KINDS)]
        found |= within(f"{package.name}-{kind}", make(package))
    return found
