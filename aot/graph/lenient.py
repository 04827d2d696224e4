"""Operators that accept whatever a file says, so that a model can be looked at which can't be compiled.

Enters: the table of operators. Leaves: a mapping that answers for every builtin name, and why a node is not supported.
Invariant: nothing read this way is compiled; results are zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from aot.errors import CompileError, InternalError
from aot.graph.ir import Graph, Model, Node, Site
from aot.graph.operator import Operator


def _zeros(site: Site, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(np.zeros(value.shape, value.dtype.np) for value in site.outputs)


class Lenient(Mapping[str, Operator]):
    """Every name is known: its outputs are what the file declares, its attributes are the real operator's or none."""

    def __init__(self, operators: Mapping[str, Operator]) -> None:
        self.operators = operators

    def __getitem__(self, name: str) -> Operator:
        real = self.operators.get(name)
        return Operator(
            name=name,
            options=real.options if real else None,
            read=real.read if real else lambda options: None,
            infer=lambda site: tuple(value.shape for value in site.outputs),
            check=lambda site: None,
            compute=_zeros,
            lower=_never,
            variables=real.variables if real else (),
            memories=real.memories if real else lambda attributes, inputs: (),
            subgraphs=real.subgraphs if real else lambda attributes: (),
        )

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self.operators)

    def __len__(self) -> int:
        return len(self.operators)


def _never(*_: object) -> None:
    raise InternalError("a lenient operator was lowered")


def refusal(graph: Graph, node: Node, operators: Mapping[str, Operator]) -> str:
    """Why a node can't be compiled, in a sentence, and what to do; "" if it can."""
    operator = operators.get(node.op)
    if operator is None:
        return "the operator is not supported"
    site = graph.site(node)
    try:
        operator.infer(site)
        operator.check(site)
    except CompileError as error:
        return f"{error.what} ({error.hint})" if error.hint else error.what
    return ""


def refusals(model: Model, operators: Mapping[str, Operator]) -> tuple[tuple[Node, str], ...]:
    """Every node of the model that can't be compiled, with the reason."""
    found = ((node, refusal(graph, node, operators)) for graph in model.graphs for node in graph.nodes)
    return tuple((node, why) for node, why in found if why)
