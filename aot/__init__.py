"""aot: a TFLite model in, a relocatable object file and a C header out.

    import aot
    bundle = aot.compile("model.tflite", "cortex-m4")
    aot.write(bundle, "out")

The names are loaded when they are first used: importing `aot` alone costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aot.artefacts import write
    from aot.bundle import Bundle
    from aot.driver import Options, compile
    from aot.errors import CompileError, InternalError
    from aot.version import VERSION as __version__

__all__ = ["Bundle", "CompileError", "InternalError", "Options", "__version__", "compile", "write"]

_HOMES = {
    "Bundle": ("aot.bundle", "Bundle"),
    "CompileError": ("aot.errors", "CompileError"),
    "InternalError": ("aot.errors", "InternalError"),
    "Options": ("aot.driver", "Options"),
    "__version__": ("aot.version", "VERSION"),
    "compile": ("aot.driver", "compile"),
    "write": ("aot.artefacts", "write"),
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'aot' has no attribute '{name}'")
    home, attribute = _HOMES[name]
    return getattr(import_module(home), attribute)
