"""The command line: `aot bundle | init | build | run | verify | profile | report | diff-dump | inspect | check | ops | targets | where | schema |
doctor | completion`.

Enters: arguments. Leaves: an exit code: 0; 1 for what the user can mend (one line on standard error); 70 for a fault of ours (traceback).
Invariant: with --json standard output holds one JSON object and nothing else; progress goes to standard error.
"""

from __future__ import annotations

import difflib
import io
import os
import sys
import traceback

import click

from aot.commands import COMMANDS
from aot.errors import CompileError, one_line
from aot.version import VERSION


class _Group(click.Group):
    """Answers an unknown command with the valid ones and the closest match."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], self.list_commands(ctx), 1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise CompileError(f"unknown command '{args[0]}'", hint=f"{hint}commands: {', '.join(self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(VERSION, prog_name="aot")
def cli() -> None:
    """Ahead-of-time compiler for neural networks: a TFLite model in, an object file and a C header out.

    \b
    Start here:
      aot bundle model.tflite --cpu cortex-m4 -o out/     make out/model.o and out/model.h
      aot verify model.tflite --cpu cortex-m4             check that the bytes are TFLite Micro's
      aot inspect model.tflite                            what is in a model
    """


for command in COMMANDS:
    cli.add_command(command)


def run(arguments: list[str] | None = None) -> int:
    """Run one command line. Returns the exit code; InternalError and other faults of ours propagate."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = cli.main(args=arguments or ["--help"], prog_name="aot", standalone_mode=False)
    except CompileError as error:
        return _fail(str(error))
    except click.ClickException as error:
        return _fail(error.format_message())
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted")
    return code if isinstance(code, int) else 0


def _open_standard_streams() -> None:
    """A caller may have closed any of the three (`aot ops >&-`): the next file opened would then take its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))
    out: object = sys.stdout
    if isinstance(out, io.TextIOWrapper):  # a locale may have no bars, and no letters of a model's names (`LC_ALL=C`)
        out.reconfigure(errors="replace")


def _fail(message: str) -> int:
    print(f"aot: error: {one_line(message)}", file=sys.stderr)
    return 1


def main() -> None:
    """The console script: exits 0, 1 or 70."""
    _open_standard_streams()
    code = 0
    try:
        code = run()
        sys.stdout.flush()
    except BrokenPipeError:  # `aot ops | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:  # standard output on a full disk, no room for temporary files
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = _fail(str(error))
    except MemoryError:
        code = _fail("out of memory")
    except Exception:  # the last frame of the process: whatever arrives here is a fault of ours
        traceback.print_exc()
        print(
            "aot: internal error: this is a fault of aot, not of the model; please report it with the text above", file=sys.stderr
        )
        code = 70
    sys.exit(code)
