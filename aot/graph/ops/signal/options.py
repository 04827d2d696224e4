"""Options of the signal operators: named numbers from a FlexBuffer map, each checked where it is used.

Enters: the map that the reader gives a custom operator. Leaves: frozen attributes, and numbers inside their ranges, or `site.error`.
Invariant: reading never fails; whatever an option holds that is not a whole number counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aot.graph.ir import Site

INT32_MAX = (1 << 31) - 1


@dataclass(frozen=True)
class Options:
    """Whole numbers by name, sorted (true is 1)."""

    numbers: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return ", ".join(f"{name}={number}" for name, number in self.numbers)

    def get(self, name: str, default: int = 0) -> int:
        return dict(self.numbers).get(name, default)


def read_options(*names: str):
    """The `read` of an operator with these options."""

    def read(options: Mapping[str, object] | None) -> Options:
        found = {name: (options or {}).get(name) for name in names}
        return Options(tuple((name, int(value)) for name, value in sorted(found.items()) if isinstance(value, int)))

    return read


def option(site: Site, name: str, low: int, high: int = INT32_MAX) -> int:
    """A required option, in low..high."""
    found = dict(options_of(site).numbers).get(name)
    if found is None:
        raise site.error(f"its options have no number '{name}'")
    if not low <= found <= high:
        raise site.error(f"its option {name} is {found}, not {low} to {high}")
    return found


def options_of(site: Site) -> Options:
    return site.node.attributes if isinstance(site.node.attributes, Options) else Options(())
