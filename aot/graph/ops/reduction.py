"""Axes that disappear: what MEAN, SUM, REDUCE_MAX and their like share; one `Reduce` over the output's shape.

Enters: sites with a value and its axes (constant int32). Leaves: shapes, rows of the elements that become one, the primitive.
Invariant: elements are combined in the order of memory, as TFLite's loop does.
Source: tflite-micro, tensorflow/lite/kernels/internal/reference/reduce.h, ResolveAxis and Reduce.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.graph.expr import Affine, Expr, Load, axis
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, load
from aot.graph.ops import checks
from aot.graph.primitive import Reduce


@dataclass(frozen=True)
class Reduction:
    """Attributes: whether reduced dimensions stay, with size 1."""

    keep_dims: bool = False


def read(options: Any) -> Reduction:
    return Reduction() if options is None else Reduction(bool(options.KeepDims()))


def _keeps(site: Site) -> bool:
    assert isinstance(site.node.attributes, Reduction)
    return site.node.attributes.keep_dims


def reduced_axes(site: Site) -> tuple[int, ...]:
    """The reduced axes, sorted, each once; axes below 0 count from the end. A scalar has none, whatever is asked."""
    checks.require_counts(site, (2,))
    data, axes = site.input(0), site.input(1)
    checks.require_dtype(site, axes, DType.INT32)
    checks.require_elements(site, data)
    rank = len(data.shape)
    numbers = checks.require_constant(site, axes, "axes").reshape(-1).tolist()
    return tuple(sorted({checks.require_axis(site, data, number) for number in numbers})) if rank else ()


def infer(site: Site) -> tuple[Shape, ...]:
    axes, shape = reduced_axes(site), site.input(0).shape
    if _keeps(site):
        return (tuple(1 if number in axes else size for number, size in enumerate(shape)),)
    return (tuple(size for number, size in enumerate(shape) if number not in axes),)


def count(site: Site) -> int:
    """Elements that become one."""
    return math.prod(site.input(0).shape[number] for number in reduced_axes(site))


def rows(site: Site, data: np.ndarray) -> np.ndarray:
    """(outputs, count): the elements of each output in the order of memory."""
    reduced = reduced_axes(site)
    kept = [number for number in range(data.ndim) if number not in reduced]
    return data.transpose(*kept, *reduced).reshape(-1, count(site))


def element(site: Site) -> Load:
    """The load of an element; the window has the reduced axes in their order."""
    reduced, rank = reduced_axes(site), len(infer(site)[0])
    positions = iter(range(rank))
    index: list[Affine] = []
    for number in range(len(site.input(0).shape)):
        is_reduced = number in reduced
        position = next(positions) if not is_reduced or _keeps(site) else -1
        index.append(axis(rank + reduced.index(number) if is_reduced else position))
    return load(site.input(0), tuple(index))


def append(site: Site, lowering: Lowering, combine: str, initial: Expr, term: Callable[[Load], Expr], result: Expr) -> None:
    """The whole operator as one Reduce; `term` makes what is combined out of an element."""
    window = tuple(site.input(0).shape[number] for number in reduced_axes(site))
    nodes = (site.node.index,)
    lowering.append(Reduce(site.output.name, infer(site)[0], window, combine, initial, term(element(site)), result, nodes=nodes))
