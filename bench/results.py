"""bench/results.json: what was measured, as it is committed, and what has become worse since.

Enters: figures. Leaves: the file's content; `Change`s. Invariant: the same figures give the same bytes.

{"models": {MODEL: {CPU: {MODE or CMSIS_NN: figures}}}, "application": {MODEL: {CPU: {MODE: figures}}},
 "layers": {LAYER: {"macs": n, CPU: {MODE or CMSIS_NN: instructions}}}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cmsis_nn_sources import VERSION as CMSIS_NN

HERE = Path(__file__).resolve().parent
RESULTS, BASELINES = HERE / "results.json", HERE / "baselines.json"
TOLERANCE = 0.02
Results = dict[str, dict[str, Any]]

__all__ = ["BASELINES", "CMSIS_NN", "RESULTS", "TOLERANCE", "Change", "Results", "load", "load_baselines", "save"]


def load() -> Results:
    """The committed results; empty where there are none."""
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {"models": {}, "layers": {}}


def load_baselines() -> dict[str, Any]:
    """What others take, with its sources."""
    return json.loads(BASELINES.read_text())


def save(results: Results) -> None:
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


@dataclass(frozen=True)
class Change:
    """A count that was committed, and the one measured now."""

    what: str
    before: int
    now: int

    @property
    def rises(self) -> bool:
        return self.now > self.before * (1 + TOLERANCE)

    @property
    def falls(self) -> bool:
        return self.now < self.before * (1 - TOLERANCE)

    def __str__(self) -> str:
        return f"{self.what}: {self.before} instructions in bench/results.json, {self.now} now ({self.now / self.before - 1:+.1%})"


def change(what: str, before: Mapping[str, int] | int | None, now: Mapping[str, int] | int) -> Change | None:
    """Figures or instructions compared; None where nothing was committed."""
    old = before["instructions"] if isinstance(before, Mapping) else before
    new = now["instructions"] if isinstance(now, Mapping) else now
    return None if old is None else Change(what, old, new)
