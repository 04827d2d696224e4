"""`aot diff-dump`: a dump from the board beside the reference, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from aot.bundle import Bundle, Entry
from aot.commands.common import print_json
from aot.commands.options import compile_options
from aot.commands.request import Request, stoppable
from aot.commands.tables import console, counted, say, table
from aot.dataset import load_dataset
from aot.driver import compile
from aot.dump import Run, TensorDifference, compare, missing_tensors, read_dump
from aot.errors import CompileError, located

EXAMPLES = """
\b
Examples:
  aot diff-dump model.tflite dump.txt --cpu cortex-m4 --inputs golden.npz
"""


@click.command("diff-dump", epilog=EXAMPLES)
@compile_options
@click.argument("dump", metavar="DUMP", type=click.Path(path_type=str))
@click.option(
    "--inputs",
    "inputs_path",
    metavar="DIR|FILE",
    help="What the runs in the dump were given, one sample a run (as --data of aot verify). Default: zeros.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
def diff_dump(dump: str, inputs_path: str | None, as_json: bool, **arguments: Any) -> int:
    """Compare DUMP, which firmware of MODEL's bundle has printed, with what the same program must compute.

    The bundle was made with --instrument dump; the other options must be those that it was made with. Names the first layer that differs.
    The exit code is 0 if nothing does, else 1.
    """
    request = Request(**arguments, as_json=as_json)
    with located(dump):
        runs = read_dump(_text(dump))
    options = replace(request.options(), instrument="dump")
    with stoppable(), request.progress:
        bundle = compile(request.models, options=options, observer=request.observe)
        entry = _entry(bundle, runs, dump)
        state: dict[str, np.ndarray] = {}
        with located(dump):
            found = [compare(entry, run, sample, state) for run, sample in zip(runs, _samples(entry, inputs_path, len(runs)))]
        return _report(entry, runs, found, as_json)
    return 0


def _text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError as error:
        raise CompileError(f"can't be read: {error.strerror}", where=path) from error


def _entry(bundle: Bundle, runs: Sequence[Run], path: str) -> Entry:
    """The one entry that all runs are of."""
    entries = {entry.symbol: entry for entry in bundle.entries}
    names = list(dict.fromkeys(run.entry for run in runs))
    if len(names) > 1:
        raise CompileError(f"the dump is of several functions: {', '.join(names)}", where=path)
    if names[0] not in entries:
        raise CompileError(f"the dump is of {names[0]}, and the bundle has {', '.join(entries)}", where=path, hint="--name")
    return entries[names[0]]


def _samples(entry: Entry, path: str | None, count: int) -> list[Sequence[np.ndarray]]:
    """The inputs of each run."""
    if path is None:
        return [[np.zeros(port.shape, port.dtype.np) for port in entry.inputs]] * count
    given = load_dataset(entry, path).inputs
    if len(given) < count:
        raise CompileError(f"{counted(len(given), 'sample')} for {counted(count, 'run')} in the dump", where=path)
    return list(given[:count])


def _report(entry: Entry, runs: Sequence[Run], found: Sequence[Sequence[TensorDifference]], as_json: bool) -> int:
    every = [(run, one) for run, each in enumerate(found) for one in each]
    wrong = [(run, one) for run, one in every if one.differing]
    missing = missing_tensors(entry, runs)
    passed = bool(every) and not wrong
    if as_json:
        print_json(
            {
                "passed": passed,
                "entry": entry.symbol,
                "runs": len(runs),
                "missing": [entry.tensors[number].label for number in missing],
                "tensors": [{"run": run, **_described(one)} for run, one in every],
            }
        )
        return 0 if passed else 1
    columns = ("run", "layer", "kernel", "operators", "tensor", "count", "differ", "largest difference")
    console().print(table(f"{entry.symbol}: the dump beside the reference", columns, [_row(run, one) for run, one in every]))
    if missing:
        say(f"  not dumped: {counted(len(missing), 'tensor')}, from '{entry.tensors[missing[0]].label}' on")
    if wrong:
        run, one = wrong[0]
        what = f"{one.differing} of {one.elements} elements, by {one.largest:g} at most, {one.first}"
        say(f"  first layer that differs, in run {run}: {_layer(one)}, tensor '{one.tensor.label}': {what}")
    say(f"PASS: {counted(len(every), 'tensor')}, all the same" if passed else "FAIL")
    return 0 if passed else 1


def _layer(one: TensorDifference) -> str:
    nodes = ", ".join(map(str, one.layer.nodes))
    return f"layer {one.tensor.layer} ({one.layer.kernel}, node {nodes} {'+'.join(one.layer.operators)})"


def _row(run: int, one: TensorDifference) -> tuple[object, ...]:
    layer = one.tensor.layer, one.layer.kernel, "+".join(one.layer.operators), one.tensor.label
    return run, *layer, one.elements, one.differing, f"{one.largest:g}"


def _described(one: TensorDifference) -> dict[str, Any]:
    return {
        "layer": one.tensor.layer,
        "kernel": one.layer.kernel,
        "operators": list(one.layer.operators),
        "tensor": one.tensor.label,
        "elements": one.elements,
        "differing": one.differing,
        "largest": one.largest if math.isfinite(one.largest) else None,
    }
