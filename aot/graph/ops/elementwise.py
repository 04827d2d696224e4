"""Elementwise operators whose inputs broadcast: a `Form` says what becomes of one element of each.

Enters: a function from a site to its form; it refuses what it does not support. Leaves: the `Operator`.
Invariant: `array` and `expression` of a form are the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from aot.graph.evaluate import execute
from aot.graph.expr import Expr, Load
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator
from aot.graph.ops import checks
from aot.graph.ops.broadcast import broadcast_shape, operand, stretched_index
from aot.graph.primitive import Map


class Form(Protocol):
    """What an operator does to one element of each input: for arrays, which broadcast, and for expressions."""

    @property
    def array(self) -> Callable[..., np.ndarray]: ...

    @property
    def expression(self) -> Callable[..., Expr]: ...


@dataclass(frozen=True)
class Expressed:
    """A form that is defined by its expression: what numpy has no exact equal of."""

    function: Callable[..., Expr]

    def expression(self, *operands: Expr) -> Expr:
        return self.function(*operands)

    def array(self, *operands: np.ndarray) -> np.ndarray:
        shape = np.broadcast_shapes(*(array.shape for array in operands))
        arrays = {f"x{number}": array for number, array in enumerate(operands)}
        loads = (Load(name, stretched_index(array.shape, shape), DType(array.dtype.name)) for name, array in arrays.items())
        value = self.function(*loads)
        arrays["out"] = np.empty(shape, value.dtype.np)
        execute(Map("out", shape, value), arrays)
        return arrays["out"]


def elementwise(
    name: str,
    form: Callable[[Site], Form],
    *,
    options: str | None = None,
    read: Callable[[Any], object] = lambda options: None,
    counts: Sequence[int] = (2,),
) -> Operator:
    """The operator of `counts` inputs that does `form` to each element."""

    def infer(site: Site) -> tuple[Shape, ...]:
        checks.require_counts(site, counts)
        return (broadcast_shape(site, *(site.input(position) for position in range(len(site.inputs)))),)

    def check(site: Site) -> None:
        form(site)

    def compute(site: Site, *arrays: np.ndarray) -> tuple[np.ndarray]:
        return (form(site).array(*arrays),)

    def lower(site: Site, lowering: Lowering) -> None:
        append_map(site, lowering, form(site).expression(*operands(site)))

    return Operator(name, options, read, infer, check, compute, lower)


def operands(site: Site) -> tuple[Expr, ...]:
    """Each input's element for an output position."""
    return tuple(operand(site.input(position), site.output.shape) for position in range(len(site.inputs)))


def append_map(site: Site, lowering: Lowering, value: Expr) -> None:
    """Every output element is `value`."""
    lowering.append(Map(site.output.name, site.output.shape, value, nodes=(site.node.index,)))
