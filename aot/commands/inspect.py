"""`aot inspect`: what is in a model."""

from __future__ import annotations

from collections import Counter

import click

from aot.commands.common import print_json
from aot.commands.tables import console, say, table
from aot.graph.ir import Graph, Model, Value
from aot.graph.lenient import Lenient, refusals
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_file

EXAMPLES = """
\b
Examples:
  aot inspect model.tflite
  aot inspect model.tflite --text
  aot inspect model.tflite --json
"""


@click.command(epilog=EXAMPLES)
@click.argument("model", type=click.Path(path_type=str))
@click.option("--text", is_flag=True, help="Print the graph, one line a node.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def inspect(model: str, text: bool, as_json: bool) -> None:
    """Show what is in MODEL, and which nodes can't be compiled."""
    read = read_file(model, Lenient(OPERATORS))
    if as_json:
        print_json(describe(read))
    elif text:
        for graph in read.graphs:
            print(graph)
    else:
        _print(read)


def describe(model: Model) -> dict[str, object]:
    """The model for machines."""
    return {
        "sha256": model.sha256,
        "description": model.description,
        "constant_bytes": model.constant_nbytes,
        "graphs": [_describe_graph(graph) for graph in model.graphs],
        "signatures": [
            {"key": s.key, "graph": s.graph, "inputs": list(s.inputs), "outputs": list(s.outputs)} for s in model.signatures
        ],
    }


def _describe_graph(graph: Graph) -> dict[str, object]:
    return {
        "name": graph.name,
        "inputs": [_describe_value(graph[name]) for name in graph.inputs],
        "outputs": [_describe_value(graph[name]) for name in graph.outputs],
        "operators": dict(sorted(Counter(node.op for node in graph.nodes).items())),
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
    out = console()
    for graph in model.graphs:
        ports = [("input", graph[name]) for name in graph.inputs] + [("output", graph[name]) for name in graph.outputs]
        rows = [
            (role, value.label, value.dtype, "x".join(map(str, value.shape)), value.quantisation or "", value.nbytes)
            for role, value in ports
        ]
        out.print(table(f"graph {graph.name or 'main'}", ("", "tensor", "dtype", "shape", "quantisation", "bytes"), rows))
        counted = Counter(node.op for node in graph.nodes)
        out.print(table("operators", ("operator", "count"), sorted(counted.items())))
    unsupported = [(node.index, node.op, why) for node, why in refusals(model, OPERATORS)]
    if unsupported:
        out.print(table("nodes that can't be compiled", ("node", "operator", "why"), unsupported))
    say(f"constants: {model.constant_nbytes} bytes; SHA-256 {model.sha256}")
