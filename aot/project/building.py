# pyright: basic
"""Makes the bundles of a project, several at once, and only those of which something changed.

Enters: a Project, and the function that makes one bundle. Leaves: an outcome for each, in the file's order.
Invariant: each bundle is made in a process of its own: whatever one does, the others are made.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from aot.errors import CompileError
from aot.project import record
from aot.project.reading import Item, Project


@dataclass(frozen=True)
class Product:
    """What making a bundle left. paths: its files. flash_nbytes: None where it is not known, as of C."""

    paths: tuple[Path, ...]
    flash_nbytes: int | None
    workspace_nbytes: int


@dataclass(frozen=True)
class Made:
    """A bundle as wanted. why: what it was made for; "" if it was there already."""

    item: Item
    why: str
    flash_nbytes: int | None
    workspace_nbytes: int


@dataclass(frozen=True)
class Failed:
    """A bundle that could not be made, and the error, which names file and line."""

    item: Item
    error: CompileError


Outcome = Made | Failed
Make = Callable[[Path, tuple[str, ...]], Product]
"""Makes a bundle in the project's folder from the arguments of `aot bundle`; a function of a module, as processes import it."""


def build(
    project: Project, items: Sequence[Item], make: Make, jobs: int, force: bool, done: Callable[[Item], None]
) -> tuple[Outcome, ...]:
    """Make these bundles, `jobs` at once. force: also those that are as wanted. done: is told each when it is.

    A fault of ours in one of them is raised when all others are done.
    """
    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(_outcome, project, item, make, force): item for item in items}
        try:
            for future in as_completed(futures):
                done(futures[future])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return tuple(_results(futures))


def _results(futures: dict[Future[Outcome], Item]) -> Iterator[Outcome]:
    for future in futures:
        yield future.result()


def _outcome(project: Project, item: Item, make: Make, force: bool) -> Outcome:
    try:
        return _made(project, item, make, force)
    except CompileError as error:
        where = f"{project.path}:{item.line_of(str(error))}: bundle '{item.name}'"
        return Failed(item, error if error.where.startswith(f"{project.path}:") else error.at(where))


def _made(project: Project, item: Item, make: Make, force: bool) -> Made:
    folder = project.folder / item.output
    inputs = record.inputs_of(item.arguments, _files(project, item))
    before = record.load(folder)
    why = record.why_stale(before, inputs, folder) or ("forced" if force else "")
    if before is not None and not why:
        return Made(item, "", before.flash_nbytes, before.workspace_nbytes)
    product = _apart(make, project.folder.absolute(), item.arguments)
    outputs = {Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix(): record.sha256(path) for path in product.paths}
    record.store(record.Record(inputs, outputs, product.flash_nbytes, product.workspace_nbytes), folder)
    return Made(item, why, product.flash_nbytes, product.workspace_nbytes)


def _files(project: Project, item: Item) -> dict[str, Path]:
    """The files that a bundle is made of, by the names that the project has for them. CompileError, with the line, without one."""
    found = {}
    for name, line in item.files.items():
        found[name] = project.folder / name
        try:
            with found[name].open("rb"):
                pass
        except OSError as error:
            raise CompileError(
                f"can't read {name}: {error.strerror}", where=f"{project.path}:{line}: bundle '{item.name}'"
            ) from error
    return found


def _apart(make: Make, folder: Path, arguments: tuple[str, ...]) -> Product:
    """`make`, in a process of its own, which starts afresh. CompileError if it ends without an answer."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=_interruptible) as process:
        try:
            return process.submit(make, folder, arguments).result()
        except BrokenProcessPool as error:
            raise CompileError(
                "the process that compiled it was ended", hint="is there enough memory? --jobs 1 takes less"
            ) from error


def _interruptible() -> None:
    """Ends the process quietly on Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
