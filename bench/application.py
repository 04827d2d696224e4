"""Cortex-A: instructions of one inference, counted in Linux processes under QEMU, beside LiteRT's.

    python -m bench.application [--cpu CPU ...] [--model MODEL ...] [--dry-run]

Enters: the real models beside the repository. Leaves: their part of bench/results.json, docs/benchmarks.md, a table on standard output.
Invariant: what is not measured keeps its committed figures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from aot.lower.tradeoff import Optimize
from bench.measure import Figures, model_figures, model_path
from bench.results import Change, Results, change, load, load_baselines, save
from tests.shared import FIVE

CORES = ("cortex-a76", "cortex-a53", "cortex-a9")
MODELS = {
    **{name: name for name in FIVE},
    "VWW float": "mlperf_tiny/vww_96_float",
    "MobileNet 0.25 128 uint8": "coral/mobilenet_v1_0.25_128_quant",
}
"""What pages call the models, and where they are."""
WAYS: tuple[Optimize, ...] = ("balanced", "speed")
LITERT = "LiteRT"
COLUMNS = ("model", "mode", "instructions", "per MAC", LITERT, "times fewer", "object", "RAM", "stack")
INTRODUCTION = """## Application cores

The back end `neon`, one thread, counted in a Linux process under QEMU (`python -m bench.application`); inputs and outputs in the workspace.
*{litert}*: {source}. Its results differ from TFLite Micro's by a few units on int8 models, ours do not.
"""


def measure(results: Results, cores: Sequence[str], models: Sequence[str]) -> list[Change]:
    """Measure and put it into the results. Returns what has changed."""
    changes = []
    for name in models:
        for cpu in cores:
            place = results.setdefault("application", {}).setdefault(name, {}).setdefault(cpu, {})
            for mode, figures in model_figures(MODELS[name], cpu, WAYS).items():
                changes.append(change(f"{name}, {cpu}, {mode}", place.get(mode), figures))
                place[mode] = figures
    return [each for each in changes if each is not None]


def rows(results: Results, baselines: Mapping[str, Any], cpu: str) -> Iterable[Sequence[str]]:
    """A row for each model and mode that was measured on a core."""
    for name in MODELS:
        theirs = baselines[LITERT].get(cpu, {}).get(name)
        for mode in WAYS:
            figures: Figures | None = results.get("application", {}).get(name, {}).get(cpu, {}).get(mode)
            if figures is not None:
                yield name, mode, *_cells(figures, theirs)


def _cells(figures: Figures, theirs: int | None) -> Sequence[str]:
    instructions = figures["instructions"]
    return (
        f"{instructions / 1e6:.3f} M",
        f"{instructions / figures['macs']:.2f}",
        f"{theirs / 1e6:.3f} M" if theirs else "",
        f"{theirs / instructions:.2f}" if theirs else "",
        f"{figures['object_bytes'] / 1000:.1f} kB",
        f"{figures['workspace_bytes'] / 1000:.1f} kB",
        f"{figures['stack_bytes']} B",
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.application", description="Count instructions on Cortex-A cores.")
    parser.add_argument("--cpu", action="append", choices=CORES, help="only this one (may be repeated)")
    parser.add_argument("--model", action="append", choices=list(MODELS), help="only this one (may be repeated)")
    parser.add_argument("--dry-run", action="store_true", help="print, and write nothing")
    arguments = parser.parse_args()
    results, baselines = load(), load_baselines()
    models = [name for name in arguments.model or MODELS if model_path(MODELS[name]).is_file()]
    for each in measure(results, arguments.cpu or CORES, models):
        if each.rises or each.falls:
            print(each)
    for cpu in CORES:
        table = Table(title=cpu, title_justify="left")
        for column in COLUMNS:
            table.add_column(column, justify="left" if column in ("model", "mode") else "right")
        for row in rows(results, baselines, cpu):
            table.add_row(*row)
        Console(width=130).print(table)
    if not arguments.dry_run:
        from bench import page

        save(results)
        page.PAGE.write_text(page.page(load(), baselines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
