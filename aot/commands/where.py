"""`aot where`: where the files are that other build systems include."""

from __future__ import annotations

from pathlib import Path

import click

_FILES = {"cmake": "cmake", "make": "make/aot.mk"}
"""By build system what it takes, from the package's folder on."""

EXAMPLES = """
\b
Examples:
  cmake -Daot_DIR="$(aot where cmake)" -S . -B build     then find_package(aot) finds aot_add_bundle
  include $(shell aot where make)                        in a Makefile, for aot_bundle
"""


@click.command(epilog=EXAMPLES)
@click.argument("system", metavar="cmake|make", type=click.Choice(list(_FILES)))
def where(system: str) -> None:
    """Print where the CMake package, or the file for make, is.

    See docs/integrations.md for both.
    """
    click.echo(Path(__file__).parent.parent / _FILES[system])
