"""What TFLite Micro's arena takes for a model, as PyPI's tflite-micro reports it.

Enters: a model file. Leaves: bytes. Invariant: asked in a process of its own, so that a model which TFLite Micro dies of ends nothing else.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_NBYTES = 64 << 20
_CODE = f"""
import sys
from tflite_micro import runtime
runtime.Interpreter.from_bytes(open(sys.argv[1], "rb").read(), arena_size={_NBYTES}).print_allocations()
"""


class NoArena(Exception):
    """TFLite Micro does not run the model, or is not installed; says why."""


@dataclass(frozen=True)
class Arena:
    """Bytes of the arena. head: of tensors and scratch, planned together; the rest are structs, variables and quantisation parameters."""

    total_nbytes: int
    head_nbytes: int


def arena(path: Path) -> Arena:
    """What TFLite Micro allocates for a model. NoArena if it runs it not."""
    done = subprocess.run([sys.executable, "-c", _CODE, str(path)], capture_output=True, text=True)
    text = done.stdout + done.stderr
    found = [re.search(rf"Arena allocation {part} (\d+) bytes", text) for part in ("total", "head")]
    if found[0] is None or found[1] is None:
        said = [line for line in text.splitlines() if line and not line.startswith((" ", "Traceback"))]
        raise NoArena(" / ".join(said[:2]) or f"it ended with {done.returncode}")
    return Arena(int(found[0][1]), int(found[1][1]))
