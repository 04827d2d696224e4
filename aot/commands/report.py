"""`aot report`: compile a model, print what its bundle takes, where, and what could be better."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from aot.artefacts import write_files
from aot.commands.common import print_json
from aot.commands.options import compile_options
from aot.commands.report_tables import print_report
from aot.commands.request import Request, stoppable
from aot.commands.tables import say
from aot.report import html, report

EXAMPLES = """
\b
Examples:
  aot report model.tflite --cpu cortex-m4
  aot report model.tflite --cpu cortex-m4 --html report.html
  aot report model.tflite --cpu cortex-m4 --json > report.json
"""


@click.command("report", epilog=EXAMPLES)
@compile_options
@click.option("--html", "path", metavar="FILE", help="Write the report as a page, too.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the report as one JSON object (aot/report/schema.json), and nothing else."
)
def report_command(path: str | None, as_json: bool, **arguments: Any) -> None:
    """Print what MODEL's bundle takes of memory, flash and time, and what could be better.

    The same as NAME.report.html of `aot bundle`. `aot profile --report` makes one in which layers are counted.
    """
    request = Request(**arguments, as_json=as_json)
    with stoppable():
        made = report(request.bundle())
        paths = () if path is None else write_files({Path(path).name: html(made).encode()}, Path(path).parent)
        if as_json:
            print_json(made)
            return
        print_report(made)
        for written in paths:
            say(f"wrote {written}")
