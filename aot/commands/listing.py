"""`aot ops` and `aot targets`: what is supported."""

from __future__ import annotations

import click

from aot.commands.common import print_json
from aot.commands.tables import console, counted, say, table
from aot.graph.operator import Operator
from aot.graph.ops import OPERATORS
from aot.graph.support import ORACLES
from aot.names import choose
from aot.target import load_target, target_names


@click.command(epilog="\b\nExamples:\n  aot ops\n  aot ops CONV_2D\n  aot ops --json")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def ops(name: str | None, as_json: bool) -> None:
    """List the operators that can be compiled, with their types.

    A type stands under the implementation whose results ours equal, or under "alone" where nobody else has it. Names are TFLite's.
    """
    names = sorted(OPERATORS) if name is None else [_named(name)]
    if as_json:
        print_json({"operators": [_data(OPERATORS[each]) for each in names]})
        return
    rows = [(each, *(_types(OPERATORS[each], oracle) for oracle in ORACLES)) for each in names]
    console().print(table(counted(len(names), "operator"), ("operator", *(_HEADINGS[oracle] for oracle in ORACLES)), rows))
    if name is not None:
        for each in OPERATORS[names[0]].support:
            if each.note:
                say(f"{', '.join(each.types)}: {each.note}")
        say(OPERATORS[names[0]].notes)


def _named(name: str) -> str:
    """The operator that is called so, in capitals or not."""
    by_capitals = {each.upper(): each for each in OPERATORS}
    return by_capitals.get(name.upper()) or choose("operator", name, OPERATORS, "`aot ops`")


_HEADINGS = {"TFLite Micro": "types as TFLite Micro", "LiteRT": "as LiteRT", "numpy": "alone"}


def _data(operator: Operator) -> dict[str, object]:
    """What an operator says of itself, for JSON."""
    support = [{"types": list(each.types), "oracle": each.oracle, "note": each.note} for each in operator.support]
    return {"name": operator.name, "support": support, "notes": operator.notes}


def _types(operator: Operator, oracle: str) -> str:
    return ", ".join(kind for each in operator.support if each.oracle == oracle for kind in each.types)


@click.command(epilog="\b\nExamples:\n  aot targets\n  aot targets --json")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def targets(as_json: bool) -> None:
    """List the CPUs that have a name.

    Any LLVM triple works with --target, and a YAML file of your own with --cpu.
    """
    known = [load_target(name) for name in target_names()]
    if as_json:
        print_json(
            {"targets": [{"name": t.name, "triple": t.triple, "has": sorted(t.has), "runs_on": sorted(t.run)} for t in known]}
        )
        return
    rows = [(t.name, t.triple, " ".join(sorted(t.has)), " ".join(sorted(t.run)), t.summary) for t in known]
    console().print(table(f"{len(rows)} CPUs", ("cpu", "triple", "has", "runs on", "summary"), rows))
    say("without --cpu or --target: this machine")
