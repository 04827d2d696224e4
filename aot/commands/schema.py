"""`aot schema`: the JSON Schema of project files."""

from __future__ import annotations

import click

from aot.commands.bundle import bundle
from aot.project import keys_of, schema_of
from aot.project.schema import text_of

EXAMPLES = """
\b
Examples:
  aot schema > bundle.schema.json
"""


@click.command("schema", epilog=EXAMPLES)
def schema_command() -> None:
    """Print the JSON Schema of project files (bundle.yaml), for editors.

    `aot init` writes it beside the file, whose first line names it.
    """
    click.echo(text_of(schema_of(keys_of(bundle))), nl=False)
