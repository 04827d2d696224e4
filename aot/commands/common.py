"""What several commands share: the compile options, observers for --dump-after, progress, JSON output.

Enters: parsed arguments. Leaves: a Bundle, printed text. Invariant: everything but results goes to standard error.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import click
import numpy as np
from rich.console import Console

from aot.bundle import Bundle
from aot.driver import EMIT, MAX_STACK_NBYTES, Emit, Options, compile, stage_names
from aot.errors import CompileError
from aot.graph.ir import Shape
from aot.lower.lifetime import Io
from aot.lower.tradeoff import OPTIMIZE, Optimize
from aot.names import choose


class WholeNumber(click.IntRange):
    """A number without fraction or unit, from `least` on; refused in plain words."""

    def __init__(self, least: int, unit: str = "") -> None:
        super().__init__(least)
        self.what = f"whole number of {unit}" if unit else "whole number"

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

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"([0-9]+)([KMkm])", str(value))
        scaled = int(found[1]) << (10 if found[2] in "Kk" else 20) if found else value
        return super().convert(scaled, param, ctx)


def compile_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say what to compile for and how: they arrive as the keyword arguments of `Request`."""
    options = [
        click.argument("models", metavar="MODEL...", nargs=-1, required=True, type=click.Path(path_type=str)),
        click.option(
            "--backend",
            metavar="NAME",
            help="cmsis-nn (default for a Cortex-M; without --cpu it means cortex-m4), neon, hifi-ref or generic.",
        ),
        click.option("--cpu", metavar="NAME", help="A CPU of `aot targets`, or the path of your own .yaml."),
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
        click.option("--dump-after", metavar="PASS", multiple=True, help="Print the program after a pass (`all`: after each)."),
        click.option("--stop-after", metavar="PASS", help=f"Stop after a pass. In order: {', '.join(stage_names())}."),
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


class Stopped(Exception):
    """--stop-after reached its pass."""


@dataclass
class Request:
    """What the compile options asked for. as_json: standard output is for one JSON object, so dumps go to standard error."""

    models: tuple[str, ...]
    backend: str | None
    cpu: str | None
    triple: str | None
    name: str | None
    shapes: tuple[str, ...]
    weights: Literal["embedded", "separate"]
    io: Io
    custom: tuple[str, ...]
    optimize: Optimize
    max_flash: int | None
    kernels: Literal["native", "library"] | None
    max_workspace: int | None
    max_stack: int
    share_workspace: bool
    regions: tuple[str, ...]
    weights_in: str | None
    stream_input: bool
    page_weights: int | None
    threads: int
    emit: Emit | None
    pic: bool
    fuse: bool
    inplace: bool
    dump_after: tuple[str, ...]
    stop_after: str | None
    as_json: bool = False
    progress: Progress = field(default_factory=lambda: Progress())

    def options(self) -> Options:
        return Options(
            target=self.cpu,
            triple=self.triple,
            backend=self.backend,
            name=self.name,
            shapes=dict(map(_shape, self.shapes)),
            weights=self.weights,
            io=self.io,
            custom=_functions(self.custom),
            optimize=self.optimize,
            max_flash_nbytes=self.max_flash,
            kernels=self.kernels,
            max_workspace_nbytes=self.max_workspace,
            max_stack_nbytes=self.max_stack,
            share_workspace=self.share_workspace,
            regions=_regions(self.regions),
            weights_in=self.weights_in,
            stream_input=self.stream_input,
            page_weights_nbytes=self.page_weights,
            threads=self.threads,
            emit=self.emit,
            position_independent=self.pic,
            fuse=self.fuse,
            inplace=self.inplace,
        )

    def bundle(self) -> Bundle:
        """Compile, printing what --dump-after asks for. Raises Stopped after --stop-after's pass."""
        self.require_stages()
        with self.progress:
            return compile(self.models, options=self.options(), observer=self.observe)

    def require_stages(self) -> None:
        """CompileError if --dump-after or --stop-after names no pass."""
        valid = stage_names()
        for name in self.dump_after:
            choose("pass", name, [*valid, "all"], "--help")
        if self.stop_after:
            choose("pass", self.stop_after, valid, "--help")

    def model(self, bundle: Bundle, name: str | None) -> tuple[str, Bundle]:
        """The path and the bundle of the model of this name, or of the first."""
        names = [part.name for part in bundle.parts]
        number = 0 if name is None else names.index(choose("model", name, names))
        return self.models[number], bundle.parts[number]

    def options_of(self, model: Bundle) -> Options:
        """The options for one of several models alone."""
        inputs = {port.label for entry in model.entries for port in entry.inputs}
        options = self.options()
        if len(self.models) == 1:
            return options
        return replace(options, shapes={name: shape for name, shape in options.shapes.items() if name in inputs})

    def observe(self, stage: str, result: object) -> None:
        self.progress.stage("compiling", stage)
        if stage in self.dump_after or "all" in self.dump_after:
            print(f"# after {stage}\n{result}", flush=True, file=sys.stderr if self.as_json else sys.stdout)
        if stage == self.stop_after:
            raise Stopped


def _shape(text: str) -> tuple[str, Shape]:
    """`NAME=1,96,96,3` -> (NAME, (1, 96, 96, 3))."""
    name, separator, dims = text.rpartition("=")
    parts = [part.strip() for part in dims.split(",")]
    if not separator or not name or not all(part.isascii() and part.isdigit() for part in parts):
        raise CompileError(f"--shape '{text}' is not NAME=1,96,96,3")
    return name, tuple(map(int, parts))


def _functions(texts: tuple[str, ...]) -> dict[str, str]:
    """`NAME=c_function`s -> {NAME: c_function}."""
    found: dict[str, str] = {}
    for text in texts:
        name, separator, function = text.rpartition("=")
        if not separator:
            raise CompileError(f"--custom '{text}' is not NAME=c_function")
        if found.setdefault(name, function) != function:
            raise CompileError(f"--custom gives '{name}' two functions, {found[name]} and {function}")
    return found


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}


def _regions(texts: tuple[str, ...]) -> dict[str, int]:
    """`NAME=BYTES`s, `NAME=64K`s, `NAME=1M`s -> {NAME: bytes}."""
    found: dict[str, int] = {}
    for text in texts:
        name, _, size = text.partition("=")
        if (match := re.fullmatch(r"([0-9]+)([KM]?)", size.upper(), re.ASCII)) is None:
            raise CompileError(f"--region '{text}' is not NAME=BYTES", hint="64K and 1M stand for 65536 and 1048576 bytes")
        if name in found:
            raise CompileError(f"--region names '{name}' twice")
        found[name] = int(match[1]) * _UNITS[match[2]]
    return found


class Progress:
    """Says on standard error what is going on, once a command has taken over a second: a spinner, or in a log a line for each task."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.begin = time.monotonic()
        self.status: Any = None
        self.said = ""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.status:
            self.status.stop()
            self.status = None

    def stage(self, task: str, detail: str = "") -> None:
        """What is being done: "compiling", with the pass that is done as a detail that only a terminal shows."""
        if time.monotonic() - self.begin < 1:
            return
        if self.console.is_terminal:
            if self.status is None:
                self.status = self.console.status("")
                self.status.start()
            self.status.update(f"aot: {task} {detail}")
        elif task != self.said:
            print(f"aot: {task} ...", file=sys.stderr)
            self.said = task


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Ends quietly where --stop-after stops."""
    with contextlib.suppress(Stopped):
        yield


def print_json(content: dict[str, Any]) -> None:
    """One JSON object on standard output."""
    print(json.dumps(content))


def load_npz(path: str) -> dict[str, Any]:
    """The arrays of an .npz file. CompileError if it is none; nothing in it is executed (no pickles)."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except OSError as error:
        raise CompileError(f"can't be read: {error.strerror or error}", where=path) from error
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise CompileError("is no .npz file, or a damaged one, or holds Python objects", where=path) from error
