"""Makes a failing net smaller after Hypothesis has: by what a graph is, which a sequence of draws does not know.

Enters: a net and whether another one still fails. Leaves: a smaller net that fails, or the same. Invariant: a bounded number of questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.differential.net import Net, Node

QUESTIONS = 60
CUT = ("int8", "float32", "int16", "uint8", "bool")
"""Types whose values may become inputs of any numbers: others may be positions."""


def trimmed(net: Net) -> Net:
    """Without tensors that nobody refers to. Inputs stay."""
    used = {n for node in net.nodes for n in (*node.inputs, *node.outputs)} | {*net.inputs, *net.outputs}
    kept = [n for n in range(len(net.tensors)) if n in used]
    new = {n: position for position, n in enumerate(kept)} | {-1: -1}

    def moved(numbers: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(new[n] for n in numbers)

    nodes = tuple(replace(node, inputs=moved(node.inputs), outputs=moved(node.outputs)) for node in net.nodes)
    return Net(tuple(net.tensors[n] for n in kept), nodes, moved(net.inputs), moved(net.outputs), net.others)


def alone(net: Net, node: Node) -> Net:
    """One node, what it reads that is computed as inputs."""
    computed = dict.fromkeys(n for n in node.inputs if n >= 0 and net.tensors[n].data is None and not net.tensors[n].variable)
    return trimmed(Net(net.tensors, (node,), tuple(computed), node.outputs, net.others))


def cone(net: Net) -> Net:
    """Only what the outputs need: nodes, inputs, tensors."""
    needed, kept = set(net.outputs), []
    for node in reversed(net.nodes):
        if needed & set(node.outputs):
            kept.append(node)
            needed |= set(node.inputs)
    inputs = tuple(n for n in net.inputs if n in needed)
    return trimmed(Net(net.tensors, tuple(reversed(kept)), inputs, net.outputs, net.others))


def smaller(net: Net) -> Iterator[Net]:
    """Nets that end sooner, with one output, with an input instead of a node, without one output, without what no output needs."""
    if len(net.outputs) > 1:
        yield from (cone(replace(net, outputs=(n,))) for n in net.outputs)
    yield from (cone(replace(net, outputs=node.outputs)) for node in net.nodes if node is not net.nodes[-1])
    for node in reversed(net.nodes):
        if len(net.nodes) > 1 and all(net.tensors[n].dtype in CUT for n in node.outputs):
            nodes = tuple(other for other in net.nodes if other is not node)
            cut = replace(net, nodes=nodes, inputs=(*net.inputs, *node.outputs))
            outputs = tuple(n for n in net.outputs if n not in node.outputs)
            if outputs:
                yield cone(replace(cut, outputs=outputs))
    if len(net.outputs) > 1:
        yield from (cone(replace(net, outputs=tuple(other for other in net.outputs if other != n))) for n in net.outputs)
    yield cone(net)


def reduced(net: Net, fails: Callable[[Net], bool]) -> Net:
    """The net after every step down that still fails."""
    left = QUESTIONS
    while True:
        for other in smaller(net):
            if left == 0 or other == net:
                continue
            left -= 1
            if fails(other):
                net = other
                break
        else:
            return net
