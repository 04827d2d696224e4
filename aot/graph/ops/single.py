"""Operators whose output has their first input's shape, each element computed from one element of each input.

Enters: an expression of an element, and what a site must be. Leaves: the `Operator`.
Invariant: `compute` executes the very expression that `lower` stores, so that the two can't differ; tests compare it with the oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aot.graph.evaluate import execute
from aot.graph.expr import Expr, Load, Lookup, add, axis, cast, integer
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.primitive import Map

Constant = Callable[[str, np.ndarray], str]
"""(purpose, data) -> the name of a constant buffer; `Lowering.constant` is one."""

Element = Callable[[Site, Expr, Constant], Expr]
"""The output's element from the input's element."""


@dataclass
class Constants:
    """A `Constant` for execution: keeps what it is given as arrays by name."""

    arrays: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])

    def __call__(self, purpose: str, data: np.ndarray) -> str:
        name = f"{purpose}.{len(self.arrays)}"
        self.arrays[name] = data
        return name


def single(
    name: str,
    element: Element,
    check: Callable[[Site], None],
    options: str | None = None,
    read: Callable[[Any], object] | None = None,
) -> Operator:
    """The operator of one input whose elements are `element`. `check` has passed before it is asked."""

    def compute(site: Site, x: np.ndarray) -> tuple[np.ndarray]:
        constants = Constants()
        value = element(site, Load("x", (axis(0),), site.input(0).dtype), constants)
        out = np.empty(x.size, site.output.dtype.np)
        execute(Map("out", out.shape, value), {**constants.arrays, "x": x.reshape(-1), "out": out})
        return (out.reshape(x.shape),)

    def lower(site: Site, lowering: Lowering) -> None:
        value = element(site, load(site.input(0)), lowering.constant)
        lowering.append(Map(site.output.name, site.output.shape, value, nodes=(site.node.index,)))

    return Operator(name, options, read or (lambda _: None), infer, check, compute, lower)


def infer(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (1,))
    return (site.input(0).shape,)


def require_types(site: Site, *allowed: DType) -> None:
    """An input of one of these types, and an output of the same."""
    checks.require_dtype(site, site.input(0), *allowed)
    checks.require_same_dtype(site, site.output, site.input(0))


def quantisations(site: Site) -> tuple[float, int, float, int]:
    """Scale and zero point of the input and of the output."""
    return (*checks.per_tensor(site, site.input(0)), *checks.per_tensor(site, site.output))


def ratio(site: Site, factor: float = 1.0, in_double: bool = True) -> float:
    """The input's scale times `factor`, by the output's. TFLite Micro computes in double (until August 2026: float32), LiteRT in float32."""
    scale, _, out_scale, _ = quantisations(site)
    number = np.float64 if in_double else np.float32
    with np.errstate(all="ignore"):
        return float(number(np.float32(scale)) * number(np.float32(factor)) / number(np.float32(out_scale)))


def require_no_zero_points(site: Site) -> None:
    """int16 is symmetric in TFLite."""
    _, zero_point, _, out_zero_point = quantisations(site)
    if zero_point or out_zero_point:
        raise site.error("int16 with a zero point that is not 0 is not supported")


def byte_lookup(entries: np.ndarray, x: Expr, constant: Constant) -> Expr:
    """entries[x] of an 8-bit x, whose smallest value has the first of the 256 entries."""
    position = cast(x, DType.INT32)
    index = position if x.dtype is DType.UINT8 else add(position, integer(128))
    return Lookup(constant("table", entries), index, DType(entries.dtype.name))
