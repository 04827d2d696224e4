# pyright: basic
"""`aot check`: are a bundle's files those that were made, and can they be made again?"""

from __future__ import annotations

import click

from aot.artefacts.checking import Checked, check_files, check_models
from aot.commands.common import Progress, print_json
from aot.commands.tables import console, counted, say, table
from aot.errors import CompileError

EXAMPLES = """
\b
Examples:
  aot check out/                                    every bundle in the folder
  aot check out/model.json --model model.tflite     and compile the model again, which must give the same bytes
"""


@click.command(epilog=EXAMPLES)
@click.argument("where", metavar="FOLDER|NAME.json", type=click.Path(path_type=str))
@click.option(
    "--model",
    "models",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=str),
    help="The model (or each of several) that the bundle was made from: compiled again with the options that NAME.json records.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
def check(where: str, models: tuple[str, ...], as_json: bool) -> int:
    """Compare the files of a bundle with the SHA-256s in NAME.json; with --model, with what the model compiles to as well.

    Exit code 1 if a file is missing or differs. A hash proves that files belong together, not who made them: --model proves that.
    """
    found = check_files(where)
    if models:
        found = _made_again(found, models)
    if as_json:
        print_json({"passed": all(each.passed for each in found), "bundles": [_data(each) for each in found]})
    else:
        for each in found:
            _print(each, bool(models))
    return 0 if all(each.passed for each in found) else 1


def _made_again(found: tuple[Checked, ...], models: tuple[str, ...]) -> tuple[Checked, ...]:
    used: set[str] = set()
    checked = []
    with Progress() as progress:
        for each in found:
            progress.stage("compiling", each.name)
            compared, of_bundle = check_models(each, models)
            checked.append(compared)
            used |= set(of_bundle)
    if unused := [path for path in models if path not in used]:
        raise CompileError("no bundle was made from this model", where=unused[0], hint="the model has changed, or is another's")
    return tuple(checked)


def _data(checked: Checked) -> dict[str, object]:
    files = [{"name": name, "problem": problem} for name, problem in checked.files]
    return {"name": checked.name, "passed": checked.passed, "files": files}


def _print(checked: Checked, again: bool) -> None:
    made_by = ", LLVM ".join(str(checked.description.get(key)) for key in ("aot", "llvm"))
    rows = [(name, problem or "as made") for name, problem in checked.files]
    say(f"{checked.name}: made by aot {made_by}")
    console().print(table("", ("file", "is"), rows))
    wrong = sum(bool(problem) for _, problem in checked.files)
    if wrong:
        say(f"FAIL: {counted(wrong, 'file')} of {len(rows)}")
    else:
        say(f"PASS: {counted(len(rows), 'file')}" + (", byte for byte what the model compiles to" if again else ""))
