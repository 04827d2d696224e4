# pyright: basic
"""The options that several commands share, and how their values are read.

Enters: a click command's function. Leaves: the function with the options, which arrive as the fields of `Request`. `json_schema` of a type
is what project files may say (`aot/project/schema.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import click
from click.shell_completion import CompletionItem

from aot.backends import BACKENDS
from aot.driver import EMIT, MAX_STACK_NBYTES, stage_names
from aot.instrument import KINDS
from aot.lower.tradeoff import OPTIMIZE
from aot.target import target_names


class WholeNumber(click.IntRange):
    """A number without fraction or unit, from `least` on; refused in plain words."""

    def __init__(self, least: int, unit: str = "") -> None:
        super().__init__(least)
        self.what = f"whole number of {unit}" if unit else "whole number"
        self.json_schema: dict[str, Any] = {"type": "integer", "minimum": least}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(f"'{value}' is not a {self.what}.", param, ctx)
        return super().convert(number, param, ctx)


class Size(WholeNumber):
    """Bytes, from `least` on; `16K` and `1M` are multiples of 1024 and of 1024 * 1024."""

    def __init__(self, least: int) -> None:
        super().__init__(least, "bytes")
        self.json_schema = {"type": ["integer", "string"], "minimum": least, "pattern": "^[0-9]+[KMkm]?$"}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"([0-9]+)([KMkm])", str(value))
        scaled = int(found[1]) << (10 if found[2] in "Kk" else 20) if found else value
        return super().convert(scaled, param, ctx)


class Address(click.ParamType):
    """An address: 0x40000024, or a decimal number."""

    name = "address"
    json_schema: ClassVar[dict[str, Any]] = {"type": ["integer", "string"], "minimum": 0, "pattern": "^(0[xX][0-9A-Fa-f]+|[0-9]+)$"}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return int(str(value), 0)
        except ValueError:
            self.fail(f"'{value}' is not an address, such as 0x40000024.", param, ctx)


def _offered(names: Callable[[], Iterable[str]]) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """What a shell offers for an option: names, and files, as an option may take either."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(name) for name in names() if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]

    return complete


def compile_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say what to compile for and how: they arrive as the keyword arguments of `Request`."""
    options = [
        click.argument("models", metavar="MODEL...", nargs=-1, required=True, type=click.Path(path_type=str)),
        click.option(
            "--backend",
            metavar="NAME",
            shell_complete=_offered(lambda: BACKENDS),
            help="cmsis-nn (default for a Cortex-M; without --cpu it means cortex-m4), neon, hifi-ref or generic.",
        ),
        click.option(
            "--cpu",
            metavar="NAME",
            shell_complete=_offered(target_names),
            help="A CPU of `aot targets`, or the path of your own .yaml.",
        ),
        click.option(
            "--target",
            "triple",
            metavar="TRIPLE",
            help="Any LLVM triple instead of --cpu; beside a HiFi, for an object, too.",
        ),
        click.option("--name", metavar="NAME", help="Name of the bundle (default: the model's file name), made a C identifier."),
        click.option(
            "--shape",
            "shapes",
            metavar="NAME=1,96,96,3",
            multiple=True,
            help="Give an input another shape; dynamic dimensions are 1 by default.",
        ),
        click.option(
            "--weights",
            type=click.Choice(["embedded", "separate"]),
            default="embedded",
            help="separate: a file and a pointer of their own.",
        ),
        click.option(
            "--io", type=click.Choice(["caller", "workspace"]), default="caller", help="workspace: inputs and outputs lie in it."
        ),
        click.option(
            "--custom",
            metavar="NAME=C_FUNCTION",
            multiple=True,
            help="A function of the firmware computes the custom operator NAME.",
        ),
        click.option(
            "--optimize",
            type=click.Choice(OPTIMIZE),
            default="balanced",
            help="speed: fewest instructions. size: least flash. ram: smallest workspace. balanced (default): speed while flash stays"
            " small; layers run by rows where that takes hardly more instructions.",
        ),
        click.option(
            "--max-flash",
            metavar="BYTES",
            type=WholeNumber(0, "bytes"),
            help="Choose kernels whose code, weights and tables fit; fail if none do.",
        ),
        click.option(
            "--max-workspace",
            metavar="BYTES",
            type=WholeNumber(0, "bytes"),
            help="Choose kernels whose workspace fits, let layers run by rows if that is what it takes; fail if nothing fits.",
        ),
        click.option(
            "--max-stack",
            metavar="BYTES",
            type=WholeNumber(0, "bytes"),
            default=MAX_STACK_NBYTES,
            show_default=True,
            help="Fail if a function of the bundle may take more stack; for this machine and a Cortex-A only where it is passed.",
        ),
        click.option(
            "--kernels",
            type=click.Choice(["native", "library"]),
            help="library: call CMSIS-NN, or for hifi-ref Cadence's NN library, which the firmware links, where it computes the same"
            " bytes. Default: native; for hifi-ref library.",
        ),
        click.option(
            "--share-workspace", is_flag=True, help="One workspace for all models, which run one after another (default: one each)."
        ),
        click.option(
            "--region",
            "regions",
            metavar="NAME=BYTES",
            multiple=True,
            help="A memory for the workspace, of so many bytes (or 64K, 1M); the fastest first: what is used most lies there.",
        ),
        click.option(
            "--weights-in",
            metavar="REGION",
            help="NAME_load copies weights into a region once, those that are read most, as many as there is room for.",
        ),
        click.option(
            "--stream-input",
            is_flag=True,
            help="The input image comes row by row (NAME_begin, NAME_push_rows, NAME_end), and is stored nowhere as a whole.",
        ),
        click.option(
            "--page-weights",
            metavar="SIZE",
            type=Size(1),
            help="Weights come in pages through a function of the firmware's, at most SIZE bytes (16K, 1M) at once.",
        ),
        click.option(
            "--threads",
            metavar="N",
            type=WholeNumber(1, "threads"),
            default=1,
            show_default=True,
            help="Divide the rows of large layers in N parts, which a function of the caller's may run at once.",
        ),
        click.option(
            "--emit",
            type=click.Choice(EMIT),
            help="c: C99 files for any compiler in the place of an object (back ends generic, hifi-ref); both: beside it."
            " Default: object; c for a CPU that LLVM has no code generator for.",
        ),
        click.option(
            "--instrument",
            type=click.Choice(KINDS),
            help="What entries tell of their layers: hooks: calls of a function of the firmware's; cycles: what each takes; dump: hooks,"
            " and a table of all tensors (docs/instrument.md). Default: nothing, and no code for it.",
        ),
        click.option(
            "--cycle-counter",
            metavar="ADDRESS",
            type=Address(),
            help="With --instrument cycles: a 32-bit counter that counts up, instead of the DWT unit's CYCCNT.",
        ),
        click.option("--pic", is_flag=True, help="Position-independent code."),
        click.option(
            "--no-fuse",
            "fuse",
            is_flag=True,
            flag_value=False,
            default=True,
            help="One loop nest for each operator (for bisecting).",
        ),
        click.option(
            "--no-inplace", "inplace", is_flag=True, flag_value=False, default=True, help="No output over an input (for bisecting)."
        ),
        click.option(
            "--dump-after",
            metavar="PASS",
            multiple=True,
            shell_complete=_offered(lambda: (*stage_names(), "all")),
            help="Print the program after a pass (`all`: after each).",
        ),
        click.option(
            "--stop-after",
            metavar="PASS",
            shell_complete=_offered(stage_names),
            help=f"Stop after a pass. In order: {', '.join(stage_names())}.",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def link_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--link, of the commands that run a bundle: it arrives as `objects`."""
    return click.option(
        "--link",
        "objects",
        metavar="FILE",
        multiple=True,
        help="An object or archive with what the bundle calls (CMSIS-NN, the firmware's functions): linked for the run.",
    )(function)


def model_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--model, of the commands that run a bundle: it arrives as `model_name`."""
    return click.option("--model", "model_name", metavar="NAME", help="Which of several models to run (default: the first).")(
        function
    )


def push_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--push-rows, of the commands that run a bundle."""
    return click.option(
        "--push-rows",
        metavar="N",
        type=WholeNumber(1, "rows"),
        default=1,
        show_default=True,
        help="With --stream-input: rows that are pushed at a time.",
    )(function)
