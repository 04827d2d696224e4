"""The keys of a bundle in a project file: the options of `aot bundle`, by their long names.

Enters: click's command. Leaves: a `Key` for each option that says what to make. Invariant: what a value may be, click's type says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

_OF_A_RUN = frozenset({"explain", "as_json", "dump_after", "stop_after"})
"""Options that say what one run of the command prints, and nothing of what it makes."""
TARGET_FILES = (".yaml", ".yml")


@dataclass(frozen=True)
class Key:
    """An option of the command line as a key."""

    name: str
    option: click.Option

    @property
    def switch(self) -> bool:
        """Whether its value is true or false."""
        return self.option.is_flag

    @property
    def many(self) -> bool:
        """Whether it may have a list of values."""
        return self.option.multiple

    @property
    def pairs(self) -> bool:
        """Whether its values are NAME=VALUE, which may also be a mapping."""
        return self.many and "=" in (self.option.metavar or "")

    @property
    def numeric(self) -> bool:
        """Whether a number may be its value."""
        return "integer" in str(self.value_schema().get("type", ""))

    @property
    def summary(self) -> str:
        return " ".join((self.option.help or "").split())

    @property
    def form(self) -> str:
        """What a value looks like."""
        if self.switch:
            return "true | false"
        kind = self.option.type
        return " | ".join(map(str, kind.choices)) if isinstance(kind, click.Choice) else self.option.metavar or kind.name.upper()

    def value_schema(self) -> dict[str, Any]:
        """JSON Schema of one value."""
        kind = self.option.type
        if isinstance(kind, click.Choice):
            return {"enum": [str(each) for each in kind.choices]}
        return dict(getattr(kind, "json_schema", {"type": "string", "minLength": 1}))

    def check(self, text: str) -> None:
        """click.BadParameter unless the option takes this value."""
        self.option.type.convert(text, self.option, None)

    def arguments(self, values: Sequence[str]) -> tuple[str, ...]:
        """The values on a command line."""
        return tuple(f"--{self.name}={value}" for value in values)

    def files(self, values: Sequence[str]) -> tuple[str, ...]:
        """Those of the values that name files which are read."""
        if self.name == "cpu":
            return tuple(value for value in values if value.endswith(TARGET_FILES))
        return tuple(values) if (self.option.metavar or "").startswith("FILE") else ()


def keys_of(command: click.Command) -> dict[str, Key]:
    """The keys by name, in the order of `--help`."""
    found: dict[str, Key] = {}
    for option in command.params:
        if isinstance(option, click.Option) and option.name not in _OF_A_RUN:
            name = max(option.opts, key=len).removeprefix("--")
            found[name] = Key(name, option)
    return found
