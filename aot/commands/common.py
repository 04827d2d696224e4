"""What several commands share besides their options: progress, JSON output, arrays from files.

Invariant: everything but results goes to standard error.
"""

from __future__ import annotations

import json
import sys
import time
import zipfile
import zlib
from typing import Any

import numpy as np
from rich.console import Console

from aot.errors import CompileError


class Progress:
    """Says on standard error what is going on, once a command has taken over a second: a spinner, or in a log a line for each task."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.begin = time.monotonic()
        self.status: Any = None
        self.said = ""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.status:
            self.status.stop()
            self.status = None

    def stage(self, task: str, detail: str = "") -> None:
        """What is being done: "compiling", with the pass that is done as a detail that only a terminal shows."""
        if time.monotonic() - self.begin < 1:
            return
        if self.console.is_terminal:
            if self.status is None:
                self.status = self.console.status("")
                self.status.start()
            self.status.update(f"aot: {task} {detail}")
        elif task != self.said:
            print(f"aot: {task} ...", file=sys.stderr)
            self.said = task


def print_json(content: dict[str, Any]) -> None:
    """One JSON object on standard output."""
    print(json.dumps(content))


def load_npz(path: str) -> dict[str, Any]:
    """The arrays of an .npz file. CompileError if it is none; nothing in it is executed (no pickles)."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except OSError as error:
        raise CompileError(f"can't be read: {error.strerror or error}", where=path) from error
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise CompileError("is no .npz file, or a damaged one, or holds Python objects", where=path) from error
