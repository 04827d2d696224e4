"""`make bench`: measure everything, or a part of it, then write bench/results.json, docs/benchmarks.md and its plot;
then the workspaces (`bench/workspaces.py`).

    python -m bench [--cpu CPU ...] [--model MODEL ...] [--no-layers] [--no-workspaces] [--jobs N] [--dry-run] [--page]

Enters: the real models beside the repository. Leaves: the three files, and a table on standard output.
Invariant: what is not measured keeps its committed figures; the order of the work doesn't matter.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from functools import partial

from rich.console import Console
from rich.table import Table

from aot.graph.ir import DType
from aot.target import load_target
from bench import page, workspaces
from bench.layers import LAYERS, cmsis_nn_instructions, our_instructions
from bench.library import library_figures
from bench.measure import CPUS, MODES, Figures, model_figures, model_path
from bench.results import CMSIS_NN, Change, Results, change, load, load_baselines, save
from tests.cmsis_nn_sources import Unavailable, cmsis_nn
from tests.shared import FIVE

_LONGEST = ("IC", "VWW", "PD", "KWS", "AD")  # begun first, so that no process is left alone with one at the end


def layer_counts(index: int, cpu: str, library: bool) -> dict[str, int]:
    """Instructions of a layer in the first two modes, and of CMSIS-NN's function for it."""
    layer = LAYERS[index]
    found, output = our_instructions(layer, cpu, MODES[:2])
    if library and layer.dtype is DType.INT8:
        found[CMSIS_NN] = cmsis_nn_instructions(layer, cpu, output)
    return found


def measure(results: Results, cpus: list[str], models: list[str], layers: bool, jobs: int) -> list[Change]:
    """Measure and put it into the results. Returns what has changed."""
    libraries = {cpu: _has_library(cpu) for cpu in cpus}
    changes: list[Change | None] = []
    with ProcessPoolExecutor(jobs) as pool:
        work: dict[Future, Callable[..., list[Change | None]]] = {}
        for name in sorted(models, key=_LONGEST.index):
            for cpu in cpus:
                if libraries[cpu]:
                    work[pool.submit(library_figures, name, cpu)] = partial(_put_library, name, cpu)
                work[pool.submit(model_figures, name, cpu)] = partial(_put_model, name, cpu)
        for cpu in cpus if layers else ():
            for index in range(len(LAYERS)):
                work[pool.submit(layer_counts, index, cpu, libraries[cpu])] = partial(_put_layer, index, cpu)
        for number, future in enumerate(as_completed(work), 1):
            changes += work[future](results, future.result())
            _progress(number, len(work))
    return sorted((each for each in changes if each is not None), key=lambda each: each.what)


def _put_model(name: str, cpu: str, results: Results, found: Mapping[str, Figures]) -> list[Change | None]:
    place = results["models"].setdefault(name, {}).setdefault(cpu, {})
    changed = [change(f"{name}, {cpu}, {mode}", place.get(mode), figures) for mode, figures in found.items()]
    place.update(found)
    return changed


def _put_library(name: str, cpu: str, results: Results, found: Figures | None) -> list[Change | None]:
    return [] if found is None else _put_model(name, cpu, results, {CMSIS_NN: found})


def _put_layer(index: int, cpu: str, results: Results, found: dict[str, int]) -> list[Change | None]:
    layer = LAYERS[index]
    place = results["layers"].setdefault(layer.name, {"macs": layer.macs})
    counts = place.setdefault(cpu, {})
    changed = [change(f"{layer.name}, {cpu}, {mode}", counts.get(mode), count) for mode, count in found.items()]
    counts |= found
    return changed


def _has_library(cpu: str) -> bool:
    """Whether CMSIS-NN can be had; it is made here, so that the processes find it made."""
    try:
        cmsis_nn(load_target(cpu))
    except Unavailable as reason:
        print(f"bench: {cpu}: CMSIS-NN's kernels keep their committed counts: {reason}", file=sys.stderr)
        return False
    return True


def _progress(number: int, count: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{number} of {count} ", end="" if number < count else "\n", file=sys.stderr)


def print_table(results: Results) -> None:
    """Instructions per MAC of the models, a line for each CPU and mode, beside TFLite Micro with CMSIS-NN."""
    table, baselines = (
        Table(title="million instructions (per MAC; TFLite Micro + CMSIS-NN)", title_justify="left"),
        load_baselines(),
    )
    for column in ("CPU", "mode", *FIVE):
        table.add_column(column, justify="left" if column in ("CPU", "mode") else "right")
    for cpu in CPUS:
        for mode in MODES:
            figures = [results["models"].get(name, {}).get(cpu, {}).get(mode) for name in FIVE]
            theirs = [baselines[page.MICRO].get(cpu, {}).get(name, {}).get("instructions") for name in FIVE]
            table.add_row(cpu, mode, *map(_cell, figures, theirs))
    Console(width=150).print(table)


def _cell(figures: Figures | None, theirs: int | None) -> str:
    if figures is None:
        return "-"
    beside = f"; {theirs / 1e6:.2f}" if theirs else ""
    return f"{figures['instructions'] / 1e6:.3f} ({figures['instructions'] / figures['macs']:.2f}{beside})"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure instructions in emulators; write the results.")
    parser.add_argument("--cpu", action="append", choices=CPUS, help="only this one (may be repeated)")
    parser.add_argument("--model", action="append", choices=FIVE, help="only this one (may be repeated)")
    parser.add_argument("--no-layers", action="store_true", help="leave out the single layers")
    parser.add_argument("--no-workspaces", action="store_true", help="leave out the workspaces of all models")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--dry-run", action="store_true", help="print, and write nothing")
    parser.add_argument("--page", action="store_true", help="measure nothing: write the page again")
    arguments = parser.parse_args()
    results = load()
    models = [name for name in arguments.model or FIVE if model_path(name).is_file()]
    if missing := sorted(set(arguments.model or FIVE) - set(models)):
        print(f"bench: not beside the repository, they keep their committed figures: {', '.join(missing)}", file=sys.stderr)
    if not arguments.page:
        layers = not arguments.no_layers and not arguments.model
        changes = measure(results, arguments.cpu or list(CPUS), models, layers, arguments.jobs)
        known = {layer.name for layer in LAYERS}
        results["layers"] = {name: layer for name, layer in results["layers"].items() if name in known}
        for each in changes:
            if each.rises or each.falls:
                print(each)
    print_table(results)
    if arguments.dry_run:
        return 0
    save(results)
    page.PAGE.write_text(page.page(load(), load_baselines()))
    try:
        page.plot(load(), load_baselines())
    except ImportError:
        print("bench: matplotlib is not installed: the plot stays as it is", file=sys.stderr)
    if arguments.page:
        workspaces.write_page()
    elif not (arguments.no_workspaces or arguments.model or arguments.cpu):
        workspaces.measure(workspaces.names(), arguments.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
