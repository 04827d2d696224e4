"""`aot profile`: compile a model, execute it in an emulator, print what each layer takes."""

from __future__ import annotations

from typing import Any

import click

from aot.arrays import load_npz
from aot.artefacts import write_files
from aot.bundle import Bundle
from aot.commands.common import print_json
from aot.commands.options import WholeNumber, compile_options, link_option, model_option
from aot.commands.request import Request, stoppable
from aot.commands.tables import console, say, table
from aot.driver import resolve_target
from aot.profile import Profile, Row, emulator_for, profile
from aot.report import page
from aot.run.linking import link
from aot.samples import input_arrays, random_inputs

EXAMPLES = """
\b
Examples:
  aot profile model.tflite --cpu cortex-m4
  aot profile model.tflite --cpu cortex-m0plus --wait-states 1
  aot profile model.tflite --cpu cortex-m7 --inputs in.npz --json
  aot profile model.tflite --cpu cortex-m4 --report out/
"""
_COLUMNS = ("layer", "kernel", "operators", "MACs", "instructions", "per MAC", "cycles", "cycles/MAC", "share")


@click.command("profile", epilog=EXAMPLES)
@compile_options
@click.option(
    "--wait-states",
    type=WholeNumber(0),
    default=0,
    show_default=True,
    help="Of the flash that holds code and constants, without a cache.",
)
@click.option(
    "--inputs", "inputs_path", metavar="FILE.npz", help="Arrays in0, in1, ..., or a golden file (its run 0). Default: random."
)
@click.option("--seed", type=WholeNumber(0), default=0, help="Seed of the random input.")
@link_option
@model_option
@click.option("--report", "folder", metavar="FOLDER", help="Write NAME.report.html with these figures there.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
def profile_command(
    wait_states: int,
    inputs_path: str | None,
    seed: int,
    objects: tuple[str, ...],
    model_name: str | None,
    folder: str | None,
    as_json: bool,
    **arguments: Any,
) -> None:
    """Count instructions and cycles of MODEL's layers.

    Instructions are counted in an emulator; cycles come from a model of the CPU.

    One inference; with state, the first after NAME_init. A cycle model is no measurement: it knows no caches, buses or interrupts.
    """
    request = Request(**arguments, as_json=as_json)
    emulator_for(resolve_target(request.options())[0])  # before anything is compiled
    with stoppable():
        whole = request.bundle()
        _, bundle = request.model(whole, model_name)
        bundle = link(bundle, objects) if objects else bundle
        with request.progress:
            request.progress.stage("running")
            inputs = (
                input_arrays(bundle.main, load_npz(inputs_path), inputs_path)
                if inputs_path is not None
                else random_inputs(bundle.main, seed)
            )
            found = profile(bundle, inputs, wait_states)
        paths = write_files(page(whole, found), folder) if folder is not None else ()
        if as_json:
            print_json(_figures(bundle, found))
        else:
            _print(bundle, found)
            for path in paths:
                say(f"wrote {path}")


def _figures(bundle: Bundle, found: Profile) -> dict[str, Any]:
    return {
        "model_sha256": bundle.model_sha256,
        "backend": bundle.backend,
        "target": bundle.target.name,
        "on": found.result.where,
        "cycle_model": found.model,
        "wait_states": found.wait_states,
        "macs": found.macs,
        "instructions": found.instructions,
        "modelled_cycles": found.cycles,
        "layers": [
            {
                "symbol": row.symbol,
                "kernel": row.layer.kernel if row.layer else None,
                "nodes": list(row.layer.nodes) if row.layer else [],
                "operators": list(row.layer.operators) if row.layer else [],
                "macs": row.macs,
                "instructions": row.instructions,
                "modelled_cycles": row.cycles,
            }
            for row in found.rows
        ],
    }


def _print(bundle: Bundle, found: Profile) -> None:
    out = console()
    rows = [_cells(found, row) for row in found.rows]
    total = (found.macs, found.instructions, _ratio(found.instructions, found.macs), found.cycles, _ratio(found.cycles, found.macs))
    cells = [*rows, ("total", "", "", *("-" if cell is None else cell for cell in total), "100.0 %")]
    out.print(table(f"{bundle.name} for {bundle.target.name}, on {found.result.where}", _COLUMNS, cells))
    say(found.model)


def _cells(found: Profile, row: Row) -> tuple[object, ...]:
    """A line of the table. The share is of the cycles, or of the instructions where there are none."""
    part, whole = (row.cycles, found.cycles) if found.cycles else (row.instructions, found.instructions)
    share = "-" if part is None or not whole else f"{100 * part / whole:.1f} %"
    kernel, operators = (row.layer.kernel, "+".join(row.layer.operators)) if row.layer else ("-", "the entry itself")
    per_mac = (_ratio(count, row.macs) for count in (row.instructions, row.cycles))
    counts = ("-" if count is None else count for count in (row.instructions, row.cycles))
    figures = (cell for pair in zip(counts, per_mac, strict=True) for cell in pair)
    return row.symbol.removeprefix(f"{found.bundle.name}_"), kernel, operators, row.macs or "-", *figures, share


def _ratio(count: int | None, macs: int) -> str:
    return f"{count / macs:.2f}" if count is not None and macs else "-"
