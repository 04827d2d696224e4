"""Instructions, RAM and flash of the real models on Cortex-M4 (and others), as a table.

    python tests/bench.py [--cpu cortex-m4] [MODEL ...]

Counts come from the emulator: repeatable. Models are read from `../shared/models`; absent ones are named and left out.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table

from tests.shared import MODELS, SHORT_NAMES

COLUMNS = ("model", "million instructions", "per MAC", "workspace", "lower bound", "scratch", "stack", "code", "weights", "object")


def measure(name: str, cpu: str) -> tuple[str, ...] | None:
    """One row of the table; None where the model is absent. Inputs and outputs lie in the workspace."""
    import aot
    from aot.run import run_bundle
    from aot.samples import random_inputs

    path = MODELS / f"{SHORT_NAMES.get(name, name)}.tflite"
    if not path.is_file():
        return None
    bundle = aot.compile(path, cpu, options=aot.Options(io="workspace"))
    result = run_bundle(bundle, random_inputs(bundle.main, 0))
    entry = bundle.main
    macs = sum(layer.macs for layer in entry.layers)
    per_mac = f"{result.instructions / macs:.2f}" if macs and result.instructions else "-"
    figures = (
        entry.workspace_nbytes,
        entry.lower_bound_nbytes,
        entry.scratch_nbytes,
        result.stack_nbytes,
        bundle.code_nbytes,
        bundle.weights_nbytes,
        len(bundle.object),
    )
    return (name, f"{(result.instructions or 0) / 1e6:.3f}", per_mac, *map(str, figures))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(SHORT_NAMES))
    parser.add_argument("--cpu", default="cortex-m4")
    arguments = parser.parse_args()
    table = Table(title=f"{arguments.cpu}, bytes")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "model" else "right")
    for name in arguments.models:
        row = measure(name, arguments.cpu)
        if row is None:
            print(f"{name}: not beside the repository", file=sys.stderr)
        else:
            table.add_row(*row)
    Console(width=140).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
