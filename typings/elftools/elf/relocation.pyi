from collections.abc import Iterator
from typing import Any

from elftools.elf.sections import Section

class Relocation:
    entry: Any
    def __getitem__(self, name: str) -> Any: ...
    def is_RELA(self) -> bool: ...

class RelocationSection(Section):
    def iter_relocations(self) -> Iterator[Relocation]: ...
