"""`aot bundle`: compile a model and write the artefacts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from aot import artefacts
from aot.arrays import load_npz
from aot.bundle import Bundle
from aot.commands.common import print_json
from aot.commands.options import compile_options
from aot.commands.request import Request, stoppable
from aot.commands.tables import print_bundle, print_explanation
from aot.glow import APIS, Api
from aot.integrations import KINDS, Package, package_files
from aot.report import page
from aot.samples import class_of, input_arrays

EXAMPLES = """
\b
Examples:
  aot bundle model.tflite --cpu cortex-m4 -o out/
  aot bundle model.tflite --backend cmsis-nn --cpu cortex-m33 --weights separate -o out/
  aot bundle model.tflite --backend generic --target riscv32-unknown-elf -o out/
  aot bundle model.tflite --cpu cortex-m4 --explain -o out/
  aot bundle model.tflite --emit c -o out/
  aot bundle model.tflite --cpu cortex-m4 --package zephyr --package arduino --sample golden.npz -o out/
  aot bundle wake.tflite speech.tflite --cpu cortex-m4 --share-workspace --name voice -o out/
  aot bundle model.tflite --cpu cortex-m4 --dump-after fuse_epilogues --stop-after fuse_epilogues
"""


@click.command(epilog=EXAMPLES)
@compile_options
@click.option("-o", "--output", metavar="FOLDER", default=".", help="Where the files go (default: here).")
@click.option(
    "--package",
    "kinds",
    type=click.Choice(list(KINDS)),
    multiple=True,
    help="Also make a package of this kind, in the folder NAME-KIND of its own; may be repeated (docs/integrations.md).",
)
@click.option(
    "--api",
    type=click.Choice(APIS),
    default="native",
    help="glow, glow-dynamic: the interface of Glow's bundles, static or with a NAME_config (docs/glow.md).",
)
@click.option("--package-version", metavar="X.Y.Z", default="1.0.0", show_default=True, help="The packages' version.")
@click.option(
    "--sample",
    "sample_path",
    metavar="FILE.npz",
    help="What the packages' sample runs on (in0, in1, ... or a golden file). Default: zeros.",
)
@click.option("--explain", is_flag=True, help="Print for each node its kernel, or why it has none of its own.")
@click.option("--no-report", "with_report", is_flag=True, flag_value=False, default=True, help="Leave NAME.report.html out.")
@click.option("--json", "as_json", is_flag=True, help="Print what NAME.json holds, and nothing else.")
def bundle(
    output: str,
    kinds: tuple[str, ...],
    api: Api,
    package_version: str,
    sample_path: str | None,
    explain: bool,
    with_report: bool,
    as_json: bool,
    **arguments: Any,
) -> None:
    """Compile MODEL into NAME.o (with --emit c: NAME.c and NAME_weights.c), NAME.h, NAME.json, CMakeLists.txt and NAME.report.html.

    Several models become one object with an entry for each, which stores equal weights once.
    """
    request = Request(**arguments, as_json=as_json, api=api)
    with stoppable():
        made, paths = make(request, output, kinds, package_version, sample_path, with_report)
        if as_json:
            print_json(artefacts.describe_with_files(made))
            return
        if explain:
            print_explanation(made)
        print_bundle(made, paths)


def make(
    request: Request, output: str, kinds: tuple[str, ...], package_version: str, sample_path: str | None, with_report: bool
) -> tuple[Bundle, tuple[Path, ...]]:
    """Compile, and write what the options ask for. Returns the paths of the files, too."""
    sample = None if sample_path is None else load_npz(sample_path)
    made = request.bundle()
    packages = package_files(_package(made, package_version, sample, sample_path or ""), kinds) if kinds else {}
    return made, artefacts.write(made, output, packages | (page(made) if with_report else {}))


def _package(bundle: Bundle, version: str, sample: dict[str, Any] | None, where: str) -> Package:
    """What is packed. CompileError if the sample's arrays are not the model's."""
    if sample is None:
        return Package(bundle, version)
    return Package(bundle, version, input_arrays(bundle.main, sample, where), class_of(bundle.main, sample, where))
