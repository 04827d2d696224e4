"""`aot doctor`: what is installed, and what it is for."""

from __future__ import annotations

from dataclasses import asdict

import click

from aot.commands.common import print_json
from aot.commands.tables import console, say, table
from aot.doctor import Finding, examine
from aot.errors import one_line
from aot.version import VERSION


@click.command(epilog="\b\nExamples:\n  aot doctor\n  aot doctor --json")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
def doctor(as_json: bool) -> None:
    """List the emulators, compilers and oracles that are installed, and what each is for.

    Nothing of it is needed to make a bundle but llvmlite, which came with aot.
    """
    found = examine()
    if as_json:
        print_json({"aot": VERSION, "tools": [_data(each) for each in found]})
        return
    rows = [(each.tool.kind, each.tool.name, _state(each), each.tool.use, "" if each.found else each.tool.get) for each in found]
    console().print(table(f"aot {VERSION}", ("what", "name", "version", "what for", "how to get it"), rows))
    missing = sum(not each.found for each in found)
    say(f"{missing} missing: commands that need one say so" if missing else "all that aot can use is here")


def _state(finding: Finding) -> str:
    if not finding.found:
        return "missing" if not finding.problem else f"missing: {one_line(finding.problem)}"
    return one_line(f"{finding.version or '?'} ({finding.problem})" if finding.problem else finding.version)


def _data(finding: Finding) -> dict[str, object]:
    tool = asdict(finding.tool)
    kept = {key: tool[key] for key in ("kind", "name", "use", "get")}
    return {**kept, "found": finding.found, "version": finding.version, "where": finding.where, "problem": finding.problem}
