"""What every kind of package is made of: the bundle's headers, its library or C files, and a sample.

Enters: a Bundle, and inputs for the sample. Leaves: `Package`.
Invariant: a package needs nothing beside it but what the bundle itself needs of the firmware.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from aot.artefacts.contents import environment, files
from aot.bundle import Bundle
from aot.errors import CompileError
from aot.integrations.archive import archive
from aot.integrations.sample import sample_files
from aot.llvm.elf import exported
from aot.version import VERSION

_VERSION = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})")
Files = dict[str, bytes]


@dataclass(frozen=True)
class Package:
    """A bundle to be packed. version: X.Y.Z, the package's own. inputs: what the sample runs on (none: zeros); expected: its class."""

    bundle: Bundle
    version: str = "1.0.0"
    inputs: Sequence[np.ndarray] = field(default=())
    expected: int | None = None

    def __post_init__(self) -> None:
        if self.bundle.glow is not None:
            raise CompileError("packages are for --api native: their sample calls that interface")
        if not _VERSION.fullmatch(self.version):
            raise CompileError(f"--package-version '{self.version}' is not X.Y.Z", hint="three numbers, such as 1.0.0")

    @property
    def name(self) -> str:
        return self.bundle.name

    @cached_property
    def contents(self) -> Files:
        """The bundle's own files by name."""
        return files(self.bundle)

    @cached_property
    def headers(self) -> Files:
        return {name: content for name, content in self.contents.items() if name.endswith(".h")}

    @cached_property
    def sources(self) -> Files:
        """C files that are the bundle, beside or in the place of an object, and those that stand for a library."""
        return {name: content for name, content in self.contents.items() if name.endswith(".c")}

    @cached_property
    def library(self) -> Files:
        """The object as a static library, by the file's name; none where the bundle is C."""
        if self.bundle.is_c:
            return {}
        member = f"{self.name}.o"
        code = {member: self.contents[member]}
        return {f"lib{self.name}.a": archive(code, {name: exported(content) for name, content in code.items()})}

    @property
    def linked(self) -> bool:
        """Whether the network is linked as the library: of C files and an object, build systems that can't choose take the C files."""
        return bool(self.library) and not self.bundle.sources

    @cached_property
    def weights(self) -> Files:
        return {name: content for name, content in self.contents.items() if name.endswith(".weights.bin")}

    @cached_property
    def sample(self) -> Files:
        """The sample, by file name."""
        texts = sample_files(self.bundle, self.inputs, self.expected)
        return {name: text.encode() for name, text in texts.items()}

    @property
    def cpu(self) -> str:
        """The core as a folder's name."""
        return re.sub(r"[^A-Za-z0-9_.+-]", "_", self.bundle.target.cpu or "any").strip(".") or "any"

    @property
    def sentence(self) -> str:
        return f"The neural network {self.name}, {f'compiled for {self.cpu}' if self.linked else 'as C99'}"

    def render(self, template: str, **more: object) -> bytes:
        """A template of `aot/templates/packages`."""
        view = {
            "package": self,
            "bundle": self.bundle,
            "name": self.name,
            "NAME": self.name.upper(),
            "version": self.version,
            "aot": VERSION,
        }
        return environment().get_template(f"packages/{template}").render(**view, **more).encode()


def within(folder: str, contents: Mapping[str, bytes]) -> Files:
    """The files in a folder."""
    return {f"{folder}/{name}": content for name, content in contents.items()}
