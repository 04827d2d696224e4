"""`aot ops` and `aot targets`: what is supported."""

from __future__ import annotations

import sys

import click

from aot.commands.common import print_json
from aot.commands.tables import console, say, table
from aot.graph.ops import OPERATORS
from aot.names import choose
from aot.target import load_target, target_names


@click.command(epilog="\b\nExamples:\n  aot ops\n  aot ops CONV_2D\n  aot ops --json")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def ops(name: str | None, as_json: bool) -> None:
    """List the operators that can be compiled."""
    names = sorted(OPERATORS) if name is None else [choose("operator", name.upper(), OPERATORS)]
    if as_json:
        print_json({"operators": [{"name": each, "family": _family(each)} for each in names]})
        return
    console().print(table(f"{len(names)} operators", ("operator", "family"), [(each, _family(each)) for each in names]))


def _family(name: str) -> str:
    """What the operator's family takes: the first line of its file."""
    module = sys.modules[OPERATORS[name].lower.__module__]
    return (module.__doc__ or "").strip().partition("\n")[0]


@click.command(epilog="\b\nExamples:\n  aot targets\n  aot targets --json")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def targets(as_json: bool) -> None:
    """List the CPUs that have a name; any LLVM triple works with --target, and a YAML file of your own with --cpu."""
    known = [load_target(name) for name in target_names()]
    if as_json:
        print_json(
            {"targets": [{"name": t.name, "triple": t.triple, "has": sorted(t.has), "runs_on": sorted(t.run)} for t in known]}
        )
        return
    rows = [(t.name, t.triple, " ".join(sorted(t.has)), " ".join(sorted(t.run)), t.summary) for t in known]
    console().print(table(f"{len(rows)} CPUs", ("cpu", "triple", "has", "runs on", "summary"), rows))
    say("without --cpu or --target: this machine")
