"""`aot run`: compile a model, execute the compiled bundle, print outputs and figures."""

from __future__ import annotations

from typing import Any

import click
import numpy as np

from aot.arrays import load_npz
from aot.bundle import Bundle
from aot.commands.common import print_json
from aot.commands.options import WholeNumber, compile_options, link_option, model_option, push_option
from aot.commands.request import Request, stoppable
from aot.commands.tables import console, table
from aot.driver import emission_of, resolve_target
from aot.errors import CompileError
from aot.names import choose
from aot.run import RunResult, place_for, place_of, place_of_c, require_functions, require_pushes, run_bundle, where_names
from aot.run.linking import link
from aot.samples import input_arrays, random_inputs

EXAMPLES = """
\b
Examples:
  aot run model.tflite                                          on this machine, random input
  aot run model.tflite --cpu cortex-m4 --inputs in.npz --outputs out.npz --json
  aot run model.tflite --cpu cortex-m55 --on qemu
  aot run model.tflite --cpu cortex-m4 --kernels library --link libcmsis-nn.a
"""


@click.command(epilog=EXAMPLES)
@compile_options
@click.option("--on", "where", metavar="WHERE", help="host, unicorn, qemu or renode (default: what suits the CPU).")
@click.option(
    "--inputs", "inputs_path", metavar="FILE.npz", help="Arrays in0, in1, ..., or a golden file (its run 0). Default: random."
)
@click.option("--outputs", "outputs_path", metavar="OUT.npz", help="Where to write arrays out0, out1, ...")
@click.option("--seed", type=WholeNumber(0), default=0, help="Seed of the random input.")
@push_option
@link_option
@model_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
def run(
    where: str | None,
    inputs_path: str | None,
    outputs_path: str | None,
    seed: int,
    push_rows: int,
    objects: tuple[str, ...],
    model_name: str | None,
    as_json: bool,
    **arguments: Any,
) -> None:
    """Run MODEL's compiled bundle, in process or in an emulator.

    One inference; with state, the first after NAME_init. Prints its figures and outputs.
    """
    request = Request(**arguments, as_json=as_json)
    check_where(where, request)
    with stoppable():
        _, bundle = request.model(request.bundle(), model_name)
        bundle = link(bundle, objects) if objects else bundle
        require_functions(bundle, place_of(bundle, where or "auto"))
        with request.progress:
            request.progress.stage("running")
            inputs = (
                input_arrays(bundle.main, load_npz(inputs_path), inputs_path)
                if inputs_path is not None
                else random_inputs(bundle.main, seed)
            )
            result = run_bundle(bundle, inputs, where or "auto", push_rows=push_rows)
        if outputs_path is not None:
            _save(outputs_path, result)
        if as_json:
            print_json(figures(bundle, result))
        else:
            _print(bundle, result)


def check_where(where: str | None, request: Request) -> None:
    """CompileError, before anything is compiled, for a place to run that does not exist or that the target's code can't run on."""
    if where is not None:
        choose("place to run", where, where_names())
    options = request.options()
    target, _ = resolve_target(options)
    place = (place_of_c if emission_of(options, target) == "c" else place_for)(target, where or "auto")
    if request.stream_input:
        require_pushes(place, target)


def figures(bundle: Bundle, result: RunResult) -> dict[str, Any]:
    """The figures of one run. Bytes are what the caller provides; `workspace_bytes` includes scratch."""
    entry = bundle.main
    return {
        "model_sha256": bundle.model_sha256,
        "backend": bundle.backend,
        "target": bundle.target.name,
        "on": result.where,
        "instructions": result.instructions,
        "stack_bytes": result.stack_nbytes if result.stack_nbytes is not None else entry.stack_nbytes,
        "stack_bound_bytes": entry.stack_nbytes,
        "workspace_bytes": entry.workspace_nbytes,
        **{f"region_{region.name}_bytes": pointer.nbytes for region, pointer in zip(entry.regions, entry.workspaces, strict=False)},
        "state_bytes": entry.state_nbytes,
        "input_bytes": sum(port.nbytes for port in entry.inputs),
        "output_bytes": sum(port.nbytes for port in entry.outputs),
        "scratch_bytes": entry.scratch_nbytes,
        "code_bytes": bundle.code_nbytes,
        "weights_bytes": bundle.weights_nbytes,
        "read_bytes": result.read_nbytes,
        "object_bytes": len(bundle.object),
        "lower_bound_bytes": entry.lower_bound_nbytes,
        "io": "workspace" if bundle.io_in_workspace else "caller",
        "layers": [{"symbol": symbol, "instructions": count} for symbol, count in result.per_layer or ()],
        **({"cycles": list(result.cycles)} if result.cycles is not None else {}),
    }


def _print(bundle: Bundle, result: RunResult) -> None:
    out = console()
    out.print(table(f"{bundle.name} ran on {result.where}", ("figure", "value"), _rows(figures(bundle, result), result)))
    if result.per_layer:
        counts = dict(result.per_layer)
        rows = [
            (
                layer.symbol,
                layer.kernel,
                "+".join(layer.operators),
                layer.macs,
                counts.get(layer.symbol, 0),
                _per_mac(counts.get(layer.symbol, 0), layer.macs),
            )
            for layer in bundle.main.layers
        ]
        out.print(table("layers", ("symbol", "kernel", "operators", "MACs", "instructions", "per MAC"), rows))
    if result.cycles is not None:
        counted = [(layer.symbol, layer.kernel, count) for layer, count in zip(bundle.main.layers, result.cycles, strict=True)]
        out.print(table("what the entry's counters hold", ("symbol", "kernel", "count"), counted))
    for port, output in zip(bundle.main.outputs, result.outputs, strict=True):
        with np.printoptions(threshold=64, edgeitems=8):
            out.print(
                f"{port.name} {port.dtype}{list(port.shape)}: {np.array2string(output.reshape(-1), separator=' ')}", markup=False
            )


_STACK = {"stack_bytes": "stack (measured)", "stack_bound_bytes": "stack (bound)"}


def _rows(figure: dict[str, Any], result: RunResult) -> list[tuple[str, Any]]:
    """The figures for people: those that there are; a stack that was not measured only by its bound."""
    without = {"layers", "cycles", *(("stack_bytes",) if result.stack_nbytes is None else ())}
    return [(_STACK.get(key, key), value) for key, value in figure.items() if key not in without and value is not None]


def _per_mac(instructions: int, macs: int) -> str:
    return f"{instructions / macs:.2f}" if macs else "-"


def _save(path: str, result: RunResult) -> None:
    try:
        with open(path, "wb") as stream:
            arrays: dict[str, Any] = {f"out{i}": array for i, array in enumerate(result.outputs)}
            np.savez(stream, **arrays)
    except OSError as error:
        raise CompileError(f"can't write the outputs: {error.strerror}", where=path) from error
