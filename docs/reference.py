"""docs/cli.md and docs/targets.md: the command line, and the CPUs, as the program itself has them.

Enters: click's commands; `aot/targets/*.yaml`. Leaves: the text of the one and what the other lists.
Invariant: no sentence of `--help` or of a YAML file is written twice.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from dataclasses import dataclass

import click

from aot.backends import BACKENDS
from aot.commands import COMMANDS
from aot.driver import Options, resolve_target
from aot.target import Target, load_target, target_names

PLACES = {"unicorn": "Unicorn", "qemu": "QEMU", "renode": "Renode"}
_HEAD = """# Command line

This page is made by `make docs` from the commands themselves; `aot COMMAND --help` prints the same. What the user can mend ends with one line
on standard error and exit code 1, a fault of aot's with a traceback and exit code 70. With `--json` standard output holds one JSON object
and nothing else.

| command | what it does |
|---|---|
"""


_SHARED = """
## Options of compiling

Of {commands}.

"""
_REMARK = re.compile(r" {3,}(\S.*)$")
LEAST_SHARING = 3
"""Options that so many commands have stand in the page once."""


def cli_page() -> str:
    """The text of docs/cli.md."""
    index = [f"| [`aot {each.name}`](#aot-{each.name}) | {_cell(_summary(each))} |" for each in COMMANDS]
    shared = _shared()
    users = ", ".join(f"`{each.name}`" for each in COMMANDS if shared <= set(_options(each)))
    common = "\n".join(text for text in _options(COMMANDS[0]) if text in shared)
    sections = "".join(_section(command, shared) for command in COMMANDS)
    return f"{_HEAD}" + "\n".join(index) + "\n" + sections + _SHARED.format(commands=users) + common + "\n"


def _shared() -> frozenset[str]:
    """The options of compiling: those of the first command that several others have in the same words."""
    counts = Counter(text for command in COMMANDS for text in _options(command))
    return frozenset(text for text in _options(COMMANDS[0]) if counts[text] >= LEAST_SHARING)


def _options(command: click.Command) -> list[str]:
    return [_option(each) for each in command.params if isinstance(each, click.Option) and not each.hidden]


def _summary(command: click.Command) -> str:
    return _paragraphs(command.help or "")[0]


def _paragraphs(text: str) -> list[str]:
    """Click's help, a line a paragraph, but what it says to print as it is."""
    found = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        literal = paragraph.startswith("\b")
        body = paragraph.removeprefix("\b").strip("\n")
        found.append(_fence(body) if literal else _escaped(" ".join(body.split())))
    return found


def _section(command: click.Command, shared: frozenset[str]) -> str:
    context = click.Context(command, info_name=f"aot {command.name}")
    usage = " ".join(command.collect_usage_pieces(context))
    options = [text for text in _options(command) if text not in shared]
    if len(options) < len(_options(command)):
        options.append("- and the [options of compiling](#options-of-compiling)")
    examples = [
        _REMARK.sub(r"  # \1", line.strip()) for line in (command.epilog or "").splitlines() if line.strip().startswith("aot ")
    ]
    parts = [f"\n## aot {command.name}", _fence(f"usage: aot {command.name} {usage}"), *_paragraphs(command.help or "")]
    return (
        "\n\n".join((*parts, *filter(None, ["\n".join(options)]), *([_fence("\n".join(examples), "sh")] if examples else ())))
        + "\n"
    )


def _option(option: click.Option) -> str:
    """`- `--name VALUE`: help`; the default where click would print one."""
    value = "" if option.is_flag or option.count else f" {_value(option)}"
    names = ", ".join(f"`{name}{value}`" for name in (*option.opts, *option.secondary_opts))
    default = f" Default: {option.default}." if option.show_default and option.default not in (None, ()) else ""
    return f"- {names}: {_escaped(' '.join((option.help or '').split()))}{default}"


def _value(option: click.Option) -> str:
    if option.metavar:
        return option.metavar
    return f"[{'|'.join(option.type.choices)}]" if isinstance(option.type, click.Choice) else option.type.name.upper()


def _fence(text: str, mark: str = "text") -> str:
    return f"```{mark}\n{text}\n```"


def _escaped(text: str) -> str:
    """Without what Markdown would take for HTML or emphasis; pages are links."""
    plain = re.sub(r"<(?=\w)", "&lt;", text.replace("*", "\\*"))
    return re.sub(r"\bdocs/(\w+\.md)", r"[\1](\1)", plain)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


@dataclass(frozen=True)
class Row:
    """A CPU of docs/targets.md."""

    name: str
    summary: str
    triple: str
    has: tuple[str, ...]
    places: tuple[str, ...]


def target_rows() -> dict[str, tuple[Row, ...]]:
    """The CPUs by the back end that compiles for them where none is named, in the order of the back ends."""
    found: dict[str, list[Row]] = {name: [] for name in BACKENDS}
    for name in sorted(target_names(), key=_by_number):
        target = load_target(name)
        _, backend = resolve_target(Options(target=name))
        found[backend.name].append(Row(name, target.summary, target.triple, tuple(sorted(target.has)), places(target)))
    return {backend: tuple(rows) for backend, rows in found.items() if rows}


def _by_number(name: str) -> list[tuple[bool, int, str]]:
    """M7 before M33."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", name)]


def places(target: Target) -> tuple[str, ...]:
    """Where code for it runs: as YAML says, a board of QEMU's or a Linux process."""
    return tuple(
        f"{PLACES[name]} (`{how.get('machine') or how.get('program')}`)" if name == "qemu" else PLACES[name]
        for name, how in target.run.items()
    )
