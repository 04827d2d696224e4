"""The accessors that are made from TFLite's schema: hundreds of classes and functions, asked for by name."""

from typing import Any

def __getattr__(name: str) -> Any: ...
