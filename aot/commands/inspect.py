"""`aot inspect`: what is in a model, and with --memory what RAM costs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import click
from click.core import ParameterSource

from aot.artefacts import describe_memory
from aot.commands.common import print_json
from aot.commands.options import compile_options
from aot.commands.request import Request, stoppable
from aot.commands.tables import console, counted, print_curve, say, table
from aot.errors import CompileError
from aot.graph.ir import Graph, Model, Node, Value
from aot.graph.lenient import Lenient, refusals
from aot.graph.operator import FirmwareCall
from aot.graph.ops import OPERATORS
from aot.graph.shapes import can_be_compiled
from aot.graph.tflite import read_file
from aot.memory import Curve, curves

EXAMPLES = """
\b
Examples:
  aot inspect model.tflite
  aot inspect model.tflite --text
  aot inspect model.tflite --json
  aot inspect model.tflite --memory --cpu cortex-m4 --io workspace
  aot inspect model.tflite --memory --cpu cortex-m4 --max-workspace 20000
"""


@click.command(epilog=EXAMPLES)
@compile_options
@click.option("--memory", is_flag=True, help="Print what RAM costs: workspaces against instructions, compiled as the options say.")
@click.option("--text", is_flag=True, help="Print the graph, one line a node.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def inspect(context: click.Context, models: tuple[str, ...], memory: bool, text: bool, as_json: bool, **arguments: Any) -> None:
    """Show what is in MODEL, and which nodes can't be compiled; or, with --memory, which workspaces it can run in.

    The options that say how to compile are for --memory.
    """
    given = [name for name in arguments if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if len(models) != 1:
        raise CompileError("inspect takes one model")
    model = models[0]
    if memory and text:
        raise CompileError("--memory and --text exclude each other")
    if memory:
        _inspect_memory(Request(models=models, **arguments, as_json=as_json))
        return
    if given:
        options = {parameter.name: parameter.opts[0] for parameter in context.command.params}
        raise CompileError(f"{options[given[0]]} is for --memory: without it nothing is compiled")
    read = read_file(model, Lenient(OPERATORS))
    if as_json:
        print_json(describe(read))
    elif text:
        for graph in read.graphs:
            print(graph)
    else:
        _print(read)


def _inspect_memory(request: Request) -> None:
    """RAM against instructions, for people or for machines."""
    request.require_stages()
    with stoppable():
        with request.progress:
            found = curves(request.models[0], request.options(), request.observe)
        if request.as_json:
            print_json({"entries": [_describe_curve(curve) for curve in found]})
            return
        for curve in found:
            print_curve(curve)


def _describe_curve(curve: Curve) -> dict[str, object]:
    points = [
        {
            **describe_memory(point.memory),
            "instructions": point.instructions,
            "instructions_rise": round(point.rise, 6),
            "flash_bytes_rise": point.flash_nbytes,
            "taken_by": list(point.taken_by),
        }
        for point in curve.points
    ]
    return {"symbol": curve.symbol, "points": points, "refusals": list(curve.refusals)}


def describe(model: Model) -> dict[str, object]:
    """The model for machines."""
    return {
        "sha256": model.sha256,
        "description": model.description,
        "constant_bytes": model.constant_nbytes,
        "variables": [{"name": value.name, **_describe_value(value)} for value in variables(model)],
        "variable_bytes": sum(value.nbytes for value in variables(model)),
        "graphs": [_describe_graph(graph) for graph in model.graphs],
        "signatures": [
            {"key": s.key, "graph": s.graph, "inputs": list(s.inputs), "outputs": list(s.outputs)} for s in model.signatures
        ],
    }


def variables(model: Model) -> tuple[Value, ...]:
    """What keeps its content from one run to the next, as the file has it, each once whichever graphs use it."""
    found = {value.name: value for graph in model.graphs for value in graph.values if value.is_variable}
    return tuple(value for value in found.values() if can_be_compiled(value.dtype))


def operators(graph: Graph) -> list[tuple[str, int]]:
    """How many nodes of each operator; a custom one that is not known by its custom code."""
    return sorted(Counter(_operator(node) for node in graph.nodes).items())


def _operator(node: Node) -> str:
    return f"{node.op} {node.attributes.name}" if isinstance(node.attributes, FirmwareCall) else node.op


def _describe_graph(graph: Graph) -> dict[str, object]:
    return {
        "name": graph.name,
        "inputs": [_describe_value(graph[name]) for name in graph.inputs],
        "outputs": [_describe_value(graph[name]) for name in graph.outputs],
        "operators": dict(operators(graph)),
        "nodes": len(graph.nodes),
    }


def _describe_value(value: Value) -> dict[str, object]:
    quantisation = value.quantisation
    return {
        "label": value.label,
        "dtype": str(value.dtype),
        "shape": list(value.shape),
        "scale": quantisation.scale if quantisation else None,
        "zero_point": quantisation.zero_point if quantisation else None,
    }


def _print(model: Model) -> None:
    for graph in model.graphs:
        ports = [("input", graph[name]) for name in graph.inputs] + [("output", graph[name]) for name in graph.outputs]
        rows = [
            (role, value.label, value.dtype, "x".join(map(str, value.shape)), value.quantisation or "", value.nbytes)
            for role, value in ports
        ]
        _print_table(f"graph {graph.name}", ("", "tensor", "dtype", "shape", "quantisation", "bytes"), rows)
        _print_table("operators" if rows else f"graph {graph.name}", ("operator", "count"), operators(graph))
    unsupported = [(node.index, _operator(node), why) for node, why in refusals(model, OPERATORS)]
    _print_table("nodes that can't be compiled", ("node", "operator", "why"), unsupported)
    if kept := variables(model):
        nbytes = sum(value.nbytes for value in kept)
        what = f"state: the file keeps {nbytes} bytes in {counted(len(kept), 'variable')} between runs"
        say(f"{what} (the state of a bundle may be larger or smaller: NAME_STATE_SIZE)")
    say(f"constants: {model.constant_nbytes} bytes; SHA-256 {model.sha256}")


def _print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table, unless it has no rows."""
    if rows:
        console().print(table(title, columns, rows))
