"""The graph passes, in order: what is computed stays, bit for bit; how is made cheaper.

Enters: a graph whose shapes are settled. Leaves: such a graph. Invariant: after each pass `Graph.verify` holds, and each node's
operator still infers the shapes that its outputs have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from aot.errors import CompileError, InternalError
from aot.graph.ir import Graph
from aot.graph.operator import Operator
from aot.graph.ops import OPERATORS
from aot.graph.passes.clamps import fuse_activations, remove_clamps
from aot.graph.passes.constants import common_subexpressions, fold_constants, remove_dead_nodes
from aot.graph.passes.dilation import fold_dilations
from aot.graph.passes.exact import mean_to_pool, merge_requantisations
from aot.graph.passes.memory import widen_variables
from aot.graph.passes.movement import eliminate_identities, eliminate_transposes, merge_reshapes
from aot.graph.passes.padding import fuse_pads
from aot.graph.passes.subgraphs import inline_subgraphs

Pass = Callable[[Graph], Graph]


def optimise_subgraphs(graph: Graph) -> Graph:
    """Graphs that nodes run -> the same after every pass that does not look at variables."""
    if not any(node.graphs for node in graph.nodes):
        return graph
    done: dict[int, Graph] = {}
    for node in graph.nodes:
        for inner in node.graphs:
            done[id(inner)] = done.get(id(inner)) or run_passes(inner)
    nodes = (replace(node, graphs=tuple(done[id(inner)] for inner in node.graphs)) if node.graphs else node for node in graph.nodes)
    return replace(graph, nodes=tuple(nodes))


PASSES: tuple[tuple[Pass, str], ...] = (
    (fold_constants, "first: later rules see targets, paddings and permutations as constants"),
    (inline_subgraphs, "early: what is put in line takes part in all that follows"),
    (optimise_subgraphs, "what is left runs several times, or only sometimes"),
    (remove_dead_nodes, "so that a value with one reader is seen to have one"),
    (merge_requantisations, "before identities: a pair that cancels becomes a QUANTIZE to the same parameters"),
    (mean_to_pool, "before reshapes are merged: it leaves one behind"),
    (eliminate_transposes, "before reshapes are merged: it leaves them behind"),
    (merge_reshapes, "one view of each chain, so that an identity is seen to be one"),
    (eliminate_identities, "before fusion: what stands between a node and its activation goes"),
    (fold_dilations, "before pads and activations are fused: they then find the convolution beside them"),
    (fuse_pads, "before clamps: a pad's constant widens a range"),
    (fuse_activations, "a clamp of its own costs a loop; in its producer it costs nothing"),
    (remove_clamps, "after fusion, so that it sees every clamp in one form"),
    (widen_variables, "after what stands between a variable and its reader has gone"),
    (common_subexpressions, "late: nodes have their final attributes; equal constants are stored once"),
    (remove_dead_nodes, "last: whatever the passes before left unread"),
)
"""(pass, why it stands there)."""


def run_passes(
    graph: Graph,
    operators: Mapping[str, Operator] = OPERATORS,
    observer: Callable[[str, Graph], None] | None = None,
    without: Collection[Pass] = (),
) -> Graph:
    """The graph after every pass but those `without`; `observer(name, graph)` sees each one's result.

    InternalError if a pass breaks an invariant.
    """
    for function, _ in PASSES:
        if function in without:
            continue
        before, graph = graph, function(graph)
        verify(graph, operators, before)
        if observer is not None:
            observer(function.__name__, graph)
    return graph


def verify(graph: Graph, operators: Mapping[str, Operator], before: Graph | None = None) -> None:
    """Raise InternalError unless the graph is sound and its shapes are what the operators infer.

    Nodes that stand in `before` with the same values are taken to be so.
    """
    graph.verify()
    known = {id(node) for node in (before.nodes if before is not None else ())}
    for node in graph.nodes:
        names = (*filter(None, node.inputs), *node.outputs)
        if before is not None and id(node) in known and all(graph[name] is before[name] for name in names):
            continue
        site = graph.site(node)
        try:
            inferred = operators[node.op].infer(site)
            operators[node.op].check(site)
        except CompileError as error:
            raise InternalError(f"graph {graph.name}: a pass made a node that its operator refuses: {error}") from error
        shapes = tuple(value.shape for value in site.outputs)
        if inferred != shapes:
            raise InternalError(f"graph {graph.name}: {site.where} has the shapes {shapes}, not {inferred}")
