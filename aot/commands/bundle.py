"""`aot bundle`: compile a model and write the artefacts."""

from __future__ import annotations

from typing import Any

import click

from aot import artefacts
from aot.commands.common import print_json
from aot.commands.options import compile_options
from aot.commands.request import Request, stoppable
from aot.commands.tables import print_bundle, print_explanation

EXAMPLES = """
\b
Examples:
  aot bundle model.tflite --cpu cortex-m4 -o out/
  aot bundle model.tflite --backend cmsis-nn --cpu cortex-m33 --weights separate -o out/
  aot bundle model.tflite --backend generic --target riscv32-unknown-elf -o out/
  aot bundle model.tflite --cpu cortex-m4 --explain -o out/
  aot bundle model.tflite --emit c -o out/
  aot bundle wake.tflite speech.tflite --cpu cortex-m4 --share-workspace --name voice -o out/
  aot bundle model.tflite --cpu cortex-m4 --dump-after fuse_epilogues --stop-after fuse_epilogues
"""


@click.command(epilog=EXAMPLES)
@compile_options
@click.option("-o", "--output", metavar="FOLDER", default=".", help="Where the files go (default: here).")
@click.option("--explain", is_flag=True, help="Print for each node its kernel, or why it has none of its own.")
@click.option("--json", "as_json", is_flag=True, help="Print what NAME.json holds, and nothing else.")
def bundle(output: str, explain: bool, as_json: bool, **arguments: Any) -> None:
    """Compile MODEL into NAME.o (with --emit c: NAME.c and NAME_weights.c), NAME.h, NAME.json and CMakeLists.txt.

    Several models become one object with an entry for each, which stores equal weights once.
    """
    request = Request(**arguments, as_json=as_json)
    with stoppable():
        made = request.bundle()
        paths = artefacts.write(made, output)
        if as_json:
            print_json(artefacts.describe_with_files(made))
            return
        if explain:
            print_explanation(made)
        print_bundle(made, paths)
