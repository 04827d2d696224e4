"""The report of a bundle: what it takes of memory, flash and time, where, and what could be better; as HTML, in the terminal, as JSON.

Enters: a Bundle, and a Profile where its layers were counted. Leaves: `report` (a dictionary that is JSON, `schema.json`), `html` of it.
Invariant: every figure is one of `describe(bundle)`, of the plan, of the object or of the profile; the three forms print the same dictionary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aot.report.content import SCHEMA, report
from aot.report.html import html

if TYPE_CHECKING:
    from aot.bundle import Bundle
    from aot.profile import Profile

__all__ = ["SCHEMA", "html", "page", "report"]


def page(bundle: Bundle, profile: Profile | None = None) -> dict[str, bytes]:
    """NAME.report.html, by its name."""
    return {f"{bundle.name}.report.html": html(report(bundle, profile)).encode()}
