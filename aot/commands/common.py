"""What several commands share besides their options: progress, JSON output.

Invariant: everything but results goes to standard error.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from rich.console import Console


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
