"""What the emulator uses of Unicorn. Its constants are many, and asked for by name."""

from typing import Any

class UcError(Exception):
    errno: int

def __getattr__(name: str) -> Any: ...
