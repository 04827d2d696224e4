"""`aot init`: write a project file for the models of a folder."""

from __future__ import annotations

from pathlib import Path

import click

from aot.artefacts import write_files
from aot.commands.bundle import bundle
from aot.commands.tables import say
from aot.errors import CompileError
from aot.project import keys_of, reading, schema, schema_of
from aot.project.writing import find_models, project_text

EXAMPLES = """
\b
Examples:
  aot init
  aot init bundles/digits --force
"""


@click.command("init", epilog=EXAMPLES)
@click.argument("folder", metavar="[FOLDER]", default=".", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Write over a bundle.yaml that is there.")
def init(folder: Path, force: bool) -> None:
    """Write bundle.yaml, with a bundle for each .tflite file in FOLDER (default: here) and below, and its schema for editors.

    Hidden folders, and links to folders, are left out. `aot build` then makes the bundles.
    """
    if not folder.is_dir():
        raise CompileError("there is no such folder", where=str(folder))
    if (folder / reading.FILE).exists() and not force:
        raise CompileError("is there already", where=str(folder / reading.FILE), hint="--force writes over it")
    models = find_models(folder)
    if not models:
        raise CompileError("there is no .tflite file in it", where=str(folder), hint="aot init FOLDER, with the models' folder")
    keys = keys_of(bundle)
    contents = {reading.FILE: project_text(models, keys).encode(), schema.FILE: schema.text_of(schema_of(keys)).encode()}
    for path in write_files(contents, folder):
        say(f"wrote {path}")
