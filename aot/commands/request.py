"""What the compile options asked for, and compiling it.

Enters: parsed arguments. Leaves: `Options`, a Bundle. Invariant: everything but results goes to standard error.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Literal

from aot.bundle import Bundle
from aot.commands.common import Progress
from aot.driver import Emit, Options, compile, stage_names
from aot.errors import CompileError
from aot.glow import Api
from aot.graph.ir import Shape
from aot.instrument import Kind
from aot.lower.lifetime import Io
from aot.lower.tradeoff import Optimize
from aot.names import choose


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
    instrument: Kind | None
    cycle_counter: int | None
    pic: bool
    fuse: bool
    inplace: bool
    dump_after: tuple[str, ...]
    stop_after: str | None
    as_json: bool = False
    api: Api = "native"
    progress: Progress = field(default_factory=Progress)

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
            api=self.api,
            instrument=self.instrument,
            cycle_counter=self.cycle_counter,
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


@contextlib.contextmanager
def stoppable() -> Generator[None]:
    """Ends quietly where --stop-after stops."""
    with contextlib.suppress(Stopped):
        yield
