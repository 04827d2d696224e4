"""Operators over the last dimension: each row becomes one number first, then every element meets its row's numbers.

Enters: a site whose input 0 has at least one dimension. Leaves: loads and primitives over rows and over elements.
Invariant: a row's numbers lie in buffers of the input's shape with the last dimension 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from aot.graph.arithmetic import FLOAT32_LOWEST
from aot.graph.expr import Acc, Affine, Const, Expr, Load, axis, fixed
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, load
from aot.graph.ops import checks
from aot.graph.primitive import Map, Reduce


def require_rows(site: Site) -> Shape:
    """The shape of input 0, which has at least one dimension and no empty one."""
    checks.require_counts(site, (1,))
    data = site.input(0)
    if not data.shape:
        raise site.error(f"{checks.describe(data)} is a scalar; {site.node.op} needs a dimension")
    checks.require_elements(site, data)
    return data.shape


@dataclass(frozen=True)
class Rows:
    """Where primitives over rows and over elements read, and how they are appended."""

    site: Site
    lowering: Lowering

    @property
    def space(self) -> Shape:
        return (*self.site.input(0).shape[:-1], 1)

    @property
    def length(self) -> int:
        return self.site.input(0).shape[-1]

    @property
    def swept(self) -> tuple[Affine, ...]:
        """The element at the window's position in this row."""
        rank = len(self.space)
        return (*(axis(number) for number in range(rank - 1)), axis(rank))

    @property
    def element(self) -> Load:
        """Input 0's element: for primitives over elements."""
        return load(self.site.input(0))

    @property
    def swept_element(self) -> Load:
        """Input 0's element at the window's position: for `reduce`."""
        return load(self.site.input(0), self.swept)

    def of_row(self, buffer: str, dtype: DType) -> Load:
        """This row's number in `buffer`, from an element's position as well."""
        rank = len(self.space)
        return Load(buffer, (*(axis(number) for number in range(rank - 1)), fixed(0)), dtype)

    def reduce(self, purpose: str, combine: str, initial: Const, term: Expr, result: Expr | None = None) -> Load:
        """A number of each row, out of all its elements."""
        result = result or Acc(initial.dtype)
        name = self.lowering.temporary(purpose, result.dtype, self.space)
        nodes = (self.site.node.index,)
        self.lowering.append(Reduce(name, self.space, (self.length,), combine, initial, term, result, nodes=nodes))
        return self.of_row(name, result.dtype)

    def map(self, purpose: str, value: Expr) -> Load:
        """A number of each row, out of others."""
        name = self.lowering.temporary(purpose, value.dtype, self.space)
        self.lowering.append(Map(name, self.space, value, nodes=(self.site.node.index,)))
        return self.of_row(name, value.dtype)

    def finish(self, value: Expr) -> None:
        """The output, element by element."""
        site = self.site
        self.lowering.append(Map(site.output.name, site.output.shape, value, nodes=(site.node.index,)))

    def largest(self) -> Load:
        """The row's largest element (a NaN never is)."""
        dtype = self.site.input(0).dtype
        lowest = FLOAT32_LOWEST if dtype.is_float else dtype.limits[0]
        return self.reduce("largest", "max", Const(lowest, dtype), self.swept_element)
