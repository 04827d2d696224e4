# pyright: basic
"""`aot build`: make the bundles of a project file, those of which something changed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from aot.commands.bundle import bundle, make
from aot.commands.common import Progress, print_json
from aot.commands.options import WholeNumber
from aot.commands.request import Request
from aot.commands.tables import console, counted, table
from aot.errors import CompileError
from aot.names import choose
from aot.project import Failed, Outcome, Product, Project, keys_of, read
from aot.project import build as build_project
from aot.project.reading import FILE, Item

EXAMPLES = """
\b
Examples:
  aot init                                    bundle.yaml, to begin with
  aot build
  aot build bundle.yaml --jobs 2
  aot build --only digits --force
"""


class _Silent(Progress):
    """Says nothing: several bundles are made at once, and the project says how many are done."""

    def stage(self, task: str, detail: str = "") -> None:
        pass


@click.command("build", epilog=EXAMPLES)
@click.argument("path", metavar="[FILE]", default=FILE, type=click.Path(path_type=Path))
@click.option("--only", "names", metavar="NAME", multiple=True, help="Make this bundle alone; may be repeated.")
@click.option(
    "--jobs",
    metavar="N",
    type=WholeNumber(1, "processes"),
    help="So many bundles at once (default: as many as this machine has cores).",
)
@click.option("--force", is_flag=True, help="Also make bundles of which nothing changed.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as one JSON object, and nothing else.")
def build_command(path: Path, names: tuple[str, ...], jobs: int | None, force: bool, as_json: bool) -> int:
    """Make the bundles that FILE names (default: bundle.yaml), several at once, and only what changed.

    A bundle is made again if a model, an option, another file that it is made of, or aot itself changed, or if one of its files is not
    as it was left. See docs/project.md.
    """
    project = read(path, keys_of(bundle))
    items = _chosen(project, names)
    left = len(items)

    def done(item: Item) -> None:
        nonlocal left
        left -= 1
        progress.stage("building", f"{left} to do")

    with Progress() as progress:
        outcomes = build_project(project, items, _make, min(jobs or os.cpu_count() or 1, len(items)), force, done)
    if as_json:
        print_json({"schema": 1, "bundles": [_described(outcome) for outcome in outcomes]})
    else:
        _print(project, outcomes)
    failed = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    for outcome in failed:
        print(f"aot: error: {outcome.error}", file=sys.stderr)
    return 1 if failed else 0


def _chosen(project: Project, names: Sequence[str]) -> tuple[Item, ...]:
    known = {item.name: item for item in project.items}
    wanted = {choose("bundle", name, known) for name in names}
    return tuple(item for item in project.items if not names or item.name in wanted)


def _make(folder: Path, arguments: tuple[str, ...]) -> Product:
    """`aot bundle` with these arguments in this folder, in a process that is for nothing else. CompileError for what it refuses."""
    os.chdir(folder)
    try:
        given = bundle.make_context("bundle", list(arguments)).params
    except click.ClickException as error:
        raise CompileError(error.format_message()) from error
    of_make = {name: given.pop(name) for name in ("output", "kinds", "package_version", "sample_path", "with_report")}
    del given["explain"]
    made, paths = make(Request(**given, progress=_Silent()), **of_make)
    pages_nbytes = 0 if made.pages is None else len(made.pages)
    flash_nbytes = None if made.is_c else made.code_nbytes + made.weights_nbytes + pages_nbytes
    return Product(tuple(path.absolute() for path in paths), flash_nbytes, made.workspace_nbytes)


def _state(outcome: Outcome) -> str:
    if isinstance(outcome, Failed):
        return "failed"
    return "made" if outcome.why else "unchanged"


def _described(outcome: Outcome) -> dict[str, Any]:
    item = outcome.item
    told = {"name": item.name, "line": item.line, "output": item.output, "state": _state(outcome)}
    if isinstance(outcome, Failed):
        return {**told, "error": str(outcome.error)}
    return {**told, "why": outcome.why, "flash_bytes": outcome.flash_nbytes, "workspace_bytes": outcome.workspace_nbytes}


def _print(project: Project, outcomes: Sequence[Outcome]) -> None:
    rows = []
    for outcome in outcomes:
        figures = ("", "") if isinstance(outcome, Failed) else (_figure(outcome.flash_nbytes), outcome.workspace_nbytes)
        why = "see below" if isinstance(outcome, Failed) else outcome.why
        rows.append((outcome.item.name, outcome.item.output, *figures, _state(outcome), why))
    columns = ("bundle", "folder", "flash bytes", "workspace bytes", "state", "why")
    console().print(table(f"{project.path}: {counted(len(rows), 'bundle')}", columns, rows))


def _figure(nbytes: int | None) -> object:
    return "not known of C" if nbytes is None else nbytes
